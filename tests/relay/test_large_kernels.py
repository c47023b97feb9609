"""Large kernels by Fourier transforms, transposed convolutions as shuffles, odd channel counts: same results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from armillary import cpu, relay
from armillary.backends.cpu.conv2d.fourier.fourier_conv2d import fourier_conv2d
from armillary.backends.cpu.graph.transpose_as_shuffle import transpose_as_shuffle
from armillary.contrib.graph_executor import GraphModule
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Expr, Function, const, var
from armillary.relay.op import is_call
from armillary.relay.transform._rules import on_functions
from armillary.relay.walk import rewrite
from armillary.transform import PassContext, Sequential

AVX = "llvm -mcpu=znver4 -mtriple=x86_64-linux-gnu"
T = relay.transform
Array = np.ndarray[Any, Any]


def random(seed: int, *shape: int) -> Array:
    scale = 1 / np.sqrt(max(1, np.prod(shape[1:])))
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype("float32")


def typed(body: Expr) -> IRModule:
    module: IRModule = T.InferType()(IRModule.from_expr(body))
    return module


def check(before: IRModule, after: IRModule, *shape: int) -> None:
    data = random(7, *shape) * np.float32(np.sqrt(np.prod(shape[1:])))
    want, got = evaluate(before, [data]), evaluate(after, [data])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    result = GraphModule(relay.build(before, target="llvm")["default"](cpu(0)))
    result.run(x=data)
    np.testing.assert_allclose(result.get_output(0).numpy(), want, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("kernel", "step", "padding", "more", "outputs"),
    [
        (9, 3, 4, 2, 1),
        (4, 2, 1, 0, 1),
        (2, 2, 0, 0, 2),
        (3, 2, 1, 1, 2),
        (3, 2, 0, 0, 1),
        (5, 2, 4, 1, 1),
        (16, 8, 4, 0, 1),
    ],
)
def test_few_channels_of_a_transposed_convolution_become_pixels(
    kernel: int, step: int, padding: int, more: int, outputs: int
) -> None:
    x = var("x", shape=(2, 8, 5, 7))
    y = relay.nn.conv2d_transpose(
        x,
        const(random(1, 8, outputs, kernel, kernel)),
        strides=(step, step),
        padding=(padding, padding),
        output_padding=(more, more),
        channels=outputs,
        kernel_size=(kernel, kernel),
    )
    before = typed(y)
    after = T.InferType()(transpose_as_shuffle.bind(target=AVX)(before))
    assert "nn.depth_to_space" in after.astext() and "conv2d_transpose" not in after.astext()
    check(before, after, 2, 8, 5, 7)


def test_pads_that_differ_and_kernels_that_are_not_square_become_pixels() -> None:
    x = var("x", shape=(1, 9, 4, 6))
    y = relay.nn.conv2d_transpose(x, const(random(1, 9, 1, 7, 5)), strides=(3, 3), padding=(1, 4, 5, 0))
    before = typed(y)
    after = T.InferType()(transpose_as_shuffle.bind(target=AVX)(before))
    assert "nn.depth_to_space" in after.astext()
    check(before, after, 1, 9, 4, 6)


@pytest.mark.parametrize(
    "attrs", [{"strides": (1, 1)}, {"strides": (2, 3), "groups": 2}, {"strides": (2, 2), "dilation": (2, 2)}]
)
def test_other_transposed_convolutions_stay(attrs: dict[str, Any]) -> None:
    x = var("x", shape=(1, 8, 5, 7))
    before = typed(relay.nn.conv2d_transpose(x, const(random(1, 8, 1, 3, 3)), **attrs))
    assert transpose_as_shuffle.bind(target=AVX)(before).astext() == before.astext()


def test_many_channels_of_a_transposed_convolution_stay() -> None:
    x = var("x", shape=(1, 16, 5, 7))
    before = typed(relay.nn.conv2d_transpose(x, const(random(1, 16, 32, 4, 4)), strides=(2, 2), padding=(1, 1)))
    assert transpose_as_shuffle.bind(target=AVX)(before).astext() == before.astext()


@pytest.mark.parametrize(("name", "fires"), [("skylake-avx512", True), ("znver4", False)])
def test_three_channels_become_pixels_where_parts_of_vectors_are_not_faster(name: str, fires: bool) -> None:
    x = var("x", shape=(1, 16, 5, 7))
    y = relay.nn.conv2d_transpose(x, const(random(1, 16, 3, 4, 4)), strides=(2, 2), padding=(1, 1))
    before = typed(y)
    after = T.InferType()(transpose_as_shuffle.bind(target=f"llvm -mcpu={name} -mtriple=x86_64-linux-gnu")(before))
    assert ("nn.depth_to_space" in after.astext()) == fires
    check(before, after, 1, 16, 5, 7)


def blocked(body: Expr, target: str = AVX) -> IRModule:
    """What fourier-conv2d gets."""
    with PassContext(opt_level=3):
        module: IRModule = Sequential([T.AlterOpLayout(target), T.InferType()])(typed(body))
        return module


def convolution(inputs: int, outputs: int, side: int, kernel: int, **attrs: Any) -> Expr:
    """A convolution that keeps the size of its image, with random weights."""
    x = var("x", shape=(1, inputs, side, side))
    weight = const(random(1, outputs, inputs, kernel, kernel))
    return relay.nn.conv2d(x, weight, **({"padding": (kernel // 2, kernel // 2)} | attrs))


@pytest.mark.parametrize(
    ("kernel", "padding", "shape", "outputs"),
    [
        ((7, 7), (3, 3), (1, 32, 23, 11), 16),  # several tiles, and a part of one
        ((5, 5), (2, 2), (2, 16, 12, 12), 32),  # a tile for each image
        ((4, 9), (1, 0, 2, 3), (1, 8, 9, 17), 16),  # not square, uneven padding, blocks that differ
        ((5, 5), (2, 2), (2, 64, 107, 95), 64),  # in strips
        ((15, 11), (0, 0), (1, 16, 17, 20), 8),  # the largest; imaginary parts of the weights of a row
    ],
)
def test_a_large_kernel_is_computed_by_fourier_transforms(
    kernel: tuple[int, int], padding: tuple[int, ...], shape: tuple[int, ...], outputs: int
) -> None:
    y = relay.nn.conv2d(var("x", shape=shape), const(random(1, outputs, shape[1], *kernel)), padding=padding)
    before = typed(relay.nn.relu(relay.add(y, const(random(2, outputs, 1, 1)))))
    with PassContext(opt_level=3, config={"relay.FourierConv2D.use": 1}):
        assert "conv2d_fourier" in relay.optimize(before, "llvm")[0].astext(False)
        check(before, before, *shape)


@pytest.mark.parametrize("target", [AVX, "llvm -mcpu=haswell -mtriple=x86_64-linux-gnu"])
def test_fourier_transforms_are_chosen_where_an_image_has_tiles_for_its_weights(target: str) -> None:
    for body in (convolution(128, 128, 46, 7), convolution(48, 64, 35, 5)):
        found = fourier_conv2d.bind(target=target)(blocked(body, target)).astext(False)
        assert "conv2d_fourier" in found and "contrib_conv2d_NCHWc" not in found
    few = blocked(convolution(128, 128, 7, 7), target)
    assert fourier_conv2d.bind(target=target)(few).astext() == few.astext()
    with PassContext(opt_level=3, config={"relay.FourierConv2D.use": 0}):
        many = blocked(convolution(128, 128, 46, 7), target)
        assert fourier_conv2d.bind(target=target)(many) is many


@pytest.mark.parametrize(("source", "is_used"), [("record", True), ("override", False)])
def test_a_record_does_not_overrule_a_way_that_it_was_not_compared_with(source: str, is_used: bool) -> None:
    before = blocked(convolution(48, 64, 35, 5))
    stored = f"conv2d.direct rows=7 vectors=4 lines=1 | by {source}"

    def choosing(expr: Expr) -> Expr | None:
        if not is_call(expr, "nn.contrib_conv2d_NCHWc"):
            return None
        return Call(expr.op, expr.args, replace(expr.attrs, choice=stored))

    chosen = T.InferType()(on_functions(before, lambda f: rewrite(f, choosing)))
    assert stored in chosen.astext(False)
    assert ("conv2d_fourier" in fourier_conv2d.bind(target=AVX)(chosen).astext(False)) == is_used


@pytest.mark.parametrize("attrs", [{"strides": (2, 2)}, {"dilation": (2, 2)}])
def test_large_kernels_with_strides_or_dilation_stay(attrs: dict[str, Any]) -> None:
    before = blocked(convolution(16, 16, 30, 5, **attrs))
    with PassContext(opt_level=3, config={"relay.FourierConv2D.use": 1}):
        assert fourier_conv2d.bind(target=AVX)(before).astext() == before.astext()


def test_weights_of_whole_numbers_keep_their_exact_sums() -> None:
    x = var("x", shape=(1, 16, 30, 30))
    whole = np.rint(100 * random(1, 16, 16, 5, 5))
    before = blocked(relay.nn.conv2d(x, const(whole), padding=(2, 2)))
    with PassContext(opt_level=3, config={"relay.FourierConv2D.use": 1}):
        assert fourier_conv2d.bind(target=AVX)(before).astext() == before.astext()


def test_a_package_holds_a_large_kernel_once_as_it_is() -> None:
    with PassContext(opt_level=3, config={"relay.FourierConv2D.use": 1}):
        library = relay.build(typed(convolution(16, 16, 30, 7)), target="llvm")
    assert "fourier" in library.get_graph_json()
    assert sum(p.nbytes for p in library.get_params().values()) == 4 * 16 * 16 * 7 * 7


@pytest.mark.parametrize("slopes", [(0.25, 2.0, -0.5, 0.0), (0.3,)])
def test_slopes_per_channel_are_fused_into_the_convolution(slopes: tuple[float, ...]) -> None:
    x = var("x", shape=(1, 16, 6, 7))
    alpha = np.resize(np.asarray(slopes, "float32"), 16 if len(slopes) > 1 else 1)
    y = relay.nn.conv2d(x, const(random(1, 16, 16, 3, 3)), padding=(1, 1))
    y = relay.nn.conv2d(relay.nn.prelu(y, const(alpha), axis=1), const(random(2, 16, 16, 1, 1)))
    before = typed(y)
    after = T.InferType()(T.CanonicalizeOps()(before))
    assert "prelu" not in after.astext()
    check(before, after, 1, 16, 6, 7)
    kernels = relay.optimize(before, AVX)[0].astext()
    assert kernels.count("layout_transform") <= 2, "only what enters and leaves the network changes its layout"


def test_infinities_keep_their_slope() -> None:
    x = var("x", shape=(1, 2, 1, 2))
    before = typed(relay.nn.prelu(x, const(np.float32([0.0, 2.0])), axis=1))
    data = np.float32([np.inf, -1, -np.inf, 3]).reshape(1, 2, 1, 2)
    after = T.InferType()(T.CanonicalizeOps()(before))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(evaluate(after, [data]), evaluate(before, [data]))


def test_a_concatenation_of_odd_channels_does_not_break_the_blocks_of_its_inputs() -> None:
    x = var("x", shape=(1, 16, 9, 8))
    parts = []
    for channels in (18, 36):
        y = relay.nn.relu(relay.nn.conv2d(x, const(random(channels, channels, 16, 3, 3)), padding=(1, 1)))
        parts.append(relay.nn.conv2d(y, const(random(channels, channels, channels, 3, 3)), padding=(1, 1)))
    before = typed(relay.nn.conv2d(relay.concatenate(parts, axis=1), const(random(4, 16, 54, 1, 1))))
    passes = Sequential([T.PadChannels(AVX), T.InferType(), T.AlterOpLayout(AVX), T.InferType()])
    after = passes(before)
    made = [line for line in after.astext().splitlines() if "kernel_size=[3, 3]" in line or "padding=[1, 1" in line]
    assert len(made) == 4 and not any(odd in line for line in made for odd in ("NCHW9c", "NCHW6c", "6o", "9o"))
    check(before, after, 1, 16, 9, 8)


@pytest.mark.parametrize(("side", "block"), [(32, 8), (12, 16)])
def test_half_vectors_stay_where_winograd_pays(side: int, block: int) -> None:
    x = var("x", shape=(1, 24, side, side))
    before = typed(relay.nn.conv2d(x, const(random(1, 16, 24, 3, 3)), padding=(1, 1)))
    after = T.InferType()(T.AlterOpLayout(AVX)(before))
    assert f'out_layout="NCHW{block}c"' in after.astext()
    check(before, after, 1, 24, side, side)


def test_a_depthwise_convolution_carries_added_channels() -> None:
    x = var("x", shape=(1, 16, 6, 6))
    y = relay.nn.relu(relay.nn.conv2d(x, const(random(1, 120, 16, 1, 1))))
    y = relay.nn.conv2d(y, const(random(2, 120, 1, 3, 3)), padding=(1, 1), groups=120)
    before = typed(relay.nn.conv2d(y, const(random(3, 16, 120, 1, 1))))
    after = T.InferType()(T.PadChannels(AVX)(before))
    assert "groups=128" in after.astext() and "strided_slice" not in after.astext()
    check(before, after, 1, 16, 6, 6)


def test_functions_that_need_nothing_are_returned_as_they_are() -> None:
    module = typed(Function([x := var("x", shape=(1, 3, 4, 4))], relay.nn.relu(x)))
    assert fourier_conv2d.bind(target=AVX)(module).astext() == module.astext()
