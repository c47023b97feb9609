"""Bytes made of wider values by NEON: floats that are rounded, and fixed-point products of bytes that are added.

In: a cast to bytes. Out: the name of its value, or None where the cast is of another form. Invariant: what comes out is
what the steps of the expression give one after another; saturation of the narrowing stands for limits only where they
are those of the type, or where the values are known to lie inside. Who asks: llvm/expr.py.
"""

from __future__ import annotations

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.codegen.llvm.memory import shuffle
from armillary.codegen.llvm.state import Emitter
from armillary.codegen.llvm.types import int_constant, register_type
from armillary.tir import expr as E

FLOAT32, _FOUR, _EIGHT, _SHORTS = DType("float32"), DType("int32x4"), DType("int16x8"), DType("int16x4")
_FAR = 1 << 14  # of a zero point: its sum with a byte fits 16 bits
_HIGH = 16  # bits of a 32-bit sum below its high half
_MOST_PARTS = 4


def narrowed_to_bytes(m: Emitter, e: E.Cast) -> str | None:
    """A cast to bytes by instructions that narrow with saturation, or None."""
    return _saturated(m, e) or _scaled(m, e)


def _saturated(m: Emitter, e: E.Cast) -> str | None:
    """Floats limited to a byte, rounded, moved by a constant: NEON converts to nearest and narrows with saturation.

    NaN gives the constant, as it does where the steps are apart.
    """
    steps, shift = e.value, 0
    if isinstance(steps, E.Add):
        known = m.static_int(steps.b.value) if isinstance(steps.b, E.Broadcast) else None
        if known is None:
            return None
        steps, shift = steps.a, known
    rounded = steps.value if isinstance(steps, E.Cast) and steps.dtype.element == "int32" else None
    if not isinstance(rounded, E.Call) or rounded.name != "nearbyint" or rounded.dtype.element != FLOAT32:
        return None
    source, lanes = rounded.args[0], e.dtype.lanes
    limits = _limits(source)
    low, high = (limit - shift for limit in (e.dtype.min_value, e.dtype.max_value))
    if lanes not in (4, 8, 16) or abs(shift) > _FAR or limits is None or limits[0] < low or limits[1] > high:
        return None
    if limits == (low, high):  # those of the type: narrowing keeps them
        assert isinstance(source, E.Min) and isinstance(source.a, E.Max), "as just tested"
        source = source.a.a
    return _narrowed(m, m.value(source), shift, e.dtype)


def _limits(source: E.Expr) -> tuple[float, float] | None:
    """The constants of min(max(x, low), high)."""
    if not isinstance(source, E.Min) or not isinstance(source.a, E.Max):
        return None
    low, high = (x.value if isinstance(x, E.Broadcast) else x for x in (source.a.b, source.b))
    return (low.value, high.value) if isinstance(low, E.FloatImm) and isinstance(high, E.FloatImm) else None


def _narrowed(m: Emitter, value: str, shift: int, dtype: DType) -> str:
    """float32 to the nearest int32, to int16, moved, to bytes: four or eight lanes at a time."""
    floats, four, eight = FLOAT32.with_lanes(dtype.lanes), _FOUR, _EIGHT
    halves, parts = DType("int16x4"), []
    for first in range(0, dtype.lanes, 4):
        part = shuffle(m, value, value, floats, list(range(first, first + 4))) if dtype.lanes > 4 else value
        whole = m.intrinsic(
            register_type(four), "llvm.aarch64.neon.fcvtns.v4i32.v4f32", (register_type(FLOAT32.with_lanes(4)), part)
        )
        parts.append(m.intrinsic(register_type(halves), "llvm.aarch64.neon.sqxtn.v4i16", (register_type(four), whole)))
    name = "llvm.aarch64.neon.sqxtn.v8i8" if dtype.code == "int" else "llvm.aarch64.neon.sqxtun.v8i8"
    kind, bytes_ = register_type(eight), DType(f"{dtype.element}x8")
    narrow = []
    for a, b in zip(parts[::2], parts[1::2] or ["poison"], strict=True):
        both = shuffle(m, a, b, halves, list(range(8)))
        if shift:
            both = m.intrinsic(kind, "llvm.sadd.sat.v8i16", (kind, both), (kind, int_constant(shift, eight)))
        narrow.append(m.intrinsic(register_type(bytes_), name, (kind, both)))
    if dtype.lanes == 8:
        return narrow[0]
    lanes = list(range(dtype.lanes))  # of eight, or of two times eight
    return shuffle(m, narrow[0], narrow[-1], bytes_, lanes)


