"""Convolutions of plain layout by tiles.

In: the schedule of a fused convolution (NCHW, OIHW, one group, float32 or float16). Out: one kernel in which a
work-group computes channels times rows times columns. Invariant: as in `tiled.py`; where no tile divides the result,
the default computes.
"""

from __future__ import annotations

import math
from functools import partial

from armillary import te
from armillary.backends.opencl.schedules.default import static_extent
from armillary.backends.opencl.schedules.tiled import Place, schedule_tiled
from armillary.backends.opencl.space import DEPTHWISE, DIRECT, Algorithm, Tiling, chosen_tiling
from armillary.backends.opencl.tiles import Product
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload


@implement("conv2d_tiled", family="opencl")
def conv2d_tiled(schedule: te.Schedule, fused: Fused) -> None:
    """A convolution by tiles, with what follows it."""

    schedule_tiled(schedule, fused, partial(_choose, fused.workload, DIRECT))


@implement("depthwise_tiled", family="opencl")
def depthwise_tiled(schedule: te.Schedule, fused: Fused) -> None:
    """A convolution of groups of channels by tiles: what is read is in the caches, not in shared memory."""
    schedule_tiled(schedule, fused, partial(_choose, fused.workload, DEPTHWISE), shares=False)


def _choose(workload: Workload, algorithm: Algorithm, op: te.ComputeOp) -> tuple[Tiling, tuple[Place, ...]] | None:
    tiling = chosen_tiling(workload, algorithm, product_of(workload, op))
    return None if tiling is None else (tiling, tuple(map(Place, tiling.tile.threads, tiling.tile.sums, "zyx")))


def product_of(workload: Workload, op: te.ComputeOp) -> Product:
    """The extents of a convolution."""
    images, channels, rows, columns = (static_extent(axis) for axis in op.axis)
    *depth, height, width = (static_extent(axis) for axis in op.reduce_axis)  # no depth: a channel for each group
    strides, dilation = workload.attrs.strides, workload.attrs.dilation
    return Product(
        images,
        (channels, rows, columns),
        math.prod(depth),
        (height, width),
        (strides[0], strides[1]),
        (dilation[0], dilation[1]),
    )
