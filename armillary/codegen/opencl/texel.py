"""Pixels of four numbers in OpenCL C: reads and writes of images, and private arrays of vectors.

In: accesses of buffers in a texture scope, by (row, column, lane); private buffers whose accesses take four elements or
one known lane. Out: text. Invariant: an image is read or written by a kernel, never both; reading beside it gives
zeros, by the sampler: columns beside it need no test, and what must not be read is read above it, so that no branch
stands around a read. Geometry: `target/texture.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from armillary.base.dtype import DType
from armillary.base.node import post_order
from armillary.codegen.base import flat_index, refuse
from armillary.codegen.opencl import half
from armillary.codegen.opencl.image_coordinates import Emitter as Places
from armillary.codegen.opencl.image_coordinates import coordinate_text
from armillary.codegen.opencl.linear import Terms, difference, linear
from armillary.target.texture import PIXEL, TEXTURE, is_texture
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import uses_any

SAMPLER = "const sampler_t image_sampler = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;"


class Emitter(Places, Protocol):
    """What is asked of the emitter of scalars."""

    def name_of(self, buffer: S.Buffer) -> str: ...
    def kind(self, dtype: DType) -> str: ...
    def helper(self, name: str) -> str: ...

    uses_sampler: bool


# --- images ---------------------------------------------------------------------------------------------------------


def is_pixel(buffer: S.Buffer, indices: tuple[E.Expr, ...]) -> bool:
    """Whether an access takes all four numbers of a pixel, in their order."""
    *at, lane = indices
    is_all = isinstance(lane, E.Ramp) and (build.as_int(lane.base), build.as_int(lane.stride), lane.lanes) == (
        0,
        1,
        PIXEL,
    )
    return is_texture(buffer.scope) and is_all and all(index.dtype.lanes == 1 for index in at)


def is_pixel_loop(loop: S.For, store: S.BufferStore) -> bool:
    """Whether a loop stores the four numbers of a pixel one by one."""
    if not is_texture(store.buffer.scope) or len(store.indices) != 3:
        return False
    row, column, lane = store.indices
    is_whole = (build.as_int(loop.min), build.as_int(loop.extent)) == (0, PIXEL)
    return is_whole and lane is loop.var and not uses_any(row, {loop.var}) and not uses_any(column, {loop.var})


def place(m: Emitter, indices: tuple[E.Expr, ...], inside: str = "", lane: str | None = None) -> str:
    """Column and row, of a vector of accesses those of `lane`; the row above the image where `inside` is false."""
    row, column = (coordinate_text(m, e) if e.dtype.lanes == 1 else m.index(e, lane) for e in indices[:2])
    return f"(int2)({column}, {f'({inside} ? {row} : -1)' if inside else row})"


def read_pixel(m: Emitter, load: E.BufferLoad, dtype: DType) -> str:
    """The four numbers of a pixel of the image as values of `dtype`; float16 is widened. Without a sampler: with one,
    places are converted to floats."""
    return f"{_reader(m, dtype)}({m.name_of(load.buffer)}, {place(m, load.indices)})"


def read_sampled(m: Emitter, load: E.BufferLoad, dtype: DType, inside: str = "") -> str:
    """Those of a pixel that may lie beside the image: zeros there, and where `inside` is false."""
    m.uses_sampler = True
    return f"{_reader(m, dtype)}({m.name_of(load.buffer)}, image_sampler, {place(m, load.indices, inside)})"


def _reader(m: Emitter, dtype: DType) -> str:
    return half.READ_IMAGE if m.kind(dtype) == half.TYPE else "read_imagef"


def read_number(m: Emitter, load: E.BufferLoad, lane: str | None) -> str:
    """One number of a pixel; `lane`: of a vector of accesses."""
    last = load.indices[-1]
    pixel = f"{_reader(m, load.buffer.dtype)}({m.name_of(load.buffer)}, {place(m, load.indices, lane=lane)})"
    known = build.as_int(last)
    if known is not None:
        return f"{pixel}.s{known}"
    helper = "lane4h" if m.kind(load.buffer.dtype) == half.TYPE else "lane4"
    return f"{m.helper(helper)}({pixel}, {m.index(last, lane if last.dtype.lanes > 1 else None)})"


def write_pixel(m: Emitter, s: S.BufferStore, value: str, dtype: DType) -> str:
    """Store four numbers of type `dtype`. float16 as floats: write_imageh of Mesa's llvmpipe (26) writes zeros."""
    value = f"convert_float4({value})" if m.kind(dtype) == half.TYPE else value
    return f"write_imagef({m.name_of(s.buffer)}, {place(m, s.indices)}, {value});"


