"""Objects loaded into this process by LLVM: the loader for what `elf_loader.py` does not know.

In: object files (bytes). Out: addresses of their symbols. Invariant: code stays loaded as long as the object lives.
Importing this module loads LLVM (50 MB), so `jit.py` imports it only when it has to.
"""

from __future__ import annotations

from collections.abc import Sequence

import llvmlite.binding as llvm

from armillary.codegen.llvm import machine
from armillary.target.cpu import llvm_cpu
from armillary.target.target import Target

_HOST = Target("llvm")


class LlvmImage:
    """Object files in memory, relocated and executable."""

    def __init__(self, objects: Sequence[bytes]) -> None:
        cpu = llvm_cpu(_HOST)
        tm = llvm.Target.from_triple(cpu.triple) if machine.machine(cpu.triple, cpu.cpu, cpu.features) else None
        assert tm is not None, "LLVM knows the host"
        module = llvm.parse_assembly("")
        module.triple = cpu.triple
        self._engine = llvm.create_mcjit_compiler(module, tm.create_target_machine(reloc="pic"))
        self._parts = [llvm.ObjectFileRef.from_data(data) for data in objects]
        for part in self._parts:
            self._engine.add_object_file(part)
        self._engine.finalize_object()

    def address(self, symbol: str) -> int:
        """The address of a function or object; 0 if the objects do not define it."""
        return int(self._engine.get_function_address(symbol)) or int(self._engine.get_global_value_address(symbol))


def address_of(name: str) -> int:
    """The address of a function that was given to LLVM by name; 0 if there is none."""
    return int(llvm.address_of_symbol(name) or 0)
