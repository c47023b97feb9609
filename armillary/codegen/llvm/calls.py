"""Intrinsic calls in LLVM IR: control, mathematical functions, integer functions, foreign functions.

In: `Call` nodes whose name is a row of `tir/intrinsics.py`. Out: names of values, through the table `CALLS`.
Invariant: float32 functions of `math.py` stay vectors; the others call libm lane by lane; float16 and smaller go
through float32; a name without a row is an UnsupportedError.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.dtype import DType
from armillary.codegen.base import LIBM, flat_index, refuse, refuse_intrinsic
from armillary.codegen.llvm.amx import tile_dot, tile_dot_bf16, tile_load, tile_store, tile_zero
from armillary.codegen.llvm.dots.bfloat16 import dot_bf16
from armillary.codegen.llvm.dots.bytes import dot_bytes
from armillary.codegen.llvm.dots.operands import word
from armillary.codegen.llvm.expr import (
    FLOAT32,
    binary,
    cast,
    fused_multiply_add,
    in_float32,
    nearest,
    select,
    truncated,
)
from armillary.codegen.llvm.float_functions import MATH_FUNCTIONS, math_function, math_symbol
from armillary.codegen.llvm.index import address, linear
from armillary.codegen.llvm.packed import address_of, packed, traced
from armillary.codegen.llvm.state import EXPR_RULES, Emitter
from armillary.codegen.llvm.types import (
    float_constant,
    int_constant,
    is_raw,
    memory_element,
    register_element,
    register_type,
    suffix,
    vector,
)
from armillary.errors import UnsupportedError
from armillary.tir import expr as E
from armillary.tir.analysis import evaluated_by_both, is_unsafe
from armillary.tir.vendor_intrinsics import resolved

Rule = Callable[[Emitter, E.Call], str]
_LLVM = {
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "round",
    "fabs": "fabs",
    "sqrt": "sqrt",
    "copysign": "copysign",
}


def _if_then_else(m: Emitter, e: E.Call) -> str:
    condition, yes, no = e.args
    static = m.static_int(condition)
    if static is not None:
        return m.value(yes if static else no)
    if condition.dtype.lanes > 1:
        return _lane_wise(m, e)
    test = m.value(condition)
    if not is_unsafe(yes) and not is_unsafe(no):
        return select(m, e.dtype, test, 1, m.value(yes), m.value(no))
    return _branch(m, e, test)


def _branch(m: Emitter, e: E.Call, test: str) -> str:
    """Only the chosen side runs."""
    then, other, done = m.label("then"), m.label("else"), m.label("done")
    sources, bodies = [], []
    for part in evaluated_by_both(e.args[1], e.args[2]):
        m.value(part)
    for label, side in ((then, e.args[1]), (other, e.args[2])):
        m.open(label)
        with m.guarded():
            value = m.value(side)
        sources.append((value, m.block))
        m.do(f"br label %{done}")
        bodies.append((label, m.close()))
    m.do(f"br i1 {test}, label %{then}, label %{other}")
    lines = m.regions[-1].lines
    for label, body in bodies:
        lines.append(f"{label}:")
        lines.extend(body)
    m.start(done)
    return m.phi(register_type(e.dtype), *sources)


def _lane_wise(m: Emitter, e: E.Call) -> str:
    """Each side runs under the mask of the lanes that chose it."""
    flag, lanes = register_type(e.args[0].dtype), e.args[0].dtype.lanes
    test, outer = m.value(e.args[0]), m.mask
    inverse = binary(m, "xor", flag, test, int_constant(1, e.args[0].dtype))
    sides = []
    for part in evaluated_by_both(e.args[1], e.args[2]):
        m.value(part)
    for mask, side in ((test, e.args[1]), (inverse, e.args[2])):
        m.mask = binary(m, "and", flag, outer, mask) if outer is not None else mask
        with m.guarded():
            sides.append(m.value(side))
    m.mask = outer
    return select(m, e.dtype, test, lanes, sides[0], sides[1])


def _masked_load(m: Emitter, e: E.Call) -> str:
    """A load of the lanes that a mask has."""
    load = e.args[1]
    if isinstance(load, E.BufferLoad) and m.is_volatile(load.buffer):
        message = "The masked load intrinsic does not support declaring load as volatile."
        raise UnsupportedError(f"llvm: {message}", hint="leave out the note volatile_scope, or the predicate")
    flag, test, outer = register_type(e.args[0].dtype), m.value(e.args[0]), m.mask
    m.mask = test if outer is None else binary(m, "and", flag, outer, test)
    with m.guarded():
        result = m.value(load)
    m.mask = outer
    return result


def _likely(m: Emitter, e: E.Call) -> str:
    return m.value(e.args[0])


def _unary_llvm(m: Emitter, e: E.Call) -> str:
    values = [m.value(a) for a in e.args]
    dtype = e.args[0].dtype
    if not dtype.is_float:
        if e.name == "fabs":
            return _abs(m, e)
        if e.name in ("floor", "ceil", "trunc", "round", "nearbyint"):
            return values[0]
        raise refuse("llvm", f"{e.name} of {dtype}")

    def rule(m: Emitter, kind: DType, *operands: str) -> str:
        text = register_type(kind)
        name = nearest(kind) if e.name == "nearbyint" else _LLVM[e.name]
        return m.intrinsic(text, f"llvm.{name}.{suffix(kind)}", *((text, v) for v in operands))

    return in_float32(m, dtype, rule, *values) if m.soft(dtype) else rule(m, dtype, *values)


def _libm(m: Emitter, e: E.Call) -> str:
    dtype = e.args[0].dtype
    values = [m.value(a) for a in e.args]
    return apply_math(m, e.name, dtype, values)


def apply_math(m: Emitter, name: str, dtype: DType, values: list[str]) -> str:
    """A mathematical function of floats: our own vector code for float32, libm otherwise."""
    if not dtype.is_float:
        raise refuse("llvm", f"{name} of {dtype}", "cast to a float type first")
    if m.soft(dtype):
        return in_float32(m, dtype, lambda m, t, *v: apply_math(m, name, t, list(v)), *values)
    if dtype.bits == 16:
        wide = FLOAT32.with_lanes(dtype.lanes)
        result = apply_math(m, name, wide, [cast(m, v, dtype, wide) for v in values])
        return cast(m, result, wide, dtype)
    if dtype.bits == 32 and name in MATH_FUNCTIONS:
        return _own(m, name, dtype, values)
    if name == "sigmoid":
        return _sigmoid(m, dtype, values[0])
    if name == "exp_flushed":  # of float64, whose scores are nowhere near subnormal
        return _per_lane(m, "exp", dtype, values)
    if name == "normcdf":
        raise refuse("llvm", f"normcdf of {dtype}", "write it as 0.5 + 0.5 * erf(x / sqrt(2))")
    return _per_lane(m, name + ("f" if dtype.bits == 32 else ""), dtype, values)


def _own(m: Emitter, name: str, dtype: DType, values: list[str]) -> str:
    key = f"{name}x{dtype.lanes}"
    if key not in m.math:
        m.math[key] = math_function(name, dtype.lanes, m.declared, m.cpu)
    kind = register_type(dtype)
    return m.here(f"call {kind} @{math_symbol(name, dtype.lanes)}({', '.join(f'{kind} {v}' for v in values)})")


def _per_lane(m: Emitter, name: str, dtype: DType, values: list[str]) -> str:
    element, kind = register_element(dtype.element), register_type(dtype)
    m.declare(element, name, ", ".join(element for _ in values), "nounwind memory(none)")
    if dtype.lanes == 1:
        return m.here(f"call {element} @{name}({', '.join(f'{element} {v}' for v in values)})")
    result = "poison"
    for k in range(dtype.lanes):
        parts = [m.pure(f"extractelement {kind} {v}, i64 {k}", v) for v in values]
        one = m.here(f"call {element} @{name}({', '.join(f'{element} {v}' for v in parts)})")
        result = m.pure(f"insertelement {kind} {result}, {element} {one}, i64 {k}", result, one)
    return result


def _sigmoid(m: Emitter, dtype: DType, value: str) -> str:
    kind, one = register_type(dtype), float_constant(1.0, dtype)
    exponential = apply_math(m, "exp", dtype, [m.pure(f"fneg {kind} {value}", value)])
    return binary(m, "fdiv", kind, one, binary(m, "fadd", kind, exponential, one))


def _rsqrt(m: Emitter, e: E.Call) -> str:
    def rule(m: Emitter, dtype: DType, value: str) -> str:
        kind = register_type(dtype)
        root = m.intrinsic(kind, f"llvm.sqrt.{suffix(dtype)}", (kind, value))
        return binary(m, "fdiv", kind, float_constant(1.0, dtype), root)

    dtype, value = e.dtype, m.value(e.args[0])
    return in_float32(m, dtype, rule, value) if m.soft(dtype) else rule(m, dtype, value)


def _fma(m: Emitter, e: E.Call) -> str:
    values = [m.value(a) for a in e.args]
    if not e.dtype.is_float:
        kind = register_type(e.dtype)
        return binary(m, "add", kind, binary(m, "mul", kind, values[0], values[1]), values[2])
    return (
        in_float32(m, e.dtype, fused_multiply_add, *values)
        if m.soft(e.dtype)
        else fused_multiply_add(m, e.dtype, *values)
    )


def _ldexp(m: Emitter, e: E.Call) -> str:
    """x * 2**n through libm, lane by lane."""
    dtype, count = e.dtype, e.args[1].dtype
    x, n = m.value(e.args[0]), cast(m, m.value(e.args[1]), count, DType("int32").with_lanes(count.lanes))

    def rule(m: Emitter, kind: DType, value: str) -> str:
        if kind.bits == 16:
            wide = FLOAT32.with_lanes(kind.lanes)
            return cast(m, rule(m, wide, cast(m, value, kind, wide)), wide, kind)
        text = register_type(kind)
        exponent = vector("i32", kind.lanes)
        name = f"llvm.ldexp.{suffix(kind)}.{'i32' if kind.lanes == 1 else f'v{kind.lanes}i32'}"
        return m.intrinsic(text, name, (text, value), (exponent, n))

    return in_float32(m, dtype, rule, x) if m.soft(dtype) else rule(m, dtype, x)


def _float_test(name: str) -> Rule:
    def rule(m: Emitter, e: E.Call) -> str:
        dtype, value = e.args[0].dtype, m.value(e.args[0])
        if not dtype.is_float:
            return int_constant(int(name == "isfinite"), e.dtype)
        wide = FLOAT32.with_lanes(dtype.lanes) if m.soft(dtype) else dtype
        value = cast(m, value, dtype, wide)
        kind = register_type(wide)
        if name == "isnan":
            return binary(m, "fcmp uno", kind, value, value)
        size = m.intrinsic(kind, f"llvm.fabs.{suffix(wide)}", (kind, value))
        return binary(m, f"fcmp {'oeq' if name == 'isinf' else 'olt'}", kind, size, float_constant(float("inf"), wide))

    return rule


def _abs(m: Emitter, e: E.Call) -> str:
    dtype = e.dtype
    if dtype.is_float:
        return _unary_llvm(m, E.Call(e.dtype, "fabs", e.args))
    value = m.value(e.args[0])
    if dtype.code != "int":
        return value
    kind = register_type(dtype)
    return m.intrinsic(kind, f"llvm.abs.{suffix(dtype)}", (kind, value), ("i1", "false"))


def _bitwise(op: str) -> Rule:
    def rule(m: Emitter, e: E.Call) -> str:
        chosen = "lshr" if op == "ashr" and e.dtype.code != "int" else op
        return binary(m, chosen, register_type(e.dtype), m.value(e.args[0]), m.value(e.args[1]))

    return rule


def _bit_count(name: str) -> Rule:
    def rule(m: Emitter, e: E.Call) -> str:
        dtype = e.args[0].dtype
        kind, value = register_type(dtype), m.value(e.args[0])
        extra = [("i1", "false")] if name == "ctlz" else []
        count = m.intrinsic(kind, f"llvm.{name}.{suffix(dtype)}", (kind, value), *extra)
        return cast(m, count, DType(f"uint{dtype.bits}").with_lanes(dtype.lanes), e.dtype)

    return rule


def _reinterpret(m: Emitter, e: E.Call) -> str:
    source, to = e.args[0].dtype, e.dtype
    if source.bytes != to.bytes or source.is_bool or to.is_bool:
        raise refuse("llvm", f"reinterpret from {source} to {to}", "the sizes must agree")
    value = m.value(e.args[0])
    have, want = register_type(source), register_type(to)
    return value if have == want else m.pure(f"bitcast {have} {value} to {want}", value)


def _extern(m: Emitter, e: E.Call) -> str:
    name = e.args[0]
    if (
        not isinstance(name, E.StringImm)
        or any(a.dtype.lanes > 1 or is_raw(a.dtype) for a in e.args[1:])
        or e.dtype.lanes > 1
    ):
        raise refuse("llvm", "a foreign call without a name or with vector arguments")
    if e.name == "call_extern":
        m.effects += 1
    result = "void" if e.dtype.code == "void" else memory_element(e.dtype)
    arguments = [(memory_element(a.dtype), cast(m, m.value(a), a.dtype, _as_byte(a.dtype))) for a in e.args[1:]]
    m.declare(result, name.value, ", ".join(kind for kind, _ in arguments))
    text = f"call {result} @{name.value}({', '.join(f'{kind} {value}' for kind, value in arguments)})"
    if result == "void":
        m.do(text)
        return "0"
    return cast(m, m.here(text), _as_byte(e.dtype), e.dtype)


def _vendor(m: Emitter, e: E.Call) -> str:
    """An instruction of a processor, by LLVM's name."""
    row, form = resolved(e)
    if row.arch and m.cpu.arch != row.arch:
        raise refuse("llvm", f"{row.name} on {m.cpu.arch}", f"it is an instruction of {row.arch}")
    if row.feature and not m.cpu.has(row.feature):
        raise refuse("llvm", f"{row.name} without {row.feature}", f"say -mattr=+{row.feature}, or a -mcpu that has it")
    if e.name == "call_llvm_intrin":
        m.effects += 1
    operands = [(register_type(a.dtype), m.value(a)) for a in e.args[1:]]
    return m.intrinsic(register_type(e.dtype), row.symbol(form), *operands)


