"""What calls ask for, held against the budgets: sizes of results, of padding, of constants that passes compute.

In: typed calls. Out: nothing, or a BudgetError with the operator, where it is, and the budget. Sizes that
are not known when compiling are not looked at. Invariant: refused before anything of that size is made or counted
through. The budgets: armillary/budgets.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from armillary.budgets import FILE_BYTES, FOLDED_BYTES, GROWTH, PADDED_ELEMENTS, TENSOR_BYTES
from armillary.errors import Span, UnsupportedError
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.op import Op
from armillary.relay.types import AnyDim, TensorType, Type, tensor_fields
from armillary.relay.walk import not_primitive, post_order

MOST_AXES = 32  # ARM_MAX_NDIM of the native runtime
_UNEVEN = 16  # multiply-adds of a product in the time of one operation of a reference that reads here and there
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
    """Multiply-adds of a contraction, or as many as take the time of what another operator states, of the elements that
    a window reads, or of the result's."""
    fields = tensor_fields(call.checked_type)
    types = [arg.checked_type for arg in call.args]
    if not isinstance(call.op, Op) or any(isinstance(d, AnyDim) for t in fields for d in t.shape):
        return 0
    if call.op.macs_rule is not None and all(isinstance(t, TensorType) for t in types):
        return int(call.op.macs_rule(call.attrs, types, call.checked_type))
    if call.op.flops_rule is not None:
        return _UNEVEN * int(call.op.flops_rule(call.attrs, types, call.checked_type))
    return sum(t.size for t in fields) * math.prod(_numbers(getattr(call.attrs, "pool_size", ())))


class Spent:
    """Bytes of constants that a pass computes, against those that it was given."""

    def __init__(self, functions: Sequence[Function]) -> None:
        self._functions, self._stated, self._computed = functions, -1, 0
        stated = [int(f.get_attr(FILE_BYTES)) for f in functions if f.get_attr(FILE_BYTES) is not None]
        if stated:  # what the import made was not given
            self._stated = sum(stated)
            self._computed = max(0, self._constant_bytes() - self._stated)

    def _constant_bytes(self) -> int:
        constants = Constants()
        return sum(constants.more(function) for function in self._functions)

    def add(self, call: Call, size: int) -> None:
        """`size` more are made for a call."""
        self._computed += size
        if self._computed > FOLDED_BYTES.limit:
            self._stated = self._constant_bytes() if self._stated < 0 else self._stated
            name = call.op.name if isinstance(call.op, Op) else "a call"
            FOLDED_BYTES.check(self._computed, f"constants for {name}", call.span, GROWTH * self._stated)


class Constants:
    """Bytes of constants in expressions that are looked at one after another; each part counts, and is read, once."""

    def __init__(self) -> None:
        self._seen: dict[int, Expr] = {}  # by id; held, so that ids stay unique

    def __len__(self) -> int:
        return len(self._seen)

    def more(self, root: Expr) -> int:
        """Bytes of those of `root` that were not met before."""
        result = 0
        for item in post_order(root, lambda e: id(e) not in self._seen and not_primitive(e)):
            if id(item) not in self._seen:
                self._seen[id(item)] = item
                result += item.nbytes if isinstance(item, Constant) else 0
        return result


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
