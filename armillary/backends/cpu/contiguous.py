"""Whether the last axes of a stage are one run in memory, so that they can be looped over as one.

In: a stage of a schedule whose injective producers are already inlined. Out: how many axes: of two, every tensor that
is read is read at h * W * step + w * step + (something without h and w). Invariant: a yes is exact; a doubt is a no.
Rows of 7, 14 or 28 elements fill vectors badly, images of 49, 196 or 784 do well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from armillary import te
from armillary.backends.cpu.loops import static_extent
from armillary.base.node import children, post_order
from armillary.te.affine import Linear, Space
from armillary.te.inline import Inliner, loads_of
from armillary.tir.expr import Expr, IntImm, ProducerLoad, Var

UNKNOWN = "unknown"  # the kind of an atom that is no index arithmetic
FULL_BITS = 32  # of elements whose vectors can be shuffled by one instruction
NEAR = 4  # vectors from which the lanes of one are taken


def is_one_run(schedule: te.Schedule, tensor: te.Tensor) -> bool:
    """Whether reads of a stage keep its last two axes together, and nothing but reads depends on them."""
    return axes_of_run(schedule, tensor) > 1


def axes_of_run(schedule: te.Schedule, tensor: te.Tensor) -> int:
    """How many of the last axes of a stage are one run in memory, at least 1: the body may count with none of more.

    Axes of length 1 belong to any run. Of a reduction the data axes count.
    """
    op = tensor.op
    if not isinstance(op, te.ComputeOp) or len(op.axis) < 2:
        return 1
    inside, flat = _places(schedule, tensor)
    count, length, inner = 0, 1, None  # the run so far: its axes, its elements, its last axis longer than 1
    for axis in reversed(op.axis):
        extent = static_extent(axis)
        if extent > 1:
            if inner is not None and (axis.var in inside or inner in inside):
                break
            if inner is not None and not all(_keeps(value, axis.var, inner, length) for value in flat):
                break
            inner = axis.var if inner is None else inner
        count, length = count + 1, length * extent
    return max(count, 1)


def rows_of_block(schedule: te.Schedule, tensor: te.Tensor, count: int, lanes: int) -> int:
    """How many rows of the last `count` axes, which are one run, are computed as one; 0 where none should.

    They fill whole vectors, but for the last ones. The axis before gives the rows. Every load must find the lanes of a
    vector near one another, so that it is one load of a stretch and a shuffle: a side that is the same along rows, or
    for all rows, or that lies in longer rows.
    """
    op = tensor.op
    if not isinstance(op, te.ComputeOp) or len(op.axis) <= count or tensor.dtype.bits != FULL_BITS:
        return 0
    last = next((a for a in reversed(op.axis) if static_extent(a) > 1), op.axis[-1])
    row, length = op.axis[-count - 1], math.prod(map(static_extent, op.axis[-count:]))
    inside, flat = _places(schedule, tensor)
    rows = lanes // math.gcd(lanes, length)
    if not 1 < length < lanes or static_extent(row) == 1 or row.var in inside or last.var in inside:
        return 0
    per_vector = -(-lanes // length) + 1  # rows that a vector may touch
    for value in flat:
        if value is None or any(not isinstance(a, Var) and {row.var, last.var} & a.vars for a in value.terms):
            return 0
        along, across = (abs(value.terms.get(axis.var, 0)) for axis in (last, row))
        if along * (length - 1) + across * (per_vector - 1) >= NEAR * lanes:
            return 0
    return min(rows, static_extent(row))


def is_looked_up(schedule: te.Schedule, tensor: te.Tensor) -> bool:
    """Whether the last axis reads at places that are values themselves: a vector of them has no address."""
    op = tensor.op
    if not isinstance(op, te.ComputeOp) or not op.axis:
        return False
    last = op.axis[-1].var
    _, flat = _places(schedule, tensor)
    atoms = [a for value in flat if value is not None for a in value.terms if not isinstance(a, Var)]
    return any(a.kind == UNKNOWN and last in a.vars for a in atoms)


def _places(schedule: te.Schedule, tensor: te.Tensor) -> tuple[set[Expr], list[Linear | None]]:
    """The variables of a stage that are not in indices of reads alone, and where in memory each of its reads is."""
    op = tensor.op
    assert isinstance(op, te.ComputeOp), "only computes have axes"
    space = Space()
    for axis in op.axis:
        space.low[axis.var], space.high[axis.var] = Linear(0), Linear(static_extent(axis) - 1)
    environment = {axis.var: Linear(0, {axis.var: 1}) for axis in op.axis}
    bodies = Inliner(schedule).bodies(schedule[tensor])
    return _outside_indices(bodies), [_flat(load, space, environment) for load in loads_of(bodies)]


def _outside_indices(bodies: Sequence[Expr]) -> set[Expr]:
    """The variables of bodies that occur anywhere but in the indices of reads."""
    result: set[Expr] = set()
    stack = list(bodies)
    seen: set[int] = set()
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Var):
            result.add(item)
        elif not isinstance(item, ProducerLoad):
            stack.extend(children(item))  # type: ignore[arg-type]
    return result


def _flat(load: ProducerLoad, space: Space, environment: dict[Var, Linear]) -> Linear | None:
    """The place of a load in memory; what is no index arithmetic, a row that is looked up, is one unknown."""
    flat = Linear(0)
    for index, extent in zip(load.indices, load.producer.shape, strict=True):
        value = space.evaluate(index, environment)
        if not isinstance(extent, IntImm):
            return None
        if value is None:
            used = (n for n in post_order(index) if isinstance(n, Var))
            value = space.atom(UNKNOWN, *(Linear(0, {v: 1}) for v in dict.fromkeys(used)))
        flat = flat.scaled(extent.value).plus(value)
    return flat


def _keeps(flat: Linear | None, outer: Var, inner: Var, length: int) -> bool:
    """Whether a step of one axis moves a load as far as `length` steps of the last."""
    if flat is None:
        return False
    for atom in flat.terms:
        if not isinstance(atom, Var) and (outer in atom.vars or inner in atom.vars):
            return False
    return flat.terms.get(outer, 0) == length * flat.terms.get(inner, 0)
