"""fold-explicit-padding against NumPy, and kernels of at most so many calls."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.relay.testing import run_opt_pass

IMAGE = relay.var("x", shape=(1, 2, 6, 7))
DATA = np.random.default_rng(0).standard_normal((1, 2, 6, 7)).astype("float32")
PADS = {"window": ((2, 1), (0, 0)), "more": ((3, 3), (0, 2)), "less": ((1, 1), (1, 1))}


def _run(expr: relay.Expr) -> np.ndarray:
    module = armillary.IRModule.from_expr(relay.Function([IMAGE], expr))
    return relay.create_executor("graph", mod=module, target="llvm").evaluate()(DATA).numpy()


def _windows(data: np.ndarray, size: tuple[int, int], stride: int, is_ceil: bool) -> np.ndarray:
    """Means of the windows of a padded image: what lies past its end neither counts nor is read."""
    shape = data.shape[2:]
    ends = [(n - k + (stride - 1) * is_ceil) // stride + 1 for n, k in zip(shape, size, strict=True)]
    starts = [[k * stride for k in range(end) if k * stride < n] for end, n in zip(ends, shape, strict=True)]
    rows = [[data[..., i : i + size[0], j : j + size[1]].mean((2, 3)) for j in starts[1]] for i in starts[0]]
    return np.moveaxis(np.array(rows), (0, 1), (2, 3))


@pytest.mark.parametrize("name", PADS)
@pytest.mark.parametrize(("stride", "is_ceil"), [(k, ceil) for k in (1, 2, 3) for ceil in (False, True)])
def test_means_over_padding_in_front_are_numpys(name: str, stride: int, is_ceil: bool) -> None:
    pads = ((0, 0), (0, 0), *PADS[name])
    for size, is_counted in itertools.product(((2, 2), (3, 2)), (False, True)):
        options = {"strides": (stride, stride), "ceil_mode": is_ceil, "count_include_pad": is_counted}
        before = relay.nn.avg_pool2d(relay.nn.pad(IMAGE, pads), pool_size=size, **options)
        after = run_opt_pass(before, relay.transform.FoldExplicitPadding())
        assert is_ceil or "nn.pad" not in str(after)
        want = _windows(np.pad(DATA, pads), size, stride, is_ceil)
        for expr in (before, after):
            np.testing.assert_allclose(_run(expr), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("pads", "is_folded"), [((3, 3), False), ((1, 0), True)])
def test_windows_that_start_in_padding_stay_where_sizes_are_rounded_up(pads: tuple[int, int], is_folded: bool) -> None:
    for pool, value in ((relay.nn.avg_pool2d, 0.0), (relay.nn.max_pool2d, float(np.finfo("float32").min))):
        padded = relay.nn.pad(IMAGE, ((0, 0), (0, 0), pads, (0, 0)), value)
        before = pool(padded, pool_size=(2, 2), strides=(2, 2), ceil_mode=True)
        after = run_opt_pass(before, relay.transform.FoldExplicitPadding())
        assert ("nn.pad" not in str(after)) is is_folded
        np.testing.assert_allclose(_run(after), _run(before), rtol=1e-6)


@pytest.mark.parametrize("depth", [1, 2, 3, 256])
def test_kernels_have_at_most_so_many_calls(depth: int) -> None:
    expr: relay.Expr = IMAGE
    for unary in (relay.exp, relay.tanh, relay.sqrt, relay.negative, relay.sigmoid):
        expr = unary(relay.abs(expr))
    with armillary.transform.PassContext(opt_level=3, config={"relay.FuseOps.max_depth": depth}):
        fused = relay.transform.FuseOps()(
            relay.transform.InferType()(armillary.IRModule.from_expr(relay.Function([IMAGE], expr)))
        )
        result = _run(expr)
    sizes: list[int] = []

    def count(node: relay.Expr) -> None:
        if isinstance(node, relay.Function) and node.attrs and "Primitive" in node.attrs:
            calls: list[relay.Expr] = []
            relay.analysis.post_order_visit(node.body, lambda e: calls.append(e) if isinstance(e, relay.Call) else None)
            sizes.append(len(calls))

    relay.analysis.post_order_visit(fused["main"], count)
    assert max(sizes) == min(depth, 10) and sum(sizes) == 10
    with np.errstate(over="ignore"):
        want = np.abs(np.negative(np.abs(np.sqrt(np.abs(np.tanh(np.abs(np.exp(np.abs(DATA)))))))))
    np.testing.assert_allclose(result, 1 / (1 + np.exp(-want)), rtol=1e-5)
