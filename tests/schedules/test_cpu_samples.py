"""Sampling at places that a tensor gives: grids and regions read by rows of channels agree with the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.backends.registry import choose
from armillary.backends.workload import Workload
from armillary.driver.build import build
from armillary.ops.nn.grid_sample import GridSampleAttrs
from armillary.ops.vision.roi_align import RoiAlignAttrs
from armillary.relay.op import get_op
from armillary.relay.types import TensorType
from armillary.runtime import cpu
from armillary.target import Target
from armillary.transform import PassContext

AVX = "llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu"


def compiled(name: str, attrs: Any, target: str, *inputs: np.ndarray) -> np.ndarray:
    """One operator and an addition that is fused into it, for which 1 is taken off again."""
    variables = [relay.var(f"x{k}", shape=value.shape) for k, value in enumerate(inputs)]
    fields = {f: getattr(attrs, f) for f in attrs.__dataclass_fields__}
    body = get_op(name)(*variables, **fields) + relay.const(1.0)
    with PassContext(opt_level=3):
        graph = build(relay.Function(variables, body), target)["default"](cpu(0))
    for k, value in enumerate(inputs):
        graph.set_input(f"x{k}", value)
    graph.run()
    result: np.ndarray = graph.get_output(0).numpy() - 1
    return result


def reference(name: str, attrs: Any, *inputs: np.ndarray) -> Any:
    rule = get_op(name).reference_rule
    assert rule is not None
    return rule(attrs, *inputs)


@pytest.mark.parametrize(
    ("channels", "places", "padding", "method", "target"),
    [
        (1, (4, 20), "zeros", "bilinear", "llvm"),
        (5, (1, 33), "border", "bilinear", "llvm -mcpu=haswell"),
        (37, (1, 40), "zeros", "bilinear", "llvm"),
        (37, (1, 40), "zeros", "bilinear", "llvm -mcpu=haswell"),
        (32, (3, 7), "reflection", "bilinear", "llvm"),
        (37, (1, 40), "border", "bicubic", "llvm"),
        (5, (1, 33), "zeros", "bicubic", "llvm"),
        (32, (3, 7), "reflection", "nearest", "llvm"),
        (1, (4, 20), "border", "nearest", "llvm"),
    ],
)
def test_grid_sample(channels: int, places: tuple[int, int], padding: str, method: str, target: str) -> None:
    rng = np.random.default_rng(channels)
    x = rng.standard_normal((2, channels, 7, 9)).astype("float32")
    grid = rng.uniform(-1.4, 1.4, (2, *places, 2)).astype("float32")
    attrs = GridSampleAttrs(method, "NCHW", padding, align_corners=channels != 5, grid_axis=-1)
    got = compiled("image.grid_sample", attrs, target, x, grid)
    np.testing.assert_allclose(got, reference("image.grid_sample", attrs, x, grid), rtol=1e-4, atol=1e-4)


def test_grid_sample_in_a_volume() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 19, 4, 5, 3)).astype("float32")
    grid = rng.uniform(-1.2, 1.2, (1, 2, 3, 17, 3)).astype("float32")
    attrs = GridSampleAttrs(layout="NCDHW", align_corners=False, grid_axis=-1)
    got = compiled("image.grid_sample", attrs, "llvm", x, grid)
    np.testing.assert_allclose(got, reference("image.grid_sample", attrs, x, grid), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 16])
def test_places_far_outside_read_nothing(channels: int) -> None:
    """Neither infinities at the border nor places that are no number reach what lies outside."""
    x = np.full((1, channels, 4, 4), np.inf, "float32")
    x[:, :, 1:3, 1:3] = 3
    grid = np.zeros((1, 4, 4, 2), "float32")
    grid[0, 0] = [[-5, 0], [1e30, 0], [0, -1e30], [np.inf, np.inf]]
    grid[0, 1, 0] = np.nan
    attrs = GridSampleAttrs("nearest", align_corners=True, grid_axis=-1)
    got = compiled("image.grid_sample", attrs, "llvm", x, grid)
    np.testing.assert_array_equal(got[0, :, 0], 0)
    np.testing.assert_array_equal(got[0, :, 1, 0], 0)
    np.testing.assert_array_equal(got[0, :, 2:], 3)


@pytest.mark.parametrize(
    ("places", "name", "reason"),
    [(300, "grid_sample_rows", ()), (30, "default", ("30 places in 1024 elements do not pay for a copy",))],
)
def test_a_copy_is_made_where_enough_is_read(places: int, name: str, reason: tuple[str, ...]) -> None:
    types = (TensorType((1, 8, 32, 32), "float32"), TensorType((1, 1, places, 2), "float32"))
    row, reasons = choose(Workload(get_op("image.grid_sample"), GridSampleAttrs(grid_axis=-1), types, Target(AVX)))
    assert row.name == name
    assert reasons == tuple(f"grid_sample_rows: {r}" for r in reason)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize(("channels", "size", "samples"), [(3, (2, 3), 2), (37, (7, 7), 2), (80, (5, 17), 1)])
def test_roi_align(channels: int, size: tuple[int, int], samples: int, mode: str, target: str) -> None:
    rng = np.random.default_rng(channels)
    x = rng.standard_normal((2, channels, 9, 11)).astype("float32")
    corner = rng.uniform(-4, 20, (5, 2))
    image, size_of_region = rng.integers(0, 2, (5, 1)), rng.uniform(0, 25, (5, 2))
    rois = np.concatenate([image, corner, corner + size_of_region], 1).astype("float32")
    attrs = RoiAlignAttrs(size, 0.5, samples, mode=mode, half_pixel=channels > 3)
    got = compiled("vision.roi_align", attrs, target, x, rois)
    np.testing.assert_allclose(got, reference("vision.roi_align", attrs, x, rois), rtol=1e-4, atol=1e-4)
