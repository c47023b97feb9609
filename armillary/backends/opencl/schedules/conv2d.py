"""Convolutions of plain layout by tiles.

In: the schedule of a fused convolution (NCHW, OIHW, one group, float32 or float16). Out: one kernel in which a
work-group computes channels times rows times columns. Invariant: as in `tiled.py`; where no tile divides the result,
the default computes.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.opencl.schedules.default import static_extent
from armillary.backends.opencl.schedules.tiled import Place, schedule_tiled
from armillary.backends.opencl.tiles import FLOATS, Product, Tile, choose_tile
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.relay.types import tensor_fields


def _objection(workload: Workload) -> str | None:
    attrs = workload.attrs
    if attrs.groups != 1:
        return "it has groups"
    if (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW") != ("NCHW", "OIHW", "NCHW"):
        return f"its layouts are {attrs.data_layout} and {attrs.kernel_layout}"
    if any(str(field.dtype) not in FLOATS for ty in workload.types for field in tensor_fields(ty)):
        return "it is in neither float32 nor float16"
    return None


@implement("nn.conv2d", family="opencl", name="conv2d_tiled", when=_objection)
def conv2d_tiled(schedule: te.Schedule, fused: Fused) -> None:
    """A convolution by tiles, with what follows it."""

    def choose(op: te.ComputeOp) -> tuple[Tile, tuple[Place, ...]] | None:
        tile = choose_tile(product_of(fused.workload, op))
        if tile is None:
            return None
        return tile, tuple(map(Place, tile.threads, tile.sums, "zyx"))

    schedule_tiled(schedule, fused, choose)


def product_of(workload: Workload, op: te.ComputeOp) -> Product:
    """The extents of a convolution."""
    images, channels, rows, columns = (static_extent(axis) for axis in op.axis)
    depth, height, width = (static_extent(axis) for axis in op.reduce_axis)
    strides, dilation = workload.attrs.strides, workload.attrs.dilation
    return Product(
        images, (channels, rows, columns), depth, (height, width), (strides[0], strides[1]), (dilation[0], dilation[1])
    )
