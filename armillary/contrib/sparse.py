"""Matrices in compressed rows: `sparse.array(a)`, and placeholders of their three parts.

In: an array, or (data, indices, indptr) and a shape. Out: a `CSRNDArray`, whose parts kernels take; a
`CSRPlaceholderOp`, whose parts loop programs read (`topi.sparse.csrmv`). Invariant: row i has the elements from
indptr[i] to indptr[i + 1], in the columns that `indices` says; indices are int32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary import te
from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.errors import TypeMismatch
from armillary.runtime.device import Device
from armillary.runtime.ndarray import NDArray
from armillary.runtime.ndarray import array as _array

Parts = tuple[NDArray, NDArray, NDArray]
_INDEX = "int32"


class CSRNDArray:
    """A matrix in compressed rows: `data`, `indices`, `indptr`, each an NDArray that may be replaced."""

    stype = "csr"

    def __init__(
        self,
        arg1: object,  # what numpy takes for a matrix, or three arrays
        device: Device | None = None,
        shape: Sequence[int] | None = None,
    ) -> None:
        """Of a matrix its elements other than 0; of three parts a matrix of `shape`.

        Raises TypeMismatch for other ranks, and for parts that are no matrix of that shape.
        """
        if isinstance(arg1, tuple):
            if len(arg1) != 3 or shape is None or len(shape) != 2:
                raise TypeMismatch("sparse.array: parts are (data, indices, indptr), with shape=(rows, columns)")
            self.data, self.indices, self.indptr = (_part(p, device) for p in arg1)
            self.shape: tuple[int, ...] = tuple(int(n) for n in shape)
            self._check()
            return
        matrix = np.asarray(arg1.numpy() if isinstance(arg1, NDArray) else arg1)
        if matrix.ndim != 2:
            raise TypeMismatch(f"sparse.array: an array of {matrix.ndim} dimensions, wanted 2")
        rows, columns = np.nonzero(matrix)
        starts = np.searchsorted(rows, np.arange(matrix.shape[0] + 1)).astype(_INDEX)
        self.data = _array(matrix[rows, columns], device)
        self.indices, self.indptr = _array(columns.astype(_INDEX), device), _array(starts, device)
        self.shape = matrix.shape

    def _check(self) -> None:
        starts, columns = self.indptr.numpy(), self.indices.numpy()
        fits = starts.shape == (self.shape[0] + 1,) and self.data.shape == self.indices.shape == (len(columns),)
        fits = fits and starts[0] == 0 and starts[-1] == len(columns) and bool((np.diff(starts) >= 0).all())
        if not fits or (len(columns) and not 0 <= columns.min() <= columns.max() < self.shape[1]):
            message = f"sparse.array: {self.data.shape} elements, rows from {starts.tolist()[:8]}"
            raise TypeMismatch(f"{message}, are no matrix of {list(self.shape)} in compressed rows")

    @property
    def dtype(self) -> str:
        """The type of an element."""
        return str(self.data.dtype)

    @property
    def device(self) -> Device:
        """Where the parts are."""
        return self.data.device

    def numpy(self) -> Array:
        """The matrix with its zeros. Raises TypeMismatch where parts do not fit any more."""
        self._check()
        result = np.zeros(self.shape, self.data.numpy().dtype)
        starts = self.indptr.numpy()
        result[np.repeat(np.arange(self.shape[0]), np.diff(starts)), self.indices.numpy()] = self.data.numpy()
        return result

    asnumpy = numpy


def _part(value: object, device: Device | None) -> NDArray:  # an NDArray, or what numpy takes for an array
    return value if isinstance(value, NDArray) else _array(np.asarray(value), device)


class CSRPlaceholderOp:
    """A matrix in compressed rows of a loop program: placeholders `data`, `indices` and `indptr`."""

    stype = "csr"

    def __init__(self, shape: Sequence[te.Index], nonzeros: te.Index, dtype: str, name: str) -> None:
        self.shape, self.dtype, self.name = tuple(shape), str(dtype), name
        self.data = te.placeholder((nonzeros,), self.dtype, name=f"{name}_data")
        self.indices = te.placeholder((nonzeros,), _INDEX, name=f"{name}_indices")
        rows = self.shape[0]
        starts = rows + 1 if isinstance(rows, int) else te.size_var(f"{name}_starts")  # a kernel binds variables only
        self.indptr = te.placeholder((starts,), _INDEX, name=f"{name}_indptr")


@boundary("sparse.array", arguments=True)
def array(
    source_array: object,  # a matrix, or its three parts
    device: Device | None = None,
    shape: Sequence[int] | None = None,
    stype: str = "csr",
) -> CSRNDArray:
    """A matrix in compressed rows. Raises as CSRNDArray, and TypeMismatch for another `stype` than "csr"."""
    _only_rows(stype)
    return CSRNDArray(source_array, device, shape)


@boundary("sparse.placeholder", arguments=True)
def placeholder(
    shape: Sequence[te.Index],
    nonzeros: te.Index | None = None,
    dtype: str | None = None,
    name: str = "placeholder",
    stype: str = "csr",
) -> CSRPlaceholderOp:
    """A matrix (rows, columns) in compressed rows with `nonzeros` elements, a variable where it is not given."""
    _only_rows(stype)
    if len(shape) != 2:
        raise TypeMismatch(f"sparse.placeholder: a shape of {len(shape)} dimensions, wanted 2")
    count = te.size_var(f"{name}_nonzeros") if nonzeros is None else nonzeros
    return CSRPlaceholderOp(shape, count, dtype or "float32", name)


def _only_rows(stype: str) -> None:
    if stype != "csr":
        raise TypeMismatch(f"sparse: the form {stype!r} is not known", hint="'csr', compressed rows")
