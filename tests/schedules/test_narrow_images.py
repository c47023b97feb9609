"""Convolutions over open sizes have tiles for images of few pixels: what they compute, and how."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import armillary
from armillary import relay
from armillary.backends.cpu.conv2d.direct import space
from armillary.base.extent import size
from armillary.driver.build import optimized
from armillary.driver.kernel_code import lower_kernel
from armillary.driver.lower_fused import lower_fused
from armillary.driver.program_codegen import plan_network
from armillary.target import Target
from armillary.tir.printer import print_function
from armillary.transform import PassContext

TARGET, HERE = "llvm -mcpu=skylake-avx512", "llvm -mcpu=native"  # of texts, and of what runs
_RNG = np.random.default_rng(7)


def network(channels: int, taps: int, **attrs: Any) -> onnx.ModelProto:  # Any: attributes of Conv
    groups = attrs.get("group", 1)
    weight = (_RNG.standard_normal((channels, channels // groups, taps, taps)) / channels**0.5 / taps).astype("float32")
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], **attrs), helper.make_node("Relu", ["c"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", channels, "height", "width"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def loops(model: onnx.ModelProto, hint: int = 56, **options: Any) -> str:  # Any: shapes
    """The loops of the convolution's kernel, before any pass over them."""
    module, params = relay.frontend.from_onnx(model, **(options or {"hint": {"height": hint, "width": hint}}))
    target = Target(TARGET)
    with PassContext(opt_level=3):
        kernels = plan_network(optimized(module, target, params)["main"]).kernels.values()
        kernel = next(k for k in kernels if "nn_relu" in k.name)
        return print_function(lower_fused(kernel.function, target, kernel.name))


def check(model: onnx.ModelProto, hint: int, shapes: list[tuple[int, int, int]]) -> None:
    """Right at each batch, height and width, in one compile."""
    module, params = relay.frontend.from_onnx(model, hint={"height": hint, "width": hint})
    with PassContext(opt_level=3):
        library = relay.build(module, target=HERE, params=params)
    session, executor = onnxruntime.InferenceSession(model.SerializeToString()), library["default"](armillary.cpu())
    channels = module["main"].params[0].checked_type.shape[1]
    for batch, height, width in shapes:
        data = _RNG.standard_normal((batch, channels, height, width)).astype("float32")
        executor.set_input("x", data)
        executor.run()
        (wanted,) = session.run(None, {"x": data})
        np.testing.assert_allclose(executor.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("channels", "taps", "attrs"),
    [
        (64, 3, {"pads": [1] * 4, "strides": [2, 2]}),
        (64, 3, {"strides": [2, 2], "pads": [0, 0, 1, 1]}),
        (32, 1, {}),
        (32, 1, {"strides": [2, 2]}),
        (32, 5, {"pads": [2] * 4, "strides": [1, 1]}),
        (64, 3, {"pads": [1] * 4, "strides": [2, 2], "group": 2}),
        (32, 3, {"pads": [2] * 4, "dilations": [2, 2], "strides": [2, 2]}),
        (32, 3, {"pads": [1] * 4, "group": 32}),
        (32, 3, {"pads": [1] * 4, "group": 32, "strides": [2, 2]}),
    ],
)
def test_every_width_is_right(channels: int, taps: int, attrs: dict[str, Any]) -> None:
    least = taps if "pads" not in attrs else 3
    sides = [(1, least, width) for width in range(least, 13)]
    check(network(channels, taps, **attrs), 56, [*sides, (3, 7, least), (2, 4, 8), (1, 31, 33)])


def test_tiles_of_all_images_are_one_axis_of_transforms_in_phases() -> None:
    """In lines, a register tile of few tiles has few sums, and all transformed weights are read for each line."""
    model = network(128, 3, pads=[1] * 4)
    assert re.search(r"alloc products: Buffer\[\(\d, \d, \d+, [^,]+, 16\), float32\]", loops(model, 14))
    check(model, 14, [(1, 7, width) for width in range(1, 14)] + [(2, 9, 4), (3, 1, 1), (4, 15, 17)])


def test_few_pixels_are_gathered_from_all_images() -> None:
    model = network(64, 3, pads=[1] * 4, strides=[2, 2])
    text = loops(model, 56)
    assert f"< {space.FEWEST_PIXELS} {{" in text and "alloc pixels: " in text
    check(model, 56, [(2, 1, 1), (5, 2, 1), (1, 27, 29), (1, 28, 29), (50, 3, 3), (49, 3, 4), (199, 2, 2), (200, 1, 2)])


def test_fixed_images_have_one_version() -> None:
    text = loops(network(64, 3, pads=[1] * 4, strides=[2, 2]), shape={"x": (1, 64, 4, 4)})
    assert "alloc pixels" not in text


def test_a_group_of_channels_outside_of_an_open_batch_is_not_tested() -> None:
    """Which group an iteration is of is fused with sizes; asked in the sums, ResNet-18 took a fifth longer."""
    text = loops(network(512, 3, pads=[1] * 4, strides=[2, 2]), 14)
    assert "// batch" in text and not re.search(r"likely\([^)]*// batch[^)]* < \d", text)


def test_sums_of_a_depthwise_tile_test_nothing() -> None:
    """Spelled out with a test for each product, those of MobileNet v2 took two to three times as long."""
    model = network(32, 3, pads=[1] * 4, group=32)
    module, params = relay.frontend.from_onnx(model, hint={"height": 14, "width": 14})
    target = Target(TARGET)
    with PassContext(opt_level=3):
        kernels = plan_network(optimized(module, target, params)["main"]).kernels.values()
        _, lowered = lower_kernel(next(k for k in kernels if "depthwise" in k.name), target)
    text = print_function(lowered)
    assert "width" in text and "likely" not in text


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 9, 17])
def test_a_product_of_typically_one_row_is_right_for_more(rows: int) -> None:
    weight, n = _RNG.standard_normal((48, 64)).astype("float32"), size("rows", hint=1)
    x = relay.var("x", shape=(n, 64))
    function = relay.Function([x], relay.nn.relu(relay.nn.dense(x, relay.const(weight))))
    with PassContext(opt_level=3):
        library = relay.build(armillary.IRModule.from_expr(function), target=HERE)
    executor, data = library["default"](armillary.cpu()), _RNG.standard_normal((rows, 64)).astype("float32")
    executor.set_input("x", data)
    executor.run()
    np.testing.assert_allclose(executor.get_output(0).numpy(), np.maximum(data @ weight.T, 0), rtol=1e-4, atol=1e-4)
