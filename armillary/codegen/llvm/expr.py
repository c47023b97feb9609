"""Expressions in LLVM IR: arithmetic, comparisons, conversions, vectors.

In: expression nodes. Out: names of values, through the table `EXPR_RULES`. Invariant: integers wrap; Min and Max of
floats give NaN if either side is; division by zero and by -1 does not trap (x / 0 is 0); the only fast-math freedom
is fused multiply-add. Calls: `llvm/calls.py`. Loads: `llvm/memory.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.dtype import DType
from armillary.codegen.base import fused_product, refuse
from armillary.codegen.llvm.dots.bfloat16 import added_bfloat16_dot, is_bfloat16_dot
from armillary.codegen.llvm.dots.bytes import added_dot, is_dot
from armillary.codegen.llvm.lane_loads import lane_of
from armillary.codegen.llvm.memory import shuffle, splat
from armillary.codegen.llvm.narrowing import narrowed_to_bytes
from armillary.codegen.llvm.small_floats import decode, encode, odd_float32
from armillary.codegen.llvm.state import EXPR_RULES, Emitter
from armillary.codegen.llvm.types import float_constant, int_constant, is_raw, register_type, suffix, vector
from armillary.tir import expr as E

FLOAT32 = DType("float32")
# of bytes and of bfloat16: whether it is one, added to sums
_DOTS = ((is_dot, added_dot), (is_bfloat16_dot, added_bfloat16_dot))


def as_float32(m: Emitter, value: str, dtype: DType) -> str:
    """Register value of a soft float type as float32."""
    if is_raw(dtype):
        return decode(m, value, dtype)
    raw = m.pure(f"bitcast {register_type(dtype)} {value} to {vector('i16', dtype.lanes)}", value)
    return decode(m, raw, dtype)


def from_float32(m: Emitter, value: str, dtype: DType) -> str:
    """float32 rounded to a soft float type; to bfloat16 by an instruction, where there is one that does it exactly.

    That of x86 takes subnormal numbers for 0, as do products of bfloat16: behind them it is exact enough.
    """
    is_exact = m.cpu.arch == "aarch64" or m.flushes_bfloat16
    if dtype.element == "bfloat16" and m.cpu.has_bfloat16_dots and is_exact and dtype.lanes % 8 == 0:
        narrow = vector("bfloat", dtype.lanes)
        near = m.pure(f"fptrunc {vector('float', dtype.lanes)} {value} to {narrow}", value)
        return m.pure(f"bitcast {narrow} {near} to {register_type(dtype)}", near)
    raw = encode(m, value, dtype)
    if is_raw(dtype):
        return raw
    return m.pure(f"bitcast {vector('i16', dtype.lanes)} {raw} to {register_type(dtype)}", raw)


def in_float32(m: Emitter, dtype: DType, rule: Callable[..., str], *values: str) -> str:
    """Apply `rule(m, float32 dtype, *values)` to soft floats."""
    wide = FLOAT32.with_lanes(dtype.lanes)
    return from_float32(m, rule(m, wide, *(as_float32(m, v, dtype) for v in values)), dtype)


def _int(m: Emitter, e: E.IntImm) -> str:
    return int_constant(e.value, e.dtype)


def _float(m: Emitter, e: E.FloatImm) -> str:
    return float_constant(e.value, e.dtype)


def _var(m: Emitter, e: E.Var) -> str:
    constant = m.constants.get(e)
    if constant is not None:
        return int_constant(constant, e.dtype)
    wide = m.wide.get(e)
    if wide is not None:
        bits = e.dtype.bits
        return wide if bits == 64 else m.pure(f"trunc i64 {wide} to i{bits}", wide)
    result = m.scalars.get(e)
    if result is None:
        raise refuse("llvm", f"variable {e.name}, which nothing defines")
    return result


def binary(m: Emitter, op: str, kind: str, a: str, b: str) -> str:
    """A two-operand instruction."""
    return m.pure(f"{op} {kind} {a}, {b}", a, b)


def _arithmetic(integer: str, floating: str) -> Callable[[Emitter, E.Binary], str]:
    def on_floats(m: Emitter, dtype: DType, a: str, b: str) -> str:
        return binary(m, floating + m.fast_math, register_type(dtype), a, b)

    def rule(m: Emitter, e: E.Binary) -> str:
        dtype = e.dtype
        if not dtype.is_float:
            return binary(m, integer, register_type(dtype), m.value(e.a), m.value(e.b))
        if m.soft(dtype):
            return in_float32(m, dtype, on_floats, m.value(e.a), m.value(e.b))
        return on_floats(m, dtype, m.value(e.a), m.value(e.b))

    return rule


def _fused(base: Callable[[Emitter, E.Add], str]) -> Callable[[Emitter, E.Add], str]:
    """`a*b + c`, `c + a*b` and sums with a dot product as one operation where there is one."""

    def rule(m: Emitter, e: E.Add) -> str:
        dtype = e.dtype
        for holds, added in _DOTS:
            if holds(e.a) or holds(e.b):
                sums, dot = (e.a, e.b) if holds(e.b) else (e.b, e.a)
                return added(m, m.value(sums), dot)
        product = None if m.soft(dtype) else fused_product(e)
        if product is None:
            return base(m, e)
        a, b, c = m.value(product.a), m.value(product.b), m.value(e.a if product is e.b else e.b)
        return fused_multiply_add(m, dtype, a, b, c)

    return rule


def fused_multiply_add(m: Emitter, dtype: DType, a: str, b: str, c: str) -> str:
    """a*b + c, fused if that is fast on the target."""
    kind = register_type(dtype)
    return m.intrinsic(kind, f"llvm.fmuladd.{suffix(dtype)}", (kind, a), (kind, b), (kind, c), flags=m.fast_math)


def _guarded_divisor(m: Emitter, dtype: DType, b: str) -> tuple[str, str]:
    """A divisor that cannot trap, and where it was replaced (0, and -1 of signed types)."""
    kind, flag = register_type(dtype), vector("i1", dtype.lanes)
    one = int_constant(1, dtype)
    if dtype.code == "int":
        next_up = m.pure(f"add {kind} {b}, {one}", b)
        bad = m.pure(f"icmp ult {kind} {next_up}, {int_constant(2, dtype)}", next_up)
    else:
        bad = m.pure(f"icmp eq {kind} {b}, {m.zero(dtype)}", b)
    return m.pure(f"select {flag} {bad}, {kind} {one}, {kind} {b}", bad, b), bad


def truncated(m: Emitter, dtype: DType, a: str, b: E.Expr, is_mod: bool) -> str:
    """Quotient or remainder rounded toward zero; x / 0 gives 0 and x % 0 gives 0."""
    kind, sign = register_type(dtype), "s" if dtype.code == "int" else "u"
    op = f"{sign}rem" if is_mod else f"{sign}div"
    constant = m.static_int(b.value if isinstance(b, E.Broadcast) else b)
    divisor = m.value(b)
    if constant is not None and constant not in (0, -1):
        return binary(m, op, kind, a, divisor)
    safe, bad = _guarded_divisor(m, dtype, divisor)
    is_lane_wise = dtype.lanes == 1 or dtype.bits > 32
    result = binary(m, op, kind, a, safe) if is_lane_wise else _divided(m, dtype, a, safe, is_mod)
    if is_mod:
        return result
    product = binary(m, "mul", kind, a, divisor)  # a * -1, or a * 0
    flag = vector("i1", dtype.lanes)
    return m.pure(f"select {flag} {bad}, {kind} {product}, {kind} {result}", bad, product, result)


def _divided(m: Emitter, dtype: DType, a: str, b: str, is_mod: bool) -> str:
    """Quotient or remainder of vectors by way of float64, as no processor divides vectors of integers.

    A quotient q that is not whole lies 1 / b or more from a whole number, its rounding error is below q / 2**53.
    """
    kind, wide, sign = register_type(dtype), vector("double", dtype.lanes), "s" if dtype.code == "int" else "u"
    x, y = (m.pure(f"{sign}itofp {kind} {v} to {wide}", v) for v in (a, b))
    quotient = binary(m, "fdiv", wide, x, y)
    whole = m.pure(f"fpto{sign}i {wide} {quotient} to {kind}", quotient)
    return binary(m, "sub", kind, a, binary(m, "mul", kind, whole, b)) if is_mod else whole


def _trunc_rule(is_mod: bool) -> Callable[[Emitter, E.Binary], str]:
    def rule(m: Emitter, e: E.Binary) -> str:
        a = m.value(e.a)
        if not e.dtype.is_float:
            return truncated(m, e.dtype, a, e.b, is_mod)
        return float_division(m, e.dtype, a, m.value(e.b), "fmod" if is_mod else "trunc")

    return rule


def float_division(m: Emitter, dtype: DType, a: str, b: str, how: str) -> str:
    """fmod, trunc(a/b), numpy's floor_divide or mod of floats."""
    if m.soft(dtype):
        return in_float32(m, dtype, lambda m, t, x, y: float_division(m, t, x, y, how), a, b)
    kind = register_type(dtype)
    if how == "trunc":
        quotient = binary(m, "fdiv", kind, a, b)
        return m.intrinsic(kind, f"llvm.trunc.{suffix(dtype)}", (kind, quotient))
    rest = m.here(f"frem {kind} {a}, {b}")
    if how == "fmod":
        return rest
    flag, zero = vector("i1", dtype.lanes), float_constant(0.0, dtype)
    off = binary(m, "fcmp une", kind, rest, zero)
    r_negative, b_negative = binary(m, "fcmp olt", kind, rest, zero), binary(m, "fcmp olt", kind, b, zero)
    differ = binary(m, "and", flag, off, binary(m, "xor", flag, r_negative, b_negative))
    raised = binary(m, "fadd", kind, rest, b)
    modulus = m.pure(f"select {flag} {differ}, {kind} {raised}, {kind} {rest}", differ, raised, rest)
    if how == "mod":
        return modulus
    quotient = binary(m, "fdiv", kind, binary(m, "fsub", kind, a, modulus), b)
    return m.intrinsic(kind, f"llvm.{nearest(dtype)}.{suffix(dtype)}", (kind, quotient))


