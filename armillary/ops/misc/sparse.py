"""nn.sparse_dense, _conv2d, _add and _transpose: matrices given by their non-zero elements, or blocks of them.

In: a matrix, and (data, indices, indptr) of another, by rows: CSR where data is a vector, BSR where it is (blocks,
rows, columns). Out: calls of operators. Invariant: what is not given is 0; elements given twice are added. The other
matrix is written out, in one scatter, and multiplied as a dense one: constant weights are so before the network runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from armillary.base.boundary import boundary
from armillary.errors import TypeMismatch
from armillary.ops.gradient.rules import op, tensor
from armillary.relay.expr import Constant, Expr, Tuple, TupleWrapper, as_expr

Parts = tuple[Expr, Expr, Expr]


def _parts(what: str, parts: Sequence[object]) -> Parts:
    """data, indices and indptr: three arguments, or a sequence of three."""
    items: Sequence[object] = parts
    if len(parts) == 1:
        only = parts[0]
        items = only.fields if isinstance(only, Tuple) else [getattr(only, n) for n in _FIELDS] if _has(only) else only  # type: ignore[assignment]
    if not isinstance(items, list | tuple) or len(items) != len(_FIELDS):
        raise TypeMismatch(f"{what}: the sparse matrix is {parts!r}", hint="pass (data, indices, indptr)")
    data, indices, indptr = (as_expr(item) for item in items)
    return data, indices, indptr


_FIELDS = ("data", "indices", "indptr")


def _has(item: object) -> bool:
    return not isinstance(item, list | tuple | Expr) and all(hasattr(item, name) for name in _FIELDS)


def _written_out(what: str, parts: Parts, columns: int) -> Expr:
    """The matrix with its zeros."""
    data, indices, indptr = parts
    values, starts = tensor(data), tensor(indptr)
    if values.ndim not in (1, 3) or starts.ndim != 1 or tensor(indices).shape != values.shape[:1]:
        message = f"data {values}, indices {tensor(indices)}, indptr {starts}"
        raise TypeMismatch(f"{what}: {message} are no matrix", hint="CSR: (n,), (n,), (rows + 1,); BSR: (n, r, c), …")
    count, *block = values.static
    high, wide = block or (1, 1)
    if columns % wide:
        raise TypeMismatch(f"{what}: {columns} columns are not whole blocks of {wide}")
    rows = starts.static[0] - 1
    numbers = op("arange", 0, count, 1, dtype="int32")
    begins = op("cast", indptr, dtype="int32")
    row = op("subtract", op("searchsorted", begins, numbers, right=True), Constant(np.ones((), np.int32)))
    place = op("stack", Tuple((row, op("cast", indices, dtype="int32"))), axis=0)
    shape = (rows, columns // wide, *block)
    zeros = op("full", Constant(np.zeros((), values.dtype.numpy)), shape=shape, dtype=str(values.dtype))
    result = op("scatter_nd", zeros, place, data, mode="add")
    if not block:
        return result
    return op("reshape", op("transpose", result, axes=(0, 2, 1, 3)), newshape=(rows * high, columns))


@boundary("nn.sparse_dense", arguments=True)
def sparse_dense(dense_mat: Expr, *sparse_mat: object, sparse_lhs: bool = False) -> Expr:
    """dense_mat times the transpose of the sparse matrix; `sparse_lhs`: the sparse one times that of dense_mat."""
    matrix = as_expr(dense_mat)
    if tensor(matrix).ndim != 2:
        raise TypeMismatch(f"nn.sparse_dense: dense_mat is {tensor(matrix)}", hint="a matrix")
    other = _written_out("nn.sparse_dense", _parts("nn.sparse_dense", sparse_mat), tensor(matrix).static[1])
    return op("nn.dense", other, matrix) if sparse_lhs else op("nn.dense", matrix, other)


@boundary("nn.sparse_conv2d", arguments=True)
def sparse_conv2d(dense_mat: Expr, *arguments: object, layout: str = "NHWC", kernel_size: int = 1) -> Expr:
    """The convolution with stride 1 that keeps the image's size: each row of the sparse matrix is one output's kernel.

    A row runs over (channel, y, x) where the data is NCHW, over (y, x, channel) where it is NHWC. `arguments` is the
    matrix, then layout and kernel size if they are not named.
    """
    what = "nn.sparse_conv2d"
    sparse_mat = [g for g in arguments if not isinstance(g, str | int)]
    named = [g for g in arguments if isinstance(g, str)], [g for g in arguments if isinstance(g, int)]
    layout, size = (named[0] or [layout])[0], (named[1] or [kernel_size])[0]
    image = as_expr(dense_mat)
    if layout not in ("NHWC", "NCHW") or tensor(image).ndim != len(layout):
        raise TypeMismatch(f"{what}: the data is {tensor(image)} in {layout!r}", hint="an image, NHWC or NCHW")
    if size < 1 or size % 2 == 0:
        raise TypeMismatch(f"{what}: kernel_size {size}, wanted an odd number")
    channels = tensor(image).static[layout.index("C")]
    matrix = _written_out(what, _parts(what, sparse_mat), channels * size * size)
    rows = tensor(matrix).static[0]
    if layout == "NCHW":
        weight, kernel = op("reshape", matrix, newshape=(rows, channels, size, size)), "OIHW"
    else:
        weight, kernel = op("reshape", op("transpose", matrix), newshape=(size, size, channels, rows)), "HWIO"
    border = (size // 2,) * 4
    layouts = {"data_layout": layout, "kernel_layout": kernel}
    return op("nn.conv2d", image, weight, padding=border, channels=rows, kernel_size=(size, size), **layouts)


@boundary("nn.sparse_add", arguments=True)
def sparse_add(dense_mat: Expr, *sparse_mat: object) -> Expr:
    """dense_mat plus the sparse matrix."""
    matrix = as_expr(dense_mat)
    columns = tensor(matrix).static[1]
    return op("add", matrix, _written_out("nn.sparse_add", _parts("nn.sparse_add", sparse_mat), columns))


@boundary("nn.sparse_transpose", arguments=True)
def sparse_transpose(*sparse_mat: object) -> TupleWrapper:
    """(data, indices, indptr) of the transpose of a square CSR matrix: its elements in the order of their columns."""
    what = "nn.sparse_transpose"
    data, indices, indptr = _parts(what, sparse_mat)
    values, starts = tensor(data), tensor(indptr)
    if values.ndim != 1:
        raise TypeMismatch(f"{what}: data is {values}", hint="CSR: one value for each element")
    count, size = values.static[0], starts.static[0] - 1
    numbers = op("arange", 0, count, 1, dtype="int32")
    begins = op("cast", indptr, dtype="int32")
    row = op("subtract", op("searchsorted", begins, numbers, right=True), Constant(np.ones((), np.int32)))
    column = op("cast", indices, dtype="int32")
    # by column, then by row: the order of elements that are by row already is kept by their number
    key = op("add", op("multiply", op("cast", column, dtype="int64"), _long(count)), op("cast", numbers, dtype="int64"))
    order = op("argsort", key, axis=0, is_ascend=True, dtype="int32")
    column_of = op("take", column, order, axis=0)
    ends = op("searchsorted", column_of, op("arange", 0, size + 1, 1, dtype="int32"))
    index = str(tensor(indices).dtype)
    taken = op("take", data, order, axis=0), op("cast", op("take", row, order, axis=0), dtype=index)
    return TupleWrapper(Tuple((*taken, op("cast", ends, dtype=index))), len(_FIELDS))


def _long(value: int) -> Expr:
    return Constant(np.asarray(value, np.int64))


FUNCTIONS: dict[str, Callable[..., Expr | TupleWrapper]] = {
    "nn.sparse_add": sparse_add,
    "nn.sparse_conv2d": sparse_conv2d,
    "nn.sparse_dense": sparse_dense,
    "nn.sparse_transpose": sparse_transpose,
}
