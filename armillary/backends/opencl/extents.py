"""How long the axes of stages and tensors are: numbers, or expressions over named sizes.

In: axes and tensors of the tensor language. Out: extents (base/extent.py). Invariant: whether a tile divides an axis,
or an axis has one place, is asked of extents, whose answer holds at every size; how much work there is, for costs and
tiles, of their `typical` values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from armillary import te
from armillary.base.extent import Known, bounds
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir.bounds import Interval
from armillary.tir.extents import from_expr, to_expr


def axis_extent(axis: E.IterVar) -> Known:
    """How long an axis is."""
    assert axis.dom is not None, "an axis of a stage has a range"
    return from_expr(axis.dom.extent)


def shape_of(tensor: te.Tensor) -> tuple[Known, ...]:
    """How long the axes of a tensor are."""
    return tuple(map(from_expr, tensor.shape))


def product(extents: Iterable[Known]) -> Known:
    """How many places axes have together."""
    return math.prod(extents)


def places(extent: Known) -> Interval:
    """The first and the last place along an axis, at any size."""
    return 0, max(0, bounds(extent)[1] - 1)


def unravel(flat: E.Expr, extents: Sequence[Known]) -> list[E.Expr]:
    """Indices along axes of a place counted over all of them, the last fastest."""
    indices: list[E.Expr] = []
    for n, extent in enumerate(extents):
        if extent == 1:
            indices.append(T.const(0))
            continue
        size = product(extents[n + 1 :])
        outer = flat if size == 1 else T.floordiv(flat, to_expr(size))
        is_first = all(isinstance(i, E.IntImm) for i in indices)
        indices.append(outer if is_first else T.floormod(outer, to_expr(extent)))
    return indices
