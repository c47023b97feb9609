"""How much a fused function computes and moves: floating-point operations, and bytes of its inputs and outputs.

In: a primitive function with types. Out: a `Work`. Invariant: `direct` is the arithmetic of the operators' definitions
(two per multiply-add, relay/analysis.py); `flops` is what the chosen algorithm does, which an operator with another
algorithm states in its `flops` facet (Winograd). Elementwise operators count one per element, whatever they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.relay.analysis import mac_numbers
from armillary.relay.expr import Call, Function
from armillary.relay.op import Kind, Op
from armillary.relay.types import tensor_fields
from armillary.relay.walk import post_order


@dataclass(frozen=True, slots=True)
class Work:
    """Of one run of a kernel: operations done, operations of the plain algorithm, bytes read and written at least."""

    flops: int
    direct: int
    nbytes: int


def function_work(function: Function) -> Work:
    """The work of a kernel."""
    macs = {id(call): count for call, count in mac_numbers(function.body)}
    flops = direct = 0
    for item in post_order(function.body):
        if isinstance(item, Call) and isinstance(item.op, Op):
            plain = 2 * macs[id(item)] if id(item) in macs else _operations(item)
            direct += plain
            flops += _stated(item, plain)
    moved = [*(p.checked_type for p in function.params), function.body.checked_type]
    return Work(flops, direct, sum(t.nbytes for ty in moved for t in tensor_fields(ty)))


def _stated(call: Call, plain: int) -> int:
    rule = call.op.flops_rule
    if rule is None:
        return plain
    types = [a.checked_type for a in call.args]
    return int(rule(call.attrs, types, call.checked_type))


def _operations(call: Call) -> int:
    """One operation per element: of the result, or of what a reduction or window reads."""
    result = sum(t.size for t in tensor_fields(call.checked_type))
    if call.op.kind in (Kind.ELEMENTWISE, Kind.BROADCAST):
        return result
    if call.op.kind in (Kind.REDUCE, Kind.CONTRACTION):
        window = 1
        for size in getattr(call.attrs, "pool_size", ()) or ():
            window *= size
        return max(result * window, sum(t.size for a in call.args for t in tensor_fields(a.checked_type)))
    return 0
