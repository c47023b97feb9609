"""Dense layers of several rows in textures: which kernels read pixels, and the numbers of the CPU."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import relay
from armillary.backends.opencl.pixel_dense.schedule import REGISTERS, own_tile
from armillary.contrib import graph_executor
from armillary.driver.tvmc.transform import apply_graph_transforms
from armillary.transform import PassContext

Array = np.ndarray[Any, Any]
ADRENO = "opencl -device=adreno"
RNG = np.random.default_rng(31)
HALF = {"mixed_precision": True, "mixed_precision_calculation_type": "float16"}


def weight(*shape: int) -> Any:
    return relay.const((RNG.standard_normal(shape) / np.sqrt(shape[-1])).astype("float32"))


def layers(rows: int) -> armillary.IRModule:
    """A layer with GELU and one without, a residual sum, a normalisation: as in transformers."""
    x = relay.var("x", shape=(rows, 24))
    wide = relay.nn.bias_add(relay.nn.dense(x, weight(32, 24)), weight(32), axis=-1)
    half, one = relay.const(np.float32(0.5)), relay.const(np.float32(1))
    gelu = wide * half * (one + relay.erf(wide * relay.const(np.float32(0.5**0.5))))
    narrow = relay.nn.bias_add(relay.nn.dense(gelu, weight(24, 32)), weight(24), axis=-1)
    return armillary.IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.add(narrow, x))))


def built(module: armillary.IRModule, target: str = ADRENO) -> Any:
    with PassContext(opt_level=3):
        return relay.build(module, target)


def output(library: Any, device: Any, value: Array) -> Array:
    graph = graph_executor.GraphModule(library["default"](device))
    graph.run(x=value)
    return np.asarray(graph.get_output(0).numpy())


def heads(library: Any) -> list[str]:
    (module,) = [m for m in library.get_lib().imported_modules if m.type_key == "opencl"]
    return re.findall(r"__kernel [^{]*?void (\w+\([^{]*\)) \{", module.get_source())


def test_weights_are_images_and_so_is_what_passes_between_two_layers() -> None:
    first, second, *_ = [head for head in heads(built(layers(16))) if "dense" in head]
    images = "__read_only image2d_t p1, __read_only image2d_t p2"
    assert f"(__global float* restrict p0, {images}, __write_only image2d_t " in first
    assert f"(__read_only image2d_t p0, {images}, __global float* restrict p3, __global float* restrict " in second
    assert not any("image2d_t" in head for head in heads(built(layers(16), "opencl")))


@needs_opencl
@pytest.mark.parametrize("rows", [4, 7, 48])
def test_the_numbers_are_those_of_the_cpu(rows: int) -> None:
    module = layers(rows)
    value = RNG.standard_normal((rows, 24)).astype("float32")
    wanted = output(built(module, "llvm"), armillary.cpu(), value)
    np.testing.assert_allclose(output(built(module), armillary.opencl(), value), wanted, rtol=1e-5, atol=1e-6)


@needs_opencl
@pytest.mark.parametrize(("sums", "bound"), [("float32", 3e-3), ("float16", 1e-2)])
def test_the_numbers_in_half_are_those_of_the_cpu(sums: str, bound: float) -> None:
    module = layers(16)
    value = RNG.standard_normal((16, 24)).astype("float32")
    wanted = output(built(module, "llvm"), armillary.cpu(), value)
    half = apply_graph_transforms(module, {**HALF, "mixed_precision_acc_type": sums})
    assert np.abs(output(built(half), armillary.opencl(), value) - wanted).max() < bound


@pytest.mark.parametrize("rows", [4, 5, 12, 128, 197])
@pytest.mark.parametrize("blocks", [1, 6, 192])
def test_what_a_work_item_sums_divides_the_result_and_fits_its_registers(rows: int, blocks: int) -> None:
    own = own_tile(rows, blocks)
    assert rows % own[0] == 0 and blocks % own[1] == 0
    assert own[0] * own[1] + own[0] + 4 * own[1] <= REGISTERS


@needs_opencl
def test_a_layer_whose_result_is_read_twice_is_several_kernels() -> None:
    """A sum over rows beside the layer itself: what follows does not read each number at its own place."""
    x = relay.var("x", shape=(8, 16))
    made = relay.nn.relu(relay.nn.dense(x, weight(16, 16)))
    body = relay.Tuple([made, relay.sum(made, axis=[0])])
    module = armillary.IRModule.from_expr(relay.Function([x], body))
    value = RNG.standard_normal((8, 16)).astype("float32")
    got, wanted = (
        output(built(module, t), d, value) for t, d in ((ADRENO, armillary.opencl()), ("llvm", armillary.cpu()))
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
