"""ATen's products of matrices and vectors.

In: tensors of any rank that the operator takes. Out: nn.dense, nn.batch_matmul, nn.matmul or einsum. Invariant:
integers are multiplied as they are; a weight that is transposed first stays where it lies (nn.dense takes it so).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from armillary.frontend.pytorch.rules.arithmetic import add, product_of, times
from armillary.frontend.pytorch.table import AtenCall, aten
from armillary.frontend.values import (
    Value,
    broadcast,
    broadcast_sizes,
    cast,
    dtype_of,
    op,
    promoted,
    rank_of,
    reshape_to,
    scalar,
    shape_of,
)
from armillary.relay.expr import Call, Expr, Tuple


def dense(x: Expr, weight: Expr) -> Expr:
    """x times the transpose of weight, over the last axis of x."""
    shape, units = shape_of(x), shape_of(weight)[0]
    flat = x if len(shape) == 2 else reshape_to(x, (_count(shape[:-1]), shape[-1]))
    result = op("nn.dense", flat, weight, units=units)
    return result if len(shape) == 2 else reshape_to(result, (*shape[:-1], units))


def _count(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _transposed(x: Expr) -> Expr:
    """The transpose of a matrix; of a transpose, the matrix itself."""
    is_transpose = isinstance(x, Call) and x.op.name == "transpose" and x.attrs.axes in (None, (1, 0))
    return x.args[0] if is_transpose and isinstance(x, Call) else op("transpose", x, axes=(1, 0))


def matrix_product(a: Expr, b: Expr) -> Expr:
    """Of two matrices."""
    if 0 in shape_of(a) or 0 in shape_of(b):
        return op("zeros", shape=(shape_of(a)[0], shape_of(b)[1]), dtype=dtype_of(a))
    return op("nn.dense", a, _transposed(b), units=shape_of(b)[1])


def batch_product(a: Expr, b: Expr) -> Expr:
    """Of two batches of matrices."""
    if 0 in shape_of(a) or 0 in shape_of(b):
        return op("zeros", shape=(*shape_of(a)[:2], shape_of(b)[2]), dtype=dtype_of(a))
    return op("nn.batch_matmul", a, b, transpose_b=False)


@aten("mm", "bmm", "dot", "mv", "vdot", "inner", "matmul", "__matmul__")
def matmul(call: AtenCall, a: Expr, b: Expr) -> Expr:
    """numpy's product: vectors get an axis and lose it, batches are broadcast."""
    if call.name.split(".")[1] == "inner":
        if not rank_of(a) or not rank_of(b):
            return op("multiply", a, b)
        if rank_of(b) > 1:
            return _inner(a, b)
    if dtype_of(a) == "bool":
        return cast(matmul(call, cast(a, "int32"), cast(b, "int32")), "bool")
    left = op("expand_dims", a, axis=0) if rank_of(a) == 1 else a
    right = op("expand_dims", b, axis=1) if rank_of(b) == 1 else b
    result = _product(left, right)
    shape = list(shape_of(result))
    if rank_of(b) == 1:
        del shape[-1]
    if rank_of(a) == 1:
        del shape[-1 if rank_of(b) == 1 else -2]
    return result if len(shape) == rank_of(result) else reshape_to(result, shape)


def _inner(a: Expr, b: Expr) -> Expr:
    flat = reshape_to(b, (_count(shape_of(b)[:-1]), shape_of(b)[-1]))
    return reshape_to(
        dense(a if rank_of(a) > 1 else op("expand_dims", a, axis=0), flat), (*shape_of(a)[:-1], *shape_of(b)[:-1])
    )


