"""Objects loaded into this process without a linker.

In: object files (bytes). Out: addresses of their symbols. Invariant: code stays loaded as long as the `LoadedObjects`
lives; an unknown symbol, or a foreign function that this process does not have, is an ExecutionError.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence

import llvmlite.binding as llvm

from armillary.codegen import machine
from armillary.errors import ExecutionError
from armillary.target.cpu import llvm_cpu
from armillary.target.target import Target

_HOST = Target("llvm")


class LoadedObjects:
    """Object files in memory, relocated and executable."""

    def __init__(self, objects: Sequence[bytes], externs: Iterable[str] = ()) -> None:
        _check_externs(externs)
        found = llvm_cpu(_HOST)
        tm = llvm.Target.from_triple(found.triple) if machine.machine(found.triple, found.cpu, found.features) else None
        assert tm is not None, "LLVM knows the host"
        module = llvm.parse_assembly("")
        module.triple = found.triple
        self._engine = llvm.create_mcjit_compiler(module, tm.create_target_machine(reloc="pic"))
        self._parts = [llvm.ObjectFileRef.from_data(data) for data in objects]
        for part in self._parts:
            self._engine.add_object_file(part)
        self._engine.finalize_object()

    def address(self, symbol: str) -> int:
        """The address of a function or object; ExecutionError if the objects do not define it."""
        found = int(self._engine.get_function_address(symbol)) or int(self._engine.get_global_value_address(symbol))
        if not found:
            raise ExecutionError(f"the loaded code has no symbol {symbol!r}")
        return found


def _check_externs(names: Iterable[str]) -> None:
    """LLVM ends the process on an unresolved symbol, so look before."""
    process = ctypes.CDLL(None)
    for name in names:
        if not hasattr(process, name) and not llvm.address_of_symbol(name):
            raise ExecutionError(
                f"the code calls {name!r}, which is not in this process",
                hint="load its library first: ctypes.CDLL(path, ctypes.RTLD_GLOBAL)",
            )
