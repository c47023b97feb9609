"""Vector expressions in OpenCL C: `float4` arithmetic, `vload4`, `vstore4`.

In: a store whose last index has consecutive lanes. Out: one statement, or None where some part of the value has no
vector form here; the caller then writes a loop over lanes. Invariant: the statement stores what the loop would. Lanes
are 2, 4, 8 or 16, of 32-bit or 16-bit floats.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from armillary.base.dtype import DType
from armillary.codegen.base import flat_index
from armillary.codegen.opencl import half
from armillary.codegen.opencl.half_bits import widened_bits
from armillary.codegen.opencl.linear import linear
from armillary.codegen.opencl.texel import Emitter as Texels
from armillary.codegen.opencl.texel import (
    is_pixel,
    read_pixel,
    read_sampled,
    vector_part,
    without_column_tests,
    write_pixel,
)
from armillary.target.texture import is_texture
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S

LANES = (2, 4, 8, 16)
ALIGNED = 16  # bytes, of what groups share, if it is of vectors
_TYPES = ("float32", "float16")
_BITS = "uint16"  # of halves, loaded, chosen and kept
_COPIED = "uint8"  # loaded and stored four at once, but computed with one by one
_INFIX = {E.Add: "+", E.Sub: "-", E.Mul: "*", E.Div: "/"}
_FUNCTIONS = frozenset({"exp", "log", "sqrt", "rsqrt", "tanh", "sin", "cos", "floor", "ceil", "trunc", "fabs", "erf"})


class Emitter(Texels, Protocol):
    """What is asked of the emitter of scalars."""

    def value(self, item: E.Expr, lane: str | None = None) -> str: ...
    def once(self, text: str, kind: str) -> str: ...
    @property
    def of_vectors(self) -> Set[S.Buffer]: ...
    @property
    def in_memory(self) -> Set[S.Buffer]: ...


def vector_store(m: Emitter, s: S.BufferStore) -> str | None:
    """The statement that stores all lanes at once."""
    lanes = s.indices[-1].dtype.lanes
    if (
        lanes not in LANES
        or s.value.dtype.lanes != lanes
        or not _is_run(s.buffer, s.indices)
        or not _fits(s.value, lanes)
    ):
        return None
    value = s.value
    if is_texture(s.buffer.scope) and isinstance(value, E.Cast) and value.value.dtype.element == "float32":
        return write_pixel(m, s, _vector(m, value.value, lanes), value.value.dtype)  # narrowed by the texture unit
    return stored_vector(m, s, _vector(m, value, lanes), value.dtype)


def stored_vector(m: Emitter, s: S.BufferStore, value: str, dtype: DType) -> str:
    """The statement that stores a vector of type `dtype`."""
    if is_texture(s.buffer.scope):
        return write_pixel(m, s, value, dtype)
    m.kind(s.buffer.dtype)
    index = flat_index(s.buffer, s.indices)
    if s.buffer in m.of_vectors:
        return f"{_own(m, s.buffer, index)} = {value};"
    base = _run(index)
    assert base is not None, "asked by _is_run"
    lanes = index.dtype.lanes
    aligned = is_aligned(s.buffer, base, lanes)
    if s.buffer in m.in_memory and str(s.buffer.dtype) == "float16":
        return half.store_run(lanes, value, f"{m.name_of(s.buffer)} + {m.index(base)}", aligned=aligned)
    if aligned:
        return f"{_in_place(m, s.buffer, base, lanes)} = {value};"
    return f"vstore{lanes}({value}, 0, {m.name_of(s.buffer)} + {m.index(base)});"


def is_aligned(buffer: S.Buffer, base: E.Expr, lanes: int) -> bool:
    """Whether a vector begins at a multiple of its size: what a kernel is given begins at multiples of 512 bytes, what
    its groups share at multiples of 16. `vload4` would be four loads where a compiler knows no more than the type."""
    size = lanes * buffer.dtype.bits // 8
    if buffer.scope not in ("global", "shared") or size > ALIGNED or lanes not in LANES:
        return False
    terms, number = linear(base)
    return number % lanes == 0 and all(count % lanes == 0 for _, count in terms.values())


def _in_place(m: Emitter, buffer: S.Buffer, base: E.Expr, lanes: int) -> str:
    space = "__local" if buffer.scope == "shared" else "__global"
    kind = {"float16": half.TYPE, _COPIED: "uchar"}.get(str(buffer.dtype), "float")
    return f"*({space} {kind}{lanes}*)({m.name_of(buffer)} + {m.index(base)})"


def _own(m: Emitter, buffer: S.Buffer, index: E.Expr) -> str:
    """An element of a private array of vectors."""
    part = vector_part(index)
    assert part is not None, "asked by is_of_vectors"
    return f"{m.name_of(buffer)}[{m.index(part[0])}]"


def _is_run(buffer: S.Buffer, indices: tuple[E.Expr, ...]) -> bool:
    """Whether an access takes consecutive elements of a type that vectors have."""
    if is_texture(buffer.scope):
        return is_pixel(buffer, indices)
    return _is_single(buffer) and _run(flat_index(buffer, indices)) is not None


def _is_single(buffer: S.Buffer) -> bool:
    return str(buffer.dtype) in (*_TYPES, _COPIED, _BITS) and buffer.elem_offset is None


def _run(index: E.Expr) -> E.Expr | None:
    """Where consecutive lanes begin."""
    if isinstance(index, E.Ramp) and index.base.dtype.lanes == 1 and build.as_int(index.stride) == 1:
        return index.base
    return None


def _fits(item: E.Expr, lanes: int) -> bool:
    """Whether `_vector` has a form for all of it; nothing is written before that is known."""
    if item.dtype.element == _COPIED:
        return isinstance(item, E.BufferLoad) and item.dtype.lanes == lanes and _is_run(item.buffer, item.indices)
    if item.dtype.element not in (*_TYPES, _BITS) or item.dtype.lanes != lanes:
        return False
    if item.dtype.element == _BITS and not isinstance(item, E.Broadcast | E.BufferLoad | E.Call):
        return False
    bits = widened_bits(item)
    if bits is not None:
        return _fits(bits, lanes)
    match item:
        case E.Call(_, "reinterpret", (E.BufferLoad(buffer, indices),)) if item.dtype.element == _BITS:
            return str(buffer.dtype) == "float16" and not is_texture(buffer.scope) and _is_run(buffer, indices)
        case E.Broadcast(value):
            return value.dtype.lanes == 1
        case E.BufferLoad(buffer, indices):
            return _is_run(buffer, indices)
        case E.Call(_, "if_then_else", (test, yes, no)) if test.dtype.lanes == 1:
            return _fits(yes, lanes) and _fits(no, lanes)
        case E.Add(a, b) | E.Sub(a, b) | E.Mul(a, b) | E.Div(a, b) | E.Max(a, b) | E.Min(a, b):
            return _fits(a, lanes) and _fits(b, lanes)
        case E.Call(_, "fma", args):
            return all(_fits(part, lanes) for part in args)
        case E.Call(_, name, args) if name in _FUNCTIONS:
            return _fits(args[0], lanes)
        case E.Cast(_, value):
            return _fits(value, lanes)
    return False


def _vector(m: Emitter, item: E.Expr, lanes: int) -> str:
    kind = f"{'ushort' if item.dtype.element == _BITS else m.kind(item.dtype)}{lanes}"
    bits = widened_bits(item)
    if bits is not None:
        return half.number(_vector(m, bits, lanes), lanes)
    match item:
        case E.Call(_, "reinterpret", (E.BufferLoad(buffer, indices),)):
            base = _run(flat_index(buffer, indices))
            assert base is not None, "asked by _fits"
            address = f"{m.name_of(buffer)} + {m.index(base)}"
            if is_aligned(buffer, base, lanes):
                return f"(*(const __global ushort{lanes}*)({address}))"
            return f"vload{lanes}(0, (const __global ushort*)({address}))"
        case E.Broadcast(value):
            return f"({kind})({m.value(value)})"
        case E.BufferLoad(buffer, indices) if is_texture(buffer.scope):
            return read_pixel(m, item, item.dtype)
        case E.BufferLoad(buffer, indices) if buffer in m.of_vectors:
            return _own(m, buffer, flat_index(buffer, indices))
        case E.BufferLoad(buffer, indices):
            base = _run(flat_index(buffer, indices))
            assert base is not None, "asked by _fits"
            aligned = is_aligned(buffer, base, lanes)
            if buffer in m.in_memory and str(buffer.dtype) == "float16":
                return half.load_run(lanes, f"{m.name_of(buffer)} + {m.index(base)}", aligned=aligned)
            if aligned:
                return _in_place(m, buffer, base, lanes)
            return f"vload{lanes}(0, {m.name_of(buffer)} + {m.index(base)})"
        case E.Max(a, b) | E.Min(a, b):
            one, other = m.once(_vector(m, a, lanes), kind), m.once(_vector(m, b, lanes), kind)
            test = "isgreater" if isinstance(item, E.Max) else "isless"
            return f"select({other}, {one}, {test}({one}, {other}) | isnan({one}))"
        case E.Call(_, "if_then_else", (test, yes, no)):
            return _guarded(m, test, yes, no, lanes)
        case E.Call(_, "fma", args):
            return f"mad({', '.join(_vector(m, part, lanes) for part in args)})"
        case E.Call(_, name, args):
            return f"{name}({_vector(m, args[0], lanes)})"
        case E.Cast(_, E.BufferLoad(buffer, _) as load) if is_texture(buffer.scope) and item.dtype.element == "float32":
            return read_pixel(m, load, item.dtype)  # widened by the texture unit
        case E.Cast(_, value):
            return f"convert_{kind}({_vector(m, value, lanes)})"
        case E.Add(a, b) | E.Sub(a, b) | E.Mul(a, b) | E.Div(a, b):
            return f"({_vector(m, a, lanes)} {_INFIX[type(item)]} {_vector(m, b, lanes)})"
    raise AssertionError(f"no vector form of {type(item).__name__}, which _fits let pass")


def _guarded(m: Emitter, test: E.Expr, yes: E.Expr, no: E.Expr, lanes: int) -> str:
    """One of two vectors; of an image without a branch, as each of its pixels and all around it may be read."""
    load = yes.value if isinstance(yes, E.Cast) else yes
    if not isinstance(load, E.BufferLoad) or not is_texture(load.buffer.scope):
        if isinstance(load, E.BufferLoad) and _is_zero(no):
            base = _run(flat_index(load.buffer, load.indices))
            if base is not None and _is_aligned_half(m, load, base, lanes):
                text = half.guarded(lanes, m.value(test), f"{m.name_of(load.buffer)} + {m.index(base)}")
                return text if load is yes else f"convert_{m.kind(yes.dtype)}{lanes}({text})"
        return f"({m.value(test)} ? {_vector(m, yes, lanes)} : {_vector(m, no, lanes)})"
    if _is_zero(no) and (load is yes or yes.dtype.element == "float32"):
        left = without_column_tests(test, load)
        return read_sampled(m, load, yes.dtype, "" if left is None else m.value(left))
    mask = f"({half.MASK if yes.dtype.bits == 16 else 'int'}{lanes})(-({m.value(test)}))"
    sampled = read_sampled(m, load, yes.dtype if yes.dtype.element == "float32" else load.dtype)
    if load is not yes and yes.dtype.element != "float32":
        sampled = f"convert_{m.kind(yes.dtype)}{lanes}({sampled})"
    return f"select({_vector(m, no, lanes)}, {sampled}, {mask})"


def _is_aligned_half(m: Emitter, load: E.BufferLoad, base: E.Expr, lanes: int) -> bool:
    is_half = str(load.buffer.dtype) == "float16" and load.buffer in m.in_memory
    return is_half and is_aligned(load.buffer, base, lanes)


def _is_zero(item: E.Expr) -> bool:
    return isinstance(item, E.Broadcast) and isinstance(item.value, E.FloatImm) and item.value.value == 0