def nearest(dtype: DType) -> str:
    """Which of LLVM's intrinsics rounds to nearest, halves to even.

    For float16 it is not `rint`: LLVM 22 turns a scalar `rint` before a conversion to integers into a truncating
    `vcvttsh2si` on CPUs with avx512fp16.
    """
    return "nearbyint" if dtype.bits == 16 else "rint"


def _floor_rule(is_mod: bool) -> Callable[[Emitter, E.Binary], str]:
    def rule(m: Emitter, e: E.Binary) -> str:
        dtype = e.dtype
        if dtype.is_float:
            return float_division(m, dtype, m.value(e.a), m.value(e.b), "mod" if is_mod else "floor")
        a = m.value(e.a)
        if dtype.code != "int" or (m.is_non_negative(e.a) and m.is_non_negative(e.b)):
            return _unsigned(m, dtype, a, e.b, is_mod)
        return _floored(m, dtype, a, e.b, is_mod)

    return rule


def _unsigned(m: Emitter, dtype: DType, a: str, b: E.Expr, is_mod: bool) -> str:
    constant = m.static_int(b.value if isinstance(b, E.Broadcast) else b)
    if constant:
        op = "urem" if is_mod else "udiv"
        return binary(m, op, register_type(dtype), a, m.value(b))
    return truncated(m, dtype, a, b, is_mod)


