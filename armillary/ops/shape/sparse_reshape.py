"""sparse_reshape: the positions of a sparse tensor's elements, when the tensor has another shape.

In: positions (n, rank), the shape they are for, another shape, in which one size may be -1. Out: positions
(n, new rank), and the new shape without -1. Invariant: all three are values of the running program; positions are
moved, never checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np

from armillary.errors import TypeMismatch
from armillary.ops._types import ints
from armillary.ops.nn._windows import call, need_dtype, need_rank, reshape_to, same_dim, type_of
from armillary.relay.expr import Expr, Tuple, const
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, TupleType, Type

NAME = "sparse_reshape"
_INPUTS = ("sparse_indices", "prev_shape", "new_shape")
sparse_reshape = Op(NAME, kind=Kind.OPAQUE, inputs=_INPUTS, doc="Positions of elements in another shape.")


@sparse_reshape.infer
def _infer(attrs: None, sparse_indices: Type, prev_shape: Type, new_shape: Type) -> TupleType:
    at, old, new = need_rank(NAME, sparse_indices, 2), need_rank(NAME, prev_shape, 1), need_rank(NAME, new_shape, 1)
    need_dtype(NAME, at, old, new)
    if not at.dtype.is_int or not same_dim(at.shape[1], old.shape[0]):
        raise TypeMismatch(f"{NAME}: positions {at} for a shape {old}", hint="integers, one column for each axis")
    return TupleType((TensorType((at.shape[0], new.shape[0]), at.dtype), new))


@sparse_reshape.reference
def _reference(attrs: None, sparse_indices: Array, prev_shape: Array, new_shape: Array) -> tuple[Array, Array]:
    known = int(np.prod(np.where(new_shape < 0, 1, new_shape)))
    left = int(np.prod(prev_shape)) // known if known else 0  # as integers are divided by 0
    sizes = np.where(new_shape < 0, left, new_shape).astype(new_shape.dtype)
    flat = np.zeros(len(sparse_indices), np.int64)
    for column, size in zip(sparse_indices.T, prev_shape, strict=True):
        flat = flat * int(size) + column
    places: list[Array] = []
    for size in reversed(sizes[1:]):
        places.insert(0, flat % int(size) if size else np.zeros_like(flat))
        flat = flat // int(size) if size else np.zeros_like(flat)
    return np.stack([flat, *places], axis=1).astype(sparse_indices.dtype), sizes


@sparse_reshape.decompose
def _decompose(attrs: None, sparse_indices: Expr, prev_shape: Expr, new_shape: Expr) -> Expr:
    count, rank = type_of(sparse_indices).static
    dtype, new = str(type_of(new_shape).dtype), type_of(new_shape).static[0]
    before = [call("take", prev_shape, const(np.int32(k)), axis=0) for k in range(rank)]
    wanted = [call("take", new_shape, const(np.int32(k)), axis=0) for k in range(new)]
    zero, one = const(0, dtype), const(1, dtype)
    known = [call("where", size < zero, one, size) for size in wanted]
    left = call("floor_divide", _product(before), _product(known))
    sizes = [call("where", size < zero, left, size) for size in wanted]
    columns = [call("take", sparse_indices, const(np.int32(k)), axis=1) for k in range(rank)]
    flat = columns[0]
    for size, column in zip(before[1:], columns[1:], strict=True):
        flat = flat * size + column
    places: list[Expr] = []
    for size in reversed(sizes[1:]):
        places.insert(0, call("floor_mod", flat, size))
        flat = call("floor_divide", flat, size)
    moved = reshape_to(call("stack", (flat, *places), axis=-1), (count, new))
    return Tuple((moved, call("stack", tuple(sizes), axis=0)))


def _product(sizes: list[Expr]) -> Expr:
    """Of all sizes; of none, one."""
    return reduce(lambda a, b: a * b, sizes)


@sparse_reshape.samples
def _samples() -> Iterator[Sample]:
    at = ints([[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 2, 3]])
    yield Sample(None, (at, ints([2, 3, 6]), ints([9, 4])))
    yield Sample(None, (at.astype(np.int64), ints([2, 3, 6], "int64"), ints([2, -1, 6, 1], "int64")))


@sparse_reshape.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(None, (ints([[0, 0]]), ints([2, 3, 6]), ints([36])), "one column for each axis")
