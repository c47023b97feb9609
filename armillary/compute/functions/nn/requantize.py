"""Requantisation: sums of products in 32 bits to bytes of another scale.

In: sums, the scales and offset. Out: bytes, as the library's output stage for GEMMLowp computes them: a fixed-point
multiplier of 31 bits, the product rounded to nearest, then a shift that rounds halves away from zero. Invariant: every
bit is defined by integers; no float takes part after the multiplier was made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from armillary import relay
from armillary.compute.core.tensor_info import DataType, QuantizationInfo
from armillary.compute.functions.nn.body import Node
from armillary.errors import TypeMismatch


def fixed_point(multiplier: float) -> tuple[int, int]:
    """(31-bit multiplier, right shift; negative: left shift) of a positive number."""
    if not 0 < multiplier < 2**31:
        raise TypeMismatch(f"a scale ratio is {multiplier}, wanted above 0 and below 2^31")
    part, exponent = math.frexp(multiplier)
    fixed = math.floor(part * (1 << 31) + 0.5)
    if fixed == 1 << 31:
        fixed, exponent = fixed // 2, exponent + 1
    return fixed, -exponent


def limits(kind: DataType) -> tuple[int, int]:
    """The least and the largest stored value."""
    return (0, 255) if kind is DataType.QASYMM8 else (-128, 127)


def scale_ratio(input: float, weights: float, output: float) -> float:
    """By what sums are multiplied: input * weights / output in float32, as the library has it."""
    return float(np.float32(input) * np.float32(weights) / np.float32(output))


def requantized(
    sums: Node, ratios: Sequence[float], output: QuantizationInfo, kind: DataType, low: int, high: int
) -> Node:
    """`sums * ratio + output.offset`, rounded as the library rounds, clamped to [low, high].

    One ratio (`scale_ratio`), or one for each channel of an image (n, c, h, w).
    """
    multipliers, shifts = zip(*map(fixed_point, ratios), strict=True)
    lefts, rights = [max(0, -shift) for shift in shifts], [min(62, max(0, shift)) for shift in shifts]
    wide = relay.cast(sums, "int64")
    if any(lefts):
        factors = _by_channel([1 << left for left in lefts])
        wide = relay.clip(wide * factors, a_min=float(-(2**31)), a_max=float(2**31 - 1))
    value = relay.right_shift(wide * _by_channel(multipliers) + _int64(1 << 30), _int64(31))
    if any(rights):
        # half away from zero: what is negative is moved by one before halves go up
        moved = _by_channel([-1 if right else 0 for right in rights])
        fixup = relay.where(relay.less(value, _int64(0)), moved, _int64(0))
        halves = _by_channel([1 << (right - 1) if right else 0 for right in rights])
        value = relay.right_shift(value + fixup + halves, _by_channel(rights))
    clamped = relay.minimum(relay.maximum(value + _int64(output.offset), _int64(low)), _int64(high))
    return relay.cast(clamped, kind.dtype)


def _by_channel(values: Sequence[int]) -> Node:
    """A constant for all channels, or one for each."""
    if len(values) == 1:
        return _int64(values[0])
    return relay.const(np.array(values, np.int64).reshape(-1, 1, 1), "int64")


def _int64(value: int) -> Node:
    return relay.const(value, "int64")


def activation_limits(
    kind: DataType, output: QuantizationInfo, relu: bool, upper: float | None = None, lower: float = 0.0
) -> tuple[int, int]:
    """The stored values between which a clamping activation leaves the output."""
    low, high = limits(kind)
    if not relu:
        return low, high
    low = max(low, _stored(lower, output))
    return low, high if upper is None else min(high, _stored(upper, output))


def _stored(value: float, output: QuantizationInfo) -> int:
    return math.floor(value / output.scale + 0.5) + output.offset