def _as_byte(dtype: DType) -> DType:
    return DType("uint8") if dtype.is_bool else dtype


def _shuffle(m: Emitter, e: E.Call) -> str:
    """Lanes of several vectors, one by one; LLVM finds the permutation."""
    count = m.static_int(e.args[0]) or 0
    lanes = [(part, k) for part in e.args[1 : 1 + count] for k in range(part.dtype.lanes)]
    whole, result = register_type(e.dtype), "poison"
    for at, index in enumerate(e.args[1 + count :]):
        part, lane = lanes[m.static_int(index) or 0]
        value, kind = m.value(part), register_type(part.dtype)
        one = value if part.dtype.lanes == 1 else m.pure(f"extractelement {kind} {value}, i32 {lane}", value)
        if e.dtype.lanes == 1:
            return one
        result = m.pure(
            f"insertelement {whole} {result}, {register_type(e.dtype.element)} {one}, i32 {at}", result, one
        )
    return result


def _reduce_add(m: Emitter, e: E.Call) -> str:
    dtype, value = e.args[0].dtype, m.value(e.args[0])
    if not dtype.is_float:
        return m.intrinsic(
            register_type(e.dtype), f"llvm.vector.reduce.add.{suffix(dtype)}", (register_type(dtype), value)
        )
    wide = FLOAT32.with_lanes(dtype.lanes) if m.soft(dtype) else dtype
    value = cast(m, value, dtype, wide)
    element, kind, name = register_type(wide.element), register_type(wide), f"llvm.vector.reduce.fadd.{suffix(wide)}"
    m.declare(element, name, f"{element}, {kind}")
    total = m.pure(f"call reassoc {element} @{name}({element} -0.0, {kind} {value})", value)
    return cast(m, total, wide.element, e.dtype)


