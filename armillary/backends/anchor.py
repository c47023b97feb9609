"""The call that decides how a kernel is computed, and the workload that it is.

In: a primitive function, a target. Out: its anchor, the operator of the highest kind, the last one among equals; its
contractions; workloads of calls. Invariant: types are inferred. Who asks: driver/lower_fused.py for schedules, graph
passes of back ends for choices.
"""

from __future__ import annotations

from armillary.backends.workload import Workload
from armillary.base.node import post_order
from armillary.relay.expr import Call, Function
from armillary.relay.op import Kind, Op
from armillary.target import Target


def find_anchor(function: Function) -> Call | None:
    """The call that decides the schedule; None when the body has no operator call."""
    best: Call | None = None
    for item in post_order(function.body):
        if isinstance(item, Call) and isinstance(item.op, Op) and (best is None or _rank(item) >= _rank(best)):
            best = item
    return best


def workload_of_call(call: Call, target: Target) -> Workload:
    """What the choice for a call depends on."""
    return Workload(call.op, call.attrs, tuple(a.checked_type for a in call.args), target)


def contractions(function: Function) -> list[Call]:
    """The contractions of a function, in the order they are computed."""
    calls = [e for e in post_order(function.body) if isinstance(e, Call) and isinstance(e.op, Op)]
    return [call for call in calls if call.op.kind == Kind.CONTRACTION]


def _rank(call: Call) -> int:
    kind = call.op.kind
    return -1 if kind == Kind.TUPLE else int(kind)
