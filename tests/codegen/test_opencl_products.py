"""The product kernel on an OpenCL device: odd sizes, transposed and broadcast operands, what is fused around it.

The truth is numpy in float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.errors import ConfigError
from armillary.relay.expr import Call, Expr, Var
from armillary.relay.op import get_op
from tests.opencl_device import needs_opencl

pytestmark = needs_opencl
Values = NDArray[np.float32]
SIZES = [(4, 3, 5), (7, 13, 1), (33, 65, 17), (64, 64, 64), (197, 96, 50), (130, 36, 260), (5, 1000, 12), (49, 49, 300)]


def _run(inputs: Mapping[str, Values], result: Expr, variables: Sequence[Var], target: str = "opencl") -> Values:
    module = armillary.IRModule.from_expr(relay.Function(list(variables), result))
    graph = graph_executor.GraphModule(relay.build(module, target)["default"](armillary.opencl(0)))
    for name, value in inputs.items():
        graph.set_input(name, value)
    graph.run()
    values: Values = graph.get_output(0).numpy()
    return values


def _source(result: Expr, variables: Sequence[Var]) -> str:
    module = armillary.IRModule.from_expr(relay.Function(list(variables), result))
    text: str = relay.build(module, "opencl").get_lib().get_source()
    return text


def _drawn(*shape: int) -> Values:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def _check(got: Values, wanted: NDArray[np.float64]) -> None:
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6 * max(1.0, float(np.abs(wanted).max())))


@pytest.mark.parametrize("sizes", [(33, 65, 17), (49, 49, 300), (130, 256, 512)])
def test_products_of_computed_matrices_for_adreno(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    x, y = relay.var("x", shape=(2, m, k)), relay.var("y", shape=(2, n, k))
    values = {"x": _drawn(2, m, k), "y": _drawn(2, n, k)}
    wanted = values["x"].astype("float64") @ values["y"].astype("float64").swapaxes(1, 2)
    _check(_run(values, relay.nn.batch_matmul(x, y), [x, y], "opencl -device=adreno"), wanted)


@pytest.mark.parametrize("sizes", SIZES)
def test_dense_of_odd_sizes_with_bias_and_gelu(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    x, w, b = relay.var("x", shape=(m, k)), relay.var("w", shape=(n, k)), relay.var("b", shape=(n,))
    total = relay.nn.bias_add(relay.nn.dense(x, w), b)
    result = total * relay.const(0.5) * (relay.const(1.0) + relay.erf(total * relay.const(0.5**0.5)))
    values = {"x": _drawn(m, k), "w": _drawn(n, k), "b": _drawn(n)}
    sums = values["x"].astype("float64") @ values["w"].astype("float64").T + values["b"]
    erf = np.vectorize(__import__("math").erf)
    _check(_run(values, result, [x, w, b]), sums * 0.5 * (1 + erf(sums * 0.5**0.5)))


@pytest.mark.parametrize(("a", "b"), list(itertools.product((False, True), repeat=2)))
@pytest.mark.parametrize("batches", [(3, 3), (1, 3), (3, 1)])
def test_batches_of_products_with_either_side_transposed_or_broadcast(
    a: bool, b: bool, batches: tuple[int, int]
) -> None:
    m, n, k = 19, 40, 33
    one, other = (batches[0], *((k, m) if a else (m, k))), (batches[1], *((n, k) if b else (k, n)))
    x, y = relay.var("x", shape=one), relay.var("y", shape=other)
    result = relay.nn.batch_matmul(x, y, transpose_a=a, transpose_b=b)
    values = {"x": _drawn(*one), "y": _drawn(*other)}
    lhs, rhs = values["x"].astype("float64"), values["y"].astype("float64")
    wanted = (lhs.swapaxes(1, 2) if a else lhs) @ (rhs.swapaxes(1, 2) if b else rhs)
    _check(_run(values, result, [x, y]), wanted)


def test_what_comes_before_and_after_is_one_kernel() -> None:
    x, w, r = relay.var("x", shape=(20, 24)), relay.var("w", shape=(32, 24)), relay.var("r", shape=(20, 32))
    result = relay.nn.relu(relay.nn.dense(x, w) + r)
    assert _source(result, [x, w, r]).count("__kernel") == 1
    values = {"x": _drawn(20, 24), "w": _drawn(32, 24), "r": _drawn(20, 32)}
    wanted = values["x"].astype("float64") @ values["w"].astype("float64").T + values["r"]
    _check(_run(values, result, [x, w, r]), np.maximum(wanted, 0))


@pytest.mark.parametrize(
    "tile",
    [
        "threads_c=4 threads_y=4 threads_x=8 own_c=1 own_y=1 own_x=4 step=16 unroll=0",
        "threads_c=8 threads_y=2 threads_x=8 own_c=4 own_y=1 own_x=8 step=8 unroll=0",
        "threads_c=16 threads_y=1 threads_x=16 own_c=8 own_y=1 own_x=8 step=8 unroll=0",
        "threads_c=8 threads_y=2 threads_x=8 own_c=2 own_y=4 own_x=4 step=16 unroll=0",
    ],
)
@pytest.mark.parametrize("terms", [129, 256])
def test_named_tiles_sum_all_terms(tile: str, terms: int) -> None:
    x, w = relay.var("x", shape=(37, terms)), relay.var("w", shape=(52, terms))
    result = _chosen(x, w, tile)
    values = {"x": _drawn(37, terms), "w": _drawn(52, terms)}
    _check(_run(values, result, [x, w]), values["x"].astype("float64") @ values["w"].astype("float64").T)


def _chosen(x: Var, w: Var, tile: str) -> Expr:
    op = get_op("nn.dense")
    return Call(op, (x, w), op.make_attrs(named={"choice": f"gemm.tiles {tile}"}))


def test_a_tile_that_the_kernel_lacks_is_refused() -> None:
    x, w = relay.var("x", shape=(8, 16)), relay.var("w", shape=(8, 16))
    tile = "threads_c=8 threads_y=1 threads_x=8 own_c=3 own_y=1 own_x=4 step=8 unroll=0"
    with pytest.raises(ConfigError, match="rows are 1, 2, 4 or 8"):
        _run({}, _chosen(x, w, tile), [x, w])


CONVOLUTIONS = [  # data, channels of the result, taps, strides, padding, dilation
    ((1, 64, 14, 14), 48, (1, 1), 1, (0, 0), 1),
    ((1, 32, 7, 7), 40, (1, 1), 1, (0, 0), 1),
    ((2, 16, 9, 11), 20, (3, 3), 2, (1, 1), 1),
    ((1, 40, 14, 14), 24, (3, 3), 1, (2, 2), 2),
    ((1, 16, 17, 17), 24, (1, 7), 1, (0, 3), 1),
]


@pytest.mark.parametrize(("shape", "channels", "taps", "stride", "padding", "dilation"), CONVOLUTIONS)
def test_convolutions_are_products_without_im2col(
    shape: tuple[int, ...],
    channels: int,
    taps: tuple[int, int],
    stride: int,
    padding: tuple[int, int],
    dilation: int,
) -> None:
    op = get_op("nn.conv2d")
    x, w = relay.var("x", shape=shape), relay.var("w", shape=(channels, shape[1], *taps))
    attrs = {"strides": (stride,) * 2, "padding": padding * 2, "dilation": (dilation,) * 2, "kernel_size": taps}
    plain = op.make_attrs(named={**attrs, "channels": channels})
    chosen = op.make_attrs(named={**attrs, "channels": channels, "choice": "gemm.tiles"})
    values = {"x": _drawn(*shape), "w": _drawn(channels, shape[1], *taps)}
    wanted = op.reference_rule(plain, *(value.astype("float64") for value in values.values()))
    result = relay.nn.relu(Call(op, (x, w), chosen))
    assert "left_stages" in _source(result, [x, w])
    _check(_run(values, result, [x, w]), np.maximum(wanted, 0))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("sizes", [(1, 5, 8), (1, 130, 264), (2, 33, 1024), (3, 1000, 520), (1, 20000, 64), (2, 7, 12)])
def test_few_rows_with_bias_and_relu(sizes: tuple[int, int, int], dtype: str) -> None:
    m, n, k = sizes
    x, w, b = (
        relay.var(name, shape=shape, dtype=dtype) for name, shape in zip("xwb", ((m, k), (n, k), (n,)), strict=True)
    )
    total = relay.cast(relay.nn.dense(x, w, out_dtype="float32"), "float32") + relay.cast(b, "float32")
    values = {name: v.astype(dtype) for name, v in {"x": _drawn(m, k), "w": _drawn(n, k), "b": _drawn(n)}.items()}
    wide = [v.astype("float64") for v in values.values()]
    _check(_run(values, relay.nn.relu(total), [x, w, b]), np.maximum(wide[0] @ wide[1].T + wide[2], 0))


def test_the_weights_of_few_rows_are_read_four_at_once() -> None:
    x, w = relay.var("x", shape=(2, 512)), relay.var("w", shape=(64, 512))
    text = _source(relay.nn.dense(x, w), [x, w])
    assert text.count("__kernel") == 1
    assert text.count("*(__global float4*)(p1") == 2, "two loads of four weights in a turn, for both rows"
