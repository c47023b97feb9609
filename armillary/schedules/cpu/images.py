"""Whether the last two axes of a stage are one run in memory, so that they can be looped over as one.

In: a stage of a schedule whose injective producers are already inlined. Out: `is_one_run(schedule, tensor)`: every
tensor it reads is read at h * W * step + w * step + (something without h and w). Invariant: a yes is exact; a doubt is
a no. Rows of 7, 14 or 28 elements fill vectors badly, images of 49, 196 or 784 do well.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary import te
from armillary.node import children
from armillary.schedules.cpu.common import static_extent
from armillary.te.affine import Linear, Space
from armillary.te.inline import Inliner, loads_of
from armillary.tir.expr import Expr, IntImm, ProducerLoad, Var


def is_one_run(schedule: te.Schedule, tensor: te.Tensor) -> bool:
    """Whether reads of a stage keep its last two axes together, and nothing but reads depends on them."""
    op = tensor.op
    if not isinstance(op, te.ComputeOp) or len(op.axis) < 2 or op.reduce_axis:
        return False
    row, column = op.axis[-2].var, op.axis[-1].var
    space = Space()
    for axis in op.axis:
        space.low[axis.var], space.high[axis.var] = Linear(0), Linear(static_extent(axis) - 1)
    environment = {axis.var: Linear(0, {axis.var: 1}) for axis in op.axis}
    bodies = Inliner(schedule).bodies(schedule[tensor])
    inside = _outside_indices(bodies)
    if row in inside or column in inside:
        return False
    width = static_extent(op.axis[-1])
    return all(_keeps(load, space, environment, row, column, width) for load in loads_of(bodies))


def _outside_indices(bodies: Sequence[Expr]) -> set[Expr]:
    """The variables of bodies that occur anywhere but in the indices of reads."""
    found: set[Expr] = set()
    stack = list(bodies)
    seen: set[int] = set()
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Var):
            found.add(item)
        elif not isinstance(item, ProducerLoad):
            stack.extend(children(item))  # type: ignore[arg-type]
    return found


def _keeps(
    load: ProducerLoad, space: Space, environment: dict[Var, Linear], row: Var, column: Var, width: int
) -> bool:
    flat = Linear(0)
    for index, extent in zip(load.indices, load.producer.shape, strict=True):
        value = space.evaluate(index, environment)
        if value is None or not isinstance(extent, IntImm):
            return False
        flat = flat.scaled(extent.value).plus(value)
    for atom in flat.terms:
        if not isinstance(atom, Var) and (row in atom.vars or column in atom.vars):
            return False
    return flat.terms.get(row, 0) == width * flat.terms.get(column, 0)
