"""Expressions in OpenCL C: what it spells otherwise than C.

In: expression nodes. Out: text in C's vocabulary with OpenCL's functions; `spelled` gives it OpenCL's type names.
Invariant: as in `codegen/c/expr.py`, of which this overrides rows; but indices have the type of their expressions, as
64-bit arithmetic is slow on GPUs. float16 is half in memory and computed as `half_t`: half where the device has
cl_khr_fp16, else float (`half.py`). bfloat16 is float between loads and stores.
"""

from __future__ import annotations

import re

from armillary.base.dtype import DType
from armillary.base.node import post_order
from armillary.codegen.base import LIBM, refuse, refuse_intrinsic
from armillary.codegen.c import expr as C
from armillary.codegen.c.helpers import HELPERS as C_HELPERS
from armillary.codegen.c.literals import float_text
from armillary.codegen.opencl import half
from armillary.codegen.opencl.checks import REFUSE
from armillary.codegen.opencl.half_bits import bits_of_half, widened_bits
from armillary.codegen.opencl.vector import is_aligned
from armillary.tir import expr as E
from armillary.tir.analysis import has_loads
from armillary.tir.stmt import Buffer

_SPELLING = {
    "int8_t": "char",
    "uint8_t": "uchar",
    "int16_t": "short",
    "uint16_t": "ushort",
    "int32_t": "int",
    "uint32_t": "uint",
    "int64_t": "long",
    "uint64_t": "ulong",
    "INT64_MIN": "LONG_MIN",
    "INT32_MIN": "INT_MIN",
}
_F_NAMES = (*LIBM, "sqrt", "copysign", "floor", "ceil", "trunc", "round", "rint", "fabs", "erfc", "ldexp")
_SPELLING |= {f"{name}f": name for name in _F_NAMES}
_KINDS: dict[str, type] = {"<": E.LT, "<=": E.LE, ">": E.GT, ">=": E.GE, "==": E.EQ, "!=": E.NE}
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_LITERAL = re.compile(r"\b(U?)INT64_C\((-?\d+)\)")

HELPERS = {
    **C_HELPERS,
    "prefetch": "",
    "refuse": REFUSE,
    "share": "static inline int armillary_share(uint a, uint b) {\n  return (int)(a / max(b, 1u));\n}\n",
    "rest": "static inline int armillary_rest(uint a, uint b) {\n  return (int)(a % max(b, 1u));\n}\n",
    "lane4": "static inline float armillary_lane4(float4 x, int lane) {\n"
    "  return lane == 0 ? x.s0 : lane == 1 ? x.s1 : lane == 2 ? x.s2 : x.s3;\n}\n",
    **half.HELPERS,
    "from_bfloat16": "static inline float armillary_from_bfloat16(uint16_t x) {\n"
    "  return as_float((uint32_t)x << 16);\n}\n",
    "to_bfloat16": "static inline uint16_t armillary_to_bfloat16(float x) {\n  uint32_t bits = as_uint(x);\n"
    "  if (x != x) return (uint16_t)((bits >> 16 & 0x8000u) | 0x7fc0u);\n"
    "  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);\n}\n",
}


def spelled(text: str) -> str:
    """C's names of types and of functions on float as OpenCL C has them."""
    text = _LITERAL.sub(lambda m: m[2] + ("UL" if m[1] else "L"), text)
    return _WORD.sub(lambda m: _SPELLING.get(m[0], m[0]), text)


def is_half(dtype: DType) -> bool:
    """Whether values are of OpenCL's own 16-bit type."""
    return dtype.element == "float16"


def memory_type(dtype: DType) -> str:
    """The type of a buffer element."""
    return "half" if is_half(dtype) else C.memory_type(dtype)