def access_of(buffer: S.Buffer, body: S.Stmt) -> str:
    """How a kernel declares an image."""
    reads = any(isinstance(n, E.BufferLoad) and n.buffer is buffer for n in post_order(body))
    writes = any(isinstance(n, S.BufferStore) and n.buffer is buffer for n in post_order(body))
    if reads and writes:
        raise refuse("opencl", f"a kernel that reads and writes image {buffer.name}", "compute it in two kernels")
    return "__write_only" if writes else "__read_only"


def without_column_tests(condition: E.Expr, load: E.BufferLoad) -> E.Expr | None:
    """What a guard of a read tests beside the column, which the sampler does; None where nothing is left."""
    if load.buffer.scope != TEXTURE:
        return condition
    column, width = load.indices[1], build.as_int(load.buffer.shape[1])
    parts = [part for part in _conjuncts(condition) if width is None or not _tests_column(part, column, width)]
    if not parts:
        return None
    result = parts[0]
    for part in parts[1:]:
        result = E.And(result, part)
    return result


def _conjuncts(item: E.Expr) -> list[E.Expr]:
    if isinstance(item, E.Call) and item.name == "likely":
        return _conjuncts(item.args[0])
    return [*_conjuncts(item.a), *_conjuncts(item.b)] if isinstance(item, E.And) else [item]


def _tests_column(test: E.Expr, column: E.Expr, width: int) -> bool:
    """Whether a comparison is false only where the column is beside the image."""
    match test:
        case E.GE(a, b):
            less = 0
        case E.LE(b, a):
            less = 0
        case E.GT(a, b):
            less = 1
        case E.LT(b, a):
            less = 1
        case _:
            return False
    if not a.dtype.is_int or a.dtype.lanes != 1:
        return False
    (of_a, number), (of_b, minus), (of_column, at) = map(linear, (a, b, column))
    margin, rest = difference(of_a, of_b), number - minus - less  # the test: margin + rest >= 0; else it is below 0
    times = _ratio(of_column, margin)  # column = times * (margin + rest) + left
    left = at - times * rest
    return (times > 0 and left < times) or (times < 0 and left - times >= width)


def _ratio(terms: Terms, of: Terms) -> int:
    """How often terms are others; 0: they are no multiple."""
    if not of or terms.keys() != of.keys():
        return 0
    ratios = {divmod(terms[key][1], of[key][1]) for key in of}
    times, remainder = ratios.pop()
    return times if not ratios and not remainder else 0


# --- private arrays of vectors --------------------------------------------------------------------------------------


_HELD = ("float32", "float16", "uint8", "uint16")  # types that private arrays of vectors have


def is_of_vectors(buffer: S.Buffer, body: S.Stmt) -> bool:
    """Whether each access of a private buffer takes four aligned elements, or one whose lane is known."""
    size = build.as_int(buffer.shape[0]) if len(buffer.shape) == 1 else None
    if size is None or size % PIXEL or buffer.scope == "shared" or str(buffer.dtype) not in _HELD:
        return False
    result = False
    for indices in _accesses(buffer, body):
        part = vector_part(flat_index(buffer, indices))
        if part is None:
            return False
        result = result or part[1] is None
    return result


def _accesses(buffer: S.Buffer, body: S.Stmt) -> Iterable[tuple[E.Expr, ...]]:
    for item in post_order(body):
        if isinstance(item, E.BufferLoad | S.BufferStore) and item.buffer is buffer:
            yield item.indices


def vector_part(index: E.Expr) -> tuple[E.Expr, int | None] | None:
    """Which vector of an array, and which lane of it (None: all); None where that is not known."""
    is_whole = isinstance(index, E.Ramp)
    if isinstance(index, E.Ramp):
        if index.lanes != PIXEL or build.as_int(index.stride) != 1 or index.base.dtype.lanes != 1:
            return None
        index = index.base
    if index.dtype.lanes != 1:
        return None
    terms, number = linear(index)
    if any(count % PIXEL for _, count in terms.values()) or (is_whole and number % PIXEL):
        return None
    total: E.Expr = build.const(number // PIXEL, index.dtype)
    for item, count in terms.values():
        total = build.add(total, build.mul(item, build.const(count // PIXEL, item.dtype)))
    return total, None if is_whole else number % PIXEL
