"""Convolutions of both kinds by kernels far larger than their data: each position is read once, not each tap."""

from __future__ import annotations

import time

import numpy as np
import pytest

from armillary import relay
from armillary.contrib import graph_executor
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr
from armillary.relay.op import get_op
from armillary.relay.walk import post_order
from armillary.runtime.device import cpu
from armillary.transform import PassContext

CASES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, object]]] = {
    # operator, data, weight, attributes
    "strides, dilation, groups": (
        "nn.conv1d_transpose",
        (2, 4, 3),
        (4, 3, 1500),
        {"strides": (2,), "dilation": (3,), "padding": (5, 7), "groups": 2, "output_padding": (1,)},
    ),
    "two axes": ("nn.conv2d_transpose", (1, 2, 2, 3), (2, 3, 40, 50), {"strides": (2, 1), "padding": (5, 7, 1, 2)}),
    "three axes": ("nn.conv3d_transpose", (1, 2, 2, 1, 3), (2, 1, 12, 13, 14), {"strides": (2, 1, 2), "groups": 2}),
    "float16": ("nn.conv1d_transpose", (1, 2, 3), (2, 1, 1100), {}),
    "a convolution": (
        "nn.conv1d",
        (2, 4, 3),
        (6, 2, 1500),
        {"strides": (2,), "dilation": (3,), "padding": (4490, 4492), "groups": 2},
    ),
    "padding beyond the kernel": ("nn.conv2d", (1, 2, 2, 3), (3, 2, 40, 50), {"padding": (39, 52, 45, 60)}),
    "volumes": ("nn.conv3d", (1, 2, 2, 1, 3), (2, 1, 12, 13, 14), {"padding": (11, 12, 13) * 2, "groups": 2}),
}


def random(shape: tuple[int, ...], seed: int, dtype: str) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)  # sums of whole numbers are exact


def simplified(params: list[Expr], body: Expr) -> Expr:
    module = relay.transform.InferType()(IRModule.from_expr(relay.Function(params, body)))
    return relay.transform.SimplifyInference()(module)["main"].body


def taps(expr: Expr) -> int:
    """The most taps of a convolution."""
    found = [e for e in post_order(expr) if isinstance(e, Call) and "nn.conv" in getattr(e.op, "name", "")]
    return max(int(np.prod(e.args[1].checked_type.static[2:])) for e in found)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_data_and_kernel_change_places(name: str, is_known: bool, level: int) -> None:
    op, shape, kernel, attrs = CASES[name]
    dtype = "float16" if name == "float16" else "float32"
    x, w = random(shape, 1, dtype), random(kernel, 2, dtype)
    data, weight = relay.var("x", shape=shape, dtype=dtype), relay.var("w", shape=kernel, dtype=dtype)
    call = get_op(op)(data, weight, **attrs)
    simple = simplified([data, weight], call)
    assert taps(simple) <= int(np.prod(shape[2:]))
    params = {"w": w} if is_known else {}
    with PassContext(opt_level=level):
        library = relay.build(relay.Function([data, weight], call), "llvm", params=params)
    network = graph_executor.GraphModule(library["default"](cpu()))
    network.run(**({"x": x} if is_known else {"x": x, "w": w}))
    want = call.op.evaluate(call.attrs, [x, w])
    np.testing.assert_array_equal(network.get_output(0).numpy(), want)


@pytest.mark.parametrize("op", ["nn.conv1d", "nn.conv1d_transpose"])
def test_a_million_taps_on_two_positions_take_no_minutes(op: str) -> None:
    count = 1_000_000
    x, w = relay.var("x", shape=(1, 1, 2)), relay.var("w", shape=(1, 1, count))
    attrs = {} if op.endswith("transpose") else {"padding": (count - 1, count - 1)}
    library = relay.build(relay.Function([x, w], get_op(op)(x, w, **attrs)), "llvm")
    network = graph_executor.GraphModule(library["default"](cpu()))
    weight = random((1, 1, count), 3, "float32")
    begin = time.monotonic()
    network.run(x=np.array([[[2, 3]]], np.float32), w=weight)
    assert time.monotonic() - begin < 30  # every tap for every output: over two minutes
    numbers = weight.ravel() if op.endswith("transpose") else weight.ravel()[::-1]
    want = np.convolve(numbers, [2, 3])
    np.testing.assert_array_equal(network.get_output(0).numpy().ravel(), want)


def test_usual_kernels_stay_as_they_are() -> None:
    for op, shape, kernel, attrs in (
        ("nn.conv2d", (1, 2, 32, 33), (2, 2, 32, 33), {}),
        ("nn.conv2d", (1, 2, 1, 1), (2, 2, 7, 7), {"padding": (3, 3)}),
        ("nn.conv2d_transpose", (1, 2, 1, 1), (2, 3, 4, 4), {}),
    ):
        x, w = relay.var("x", shape=shape), relay.var("w", shape=kernel)
        assert taps(simplified([x, w], get_op(op)(x, w, **attrs))) == int(np.prod(kernel[2:]))
