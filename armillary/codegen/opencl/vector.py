"""Vector expressions in OpenCL C: `float4` arithmetic, `vload4`, `vstore4`.

In: a store whose last index has consecutive lanes. Out: one statement, or None where some part of the value has no
vector form here; the caller then writes a loop over lanes. Invariant: the statement stores what the loop would. Lanes
are 2, 4, 8 or 16, of 32-bit or 16-bit floats.
"""

from __future__ import annotations

from typing import Protocol

from armillary.base.dtype import DType
from armillary.codegen.base import flat_index
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S

LANES = (2, 4, 8, 16)
_TYPES = ("float32", "float16")
_INFIX = {E.Add: "+", E.Sub: "-", E.Mul: "*", E.Div: "/"}
_FUNCTIONS = frozenset({"exp", "log", "sqrt", "rsqrt", "tanh", "sin", "cos", "floor", "ceil", "trunc", "fabs", "erf"})


class Emitter(Protocol):
    """What is asked of the emitter of scalars."""

    def value(self, item: E.Expr, lane: str | None = None) -> str: ...
    def index(self, item: E.Expr, lane: str | None = None) -> str: ...
    def name_of(self, buffer: S.Buffer) -> str: ...
    def once(self, text: str, kind: str) -> str: ...
    def kind(self, dtype: DType) -> str: ...


def vector_store(m: Emitter, s: S.BufferStore) -> str | None:
    """The statement that stores all lanes at once."""
    index = flat_index(s.buffer, s.indices)
    lanes = index.dtype.lanes
    if lanes not in LANES or not _is_single(s.buffer) or s.value.dtype.lanes != lanes or not _fits(s.value, lanes):
        return None
    base = _run(index)
    if base is None:
        return None
    m.kind(s.buffer.dtype)
    value = _vector(m, s.value, lanes)
    return f"vstore{lanes}({value}, 0, {m.name_of(s.buffer)} + {m.index(base)});"


def _is_single(buffer: S.Buffer) -> bool:
    return str(buffer.dtype) in _TYPES and buffer.elem_offset is None


def _run(index: E.Expr) -> E.Expr | None:
    """Where consecutive lanes begin."""
    if isinstance(index, E.Ramp) and index.base.dtype.lanes == 1 and build.as_int(index.stride) == 1:
        return index.base
    return None


def _fits(item: E.Expr, lanes: int) -> bool:
    """Whether `_vector` has a form for all of it; nothing is written before that is known."""
    if item.dtype.element not in _TYPES or item.dtype.lanes != lanes:
        return False
    match item:
        case E.Broadcast(value):
            return value.dtype.lanes == 1
        case E.BufferLoad(buffer, indices):
            return _is_single(buffer) and _run(flat_index(buffer, indices)) is not None
        case E.Add(a, b) | E.Sub(a, b) | E.Mul(a, b) | E.Div(a, b) | E.Max(a, b) | E.Min(a, b):
            return _fits(a, lanes) and _fits(b, lanes)
        case E.Call(_, name, args) if name in _FUNCTIONS:
            return _fits(args[0], lanes)
        case E.Cast(_, value):
            return _fits(value, lanes)
    return False


def _vector(m: Emitter, item: E.Expr, lanes: int) -> str:
    kind = f"{m.kind(item.dtype)}{lanes}"
    match item:
        case E.Broadcast(value):
            return f"({kind})({m.value(value)})"
        case E.BufferLoad(buffer, indices):
            base = _run(flat_index(buffer, indices))
            assert base is not None, "asked by _fits"
            return f"vload{lanes}(0, {m.name_of(buffer)} + {m.index(base)})"
        case E.Max(a, b) | E.Min(a, b):
            one, other = m.once(_vector(m, a, lanes), kind), m.once(_vector(m, b, lanes), kind)
            test = "isgreater" if isinstance(item, E.Max) else "isless"
            return f"select({other}, {one}, {test}({one}, {other}) | isnan({one}))"
        case E.Call(_, name, args):
            return f"{name}({_vector(m, args[0], lanes)})"
        case E.Cast(_, value):
            return f"convert_{kind}({_vector(m, value, lanes)})"
        case E.Add(a, b) | E.Sub(a, b) | E.Mul(a, b) | E.Div(a, b):
            return f"({_vector(m, a, lanes)} {_INFIX[type(item)]} {_vector(m, b, lanes)})"
    raise AssertionError(f"no vector form of {type(item).__name__}, which _fits let pass")
