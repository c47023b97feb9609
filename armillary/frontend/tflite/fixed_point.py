"""Functions of numbers in fixed point, as gemmlowp computes them for TFLite's reference kernels.

In: arrays of int64 that hold int32 numbers with some integer bits (Q5: five, 26 of fraction). Out: the same. Invariant:
every product is rounded as `high_product` does, every shift to the right as `divide_by_power` does, so that results
have the bits that the interpreter gives. Real factors become 31 bits and a shift (`multiplier_of`).
"""

from __future__ import annotations

import math

import numpy as np

from armillary.base.aliases import Array

_ONE, _MOST = 1 << 31, (1 << 31) - 1
_EXP_OF_EIGHTH, _THIRD = 1895147668, 715827883  # exp(-1/8) and 1/3 in Q0
_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)  # exp(-2**k) for k from -2 on, in Q0
_48_BY_17, _32_BY_17 = 1515870810, -1010580540  # in Q2
_STEPS = 3  # of Newton's method


def multiplier_of(factor: float) -> tuple[int, int]:
    """(31-bit multiplier, exponent of two) of a real factor."""
    if not factor > 0 or not math.isfinite(factor):
        return 0, 0
    mantissa, exponent = math.frexp(factor)
    multiplier = math.floor(mantissa * _ONE + 0.5)
    if multiplier == _ONE:
        multiplier, exponent = multiplier // 2, exponent + 1
    return (multiplier, exponent) if exponent >= -31 else (0, 0)


def high_product(a: Array, b: Array | int) -> Array:
    """The doubled upper half of a product, halves up."""
    product = np.asarray(np.multiply(a, b), np.int64)
    return np.asarray(np.minimum((product + (1 << 30)) >> 31, _MOST))


def divide_by_power(x: Array, exponent: int) -> Array:
    """x / 2**exponent, halves away from zero."""
    return x if exponent == 0 else np.asarray((x + (x >> 63) + (1 << (exponent - 1))) >> exponent)


def shifted_left(x: Array, bits: int) -> Array:
    """x * 2**bits, saturated to 32 bits."""
    return np.asarray(np.clip(x << bits, -_ONE, _MOST))


def scaled(x: Array, factor: float) -> Array:
    """x times a real factor, as the reference kernels multiply."""
    return times(x, *multiplier_of(factor))


def exp_below_zero(x: Array) -> Array:
    """exp of numbers in Q5 that are at most 0, in Q0."""
    quarter = 1 << 24
    rest = (x & (quarter - 1)) - quarter
    near = shifted_left(rest, 5) + (1 << 28)  # a series around -1/8
    squared = high_product(near, near)
    cubed, fourth = high_product(squared, near), high_product(squared, squared)
    tail = divide_by_power(high_product(divide_by_power(fourth, 2) + cubed, _THIRD) + squared, 1)
    result = _EXP_OF_EIGHTH + high_product(near + tail, _EXP_OF_EIGHTH)
    whole = rest - x
    for k, power in enumerate(_POWERS):
        result = np.where(whole & (quarter << k), high_product(result, power), result)
    return np.where(x == 0, _MOST, result)


def _newton(x: Array) -> Array:
    """2 / (1 + x) in Q2 of numbers in Q0 from 0 to 1."""
    half = (x + _MOST + 1) >> 1
    result = _48_BY_17 + high_product(half, _32_BY_17)
    for _ in range(_STEPS):
        error = (1 << 29) - high_product(half, result)
        result = result + shifted_left(high_product(result, error), 2)
    return np.asarray(result)


def reciprocal_of_one_plus(x: Array) -> Array:
    """1 / (1 + x) of numbers in Q0 from 0 to 1, in Q0."""
    return shifted_left(_newton(x), 1)


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)) of numbers in Q4, in Q0; Q5 holds them doubled."""
    above = reciprocal_of_one_plus(exp_below_zero(divide_by_power(-np.abs(x), 1)))
    return np.where(x == 0, 1 << 30, np.where(x > 0, above, _MOST - above))


def inverse_square_root(value: int) -> tuple[int, int]:
    """1 / sqrt of a whole number above 0, as (31-bit multiplier, exponent of two)."""
    if value <= 1:
        return _MOST, 0
    pairs = (32 - value.bit_length() - 1) // 2 - 1
    exponent, x = 11 - pairs, np.asarray(1 << 28, np.int64)  # in Q3
    data = np.asarray((value << 2 * pairs) >> 1, np.int64)
    half = divide_by_power(data, 1)
    for _ in range(5):
        cube = shifted_left(high_product(high_product(x, x), x), 6)
        x = shifted_left(high_product(x, 3 << 27) - high_product(half, cube), 3)
    multiplier = int(high_product(x, 1518500250))
    return (multiplier, -exponent) if exponent >= 0 else (multiplier << -exponent, 0)


def times(x: Array, multiplier: int, exponent: int) -> Array:
    """x times a multiplier of 31 bits and a power of two."""
    return divide_by_power(high_product(x << max(exponent, 0), multiplier), max(-exponent, 0))
