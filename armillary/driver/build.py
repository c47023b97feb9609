"""`relay.build`: a Relay module to a compiled network.

In: a module (or function), a target, parameters. Out: a `GraphLibrary`. The path, in order: bind parameters, graph
passes (relay/transform/pipeline.py), run program with its places (program_codegen.py), kernels (kernels.py), library.
Invariant: nothing is downloaded, nothing falls back silently: what cannot be compiled is an error that says why.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

from armillary.artifact.kernel import CompiledKernel
from armillary.artifact.outputs import ModelOutputs
from armillary.backends.base import backend_of
from armillary.backends.placement import DeviceTargets
from armillary.base.aligned import give_back_memory
from armillary.base.boundary import boundary
from armillary.base.lazy import deferred
from armillary.driver.kernels import (
    Progress,
    check_kernels,
    compile_kernels,
    kernel_groups,
    merge_rows,
    no_progress,
    sources_of,
)
from armillary.driver.libraries import report_of, split_libraries, stated_libraries, with_libraries
from armillary.driver.library import FunctionLibrary, GraphLibrary
from armillary.driver.program_codegen import plan_network
from armillary.driver.variants import each_variant, entries
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ir import IRModule
from armillary.program.to_graph import graph_of
from armillary.relay.analysis.bind_sizes import sizes_in
from armillary.relay.analysis.meeting_sizes import with_meeting_sizes
from armillary.relay.binding import bind_params_by_name
from armillary.relay.expr import Constant, Function
from armillary.relay.printer import astext
from armillary.relay.transform.normal_form._states import declare_states, states_of
from armillary.relay.transform.partition.partition_graph import FALLBACK
from armillary.relay.transform.pipeline import optimize as run_passes
from armillary.target import Target
from armillary.target.target import host_target, is_for_system_lib, links_params, target_with_host, warn_of_attributes
from armillary.transform import PassContext

with deferred():
    from armillary.driver import te_build
    from armillary.driver.aot import aot_library, is_aot, kernel_target
    from armillary.driver.devices.from_device import with_device_facts
    from armillary.driver.devices.script_kinds import compile_by_script
    from armillary.driver.offloaded import FallbackGraph, check_device, compiled_sources, without_library
    from armillary.ir.memory_pools import ConstantMemoryPools, WorkspaceMemoryPools
    from armillary.ops.shape.compared_sizes import with_compared_sizes
    from armillary.relay.analysis.usual_sizes import with_usual_sizes
    from armillary.relay.transform.over_devices import device_targets, optimized_over
Params = Mapping[str, Any]  # Any: numpy arrays or NDArrays


@boundary("relay.build")
def build(
    ir_mod: IRModule | Function,
    target: object = None,
    target_host: object = None,
    executor: object = None,
    runtime: object = None,
    workspace_memory_pools: WorkspaceMemoryPools | None = None,
    constant_memory_pools: ConstantMemoryPools | None = None,
    params: Params | None = None,
    mod_name: str = "default",
    *,
    progress: Progress = no_progress,
    states: Mapping[str, int | str] | None = None,
) -> GraphLibrary:
    """Compile a module for a target; the current PassContext switches and configures the passes.

    `target` is a string or a Target; None means the current target, or llvm. A {device: target} dict or a list of
    targets is a target for each device of the graph. Libraries may stand before it: "arm_compute_lib, llvm -mtriple=…".
    `states` {input: output}: that output, by number or name, is the input's value in the next run. Such an input need
    not be set, it is zero at first; the output is none any more.
    Pools of memory are for C packages (Executor("aot"), ir/memory_pools.py).
    Raises UnsupportedError for what no kernel or graph can express, TargetError for a target that cannot be built.
    """
    pools = workspace_memory_pools, constant_memory_pools
    if params is not None and not isinstance(params, Mapping):
        raise TypeMismatch(f"params are {type(params).__name__}, wanted a dictionary from names to arrays")
    libraries, target = split_libraries(target)
    where = _targets(target, target_host)
    is_package = is_aot(executor, where)
    if not is_package and any(pool is not None for pool in pools):
        raise UnsupportedError("memory pools are of C packages", hint='relay.build(…, "c", executor=Executor("aot"))')
    if is_package and isinstance(where, Target):
        where = kernel_target(where)
    for each in where.all if isinstance(where, DeviceTargets) else (where,):
        warn_of_attributes(each)
    if isinstance(where, Target) and "from_device" in where.attrs:
        where = with_device_facts(where)
    libraries = tuple(dict.fromkeys((*libraries, *stated_libraries(where))))
    progress("passes", 0, 1)
    module = with_libraries(declare_states(_as_module(ir_mod), states or {}), libraries, params, mod_name)
    report = report_of(module, libraries)
    module = with_meeting_sizes(module)
    if any(isinstance(function, Function) and sizes_in(function) for _, function in module.items()):
        module = with_compared_sizes(with_usual_sizes(module))
    module = optimized(module, where, params)
    progress("passes", 1, 1)
    give_back_memory()
    result = assembled(module, where, mod_name, progress)
    result.offload_report = report
    result.is_system_lib = is_for_system_lib(result.target, runtime)
    if not is_package:
        if links_params(result.target, executor):
            result.link_params()
        return result
    return aot_library(result, astext(_as_module(ir_mod)), _workspace_alignment(executor), *pools)


def _workspace_alignment(executor: object) -> int:
    options: Mapping[str, int] = getattr(executor, "options", None) or {}
    return int(options.get("workspace-byte-alignment") or 64)


def assembled(
    module: IRModule,
    targets: Target | DeviceTargets,
    mod_name: str = "default",
    progress: Progress = no_progress,
    compiler: Callable[..., dict[str, CompiledKernel]] = compile_kernels,
) -> GraphLibrary:
    """The library of a module that the graph passes have made; `compiler` is called as compile_kernels."""
    targets = targets if isinstance(targets, DeviceTargets) else DeviceTargets(targets)
    where, alignment = targets.main, max(backend_of(target).alignment for target in targets.all)
    main = where.kind.device_type if targets.others else 0
    fallback = partial(_fallback_graph, target=where) if PassContext.current().get(FALLBACK) else None
    mains = [module[name] for name in entries(module)]
    plan = plan_network(*mains, alignment=alignment, device=main, fallback=fallback)
    for sub_graph in plan.offloaded.values():
        check_device(sub_graph, backend_of(where).device)
    check_kernels(module, plan.kernels.values())
    groups = kernel_groups(plan.kernels.values(), targets)
    parts = {
        target: (compiler if target.kind.codegen else compile_by_script)(kernels, target, progress)
        for target, kernels in groups.items()
    }
    compiled = {name: kernel for part in parts.values() for name, kernel in part.items()}

    unwatched = PassContext.current().without_instruments()

    def source(form: str) -> str:
        with unwatched:  # the kernels are lowered again: as they were, whatever the context of the caller
            return astext(module) if form == "relay" else sources_of(groups, form)

    give_back_memory()
    externs = sorted({name for kernel in compiled.values() for name in kernel.externs})
    machine = [part for target, part in parts.items() if not backend_of(target).device]
    own = [kernel.code for part in machine for kernel in part.values() if kernel.code]
    objects = [*own, *(compiled_sources(plan.offloaded, host_target(where)) if plan.offloaded else ())]
    descriptor = merge_rows(parts, where, [sub_graph.row for sub_graph in plan.offloaded.values()])
    outputs = _outputs_of(mains[0])
    spec = graph_of(plan.program, {name: kernel.notes for name, kernel in compiled.items()})
    if len(outputs.names) == (spec.variants[0].heads[1] if spec.variants else len(spec.heads)):
        spec = dataclasses.replace(spec, outputs=outputs)  # else a pass has changed them
    return GraphLibrary(where, objects, descriptor, externs, source, spec.to_json(), plan.params, mod_name)


def _outputs_of(main: Function) -> ModelOutputs:
    """What the model calls its outputs, those left out that are states."""
    names, written = tuple(main.get_attr("output_names", ())), set(states_of(main).values())
    return ModelOutputs(tuple(name for n, name in enumerate(names) if n not in written))


def _fallback_graph(function: Function, target: Target) -> FallbackGraph:
    """Our own kernels for what a library computes: the function compiled as a network of its own."""
    module = optimized(without_library(function), target)
    plan = plan_network(module["main"], alignment=backend_of(target).alignment)
    params = tuple(Constant(data) for data in plan.params.values())  # the last inputs, in this order
    return FallbackGraph(graph_of(plan.program).to_json(), params, plan.kernels)


def optimized(module: IRModule, target: Target | DeviceTargets, params: Params | None = None) -> IRModule:
    """The module after parameters are bound and the build's graph passes have run."""
    if isinstance(target, DeviceTargets):
        if len(entries(module)) > 1:
            raise UnsupportedError("variants over several devices are refused", hint="compile one set of shapes")
        bound = module.copy()
        bound["main"] = bind_params_by_name(module["main"], params) if params else module["main"]
        return optimized_over(bound, target)

    def one(part: IRModule) -> IRModule:
        if params:
            part = part.copy()
            part["main"] = bind_params_by_name(part["main"], params)
        with target:
            return run_passes(part, target)

    return each_variant(module, one)


