"""Arrays whose numbers wait in a file until somebody looks.

In: an open file and the place of an array in it, or arrays to put aside. Out: `Deferred`s that read their numbers at
each look, so that weights need memory one at a time. Invariant: the file stays open as long as one of its arrays is
there, whatever becomes of its name; a model file that was written to after it was opened is refused.
"""

from __future__ import annotations

import os
import tempfile
import weakref

import numpy as np

from armillary.base.aliases import Array, NumpyDtype
from armillary.base.aligned import Deferred, aligned_empty
from armillary.base.record import record
from armillary.errors import ModelError, Span

_READ_AT_ONCE = 1 << 30  # the system refuses 2 GB and more
_ASIDE_AT_MOST = 1 << 27  # bytes: writing them takes time, which the leanness of a large network is not worth


class HeldFile:
    """A descriptor of its own. With a name, the file is somebody else's, who may write to it."""

    def __init__(self, handle: int, name: str = "") -> None:
        self.handle, self.name = handle, name
        self._state = _state(handle)
        weakref.finalize(self, os.close, handle)

    def read_into(self, memory: memoryview, at: int) -> None:
        """Fill `memory` from byte `at` on."""
        done, count = 0, 1
        while done < len(memory) and count:
            count = os.preadv(self.handle, [memory[done : done + _READ_AT_ONCE]], at + done)
            done += count
        if done < len(memory) or (self.name and _state(self.handle) != self._state):
            raise ModelError(
                "the file was written to while it was being compiled", span=Span(self.name), hint="compile it again"
            )


def _state(handle: int) -> tuple[int, int]:
    status = os.fstat(handle)
    return status.st_size, status.st_mtime_ns


@record(slots=True)
class FilePart:
    """The bytes [begin, begin + nbytes) of a file."""

    file: HeldFile
    begin: int
    nbytes: int

    def read(self) -> Array:
        """All of them."""
        return self._read((self.nbytes,), np.dtype(np.uint8), self.begin)

    def stored(self, shape: tuple[int, ...], dtype: NumpyDtype) -> Deferred:
        """The array that they are, of at least one element."""
        kind = np.dtype(dtype)
        row = self.nbytes // shape[0]

        def rows(begin: int, end: int) -> Array:
            return self._read((end - begin, *shape[1:]), kind, self.begin + begin * row)

        return Deferred(shape, kind, lambda: self._read(shape, kind, self.begin), rows)

    def _read(self, shape: tuple[int, ...], dtype: NumpyDtype, begin: int) -> Array:
        array = aligned_empty(shape, dtype)
        self.file.read_into(array.reshape(-1).view(np.uint8).data, begin)
        array.flags.writeable = False
        return array


class Aside:
    """Takes arrays out of memory, to a temporary file without a name."""

    def __init__(self) -> None:
        self._file: HeldFile | None = None
        self._size, self._room = 0, _ASIDE_AT_MOST

    def put(self, array: Array) -> Array | Deferred:
        """A large array in the file; the array itself where the file takes no more (a full disk, a limit)."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        try:
            if self._file is None and self._room:
                self._file = _nameless()
                self._room = min(self._room, _free(self._file) // 2)
            if self._file is None or len(data) > self._room:
                return array
            self._write(self._file, data)
        except OSError:
            self._room = 0
            return array
        part = FilePart(self._file, self._size, len(data))
        self._size, self._room = self._size + len(data), self._room - len(data)
        return part.stored(array.shape, array.dtype)

    def _write(self, file: HeldFile, data: memoryview) -> None:
        done = 0
        while done < len(data):
            done += os.pwrite(file.handle, data[done:], self._size + done)


def _nameless() -> HeldFile:
    with tempfile.TemporaryFile(buffering=0) as stream:
        return HeldFile(os.dup(stream.fileno()))


def _free(file: HeldFile) -> int:
    status = os.fstatvfs(file.handle)
    return status.f_bavail * status.f_frsize