def _floored(m: Emitter, dtype: DType, a: str, b: E.Expr, is_mod: bool) -> str:
    kind, flag = register_type(dtype), vector("i1", dtype.lanes)
    constant = m.static_int(b.value if isinstance(b, E.Broadcast) else b)
    if constant is not None and constant > 0 and constant & (constant - 1) == 0:
        if is_mod:
            return binary(m, "and", kind, a, int_constant(constant - 1, dtype))
        return binary(m, "ashr", kind, a, int_constant(constant.bit_length() - 1, dtype))
    rest = truncated(m, dtype, a, b, is_mod=True)
    divisor, zero = m.value(b), m.zero(dtype)
    off = binary(m, "icmp ne", kind, rest, zero)
    differ = binary(m, "icmp slt", kind, binary(m, "xor", kind, rest, divisor), zero)
    adjust = binary(m, "and", flag, off, differ)
    if is_mod:
        raised = binary(m, "add", kind, rest, divisor)
        return m.pure(f"select {flag} {adjust}, {kind} {raised}, {kind} {rest}", adjust, raised, rest)
    quotient = truncated(m, dtype, a, b, is_mod=False)
    step = m.pure(f"sext {flag} {adjust} to {kind}", adjust)
    return binary(m, "add", kind, quotient, step)


def _never_nan(e: E.Expr) -> bool:
    if isinstance(e, E.Broadcast):
        return _never_nan(e.value)
    if isinstance(e, E.FloatImm):
        return e.value == e.value
    return isinstance(e, E.Cast) and not e.value.dtype.is_float