class ExprEmitter(C.ExprEmitter):
    """State of the expressions of one kernel."""

    dialect = "opencl"

    def __init__(self) -> None:
        super().__init__()
        self.of_vectors: set[Buffer] = set()  # private arrays of float4 or half_t4
        self.in_memory: set[Buffer] = set()  # the arguments that are no images: others hold what is computed

    def kind(self, dtype: DType) -> str:
        """The type of a value: half_t, where C has float."""
        return half.TYPE if is_half(dtype) else C.c_type(dtype)

    def rounded(self, dtype: DType, text: str) -> str:
        """A result that may have been computed in float."""
        return f"({self.kind(dtype)})({text})" if is_half(dtype) else super().rounded(dtype, text)

    def bind(self, var: E.Var, name: str) -> str:
        """A variable with the type of its dtype."""
        self.names[var] = name
        return name

    def index_type(self, item: E.Expr) -> str:
        """That of its expression."""
        return C.c_type(item.dtype)

    def _index(self, item: E.Expr, lane: str | None) -> str:
        if isinstance(item, E.IntImm):
            text = f"{item.value}L" if item.dtype.bits > 32 else str(item.value)
            return f"({text})" if item.value < 0 else text
        if isinstance(item, E.Var) and item in self.names:
            return self.names[item]
        if isinstance(item, E.Ramp | E.Broadcast):
            return super()._index(item, lane)
        symbol = {E.Add: "+", E.Sub: "-", E.Mul: "*"}.get(type(item))
        if symbol is not None and isinstance(item, E.Add | E.Sub | E.Mul) and item.dtype.code == "int":
            return f"({self.index(item.a, lane)} {symbol} {self.index(item.b, lane)})"
        if isinstance(item, E.FloorDiv | E.FloorMod) and item.dtype.code == "int":
            return self._index_division(item, lane)
        return f"({self.value(item, lane)})"

    def _index_division(self, item: E.FloorDiv | E.FloorMod, lane: str | None) -> str:
        # of sizes: division of 64 bits takes several times as long on a GPU
        is_small = item.dtype.bits <= 32 and self.is_non_negative(item.a) and self.is_non_negative(item.b)
        if not is_small or isinstance(item.b, E.IntImm):
            return super()._index_division(item, lane)
        name = self.helper("share" if isinstance(item, E.FloorDiv) else "rest")
        return f"{name}({self.index(item.a, lane)}, {self.index(item.b, lane)})"

    @property
    def rules(self) -> dict[type, C.Rule]:
        return RULES


def _comparison(symbol: str) -> C.Rule:
    """Of places in loops: as indices, which do not wrap. Of values: as C does."""
    of_values = C.RULES[_KINDS[symbol]]

    def rule(m: C.ExprEmitter, e: E.Binary, lane: str | None) -> str:
        if e.a.dtype.code != "int" or has_loads(e.a) or has_loads(e.b):
            return of_values(m, e, lane)
        return f"({m.index(e.a, lane)} {symbol} {m.index(e.b, lane)})"

    return rule


def _call(m: C.ExprEmitter, e: E.Call, lane: str | None) -> str:
    rule = CALLS.get(e.name)
    if rule is None:
        raise refuse_intrinsic(m.dialect, e.name)
    return rule(m, e, lane)


def _choice(m: C.ExprEmitter, e: E.Call, lane: str | None) -> str:
    """Of halves in memory their bits are chosen: a conversion behind a test waits for each load where it stands."""
    assert isinstance(m, ExprEmitter), "the rules of this dialect"
    bits = bits_of_half(e) if e.dtype.lanes == 1 else None
    if bits is None or not m.in_memory.issuperset(n.buffer for n in post_order(e) if isinstance(n, E.BufferLoad)):
        return C.CALLS["if_then_else"](m, e, lane)
    return half.number(m.value(bits, lane))


def _float(m: C.ExprEmitter, e: E.FloatImm, lane: str | None) -> str:
    return m.rounded(e.dtype, float_text(e.value, e.dtype))


def _floats(kind: type, symbol: str) -> C.Rule:
    """Arithmetic of two float16 is in half; compilers fuse products and sums. Of other numbers as in C."""
    in_c = C.RULES[kind]

    def rule(m: C.ExprEmitter, e: E.Binary, lane: str | None) -> str:
        is_float = e.dtype.is_float and not C.is_short(e.dtype)
        if not is_float and not is_half(e.dtype):
            return in_c(m, e, lane)
        m.kind(e.dtype)
        return f"({m.value(e.a, lane)} {symbol} {m.value(e.b, lane)})"

    return rule


def _extremum(kind: type, name: str) -> C.Rule:
    in_c = C.RULES[kind]

    def rule(m: C.ExprEmitter, e: E.Binary, lane: str | None) -> str:
        if not is_half(e.dtype):
            return in_c(m, e, lane)
        m.kind(e.dtype)
        return f"{m.helper(name)}({m.value(e.a, lane)}, {m.value(e.b, lane)})"

    return rule


def _load(m: C.ExprEmitter, e: E.BufferLoad, lane: str | None) -> str:
    if not is_half(e.buffer.dtype):
        return C.RULES[E.BufferLoad](m, e, lane)
    m.kind(e.buffer.dtype)
    assert isinstance(m, ExprEmitter), "the rules of this dialect"
    return half.load(f"&{m.index_of(e, lane)}") if e.buffer in m.in_memory else m.index_of(e, lane)


