"""Expressions in C: tables from node type and intrinsic name to text.

In: expression nodes, and for vector values the text of the lane wanted. Out: C text of one scalar. Invariant:
integers wrap (value arithmetic goes through unsigned types; index arithmetic is int64_t and taken not to overflow);
Min and Max give NaN if either side is; x / 0 of integers is 0. A text that is written more than once is short: a long
one becomes a constant, so that text stays linear in the size of what is shared. A dialect overrides rows.
Statements: `c.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from armillary.base.dtype import DType
from armillary.base.node import children, post_order
from armillary.codegen.base import LIBM, Range, RangeOf, fused_product, refuse, refuse_intrinsic
from armillary.codegen.c.literals import float_text, int_text
from armillary.tir import expr as E
from armillary.tir.analysis import evaluated_by_both
from armillary.tir.intrinsics import FLUSHED_BELOW

SHORT = 80  # characters of a text that may be written more than once


@dataclass(slots=True)
class Scope:
    """Statements that must run before what is being written, and the texts of shared expressions that hold here."""

    lines: list[str] = field(default_factory=list)
    known: dict[tuple[int, str | None, bool], str] = field(default_factory=dict)  # by id, lane, whether an index


class ExprEmitter:
    """State of the expressions of one function: names, constants, ranges, helpers used."""

    dialect = "c"

    def __init__(self) -> None:
        self.names: dict[E.Var, str] = {}  # int64_t for loop variables, the C type of the dtype otherwise
        self.is_wide: set[E.Var] = set()
        self.arrays: dict[E.Var, str] = {}  # of vectors that a statement named: one element for each lane
        self.ranges: dict[E.Var, Range] = {}
        self.range = RangeOf(self.ranges)
        self.helpers: set[str] = set()
        self.externs: dict[str, str] = {}
        self.index_of: Callable[[E.BufferLoad, str | None], str] = lambda load, lane: ""  # set by the statement emitter
        self.scopes = [Scope()]  # of the statement, of its loop over lanes, of guarded sides
        self.readers: Counter[int] = Counter()  # how often the statement reads each of its expressions, by id
        self.effects = 0  # calls so far that must not be shared
        self.temporaries = 0

    def begin_statement(self, *roots: E.Expr) -> None:
        """Forget what held in the last statement; `roots` are the expressions of this one."""
        self.scopes = [Scope()]
        self.range.forget()
        self.readers.clear()
        seen: set[int] = set()
        for root in roots:
            for item in post_order(root):
                if id(item) not in seen:
                    seen.add(id(item))
                    self.readers.update(id(c) for c in children(item))

    @contextmanager
    def scope(self) -> Iterator[list[str]]:
        """Inside, statements are gathered that the caller places: in a loop, or behind a guard."""
        inner = Scope()
        self.scopes.append(inner)
        yield inner.lines
        self.scopes.pop()

    def fresh(self, name: str) -> str:
        self.temporaries += 1
        return f"{name}__{self.temporaries}"

    def once(self, text: str, kind: str) -> str:
        """A text that may be written again: itself, or the name of a variable of C type `kind`.

        The variable is not `const`: clang evaluates the initialiser of a constant integer again wherever it is read,
        which takes exponential time over a chain of them.
        """
        if len(text) <= SHORT:
            return text
        name = self.fresh("v")
        self.scopes[-1].lines.append(f"{kind} {name} = {text};")
        return name

    def helper(self, name: str) -> str:
        self.helpers.add(name)
        return f"armillary_{name}"

    def value(self, item: E.Expr, lane: str | None = None) -> str:
        """The text of a scalar, or of lane `lane` of a vector. 16-bit floats are floats between operations."""
        return self._shared(item, lane, False)

    def index(self, item: E.Expr, lane: str | None = None) -> str:
        """An integer expression in int64_t, for indices and loop bounds."""
        return self._shared(item, lane, True)

    def _shared(self, item: E.Expr, lane: str | None, is_index: bool) -> str:
        if self.readers[id(item)] < 2:
            return self._index(item, lane) if is_index else self._value(item, lane)
        key = (id(item), lane, is_index)
        for scope in reversed(self.scopes):
            result = scope.known.get(key)
            if result is not None:
                return result
        effects = self.effects
        text = self._index(item, lane) if is_index else self._value(item, lane)
        if self.effects == effects:
            text = self.once(text, self.index_type(item) if is_index else self.kind(item.dtype))
            self.scopes[-1].known[key] = text
        return text

    def index_type(self, item: E.Expr) -> str:
        """The C type of an index."""
        return "int64_t"

    def kind(self, dtype: DType) -> str:
        """The C type of a value in an expression."""
        return c_type(dtype)

    def rounded(self, dtype: DType, text: str) -> str:
        """A float result rounded to its dtype."""
        if is_short(dtype):
            name = dtype.element
            return f"{self.helper(f'from_{name}')}({self.helper(f'to_{name}')}({text}))"
        return text

    def _value(self, item: E.Expr, lane: str | None) -> str:
        rule = self.rules.get(type(item))
        if rule is None:
            raise refuse(self.dialect, f"an expression of type {type(item).__name__}")
        return rule(self, item, lane)

    def _index(self, item: E.Expr, lane: str | None) -> str:
        kind = type(item)
        if kind is E.Var and item in self.is_wide:
            return self.names[item]
        if isinstance(item, E.IntImm):
            return str(item.value)
        if isinstance(item, E.Ramp):
            count = item.base.dtype.lanes
            inner, step = (None, lane) if count == 1 else (f"({lane} % {count})", f"({lane} / {count})")
            stride = self.index(item.stride)
            return f"({self.index(item.base, inner)} + {step if stride == '1' else f'{step} * {stride}'})"
        if isinstance(item, E.Broadcast):
            count = item.value.dtype.lanes
            return self.index(item.value, None if count == 1 else f"({lane} % {count})")
        symbol = {E.Add: "+", E.Sub: "-", E.Mul: "*"}.get(kind)
        if symbol is not None and isinstance(item, E.Add | E.Sub | E.Mul):
            return f"({self.index(item.a, lane)} {symbol} {self.index(item.b, lane)})"
        if isinstance(item, E.FloorDiv | E.FloorMod) and item.dtype.code == "int":
            return self._index_division(item, lane)
        return f"(int64_t)({self.value(item, lane)})"

    def _index_division(self, item: E.FloorDiv | E.FloorMod, lane: str | None) -> str:
        a, b = self.index(item.a, lane), self.index(item.b, lane)
        is_div = isinstance(item, E.FloorDiv)
        if self.is_non_negative(item.a) and isinstance(item.b, E.IntImm) and item.b.value > 0:
            return f"({a} {'/' if is_div else '%'} {b})"
        return f"{self.helper('floordiv' if is_div else 'floormod')}({a}, {b})"

    def is_non_negative(self, item: E.Expr) -> bool:
        low = self.range(item)[0]
        return low is not None and low >= 0

    @property
    def rules(self) -> dict[type, Rule]:
        return RULES


Rule = Callable[[ExprEmitter, Any, "str | None"], str]  # Any: the node type of the row


def is_short(dtype: DType) -> bool:
    """Whether memory holds 16 bits of a value that expressions hold as float."""
    return dtype.is_float and dtype.bits == 16


def c_type(dtype: DType) -> str:
    """The C type of a value in an expression."""
    if dtype.is_bool:
        return "int"
    if dtype.code == "handle":
        return "void *"
    if dtype.is_int:
        return ("u" if dtype.code == "uint" else "") + f"int{max(8, dtype.bits)}_t"
    names = {"float16": "float", "float32": "float", "float64": "double", "bfloat16": "float"}
    result = names.get(str(dtype.element))
    if result is None:
        raise refuse("c", f"a value of dtype {dtype}", "float formats: float16, bfloat16, float32, float64")
    return result


def memory_type(dtype: DType) -> str:
    """The C type of a buffer element."""
    if dtype.is_bool:
        return "uint8_t"
    return "uint16_t" if is_short(dtype) else c_type(dtype)


def wrapped(dtype: DType, text: str) -> str:
    """`text` as a value of an integer dtype."""
    if dtype.is_bool:
        return f"(({text}) != 0)"
    if dtype.bits >= 8:
        return f"({c_type(dtype)})({text})"
    shift = 8 - dtype.bits
    if dtype.code == "uint":
        return f"((uint8_t)({text}) & {(1 << dtype.bits) - 1})"
    return f"((int8_t)((uint8_t)({text}) << {shift}) >> {shift})"


def _var(m: ExprEmitter, e: E.Var, lane: str | None) -> str:
    array = m.arrays.get(e)
    if array is not None:
        return f"{array}[{lane}]"
    name = m.names.get(e)
    if name is None:
        raise refuse(m.dialect, f"variable {e.name}, which nothing defines")
    return f"({c_type(e.dtype)}){name}" if e in m.is_wide and e.dtype.bits != 64 else name


def _arithmetic(symbol: str) -> Rule:
    def rule(m: ExprEmitter, e: E.Binary, lane: str | None) -> str:
        dtype = e.dtype
        product = fused_product(e) if isinstance(e, E.Add) and not is_short(dtype) else None
        if product is not None:
            return _taking_in(m, e, product, lane)
        a, b = m.value(e.a, lane), m.value(e.b, lane)
        if dtype.is_float:
            return m.rounded(dtype, f"({a} {symbol} {b})")
        wide = "uint64_t" if dtype.bits > 32 else "uint32_t"
        return wrapped(dtype, f"({wide}){a} {symbol} ({wide}){b}")

    return rule


def _taking_in(m: ExprEmitter, e: E.Binary, product: E.Mul, lane: str | None) -> str:
    """A sum that takes in a product."""
    a, b, c = (m.value(x, lane) for x in (product.a, product.b, e.a if product is e.b else e.b))
    return f"{m.helper('fma' if e.dtype.bits == 64 else 'fmaf')}({a}, {b}, {c})"


def _fma(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
    return m.rounded(e.dtype, _taking_in(m, E.Add(product := E.Mul(*e.args[:2]), e.args[2]), product, lane))


def _division(name: str, symbol: str) -> Rule:
    def rule(m: ExprEmitter, e: E.Binary, lane: str | None) -> str:
        a, b, dtype = m.value(e.a, lane), m.value(e.b, lane), e.dtype
        if dtype.is_float:
            return _float_division(m, name, dtype, a, b)
        if dtype.code != "int":
            return wrapped(dtype, f"{m.helper('udiv' if symbol == '/' else 'umod')}({a}, {b})")
        constant = e.b.value if isinstance(e.b, E.Broadcast) else e.b
        plain = isinstance(constant, E.IntImm) and constant.value > 0
        if plain and (name.startswith("trunc") or m.is_non_negative(e.a)):
            return wrapped(dtype, f"{a} {symbol} {b}")
        return wrapped(dtype, f"{m.helper(name)}({a}, {b})")

    return rule


def _float_division(m: ExprEmitter, name: str, dtype: DType, a: str, b: str) -> str:
    f = "" if dtype.bits == 64 else "f"
    if name == "truncdiv":
        text = f"trunc{f}({a} / {b})"
    elif name == "truncmod":
        text = f"fmod{f}({a}, {b})"
    else:
        a, b = m.once(a, m.kind(dtype)), m.once(b, m.kind(dtype))
        text = f"{m.helper('mod' + f)}({a}, {b})"
        if name == "floordiv":
            text = f"rint{f}(({a} - {text}) / {b})"
    return m.rounded(dtype, text)


def _extremum(name: str, symbol: str) -> Rule:
    def rule(m: ExprEmitter, e: E.Binary, lane: str | None) -> str:
        a, b, dtype = m.value(e.a, lane), m.value(e.b, lane), e.dtype
        if dtype.is_float:
            return m.rounded(dtype, f"{m.helper(name + ('' if dtype.bits == 64 else 'f'))}({a}, {b})")
        a, b = m.once(a, m.kind(dtype)), m.once(b, m.kind(dtype))
        return f"({a} {symbol} {b} ? {a} : {b})"

    return rule


def _infix(symbol: str) -> Rule:
    def rule(m: ExprEmitter, e: E.Binary, lane: str | None) -> str:
        return f"({m.value(e.a, lane)} {symbol} {m.value(e.b, lane)})"

    return rule


def _not(m: ExprEmitter, e: E.Not, lane: str | None) -> str:
    return f"(!{m.value(e.a, lane)})"


def _select(m: ExprEmitter, e: E.Select, lane: str | None) -> str:
    condition = m.value(e.condition, lane if e.condition.dtype.lanes > 1 else None)
    return f"({condition} ? {m.value(e.true_value, lane)} : {m.value(e.false_value, lane)})"


def _cast(m: ExprEmitter, e: E.Cast, lane: str | None) -> str:
    text, to = m.value(e.value, lane), e.dtype.element
    if to.is_bool or (to.is_int and to.bits < 8):
        return wrapped(to, text)
    return m.rounded(to, f"({m.kind(to)})({text})")


def _load(m: ExprEmitter, e: E.BufferLoad, lane: str | None) -> str:
    text, dtype = m.index_of(e, lane), e.buffer.dtype
    if is_short(dtype):
        return f"{m.helper(f'from_{dtype.element}')}({text})"
    return f"({text} != 0)" if dtype.is_bool else text


def _ramp(m: ExprEmitter, e: E.Ramp, lane: str | None) -> str:
    return wrapped(e.dtype.element, m.index(e, lane))


def _broadcast(m: ExprEmitter, e: E.Broadcast, lane: str | None) -> str:
    count = e.value.dtype.lanes
    return m.value(e.value, None if count == 1 else f"({lane} % {count})")


def _let(m: ExprEmitter, e: E.Let, lane: str | None) -> str:
    value = m.value(e.value, lane if e.value.dtype.lanes > 1 else None)
    m.names[e.var] = m.once(value, m.kind(e.var.dtype))
    return m.value(e.body, lane)


def _math(name: str) -> Rule:
    def rule(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
        dtype = e.args[0].dtype.element
        if not dtype.is_float:
            raise refuse(m.dialect, f"{name} of {dtype}", "cast to a float type first")
        f = "" if dtype.bits == 64 else "f"
        return m.rounded(dtype, f"{name}{f}({', '.join(m.value(a, lane) for a in e.args)})")

    return rule


def _template(text32: str, text64: str) -> Rule:
    """A float function as a format of its operand; `{0}` is the operand."""

    def rule(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
        dtype = e.args[0].dtype.element
        values = [m.value(a, lane) for a in e.args]
        if not dtype.is_float:
            raise refuse(m.dialect, f"{e.name} of {dtype}", "cast to a float type first")
        text = text64 if dtype.bits == 64 else text32
        if text.count("{0}") > 1:
            values[0] = m.once(values[0], m.kind(dtype))
        return m.rounded(dtype, text.format(*values))

    return rule


def _rounding(name: str) -> Rule:
    on_floats = _math(name)

    def rule(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
        return on_floats(m, e, lane) if e.dtype.is_float else m.value(e.args[0], lane)

    return rule


def _abs(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
    dtype, text = e.dtype.element, m.value(e.args[0], lane)
    if dtype.is_float:
        return m.rounded(dtype, f"fabs{'' if dtype.bits == 64 else 'f'}({text})")
    wide, text = "uint64_t" if dtype.bits > 32 else "uint32_t", m.once(text, c_type(dtype))
    return wrapped(dtype, f"{text} < 0 ? 0 - ({wide}){text} : ({wide}){text}") if dtype.code == "int" else text


def _float_test(name: str) -> Rule:
    def rule(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
        dtype = e.args[0].dtype.element
        if not dtype.is_float:
            return str(int(name == "isfinite"))
        return f"({name}(({'double' if dtype.bits == 64 else 'float'}){m.value(e.args[0], lane)}) != 0)"

    return rule


def _bitwise(symbol: str) -> Rule:
    def rule(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
        a, b = (m.value(x, lane) for x in e.args)
        if symbol == "<<":
            a = f"({'uint64_t' if e.dtype.bits > 32 else 'uint32_t'}){a}"
        return wrapped(e.dtype.element, f"{a} {symbol} {b}")

    return rule


def _bit_count(name: str) -> Rule:
    def rule(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
        dtype = e.args[0].dtype.element
        text = f"(uint64_t)(uint{max(8, dtype.bits)}_t){m.value(e.args[0], lane)}"
        extra = f", {dtype.bits}" if name == "clz" else ""
        return wrapped(e.dtype.element, f"{m.helper(name)}({text}{extra})")

    return rule


def _if_then_else(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
    """Only the chosen side runs: as an expression, or as a statement where a side needs statements."""
    test, yes, no = e.args
    condition = m.value(test, lane if test.dtype.lanes > 1 else None)
    for part in evaluated_by_both(yes, no):
        if part.dtype.lanes in (1, e.dtype.lanes):
            m.value(part, lane if part.dtype.lanes > 1 else None)
    texts, bodies = [], []
    for side in (yes, no):
        with m.scope() as lines:
            texts.append(m.value(side, lane))
        bodies.append(lines)
    if not any(bodies):
        return f"({condition} ? {texts[0]} : {texts[1]})"
    name = m.fresh("v")
    out = m.scopes[-1].lines
    out.append(f"{m.kind(e.dtype)} {name};")
    for head, text, lines in zip((f"if ({condition}) {{", "} else {"), texts, bodies, strict=True):
        out += [head, *(f"  {line}" for line in (*lines, f"{name} = {text};"))]
    out.append("}")
    return name


def _first(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
    return m.value(e.args[0], lane)


def _extern(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
    name = e.args[0]
    if not isinstance(name, E.StringImm) or any(a.dtype.lanes > 1 for a in e.args[1:]):
        raise refuse(m.dialect, "a foreign call without a name or with vector arguments")
    m.effects += e.name == "call_extern"
    result = "void" if e.dtype.code == "void" else c_type(e.dtype)
    kinds = ", ".join(c_type(a.dtype) for a in e.args[1:]) or "void"
    m.externs[name.value] = f"extern {result} {name.value}({kinds});"
    return f"{name.value}({', '.join(m.value(a) for a in e.args[1:])})"


def _reduce_add(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
    source, kind = e.args[0], m.kind(e.dtype)
    name, inner = m.fresh("sum"), m.fresh("k")
    inside, m.scopes = m.scopes[1:], m.scopes[:1]  # in front of a loop over lanes, as it is the same for all
    with m.scope() as lines:
        text = m.value(source, inner)
    m.scopes[-1].lines += [
        f"{kind} {name} = 0;",
        f"for (int {inner} = 0; {inner} < {source.dtype.lanes}; ++{inner}) {{",
        *(f"  {line}" for line in (*lines, f"{name} += {text};")),
        "}",
    ]
    m.scopes += inside
    return m.rounded(e.dtype, name) if e.dtype.is_float else wrapped(e.dtype, name)


def _reinterpret(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
    source, to = e.args[0].dtype.element, e.dtype.element
    if source.bits != to.bits or is_short(source) or is_short(to) or to.bits < 8:
        raise refuse(m.dialect, f"reinterpret from {source} to {to}")
    union = f"union {{ {c_type(source)} a; {c_type(to)} b; }}"
    return f"(({union}){{ .a = {m.value(e.args[0], lane)} }}).b"


def _four_bytes(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
    return wrapped(e.dtype.element, f"{m.helper('four_bytes')}({', '.join(m.value(a, lane) for a in e.args)})")


def _eight_bytes(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
    m.helper("four_bytes")  # which the other one calls
    return wrapped(e.dtype.element, f"{m.helper('eight_bytes')}({', '.join(m.value(a, lane) for a in e.args)})")


def _dot_bytes(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
    name = m.helper("dot_" + "_".join(a.dtype.code for a in e.args))
    if e.args[0].dtype.bits == 64:
        name = m.helper(name.removeprefix("armillary_") + "_long")
    return f"{name}({', '.join(m.value(a, lane) for a in e.args)})"


def _pack_bf16(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
    pair = (f"{m.helper('to_bfloat16')}({m.value(a, lane)})" for a in e.args)
    return f"{m.helper('pack_bf16')}({', '.join(pair)})"


def _dot_bf16(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
    m.helper("from_bfloat16")  # which the other one calls
    return f"{m.helper('dot_bf16')}({', '.join(m.value(a, lane) for a in e.args)})"


def _prefetch(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
    """GCC's and Clang's builtin, behind a macro that other compilers make nothing of."""
    load, *how = e.args
    if not isinstance(load, E.BufferLoad) or len(how) != 3:
        raise refuse(m.dialect, f"prefetch with {len(e.args)} arguments", "run inject-prefetch")
    m.helpers.add("prefetch")
    return f"ARMILLARY_PREFETCH(&{m.index_of(load, lane)}, {m.value(how[0])}, {m.value(how[1])})"


def _address_of(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
    load = e.args[0]
    if not isinstance(load, E.BufferLoad) or load.dtype.lanes > 1:
        raise refuse(m.dialect, "the address of what is no element of a buffer")
    return f"(void *)&{m.index_of(load, lane)}"


def _call(m: ExprEmitter, e: E.Call, lane: str | None) -> str:
    rule = CALLS.get(e.name)
    if rule is None:
        raise refuse_intrinsic(m.dialect, e.name)
    return rule(m, e, lane)


_ROUNDINGS = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "round", "nearbyint": "rint"}
CALLS: dict[str, Rule] = {
    **{name: _math(name) for name in (*LIBM, "sqrt", "copysign")},
    **{name: _rounding(in_c) for name, in_c in _ROUNDINGS.items()},
    "normcdf": _template("(0.5f * erfcf({0} * -0.70710678f))", "(0.5 * erfc({0} * -0.7071067811865476))"),
    "exp_flushed": _template(f"({{0}} < {FLUSHED_BELOW}f ? 0.0f : expf({{0}}))", "exp({0})"),
    "sigmoid": _template("(1.0f / (1.0f + expf(-{0})))", "(1.0 / (1.0 + exp(-{0})))"),
    "rsqrt": _template("(1.0f / sqrtf({0}))", "(1.0 / sqrt({0}))"),
    "fma": _fma,
    "fabs": _abs,
    "abs": _abs,
    "ldexp": _template("ldexpf({0}, (int)({1}))", "ldexp({0}, (int)({1}))"),
    **{name: _float_test(name) for name in ("isnan", "isinf", "isfinite")},
    "bitwise_and": _bitwise("&"),
    "bitwise_or": _bitwise("|"),
    "bitwise_xor": _bitwise("^"),
    "shift_left": _bitwise("<<"),
    "shift_right": _bitwise(">>"),
    "popcount": _bit_count("popcount"),
    "clz": _bit_count("clz"),
    "if_then_else": _if_then_else,
    "likely": _first,
    "reinterpret": _reinterpret,
    "call_extern": _extern,
    "call_pure_extern": _extern,
    "vector_reduce_add": _reduce_add,
    "address_of": _address_of,
    "prefetch": _prefetch,
    "four_bytes": _four_bytes,
    "eight_bytes": _eight_bytes,
    "dot_bytes": _dot_bytes,
    "dot_symmetric_bytes": _dot_bytes,
    "pack_bf16": _pack_bf16,
    "dot_bf16": _dot_bf16,
}
RULES: dict[type, Rule] = {
    E.IntImm: lambda m, e, lane: int_text(e.value, e.dtype),
    E.FloatImm: lambda m, e, lane: float_text(e.value, e.dtype),
    E.Var: _var,
    E.IterVar: lambda m, e, lane: _var(m, e.var, lane),
    E.Add: _arithmetic("+"),
    E.Sub: _arithmetic("-"),
    E.Mul: _arithmetic("*"),
    E.Div: _arithmetic("/"),
    E.TruncDiv: _division("truncdiv", "/"),
    E.TruncMod: _division("truncmod", "%"),
    E.FloorDiv: _division("floordiv", "/"),
    E.FloorMod: _division("floormod", "%"),
    E.Min: _extremum("min", "<"),
    E.Max: _extremum("max", ">"),
    E.EQ: _infix("=="),
    E.NE: _infix("!="),
    E.LT: _infix("<"),
    E.LE: _infix("<="),
    E.GT: _infix(">"),
    E.GE: _infix(">="),
    E.And: _infix("&&"),
    E.Or: _infix("||"),
    E.Not: _not,
    E.Select: _select,
    E.Cast: _cast,
    E.BufferLoad: _load,
    E.Ramp: _ramp,
    E.Broadcast: _broadcast,
    E.Let: _let,
    E.Call: _call,
}