_X86_EXTREMA = {  # lanes -> instruction, the rounding mode where it takes one
    4: ("llvm.x86.sse.*.ps",),
    8: ("llvm.x86.avx.*.ps.256",),
    16: ("llvm.x86.avx512.*.ps.512", "4"),
}


def _extremum(is_max: bool) -> Callable[[Emitter, E.Binary], str]:
    def rule(m: Emitter, e: E.Binary) -> str:
        dtype, a, b = e.dtype, m.value(e.a), m.value(e.b)
        if not dtype.is_float:
            return integer_extremum(m, dtype, a, b, is_max)
        safe_a, safe_b = _never_nan(e.a), _never_nan(e.b)
        if m.soft(dtype):
            return in_float32(m, dtype, lambda m, t, x, y: extremum(m, t, x, y, is_max, safe_a, safe_b), a, b)
        return extremum(m, dtype, a, b, is_max, safe_a, safe_b)

    return rule


def integer_extremum(m: Emitter, dtype: DType, a: str, b: str, is_max: bool) -> str:
    """The larger (smaller) of two integers or truth values."""
    kind = register_type(dtype)
    if dtype.is_bool:
        return binary(m, "or" if is_max else "and", kind, a, b)
    name = ("s" if dtype.code == "int" else "u") + ("max" if is_max else "min")
    return m.intrinsic(kind, f"llvm.{name}.{suffix(dtype)}", (kind, a), (kind, b))


def extremum(m: Emitter, dtype: DType, a: str, b: str, is_max: bool, safe_a: bool, safe_b: bool) -> str:
    """The larger (smaller) float, NaN if either is NaN.

    On x86 `a > b ? a : b` is one maxps, which gives b when either is NaN: with the operand that cannot be NaN first
    it is already right; otherwise one more blend restores a's NaN. Arm's fmax and fmin propagate NaN themselves. For
    32 bits LLVM 22 ends the process on those of float64.
    """
    kind = register_type(dtype)
    if m.cpu.arch == "aarch64" or (m.cpu.arch == "arm" and dtype.bits < 64):
        name = "maximum" if is_max else "minimum"
        return m.intrinsic(kind, f"llvm.{name}.{suffix(dtype)}", (kind, a), (kind, b))
    flag = vector("i1", dtype.lanes)
    if safe_b and not safe_a:
        a, b, safe_a = b, a, True
    chosen = _second_if_unordered(m, dtype, a, b, is_max)
    if safe_a:
        return chosen
    is_nan = binary(m, "fcmp uno", kind, a, a)
    return m.pure(f"select {flag} {is_nan}, {kind} {a}, {kind} {chosen}", is_nan, a, chosen)


def _second_if_unordered(m: Emitter, dtype: DType, a: str, b: str, is_max: bool) -> str:
    """The larger (smaller) float, `b` if either is NaN.

    A whole vector of an x86 is asked for by name: LLVM joins the comparison with the one that restores NaN to two
    comparisons, an `or` of masks and a blend, four instructions instead of three. So are several, each for itself.
    """
    kind, flag = register_type(dtype), vector("i1", dtype.lanes)
    has_names = m.cpu.arch == "x86_64" and dtype.element == FLOAT32
    name, *more = _X86_EXTREMA.get(dtype.lanes if has_names else 0, ("",))
    if name and dtype.lanes * 32 <= m.cpu.vector_bits:
        full = name.replace("*", "max" if is_max else "min")
        return m.intrinsic(kind, full, (kind, a), (kind, b), *(("i32", value) for value in more))
    if has_names and dtype.lanes * 32 > m.cpu.vector_bits and dtype.lanes.bit_count() == 1:
        return _extremum_of_parts(m, dtype, a, b, is_max)
    test = binary(m, f"fcmp {'ogt' if is_max else 'olt'}", kind, a, b)
    return m.pure(f"select {flag} {test}, {kind} {a}, {kind} {b}", test, a, b)


def _extremum_of_parts(m: Emitter, dtype: DType, a: str, b: str, is_max: bool) -> str:
    """The same of several vectors."""
    count = dtype.lanes // 2
    half, every, parts = dtype.element.with_lanes(count), list(range(2 * count)), []
    for lanes in (every[:count], every[count:]):
        one, other = (shuffle(m, x, x, dtype, lanes) for x in (a, b))
        parts.append(_second_if_unordered(m, half, one, other, is_max))
    return shuffle(m, parts[0], parts[1], half, every)


