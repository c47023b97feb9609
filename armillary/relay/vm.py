"""`relay.vm`: programs whose shapes are known when they are called, compiled once for each set of them.

In: a module, a target, parameters. Out: an `Executable`, which `runtime.vm.VirtualMachine(executable, device)` calls.
Invariant: there is no virtual machine with instructions of its own: an executable is the executor of kind "vm"
(driver/executor.py) of each function that is asked for, and lives as long as its process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from armillary.base.aliases import AnyFunction
from armillary.base.boundary import boundary, bounded
from armillary.base.lazy import deferred
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ir import BaseFunc, IRModule
from armillary.relay.expr import Function

with deferred():
    from armillary.driver.executor import create_executor as _create_executor
    from armillary.target import as_target as _as_target

if TYPE_CHECKING:
    from armillary.runtime import Device

Params = Mapping[str, object]  # numpy arrays or NDArrays


@bounded
class Executable:
    """The functions of a module, compiled when they are called; parameters are those of main."""

    def __init__(self, module: IRModule, target: object, params: Params | None) -> None:
        self.mod, self.target, self.params = module, target, dict(params or {})

    def function(self, name: str, device: Device) -> tuple[list[str], AnyFunction]:
        """The names of a function's arguments, without those that are parameters, and a callable."""
        found = {v.name_hint: (v, f) for v, f in self.mod.functions.items()}
        if name not in found:
            raise TypeMismatch(f"the executable has no function {name!r}; it has: {', '.join(sorted(found))}")
        variable, function = found[name]
        if not isinstance(function, Function):
            raise TypeMismatch(f"{name!r} is a {type(function).__name__}, wanted a graph function")
        params = self.params if name == "main" else {}
        made = _create_executor("vm", mod=self.mod, device=device, target=self.target, params=params)
        call = made.evaluate() if name == "main" else made.evaluate(variable)
        return [p.name_hint for p in function.params if p.name_hint not in params], call

    def save(self) -> None:
        """Refused: what is compiled depends on the shapes of calls."""
        raise UnsupportedError("an executable is not saved", hint="relay.build and export_library, with known shapes")


@boundary("relay.vm.compile", arguments=True)
def compile(
    mod: IRModule | Function, target: object = "llvm", target_host: object = None, params: Params | None = None
) -> Executable:
    """An executable of a module or a function. Kernels are made when it is called, for the shapes of that call."""
    del target_host  # the host is this one
    if isinstance(mod, Function):
        mod = IRModule.from_expr(mod)
    if not isinstance(mod, IRModule):
        raise TypeMismatch(f"relay.vm.compile: got {type(mod).__name__}, wanted a module or a function")
    functions: list[BaseFunc] = list(mod.functions.values())
    if not functions:
        raise TypeMismatch("relay.vm.compile: the module has no function")
    return Executable(mod, _as_target(target), params)
