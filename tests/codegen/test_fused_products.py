"""A sum of floats takes a product in without rounding it, but not where the difference of two equal values shows it.

In: expressions of two vectors whose value is exactly 0 where every product is rounded. Out: 0 at every level and on
every back end. Which sums take products in: `codegen.base.fused_product`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import relay, tir
from armillary.codegen.base import fused_product
from armillary.contrib.graph_executor import GraphModule
from armillary.ir import IRModule
from armillary.runtime.device import cl, cpu
from armillary.tir import expr as E

SIZE = 67


def zeros(x: relay.Expr, y: relay.Expr) -> Iterator[relay.Expr]:
    """Expressions that are 0 in any order of rounding, but not with one product left unrounded."""
    third, mean = relay.const(1 / 3, "float32"), relay.mean(x, axis=1, keepdims=True)
    sizes = relay.abs(x) * relay.abs(y)
    p, q = (relay.reshape(value, (SIZE, 1, 1)) for value in (x, y))
    yield x * x - x * x
    yield x * y - y * x
    yield relay.negative(x * y) + x * y
    yield x * y + relay.negative(x) * y
    yield x * third - third * x
    yield x * third + x * relay.const(-1 / 3, "float32")
    yield x * x - relay.power(x, relay.const(2.0, "float32"))
    yield relay.mean(x * x, axis=1, keepdims=True) - mean * mean
    yield relay.reshape(relay.nn.batch_matmul(p, q, transpose_b=False), (SIZE, 1)) - x * y
    yield relay.nn.relu(sizes) - sizes
    yield relay.abs(x * y) + relay.negative(relay.abs(x)) * relay.abs(y)
    yield (x * y + relay.zeros_like(x)) - x * y
    thirds = relay.full_like(p, third)
    yield relay.reshape(relay.nn.batch_matmul(p, thirds, transpose_b=False), (SIZE, 1)) - x * third
    yield x * third - relay.reshape(relay.nn.batch_matmul(p, thirds, transpose_b=False), (SIZE, 1))


@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize(
    "target", ["llvm", "llvm -mcpu=native", "c -mcpu=native", pytest.param("opencl", marks=needs_opencl)]
)
def test_a_difference_of_equal_values_is_zero(target: str, level: int) -> None:
    count = len(list(zeros(relay.var("x", shape=(SIZE, 1)), relay.var("y", shape=(SIZE, 1)))))
    inputs = [[relay.var(f"{name}{k}", shape=(SIZE, 1)) for name in "xy"] for k in range(count)]
    differences = [list(zeros(*pair))[k] for k, pair in enumerate(inputs)]  # of inputs of their own: nothing is shared
    parameters = tuple(var for pair in inputs for var in pair)
    module = IRModule.from_expr(relay.Function(parameters, relay.Tuple(tuple(differences))))
    with armillary.transform.PassContext(opt_level=level):
        library = relay.build(module, target=target)
    executor = GraphModule(library["default"](cl(0) if target == "opencl" else cpu(0)))
    rng = np.random.default_rng(1)
    executor.run(**{var.name_hint: rng.standard_normal((SIZE, 1)).astype(np.float32) for var in parameters})
    assert [k for k in range(count) if np.any(executor.get_output(k).numpy())] == []


def test_which_products_sums_take_in() -> None:
    w, x, y, b = (tir.Var(name, "float32") for name in "wxyb")
    two = tir.const(2.0, "float32")
    assert fused_product(E.Add(p := E.Mul(x, w), b)) is p
    assert fused_product(E.Add(b, p)) is p
    assert fused_product(E.Add(b, p := E.Mul(two, x))) is p
    assert fused_product(E.Add(E.Max(E.Mul(y, x), b), E.Mul(x, y))) is None
    assert fused_product(E.Add(E.Mul(x, y), E.Mul(x, w))) is not None
    i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    assert fused_product(E.Add(E.Mul(i, j), i)) is None
