"""Networks whose images come with channels last, in textures: NHWC4c, HWIO4o and HWOI4o, and the numbers of the CPU."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import relay
from armillary.artifact import GraphSpec
from armillary.contrib import graph_executor
from armillary.driver.devices.device_profile import tensor_text
from armillary.driver.tvmc.transform import apply_graph_transforms
from armillary.relay.transform.pipeline import optimize
from armillary.relay.walk import post_order
from armillary.transform import PassContext

Array = np.ndarray[Any, Any]
ADRENO = "opencl -device=adreno"
SHAPE = (1, 12, 14, 3)
RNG = np.random.default_rng(21)
X = RNG.standard_normal(SHAPE).astype("float32")
HALF = {"mixed_precision": True, "mixed_precision_calculation_type": "float16"}


def weight(*shape: int) -> Any:
    return relay.const((RNG.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))).astype("float32"))


def conv(data: Any, inputs: int, outputs: int, kernel: int, **attrs: Any) -> Any:
    groups = attrs.get("groups", 1)
    depthwise = groups == inputs == outputs
    shape = (kernel, kernel, outputs, 1) if depthwise else (kernel, kernel, inputs // groups, outputs)
    made = relay.nn.conv2d(
        data,
        weight(*shape),
        channels=outputs,
        kernel_size=(kernel, kernel),
        data_layout="NHWC",
        kernel_layout="HWOI" if depthwise else "HWIO",
        padding=attrs.pop("padding", (kernel // 2, kernel // 2)),
        **attrs,
    )
    return relay.nn.relu(relay.nn.bias_add(made, weight(outputs), axis=3))


def network() -> armillary.IRModule:
    """Three channels, strides, a residual sum, groups, a depthwise layer, poolings, a join, a mean over the image."""
    x = relay.var("x", shape=SHAPE)
    a = conv(x, 3, 16, 3, strides=(2, 2))
    b = relay.nn.relu(relay.add(a, conv(a, 16, 16, 3)))
    c = conv(conv(b, 16, 16, 3, groups=16), 16, 8, 1)
    d = relay.concatenate([c, relay.sigmoid(c), conv(b, 16, 8, 3, groups=2)], 3)
    e = relay.nn.max_pool2d(d, (3, 3), (2, 2), padding=(1, 1), layout="NHWC")
    f = conv(e, 24, 12, 3, dilation=(2, 2), padding=(2, 2))
    y = relay.nn.dense(relay.mean(f, axis=[1, 2]), weight(5, 12))
    return armillary.IRModule.from_expr(relay.Function([x], y))


NETWORK = network()


def built(module: armillary.IRModule, target: str = ADRENO) -> Any:
    with PassContext(opt_level=3):
        return relay.build(module, target)


def output(library: Any, device: Any, value: Array = X) -> Array:
    graph = graph_executor.GraphModule(library["default"](device))
    graph.run(x=value)
    return np.asarray(graph.get_output(0).numpy())


def heads(library: Any) -> list[str]:
    (module,) = [m for m in library.get_lib().imported_modules if m.type_key == "opencl"]
    return re.findall(r"__kernel [^{]*?void (\w+\([^{]*\)) \{", module.get_source())


@pytest.fixture(scope="module")
def library() -> Any:
    return built(NETWORK)


@pytest.fixture(scope="module")
def wanted() -> Array:
    return output(built(NETWORK, "llvm"), armillary.cpu())


def test_convolutions_are_in_blocks_of_channels_that_lie_last() -> None:
    with PassContext(opt_level=3):
        module = optimize(NETWORK, ADRENO)
    kernels = [c for c in post_order(module["main"]) if getattr(getattr(c, "op", None), "name", "") == "nn.conv2d"]
    assert {c.attrs.data_layout for c in kernels} == {"NHWC4c"} and len(kernels) == 6
    assert [c.attrs.kernel_layout for c in kernels].count("HWOI4o") == 1
    assert {c.attrs.kernel_layout for c in kernels} == {"HWIO4o", "HWOI4o"}


def test_kernels_take_images_and_only_the_input_is_moved(library: Any) -> None:
    found = heads(library)
    inside = [head for head in found if "_nn_conv2d_" in head]
    wanted = (
        "(__read_only image2d_t p0, __read_only image2d_t p1, __read_only image2d_t p2, __write_only image2d_t relu)"
    )
    assert len(inside) == 6 and sum(wanted in head for head in inside) >= 5
    moved = [head for head in found if "layout_transform" in head]
    assert len(moved) == 1 and "(__global float* restrict p0, __write_only image2d_t layout_transform)" in moved[0]


def test_images_lie_by_rows_of_pixels_and_channels(library: Any) -> None:
    graph = GraphSpec.from_json(library.get_graph_json())
    scopes = set(graph.storage_scopes)
    assert "global.texture-nhwc" in scopes and "global" in scopes
    message = {tensor_text(graph, entry) for entry in range(len(graph.shapes))}
    assert "texture-nhwc 1x6x7x4x4 NHWC4c" in message and not any("NCHW4c" in text for text in message)


@needs_opencl
def test_the_numbers_are_those_of_the_cpu(library: Any, wanted: Array) -> None:
    np.testing.assert_allclose(output(library, armillary.opencl()), wanted, rtol=1e-5, atol=1e-6)


@needs_opencl
@pytest.mark.parametrize(("sums", "bound"), [("float32", 3e-3), ("float16", 1e-2)])
def test_the_numbers_in_half_are_those_of_the_cpu(wanted: Array, sums: str, bound: float) -> None:
    module = apply_graph_transforms(NETWORK, {**HALF, "mixed_precision_acc_type": sums})
    got = output(built(module), armillary.opencl())
    assert np.abs(got - wanted).max() / np.abs(wanted).max() < bound


@needs_opencl
def test_transpositions_around_a_network_say_the_same_as_layouts() -> None:
    """As exporters of networks with channels last write them."""
    x = relay.var("x", shape=(1, 6, 8, 4))
    w = relay.const(RNG.standard_normal((8, 4, 3, 3)).astype("float32") / 6)
    inside = relay.nn.conv2d(relay.transpose(x, (0, 3, 1, 2)), w, padding=(1, 1), channels=8, kernel_size=(3, 3))
    body = relay.transpose(relay.nn.relu(inside), (0, 2, 3, 1))
    module = armillary.IRModule.from_expr(relay.Function([x], body))
    value = RNG.standard_normal((1, 6, 8, 4)).astype("float32")
    library = built(module)
    assert len(heads(library)) == 1  # its input and output are views of blocks
    wanted = output(built(module, "llvm"), armillary.cpu(), value)
    np.testing.assert_allclose(output(library, armillary.opencl(), value), wanted, rtol=1e-5, atol=1e-6)


@needs_opencl
@pytest.mark.parametrize(("kernel", "groups"), [((3, 3, 8, 2, 4), 1), ((3, 3, 2, 1, 4), 8)])
def test_blocks_that_a_script_writes_are_computed(kernel: tuple[int, ...], groups: int) -> None:
    layouts = {"data_layout": "NHWC4c", "kernel_layout": "HWIO4o" if groups == 1 else "HWOI4o"}
    x, w = relay.var("x", shape=(1, 5, 6, 2, 4)), relay.const(RNG.standard_normal(kernel).astype("float32") / 8)
    body = relay.nn.conv2d(x, w, padding=(1, 1), channels=8, kernel_size=(3, 3), groups=groups, **layouts)
    module = armillary.IRModule.from_expr(relay.Function([x], relay.nn.relu(body)))
    value = RNG.standard_normal((1, 5, 6, 2, 4)).astype("float32")
    wanted = output(built(module, "llvm"), armillary.cpu(), value)
    for target in (ADRENO, "opencl"):
        np.testing.assert_allclose(
            output(built(module, target), armillary.opencl(), value), wanted, rtol=1e-5, atol=1e-6
        )