def _cast(m: C.ExprEmitter, e: E.Cast, lane: str | None) -> str:
    """A half that is only widened is loaded as a float."""
    load, bits = e.value, widened_bits(e)
    if bits is not None:
        return half.number(m.value(bits, lane))
    if e.dtype.element != "float32" or not isinstance(load, E.BufferLoad) or not is_half(load.buffer.dtype):
        return C.RULES[E.Cast](m, e, lane)
    assert isinstance(m, ExprEmitter), "the rules of this dialect"
    if load.buffer not in m.in_memory:
        return f"(float)({m.index_of(load, lane)})"
    return f"vload_half(0, &{m.index_of(load, lane)})"


def _reinterpret(m: C.ExprEmitter, e: E.Call, lane: str | None) -> str:
    source, to = e.args[0].dtype.element, e.dtype.element
    load = e.args[0]
    assert isinstance(m, ExprEmitter), "the rules of this dialect"
    if isinstance(load, E.BufferLoad) and is_half(source) and to == "uint16" and load.buffer in m.in_memory:
        return half.stored(f"&{m.index_of(load, lane)}")
    if isinstance(load, E.BufferLoad) and load.dtype.lanes * source.bits == to.bits == _BYTES and load.dtype.lanes > 1:
        return f"as_{spelled(m.kind(to))}({_bytes(m, load)})"
    if source.bits != to.bits or "bfloat16" in (source, to) or to.bits < 8:
        raise refuse(m.dialect, f"reinterpret from {source} to {to}")
    value = f"({m.kind(source)})({m.value(e.args[0], lane)})"
    if is_half(source) or is_half(to):
        bits = m.helper("half_bits" if is_half(source) else "half_of")
        value = f"{bits}({value})"
        return value if is_half(to) else f"({m.kind(to)}){value}"
    return f"as_{spelled(m.kind(to))}({value})"


def _bytes(m: C.ExprEmitter, load: E.BufferLoad) -> str:
    """The bytes of a word, loaded at once."""
    (index,), lanes = load.indices, load.dtype.lanes
    assert isinstance(index, E.Ramp), "neighbours in memory"
    address = f"&{m.index_of(E.BufferLoad(load.buffer, (index.base,)), None)}"
    return f"*(__global uchar4*)({address})" if is_aligned(load.buffer, index.base, lanes) else f"vload4(0, {address})"


def _sync(m: C.ExprEmitter, e: E.Call, lane: str | None) -> str:
    m.effects += 1
    is_global = isinstance(e.args[0], E.StringImm) and e.args[0].value == "global"
    return f"barrier(CLK_LOCAL_MEM_FENCE{' | CLK_GLOBAL_MEM_FENCE' if is_global else ''})"


def _extern(m: C.ExprEmitter, e: E.Call, lane: str | None) -> str:
    name = e.args[0].value if isinstance(e.args[0], E.StringImm) else "?"
    raise refuse(m.dialect, f"a call of {name}, a function of the host", "express it with operators")


def _float_test(name: str) -> C.Rule:
    def rule(m: C.ExprEmitter, e: E.Call, lane: str | None) -> str:
        dtype: DType = e.args[0].dtype.element
        if not dtype.is_float:
            return str(int(name == "isfinite"))
        return f"({name}(({'double' if dtype.bits == 64 else 'float'})({m.value(e.args[0], lane)})) != 0)"

    return rule


def _multiply_add(m: C.ExprEmitter, e: E.Call, lane: str | None) -> str:
    a, b, c = (m.value(x, lane) for x in e.args)
    return m.rounded(e.dtype, f"({a} * {b} + {c})")


def _prefetch(m: C.ExprEmitter, e: E.Call, lane: str | None) -> str:
    return "(void)0"


CALLS: dict[str, C.Rule] = {
    **C.CALLS,
    "if_then_else": _choice,
    "reinterpret": _reinterpret,
    "thread_sync": _sync,
    "call_extern": _extern,
    "call_pure_extern": _extern,
    "prefetch": _prefetch,
    "fma": _multiply_add,
    **{name: _float_test(name) for name in ("isnan", "isinf", "isfinite")},
}
_BYTES = 32  # bits of bytes that are loaded as one number
_INFIX = {E.Add: "+", E.Sub: "-", E.Mul: "*", E.Div: "/"}
RULES: dict[type, C.Rule] = {
    **C.RULES,
    E.Call: _call,
    E.FloatImm: _float,
    E.BufferLoad: _load,
    E.Cast: _cast,
    E.Max: _extremum(E.Max, "maxh"),
    E.Min: _extremum(E.Min, "minh"),
    **{kind: _comparison(s) for s, kind in _KINDS.items()},
    **{kind: _floats(kind, s) for kind, s in _INFIX.items()},
}