@boundary("relay.optimize")
def optimize(
    mod: IRModule | Function, target: object = None, params: Params | None = None
) -> tuple[IRModule, dict[str, Any]]:
    """`relay.optimize`: the module as it is after all graph passes, and the parameters (which are constants in it)."""
    return optimized(_as_module(mod), _targets(target, None), params), dict(params or {})


def _as_module(item: IRModule | Function) -> IRModule:
    if isinstance(item, IRModule):
        if "main" not in item:
            raise TypeMismatch("the module has no function main", hint="module['main'] = function")
        for name in entries(item):
            if isinstance(item[name], Function):
                _check_names(name, item[name])
        return item
    if isinstance(item, Function):
        return _as_module(IRModule.from_expr(item))
    raise TypeMismatch(f"relay.build takes an IRModule or a Function, got {type(item).__name__}")


def _check_names(name: str, function: Function) -> None:
    """Refuse parameters of one name, as inputs are set by name."""
    for param, count in Counter(p.name_hint for p in function.params).items():
        if count > 1:
            raise TypeMismatch(
                f"the function {name} has {count} parameters called %{param}, but inputs are set by name",
                span=function.span,
                hint="give each relay.var a name of its own",
            )


def _targets(target: object, host: object) -> Target | DeviceTargets:
    is_one = isinstance(target, Mapping) and "kind" in target  # a target as JSON has it
    if isinstance(target, Mapping | list | tuple) and not is_one:
        result = device_targets(target, host)
        if result.others:
            return result
        target = result.main
    chosen = target_with_host(target, host)
    backend_of(chosen)  # which refuses targets of families without one
    return chosen


class _AsFunction(ModuleType):
    """The module, callable: scripts write `driver.build(schedule, args, target)` for `armillary.build`."""

    def __call__(self, *args: object, **options: object) -> FunctionLibrary:
        return te_build.build(*args, **options)  # type: ignore[arg-type]


sys.modules[__name__].__class__ = _AsFunction
