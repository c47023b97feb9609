"""`topi.sparse.csrmv`, `csrmm` and `dense`: products of a matrix in compressed rows (`contrib/sparse.py`).

In: a matrix of three tensors, a matrix, a bias for each row. Out: their product. Invariant: work is that of the
elements which are there; rows run one after the other in one stage.
"""

from __future__ import annotations

from typing import Protocol

from armillary import te, tir
from armillary.errors import TypeMismatch

Tensor = te.Tensor


class CompressedRows(Protocol):
    """What `contrib.sparse.placeholder` gives, which is above this layer."""

    stype: str
    shape: tuple[te.Index, ...]
    data: Tensor
    indices: Tensor
    indptr: Tensor


def _product(name: str, a: CompressedRows, x: Tensor, y: Tensor | None) -> Tensor:
    if getattr(a, "stype", None) != "csr" or x.ndim != 2 or (y is not None and y.ndim != 1):
        message = f"topi.sparse.{name}: wanted a matrix in compressed rows, a matrix and a bias of one dimension"
        raise TypeMismatch(message, hint="contrib.sparse.placeholder makes the first")
    rows, columns, dtype = a.shape[0], x.shape[1], str(a.data.dtype)

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
        ib = tir.ir_builder.create()
        data, indices, starts, other, *rest = (ib.buffer_ptr(b) for b in ins)
        out = ib.buffer_ptr(outs[0])
        with ib.for_range(0, rows, name="row") as row:
            with ib.for_range(0, columns, name="column") as column:
                out[row, column] = tir.const(0, dtype) if not rest else rest[0][row]
            elements = ib.for_range(starts[row], starts[row + 1], name="element")
            with elements as at, ib.for_range(0, columns, name="column") as column:
                out[row, column] = out[row, column] + data[at] * other[indices[at], column]
        result: tir.Stmt = ib.get()
        return result

    operands = [a.data, a.indices, a.indptr, x, *([] if y is None else [y])]
    result: Tensor = te.extern((rows, columns), operands, body, dtype=dtype, name=name, tag=name)
    return result


def csrmv(a: CompressedRows, x: Tensor, y: Tensor | None = None) -> Tensor:
    """A matrix in compressed rows by a column (k, 1), a bias (rows,) added: (rows, 1)."""
    return _product("csrmv", a, x, y)


def csrmm(a: CompressedRows, b: Tensor, c: Tensor | None = None) -> Tensor:
    """A matrix in compressed rows by a matrix (k, n), a bias (rows,) added: (rows, n)."""
    return _product("csrmm", a, b, c)


def is_compressed(value: object) -> bool:
    """Whether a matrix is given in compressed rows."""
    return getattr(value, "stype", None) == "csr"


def sparse_dense(data: CompressedRows | Tensor, weight: CompressedRows | Tensor, bias: Tensor | None = None) -> Tensor:
    """`topi.sparse.dense`: [n, k] by a weight [m, k], one of the two in compressed rows, a bias along m: [n, m]."""
    sparse, other = (data, weight) if is_compressed(data) else (weight, data)
    if not is_compressed(sparse) or not isinstance(other, te.Tensor) or other.ndim != 2:
        message = "topi.sparse.dense: wanted one matrix in compressed rows and one tensor of two dimensions"
        raise TypeMismatch(message, hint="contrib.sparse.placeholder makes the first")
    if isinstance(sparse, te.Tensor) or (bias is not None and bias.ndim != 1):
        raise TypeMismatch("topi.sparse.dense: wanted a bias of one dimension")
    is_data, dtype = sparse is data, str(sparse.data.dtype)
    shape = (data.shape[0], weight.shape[0])

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
        ib = tir.ir_builder.create()
        values, indices, starts, dense, *rest = (ib.buffer_ptr(b) for b in ins)
        out = ib.buffer_ptr(outs[0])
        with ib.for_range(0, shape[0], name="i") as i, ib.for_range(0, shape[1], name="j") as j:
            out[i, j] = tir.const(0, dtype) if not rest else rest[0][j]
            row, place = (i, j) if is_data else (j, i)
            with ib.for_range(starts[row], starts[row + 1], name="element") as at:
                out[i, j] = out[i, j] + values[at] * dense[place, indices[at]]
        result: tir.Stmt = ib.get()
        return result

    operands = [sparse.data, sparse.indices, sparse.indptr, other, *([] if bias is None else [bias])]
    result: Tensor = te.extern(shape, operands, body, dtype=dtype, name="sparse_dense", tag="sparse_dense")
    return result


FUNCTIONS = {"csrmv": csrmv, "csrmm": csrmm}
