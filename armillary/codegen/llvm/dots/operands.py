"""Words of four or eight bytes, or of two bfloat16, that lie in memory or anywhere, in LLVM IR.

In: the calls `four_bytes`, `eight_bytes` and `pack_bf16` (tir/intrinsics.py). Out: IR. Invariant: the first part is
lowest; where the parts lie side by side a word is one load, and lanes of words that do so are one load together.
Products of such words: bytes.py, byte_matrices.py, bfloat16.py.
"""

from __future__ import annotations

from armillary.base.dtype import DType
from armillary.codegen.base import flat_index
from armillary.codegen.llvm.index import Linear, address, linear
from armillary.codegen.llvm.lanes import lane_pattern
from armillary.codegen.llvm.memory import shuffle
from armillary.codegen.llvm.state import Emitter
from armillary.codegen.llvm.types import register_type
from armillary.tir import expr as E
from armillary.tir import stmt as S


def word(m: Emitter, e: E.Call) -> str:
    """One load where the parts lie side by side in memory, for each lane at least; else they are put together."""
    places = places_of(m, e)
    if places is None:
        return _transposed(m, e) or _joined(m, e)
    buffer, base, offsets = places
    kind, lanes, one_word = register_type(e.dtype), e.dtype.lanes, f"i{e.dtype.bits}"
    if offsets == [len(e.args) * k for k in range(lanes)]:
        return m.here(f"load {kind}, ptr {address(m, buffer, base)}, align 1")
    result = "poison"
    for k, offset in enumerate(offsets):
        pointer = address(m, buffer, Linear(dict(base.terms), base.constant + offset))
        one = m.here(f"load {one_word}, ptr {pointer}, align 1")
        result = m.pure(f"insertelement {kind} {result}, {one_word} {one}, i64 {k}", result, one)
    return result


def places_of(m: Emitter, e: E.Call) -> tuple[S.Buffer, Linear, list[int]] | None:
    """Buffer, place of the first lane's word, and the distances of the lanes; None if a word's parts lie apart."""
    return _strided_places(m, e, 1)


def _transposed(m: Emitter, e: E.Call) -> str:
    """One load and one shuffle where the lanes of each part are a run, and the runs lie one after another; else ""."""
    lanes = e.dtype.lanes
    places = _strided_places(m, e, lanes) if lanes > 1 else None
    if places is None or places[2] != list(range(lanes)):
        return ""
    buffer, base, _ = places
    count = len(e.args)
    part = _part(e).with_lanes(count * lanes)
    raw = m.here(f"load {register_type(part)}, ptr {address(m, buffer, base)}, align 1")
    turned = shuffle(m, raw, raw, part, [lane + lanes * k for lane in range(lanes) for k in range(count)])
    return m.pure(f"bitcast {register_type(part)} {turned} to {register_type(e.dtype)}", turned)


def _part(e: E.Call) -> DType:
    """One part of a word, as bits."""
    return DType(f"int{e.dtype.bits // len(e.args)}")


def _strided_places(m: Emitter, e: E.Call, step: int) -> tuple[S.Buffer, Linear, list[int]] | None:
    """The same for parts of a word that lie `step` apart."""
    first = e.args[0]
    if m.mask is not None or not isinstance(first, E.BufferLoad) or first.buffer in m.files:
        return None
    places = []
    for arg in e.args:
        if not isinstance(arg, E.BufferLoad) or arg.buffer is not first.buffer or arg.buffer.dtype.lanes > 1:
            return None
        pattern = _pattern(m, flat_index(arg.buffer, arg.indices))
        if pattern is None:
            return None
        places.append(pattern)
    base, offsets = places[0]
    for k, (other, others) in enumerate(places):
        moved = other.constant + others[0] - base.constant - offsets[0]
        alike = [x - others[0] for x in others] == [x - offsets[0] for x in offsets]
        if other.terms != base.terms or moved != k * step or not alike:
            return None
    return first.buffer, Linear(dict(base.terms), base.constant + offsets[0]), [x - offsets[0] for x in offsets]


def _pattern(m: Emitter, index: E.Expr) -> tuple[Linear, list[int]] | None:
    if index.dtype.lanes > 1:
        return lane_pattern(m, index)
    return linear(m, index), [0]


def _joined(m: Emitter, e: E.Call) -> str:
    """Parts that come from anywhere: neighbours interleaved, until they are words."""
    lanes, values, bits = e.dtype.lanes, [m.value(a) for a in e.args], _part(e).bits
    if lanes == 1:
        kind = f"i{e.dtype.bits}"
        wide = [m.pure(f"zext i{bits} {v} to {kind}", v) for v in values]
        parts = [m.pure(f"shl {kind} {v}, {bits * k}", v) if k else v for k, v in enumerate(wide)]
        for part in parts[1:]:
            parts[0] = m.pure(f"or {kind} {parts[0]}, {part}", parts[0], part)
        return parts[0]
    order = [k // 2 + lanes * (k % 2) for k in range(2 * lanes)]
    while len(values) > 1:
        kind, joined = DType(f"int{bits}").with_lanes(lanes), []
        bits *= 2
        for a, b in zip(values[::2], values[1::2], strict=True):
            both = shuffle(m, a, b, kind, order)
            joined.append(m.pure(f"bitcast <{2 * lanes} x i{bits // 2}> {both} to <{lanes} x i{bits}>", both))
        values = joined
    return values[0]