def _prefetch(m: Emitter, e: E.Call) -> str:
    """prefetch(element, 0 to read or 1 to write, locality 0 to 3, 1 for data)."""
    load, *how = e.args
    if isinstance(load, E.Call) and load.name == "address_of":
        load = load.args[0]
    if not isinstance(load, E.BufferLoad) or load.dtype.lanes > 1 or len(how) != 3:
        raise refuse("llvm", f"prefetch with {len(e.args)} arguments", "run inject-prefetch")
    if load.buffer in m.files:
        return "0"  # it is in registers already
    pointer = address(m, load.buffer, linear(m, flat_index(load.buffer, load.indices)))
    m.declare("void", "llvm.prefetch.p0", "ptr, i32, i32, i32")
    m.do(f"call void @llvm.prefetch.p0(ptr {pointer}, {', '.join(f'i32 {m.static_int(a)}' for a in how)})")
    return "0"


def _sync(m: Emitter, e: E.Call) -> str:
    raise refuse("llvm", "thread_sync", "CPU phases are separated by barriers already")


def call(m: Emitter, e: E.Call) -> str:
    """Emit an intrinsic call by the table `CALLS`."""
    rule = CALLS.get(e.name)
    if rule is None:
        raise refuse_intrinsic("llvm", e.name)
    return rule(m, e)


