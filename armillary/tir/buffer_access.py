"""Old ways to say which elements of a buffer are meant: `buffer.vload`, `vstore`, `access_ptr`, `offset_of`, `data`.

In: a buffer and positions. Out: expressions and statements over them. Invariant: positions are row-major unless the
buffer has strides, and counted from its `elem_offset`; a vector reads or writes along the last axis.
"""

from __future__ import annotations

import weakref
from typing import Any

from armillary.base.dtype import DType
from armillary.errors import TypeMismatch
from armillary.tir import build
from armillary.tir.builtins import tvm_access_ptr
from armillary.tir.expr import BufferLoad, Call, Expr, Ramp, Var
from armillary.tir.simplify import simplify
from armillary.tir.stmt import Buffer, BufferStore

_READ, _WRITE = 1, 2
_DATA: weakref.WeakKeyDictionary[Buffer, Var] = weakref.WeakKeyDictionary()


def data_of(buffer: Buffer) -> Var:
    """The handle of a buffer's memory: one variable for each buffer."""
    if buffer not in _DATA:
        _DATA[buffer] = Var(buffer.name, DType("handle"))
    return _DATA[buffer]


def load(buffer: Buffer, begin: object, dtype: str | None = None, predicate: object = None) -> Expr:  # positions
    """One element, or with a vector dtype as many along the last axis; 0 in lanes that the predicate has not."""
    result = BufferLoad(buffer, _positions(buffer, begin, _lanes(buffer, dtype)))
    if predicate is None:
        return result
    return Call(result.dtype, "masked_load", (_mask(buffer, predicate, result.dtype.lanes), result))


def store(buffer: Buffer, begin: object, value: Any, predicate: object = None) -> BufferStore:  # Any: a value
    """Write one element, or a vector along the last axis; with a predicate the lanes that it has."""
    stored = build.convert(value)
    places = _positions(buffer, begin, max(1, stored.dtype.lanes // buffer.dtype.lanes))
    if predicate is not None:
        stored = Call(stored.dtype, "masked_value", (_mask(buffer, predicate, stored.dtype.lanes), stored))
    return BufferStore(buffer, stored, places)


def _mask(buffer: Buffer, predicate: object, lanes: int) -> Expr:
    """A predicate of a vector access: a bool for each lane."""
    result = build.convert(predicate)  # type: ignore[arg-type]
    if not result.dtype.is_bool or result.dtype.lanes != lanes or lanes == 1 or buffer.dtype.lanes > 1:
        message = f"buffer {buffer.name}: the predicate is {result.dtype} for an access of {lanes} lanes"
        raise TypeMismatch(message, hint="a predicate is a vector of bool, with a lane for each element")
    return result


def _lanes(buffer: Buffer, dtype: str | None) -> int:
    wanted = DType(dtype) if dtype is not None else buffer.dtype
    if wanted.with_lanes(1) != buffer.dtype.with_lanes(1):
        raise TypeMismatch(f"buffer {buffer.name} holds {buffer.dtype}, cannot load {wanted}")
    return max(1, wanted.lanes // buffer.dtype.lanes)  # elements


def _positions(buffer: Buffer, begin: object, lanes: int) -> tuple[Expr, ...]:
    places = [build.convert(b) for b in (begin if isinstance(begin, tuple | list) else (begin,))]
    if len(places) != len(buffer.shape):
        raise TypeMismatch(f"buffer {buffer.name} has {len(buffer.shape)} dimensions, got {len(places)} positions")
    last = (
        places[-1]
        if lanes == 1 or places[-1].dtype.lanes == lanes
        else Ramp(places[-1], build.const(1, places[-1].dtype), lanes)
    )
    return (*places[:-1], last)


def strides_of(buffer: Buffer) -> list[Expr]:
    """Elements from one position to the next, along each axis."""
    if buffer.strides:
        return list(buffer.strides)
    result: list[Expr] = []
    step: Expr = build.const(1)
    for size in reversed(buffer.shape):
        result.insert(0, step)
        step = build.mul(step, size)
    return result


def offset_of(buffer: Buffer, indices: object) -> list[Expr]:  # positions
    """The element's number from where the buffer's memory begins."""
    total: Expr = buffer.elem_offset if buffer.elem_offset is not None else build.const(0)
    for index, stride in zip(_positions(buffer, indices, 1), strides_of(buffer), strict=True):
        total = build.add(total, build.mul(index, stride))
    return [simplify(total)]


def access_ptr(
    buffer: Buffer,
    access_mask: int | str,
    ptr_type: str = "handle",
    content_lanes: int = 1,
    offset: Any = 0,
    extent: Any = None,
) -> Call:
    """The address of a buffer's elements: "r", "w" or "rw" says how they are used."""
    if isinstance(access_mask, str):
        if not access_mask or set(access_mask) - set("rw"):
            raise TypeMismatch(f"access_ptr: the mask is {access_mask!r}, wanted 'r', 'w' or 'rw'")
        access_mask = sum({"r": _READ, "w": _WRITE}[letter] for letter in set(access_mask))
    start, past = build.convert(offset), _size(buffer)
    first = buffer.elem_offset if buffer.elem_offset is not None else build.const(0)
    count = simplify(build.sub(past, start)) if extent is None else build.convert(extent)
    kind = str(buffer.dtype.with_lanes(content_lanes))
    place = simplify(build.add(first, start))
    if content_lanes > 1:
        place, count = build.floordiv(place, content_lanes), build.floordiv(count, content_lanes)
    pointer = tvm_access_ptr(kind, data_of(buffer), place, count, access_mask)
    assert isinstance(pointer, Call), "tvm_access_ptr makes calls"
    return Call(DType(ptr_type), pointer.name, pointer.args)


def _size(buffer: Buffer) -> Expr:
    if buffer.strides:
        return build.mul(buffer.strides[0], buffer.shape[0])
    total: Expr = build.const(1)
    for size in buffer.shape:
        total = build.mul(total, size)
    return total


def flattened(buffer: Buffer) -> Buffer:
    """The same memory as one dimension."""
    if len(buffer.shape) == 1 and not buffer.strides:
        return buffer
    size = simplify(_size(buffer))
    return Buffer(buffer.name, (size,), buffer.dtype, buffer.scope, (), buffer.elem_offset, buffer.align)
