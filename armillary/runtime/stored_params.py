"""Parameters that stay where they are stored until an executor reads them.

In: an open package file and the place of `mod.params` in it, or a module whose library holds a params blob. Out: the
parameters in an executor's own memory (`load`), as bytes (`read`), or one of them (`array`). Invariant: loading copies
each array once, to the place where it stays; the checksum of a package is verified by every `load` and `read`.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_int, c_size_t, c_uint32
from pathlib import Path
from typing import IO, TYPE_CHECKING

from armillary.artifact import load_params
from armillary.artifact.package import Member, read_member
from armillary.base.aliases import Array
from armillary.errors import ArtifactError, ExecutionError
from armillary.runtime.native_library import ErrorText, Handle, native

if TYPE_CHECKING:
    from collections.abc import Mapping


class StoredParams:
    """`mod.params` of a package; the file stays open, so replacing the package does no harm."""

    def __init__(self, stream: IO[bytes], member: Member, path: str | Path) -> None:
        self._stream = os.fdopen(os.dup(stream.fileno()), "rb")
        self._member, self._path = member, path

    def load(self, graph: int, error: ErrorText) -> int:
        """Read every array that the graph knows right into its place; returns how many."""
        count, crc = c_int(), c_uint32()
        file, place = self._stream.fileno(), (self._member.offset, self._member.size)
        status = native().arm_graph_read_params(graph, file, *place, byref(count), byref(crc), *error.args)
        if status != 0:
            self._explain(error)
        self._member.check(crc.value, self._path)
        return count.value

    def _explain(self, error: ErrorText) -> None:
        """A blob that cannot be read is most likely damaged: then the checksum says so."""
        text = error.text()
        if self._member.crc is not None:
            self.read()
        raise ArtifactError(f"{self._path}: {text}")

    def read(self) -> bytes:
        """The bytes of the parameters, read from where they are stored."""
        return read_member(self._stream, self._member, self._path)

    def array(self, name: str) -> Array:
        """The values of one parameter."""
        return _pick(load_params(self.read()), name)


class EmbeddedParams:
    """The blob inside a shared library."""

    def __init__(self, module: Handle) -> None:
        self._module = module

    @property
    def exists(self) -> bool:
        """Whether the library has one."""
        return native().arm_module_params(self._module.pointer, byref(c_size_t())) is not None

    def load(self, graph: int, error: ErrorText) -> int:
        """Copy every array that the graph knows to its place; returns how many."""
        count = c_int()
        error.check(native().arm_graph_load_embedded(graph, byref(count), *error.args), ArtifactError)
        return count.value

    def read(self) -> bytes:
        """The blob."""
        size, error = c_size_t(), ErrorText()
        error.check(native().arm_module_check_params(self._module.pointer, *error.args), ArtifactError)
        return ctypes.string_at(native().arm_module_params(self._module.pointer, byref(size)), size.value)

    def array(self, name: str) -> Array:
        """The values of one parameter."""
        return _pick(load_params(self.read()), name)


def _pick(params: Mapping[str, Array], name: str) -> Array:
    if name not in params:
        raise ExecutionError(f"the stored parameters have no {name!r}")
    return params[name]
