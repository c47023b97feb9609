"""Functions of OpenCL against what Arm Compute Library 20.08 gave once; Canny against OpenCV.

The cases are those of the CPU's functions (`test_acl_oracle.py`), on tensors of a device.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from opencl_device import needs_opencl

from armillary import compute, relay
from armillary.compute import BorderMode, CLImage, CLScheduler, CLTuner, CLTunerMode, Format, TensorInfo
from armillary.compute.cl.tuner import FLAT
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.transform import PassContext
from tests.compute.acl_oracle.check import STORED, check_stored
from tests.compute.acl_oracle.record import BUILDERS

pytestmark = needs_opencl
# Of what a device computes by other kernels than the CPU a case in every run: the rest compile for seconds.
QUICK = (
    "NEChannelCombine",
    "NEColorConvert",
    "NEConcatenateLayer",
    "NEFlattenLayer",
    "NEGEMM",
    "NEHistogram",
    "NEMinMaxLocation",
    "NEReshapeLayer",
    "NETableLookup",
)


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
    CLScheduler.get().default_init()
    yield
    CLScheduler.get().set_tuner(None)


@pytest.mark.parametrize("name", QUICK)
def test_a_case_of_the_library(name: str) -> None:
    check_stored(name, 0, "CL")


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDERS)
def test_all_cases_of_the_library(name: str) -> None:
    for number in range(len(STORED[name])):
        check_stored(name, number, "CL")


@pytest.mark.parametrize("name", ["NEGEMM", "NEPoolingLayer NHWC", "NEReshapeLayer"])
def test_layers_take_strides_of_ones_own(name: str) -> None:
    check_stored(name, 0, "CL", padding=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDERS)
def test_all_cases_with_strides_of_ones_own(name: str) -> None:
    for number in range(len(STORED[name])):
        check_stored(name, number, "CL", padding=number + 1)


def test_a_tuner_changes_no_value_and_knows_layers(tmp_path: Path) -> None:
    """Trials run a kernel often: an image that is read and written must not see that."""
    tuner, name = CLTuner(), "NEAccumulate"
    tuner.set_tuner_mode(CLTunerMode.RAPID)
    CLScheduler.get().set_tuner(tuner)
    check_stored(name, 0, "CL")
    assert len(tuner.lws_table()) == 1
    check_stored("NEElementwiseMax", 0, "CL")
    (layer,) = (key for key in tuner.lws_table() if key.startswith("layer_"))
    assert set(tuner.measured(layer)) == set(FLAT)
    tuner.save_to_file(tmp_path / "tuned.csv")
    loaded = CLTuner(tune_new_kernels=False)
    loaded.load_from_file(tmp_path / "tuned.csv")
    CLScheduler.get().set_tuner(loaded)
    check_stored("NEElementwiseMax", 0, "CL")
    assert loaded.lws_table() == tuner.lws_table()


def test_groups_of_kernels_without_tiles_are_as_configured() -> None:
    x = relay.var("x", shape=(1000,), dtype="float32")
    for items in (16, 128):
        with PassContext(config={"opencl.group": items}):
            library = relay.build(IRModule.from_expr(relay.Function([x], relay.exp(x))), target="opencl")
        assert f"reqd_work_group_size({items}, 1, 1)" in library.imported_modules[0].get_source()
    with (
        PassContext(config={"opencl.group": 0}),
        pytest.raises(ConfigError, match=r"opencl\.group=0: a group has 1 to"),
    ):
        relay.build(IRModule.from_expr(relay.Function([x], relay.tanh(x))), target="opencl")


@pytest.mark.parametrize("numbers", [range(2), pytest.param(range(2, 50), marks=pytest.mark.slow)])
def test_edges_are_those_of_opencv(numbers: range) -> None:
    for number in numbers:
        rng = np.random.default_rng(number)
        width, height, side, norm = (int(rng.integers(a, b)) for a, b in ((17, 90), (8, 60), (1, 3), (1, 3)))
        scene = cv2.GaussianBlur(rng.integers(0, 256, (height, width), np.uint8), (0, 0), float(rng.uniform(0.5, 2)))
        side = 2 * side + 1
        upper = int(rng.integers(1, 300 if side == 3 else 3000))
        lower = int(rng.integers(upper + 1))
        source, edges, function = CLImage(), CLImage(), compute.CLCannyEdge()
        for image in (source, edges):
            image.allocator().init(TensorInfo(width, height, Format.U8))
        function.configure(source, edges, upper, lower, side, norm, BorderMode.REPLICATE)
        for image in (source, edges):
            image.allocator().allocate()
        source.write(scene)
        function.run()
        wanted = cv2.Canny(scene, lower, upper, apertureSize=side, L2gradient=norm == 2)
        assert np.array_equal(edges.read(), wanted), (number, width, height, side, norm, lower, upper)


def test_edges_beside_an_undefined_border_are_those_of_the_cpu() -> None:
    scene = cv2.GaussianBlur(np.random.default_rng(5).integers(0, 256, (30, 50), np.uint8), (0, 0), 1.0)
    found = []
    for name, kind in (("NECannyEdge", compute.Image), ("CLCannyEdge", CLImage)):
        source, edges, function = kind(), kind(), getattr(compute, name)()
        for image in (source, edges):
            image.allocator().init(TensorInfo(50, 30, Format.U8))
        function.configure(source, edges, 90, 40, 3, 1)
        for image in (source, edges):
            image.allocator().allocate()
        source.write(scene)
        function.run()
        found.append(edges.read()[2:-2, 2:-2])
    assert found[0].any() and np.array_equal(*found)


def test_the_script_for_other_devices_says_what_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    script = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks/compute_opencl.py"))
    assert script["check"](("NEBitwiseOr", 0)) == [] == script["check"](("NECannyEdge", 1))
    monkeypatch.setitem(STORED, "NEBitwiseOr", STORED["NEBitwiseXor"])
    (message,) = script["check"](("NEBitwiseOr", 0))
    assert message.startswith("library: AssertionError: NEBitwiseOr 0")
