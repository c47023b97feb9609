"""The steps of a build as objects, as Relay-era scripts have them: `BuildModule`, `GraphExecutorCodegen`, `VMCompiler`.

In: a module or a function, a target, parameters. Out: after `build` or `codegen`, the parts: graph, code, parameters.
Invariant: no step of its own: each calls `relay.build`, `relay.optimize` or `relay.vm.compile`. Their homes in scripts
are `relay.build_module`, `relay.backend.graph_executor_codegen` and `relay.vm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from armillary.base.aliases import Array
from armillary.base.boundary import bounded
from armillary.base.lazy import deferred
from armillary.driver.build import build, optimize
from armillary.driver.executor import Executable, Params, compile_executable
from armillary.driver.library import FunctionLibrary, GraphLibrary
from armillary.errors import ExecutionError
from armillary.ir import IRModule
from armillary.relay.expr import Function

with deferred():
    from armillary.ir.memory_pools import ConstantMemoryPools, WorkspaceMemoryPools

T = TypeVar("T")


def _done(result: T | None, step: str) -> T:
    """The result of a step; ExecutionError before it has run."""
    if result is None:
        raise ExecutionError(f"nothing was built yet: call {step} first")
    return result


@bounded
class BuildModule:
    """A build whose parts are asked for one by one; `set_params` holds for what is built next."""

    def __init__(self) -> None:
        self._library: GraphLibrary | None = None
        self._params: dict[str, object] = {}

    def build(
        self,
        mod: IRModule | Function,
        target: object = None,
        target_host: object = None,
        executor: object = None,
        runtime: object = None,
        workspace_memory_pools: WorkspaceMemoryPools | None = None,
        constant_memory_pools: ConstantMemoryPools | None = None,
        params: Params | None = None,
        mod_name: str | None = None,
    ) -> tuple[str, FunctionLibrary, dict[str, Array]]:
        """Build; the graph as JSON, the code, the parameters."""
        pools = (workspace_memory_pools, constant_memory_pools)
        values = {**self._params, **(params or {})}
        name = mod_name or "default"
        self._library = build(mod, target, target_host, executor, runtime, *pools, params=values, mod_name=name)
        return self.get_graph_json(), self.get_module(), self.get_params()

    def optimize(
        self, mod: IRModule | Function, target: object = None, target_host: object = None, params: Params | None = None
    ) -> tuple[IRModule, dict[str, object]]:
        """The module after all graph passes, and the parameters."""
        del target_host  # graph passes know the device's target alone
        return optimize(mod, target, params={**self._params, **(params or {})})

    def set_params(self, params: Params) -> None:
        """The parameters of what is built next."""
        self._params = dict(params)

    def get_json(self) -> str:
        """The graph, under its oldest name."""
        return self.get_graph_json()

    def get_graph_json(self) -> str:
        """The graph of what was built, as JSON."""
        return _done(self._library, "build").get_graph_json()

    def get_module(self) -> FunctionLibrary:
        """The code of what was built."""
        return _done(self._library, "build").get_lib()

    def get_params(self) -> dict[str, Array]:
        """The parameters of what was built, by their names in the graph."""
        return _done(self._library, "build").get_params()


@bounded
class GraphExecutorCodegen:
    """From a function to the graph that an executor runs: `codegen(module, function)` gives its parts."""

    def __init__(self, mod: IRModule | None = None, target: object = None) -> None:
        self._module, self._target = mod, next(iter(target.values())) if isinstance(target, Mapping) else target

    def codegen(
        self, ir_module: IRModule | Function, func: Function | None = None
    ) -> tuple[str, FunctionLibrary, dict[str, Array]]:
        """The graph as JSON, the library of its kernels, the parameters."""
        library = build(ir_module if func is None else func, self._target)
        return library.get_graph_json(), library.get_lib(), library.get_params()


@bounded
class VMCompiler:
    """An executable made in steps: `set_params`, `lower` (or `optimize`), `codegen`, `get_exec`."""

    def __init__(self) -> None:
        self._params: dict[str, object] = {}
        self._executable: Executable | None = None

    def set_params(self, params: Params) -> None:
        """The parameters of what is lowered next."""
        self._params = dict(params)

    def get_params(self) -> dict[str, object]:
        """The parameters that the build left, by name."""
        return self._params

    def lower(self, mod: IRModule | Function, target: object = None, target_host: object = None) -> None:
        """Take a module for a target; its kernels are made when it is called."""
        self._executable = compile_executable(mod, target or "llvm", target_host, self._params)

    def codegen(self) -> None:
        """Nothing is left to do after `lower`."""
        _done(self._executable, "lower")

    def optimize(
        self, mod: IRModule | Function, target: object = None, target_host: object = None, params: Params | None = None
    ) -> tuple[IRModule, dict[str, object]]:
        """The module after all graph passes, and the parameters."""
        del target_host  # graph passes know the device's target alone
        return optimize(mod, target, params={**self._params, **(params or {})})

    def get_exec(self) -> Executable:
        """What `runtime.vm.VirtualMachine` runs."""
        return _done(self._executable, "lower")
