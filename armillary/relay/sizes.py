"""What calls ask for, held against the budgets: sizes of results and of padding.

In: typed calls. Out: nothing, or a BudgetError with the operator, where it is, and the budget. Sizes that
are not known when compiling are not looked at. Invariant: refused before anything of that size is made or counted
through. The budgets: armillary/budgets.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from armillary.budgets import PADDED_ELEMENTS, TENSOR_BYTES
from armillary.errors import Span, UnsupportedError
from armillary.relay.expr import Call
from armillary.relay.op import Op
from armillary.relay.types import AnyDim, TensorType, Type, tensor_fields

MOST_AXES = 32  # ARM_MAX_NDIM of the native runtime
_PADS = ("padding", "pad_width")


def check_call(call: Call) -> None:
    """Refuse a call whose results or padding are beyond the budgets."""
    if not isinstance(call.op, Op):
        return
    check_result(call.checked_type, call.op.name, call.span)
    for name in _PADS:
        widest = max(_numbers(getattr(call.attrs, name, ())), default=0)
        PADDED_ELEMENTS.check(widest, f"{call.op.name}: {name}", call.span)


def check_result(result: Type, what: str, span: Span | None = None) -> None:
    """Refuse a result, or a part of one, of too many axes or bytes."""
    for ty in tensor_fields(result):
        check_rank(ty, what, span)
        TENSOR_BYTES.check(_bytes(ty), f"{what}: {ty}", span)


def operations(call: Call) -> int:
    """Multiply-adds of a contraction, what another operator states, elements that a window reads, or the result's."""
    fields = tensor_fields(call.checked_type)
    types = [arg.checked_type for arg in call.args]
    if not isinstance(call.op, Op) or any(isinstance(d, AnyDim) for t in fields for d in t.shape):
        return 0
    if call.op.macs_rule is not None and all(isinstance(t, TensorType) for t in types):
        return int(call.op.macs_rule(call.attrs, types, call.checked_type))
    if call.op.flops_rule is not None:
        return int(call.op.flops_rule(call.attrs, types, call.checked_type))
    return sum(t.size for t in fields) * math.prod(_numbers(getattr(call.attrs, "pool_size", ())))


def check_rank(ty: Type, what: str, span: Span | None = None) -> None:
    """Refuse a tensor of more axes than the runtime knows."""
    if isinstance(ty, TensorType) and ty.ndim > MOST_AXES:
        raise UnsupportedError(f"{what}: a tensor of {ty.ndim} axes; the runtime knows {MOST_AXES}", span=span)


def _bytes(ty: Type) -> int:
    if not isinstance(ty, TensorType) or any(isinstance(d, AnyDim) for d in ty.shape):
        return 0
    return ty.nbytes


def _numbers(value: object) -> Iterator[int]:  # a number, or numbers in tuples
    if isinstance(value, int):
        yield value
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for item in value:
            yield from _numbers(item)
