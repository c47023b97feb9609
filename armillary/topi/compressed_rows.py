"""`topi.sparse.csrmv` and `csrmm`: products of a matrix in compressed rows (`contrib/sparse.py`).

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
        told = f"topi.sparse.{name}: wanted a matrix in compressed rows, a matrix and a bias of one dimension"
        raise TypeMismatch(told, hint="contrib.sparse.placeholder makes the first")
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
        made: tir.Stmt = ib.get()
        return made

    given = [a.data, a.indices, a.indptr, x, *([] if y is None else [y])]
    made: Tensor = te.extern((rows, columns), given, body, dtype=dtype, name=name, tag=name)
    return made


def csrmv(a: CompressedRows, x: Tensor, y: Tensor | None = None) -> Tensor:
    """A matrix in compressed rows by a column (k, 1), a bias (rows,) added: (rows, 1)."""
    return _product("csrmv", a, x, y)


def csrmm(a: CompressedRows, b: Tensor, c: Tensor | None = None) -> Tensor:
    """A matrix in compressed rows by a matrix (k, n), a bias (rows,) added: (rows, n)."""
    return _product("csrmm", a, b, c)


FUNCTIONS = {"csrmv": csrmv, "csrmm": csrmm}
