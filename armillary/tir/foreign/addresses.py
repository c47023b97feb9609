"""Addresses of buffers, as scripts write them, in terms of elements.

In: statements with `buffer.data`, `buffer.access_ptr(…)` or a buffer given to `call_packed`. Out: the same with
`address_of(element, mask)`, mask 1 for read, 2 for written, in their place. Invariant: an element is a BufferLoad like
any other, so renaming, flattening and tensorizing move addresses as they move loads; `analysis.stores_of` tells which
are written through. A statement that names no memory is returned as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from armillary.base.dtype import DType
from armillary.base.node import post_order
from armillary.errors import UnsupportedError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.buffer_access import data_of
from armillary.tir.simplify import simplify
from armillary.tir.substitute import ExprMapper, map_stmt

_READ_AND_WRITTEN = 3


def with_addresses(body: S.Stmt, buffers: Iterable[S.Buffer]) -> S.Stmt:
    """A statement in which the memory of these buffers is named by elements.

    Raises UnsupportedError for an offset into a buffer with strides that is not a multiple of rows.
    """
    if not any(isinstance(item, E.Var) and item.dtype.code == "handle" for item in post_order(body)):
        return body
    mapper = ExprMapper(_Addresses({data_of(buffer): buffer for buffer in buffers}).rule)

    def visit(item: S.Stmt) -> S.Stmt:
        return map_stmt(item, mapper, visit)

    return visit(body)


def function_with_addresses(func: S.PrimFunc) -> S.PrimFunc:
    """A function in which memory is named by elements of its own buffers."""
    own = dict.fromkeys(item for item in post_order(func) if isinstance(item, S.Buffer))
    body = with_addresses(func.body, own)
    return func if body is func.body else func.with_body(body)


class _Addresses:
    def __init__(self, buffers: Mapping[E.Var, S.Buffer]) -> None:
        self.buffers = buffers

    def rule(self, item: E.Expr) -> E.Expr | None:
        if isinstance(item, E.Var):
            buffer = self.buffers.get(item)
            return None if buffer is None else _address(buffer, None, _READ_AND_WRITTEN)
        if not isinstance(item, E.Call) or item.name not in ("tvm_access_ptr", "tvm_stack_make_array"):
            return None
        pointer = item.args[1 if item.name == "tvm_access_ptr" else 0]
        if not isinstance(pointer, E.Call) or pointer.name != "address_of":
            return None
        load = pointer.args[0]
        assert isinstance(load, E.BufferLoad), "made above"
        if item.name == "tvm_access_ptr":
            lanes = item.args[0].dtype.lanes
            offset = build.mul(item.args[2], build.const(lanes, item.args[2].dtype))
            mask = build.as_int(item.args[4])
            return _address(load.buffer, offset, _READ_AND_WRITTEN if mask is None else mask)
        return E.Call(item.dtype, item.name, (pointer, *item.args[1:5], build.const(0)))


def _address(buffer: S.Buffer, offset: E.Expr | None, mask: int) -> E.Expr:
    """The address of the element at an offset that counts from where the memory of the buffer begins."""
    first = build.const(0) if buffer.elem_offset is None else buffer.elem_offset
    flat = build.const(0) if offset is None else simplify(build.sub(offset, build.cast(first, offset.dtype)))
    element = E.BufferLoad(buffer, _places(buffer, flat))
    return E.Call(DType("handle"), "address_of", (element, build.const(mask)))


def _places(buffer: S.Buffer, flat: E.Expr) -> tuple[E.Expr, ...]:
    """The indices of the element with that number."""
    rank = len(buffer.shape)
    if build.as_int(flat) == 0 or rank <= 1:
        zeros = [build.const(0, extent.dtype) for extent in buffer.shape]
        return tuple(zeros) if build.as_int(flat) == 0 or not rank else (build.cast(flat, buffer.shape[0].dtype),)
    if buffer.strides:
        message = f"the address of element {flat!r} of {buffer.name}, which has strides"
        raise UnsupportedError(message, hint="take the address of the buffer's first element, or of one by its indices")
    places: list[E.Expr] = []
    for extent in reversed(buffer.shape[1:]):
        places.insert(0, build.floormod(flat, build.cast(extent, flat.dtype)))
        flat = build.floordiv(flat, build.cast(extent, flat.dtype))
    return tuple(simplify(place) for place in (flat, *places))
