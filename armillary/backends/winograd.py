"""The transforms of Winograd's convolution with kernels of 3x3, which every family of targets computes with.

In: the side of a tile of outputs. Out: `Matrices` in float64, rows of a transform as expressions (`pick_row`), which
weights may be transformed. Invariant: the points of F(4,3) keep the largest entry at 2.83 and a single layer's error at
about 5 times that of the direct sum (with +-1, +-2: 13 times). Users: backends/cpu/conv2d/winograd/operator.py,
backends/opencl/winograd/operator.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from armillary.base.record import record
from armillary.ops._deferred import te
from armillary.relay.expr import Constant, Expr
from armillary.relay.op import Array, is_call
from armillary.transform import register_config_option

KERNEL = 3
MAX_TILE = register_config_option(
    "relay.WinogradConv2D.max_tile", int, 4, "largest Winograd tile (2, 4 or 6) the compiler may choose; 0: none"
)
_HALF, _TWO = 2**-0.5, 2**0.5
POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, _HALF, -_HALF, _TWO, -_TWO), 6: (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0)}


@record
class Matrices:
    """`output` (m x a), `weight` (a x 3) and `data` (a x a): Y = output [(weight g) * (data d)] in one dimension."""

    output: Array
    weight: Array
    data: Array


@cache
def matrices(tile: int) -> Matrices:
    """The transforms of F(tile, 3), in float64, by the Cook-Toom construction over POINTS and infinity."""
    points = np.array(POINTS[tile])
    count = len(points)
    output, weight = np.zeros((tile, count + 1)), np.zeros((count + 1, KERNEL))
    data = np.zeros((count + 1, count + 1))
    for j, point in enumerate(points):
        others = np.delete(points, j)
        output[:, j] = point ** np.arange(tile)
        weight[j] = point ** np.arange(KERNEL) / np.prod(point - others)
        data[j, :count] = np.poly(others)[::-1]
    output[-1, -1] = weight[-1, -1] = 1
    data[-1] = np.poly(points)[::-1]
    return Matrices(output, weight, data)


def pick_row(row: object, matrix: Array, value: Callable[[int], te.Expr]) -> te.Expr:
    """Row `row` (known after unrolling) of matrix @ value, as a choice between sums."""
    sums = row_sums(matrix, value)
    result = sums[-1]
    for index in reversed(range(len(sums) - 1)):
        result = te.select(row.equal(index) if hasattr(row, "equal") else row == index, sums[index], result)
    return result


def row_sums(matrix: Array, value: Callable[[int], te.Expr]) -> list[te.Expr]:
    """Each row of matrix @ value; rows share partial sums."""
    opposites = _opposites(matrix)
    return [_sum_of_pairs(c, opposites, value) if opposites else _sum(c, value) for c in matrix]


def _opposites(matrix: Array) -> list[int]:
    """Columns that are the next one but for signs: of the points p and -p, whose powers the output's transform has."""
    result: list[int] = []
    for column in range(matrix.shape[1] - 1):
        is_free = not result or result[-1] < column - 1
        if is_free and np.array_equal(np.abs(matrix[:, column]), np.abs(matrix[:, column + 1])):
            result.append(column)
    return result


def _sum_of_pairs(coefficients: Sequence[float], opposites: Sequence[int], value: Callable[[int], te.Expr]) -> te.Expr:
    """All rows share the sums and the differences of opposites: F(4,3) gives 4 values of 6 by 12 operations, not 20."""
    factors, values = [], []
    index = 0
    while index < len(coefficients):
        factor, is_pair = float(coefficients[index]), index in opposites
        if abs(factor) >= 1e-12:
            factors.append(factor)
            if not is_pair:
                values.append(value(index))
            elif factor * coefficients[index + 1] > 0:
                values.append(value(index) + value(index + 1))
            else:
                values.append(value(index) - value(index + 1))
        index += 1 + is_pair
    total = _weighted(factors, values)
    assert total is not None, "no row of a transform is zero"
    return total


def _weighted(factors: Sequence[float], values: Sequence[te.Expr]) -> te.Expr | None:
    total: te.Expr | None = None
    for factor, value in zip(factors, values, strict=True):
        term = value if factor == 1.0 else value * factor
        total = term if total is None else total + term
    return total


def _sum(coefficients: Sequence[float], value: Callable[[int], te.Expr]) -> te.Expr:
    """Even and odd terms apart: the rows of the points p and -p then share both partial sums."""
    even = _terms(coefficients, value, 0)
    odd = _terms(coefficients, value, 1)
    if even is None or odd is None:
        some = odd if even is None else even
        assert some is not None, "no row of a transform is zero"
        return some
    if _leading(coefficients, 1) > 0:
        return even + odd
    minus = _terms([-c for c in coefficients], value, 1)
    assert minus is not None, "as many as odd has"
    return even - minus


def _terms(coefficients: Sequence[float], value: Callable[[int], te.Expr], start: int) -> te.Expr | None:
    used = [i for i in range(start, len(coefficients), 2) if abs(coefficients[i]) >= 1e-12]
    return _weighted([float(coefficients[i]) for i in used], [value(i) for i in used])


def _leading(coefficients: Sequence[float], start: int) -> float:
    return next(float(c) for c in list(coefficients)[start::2][::-1] if abs(c) >= 1e-12)


def is_constant(expr: Expr) -> bool:
    """Whether fold-constant will evaluate it: a constant, perhaps behind changes of layout."""
    while is_call(expr, "layout_transform"):
        expr = expr.args[0]
    return isinstance(expr, Constant)


def is_whole(expr: Expr) -> bool:
    """Whether the weights are whole numbers: of a quantised network, whose sums are exact only without fractions.

    Zeros are not: with any algorithm their sums are zero. Networks that have not been trained often have them.
    """
    while is_call(expr, "layout_transform"):
        expr = expr.args[0]
    if not isinstance(expr, Constant):
        return True
    some = expr.some.reshape(-1)[:64]
    return bool((some == np.rint(some)).all() and (expr.data == np.rint(expr.data)).all() and expr.data.any())
