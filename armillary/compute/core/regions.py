"""Valid regions: which pixels of a tensor were computed, from those of what a kernel reads.

In: the information of inputs, how far a kernel reads. Out: `ValidRegion`s. Invariant: a pixel of an output is valid
where all that it is made of is valid: beside a valid region lies nothing (UNDEFINED) or what fills its border.
Regions are of rows and columns; further dimensions are whole. Who sets them: `compiled.py`, `cl/kernels.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.compute.core.tensor_info import BorderSize, TensorInfo, ValidRegion
from armillary.compute.core.window import Coordinates

Sides = tuple[int, int, int, int]  # first column and row, and those behind the last


def sides_of(region: ValidRegion) -> Sides:
    """The columns and rows of a region."""
    width, height = (*region.shape, 1, 1)[:2]
    x, y = region.anchor[0], region.anchor[1]
    return x, y, x + width, y + height


def region_of(sides: Sides, shape: Sequence[int]) -> ValidRegion:
    """The region of columns and rows in a tensor of a shape; none of them is negative."""
    x, y, right, bottom = sides
    extents = (max(0, right - x), max(0, bottom - y))
    return ValidRegion(Coordinates(x, y), (*extents[: len(shape)], *shape[2:]))


def whole(info: TensorInfo) -> ValidRegion:
    """All of a tensor."""
    return ValidRegion(Coordinates(), tuple(info.shape))


def common(infos: Sequence[TensorInfo]) -> ValidRegion:
    """What is valid in all tensors of one size."""
    left, top, right, bottom = zip(*(sides_of(info.valid_region()) for info in infos), strict=True)
    return region_of((max(left), max(top), min(right), min(bottom)), infos[0].shape)


def eroded(region: ValidRegion, border: BorderSize) -> ValidRegion:
    """The pixels of a region whose neighbours up to a border are in it, too."""
    x, y, right, bottom = sides_of(region)
    inner = (x + border.left, y + border.top, right - border.right, bottom - border.bottom)
    return region_of(inner, region.shape)
