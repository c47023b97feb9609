"""`storage-flatten`, `flatten-buffer`: every buffer becomes one-dimensional.

In: accesses by one index per dimension. Out: accesses by one element index (row-major, or by the buffer's strides and
element offset). What is allocated is aligned to `cache_line_size` bytes at least; `create_bound_attributes` may be
given as scripts do: sizes stay with the buffers, where bound checkers find them. Invariant: afterwards every buffer has
one dimension, no strides and no offset, but buffers in textures, which have rows, columns and four lanes
(target/texture.py); the attribute `tensor_shapes` of the function keeps the shapes the caller sees.
Next: `vectorize_loop.py`.
"""

from __future__ import annotations

import math

from armillary.base.node import replace
from armillary.errors import UnsupportedError
from armillary.target.texture import PIXEL, cut, image_size, is_texture
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.substitute import ExprMapper, map_stmt
from armillary.tir.transform.loop_pass import prim_pass


def storage_flatten(func: S.PrimFunc, cache_line_size: int = 64, create_bound_attributes: bool = False) -> S.PrimFunc:
    """Replace N-dimensional accesses by flat ones.

    M[n, 3] = 0.0  ->  M[n * 4 + 3] = 0.0      where M is Buffer[(16, 4), float32]
    """
    flattener = _Flattener(cache_line_size)
    params = tuple(flattener.buffer(p) if isinstance(p, S.Buffer) else p for p in func.params)
    body = flattener.stmt(func.body)
    flat: S.PrimFunc = replace(func, params=params, body=body)
    if flat is func or func.get_attr("tensor_shapes") is not None:
        return flat
    shapes = tuple(p.shape for p in func.params if isinstance(p, S.Buffer))
    result: S.PrimFunc = flat.with_attr("tensor_shapes", shapes)
    return result


def strides_of(buffer: S.Buffer) -> tuple[E.Expr, ...]:
    """The distance in elements between neighbours along each axis; int64 where int32 does not count all elements."""
    if is_long(buffer):
        shape = [build.as_int(extent) or 0 for extent in buffer.shape]
        known = [build.as_int(stride) for stride in buffer.strides] or [
            math.prod(shape[k + 1 :]) for k in range(len(shape))
        ]
        return tuple(build.const(stride or 0, "int64") for stride in known)
    if buffer.strides:
        return buffer.strides
    strides: list[E.Expr] = []
    step: E.Expr | None = None
    for extent in reversed(buffer.shape):
        strides.append(build.const(1, extent.dtype) if step is None else step)
        step = extent if step is None else build.mul(step, extent)
    return tuple(reversed(strides))


def is_long(buffer: S.Buffer) -> bool:
    """Whether places in a buffer of known size do not fit into int32."""
    count = known_size(buffer)
    return count is not None and count > 2**31 - 1


def known_size(buffer: S.Buffer) -> int | None:
    """Elements from the first address to the last used one, where all sizes are known."""
    offset = build.const(0) if buffer.elem_offset is None else buffer.elem_offset
    sizes = [build.as_int(e) for e in (*buffer.shape, *buffer.strides, offset)]
    known = [n for n in sizes if n is not None]
    if len(known) < len(sizes):
        return None
    shape, strides = known[: len(buffer.shape)], known[len(buffer.shape) : -1]
    if not strides:
        return math.prod(shape) + known[-1]
    return known[-1] + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) + 1


def flat_size(buffer: S.Buffer) -> E.Expr:
    """Elements from the first address to the last used one."""
    if is_long(buffer):
        return build.const(known_size(buffer) or 0, "int64")
    if not buffer.strides:
        size: E.Expr = build.const(1)
        for extent in buffer.shape:
            size = build.mul(size, extent)
        return build.add(size, buffer.elem_offset) if buffer.elem_offset is not None else size
    last: E.Expr = buffer.elem_offset if buffer.elem_offset is not None else build.const(0)
    for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
        last = build.add(last, build.mul(build.sub(extent, 1), stride))
    return build.add(last, 1)


