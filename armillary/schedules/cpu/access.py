"""How a stage walks memory: which axis moves a load by one element.

In: a stage's operation. Out: steps of indices, the reduction axis along which the data are contiguous, and the output
axis along which an input is while the last axis is not. Invariant: exact where it answers; None where an index is no
sum of multiples of the axes. Users: reduce.py, default.py.
"""

from __future__ import annotations

from armillary import te
from armillary.node import Node, post_order
from armillary.schedules.cpu.common import static_extent
from armillary.te.affine import Linear, Space
from armillary.te.inline import rewriter
from armillary.tir.expr import Expr, IterVar, ProducerLoad, Reduce, Var

MIN_EXTENT = 4  # shorter reductions are written out
MOST_LOADS = 64  # of one stage that are looked at


def _space(axes: tuple[IterVar, ...]) -> Space:
    """Index arithmetic that knows the extents of these axes."""
    space = Space()
    for axis in axes:
        space.low[axis.var], space.high[axis.var] = Linear(0), Linear(static_extent(axis) - 1)
    return space


def _step(space: Space, index: Expr, axis: IterVar) -> int | None:
    """How far `index` moves when the axis moves by one; None when that is not constant."""
    value = space.evaluate(index, {})
    if value is None or any(not isinstance(atom, Var) and axis.var in atom.vars for atom in value.terms):
        return None
    return value.terms.get(axis.var, 0)


def _reads(indices: tuple[Expr, ...], variables: set[Var]) -> bool:
    return any(isinstance(n, Var) and n in variables for i in indices for n in post_order(i))


def _loads(schedule: te.Schedule, op: te.ComputeOp) -> list[ProducerLoad]:
    """What the elements of a stage read from memory: the loads of its body, through stages that are inlined."""
    found: list[ProducerLoad] = []
    stack: list[Node] = list(op.body)
    while stack and len(found) < MOST_LOADS:
        for load in post_order(stack.pop()):
            if not isinstance(load, ProducerLoad):
                continue
            source = load.producer.op
            stage = schedule.stage_map.get(source)
            if not isinstance(source, te.ComputeOp) or stage is None or not stage.is_inline:
                found.append(load)
                continue
            apply = rewriter({a.var: i for a, i in zip(source.axis, load.indices, strict=True)})
            stack.append(apply(source.body[load.producer.value_index]))
    return [load for load in found if load.indices]


def contiguous_axis(schedule: te.Schedule, op: te.Operation) -> IterVar | None:
    """The reduction axis along which a load walks memory one by one; None where none does or a data axis does too."""
    if not isinstance(op, te.ComputeOp) or len(op.body) > 1 or not isinstance(op.body[0], Reduce):
        return None
    space, found = _space((*op.axis, *op.reduce_axis)), None
    reduced = {a.var for a in op.reduce_axis}
    for load in _loads(schedule, op):
        if not _reads(load.indices, reduced):
            continue  # a value for the whole row
        last = load.indices[-1]
        if op.axis and _step(space, last, op.axis[-1]) == 1:
            return None
        if found is None:
            found = next((a for a in op.reduce_axis if _step(space, last, a) == 1), None)
    return found if found is not None and static_extent(found) >= MIN_EXTENT else None


def crossing_axis(schedule: te.Schedule, op: te.Operation) -> IterVar | None:
    """The output axis along which some load is contiguous, while the last output axis moves it across memory."""
    if not isinstance(op, te.ComputeOp) or len(op.axis) < 2:
        return None
    space = _space(op.axis)
    for load in _loads(schedule, op):
        last = load.indices[-1]
        if _step(space, last, op.axis[-1]) != 0 or not _reads(load.indices[:-1], {op.axis[-1].var}):
            continue
        for axis in op.axis[:-1]:
            if _step(space, last, axis) == 1 and static_extent(axis) > 1:
                return axis
    return None
