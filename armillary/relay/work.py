"""How much a fused function computes and moves: floating-point operations, and bytes of its inputs and outputs.

In: a primitive function with types. Out: a `Work`. Invariant: `direct` is the arithmetic of the operators' definitions
(two per multiply-add, relay/analysis/); `flops` is what the chosen algorithm does, which an operator with another
algorithm states in its `flops` facet (Winograd). Elementwise operators count one per element, whatever they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.relay.analysis import mac_numbers
from armillary.relay.expr import Call, Expr, Function, Tuple
from armillary.relay.op import Kind, Op
from armillary.relay.types import TensorType, tensor_fields
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


def argument_reads(function: Function) -> dict[int, int]:
    """Bytes read at most of those tensor arguments of which a kernel needs a part, by position.

    An injective operator reads one element of its input for each of its result: a look-up reads rows of its table.
    """
    if not all(isinstance(p.checked_type, TensorType) for p in function.params):
        return {}  # the fields of a tuple are arguments of their own
    readers = {id(p): i for i, p in enumerate(function.params)}
    needed: dict[int, int] = {}
    for item in post_order(function.body):
        for argument, most in zip(_operands(item), _most_read(item), strict=True):
            place = readers.get(id(argument))
            if place is not None:
                needed[place] = needed.get(place, 0) + most
    whole = [_bytes(p) for p in function.params]
    return {place: count for place, count in sorted(needed.items()) if count < whole[place]}


def _operands(item: Expr) -> tuple[Expr, ...]:
    if isinstance(item, Call):
        return item.args
    return item.fields if isinstance(item, Tuple) else ()


def _most_read(item: Expr) -> list[int]:
    """Bytes that an expression reads of each operand at most."""
    whole = [_bytes(operand) for operand in _operands(item)]
    if not (isinstance(item, Call) and isinstance(item.op, Op)):
        return whole
    if item.op.reads_rule is not None:
        return list(item.op.reads_rule(item.attrs, [a.checked_type for a in item.args], item.checked_type))
    if item.op.kind is not Kind.INJECTIVE:
        return whole
    result = _size(item)
    return [min(count, result * count // max(1, _size(a))) for a, count in zip(item.args, whole, strict=True)]


def _bytes(item: Expr) -> int:
    return sum(t.nbytes for t in tensor_fields(item.checked_type))


def _size(item: Expr) -> int:
    return sum(t.size for t in tensor_fields(item.checked_type))


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
        sizes = getattr(call.attrs, "pool_size", ()) or ()
        for size in sizes if isinstance(sizes, tuple) else (sizes,) * (tensor_fields(call.checked_type)[0].ndim - 2):
            window *= size
        return max(result * window, sum(t.size for a in call.args for t in tensor_fields(a.checked_type)))
    return 0