def _fmod_like(m: Emitter, e: E.Call) -> str:
    if not e.dtype.is_float:
        return truncated(m, e.dtype, m.value(e.args[0]), e.args[1], is_mod=True)
    return _libm(m, e)


CALLS: dict[str, Rule] = {
    **dict.fromkeys(LIBM, _libm),
    **dict.fromkeys((*_LLVM, "nearbyint"), _unary_llvm),
    "sigmoid": _libm,
    "normcdf": _libm,
    "exp_flushed": _libm,
    "rsqrt": _rsqrt,
    "fma": _fma,
    "fmod": _fmod_like,
    "ldexp": _ldexp,
    "isnan": _float_test("isnan"),
    "isinf": _float_test("isinf"),
    "isfinite": _float_test("isfinite"),
    "abs": _abs,
    "bitwise_and": _bitwise("and"),
    "bitwise_or": _bitwise("or"),
    "bitwise_xor": _bitwise("xor"),
    "shift_left": _bitwise("shl"),
    "shift_right": _bitwise("ashr"),
    "popcount": _bit_count("ctpop"),
    "clz": _bit_count("ctlz"),
    "if_then_else": _if_then_else,
    "likely": _likely,
    "masked_load": _masked_load,
    "reinterpret": _reinterpret,
    "call_extern": _extern,
    "call_pure_extern": _extern,
    "shuffle": _shuffle,
    "vector_reduce_add": _reduce_add,
    "address_of": address_of,
    "tvm_call_packed": packed,
    "tvm_call_trace_packed": traced,
    "prefetch": _prefetch,
    "thread_sync": _sync,
    "four_bytes": word,
    "eight_bytes": word,
    "dot_bytes": dot_bytes,
    "dot_symmetric_bytes": dot_bytes,
    "pack_bf16": word,
    "dot_bf16": dot_bf16,
    "tile_zero": tile_zero,
    "tile_load": tile_load,
    "tile_dot": tile_dot,
    "tile_dot_bf16": tile_dot_bf16,
    "tile_store": tile_store,
    "call_llvm_pure_intrin": _vendor,
    "call_llvm_intrin": _vendor,
}
EXPR_RULES[E.Call] = call