def _comparison(signed: str, unsigned: str, floating: str) -> Callable[[Emitter, E.Binary], str]:
    def rule(m: Emitter, e: E.Binary) -> str:
        static = m.static_int(e)
        if static is not None:
            return int_constant(static, e.dtype)
        dtype, a, b = e.a.dtype, m.value(e.a), m.value(e.b)
        if dtype.is_float:
            if m.soft(dtype):
                a, b = as_float32(m, a, dtype), as_float32(m, b, dtype)
                dtype = FLOAT32.with_lanes(dtype.lanes)
            return binary(m, f"fcmp {floating}", register_type(dtype), a, b)
        return binary(m, f"icmp {signed if dtype.code == 'int' else unsigned}", register_type(dtype), a, b)

    return rule


def _logical(op: str) -> Callable[[Emitter, E.Binary], str]:
    def rule(m: Emitter, e: E.Binary) -> str:
        static = m.static_int(e)
        if static is not None:
            return int_constant(static, e.dtype)
        for one, other in ((e.a, e.b), (e.b, e.a)):
            if m.static_int(one) is not None:
                return m.value(other)  # true & x, false | x: the other cases are static
        return binary(m, op, register_type(e.dtype), m.value(e.a), m.value(e.b))

    return rule


def _not(m: Emitter, e: E.Not) -> str:
    return m.pure(f"xor {register_type(e.dtype)} {(value := m.value(e.a))}, {int_constant(1, e.dtype)}", value)


def select(m: Emitter, dtype: DType, test: str, test_lanes: int, a: str, b: str) -> str:
    """Lane-wise choice; a scalar condition chooses whole vectors."""
    kind, flag = register_type(dtype), vector("i1", test_lanes)
    return m.pure(f"select {flag} {test}, {kind} {a}, {kind} {b}", test, a, b)


def _select(m: Emitter, e: E.Select) -> str:
    static = m.static_int(e.condition)
    if static is not None:
        return m.value(e.true_value if static else e.false_value)
    test = m.value(e.condition)
    return select(m, e.dtype, test, e.condition.dtype.lanes, m.value(e.true_value), m.value(e.false_value))


def cast(m: Emitter, value: str, source: DType, to: DType) -> str:
    """Convert a register value, as C does."""
    if source is to:
        return value
    if source.element == "float64" and to.element == "float16":
        source, value = FLOAT32.with_lanes(source.lanes), odd_float32(m, value, source.lanes)
    if source.is_float and m.soft(source):
        return cast(m, as_float32(m, value, source), FLOAT32.with_lanes(source.lanes), to)
    if to.is_float and m.soft(to):
        wide = FLOAT32.with_lanes(to.lanes)
        return from_float32(m, cast(m, value, source, wide), to)
    have, want = register_type(source), register_type(to)
    if to.is_bool:
        test = "fcmp une" if source.is_float else "icmp ne"
        zero = float_constant(0.0, source) if source.is_float else m.zero(source)
        return m.pure(f"{test} {have} {value}, {zero}", value)
    op = _cast_op(source, to)
    if op == "trunc" and (source.lanes, source.bits, to.bits) == (3, 64, 8) and m.cpu.arch == "aarch64":
        return _by_lane(m, value, op, source, to)
    return m.pure(f"{op} {have} {value} to {want}", value) if op and have != want else value


def _by_lane(m: Emitter, value: str, op: str, source: DType, to: DType) -> str:
    """Convert each lane on its own: LLVM 22 cannot store three bytes that were 64 bits wide on AArch64."""
    have, want, result = register_type(source), register_type(to), "poison"
    one, byte = register_type(source.with_lanes(1)), register_type(to.with_lanes(1))
    for lane in range(source.lanes):
        part = m.pure(f"extractelement {have} {value}, i64 {lane}", value)
        part = m.pure(f"{op} {one} {part} to {byte}", part)
        result = m.pure(f"insertelement {want} {result}, {byte} {part}, i64 {lane}", result, part)
    return result


def _cast_op(source: DType, to: DType) -> str:
    is_signed = source.code == "int"
    if source.is_float:
        if to.is_float:
            return "fpext" if to.bits > source.bits else "fptrunc"
        return "fptosi" if to.code == "int" else "fptoui"
    if to.is_float:
        return "sitofp" if is_signed else "uitofp"
    if to.code == "handle" or source.code == "handle":
        raise refuse("llvm", f"a cast from {source} to {to}")
    if to.bits > source.bits:
        return "sext" if is_signed else "zext"
    return "trunc" if to.bits < source.bits else ""


