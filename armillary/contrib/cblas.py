"""Matrix products under the names of a BLAS: `cblas.matmul(A, B)`.

In: tensors of a loop program, or arrays that compiled code passes. Out: their product. Invariant: products of a loop
program are stages of its own kernel, so it runs where no BLAS is; only code that calls `contrib.cblas.*` by name while
it runs uses numpy's. Products of networks: `relay.nn.dense`, `relay.nn.batch_matmul`.
"""

from __future__ import annotations

import numpy as np

from armillary import te
from armillary.base.boundary import boundary
from armillary.base.functions import FUNCTIONS
from armillary.errors import TypeMismatch
from armillary.runtime.ndarray import NDArray
from armillary.te.tensor import Tensor


@boundary("cblas.matmul", arguments=True)
def matmul(lhs: Tensor, rhs: Tensor, transa: bool = False, transb: bool = False, dtype: str | None = None) -> Tensor:
    """The product of two matrices, either of them transposed; [n, k] x [k, m] -> [n, m] in `dtype`, else lhs's.

    Raises TypeMismatch for other ranks and lengths that differ.
    """
    return _product("cblas.matmul", lhs, rhs, transa, transb, dtype, 2)


@boundary("cblas.matmul_u8s8s32", arguments=True)
def matmul_u8s8s32(
    lhs: Tensor, rhs: Tensor, transa: bool = False, transb: bool = False, dtype: str = "int32"
) -> Tensor:
    """The product of a matrix of uint8 and one of int8, in int32."""
    if (str(lhs.dtype), str(rhs.dtype)) != ("uint8", "int8"):
        raise TypeMismatch(f"cblas.matmul_u8s8s32: {lhs.dtype} and {rhs.dtype}, wanted uint8 and int8")
    return _product("cblas.matmul_u8s8s32", lhs, rhs, transa, transb, dtype, 2)


@boundary("cblas.batch_matmul", arguments=True)
def batch_matmul(
    lhs: Tensor,
    rhs: Tensor,
    transa: bool = False,
    transb: bool = False,
    iterative: bool = False,
    dtype: str | None = None,
) -> Tensor:
    """A product for each batch: [b, n, k] x [b, k, m] -> [b, n, m]; `iterative` chose how a BLAS was called."""
    return _product("cblas.batch_matmul", lhs, rhs, transa, transb, dtype, 3)


def _product(name: str, lhs: Tensor, rhs: Tensor, transa: bool, transb: bool, dtype: str | None, rank: int) -> Tensor:
    for side in (lhs, rhs):
        if not isinstance(side, Tensor) or len(side.shape) != rank:
            raise TypeMismatch(f"{name}: got {side!r}, wanted tensors of {rank} dimensions")
    left, right = list(lhs.shape[-2:]), list(rhs.shape[-2:])
    rows, common = left[::-1] if transa else left
    inner, columns = right[::-1] if transb else right
    if str(common) != str(inner) or list(map(str, lhs.shape[:-2])) != list(map(str, rhs.shape[:-2])):
        raise TypeMismatch(f"{name}: {lhs.shape} and {rhs.shape} have no product (transa={transa}, transb={transb})")
    k, kind = te.reduce_axis((0, common), "k"), str(dtype or lhs.dtype)

    def element(*at: te.Expr) -> te.Expr:
        *batch, i, j = at
        a = lhs(*batch, k, i) if transa else lhs(*batch, i, k)
        b = rhs(*batch, j, k) if transb else rhs(*batch, k, j)
        return te.sum(a.astype(kind) * b.astype(kind), axis=k)

    return te.compute((*lhs.shape[:-2], rows, columns), element, name="matmul_cblas", tag="cblas")


def _run(lhs: NDArray, rhs: NDArray, out: NDArray, transa: int = 0, transb: int = 0, *_: int) -> None:
    """What compiled code calls: the product of arrays, by numpy's BLAS."""
    a, b = lhs.numpy().astype(out.dtype), rhs.numpy().astype(out.dtype)
    out.copyfrom(np.matmul(a.swapaxes(-1, -2) if transa else a, b.swapaxes(-1, -2) if transb else b))


for _prefix in ("armillary", "tvm"):
    for _name in ("matmul", "matmul_u8s8s32", "batch_matmul"):
        FUNCTIONS.setdefault(f"{_prefix}.contrib.cblas.{_name}", _run)
