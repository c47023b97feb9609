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
from armillary.ops.reduce.reduce import mean, std, variance
from armillary.ops.shape.indexing import gather as gather_op
from armillary.ops.shape.shape import reshape
from armillary.ops.shape.transform import broadcast_to
from armillary.relay.expr import Expr, Tuple, TupleWrapper, as_expr
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


FUNCTIONS: dict[str, Callable[..., Expr | TupleWrapper]] = {
    **COMPOSITIONS,
    **RANDOM,
    **SPARSE,
    "gather": gather,
    "mean_std": mean_std,
    "mean_variance": mean_variance,
    "meshgrid": meshgrid,
    "std": std,
    "variance": variance_of,
}
