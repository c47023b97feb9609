"""Functions of Relay-era scripts that are not one operator: other argument orders, and combinations.

In: what scripts pass. Out: calls of operators. `FUNCTIONS` maps the user's name to the function; a name found there is
preferred to the operator of that name. Invariant: no arithmetic here, only calls of operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.base.boundary import boundary
from armillary.errors import TypeMismatch
from armillary.ops.misc.compositions import FUNCTIONS as COMPOSITIONS
from armillary.ops.misc.random import FUNCTIONS as RANDOM
from armillary.ops.misc.sparse import FUNCTIONS as SPARSE
from armillary.ops.nn.pad import pad as pad_op
from armillary.ops.reduce.reduce import all_, any_, max_, mean, min_, std, variance
from armillary.ops.shape.indexing import gather as gather_op
from armillary.ops.shape.shape import reshape
from armillary.ops.shape.slice import strided_slice
from armillary.ops.shape.transform import broadcast_to
from armillary.ops.shape.value_sized import sparse_fill_empty_rows as fill_empty_rows
from armillary.ops.shape.writes import matrix_set_diag as matrix_set_diag_op
from armillary.ops.shape.writes import sparse_to_dense as sparse_to_dense_op
from armillary.relay.expr import Expr, Tuple, TupleWrapper, as_expr, has_untyped
from armillary.relay.types import TensorType

Axis = int | Sequence[int] | None


def gather(data: Expr, axis: int, indices: Expr) -> Expr:
    """Elements along an axis, with the axis second as scripts pass it."""
    return gather_op(data, indices, axis)


def variance_of(
    data: Expr,
    axis: Axis = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
    with_mean: Expr | None = None,
) -> Expr:
    """The variance about the mean, or about `with_mean`."""
    centre = mean(data, axis, True, exclude) if with_mean is None else with_mean
    return variance(data, centre, axis, keepdims, exclude, unbiased)


def mean_variance(data: Expr, axis: Axis = None, keepdims: bool = False, exclude: bool = False) -> Expr:
    """A tuple of mean and variance."""
    return Tuple((mean(data, axis, keepdims, exclude), variance_of(data, axis, keepdims, exclude)))


def mean_std(data: Expr, axis: Axis = None, keepdims: bool = False, exclude: bool = False) -> Expr:
    """A tuple of mean and standard deviation."""
    return Tuple((mean(data, axis, keepdims, exclude), std(data, axis, keepdims, exclude)))


@boundary("meshgrid", arguments=True)
def meshgrid(data: Sequence[object], indexing: str = "ij") -> Expr:
    """Coordinate grids from vectors, as a tuple; indexing "xy" swaps the first two axes."""
    if indexing not in ("ij", "xy"):
        raise TypeMismatch(f"meshgrid: indexing {indexing!r}, wanted 'ij' or 'xy'")
    parts = [as_expr(part) for part in data]
    order = list(range(len(parts)))
    if indexing == "xy" and len(parts) > 1:
        order[0], order[1] = 1, 0
    sizes = [_length(part) for part in parts]
    shape = [0] * len(parts)
    for number, place in enumerate(order):
        shape[place] = sizes[number]
    grids = []
    for part, place in zip(parts, order, strict=True):
        column = [1] * len(parts)
        column[place] = -1
        grids.append(broadcast_to(reshape(part, tuple(column)), tuple(shape)))
    return Tuple(tuple(grids))


def _length(part: Expr) -> int:
    ty = part.checked_type
    if not isinstance(ty, TensorType) or ty.ndim > 1:
        raise TypeMismatch(f"meshgrid: got {ty}, wanted a vector or a scalar")
    return ty.size


@boundary("sparse_to_dense", arguments=True)
def sparse_to_dense(
    sparse_indices: Expr, output_shape: Expr | Sequence[int], sparse_values: Expr, default_value: Expr | float = 0
) -> Expr:
    """Values at positions, a number elsewhere; the shape is second, as scripts pass it."""
    values = as_expr(sparse_values)
    rest = as_expr(default_value, values)
    return sparse_to_dense_op(as_expr(sparse_indices), values, rest, output_shape=output_shape)


@boundary("matrix_set_diag", arguments=True)
def matrix_set_diag(data: Expr, diagonal: Expr, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT") -> Expr:
    """Matrices with the diagonals k, or from k[0] to k[1], replaced; align: where short ones of both halves start."""
    first, last = (k, k) if isinstance(k, int) else (int(k[0]), int(k[-1]))
    sides = align.split("_")
    if len(sides) != 2 or not {"LEFT", "RIGHT"}.issuperset(sides):
        raise TypeMismatch(f"matrix_set_diag: align {align!r}, wanted LEFT or RIGHT of each half, such as RIGHT_LEFT")
    return matrix_set_diag_op(data, diagonal, first, last, sides[0] == "RIGHT", sides[1] == "RIGHT")


def _is_bool(data: Expr) -> bool:
    ty = None if has_untyped(data) else data.checked_type
    return isinstance(ty, TensorType) and ty.dtype.is_bool


@boundary("min", arguments=True)
def min_of(data: Expr, axis: Axis = None, keepdims: bool = False, exclude: bool = False) -> Expr:
    """The least element; of bools: whether all hold."""
    return (all_ if _is_bool(data) else min_)(data, axis, keepdims, exclude)


@boundary("max", arguments=True)
def max_of(data: Expr, axis: Axis = None, keepdims: bool = False, exclude: bool = False) -> Expr:
    """The largest element; of bools: whether any holds."""
    return (any_ if _is_bool(data) else max_)(data, axis, keepdims, exclude)


def sparse_fill_empty_rows(
    sparse_indices: Expr, sparse_values: Expr, dense_shape: Expr, default_value: Expr
) -> TupleWrapper:
    """A sparse matrix with `default_value` in the first column of rows that had nothing, and which rows these are."""
    return TupleWrapper(fill_empty_rows(sparse_indices, sparse_values, dense_shape, default_value), 3)


def pad(
    data: Expr, pad_width: object = (), pad_value: object = 0.0, pad_mode: str = "constant"
) -> Expr:  # numbers or an expression
    """A border around the data; where a width is negative, that much of the data goes."""
    pairs = pad_width if isinstance(pad_width, list | tuple) else ()
    width = [tuple(pair) if isinstance(pair, list | tuple) else () for pair in pairs]
    is_known = all(len(pair) == 2 and all(isinstance(w, int) for w in pair) for pair in width)
    cut = tuple(axis for axis, pair in enumerate(width) if is_known and min(pair) < 0)
    if not cut:
        return pad_op(data, pad_width, pad_value, pad_mode)
    ty = data.checked_type
    if not isinstance(ty, TensorType) or len(width) != ty.ndim:
        raise TypeMismatch(f"nn.pad: pad_width has {len(width)} pairs, the data is {ty}")
    begin, end = [max(0, -width[a][0]) for a in cut], list[int | None]()
    for axis, first in zip(cut, begin, strict=True):
        size, last = ty.shape[axis], min(0, width[axis][1])
        if isinstance(size, int) and size + last < first:
            raise TypeMismatch(f"nn.pad: pad_width {width[axis]} cuts more from axis {axis} than its {size} elements")
        end.append(size + last if isinstance(size, int) else last or None)
    rest = strided_slice(data, begin, end, (1,) * len(cut), cut)
    return pad_op(rest, tuple((max(b, 0), max(a, 0)) for b, a in width), pad_value, pad_mode)


FUNCTIONS: dict[str, Callable[..., Expr | TupleWrapper]] = {
    **COMPOSITIONS,
    **RANDOM,
    **SPARSE,
    "gather": gather,
    "max": max_of,
    "mean_std": mean_std,
    "mean_variance": mean_variance,
    "matrix_set_diag": matrix_set_diag,
    "meshgrid": meshgrid,
    "min": min_of,
    "nn.pad": pad,
    "sparse_fill_empty_rows": sparse_fill_empty_rows,
    "sparse_to_dense": sparse_to_dense,
    "std": std,
    "variance": variance_of,
}
