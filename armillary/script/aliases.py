"""Buffers that lie in the memory of other buffers: `T.decl_buffer(shape, data=A.data)`.

In: a body, and for each such buffer the one whose memory it is. Out: the body with every access going to the memory's
owner. Invariant: the element is the same one: it is counted in row-major order, or by strides, from where the memory
begins; both have one dtype.
"""

from __future__ import annotations

from collections.abc import Mapping

from armillary.errors import UnsupportedError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.buffer_access import strides_of
from armillary.tir.simplify import simplify
from armillary.tir.substitute import ExprMapper, map_stmt


def redirected(body: S.Stmt, owners: Mapping[S.Buffer, S.Buffer]) -> S.Stmt:
    """The body with accesses to the keys of `owners` going to their values."""
    if not owners:
        return body

    def load(e: E.Expr) -> E.Expr | None:
        if type(e) is not E.BufferLoad or e.buffer not in owners:
            return None
        return E.BufferLoad(*_place(e.buffer, owners[e.buffer], e.indices))

    mapper = ExprMapper(load)

    def visit(s: S.Stmt) -> S.Stmt:
        mapped = map_stmt(s, mapper, visit)
        if isinstance(mapped, S.BufferStore) and mapped.buffer in owners:
            buffer, indices = _place(mapped.buffer, owners[mapped.buffer], mapped.indices)
            return S.BufferStore(buffer, mapped.value, indices)
        return mapped

    return visit(body)


def _place(alias: S.Buffer, owner: S.Buffer, indices: tuple[E.Expr, ...]) -> tuple[S.Buffer, tuple[E.Expr, ...]]:
    if alias.dtype != owner.dtype:
        message = f"buffer {alias.name} of {alias.dtype} lies in the memory of {owner.name}, which is {owner.dtype}"
        raise UnsupportedError(message, hint="declare it with the dtype of the memory")
    same = len(alias.shape) == len(owner.shape) and all(
        build.as_int(simplify(build.sub(a, b))) == 0 for a, b in zip(alias.shape, owner.shape, strict=True)
    )
    if same and not alias.strides and alias.elem_offset is None and not owner.strides:
        return owner, indices
    flat: E.Expr = alias.elem_offset if alias.elem_offset is not None else build.const(0)
    for index, step in zip(indices, strides_of(alias), strict=True):
        flat = build.add(flat, build.mul(index, step))
    if owner.elem_offset is not None:
        flat = build.sub(flat, owner.elem_offset)
    if len(owner.shape) == 1:
        return owner, (flat,)
    if flat.dtype.lanes > 1:
        raise UnsupportedError(f"a vector of {alias.name} lies across rows of {owner.name}")
    places: list[E.Expr] = []
    for extent in reversed(owner.shape[1:]):
        places.insert(0, build.floormod(flat, extent))
        flat = build.floordiv(flat, extent)
    return owner, (flat, *places)
