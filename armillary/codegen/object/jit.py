"""Objects loaded into this process without a linker.

In: object files (bytes). Out: addresses of their symbols. Invariant: code stays loaded as long as the `LoadedObjects`
lives; an unknown symbol, or a foreign function that this process does not have, is an ExecutionError. x86-64 objects
are loaded by `elf_loader.py`; what it refuses, and other machines, by LLVM (`jit_llvm.py`).
"""

from __future__ import annotations

import ctypes
import importlib
import platform
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Protocol

from armillary.codegen.object.elf_loader import ElfImage
from armillary.codegen.object.elf_object import NotLoadable, foreign_symbols
from armillary.errors import ExecutionError


class _Image(Protocol):
    def address(self, symbol: str) -> int:
        """The address of a symbol, or 0."""


class LoadedObjects:
    """Object files in memory, relocated and executable."""

    def __init__(self, objects: Sequence[bytes], externs: Iterable[str] = ()) -> None:
        _check_externs(externs)
        self._image = _load(objects)

    def address(self, symbol: str) -> int:
        """The address of a function or object; ExecutionError if the objects do not define it."""
        result = self._image.address(symbol)
        if not result:
            raise ExecutionError(f"the loaded code has no symbol {symbol!r}")
        return result


def _load(objects: Sequence[bytes]) -> _Image:
    if platform.machine() == "x86_64" and sys.platform == "linux":
        try:
            return ElfImage(objects, _in_process)
        except NotLoadable:  # an object of another kind: LLVM knows them all
            return _llvm_image(objects)
    return _llvm_image(objects)


def _llvm_image(objects: Sequence[bytes]) -> _Image:
    _check_externs(sorted(foreign_symbols(objects)))  # MCJIT would call address 0
    image: _Image = _llvm_module().LlvmImage(objects)
    return image


def _llvm_module() -> ModuleType:  # the module armillary.codegen.object.jit_llvm, loaded late because it loads LLVM
    return importlib.import_module("armillary.codegen.object.jit_llvm")


def _in_process(name: str) -> int:
    """The address of a function of this process; 0 if there is none."""
    try:
        symbol = getattr(ctypes.CDLL(None), name)
    except AttributeError:
        return 0
    return ctypes.cast(symbol, ctypes.c_void_p).value or 0


def _check_externs(names: Iterable[str]) -> None:
    """LLVM ends the process on an unresolved symbol, or calls address 0, so look before."""
    for name in names:
        if not _in_process(name) and not _llvm_module().address_of(name):
            raise ExecutionError(
                f"the code calls {name!r}, which is not in this process",
                hint="load its library first: ctypes.CDLL(path, ctypes.RTLD_GLOBAL)",
            )
