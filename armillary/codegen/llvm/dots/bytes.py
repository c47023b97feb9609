"""Dot products of two words of four or eight bytes added to an int32, in LLVM IR.

In: the calls `dot_bytes` (tir/intrinsics.py), and sums with one of them as a side; words: operands.py. Out: IR. Those
of two rows and two columns together: byte_matrices.py.
Invariant: exact, wrapping like int32, whatever the processor has. With instructions for it (VNNI, dotprod, i8mm) a
dot product with its addition is one of them where they take these signs; other signs cost a second one, because one
side is moved by 128 (schedules pack their operands so that this is not needed: `CpuModel.dot_signs`). Without them x86
multiplies 16-bit halves (pmaddwd), the others 32-bit lanes.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.dtype import DType
from armillary.codegen.llvm.memory import shuffle
from armillary.codegen.llvm.state import Emitter
from armillary.codegen.llvm.types import int_constant, register_type, splat, vector
from armillary.tir import expr as E

LONG = 64  # bits of a word of eight bytes
FLIP = 0x80808080  # the sign bits of four bytes
_WORD = DType("int32")
_PMADDWD = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
_ARM_DOTS = {("int", "int"): "sdot", ("uint", "uint"): "udot", ("uint", "int"): "usdot"}
Part = Callable[..., str]  # (sums, left words, right words) of one width -> sums


def is_dot(e: E.Expr) -> bool:
    """Whether an expression is a dot product of bytes."""
    return isinstance(e, E.Call) and e.name in ("dot_bytes", "dot_symmetric_bytes")


def dot_bytes(m: Emitter, e: E.Call) -> str:
    """The dot product alone."""
    return added_dot(m, "zeroinitializer" if e.dtype.lanes > 1 else "0", e)


def added_dot(m: Emitter, sums: str, e: E.Expr) -> str:
    """`sums` plus a dot product of bytes."""
    assert isinstance(e, E.Call), "is_dot has told"
    left, right = e.args
    signs = left.dtype.code, right.dtype.code
    a, b, lanes = m.value(left), m.value(right), e.dtype.lanes
    is_long = left.dtype.bits == LONG
    takes_lanes = m.cpu.multiplies_lanes and isinstance(left, E.Broadcast)  # of its second side, of equal signs
    if signs == ("int", "uint") or (takes_lanes and signs[0] == signs[1]):
        a, b, signs = b, a, (signs[1], signs[0])
    for x, y in zip(_four_byte_parts(m, lanes, a), _four_byte_parts(m, lanes, b), strict=True) if is_long else [(a, b)]:
        sums = _added(m, signs, lanes, sums, x, y)
    return sums


def _added(m: Emitter, signs: tuple[str, str], lanes: int, sums: str, a: str, b: str) -> str:
    """`sums` plus the dot products of words of four bytes."""
    if lanes == 1:
        return _scalar(m, signs, sums, a, b)
    width, part = _part(m, signs, lanes)
    return in_parts(m, lanes, width, part, ((_WORD, sums), (_WORD, a), (_WORD, b)))


def _four_byte_parts(m: Emitter, lanes: int, value: str) -> list[str]:
    """The first and the last four bytes of words of eight."""
    long = register_type(DType("int64").with_lanes(lanes))
    if lanes == 1:
        last = m.pure(f"lshr i64 {value}, 32", value)
        return [m.pure(f"trunc i64 {half} to i32", half) for half in (value, last)]
    both = _WORD.with_lanes(2 * lanes)
    raw = m.pure(f"bitcast {long} {value} to {register_type(both)}", value)
    return [shuffle(m, raw, raw, both, list(range(first, 2 * lanes, 2))) for first in (0, 1)]


def _part(m: Emitter, signs: tuple[str, str], lanes: int) -> tuple[int, Part]:
    """How many lanes at once, and by what."""
    widest = m.cpu.lanes
    width = min(widest, max(4, 1 << (lanes - 1).bit_length()))
    if m.cpu.arch == "x86_64":
        if m.cpu.dot_signs and (width == 16 or m.cpu.has("avxvnni") or m.cpu.has("avx512vl")):
            return width, lambda c, a, b: _vnni(m, signs, width, c, a, b)
        width = min(width, _widest_int16_multiply(m))
        return width, lambda c, a, b: _by_int16_products(m, signs, width, c, a, b)
    if m.cpu.arch == "aarch64" and m.cpu.dot_signs:
        return 4, lambda c, a, b: _arm(m, signs, c, a, b)
    return width, lambda c, a, b: _by_lanes(m, signs, width, c, a, b)


def _widest_int16_multiply(m: Emitter) -> int:
    return 16 if m.cpu.has("avx512bw") else 8 if m.cpu.has("avx2") else 4


def in_parts(m: Emitter, lanes: int, width: int, part: Part, operands: tuple[tuple[DType, str], ...]) -> str:
    """Apply `part` to vectors of `width` lanes, and join what it gives, of the type of the first operand.

    The last one may hold lanes of no meaning.
    """
    if lanes == width:
        return part(*(value for _, value in operands))
    parts = []
    for first in range(0, lanes, width):
        taken = [min(first + k, lanes - 1) for k in range(width)]
        parts.append(part(*(shuffle(m, v, v, dtype.with_lanes(lanes), taken) for dtype, v in operands)))
    have, element = width, operands[0][0]
    while len(parts) > 1:
        if len(parts) % 2:
            parts.append(parts[-1])
        kind = element.with_lanes(have)
        parts = [shuffle(m, parts[k], parts[k + 1], kind, list(range(2 * have))) for k in range(0, len(parts), 2)]
        have *= 2
    return parts[0] if have == lanes else shuffle(m, parts[0], parts[0], element.with_lanes(have), list(range(lanes)))


def _flipped(m: Emitter, value: str, lanes: int) -> str:
    """Each byte moved by 128: the other sign, so that unsigned x is signed x - 128."""
    kind = register_type(_WORD.with_lanes(lanes))
    return m.pure(f"xor {kind} {value}, {splat('i32', str(FLIP), lanes)}", value)


def _as_bytes(m: Emitter, value: str, lanes: int) -> str:
    kind = vector("i8", 4 * lanes)
    return m.pure(f"bitcast {register_type(_WORD.with_lanes(lanes))} {value} to {kind}", value)


def _instruction(m: Emitter, name: str, lanes: int, sums: str, a: str, b: str) -> str:
    kind, bytes_ = register_type(_WORD.with_lanes(lanes)), vector("i8", 4 * lanes)
    operands = ((kind, sums), (bytes_, _as_bytes(m, a, lanes)), (bytes_, _as_bytes(m, b, lanes)))
    return m.intrinsic(kind, name, *operands)


def _without(m: Emitter, lanes: int, sums: str, less: str) -> str:
    return m.pure(f"sub {register_type(_WORD.with_lanes(lanes))} {sums}, {less}", sums, less)


def _vnni(m: Emitter, signs: tuple[str, str], lanes: int, sums: str, a: str, b: str) -> str:
    """vpdpbusd takes unsigned times signed bytes; else a side is moved by 128, and 128 of the other side put back."""
    name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    if signs == ("uint", "int"):
        return _instruction(m, name, lanes, sums, a, b)
    edge = splat("i32", str(FLIP), lanes)
    if signs == ("int", "int"):  # (a + 128) b - 128 b
        total = _instruction(m, name, lanes, sums, _flipped(m, a, lanes), b)
        return _without(m, lanes, total, _instruction(m, name, lanes, "zeroinitializer", edge, b))
    total = _instruction(m, name, lanes, sums, a, _flipped(m, b, lanes))  # a (b - 128) - a (-128)
    return _without(m, lanes, total, _instruction(m, name, lanes, "zeroinitializer", a, edge))


def _arm(m: Emitter, signs: tuple[str, str], sums: str, a: str, b: str) -> str:
    """sdot, udot and, with i8mm, usdot; without it unsigned bytes are moved by -128."""
    if signs in m.cpu.dot_signs:
        return _instruction(m, f"llvm.aarch64.neon.{_ARM_DOTS[signs]}.v4i32.v16i8", 4, sums, a, b)
    name = "llvm.aarch64.neon.sdot.v4i32.v16i8"
    total = _instruction(m, name, 4, sums, _flipped(m, a, 4), b)  # (a - 128) b - (-128) b
    return _without(m, 4, total, _instruction(m, name, 4, "zeroinitializer", splat("i32", str(FLIP), 4), b))


def _by_int16_products(m: Emitter, signs: tuple[str, str], lanes: int, sums: str, a: str, b: str) -> str:
    """Even and odd bytes as 16-bit numbers: products of neighbours are added in 32 bits, which is exact."""
    kind, half = register_type(_WORD.with_lanes(lanes)), vector("i16", 2 * lanes)
    for which in (0, 1):
        x, y = (_halves(m, v, sign, lanes, which) for v, sign in zip((a, b), signs, strict=True))
        products = m.intrinsic(kind, _PMADDWD[lanes], (half, x), (half, y))
        sums = m.pure(f"add {kind} {sums}, {products}", sums, products)
    return sums


def _halves(m: Emitter, value: str, sign: str, lanes: int, which: int) -> str:
    """The even (0) or odd (1) bytes of words as 16-bit numbers."""
    half, eight = vector("i16", 2 * lanes), splat("i16", "8", 2 * lanes)
    raw = m.pure(f"bitcast {register_type(_WORD.with_lanes(lanes))} {value} to {half}", value)
    if which:
        return m.pure(f"{'ashr' if sign == 'int' else 'lshr'} {half} {raw}, {eight}", raw)
    if sign == "uint":
        return m.pure(f"and {half} {raw}, {splat('i16', '255', 2 * lanes)}", raw)
    up = m.pure(f"shl {half} {raw}, {eight}", raw)
    return m.pure(f"ashr {half} {up}, {eight}", up)


def _by_lanes(m: Emitter, signs: tuple[str, str], lanes: int, sums: str, a: str, b: str) -> str:
    """One byte of each word after another, in 32-bit lanes."""
    kind = register_type(_WORD.with_lanes(lanes))
    for byte in range(4):
        x, y = (_byte(m, v, sign, lanes, byte) for v, sign in zip((a, b), signs, strict=True))
        product = m.pure(f"mul {kind} {x}, {y}", x, y)
        sums = m.pure(f"add {kind} {sums}, {product}", sums, product)
    return sums


def _byte(m: Emitter, value: str, sign: str, lanes: int, byte: int) -> str:
    dtype = _WORD.with_lanes(lanes)
    kind = register_type(dtype)
    if byte < 3:
        value = m.pure(f"shl {kind} {value}, {int_constant(24 - 8 * byte, dtype)}", value)
    return m.pure(f"{'ashr' if sign == 'int' else 'lshr'} {kind} {value}, {int_constant(24, dtype)}", value)


def _scalar(m: Emitter, signs: tuple[str, str], sums: str, a: str, b: str) -> str:
    """The products of one word as four lanes that are added up."""
    wide = []
    for value, sign in ((a, signs[0]), (b, signs[1])):
        raw = m.pure(f"bitcast i32 {value} to <4 x i8>", value)
        wide.append(m.pure(f"{'sext' if sign == 'int' else 'zext'} <4 x i8> {raw} to <4 x i32>", raw))
    products = m.pure(f"mul <4 x i32> {wide[0]}, {wide[1]}", *wide)
    total = m.intrinsic("i32", "llvm.vector.reduce.add.v4i32", ("<4 x i32>", products))
    return m.pure(f"add i32 {sums}, {total}", sums, total)
