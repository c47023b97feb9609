"""Data layouts: which dimension of a tensor is width, height, channels, batches.

In: a layout. Out: places of dimensions. Invariant: a tensor's first dimension is the innermost one, so that NCHW is
(width, height, channels, batches) and NHWC is (channels, width, height, batches).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from armillary.errors import TypeMismatch


class DataLayout(Enum):
    """How an image's values follow one another, outermost first."""

    NCHW, NHWC = "NCHW", "NHWC"


class DataLayoutDimension(Enum):
    """A dimension by its meaning."""

    CHANNEL, HEIGHT, WIDTH, BATCHES = "C", "H", "W", "N"


def get_data_layout_dimension_index(layout: DataLayout, dimension: DataLayoutDimension) -> int:
    """Where a dimension is in a shape."""
    if not isinstance(layout, DataLayout) or not isinstance(dimension, DataLayoutDimension):
        raise TypeMismatch(f"a dimension of a layout is asked for, got {layout!r} and {dimension!r}")
    return 3 - layout.value.index(dimension.value)


_TO_NCHW = {DataLayout.NCHW: (0, 1, 2, 3), DataLayout.NHWC: (1, 2, 0, 3)}
_FROM_NCHW = {DataLayout.NCHW: (0, 1, 2, 3), DataLayout.NHWC: (2, 0, 1, 3)}


def as_nchw(layout: DataLayout, shape: Sequence[int]) -> tuple[int, ...]:
    """Sizes of a layout as (width, height, channels, batches, …); those that are missing are 1."""
    return _ordered(_TO_NCHW[layout], shape) if layout is not DataLayout.NCHW else tuple(shape)


def from_nchw(layout: DataLayout, shape: Sequence[int]) -> tuple[int, ...]:
    """Sizes (width, height, channels, batches, …) in the order of a layout."""
    return _ordered(_FROM_NCHW[layout], shape) if layout is not DataLayout.NCHW else tuple(shape)


def _ordered(order: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    sizes = [*shape, *(1 for _ in range(4 - len(shape)))]
    result = [*(sizes[n] for n in order), *sizes[4:]]
    while len(result) > max(3, len(shape)) and result[-1] == 1:
        result.pop()
    return tuple(result)