def _row_major(shape: tuple[E.Expr, ...], indices: tuple[E.Expr, ...]) -> E.Expr:
    total: E.Expr = build.const(0)
    for extent, index in zip(shape, indices, strict=True):
        total = build.add(build.mul(total, extent), index)
    return total


def _image_shape(buffer: S.Buffer) -> tuple[E.Expr, ...]:
    sizes = [build.as_int(extent) for extent in buffer.shape]
    known = [size for size in sizes if size is not None]
    is_dense = len(known) == len(sizes) and not buffer.strides and buffer.elem_offset is None
    if not is_dense or len(sizes) < 3 or known[-1] != PIXEL:
        shape = tuple(buffer.shape)
        message = f"buffer {buffer.name} of shape {shape} cannot be in {buffer.scope}"
        raise UnsupportedError(message, hint="textures hold dense tensors of known sizes whose last axis is 4")
    height, width = image_size(buffer.scope, known)
    return build.const(height), build.const(width), build.const(PIXEL)


class _Flattener:
    def __init__(self, line: int) -> None:
        self.line = line
        self.buffers: dict[S.Buffer, S.Buffer] = {}
        self.strides: dict[S.Buffer, tuple[E.Expr, ...]] = {}
        self.mapper = ExprMapper(self.load)

    def buffer(self, old: S.Buffer) -> S.Buffer:
        result = self.buffers.get(old)
        if result is None:
            if is_texture(old.scope):
                result = self.buffers[old] = replace(old, shape=_image_shape(old))
                return result
            is_flat = len(old.shape) == 1 and not old.strides and old.elem_offset is None
            result = self.buffers[old] = (
                old if is_flat else S.Buffer(old.name, (flat_size(old),), old.dtype, old.scope, (), None, old.align)
            )
        return result

    def load(self, item: E.Expr) -> E.Expr | None:
        if type(item) is not E.BufferLoad:
            return None
        flat = self.buffer(item.buffer)
        return item if flat is item.buffer else E.BufferLoad(flat, self.places(item.buffer, item.indices))

    def places(self, buffer: S.Buffer, indices: tuple[E.Expr, ...]) -> tuple[E.Expr, ...]:
        """The indices in the flat buffer, or in the image."""
        if not is_texture(buffer.scope):
            return (self.index(buffer, indices),)
        at = cut(buffer.scope, len(indices))
        row, column = (_row_major(buffer.shape[a:b], indices[a:b]) for a, b in ((0, at), (at, len(indices) - 1)))
        return row, column, indices[-1]

    def index(self, buffer: S.Buffer, indices: tuple[E.Expr, ...]) -> E.Expr:
        strides = self.strides.get(buffer)
        if strides is None:
            strides = self.strides[buffer] = strides_of(buffer)
        total: E.Expr = buffer.elem_offset if buffer.elem_offset is not None else build.const(0)
        for index, stride in zip(indices, strides, strict=True):
            wide = build.cast(index, stride.dtype) if stride.dtype.bits > index.dtype.bits else index
            total = build.add(total, build.mul(wide, stride))
        return total

    def stmt(self, item: S.Stmt) -> S.Stmt:
        if isinstance(item, S.Allocate):
            buffer = self.buffer(item.buffer)
            if buffer.align < self.line:
                buffer = self.buffers[item.buffer] = replace(buffer, align=self.line)
            return replace(item, buffer=buffer, body=self.stmt(item.body))
        mapped = map_stmt(item, self.mapper, self.stmt)
        if isinstance(mapped, S.BufferStore):
            flat = self.buffer(mapped.buffer)
            if flat is not mapped.buffer:
                return S.BufferStore(flat, mapped.value, self.places(mapped.buffer, mapped.indices))
        if isinstance(mapped, S.AttrStmt) and isinstance(mapped.node, S.Buffer):
            return replace(mapped, node=self.buffer(mapped.node))
        return mapped


StorageFlatten = prim_pass("storage-flatten", "tir.StorageFlatten")(storage_flatten)
FlattenBuffer = prim_pass("flatten-buffer", "tir.FlattenBuffer")(storage_flatten)  # of modules that had blocks
