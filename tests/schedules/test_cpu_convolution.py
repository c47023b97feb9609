"""The CPU convolution schedules: right for awkward shapes, tiles that fit the registers, and a sensible choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay, te
from armillary.backends.cpu.conv2d.direct.space import images_together, nest_of
from armillary.backends.cpu.conv2d.winograd.cost import Layer, Plan, estimate
from armillary.backends.cpu.conv2d.winograd.winograd_conv2d import select
from armillary.backends.cpu.cost.model import choose_tile, sums_by_parts
from armillary.backends.cpu.loops import in_bands, static_extent
from armillary.backends.workload import Workload
from armillary.driver.build import build
from armillary.relay.evaluate import evaluate
from armillary.relay.op import get_op
from armillary.relay.types import TensorType
from armillary.runtime import cpu
from armillary.runtime.threads import config_threadpool
from armillary.target import Target, cpu_model
from armillary.tir.interpreter import interpret
from armillary.transform import PassContext

AVX512 = cpu_model(Target("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"))


def compiled(function: Any, x: np.ndarray, **config: Any) -> np.ndarray:
    with PassContext(opt_level=3, config=config):
        graph = build(function, "llvm")["default"](cpu(0))
    graph.set_input("x", x)
    graph.run()
    return graph.get_output(0).numpy().copy()


def conv(shape: tuple[int, ...], channels: int, kernel: int, seed: int, **attrs: Any) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(seed)
    groups = attrs.get("groups", 1)
    weight = rng.standard_normal((channels, shape[1] // groups, kernel, kernel)).astype("float32")
    bias = rng.standard_normal((channels, 1, 1)).astype("float32")
    x = relay.var("x", shape=shape)
    y = relay.nn.relu(relay.nn.conv2d(x, relay.const(weight), **attrs) + relay.const(bias))
    return relay.Function([x], y), rng.standard_normal(shape).astype("float32")


DIRECT = [
    ((1, 16, 9, 9), 32, 3, {"padding": (1, 1)}),
    ((1, 32, 15, 17), 48, 3, {"padding": (1, 1), "strides": (2, 2)}),
    ((2, 16, 7, 30), 16, 1, {}),
    ((1, 3, 33, 31), 32, 7, {"padding": (3, 3), "strides": (2, 2)}),
    ((1, 16, 12, 12), 16, 3, {"padding": (2, 2), "dilation": (2, 2)}),
    ((1, 32, 10, 10), 32, 3, {"padding": (1, 1), "groups": 32}),
    ((1, 32, 11, 11), 64, 3, {"padding": (1, 1), "groups": 2}),
    ((1, 16, 8, 8), 16, 3, {"padding": (0, 1, 2, 1)}),
    ((1, 16, 5, 40), 20, 5, {"padding": (2, 2)}),
    ((2, 64, 16, 9), 64, 3, {"padding": (1, 1), "groups": 64}),
    ((2, 48, 28, 11), 80, 1, {}),
    ((1, 32, 20, 20), 32, 3, {"padding": (6, 6), "dilation": (6, 6)}),
    ((2, 32, 19, 37), 32, 3, {"padding": (12, 18), "dilation": (12, 18)}),
    ((1, 16, 9, 33), 16, 3, {"padding": (0, 20, 0, 3), "strides": (1, 2), "dilation": (1, 5)}),
    ((1, 32, 21, 40), 32, 3, {"padding": (7, 7), "dilation": (7, 7), "groups": 32}),
    ((1, 512, 13, 21), 48, 3, {"padding": (9, 9), "dilation": (9, 9)}),
    ((2, 480, 31, 30), 32, 3, {"padding": (12, 12), "dilation": (12, 12)}),
    ((1, 512, 40, 70), 32, 3, {"padding": (0, 20), "dilation": (4, 24)}),
    ((1, 2048, 7, 7), 64, 1, {}),
    ((2, 1024, 5, 6), 96, 1, {}),
]


def _direct_nest(target: str, inputs: int, outputs: int, side: int, dilation: int) -> tuple[Any, Any]:
    """A dilated convolution to the same size, as tiles see it, and the CPU."""
    attrs = {"padding": (dilation,) * 4, "dilation": (dilation, dilation), "channels": outputs, "kernel_size": (3, 3)}
    attrs |= {"data_layout": "NCHW16c", "kernel_layout": "OIHW16i16o", "out_layout": "NCHW16c"}
    op = get_op("nn.contrib_conv2d_NCHWc")
    types = (
        TensorType((1, inputs // 16, side, side, 16), "float32"),
        TensorType((outputs // 16, inputs // 16, 3, 3, 16, 16), "float32"),
    )
    workload = Workload(op, op.make_attrs((), attrs), types, Target(target))
    return nest_of(workload, cpu_model(target)), cpu_model(target)


def test_tiles_of_dilated_windows_end_where_taps_reach_the_padding() -> None:
    nest, cpu_of = _direct_nest("llvm -mcpu=graniterapids", 320, 256, 32, 12)
    assert nest.taps == ((12, 32), (0, 32), (0, 20))
    assert choose_tile(nest, cpu_of).rows == 12
    near, _ = _direct_nest("llvm -mcpu=graniterapids", 320, 256, 56, 2)
    assert near.taps == ()


def test_sums_of_dilated_windows_are_by_parts_where_weights_do_not_stay_near() -> None:
    for target, inputs, by_parts in (
        ("llvm -mcpu=graniterapids", 2048, True),
        ("llvm -mcpu=graniterapids", 320, True),
        ("llvm -mcpu=graniterapids", 128, False),
        ("llvm -mcpu=znver4", 2048, True),
        ("llvm -mcpu=znver4", 320, False),
    ):
        nest, cpu_of = _direct_nest(target, inputs, 256, 32, 12)
        assert sums_by_parts(nest, choose_tile(nest, cpu_of), cpu_of) == by_parts, (target, inputs)


@pytest.mark.skipif(not cpu_model(Target("llvm")).has("avx2"), reason="runs code for Skylake")
def test_dilated_windows_on_plain_images_keep_whole_sums() -> None:
    """With a small L2 the weights of 3x11x11 do not stay in it, but the sum of a plain image has no parts."""
    function, x = conv((1, 3, 40, 40), 32, 11, 5, padding=(20, 20), dilation=(4, 4))
    with PassContext(opt_level=3):
        graph = build(function, "llvm -mcpu=skylake")["default"](cpu(0))
    graph.set_input("x", x)
    graph.run()
    np.testing.assert_allclose(graph.get_output(0).numpy(), evaluate(function, {"x": x}), rtol=1e-3, atol=1e-3)


def test_the_explanation_says_that_a_sum_is_by_parts() -> None:
    function, _ = conv((1, 512, 24, 24), 32, 3, 6, padding=(20, 20), dilation=(20, 20))
    with PassContext(opt_level=3, config={"relay.WinogradConv2D.max_tile": 0}):
        graph = build(function, "llvm -mcpu=znver4 -mtriple=x86_64-linux-gnu").get_graph_json()
        server = build(function, "llvm -mcpu=graniterapids -mtriple=x86_64-linux-gnu").get_graph_json()
    assert "direct convolution, the sum by parts" in str(server)
    assert "by parts" not in str(graph)  # its L2 holds the weights of a group


@pytest.mark.parametrize(("shape", "channels", "kernel", "attrs"), DIRECT)
def test_direct_convolution_agrees_with_the_reference(
    shape: tuple[int, ...], channels: int, kernel: int, attrs: dict[str, Any]
) -> None:
    function, x = conv(shape, channels, kernel, 1, **attrs)
    got = compiled(function, x, **{"relay.WinogradConv2D.max_tile": 0})
    np.testing.assert_allclose(got, evaluate(function, [x]), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not cpu_model(Target("llvm")).has("avx2"), reason="runs code for Haswell")
@pytest.mark.parametrize("tile", ["4x2", "3x3", "7x1x2", "2x4", "4x1x3"])
@pytest.mark.parametrize(
    ("shape", "channels", "kernel", "attrs"),
    [
        ((1, 16, 9, 9), 40, 3, {"padding": (1, 1)}),
        ((2, 8, 16, 14), 56, 1, {}),
        ((1, 64, 7, 7), 104, 1, {}),
        ((2, 16, 7, 7), 40, 1, {}),
        ((1, 16, 1, 1), 56, 1, {}),
        ((1, 16, 14, 14), 136, 3, {"padding": (1, 1), "strides": (2, 2)}),
        ((2, 16, 8, 8), 72, 4, {"padding": (1, 2, 1, 1), "strides": (2, 2)}),
    ],
)
def test_last_tiles_may_be_narrower_and_tall_ones_reach_into_the_padding(
    shape: tuple[int, ...], channels: int, kernel: int, attrs: dict[str, Any], tile: str
) -> None:
    function, x = conv(shape, channels, kernel, 1, **attrs)
    with PassContext(opt_level=3, config={"relay.WinogradConv2D.max_tile": 0, "cpu.tile": tile}):
        graph = build(function, "llvm -mcpu=haswell")["default"](cpu(0))
    graph.set_input("x", x)
    graph.run()
    np.testing.assert_allclose(graph.get_output(0).numpy(), evaluate(function, [x]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("cpu_name", "vectors"), [("sapphirerapids", 2), ("znver4", 1)])
def test_blocks_that_two_do_not_divide_share_loads_where_two_ports_wait_for_them(cpu_name: str, vectors: int) -> None:
    model = cpu_model(Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu_name}"))
    function, _ = conv((1, 208, 14, 14), 208, 1, 1)
    with PassContext(opt_level=3):
        library = build(function, f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu_name}")
    assert f"14x{vectors}" in library.get_graph_json(), model


@pytest.mark.parametrize(
    ("rows", "lines"),
    [(28, [4, 3, 7]), (14, [2, 3, 7]), (27, [4, 3, 7]), (13, [2, 3, 7]), (17, [2, 3, 9]), (7, [3, 7]), (6, [3, 6])],
)
def test_threads_share_an_image_by_bands_of_rows(rows: int, lines: list[int]) -> None:
    x = te.placeholder((3, rows), name="x")
    y = te.compute((3, rows), lambda c, r: x(c, r) + 1.0, name="y")
    schedule = te.create_schedule(y.op)
    loops = in_bands(schedule[y], *schedule[y].op.axis)
    schedule[y].reorder(*loops)
    assert [static_extent(loop) for loop in loops] == lines
    (function,) = armillary.lower(schedule, [x, y]).functions.values()
    data = np.arange(3 * rows, dtype=np.float32).reshape(3, rows)
    got = np.zeros_like(data)
    interpret(function, data, got)
    np.testing.assert_array_equal(got, data + 1)


@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (2, 0, 1, 1)])
@pytest.mark.parametrize(("height", "width", "batch"), [(56, 56, 1), (13, 29, 2), (7, 7, 1), (30, 62, 1)])
def test_winograd_agrees_with_the_reference(padding: tuple[int, ...], height: int, width: int, batch: int) -> None:
    function, x = conv((batch, 32, height, width), 32, 3, 2, padding=padding)
    with PassContext(opt_level=3):
        text = str(relay.optimize(function, "llvm")[0].astext(False))
    got, expected = compiled(function, x), evaluate(function, [x])
    assert np.abs(got - expected).max() < 2e-5 * np.abs(expected).max(), text


DILATED = [
    ((1, 32, 28, 28), {"padding": (2, 2), "dilation": (2, 2)}),
    ((2, 32, 13, 29), {"padding": (3, 3), "dilation": (3, 3)}),
    ((1, 16, 33, 17), {"padding": (1, 4, 0, 2), "dilation": (4, 4)}),
    ((2, 16, 19, 22), {"padding": (1, 2), "dilation": (1, 2)}),
    ((1, 16, 11, 24), {"padding": (0, 0), "dilation": (5, 3)}),
]


@pytest.mark.parametrize("strip", [-1, 0, 8])
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(("shape", "attrs"), DILATED)
def test_dilated_winograd_agrees_with_the_reference(
    shape: tuple[int, ...], attrs: dict[str, Any], tile: int, strip: int
) -> None:
    rng = np.random.default_rng(8)
    function, x = conv(shape, 32, 3, 8, **attrs)
    result = evaluate(function, [x])
    shortcut = relay.const(rng.standard_normal(result.shape).astype("float32"))
    function = relay.Function(function.params, relay.nn.relu(function.body - shortcut))
    expected = np.maximum(result - shortcut.data, 0)
    with PassContext(opt_level=3, config={"relay.WinogradConv2D.tile": tile, "cpu.winograd.strip": strip}):
        library = build(function, "llvm")
    assert f"Winograd F({tile},3)" in library.get_graph_json()
    for threads in (1, 2):
        try:
            config_threadpool(0, threads)
            graph = library["default"](cpu(0))
            graph.set_input("x", x)
            graph.run()
        finally:
            config_threadpool(0, 2)
        assert np.abs(graph.get_output(0).numpy() - expected).max() < 2e-5 * np.abs(result).max()


@pytest.mark.parametrize("strip", [-1, 0, 4])
@pytest.mark.parametrize(
    ("shape", "channels", "groups"), [((1, 96, 14, 14), 96, 2), ((2, 64, 9, 17), 128, 4), ((1, 48, 12, 16), 48, 3)]
)
def test_winograd_of_groups_agrees_with_the_reference(
    shape: tuple[int, ...], channels: int, groups: int, strip: int
) -> None:
    function, x = conv(shape, channels, 3, 9, padding=(1, 1), groups=groups)
    expected = evaluate(function, [x])
    with PassContext(opt_level=3, config={"relay.WinogradConv2D.tile": 4, "cpu.winograd.strip": strip}):
        library = build(function, "llvm")
    assert "Winograd F(4,3)" in library.get_graph_json()
    graph = library["default"](cpu(0))
    graph.set_input("x", x)
    graph.run()
    assert np.abs(graph.get_output(0).numpy() - expected).max() < 2e-5 * np.abs(expected).max()


def test_groups_of_whole_vectors_are_done_by_winograd_where_they_are_wide() -> None:
    for inside, pays in ((48, True), (8, False)):
        function, _ = conv((1, 9 * inside, 14, 14), 9 * inside, 3, 9, padding=(1, 1), groups=9)
        with PassContext(opt_level=3):
            text = relay.optimize(function, "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")[0].astext(False)
        assert ("winograd_NCHWc" in text) == pays, inside


def test_dilated_layers_of_segmentation_networks_are_done_by_winograd_where_phases_are_large() -> None:
    for name in ("sapphirerapids", "znver4"):
        target = f"llvm -mtriple=x86_64-linux-gnu -mcpu={name}"
        for side, channels, dilation, pays in ((28, 256, 2, True), (28, 512, 4, True), (12, 512, 6, False)):
            pads = (dilation, dilation)
            function, _ = conv((1, channels, side, side), channels, 3, 3, padding=pads, dilation=pads)
            with PassContext(opt_level=3):
                text = relay.optimize(function, target)[0].astext(False)
            assert ("winograd_NCHWc" in text) == pays, (name, side, dilation)


@pytest.mark.skipif(not cpu_model(Target("llvm")).has("avx2"), reason="runs code for Haswell")
@pytest.mark.parametrize(("tile", "batch"), [("7x1x2", 1), ("7x1x2", 2), ("7x1", 1)])
def test_winograd_products_of_several_lines_of_tiles_may_leave_a_rest(tile: str, batch: int) -> None:
    function, x = conv((batch, 16, 28, 28), 16, 3, 2, padding=(1, 1))
    config = {"relay.WinogradConv2D.tile": 4, "cpu.winograd.strip": 0, "cpu.tile": tile}
    with PassContext(opt_level=3, config=config):
        library = build(function, "llvm -mcpu=haswell")
    assert f'"{tile}' in library.get_graph_json().replace("\\", "")
    graph = library["default"](cpu(0))
    graph.set_input("x", x)
    graph.run()
    expected = evaluate(function, [x])
    assert np.abs(graph.get_output(0).numpy() - expected).max() < 2e-5 * np.abs(expected).max()


def test_a_plain_image_of_few_channels_is_summed_whole_so_that_no_column_spills() -> None:
    function, _ = conv((1, 3, 64, 64), 64, 11, 1, strides=(4, 4), padding=(2, 2))
    with PassContext(opt_level=3):
        library = build(function, "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids")
    text = str(library.get_lib().get_source("asm"))
    assert sum("(%rsp)" in line and "zmm" in line for line in text.splitlines()) < 64  # in parts: hundreds


def test_a_convolution_that_pays_is_done_by_winograd_and_the_option_forbids_it() -> None:
    function, _ = conv((1, 64, 56, 56), 64, 3, 3, padding=(1, 1))
    target = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"
    with PassContext(opt_level=3):
        assert "winograd_NCHWc" in relay.optimize(function, target)[0].astext(False)
    with PassContext(opt_level=3, config={"relay.WinogradConv2D.max_tile": 0}):
        assert "winograd" not in relay.optimize(function, target)[0].astext(False)
    with PassContext(opt_level=3, disabled_pass=["WinogradConv2d"]):
        assert "winograd" not in relay.optimize(function, target)[0].astext(False)


def test_whole_weights_stay_direct_but_for_zeros_which_untrained_networks_have() -> None:
    x, target = relay.var("x", shape=(1, 64, 56, 56)), "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"
    for value, by_winograd in ((1.0, False), (0.0, True), (0.5, True)):
        weight = relay.const(np.full((64, 64, 3, 3), value, np.float32))
        body = relay.nn.conv2d(x, weight, kernel_size=(3, 3), channels=64, padding=(1, 1))
        with PassContext(opt_level=3):
            text = relay.optimize(relay.Function([x], body), target)[0].astext(False)
        assert ("winograd_NCHWc" in text) == by_winograd, value


def test_small_images_with_many_channels_do_not_take_large_tiles() -> None:
    assert select(Layer(512, 512, 1, 7, 7), AVX512, 6).knob("tile", 0) in (
        0,
        2,
    )  # F(4,3) would read four times the weights
    assert select(Layer(64, 64, 1, 56, 56), AVX512, 4).knob("tile", 0) == 4
    assert select(Layer(64, 64, 1, 56, 56), AVX512, 2).knob("tile", 0) == 2
    direct, winograd = (estimate(Layer(64, 64, 1, 56, 56), plan, AVX512) for plan in (Plan(0), Plan(4, 14)))
    assert winograd.cycles < 0.5 * direct.cycles


@pytest.mark.parametrize(
    ("target", "shape", "outputs", "together"),
    [
        ("graniterapids", (16, 1024, 7), 1024, 4),  # eight would not stay in L2
        ("graniterapids", (12, 512, 7), 2048, 6),
        ("graniterapids", (7, 512, 7), 2048, 7),
        ("graniterapids", (1, 1024, 7), 1024, 1),
        ("graniterapids", (16, 512, 14), 512, 1),  # weights stay in L2
        ("graniterapids", (16, 768, 20), 768, 1),  # one image hides them
        ("znver4", (16, 1024, 7), 1024, 2),
    ],
)
def test_images_of_a_batch_share_weights_that_do_not_stay_near(
    target: str, shape: tuple[int, int, int], outputs: int, together: int
) -> None:
    batch, inputs, side = shape
    attrs = {"channels": outputs, "kernel_size": (1, 1), "data_layout": "NCHW16c", "kernel_layout": "OIHW16i16o"}
    op, lanes = get_op("nn.contrib_conv2d_NCHWc"), 16
    types = (
        TensorType((batch, inputs // lanes, side, side, lanes), "float32"),
        TensorType((outputs // lanes, inputs // lanes, 1, 1, lanes, lanes), "float32"),
    )
    workload = Workload(op, op.make_attrs((), attrs), types, Target(f"llvm -mcpu={target}"))
    assert images_together(workload, cpu_model(workload.target)) == together


@pytest.mark.skipif(not cpu_model(Target("llvm")).has("avx2"), reason="runs code for small second-level caches")
@pytest.mark.parametrize("cpu_name", ["skylake", "znver1"])
@pytest.mark.parametrize(
    ("shape", "channels", "kernel", "attrs"),
    [
        ((6, 256, 5, 5), 272, 1, {}),
        ((4, 128, 8, 8), 136, 3, {"padding": (1, 1), "strides": (2, 2)}),
        ((3, 128, 6, 9), 128, 4, {"padding": (1, 2), "strides": (2, 1)}),
        ((4, 512, 4, 4), 128, 2, {}),
    ],
)
def test_images_that_share_weights_agree_with_the_reference(
    shape: tuple[int, ...], channels: int, kernel: int, attrs: dict[str, Any], cpu_name: str
) -> None:
    function, x = conv(shape, channels, kernel, 7, **attrs)
    with PassContext(opt_level=3):
        graph = build(function, f"llvm -mcpu={cpu_name}")["default"](cpu(0))
    graph.set_input("x", x)
    graph.run()
    np.testing.assert_allclose(graph.get_output(0).numpy(), evaluate(function, [x]), rtol=1e-4, atol=1e-4)


def classifier(channels: int) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(5)
    weight = rng.standard_normal((channels, 16, 1, 1)).astype("float32")
    bias = rng.standard_normal((channels, 1, 1)).astype("float32")
    x = relay.var("x", shape=(1, 16, 7, 7))
    y = relay.nn.relu(relay.nn.conv2d(x, relay.const(weight)) + relay.const(bias))
    y = relay.nn.softmax(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y)))
    return relay.Function([x], y), rng.standard_normal((1, 16, 7, 7)).astype("float32")


@pytest.mark.parametrize(("channels", "computed"), [(1000, 1008), (1024, 1024), (20, 20), (999, 1008)])
def test_channels_are_rounded_up_to_whole_vectors_where_little_is_wasted(channels: int, computed: int) -> None:
    function, x = classifier(channels)
    with PassContext(opt_level=3):
        text = relay.optimize(function, "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids")[0].astext(False)
    assert ("strided_slice" in text) == (computed != channels)
    if computed != channels:
        assert f"channels={computed}" in text
    np.testing.assert_allclose(compiled(function, x), evaluate(function, [x]), rtol=1e-4, atol=1e-6)


def test_two_rounded_convolutions_one_after_another_agree_with_the_reference() -> None:
    rng = np.random.default_rng(6)
    x = relay.var("x", shape=(1, 16, 5, 5))
    first = relay.nn.conv2d(x, relay.const(rng.standard_normal((190, 16, 1, 1)).astype("float32")))
    second = relay.nn.conv2d(relay.nn.relu(first), relay.const(rng.standard_normal((190, 190, 1, 1)).astype("float32")))
    function = relay.Function([x], relay.tanh(second * relay.const(0.01)))
    value = rng.standard_normal((1, 16, 5, 5)).astype("float32")
    np.testing.assert_allclose(compiled(function, value), evaluate(function, [value]), rtol=1e-4, atol=1e-5)


AHEAD = [
    ((1, 256, 14, 14), 256, 3, {"padding": (1, 1)}, {"relay.WinogradConv2D.tile": 4, "cpu.winograd.strip": 0}),
    ((1, 256, 13, 11), 240, 3, {"padding": (1, 1)}, {"relay.WinogradConv2D.tile": 4, "cpu.winograd.strip": 0}),
    ((2, 384, 7, 7), 384, 3, {"padding": (1, 1)}, {"relay.WinogradConv2D.tile": 2, "cpu.winograd.strip": 0}),
    ((1, 256, 13, 15), 256, 3, {"padding": (1, 1), "strides": (2, 2)}, {}),
    ((1, 512, 7, 7), 272, 1, {}, {}),
]


@pytest.mark.parametrize(("shape", "channels", "kernel", "attrs", "config"), AHEAD)
def test_weights_asked_for_ahead_change_no_result(
    shape: tuple[int, ...], channels: int, kernel: int, attrs: dict[str, Any], config: dict[str, Any]
) -> None:
    function, x = conv(shape, channels, kernel, 4, **attrs)
    text = assembly(function, config)
    assert "prefetch" in text
    expected = evaluate(function, [x])
    for threads in (1, 2, 3, 4):
        try:
            config_threadpool(0, threads)
            got = compiled(function, x, **config)
        finally:
            config_threadpool(0, 2)
        assert np.abs(got - expected).max() < 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("shape", "channels", "kernel", "config"),
    [
        ((1, 16, 14, 14), 16, 3, {"relay.WinogradConv2D.tile": 4, "cpu.winograd.strip": 0}),  # few weights
        ((1, 512, 4, 4), 512, 3, {"relay.WinogradConv2D.tile": 4, "cpu.winograd.strip": 0}),  # one tile: memory-bound
        ((1, 64, 56, 56), 64, 1, {}),
    ],
)
def test_weights_that_are_near_or_used_by_few_tiles_are_not_asked_for(
    shape: tuple[int, ...], channels: int, kernel: int, config: dict[str, Any]
) -> None:
    function, _ = conv(shape, channels, kernel, 4, padding=(kernel // 2, kernel // 2))
    assert "prefetch" not in assembly(function, config)


def assembly(function: Any, config: dict[str, Any]) -> str:
    """LLVM text of the kernels, for a CPU with AVX-512."""
    with PassContext(opt_level=3, config=config):
        library = build(function, "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")
    return str(library.get_lib().get_source("ll"))


def test_tiles_that_reach_into_wide_padding_know_their_columns() -> None:
    """Dilated 3x3 on 32x32: no tile lies inside for all taps, so each is spelled out, and no column is asked about."""
    function, _ = conv((1, 320, 32, 32), 256, 3, 4, padding=(6, 6), dilation=(6, 6))
    text = assembly(function, {"cpu.tile": "14x2"})
    assert text.count("br i1") < 60  # of loops and rows; with a question per column there were 108


DEPTHWISE = [
    ((1, 32, 14, 14), 32, 3, {"padding": (1, 1)}),
    ((2, 48, 9, 23), 48, 3, {"padding": (1, 1)}),
    ((1, 16, 13, 1), 16, 3, {"padding": (1, 1)}),
    ((1, 32, 15, 28), 32, 5, {"padding": (2, 2), "strides": (2, 2)}),
    ((1, 16, 11, 17), 16, 3, {"padding": (2, 2), "dilation": (2, 2)}),
    ((1, 16, 8, 20), 16, 3, {"padding": (0, 1, 2, 0)}),
    ((1, 16, 10, 10), 32, 3, {"padding": (1, 1)}),
    ((1, 24, 7, 7), 24, 3, {"padding": (1, 1), "strides": (1, 2)}),
]


@pytest.mark.parametrize(("shape", "channels", "kernel", "attrs"), DEPTHWISE)
def test_depthwise_convolution_agrees_with_the_reference(
    shape: tuple[int, ...], channels: int, kernel: int, attrs: dict[str, Any]
) -> None:
    function, x = conv(shape, channels, kernel, 7, groups=shape[1], **attrs)
    for threads in (1, 2, 3):
        try:
            config_threadpool(0, threads)
            got = compiled(function, x)
        finally:
            config_threadpool(0, 2)
        np.testing.assert_allclose(got, evaluate(function, [x]), rtol=1e-4, atol=1e-4)


def test_depthwise_tiles_divide_the_row() -> None:
    function, _ = conv((1, 512, 14, 14), 512, 3, 7, groups=512, padding=(1, 1))
    text = assembly(function, {})
    body = text[text.index("depthwise_conv2d") :]
    assert body.count("br i1") < 60, "columns of a tile ask whether they exist"
