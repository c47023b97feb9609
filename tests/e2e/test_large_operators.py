"""Operators at sizes where schedules tile, vectorise with remainders and run in parallel, against float64.

The samples of the operator matrix are small; here shapes are drawn so that tiles do not divide them.
"""

from __future__ import annotations

from typing import Any

import e2e_models as models
import numpy as np
import pytest

from armillary.ir import IRModule
from armillary.ops.nn._windows import call
from armillary.relay.expr import Expr, Function, Tuple, TupleGetItem, var
from armillary.relay.transform import InferType

SEED = 77


def _draw_convolution(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    kernel = tuple(int(k) for k in rng.choice([1, 3, 5, 7], 2, p=[0.35, 0.4, 0.15, 0.1]))
    groups = int(rng.choice([1, 1, 1, 2, 4]))
    channels, filters = (int(n) * groups for n in rng.integers(1, 40, 2))
    if rng.random() < 0.2:
        groups, filters = channels, channels  # depthwise
    size = [int(n) for n in rng.integers(15, 34, 2)]
    attrs = {
        "strides": _integers(rng, 1, 3, 2),
        "padding": _integers(rng, 0, 4, 4),
        "dilation": _integers(rng, 1, 3, 2),
        "groups": groups,
        "channels": filters,
        "kernel_size": kernel,
    }
    return (int(rng.integers(1, 3)), channels, *size), (filters, channels // groups, *kernel), attrs


def _integers(rng: np.random.Generator, low: int, high: int, count: int) -> tuple[int, ...]:
    return tuple(int(v) for v in rng.integers(low, high, count))


def _check(body: Expr, inputs: tuple[Any, ...], rng: np.random.Generator, level: int, what: str) -> None:
    module = InferType()(IRModule.from_expr(Function(inputs, body)))
    main = module["main"]
    arrays = {p.name_hint: rng.uniform(-1, 1, p.checked_type.static).astype(np.float32) for p in main.params}
    params = {name: value for name, value in arrays.items() if name != "x"}
    got = models.run(models.compiled(module, params, level=level), {"x": arrays["x"]})
    want = models.in_double(module, arrays, {})
    assert models.relative_error(got, want) < 3e-5, what


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("number", range(16))
def test_drawn_convolution_with_bias_sum_and_relu(number: int, level: int) -> None:
    rng = np.random.default_rng((SEED, number))
    data, weight, attrs = _draw_convolution(rng)
    x, w = var("x", shape=data, dtype="float32"), var("w", shape=weight, dtype="float32")
    b = var("b", shape=(weight[0],), dtype="float32")
    y = call("nn.bias_add", call("nn.conv2d", x, w, **attrs), b)
    body = call("nn.relu", call("add", y, call("sigmoid", y)))
    _check(body, (x, w, b), rng, level, f"seed ({SEED}, {number}): {data} {weight} {attrs}")


def _dense(rng: np.random.Generator) -> tuple[Expr, tuple[Any, ...]]:
    m, n, k = (int(v) for v in rng.integers(1, 150, 3))
    x, w, b = (var(s, shape=shape, dtype="float32") for s, shape in (("x", (m, k)), ("w", (n, k)), ("b", (n,))))
    return call("nn.relu", call("add", call("nn.dense", x, w), b)), (x, w, b)


def _batch_matmul(rng: np.random.Generator) -> tuple[Expr, tuple[Any, ...]]:
    batch, m, n, k = (int(v) for v in rng.integers(2, 60, 4))
    transposed = bool(rng.integers(2))
    x = var("x", shape=(batch, m, k), dtype="float32")
    w = var("w", shape=(batch, n, k) if transposed else (batch, k, n), dtype="float32")
    return call("nn.softmax", call("nn.batch_matmul", x, w, transpose_b=transposed)), (x, w)


def _pools(rng: np.random.Generator) -> tuple[Expr, tuple[Any, ...]]:
    x = var("x", shape=(1, *(int(v) for v in rng.integers(20, 50, 3))), dtype="float32")
    largest = call("nn.max_pool2d", x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    mean = call("nn.avg_pool2d", x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    return call("concatenate", Tuple((largest, mean)), axis=1), (x,)


def _normalised(rng: np.random.Generator) -> tuple[Expr, tuple[Any, ...]]:
    shape = tuple(int(v) for v in rng.integers(20, 70, 3))
    x, scale, shift = (var(s, shape=d, dtype="float32") for s, d in (("x", shape), ("w", shape[2:]), ("b", shape[2:])))
    return call("transpose", call("nn.layer_norm", x, scale, shift), axes=(0, 2, 1)), (x, scale, shift)


def _reduced(rng: np.random.Generator) -> tuple[Expr, tuple[Any, ...]]:
    x = var("x", shape=tuple(int(v) for v in rng.integers(20, 60, 3)), dtype="float32")
    parts = [call("mean", call("exp", x), axis=axis, keepdims=True) for axis in ((0,), (1,), (2,), (0, 2))]
    return call("add", call("add", parts[0], parts[1]), call("multiply", parts[2], parts[3])), (x,)


def _shuffled(rng: np.random.Generator) -> tuple[Expr, tuple[Any, ...]]:
    half, height, width = (int(v) for v in rng.integers(20, 40, 3))
    x = var("x", shape=(1, 2 * half, height, width), dtype="float32")
    parts = call("split", x, indices_or_sections=2, axis=1)
    mixed = call("concatenate", Tuple((TupleGetItem(parts, 1), call("tanh", TupleGetItem(parts, 0)))), axis=1)
    apart = call("reshape", mixed, newshape=(1, 2, half, height, width))
    return call("reshape", call("transpose", apart, axes=(0, 2, 1, 3, 4)), newshape=(1, 2 * half, height, width)), (x,)


NETWORKS = (_dense, _batch_matmul, _pools, _normalised, _reduced, _shuffled)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("make", NETWORKS, ids=lambda f: f.__name__.strip("_"))
def test_drawn_shapes(make: Any, number: int, level: int) -> None:
    rng = np.random.default_rng((SEED, number))
    body, params = make(rng)
    _check(body, params, rng, level, f"seed ({SEED}, {number})")
