"""A sum of products as rows times columns: which axes of a stage are rows, columns, batches and terms.

In: a stage that sums products of two factors. Out: a `Contraction`, or None. Columns hold the last axis of the result,
along which neighbouring work-items store. Invariant: the left factor depends on no column, the right on no row; axes of
both (or of none) are batches. So a dense layer, a batch of products, and a convolution (rows are its channels, columns
its pixels, terms its channels and taps) are alike to the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable

from armillary import te
from armillary.backends.opencl.extents import axis_extent, product
from armillary.base.extent import Known
from armillary.base.node import post_order
from armillary.base.record import record
from armillary.tir import build as T
from armillary.tir import expr as E

Axes = tuple[E.IterVar, ...]


@record
class Contraction:
    """Axes by what they are, and both factors."""

    batch: Axes
    rows: Axes
    columns: Axes
    terms: Axes
    left: E.Expr
    right: E.Expr

    @property
    def sizes(self) -> tuple[Known, Known, Known, Known]:
        """Batches, rows, columns and terms."""
        b, m, n, k = (count(axes) for axes in (self.batch, self.rows, self.columns, self.terms))
        return b, m, n, k


def extents(axes: Axes) -> tuple[Known, ...]:
    """How long axes are."""
    return tuple(map(axis_extent, axes))


def count(axes: Axes) -> Known:
    """How many places axes have together."""
    return product(extents(axes))


def contraction_of(op: te.Operation) -> Contraction | None:
    """The product that a stage computes; None where it is none."""
    if not isinstance(op, te.ComputeOp) or len(op.body) != 1 or not isinstance(op.body[0], E.Reduce):
        return None
    reduce = op.body[0]
    source = reduce.source[0]
    if len(reduce.source) != 1 or not is_sum(reduce) or not isinstance(source, E.Mul) or not op.axis:
        return None
    one, other = _used(source.a), _used(source.b)
    both = {axis for axis in op.axis if (axis.var in one) == (axis.var in other)}
    last = next((axis for axis in reversed(op.axis) if axis_extent(axis) != 1 and axis not in both), op.axis[-1])
    left, right = (source.a, source.b) if last.var in other else (source.b, source.a)
    of_right = _used(right)
    columns = tuple(axis for axis in op.axis if axis not in both and axis.var in of_right)
    rows = tuple(axis for axis in op.axis if axis not in both and axis.var not in of_right)
    return Contraction(tuple(a for a in op.axis if a in both), rows, columns, tuple(op.reduce_axis), left, right)


def is_sum(reduce: E.Reduce) -> bool:
    """Whether a reduction adds all its terms."""
    combiner = reduce.combiner
    if len(combiner.result) != 1 or not isinstance(combiner.result[0], E.Add) or not _is_true(reduce.condition):
        return False
    parts = {combiner.result[0].a, combiner.result[0].b}
    return parts == {combiner.lhs[0], combiner.rhs[0]} and _is_zero(combiner.identity[0])


def _is_true(item: E.Expr) -> bool:
    return T.as_int(item) == 1


def _is_zero(item: E.Expr) -> bool:
    return isinstance(item, E.FloatImm | E.IntImm) and item.value == 0


def _used(item: E.Expr) -> frozenset[E.Var]:
    return frozenset(_variables(post_order(item)))


def _variables(items: Iterable[object]) -> Iterable[E.Var]:
    return (item for item in items if isinstance(item, E.Var))
