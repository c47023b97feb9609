"""frames-conv2d: convolutions over three axes read frames where they lie, with the values of the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.backends.cpu.conv2d.direct.frames_conv2d import frames_conv2d
from armillary.contrib import graph_executor
from armillary.errors import TypeMismatch
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call
from armillary.relay.op import OPS, Op
from armillary.relay.walk import post_order
from armillary.transform import PassContext

FRAMES = "cpu.conv2d_frames_NCHWc"


def film(channels: int, outputs: int, depth: int, size: tuple[int, int], **attrs: Any) -> tuple[relay.Function, Any]:
    """relu(conv3d(relu(conv3d(x)))), the first with 1x1x1 taps, so that the second reads blocked channels."""
    rng = np.random.default_rng(3)
    x = relay.var("x", shape=(1, channels, depth, *size))
    mixed = relay.const((rng.standard_normal((channels, channels, 1, 1, 1)) / channels).astype("float32"))
    kernel = attrs.pop("kernel")
    weight = relay.const((rng.standard_normal((outputs, channels, *kernel)) / channels).astype("float32"))
    y = relay.nn.relu(relay.nn.conv3d(x, mixed))
    function = relay.Function([x], relay.nn.relu(relay.nn.conv3d(y, weight, **attrs)))
    return function, rng.standard_normal((1, channels, depth, *size)).astype("float32")


def operators(function: relay.Function) -> list[str]:
    with PassContext(opt_level=3):
        main = relay.optimize(function, "llvm")[0]["main"]
    bodies = [e.op.body for e in post_order(main) if isinstance(e, Call) and not isinstance(e.op, Op)]
    return [e.op.name for body in bodies for e in post_order(body) if isinstance(e, Call) and isinstance(e.op, Op)]


@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel": (3, 1, 1), "padding": (1, 0, 0)},
        {"kernel": (7, 1, 1), "padding": (3, 0, 0), "strides": (2, 1, 1)},
        {"kernel": (3, 1, 1), "padding": (2, 0, 0), "dilation": (2, 1, 1)},
        {"kernel": (2, 1, 1)},
        {"kernel": (3, 3, 3), "padding": (1, 1, 1), "strides": (1, 2, 2)},
    ],
)
def test_values_are_those_of_the_definition(attrs: dict[str, Any]) -> None:
    function, data = film(32, 48, 9, (7, 5), **attrs)
    assert operators(function).count(FRAMES) == 1 and "concatenate" not in operators(function)
    with PassContext(opt_level=3):
        library = relay.build(function, target="llvm")
    executor = graph_executor.GraphModule(library["default"](armillary.cpu()))
    executor.run(x=data)
    np.testing.assert_allclose(executor.get_output(0).numpy(), evaluate(function, [data]), rtol=1e-4, atol=1e-4)


def test_winograd_keeps_its_copies() -> None:
    """Its tiles are transformed once for all taps of the depth."""
    function, _ = film(64, 64, 6, (28, 28), kernel=(3, 3, 3), padding=(1, 1, 1))
    names = operators(function)
    assert "cpu.conv2d_winograd_NCHWc" in names and FRAMES not in names


@pytest.mark.parametrize("axis", [1, 0])
def test_irregular_slices_stay(axis: int) -> None:
    """Frames 0, 1 and 3 are no window; images side by side along another axis are no channels."""
    rng = np.random.default_rng(3)
    x = relay.var("x", shape=(6, 2, 4, 4, 16))
    parts = [relay.strided_slice(x, begin=[b], end=[b + 3], axes=[0]) for b in ((0, 1, 3) if axis else (0, 1, 2))]
    joined = relay.concatenate(parts, axis=axis)
    weight = relay.const(rng.standard_normal((1, 6 if axis else 2, 1, 1, 16, 16)).astype("float32"))
    made = relay.nn.contrib_conv2d_NCHWc(
        joined, weight, channels=16, kernel_size=(1, 1), data_layout="NCHW16c", kernel_layout="OIHW16i16o"
    )
    module = armillary.IRModule.from_expr(relay.Function([x], made))
    after = frames_conv2d.bind()(relay.transform.InferType()(module))
    assert FRAMES not in str(after) and "concatenate" in str(after)


@pytest.mark.parametrize(
    "wrong", [{"frame_stride": 0}, {"frame_dilation": 0}, {"frames": 0}, {"frames": -1}, {"frame_padding": (-1, 0)}]
)
def test_a_window_over_frames_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    op = OPS[FRAMES]
    x, w = relay.var("x", shape=(4, 1, 5, 5, 8)), relay.var("w", shape=(1, 1, 3, 3, 8, 8))
    attrs = op.make_attrs((), {"kernel_size": (3, 3), **wrong})
    with pytest.raises(TypeMismatch, match="frames"):
        _ = Call(op, (x, w), attrs).checked_type
