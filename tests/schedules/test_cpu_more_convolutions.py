"""Convolutions beyond the usual: transposed, odd groups and channel counts, over three axes; slices and resizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import relay, te
from armillary.backends.cpu.conv2d.planes.schedule import planes_compute
from armillary.backends.cpu.elementwise.default import PACKED
from armillary.driver.build import build
from armillary.relay.evaluate import evaluate
from armillary.relay.op import get_op as op
from armillary.runtime import cpu
from armillary.transform import PassContext

AVX512 = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"
ZEN4 = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4"


class Weights:
    """Random constants from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, *shape: int) -> Any:
        return relay.const((self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32"))


def check(body: Any, x: Any, tolerance: float = 2e-5) -> None:
    """Compiled and evaluated agree."""
    function = relay.Function([x], body)
    value = np.random.default_rng(9).standard_normal(x.checked_type.static).astype("float32")
    with PassContext(opt_level=3):
        graph = build(function, "llvm")["default"](cpu(0))
    graph.set_input("x", value)
    graph.run()
    expected = evaluate(function, [value])
    got = graph.get_output(0).numpy()
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= tolerance * max(1.0, np.abs(expected).max())


def optimized(body: Any, x: Any, target: str = AVX512) -> str:
    with PassContext(opt_level=3):
        return str(relay.optimize(relay.Function([x], body), target)[0].astext(False))


TRANSPOSED = [
    (32, 16, (13, 14), 3, 2, (1, 1), (1, 1)),
    (32, 16, (13, 14), 3, 2, (1, 1), (0, 0)),
    (32, 32, (9, 9), 4, 2, (1, 1), (0, 0)),
    (64, 32, (4, 4), 4, 2, (1, 1), (0, 0)),
    (32, 16, (5, 5), 3, 1, (1, 1), (0, 0)),  # several rows in a tile
    (16, 48, (7, 8), 5, 3, (2, 2), (1, 1)),
    (16, 16, (6, 6), 2, 2, (0, 0), (0, 0)),
    (20, 512, (1, 1), 4, 1, (0, 0), (0, 0)),
    (16, 3, (8, 8), 4, 2, (1, 1), (0, 0)),
    (6, 5, (5, 6), 3, 2, (0, 1, 2, 1), (1, 1)),
]


@pytest.mark.parametrize(("inputs", "outputs", "image", "kernel", "stride", "padding", "extra"), TRANSPOSED)
def test_transposed_convolution_agrees_with_the_reference(
    inputs: int, outputs: int, image: tuple[int, int], kernel: int, stride: int, padding: Any, extra: Any
) -> None:
    w, x = Weights(1), relay.var("x", shape=(1, inputs, *image))
    attrs = {"strides": (stride, stride), "padding": padding, "output_padding": extra}
    y = relay.nn.conv2d_transpose(x, w(inputs, outputs, kernel, kernel), **attrs)
    check(relay.nn.relu(y + w(outputs, 1, 1)), x)


def test_a_value_read_twice_after_a_transposed_convolution_stays_in_its_tile() -> None:
    w, x = Weights(2), relay.var("x", shape=(1, 16, 6, 6))
    y = relay.nn.conv2d_transpose(x, w(16, 16, 4, 4), strides=(2, 2), padding=(1, 1))
    check(y * relay.sigmoid(y), x)


def test_three_channels_of_a_transposed_convolution_fill_a_block_of_four_where_that_is_fast() -> None:
    w, x = Weights(6), relay.var("x", shape=(1, 32, 16, 16))
    y = relay.tanh(relay.nn.conv2d_transpose(x, w(32, 3, 4, 4), strides=(2, 2), padding=(1, 1)))
    assert 'out_layout="NCHW4c"' in optimized(y, x, ZEN4)
    assert "nn.depth_to_space" in optimized(y, x)
    check(y, x)
    wide = relay.nn.conv2d_transpose(relay.nn.conv2d(x, w(58, 32, 1, 1)), w(58, 3, 2, 2), strides=(2, 2))
    check(relay.nn.conv2d(relay.nn.relu(wide), w(16, 3, 3, 3)), x)


def test_a_transposed_convolution_is_blocked_unless_it_has_groups() -> None:
    w, x = Weights(3), relay.var("x", shape=(1, 16, 6, 6))
    text = optimized(relay.nn.conv2d_transpose(x, w(16, 16, 2, 2), strides=(2, 2)), x)
    assert "cpu.conv2d_transpose_NCHWc" in text
    text = optimized(relay.nn.conv2d_transpose(x, w(16, 8, 2, 2), strides=(2, 2), groups=2), x)
    assert "cpu.conv2d_transpose_NCHWc" not in text


def test_weights_of_a_transposed_convolution_that_are_computed_are_packed() -> None:
    """StyleGAN2 scales them by a style."""
    w, x = Weights(7), relay.var("x", shape=(1, 32, 5, 6))
    style = relay.reshape(relay.mean(x, axis=(0, 2, 3)), (32, 1, 1, 1))
    y = relay.nn.conv2d_transpose(x, w(32, 32, 3, 3) * style, strides=(2, 2))
    assert "cpu.conv2d_transpose_NCHWc" in optimized(y, x)
    check(y, x)


GROUPED = [
    (68, 34, 2, (14, 14), 1, 1, 1, 0),
    (34, 34, 2, (9, 7), 3, 1, 1, 1),
    (34, 34, 2, (15, 13), 3, 2, 1, 1),
    (34, 34, 2, (15, 15), 5, 2, 2, 4),
    (21, 42, 7, (9, 9), 3, 3, 1, 1),
    (34, 34, 34, (9, 9), 3, 1, 1, 1),
    (58, 29, 1, (7, 7), 1, 1, 1, 0),
    (34, 68, 2, (28, 28), 1, 1, 1, 0),  # whole vectors of the image, but not a multiple of a tile
    (34, 34, 2, (12, 17), 1, 1, 1, 0),
    (34, 34, 2, (3, 3), 1, 1, 1, 0),
]


@pytest.mark.parametrize(("inputs", "outputs", "groups", "image", "kernel", "stride", "dilation", "pad"), GROUPED)
def test_groups_that_no_block_divides_agree_with_the_reference(
    inputs: int, outputs: int, groups: int, image: tuple[int, int], kernel: int, stride: int, dilation: int, pad: int
) -> None:
    w, x = Weights(4), relay.var("x", shape=(2, inputs, *image))
    attrs = {"strides": (stride,) * 2, "padding": (pad,) * 2, "dilation": (dilation,) * 2, "groups": groups}
    y = relay.nn.conv2d(x, w(outputs, inputs // groups, kernel, kernel), **attrs)
    check(relay.nn.relu(y + w(outputs, 1, 1)), x)
    check(y * relay.sigmoid(y), x)  # a value read twice


def test_a_1x1_convolution_copies_no_more_of_its_image_than_the_end() -> None:
    w, x = Weights(5), relay.var("x", shape=(1, 136, 14, 14))
    attrs = op("nn.conv2d").make_attrs((), {"groups": 4, "channels": 136, "kernel_size": (1, 1)})
    data = te.placeholder((1, 136, 14, 14), "float32", name="data")
    flat = planes_compute(attrs, data, te.placeholder((136, 34, 1, 1), "float32", name="weight"))
    assert [te.static_shape(t) for t in copies(flat)] == [(1, 136, 16)]
    check(relay.nn.conv2d(x, w(136, 34, 1, 1), groups=4), x)


def copies(result: te.Tensor) -> list[te.Tensor]:
    """The stages of a convolution that are copies of its data."""
    (flat,) = result.op.input_tensors
    return [t for t in flat.op.input_tensors if t.op.tag == PACKED]


def test_wide_channels_go_through_a_depthwise_convolution_and_end_in_the_next_one() -> None:
    w, x = Weights(5), relay.var("x", shape=(1, 16, 14, 14))
    y = relay.nn.relu(relay.nn.conv2d(x, w(58, 16, 1, 1)) + w(58, 1, 1))
    y = relay.nn.conv2d(y, w(58, 1, 3, 3), padding=(1, 1), groups=58) + w(58, 1, 1)
    y = y * relay.clip(y + relay.const(np.float32(3)), a_min=0.0, a_max=6.0)
    y = relay.nn.conv2d(y, w(32, 58, 1, 1))
    text = optimized(y, x)
    assert "channels=64" in text and "strided_slice" not in text
    check(y, x)


def test_a_wide_value_is_sliced_for_what_does_not_know_it() -> None:
    w, x = Weights(6), relay.var("x", shape=(1, 16, 14, 14))
    y = relay.nn.relu(relay.nn.conv2d(x, w(58, 16, 1, 1)))
    both = relay.concatenate([y, relay.nn.conv2d(y, w(58, 58, 1, 1))], axis=1)
    check(relay.nn.max_pool2d(both, pool_size=(2, 2), strides=(2, 2)), x)


def test_zero_weights_never_meet_infinite_channels() -> None:
    """log of an added channel would be -inf, and -inf times a zero weight NaN: it reads a slice instead."""
    w, x = Weights(7), relay.var("x", shape=(1, 16, 14, 14))
    y = relay.log(relay.abs(relay.nn.conv2d(x, w(58, 16, 1, 1))))
    check(relay.nn.conv2d(y, w(32, 58, 1, 1)), x)


def test_slices_and_resizes_keep_blocks() -> None:
    w, x = Weights(8), relay.var("x", shape=(1, 16, 8, 8))
    y = relay.nn.relu(relay.nn.conv2d(x, w(64, 16, 1, 1)))
    half = relay.strided_slice(y, begin=[32], end=[64], axes=[1])
    near = relay.image.resize2d(half, size=(16, 16), method="nearest_neighbor")
    smooth = relay.image.resize2d(half, size=(16, 16), method="linear")
    y = relay.nn.conv2d(relay.concatenate([near, smooth], axis=1), w(32, 64, 1, 1))
    text = optimized(relay.nn.global_avg_pool2d(y), x)
    assert text.count("layout_transform(") == 1  # the input; a 1x1 image needs none
    check(y, x)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_and_pooling_over_three_axes(stride: int) -> None:
    w, x = Weights(9), relay.var("x", shape=(2, 3, 5, 9, 10))
    y = relay.nn.conv3d(x, w(16, 3, 3, 3, 3), strides=(stride, 1, 1), padding=(1, 1, 1))
    y = relay.nn.relu(y + w(16, 1, 1, 1))
    y = relay.nn.max_pool3d(y, pool_size=(2, 2, 2), strides=(1, 2, 2))
    check(relay.nn.conv3d(y, w(8, 16, 1, 3, 3)), x)


@pytest.mark.parametrize(
    ("batch", "kernel", "attrs"),
    [
        (1, (2, 2, 2), {"strides": (2, 2, 2)}),
        (2, (3, 3, 3), {"strides": (2, 2, 1), "padding": (1, 1, 1), "output_padding": (1, 1, 0)}),
        (1, (4, 3, 2), {"strides": (3, 2, 2), "padding": (2, 0, 1), "dilation": (2, 1, 1)}),
        (1, (5, 1, 1), {"strides": (1, 1, 1), "padding": (4, 0, 0)}),
        (2, (1, 2, 2), {"strides": (3, 1, 2), "output_padding": (2, 0, 1)}),
    ],
)
def test_transposed_convolution_over_three_axes(batch: int, kernel: tuple[int, ...], attrs: dict[str, Any]) -> None:
    w, x = Weights(10), relay.var("x", shape=(batch, 6, 5, 7, 6))
    y = relay.nn.conv3d_transpose(x, w(6, 16, *kernel), **attrs)
    assert "conv3d_transpose" not in optimized(y, x)
    check(relay.nn.relu(y + w(16, 1, 1, 1)), x)


@pytest.mark.parametrize("shape", [(1, 20, 14, 14), (2, 3, 7, 7), (1, 5, 28, 28), (1, 40, 3, 5)])
def test_copies_of_images_work_on_the_whole_image(shape: tuple[int, ...]) -> None:
    x = relay.var("x", shape=shape)
    n, c, h, w = shape
    parts = [relay.strided_slice(x, begin=[c // 2], end=[c], axes=[1]), x]
    y = relay.concatenate(parts, axis=1)
    check(relay.transpose(relay.reshape(y, (n, 1, -1, h, w)), (0, 2, 1, 3, 4)) * relay.const(np.float32(2)), x)