@record
class _Part:
    """`(byte * multiplier + offset) >> shift`, added or taken away."""

    byte: E.Expr
    multiplier: int
    offset: int
    shift: int
    sign: int = 1

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the largest value; all steps to them fit 32 bits, as `_part` makes sure."""
        info = self.byte.dtype
        limits = [
            self.sign * ((x * self.multiplier + self.offset) >> self.shift) for x in (info.min_value, info.max_value)
        ]
        return min(limits), max(limits)


def _constant(m: Emitter, e: E.Expr) -> int | None:
    return m.static_int(e.value) if isinstance(e, E.Broadcast) else None


def _linear(m: Emitter, e: E.Expr) -> tuple[E.Expr, int, int] | None:
    """A vector of bytes, the factor and the offset of an expression of 32 bits."""
    if isinstance(e, E.Cast) and e.dtype.element == "int32" and e.value.dtype.bits == 8 and e.value.dtype.is_int:
        return e.value, 1, 0
    if not isinstance(e, E.Mul | E.Add | E.Sub):
        return None
    known, inside = _constant(m, e.b), _linear(m, e.a)
    if known is None or inside is None:
        return None
    byte, factor, offset = inside
    if isinstance(e, E.Mul):
        factor, offset = factor * known, offset * known
    else:
        offset += known if isinstance(e, E.Add) else -known
    ends = [x * factor + way for x in (byte.dtype.min_value, byte.dtype.max_value) for way in (0, offset)]
    return (byte, factor, offset) if all(-(1 << 31) <= end < 1 << 31 for end in ends) else None


def _part(m: Emitter, e: E.Expr, sign: int) -> _Part | None:
    while isinstance(e, E.Cast) and e.value.dtype.element == "int32" and e.dtype.element == "int64":
        e = e.value
    if not isinstance(e, E.Call) or e.name != "shift_right" or e.dtype.element != "int32":
        return None
    shift, inside = _constant(m, e.args[1]), _linear(m, e.args[0])
    if shift is None or inside is None or not 0 < shift <= _HIGH or inside[1] <= 0:
        return None
    return _Part(*inside, shift, sign)


def _parts(m: Emitter, e: E.Expr, sign: int = 1) -> tuple[list[_Part], int] | None:
    """What a sum is made of, and its constants."""
    known = _constant(m, e)
    if known is not None:
        return [], sign * known
    if isinstance(e, E.Add | E.Sub):
        lhs, rhs = _parts(m, e.a, sign), _parts(m, e.b, -sign if isinstance(e, E.Sub) else sign)
        return None if lhs is None or rhs is None else (lhs[0] + rhs[0], lhs[1] + rhs[1])
    part = _part(m, e, sign)
    return None if part is None else ([part], 0)


def _split(part: _Part) -> tuple[int, int] | None:
    """By how much byte and multiplier are shifted so that the result is the high half of 32 bits; both fit 16."""
    is_signed = part.byte.dtype.code == "int"
    room = (_HIGH - 1 if is_signed else _HIGH) - part.multiplier.bit_length()
    missing = _HIGH - part.shift
    if room < 0 or missing - room > 8:
        return None
    return max(missing - room, 0), min(missing, room)


def _scaled(m: Emitter, e: E.Cast) -> str | None:
    """Sums of bytes in fixed point: products of 32 bits, their high halves added in 16, narrowed with saturation."""
    value, dtype = e.value, e.dtype
    low, high = -(1 << 31), (1 << 31) - 1
    while isinstance(value, E.Min | E.Max) and (limit := _constant(m, value.b)) is not None:
        low, high = (low, min(high, limit)) if isinstance(value, E.Min) else (max(low, limit), high)
        value = value.a
    pieces = _parts(m, value) if dtype.lanes in (8, 16) and value.dtype.element in ("int32", "int64") else None
    if pieces is None or not 0 < len(pieces[0]) <= _MOST_PARTS or low > high or pieces[0][0].sign < 0:
        return None
    parts, constant = pieces
    first = parts[0]
    parts[0] = _Part(first.byte, first.multiplier, first.offset + (constant << first.shift), first.shift)
    sums = [(0, 0)]
    for part in parts:
        sums.append((sums[-1][0] + part.ends[0], sums[-1][1] + part.ends[1]))
    everything = [*sums, *(part.ends for part in parts)]
    if any(_split(part) is None for part in parts) or any(a < -(1 << 15) or b >= 1 << 15 for a, b in everything):
        return None
    least, most = sums[-1]
    ends = [min(max(end, low), high) for end in sums[-1]]
    if ends[0] < dtype.min_value or ends[1] > dtype.max_value:
        return None  # it wraps
    result = _narrowed_sums(m, parts, dtype)
    kind, code = register_type(dtype), "s" if dtype.code == "int" else "u"
    if low > max(least, dtype.min_value):
        result = m.intrinsic(kind, f"llvm.{code}max.v{dtype.lanes}i8", (kind, result), (kind, int_constant(low, dtype)))
    if high < min(most, dtype.max_value):
        result = m.intrinsic(
            kind, f"llvm.{code}min.v{dtype.lanes}i8", (kind, result), (kind, int_constant(high, dtype))
        )
    return result


def _narrowed_sums(m: Emitter, parts: list[_Part], dtype: DType) -> str:
    """Eight lanes at a time: `ushll`, two `umull`, two `addhn` for each part; `sqxtun` at the end."""
    kind, eight = register_type(_EIGHT), DType(f"{dtype.element}x8")
    name = "llvm.aarch64.neon.sqxtn.v8i8" if dtype.code == "int" else "llvm.aarch64.neon.sqxtun.v8i8"
    narrow = []
    for first in range(0, dtype.lanes, 8):
        total = _high_half(m, parts[0], first)
        for part in parts[1:]:
            added, op = _high_half(m, part, first), "add" if part.sign > 0 else "sub"
            total = m.pure(f"{op} {kind} {total}, {added}", total, added)
        narrow.append(m.intrinsic(register_type(eight), name, (kind, total)))
    return narrow[0] if dtype.lanes == 8 else shuffle(m, narrow[0], narrow[1], eight, list(range(16)))


def _high_half(m: Emitter, part: _Part, first: int) -> str:
    """Eight lanes of a part, from `first` on, in 16 bits."""
    split, kind, source = _split(part), register_type(_EIGHT), part.byte.dtype
    assert split is not None, "as tested before"
    is_signed = source.code == "int"
    byte, eight = m.value(part.byte), DType(f"{source.element}x8")
    if source.lanes > 8:
        byte = shuffle(m, byte, byte, source, list(range(first, first + 8)))
    wide = m.pure(f"{'sext' if is_signed else 'zext'} {register_type(eight)} {byte} to {kind}", byte)
    if split[0]:
        wide = m.pure(f"shl {kind} {wide}, {int_constant(split[0], _EIGHT)}", wide)
    halves = []
    four, shorts = register_type(_FOUR), register_type(_SHORTS)
    factor = int_constant(part.multiplier << split[1], DType("uint16x4"))
    offset = (part.offset << (_HIGH - part.shift)) & 0xFFFFFFFF
    for lane in (0, 4):
        half = shuffle(m, wide, wide, _EIGHT, list(range(lane, lane + 4)))
        name = f"llvm.aarch64.neon.{'smull' if is_signed else 'umull'}.v4i32"
        product = m.intrinsic(four, name, (shorts, half), (shorts, factor))
        added = int_constant(offset, DType("uint32x4"))
        halves.append(m.intrinsic(shorts, "llvm.aarch64.neon.addhn.v4i16", (four, product), (four, added)))
    return shuffle(m, halves[0], halves[1], _SHORTS, list(range(8)))