def _product(a: Expr, b: Expr) -> Expr:
    """Of tensors of two or more axes."""
    if rank_of(a) == rank_of(b) == 2:
        return matrix_product(a, b)
    if rank_of(b) == 2:
        rows = reshape_to(a, (_count(shape_of(a)[:-1]), shape_of(a)[-1]))
        return reshape_to(matrix_product(rows, b), (*shape_of(a)[:-1], shape_of(b)[-1]))
    batch = broadcast_sizes(shape_of(a)[:-2], shape_of(b)[:-2])
    (m, k), n = shape_of(a)[-2:], shape_of(b)[-1]
    count = _count(batch)
    left = reshape_to(broadcast(a, (*batch, m, k)), (count, m, k))
    right = reshape_to(broadcast(b, (*batch, k, n)), (count, k, n))
    return reshape_to(batch_product(left, right), (*batch, m, n))


@aten("addmm", "addmv", "baddbmm", "addbmm")
def add_product(call: AtenCall, x: Expr, a: Expr, b: Expr, beta: Value = 1, alpha: Value = 1) -> Expr:
    """beta x + alpha a b."""
    product: Expr = matmul(call, a, b)
    if call.name.split(".")[1] == "addbmm":
        product = op("sum", product, axis=(0,))
    product = times(product, alpha)
    if beta == 0:
        return product
    result: Expr = add(call, product, times(x, beta))
    return result


@aten("addr")
def add_outer(call: AtenCall, x: Expr, a: Expr, b: Expr, beta: Value = 1, alpha: Value = 1) -> Expr:
    product = times(outer(call, a, b), alpha)
    result: Expr = product if beta == 0 else add(call, times(x, beta), product)
    return result


@aten("outer", "ger")
def outer(call: AtenCall, a: Expr, b: Expr) -> Expr:
    return product_of(*promoted(op("expand_dims", a, axis=1), op("expand_dims", b, axis=0)))


@aten("_trilinear")
def trilinear(call: AtenCall, a: Expr, b: Expr, c: Expr, *axes: Sequence[int]) -> Expr:
    """The sums of products of three tensors, each with new axes first (`nn.Bilinear`)."""
    *added, summed = axes[:4]
    apart = [
        reduce(lambda data, place: op("expand_dims", data, axis=place), sorted(places), x)
        for x, places in zip((a, b, c), added, strict=True)
    ]
    product = op("multiply", op("multiply", *apart[:2]), apart[2])
    return op("sum", product, axis=tuple(summed)) if summed else product


@aten("linear")
def linear(call: AtenCall, x: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    if rank_of(weight) == 1:
        result: Expr = matmul(call, x, weight)
    elif rank_of(x) == 1:
        result = reshape_to(dense(op("expand_dims", x, axis=0), weight), (shape_of(weight)[0],))
    else:
        result = dense(x, weight)
    return result if bias is None else op("add", result, bias)


@aten("einsum")
def einsum(call: AtenCall, equation: str, tensors: Sequence[Expr], path: object = None) -> Expr:
    return op("einsum", Tuple(tuple(tensors)), equation=equation.replace(" ", ""))


@aten("grouped_mm_fallback", namespace="transformers")
@aten("_grouped_mm")
def grouped_product(call: AtenCall, x: Expr, weight: Expr, ends: Expr | None = None, *rest: Value) -> Expr:
    """Rows times the matrix of their group; the groups lie one after another and end where `ends` says.

    Rows behind the last end are zeros.
    """
    if any(v is not None and v != dtype_of(x) for v in rest) or rank_of(weight) != 3:
        call.refuse("a bias, a dtype or matrices of this rank")
    if rank_of(x) == 3 and ends is None:
        return batch_product(x, weight)
    if rank_of(x) != 2 or ends is None:
        call.refuse("groups of columns", "groups of rows: a matrix and three-dimensional weights")
    rows, groups = shape_of(x)[0], shape_of(weight)[0]
    row = reshape_to(op("arange", 0, rows, 1, dtype="int64"), (rows, 1))
    behind = op("greater_equal", row, reshape_to(cast(ends, "int64"), (1, groups)))
    group = op("sum", cast(behind, "int32"), axis=(1,))
    is_grouped = op("less", op("expand_dims", group, axis=1), scalar(groups, "int32"))
    return op("where", is_grouped, op("nn.grouped_dense", x, weight, group), scalar(0, dtype_of(x)))