def _cast(m: Emitter, e: E.Cast) -> str:
    narrow = narrowed_to_bytes(m, e) if m.cpu.arch == "aarch64" and e.dtype.bits == 8 else None
    if narrow is not None:
        return narrow
    if _is_nearest_integer(m, e):  # x86 rounds to nearest, halves to even, when it converts
        assert isinstance(e.value, E.Call), "as just tested"
        source = e.value.dtype
        name = f"llvm.lrint.{suffix(e.dtype)}.{suffix(source)}"
        return m.intrinsic(register_type(e.dtype), name, (register_type(source), m.value(e.value.args[0])))
    return cast(m, m.value(e.value), e.value.dtype, e.dtype)


def _is_nearest_integer(m: Emitter, e: E.Cast) -> bool:
    """Whether a vector is rounded and converted to int32, which one instruction does."""
    rounded, lanes = e.value, e.dtype.lanes
    if not isinstance(rounded, E.Call) or rounded.name != "nearbyint" or e.dtype.element != "int32":
        return False
    return m.cpu.arch == "x86_64" and rounded.dtype.element == FLOAT32 and lanes in (4, 8, 16) and lanes <= m.cpu.lanes


def _ramp(m: Emitter, e: E.Ramp) -> str:
    if e.base.dtype.lanes > 1:
        raise refuse("llvm", "a Ramp whose base is a vector, outside an index")
    kind, element = register_type(e.dtype), f"i{e.dtype.bits}"
    base, stride = splat(m, m.value(e.base), e.dtype), m.static_int(e.stride)
    factor = 1 if stride is None else stride
    steps = "<" + ", ".join(f"{element} {k * factor}" for k in range(e.lanes)) + ">"
    if stride is None:
        steps = binary(m, "mul", kind, splat(m, m.value(e.stride), e.dtype), steps)
    return binary(m, "add", kind, base, steps)


def _broadcast(m: Emitter, e: E.Broadcast) -> str:
    inner = e.value
    if isinstance(inner, E.IntImm):
        return int_constant(inner.value, e.dtype)
    if isinstance(inner, E.FloatImm):
        return float_constant(inner.value, e.dtype)
    if inner.dtype.lanes == 1:
        return lane_of(m, inner, e.dtype) or splat(m, m.value(inner), e.dtype)
    kind, value, lanes = register_type(inner.dtype), m.value(inner), inner.dtype.lanes
    mask = ", ".join(f"i32 {k % lanes}" for k in range(e.dtype.lanes))
    return m.pure(f"shufflevector {kind} {value}, {kind} poison, <{e.dtype.lanes} x i32> <{mask}>", value)


def _let(m: Emitter, e: E.Let) -> str:
    m.scalars[e.var] = m.value(e.value)
    m.ranges[e.var] = m.range(e.value) if e.var.dtype.is_int else (None, None)
    return m.value(e.body)


def _iter_var(m: Emitter, e: E.IterVar) -> str:
    return _var(m, e.var)


_add, _sub = _arithmetic("add", "fadd"), _arithmetic("sub", "fsub")
EXPR_RULES.update(
    {
        E.IntImm: _int,
        E.FloatImm: _float,
        E.Var: _var,
        E.IterVar: _iter_var,
        E.Add: _fused(_add),
        E.Sub: _sub,
        E.Mul: _arithmetic("mul", "fmul"),
        E.Div: _arithmetic("sdiv", "fdiv"),
        E.TruncDiv: _trunc_rule(False),
        E.TruncMod: _trunc_rule(True),
        E.FloorDiv: _floor_rule(False),
        E.FloorMod: _floor_rule(True),
        E.Min: _extremum(False),
        E.Max: _extremum(True),
        E.EQ: _comparison("eq", "eq", "oeq"),
        E.NE: _comparison("ne", "ne", "une"),
        E.LT: _comparison("slt", "ult", "olt"),
        E.LE: _comparison("sle", "ule", "ole"),
        E.GT: _comparison("sgt", "ugt", "ogt"),
        E.GE: _comparison("sge", "uge", "oge"),
        E.And: _logical("and"),
        E.Or: _logical("or"),
        E.Not: _not,
        E.Select: _select,
        E.Cast: _cast,
        E.Ramp: _ramp,
        E.Broadcast: _broadcast,
        E.Let: _let,
    }
)
