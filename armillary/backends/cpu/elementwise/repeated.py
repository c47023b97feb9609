"""Elements that are dear over named sizes and read again along an axis: positions found by division.

In: a schedule whose injective stages are inlined. Out: the stages to be stored. Invariant: only divisions by values
that are not known when compiling count, so schedules of fixed shapes are left as they are. A vector of such divisions
takes as long as fifty additions (a mask of 128 x 128 gathered by position took 30 us, of which one row is 1 us).
"""

from __future__ import annotations

from armillary import te
from armillary.base.node import post_order
from armillary.tir.build import as_int
from armillary.tir.expr import Expr, FloorDiv, FloorMod, IterVar, ProducerLoad, TruncDiv, TruncMod, Var


def keep_divided(schedule: te.Schedule, outputs: list[te.Tensor]) -> list[te.Tensor]:
    """Store inlined stages that divide by a size and are read for each element of an axis; gives what stays."""
    dear: set[int] = set()  # stages in which something is divided, by and by
    for stage in schedule.stages:  # producers come first
        op = stage.op
        if isinstance(op, te.ComputeOp):
            nodes = [n for body in op.body for n in post_order(body)]
            below = (n.producer.op for n in nodes if isinstance(n, ProducerLoad))
            if any(map(_divides, nodes)) or any(id(source) in dear and schedule[source].is_inline for source in below):
                dear.add(id(op))
    stored = False
    for stage in reversed(schedule.stages):  # readers come first
        op = stage.op
        if not isinstance(op, te.ComputeOp) or id(op) not in dear:
            continue
        for load in (n for body in op.body for n in post_order(body) if isinstance(n, ProducerLoad)):
            source = load.producer.op
            if id(source) in dear and schedule[source].is_inline and _is_repeated(op.axis, load.indices):
                schedule[source].compute_root()
                stored = True
    if not stored:
        return outputs
    return [s.op.output(0) for s in schedule.stages if isinstance(s.op, te.ComputeOp) and not s.is_inline]


def _divides(node: object) -> bool:
    return isinstance(node, FloorDiv | FloorMod | TruncDiv | TruncMod) and as_int(node.b) is None


def _is_repeated(axes: tuple[IterVar, ...], indices: tuple[Expr, ...]) -> bool:
    """Whether an axis longer than 1 does not choose what is read."""
    read = {n for index in indices for n in post_order(index) if isinstance(n, Var)}
    return any(axis.var not in read and as_int(axis.dom.extent) != 1 for axis in axes if axis.dom is not None)
