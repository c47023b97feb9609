"""Halves as the bits that memory has of them, for kernels that load early and widen late.

In: an expression of float32. Out: `bits_of_half`: the same choice among halves in memory and 0, as uint16; `widened`:
the float32 of such bits. Invariant: `widened(bits_of_half(x))` is x. A conversion waits for its load where it stands;
bits can be on their way while something else is computed.
"""

from __future__ import annotations

from armillary.base.dtype import DType
from armillary.tir import expr as E

_BITS, _HALF, _FLOAT = DType("uint16"), DType("float16"), DType("float32")


def bits_of_half(item: E.Expr) -> E.Expr | None:
    """The bits of a float32 that is a half in memory, or 0 where a test says so; None of all else."""
    if item.dtype.element != "float32":
        return None
    dtype = _BITS.with_lanes(item.dtype.lanes)
    match item:
        case E.Cast(value=E.BufferLoad() as load) if load.dtype.element == "float16":
            return E.Call(dtype, "reinterpret", (load,))
        case E.FloatImm(value=0.0) if str(item.value) == "0.0":
            return E.IntImm(_BITS, 0)
        case E.Broadcast(value=value, lanes=lanes):
            inside = bits_of_half(value)
            return None if inside is None else E.Broadcast(inside, lanes)
        case E.Call(name="if_then_else", args=(test, yes, no)) if test.dtype.lanes == 1:
            sides = bits_of_half(yes), bits_of_half(no)
            return None if None in sides else E.Call(dtype, "if_then_else", (test, *sides))  # type: ignore[arg-type]
    return None


def widened(bits: E.Expr) -> E.Expr:
    """The float32 of a half's bits."""
    lanes = bits.dtype.lanes
    return E.Cast(_FLOAT.with_lanes(lanes), E.Call(_HALF.with_lanes(lanes), "reinterpret", (bits,)))


def widened_bits(item: E.Expr) -> E.Expr | None:
    """The bits that `widened` was asked for; None of what it did not make."""
    match item:
        case E.Cast(value=E.Call(name="reinterpret", args=(bits,)) as half):
            is_widened = bits.dtype.element == "uint16" and half.dtype.element == "float16"
            return bits if is_widened and item.dtype.element == "float32" else None
    return None
