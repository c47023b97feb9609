"""Memory of large arrays: starting at a cache line, so that kernels use them where they are, and given back when freed.

In: a shape and a numpy dtype, or an array. Out: a C-contiguous array whose memory starts at a multiple of ALIGNMENT.
Invariant: `aligned(a)` is `a` itself when it already is such an array; nothing is copied twice. `Deferred` stands for
an array that takes no memory at all until somebody looks, or writes it somewhere piece by piece.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.aliases import Array, NumpyDtype
from armillary.base.record import record
from armillary.errors import TypeMismatch

if TYPE_CHECKING:
    import numpy.typing as npt

ALIGNMENT = 64
_HUGE_PAGE = 1 << 21
_LARGE = 1 << 22  # bytes: as in runtime/native/arm_util.c
_HUGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
_SMALL_PAGES: int | None = getattr(mmap, "MADV_NOHUGEPAGE", None)
_PIECE = 1 << 20  # bytes: what is read, packed and written in turn stays in L2


class Values(np.ndarray[Any, Any]):  # Any: every shape and dtype
    """An array that scripts may take for a tensor of the runtime: what is computed with it is a plain array."""

    def __array_wrap__(self, array: Array, context: object = None, return_scalar: bool = False) -> Any:  # Any: numpy's
        plain = array.view(np.ndarray)
        return plain[()] if return_scalar or not plain.ndim else plain

    def numpy(self) -> Array:
        """A copy as a plain array."""
        return np.array(self)

    asnumpy = numpy


@record(eq=False)
class Deferred:
    """An array that is computed anew at each look: between two steps that need it, it takes no memory.

    One whose numbers come from a file has `rows`: `rows(begin, end)` gives those of the outermost axis, where both are
    multiples of `step`. It stays deferred until it is used or written; others should be looked at by the end of a pass.
    """

    shape: tuple[int, ...]
    dtype: NumpyDtype  # Any: as in Array
    compute: Callable[[], Array]
    rows: Callable[[int, int], Array] | None = None
    step: int = 1

    def __reduce__(self) -> tuple[object, ...]:
        """A pickle or a deep copy has the numbers."""
        return np.asarray, (self.compute(),)

    def pieces(self, limit: int = _PIECE) -> Iterator[Array]:
        """All rows in order, about `limit` bytes at a time."""
        rows, count = self.rows, self.shape[0]
        assert rows is not None, "only what has rows is read in pieces"
        most = max(limit * count // self.nbytes // self.step, 1) * self.step
        return (rows(begin, min(begin + most, count)) for begin in range(0, count, most))

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


def in_rows(shape: tuple[int, ...], dtype: NumpyDtype, rows: Callable[[int, int], Array], step: int = 1) -> Deferred:
    """An array by its rows; a look puts them together."""

    def compute() -> Array:
        whole, begin = aligned_empty(shape, dtype), 0
        for piece in result.pieces():
            whole[begin : begin + len(piece)] = piece
            begin += len(piece)
        return whole

    result = Deferred(shape, dtype, compute, rows, step)
    return result


def each_rows(source: Array | Deferred, width: int, dtype: npt.DTypeLike, change: Callable[[Array], Array]) -> Deferred:
    """Rows (n, width) that follow from those of `source` (n, …), a few at a time."""
    read = rows_of(source)
    return in_rows((source.shape[0], width), np.dtype(dtype), lambda b, e: change(read(b, e)), step_of(source))


def picked_rows(source: Array | Deferred, index: slice | Array) -> Array | Deferred:
    """Some rows in some order."""
    if not isinstance(source, Deferred):
        result: Array = source[index]
        return result
    read, count, step = rows_of(source), source.shape[0], step_of(source)
    order = np.arange(count)[index]

    def rows(begin: int, end: int) -> Array:
        places = order[begin:end]
        first = int(places.min()) // step * step
        last = min(-(-(int(places.max()) + 1) // step) * step, count)
        result: Array = read(first, last)[places - first]
        return result

    return in_rows((len(order), *source.shape[1:]), source.dtype, rows)


def looked_at(source: Array | Deferred) -> Array:
    """The numbers."""
    return source.compute() if isinstance(source, Deferred) else source


def rows_of(source: Array | Deferred) -> Callable[[int, int], Array]:
    """A function of begin and end; of what has no rows all are computed for each."""
    if isinstance(source, Deferred):
        return source.rows or (lambda begin, end: source.compute()[begin:end])
    return lambda begin, end: source[begin:end]


def step_of(source: Array | Deferred) -> int:
    """What begin and end are multiples of."""
    return source.step if isinstance(source, Deferred) else 1


def aligned_empty(shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
    """An uninitialised array."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if size >= _LARGE and _HUGE_PAGES is not None:
        memory = _mapped(size, _HUGE_PAGES)
    else:
        memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    result: Array = memory[start : start + size].view(kind).reshape(tuple(shape))
    return result


def aligned_zeros(shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
    """Zeros, of which each page takes memory once it is written."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if _SMALL_PAGES is not None:
        memory = _mapped(size, _SMALL_PAGES)
    else:
        memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    result: Array = memory[start : start + size].view(kind).reshape(tuple(shape))
    return result


def _mapped(size: int, advice: int) -> Array:
    """Bytes of a mapping of their own, with advice about all but the last part of a huge page."""
    try:
        mapping = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes: {error.strerror}") from None
    memory = np.frombuffer(mapping, np.uint8)
    start = -memory.ctypes.data % _HUGE_PAGE
    with contextlib.suppress(OSError):  # a hint: this kernel has none
        mapping.madvise(advice, start, size // _HUGE_PAGE * _HUGE_PAGE)
    return memory[start : start + size]


def aligned_copy(source: Array) -> Array:
    """A copy."""
    result = aligned_empty(source.shape, source.dtype)
    result[...] = source
    return result


def array_of(value: object, what: str) -> Array:
    """The array of a number, a sequence, or what another library holds; TypeMismatch where it does not give one."""
    try:
        has_form = hasattr(value, "__array__") or not hasattr(value, "numpy")
        return np.asarray(value if has_form else value.numpy())  # type: ignore[attr-defined]  # asked above
    except RecursionError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:  # such as a tensor of PyTorch that requires its gradient
        is_elsewhere = isinstance(error, RuntimeError | TypeError) and hasattr(value, "detach")
        hint = "pass x.detach().cpu()" if is_elsewhere else ""
        raise TypeMismatch(f"{what} cannot be made from {type(value).__name__}: {error}", hint=hint) from error


def in_native_order(source: Array) -> Array:
    """The array, or a copy of its values where its bytes are in another order than this machine's."""
    return source if source.dtype.isnative else source.astype(source.dtype.newbyteorder("="))


def aligned(source: Array) -> Array:
    """The array, or a copy if it starts elsewhere, is not contiguous, or has its bytes in another order."""
    source = in_native_order(source)
    is_fit = source.ctypes.data % ALIGNMENT == 0 and source.flags.c_contiguous
    return source if is_fit else aligned_copy(source)


def give_back_memory() -> None:
    """Return what was freed to the system: glibc keeps arrays of up to 32 MB, after ResNet-18's passes 58 MB in all."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
    if trim is not None:
        trim(0)
