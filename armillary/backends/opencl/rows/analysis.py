"""Which reductions of a function are of the same rows, so that a group of work-items can keep their results.

In: stages of a fused function. Out: a `Rows`: the reductions in order, and how rows of each lie in the axes of what is
computed in the end; or None. Invariant: whatever reads a reduction does so for its own row only, so a row's results are
numbers that its work-items hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary import te
from armillary.backends.opencl.extents import axis_extent, product, shape_of
from armillary.base.extent import Known
from armillary.base.record import record
from armillary.te.inline import rewriter
from armillary.tir import build as T
from armillary.tir import expr as E

Positions = tuple[int, ...]  # of the axes of a stage that tell its rows apart, in order; those of one place left out


@record
class Rows:
    """Reductions of `shape` rows each; `positions`: of each result's axes those that are rows."""

    reductions: tuple[te.ComputeOp, ...]
    shape: tuple[Known, ...]
    terms: Known
    results: tuple[te.Tensor, ...]
    positions: tuple[Positions, ...]


def rows_of(results: Sequence[te.Tensor], stop: frozenset[te.Operation]) -> Rows | None:
    """The reductions that results are computed from, down to inputs and `stop`."""
    reductions = _reductions(results, stop)
    if not reductions:
        return None
    shapes = {_shape(op) for op in reductions}
    terms = {product(map(axis_extent, op.reduce_axis)) for op in reductions}
    if len(shapes) > 1 or len(terms) > 1 or not all(map(_is_plain, reductions)):
        return None
    (shape,) = shapes
    held = frozenset(reductions)
    for op in reductions:
        if not _reads_own_row(op, held - {op}, stop, _row_axes(op)):
            return None
    positions = []
    for tensor in results:
        at = _positions(tensor, held, stop, len(shape))
        if at is None:
            return None
        positions.append(at)
    return Rows(tuple(reductions), shape, terms.pop(), tuple(results), tuple(positions))


def _reductions(results: Sequence[te.Tensor], stop: frozenset[te.Operation]) -> list[te.ComputeOp]:
    """All reductions, those that others read first; none where a stage is neither formula nor reduction."""
    order: list[te.ComputeOp] = []
    state: dict[te.Operation, bool] = {}
    stack = [(t.op, False) for t in results]
    while stack:
        op, is_done = stack.pop()
        if op in stop or isinstance(op, te.PlaceholderOp):
            continue
        if not isinstance(op, te.ComputeOp):
            return []
        if is_done:
            if isinstance(op.body[0], E.Reduce):
                order.append(op)
            continue
        if op not in state:
            state[op] = True
            stack.append((op, True))
            stack += [(t.op, False) for t in op.input_tensors]
    return order


def _is_plain(op: te.ComputeOp) -> bool:
    reduce = op.body[0]
    assert isinstance(reduce, E.Reduce), "a reduction"
    return len(op.body) == 1 and len(reduce.source) == 1 and T.as_int(reduce.condition) == 1


def _row_axes(op: te.ComputeOp) -> list[E.IterVar]:
    return [axis for axis in op.axis if axis_extent(axis) != 1]


def _shape(op: te.ComputeOp) -> tuple[Known, ...]:
    return tuple(map(axis_extent, _row_axes(op)))


def _reads(item: E.Expr, held: frozenset[te.ComputeOp], stop: frozenset[te.Operation]) -> list[E.ProducerLoad] | None:
    """The reads of reductions, by way of formulas too, with the indices that they have in the end."""
    reads: list[E.ProducerLoad] = []

    def load(tensor: te.Tensor, indices: tuple[E.Expr, ...]) -> E.Expr:
        op = tensor.op
        read = E.ProducerLoad(tensor, indices)
        if op in held:
            reads.append(read)
        elif isinstance(op, te.ComputeOp) and op not in stop:
            variables = {axis.var: index for axis, index in zip(op.axis, indices, strict=True)}
            return rewriter(variables, load)(op.body[tensor.value_index])
        return read

    rewriter({}, load)(item)
    return reads


def _reads_own_row(
    op: te.ComputeOp, held: frozenset[te.ComputeOp], stop: frozenset[te.Operation], axes: Sequence[E.IterVar]
) -> bool:
    """Whether a reduction reads others for its own row."""
    reads = _reads(op.body[0].source[0], held, stop)  # type: ignore[attr-defined]  # asked by _is_plain
    return reads is not None and all(_row_indices(read) == [axis.var for axis in axes] for read in reads)


def _row_indices(read: E.ProducerLoad) -> list[E.Expr]:
    return [index for index, extent in zip(read.indices, shape_of(read.producer), strict=True) if extent != 1]


def _positions(
    tensor: te.Tensor, held: frozenset[te.ComputeOp], stop: frozenset[te.Operation], rank: int
) -> Positions | None:
    """Which axes of a result are those of the rows that it reads."""
    op = tensor.op
    assert isinstance(op, te.ComputeOp), "asked by _reductions"
    places = {axis.var: n for n, axis in enumerate(op.axis)}
    if op in held:
        return tuple(places[axis.var] for axis in _row_axes(op))
    positions: set[Positions] = set()
    for read in _reads(op.body[tensor.value_index], held, stop) or ():
        indices = _row_indices(read)
        if not all(isinstance(i, E.Var) and i in places for i in indices):
            return None
        positions.add(tuple(places[i] for i in indices if isinstance(i, E.Var)))
    if len(positions) != 1:
        return None
    (only,) = positions
    return only if len(set(only)) == rank else None
