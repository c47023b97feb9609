"""Products of computed matrices over named sizes: one kernel, every count of rows, columns and terms."""

from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.contrib.graph_executor import GraphModule
from armillary.relay.parser import parse
from armillary.runtime import GraphExecutor
from armillary.transform import PassContext

RNG = np.random.default_rng(5)
SIZES = ((1, 1), (2, 8), (1, 15), (3, 17), (1, 33), (1, 70), (2, 131))  # matrices, rows


def compiled(text: str, target: str = "llvm -mcpu=native") -> GraphModule:
    with PassContext(opt_level=3):
        library = relay.build(parse(text), target)
    executor = library["default"](armillary.cpu())
    assert isinstance(executor, GraphExecutor)
    return GraphModule(executor)


def f32(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("target", ["llvm -mcpu=native", "llvm -mcpu=haswell"])
@pytest.mark.parametrize(
    ("left", "right", "swap"),
    [
        (("n", "s", 32), ("n", "s", 32), True),  # scores, and values
        (("n", "s", 32), ("n", 32, "s"), False),
        (("n", "s", "s"), ("n", "s", 24), False),
        (("n", "s", "s"), ("n", "s", 13), False),
        (("n", "s", 20), (1, "s", 20), True),
        (("n", 5, "s"), ("n", 7, "s"), True),
    ],
)
def test_every_size_is_right(left: Any, right: Any, swap: bool, target: str) -> None:
    a, b = (f"Tensor[({', '.join(map(str, dims))}), float32]" for dims in (left, right))
    net = compiled(f"def @main(%a: {a}, %b: {b}) {{ nn.batch_matmul(%a, %b, transpose_b={swap}) }}", target)
    for n, s in SIZES:
        given = {"n": n, "s": s}
        x, y = (f32(*(given.get(d, d) for d in dims)) for dims in (left, right))
        net.run(a=x, b=y)
        wanted = np.matmul(x, y.transpose(0, 2, 1) if swap else y)
        np.testing.assert_allclose(net.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_what_follows_a_product_is_computed_with_it() -> None:
    net = compiled(
        """def @main(%a: Tensor[(n, s, 16), float32], %b: Tensor[(n, s, 16), float32],
            %mask: Tensor[(n, 1, s), float32], %row: Tensor[(s, 1), float32]) {
        %0 = nn.batch_matmul(%a, %b);
        %1 = multiply(%0, 0.25f);
        %2 = add(%1, %mask);
        add(%2, %row)
    }"""
    )
    for n, s in SIZES:
        a, b, mask, row = f32(n, s, 16), f32(n, s, 16), f32(n, 1, s), f32(s, 1)
        net.run(a=a, b=b, mask=mask, row=row)
        wanted = a @ b.transpose(0, 2, 1) * 0.25 + mask + row
        np.testing.assert_allclose(net.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_positions_divided_by_a_size_are_found_once_for_all_rows() -> None:
    text = """def @main(%mask: Tensor[(n, s), int64], %x: Tensor[(n, s, s), float32]) {
        %0 = reshape(%mask, newshape=[n*s, 1]);
        %1 = arange(start=0, stop=s, dtype="int64");
        %2 = take(%0, %1, axis=0, mode="wrap");
        %3 = reshape(%2, newshape=[1, 1, -1]);
        %4 = cast(%3, dtype="float32");
        add(%x, %4)
    }"""
    with PassContext(opt_level=3):
        library = relay.build(parse(text), "llvm -mcpu=native")
    net = GraphModule(library["default"](armillary.cpu()))
    for n, s in SIZES:
        mask, x = RNG.integers(0, 2, (n, s)), f32(n, s, s)
        net.run(mask=mask, x=x)
        np.testing.assert_array_equal(net.get_output(0).numpy(), x + mask[0].astype("float32"))
    before, positions, rows = library.get_source("tir").split(" parallel {")
    assert "alloc" in before and "% broadcast(" in positions and "% broadcast(" not in rows
