"""What rules ask of the values they get, and ATen's promotion of dtypes.

In: expressions of tensors and Python numbers. Out: their shapes and dtypes; the same values in one dtype. Invariant:
`result_dtype` is torch.result_type: tensors with dimensions decide, then tensors without, then numbers; a later group
counts only where it is of a higher category (bool, integer, float).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

import numpy as np

from armillary.base.dtype import DType
from armillary.base.extent import Extent
from armillary.errors import UnsupportedError
from armillary.ops._types import broadcast_shapes
from armillary.ops.nn._windows import call as op
from armillary.ops.nn._windows import reshape_to, type_of
from armillary.relay.expr import Expr, const
from armillary.relay.types import TensorType

Number = int | float | bool
Value = Any  # Any: an Expr, a number, None, a string, or a list of them
_FLOATS = ("float16", "bfloat16", "float32", "float64")
DEFAULT_FLOAT = "float32"


def is_tensor(value: object) -> TypeGuard[Expr]:
    """Whether a value is a tensor of the graph."""
    return isinstance(value, Expr)


def shape_of(x: Expr) -> tuple[int, ...]:
    """The sizes of a tensor.

    Open ones are extents, typed as the numbers that they stand for: most rules compute with both alike, and a rule that
    cannot is refused by the walk.
    """
    return type_of(x).known  # type: ignore[return-value]  # as the text above says


def rank_of(x: Expr) -> int:
    """The number of dimensions."""
    return type_of(x).ndim


def dtype_of(value: Value) -> str:
    """The dtype of a tensor, or the default one of a number."""
    if is_tensor(value):
        return str(type_of(value).dtype)
    if isinstance(value, complex):
        raise UnsupportedError(f"the complex number {value}: complex tensors are not supported")
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int | Extent) else DEFAULT_FLOAT


def category(dtype: str) -> int:
    """0 for bool, 1 for integers, 2 for floats."""
    return 0 if dtype == "bool" else 1 if dtype.lstrip("u").startswith("int") else 2


def is_float(value: Value) -> bool:
    """Whether a tensor or number is of a floating-point dtype."""
    return category(dtype_of(value)) == 2


def joined(a: str, b: str) -> str:
    """The dtype that two tensors of equal standing are promoted to."""
    if a == b:
        return a
    if category(a) != category(b):
        return a if category(a) > category(b) else b
    if category(a) == 1:
        return str(np.promote_types(a, b))
    return max(a, b, key=_FLOATS.index) if {a, b} != {"float16", "bfloat16"} else "float32"


def result_dtype(*values: Value) -> str:
    """The dtype that operands are promoted to."""
    groups: list[str | None] = [None, None, None]
    for value in values:
        place = (0 if rank_of(value) else 1) if is_tensor(value) else 2
        before, dtype = groups[place], dtype_of(value)
        groups[place] = dtype if before is None else joined(before, dtype)
    result: str | None = None
    for dtype_ in groups:
        if dtype_ is not None and (result is None or category(dtype_) > category(result)):
            result = dtype_
    assert result is not None, "there is an operand"
    return result


def cast(value: Value, dtype: str) -> Expr:
    """A tensor, or a number as one, in a dtype."""
    if is_tensor(value):
        if dtype_of(value) == dtype:
            return value
        if dtype == "bool":
            return op("not_equal", value, scalar(0, dtype_of(value)))
        return op("cast", value, dtype=dtype)
    return scalar(value, dtype)


def scalar(value: Number | Extent, dtype: str) -> Expr:
    """A constant without dimensions, or an open size as a tensor."""
    kind = DType(dtype)
    if isinstance(value, Extent):
        count = op("sizes", values=(value,), shape=(), dtype="int64")
        return count if dtype == "int64" else op("cast", count, dtype=dtype)
    if kind.is_int and not isinstance(value, bool) and math.isfinite(value):
        span = 1 << kind.bits
        wrapped = int(value) % span
        value = wrapped - span if kind.code == "int" and wrapped >= span // 2 else wrapped
    return const(np.array(value).astype(kind.numpy))


def promoted(*values: Value, at_least_float: bool = False) -> list[Expr]:
    """The operands in the dtype that they are promoted to."""
    dtype = result_dtype(*values)
    if at_least_float and category(dtype) < 2:
        dtype = DEFAULT_FLOAT
    return [cast(value, dtype) for value in values]


def as_float(x: Expr) -> Expr:
    """A tensor in a floating-point dtype: its own, or the default one."""
    return x if is_float(x) else cast(x, DEFAULT_FLOAT)


def axis_in(dim: int, rank: int) -> int:
    """A dimension counted from the front; a tensor without any counts as having one."""
    return dim % max(rank, 1)


def axes_in(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Dimensions counted from the front; none or nothing means all."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(rank))
    wanted = (dims,) if isinstance(dims, int) else dims
    return tuple(axis_in(int(d), rank) for d in wanted) if rank else ()


def repeated(value: int | Sequence[int] | None, count: int, default: Sequence[int] = ()) -> tuple[int, ...]:
    """One number for each of `count` axes: one may stand for all; nothing means `default`."""
    if value is None or (not isinstance(value, int) and len(value) == 0):
        return tuple(default)
    numbers = (value,) if isinstance(value, int) else tuple(int(v) for v in value)
    return numbers * count if len(numbers) == 1 else numbers


def broadcast_sizes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that shapes broadcast to."""
    return TensorType(broadcast_shapes("broadcast", *shapes), DType("bool")).known  # type: ignore[return-value]


def broadcast(x: Expr, shape: Iterable[int]) -> Expr:
    """A tensor repeated until it has the shape."""
    target = tuple(shape)
    return x if shape_of(x) == target else op("broadcast_to", x, shape=target)


__all__ = [
    "DEFAULT_FLOAT",
    "Number",
    "Value",
    "as_float",
    "axes_in",
    "axis_in",
    "broadcast",
    "broadcast_sizes",
    "cast",
    "category",
    "dtype_of",
    "is_float",
    "is_tensor",
    "joined",
    "op",
    "promoted",
    "rank_of",
    "repeated",
    "reshape_to",
    "result_dtype",
    "scalar",
    "shape_of",
    "type_of",
]
