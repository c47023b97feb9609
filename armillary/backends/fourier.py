"""Fourier transforms of 16 and 8 numbers as sparse sums, which every family of targets can compute with.

In: a size and a direction. Out: steps of a transform: rows of (index, factor), the terms of each sum, over the real
(2 j) and the imaginary (2 j + 1) part of each element; a row as an expression (`weighted_sum`). Invariant: every factor
has absolute value 1, so rounding errors are below those of a direct sum. Users: `operator.py` of
backends/cpu/conv2d/fourier, compute/functions/stages/fourier.py.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

from armillary.ops._deferred import E, te

SIDE = 16  # of a tile
HALF = SIDE // 2
FORMS = 3  # products for a complex one
RADIX = 4

Row = tuple[tuple[int, float], ...]  # (index, factor) of the terms of a sum
Value: TypeAlias = Callable[[int], "te.Expr"]


def steps(size: int, sign: int, present: int) -> tuple[tuple[Row, ...], ...]:
    """A complex transform in three steps with a radix of four; elements from `present` on are zero."""
    return radix_step(size, RADIX, sign, present), twiddle(size, RADIX, sign), last_step(size, RADIX, sign)


def _complex_rows(terms: Sequence[Sequence[tuple[int, complex]]]) -> tuple[Row, ...]:
    """Rows of real sums for rows of complex ones: (factor a + bi) x (re, im) = (a re - b im, b re + a im)."""
    rows: list[Row] = []
    for sums in terms:
        rows.append(tuple(t for j, f in sums for t in ((2 * j, f.real), (2 * j + 1, -f.imag))))
        rows.append(tuple(t for j, f in sums for t in ((2 * j, f.imag), (2 * j + 1, f.real))))
    return tuple(tuple((j, f) for j, f in row if abs(f) > 1e-12) for row in rows)


@cache
def radix_step(size: int, radix: int, sign: int, present: int) -> tuple[Row, ...]:
    """First step of a transform of `size`: place r * radix + k is the sum of i^(k j) x[r + j * size / radix].

    Elements from `present` on are zero.
    """
    step = size // radix
    return _complex_rows(
        [
            [
                (r + j * step, cmath.exp(sign * 2j * math.pi * j * k / radix))
                for j in range(radix)
                if r + j * step < present
            ]
            for r in range(step)
            for k in range(radix)
        ]
    )


@cache
def twiddle(size: int, radix: int, sign: int) -> tuple[Row, ...]:
    """Second step: place r * radix + k is turned by r k / size."""
    places = [(r, k) for r in range(size // radix) for k in range(radix)]
    return _complex_rows([[(r * radix + k, cmath.exp(sign * 2j * math.pi * r * k / size))] for r, k in places])


@cache
def last_step(size: int, radix: int, sign: int) -> tuple[Row, ...]:
    """Third step: element k + radix * l is the sum over r of the places r * radix + k, turned by r l radix / size."""
    rest = size // radix
    return _complex_rows(
        [
            [(r * radix + n % radix, cmath.exp(sign * 2j * math.pi * r * (n // radix) / rest)) for r in range(rest)]
            for n in range(size)
        ]
    )


@cache
def twist(sign: int) -> tuple[Row, ...]:
    """Complex element j turned by j / 32: between the roots of x^8 = i and those of x^8 = 1."""
    return _complex_rows([[(j, cmath.exp(sign * 1j * math.pi * j / SIDE))] for j in range(HALF)])


def weighted_sum(terms: Row, value: Value) -> te.Expr:
    """First with third terms, second with fourth: rows that differ in signs then share the partial sums."""
    halves = [terms[start::2] for start in range(min(2, len(terms)))]
    total, is_negative = _joined([_joined([_term(*t, value) for t in half]) for half in halves])
    result: te.Expr = total * -1.0 if is_negative else total
    return result


def _term(index: int, factor: float, value: Value) -> tuple[te.Expr, bool]:
    """The value times the size of its factor, and whether that is negative."""
    size = abs(factor)
    return (value(index) if abs(size - 1) < 1e-12 else value(index) * size), factor < 0


def _joined(parts: Sequence[tuple[te.Expr, bool]]) -> tuple[te.Expr, bool]:
    """The sum of signed parts or its opposite, whichever starts with a plus, and whether it is the opposite.

    Products by factors are added, with the factor's sign: a sum takes a product in, a difference does not.
    """
    (total, is_negative), *others = parts
    for part, minus in others:
        if minus == is_negative:
            total = total + part
        elif (opposite := _opposite(part)) is not None:
            total = total + opposite
        elif (opposite := _opposite(total)) is not None:
            total, is_negative = part + opposite, minus
        else:
            total = total - part
    return total, is_negative


def _opposite(product: te.Expr) -> te.Expr | None:
    """A product by a factor with another sign; None for what is none."""
    if isinstance(product, E.Mul) and isinstance(product.b, E.FloatImm):
        result: te.Expr = product.a * -product.b.value
        return result
    return None
