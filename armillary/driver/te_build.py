"""`armillary.lower` and `armillary.build`: TE schedules and loop functions, compiled without a graph.

In: a TE schedule with its arguments, PrimFuncs or a module of them, and a target. Out: a module of lowered loops
(`lower`), or a `FunctionLibrary` (`build`). Invariant: `build(s, args)` runs what `lower(s, args)` prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from armillary import te
from armillary.backends.base import backend_of, has_backend
from armillary.base.boundary import boundary
from armillary.base.functions import FUNCTIONS
from armillary.base.lazy import deferred
from armillary.codegen.workers.cache import default_cache
from armillary.driver.argument_buffers import argument_buffers
from armillary.driver.library import FunctionLibrary
from armillary.errors import TypeMismatch
from armillary.ir import IRModule
from armillary.target import Target
from armillary.target.grammar import BUILD, script_kind
from armillary.target.target import is_for_system_lib, target_with_host, warn_of_attributes
from armillary.tir.blocks.block import has_blocks
from armillary.tir.foreign.addresses import function_with_addresses
from armillary.tir.lower import lower_first, lower_function, passes_before_blocks
from armillary.tir.stmt import PrimFunc
from armillary.tir.transform.scripts import blocks, return_values
from armillary.tir.transform.scripts.arguments import settle_arguments

with deferred():
    from armillary.driver.devices.from_device import with_device_facts


@boundary("lower")
def lower(
    inputs: object,
    args: Sequence[object] | None = None,
    name: str = "main",
    binds: object = None,
    simple_mode: bool = False,
    *,
    target: object = None,
) -> IRModule:
    """The loops of a schedule as a module; `simple_mode` keeps them as a person wrote them (no loop partition).

    `inputs` is a te.Schedule (then `args` lists its tensors and variables; in `simple_mode`, which is for reading,
    outputs that it leaves out come last), a PrimFunc or a module of PrimFuncs;
    `target` chooses the rules that users registered for intrinsics. `binds` maps arguments to the buffers that say how
    they lie in memory (`tir.decl_buffer`). A dimension that one argument alone has may be 1 for any length.
    """
    if not isinstance(name, str):
        raise TypeMismatch(f"lower: the name is {type(name).__name__}, wanted a string")
    if isinstance(inputs, te.Schedule):
        if not isinstance(args, Sequence) or isinstance(args, str | bytes):
            got = "" if args is None else f", got {type(args).__name__}"
            raise TypeMismatch(f"lower: a schedule needs args=, the tensors the function takes, in order{got}")
        shown = _unnamed_outputs(inputs, args) if simple_mode and target is None else []
        buffers = argument_buffers(inputs, args, binds)
        loops = te.lower_schedule(inputs, [*args, *shown], name, buffers).with_attr("global_symbol", name)
        loops = settle_arguments(loops, _has_asserts(target))
        return IRModule({name: lower_function(loops, target=target, simple=simple_mode)})
    if isinstance(inputs, PrimFunc):
        label = inputs.get_attr("global_symbol", name)
        return IRModule({label: _lowered(inputs, target, simple_mode)})
    if isinstance(inputs, IRModule):
        return inputs.map_functions(lambda _, f: _lowered(f, target, simple_mode))
    raise TypeMismatch(f"lower takes a te.Schedule, PrimFunc or IRModule, got {type(inputs).__name__}")


def _unnamed_outputs(schedule: te.Schedule, args: Sequence[object]) -> list[te.Tensor]:
    """The outputs of a schedule that are not among the arguments."""
    numbers = {id(item.op.output(item.value_index)) for item in args if isinstance(item, te.Tensor)}
    outputs = (op.output(k) for op in schedule.outputs for k in range(op.num_outputs))
    return [tensor for tensor in outputs if id(tensor) not in numbers]


def _merged(modules: Sequence[object]) -> IRModule:
    """One module of several; names are theirs, and differ."""
    result = IRModule()
    for module in modules:
        if not isinstance(module, IRModule):
            raise TypeMismatch(f"build takes a list of modules, got {type(module).__name__} in it")
        twice = [name for name in module if name in result]
        if twice:
            raise TypeMismatch(f"build: two modules have a function {twice[0]!r}", hint="lower(..., name=...) names it")
        result.update(module)
    return result


def _complete(function: PrimFunc, target: object, simple: bool) -> PrimFunc:
    """A function for a code generator: what it returns is an output, its loops are lowered."""
    stored = return_values.return_values(function)
    return lower_first(stored, target) if _is_lowered(function) else _lowered(stored, target, simple)


def _lowered(function: PrimFunc, target: object, simple: bool) -> PrimFunc:
    had_blocks = has_blocks(function)
    plain = blocks.lower_blocks(function, passes_before_blocks()) if had_blocks else function
    settled = settle_arguments(function_with_addresses(plain), _has_asserts(target))
    return lower_function(settled, target=target, simple=simple, had_blocks=had_blocks)


def _has_asserts(target: object) -> bool:
    """Whether code for a target can stop where an argument does not fit; kernels of devices cannot."""
    return not isinstance(target, Target) or not has_backend(target) or not backend_of(target).device


def _is_lowered(function: PrimFunc) -> bool:
    """Whether the loop passes went over a function already: one of them says which shapes the caller sees."""
    return function.get_attr("tensor_shapes") is not None


@boundary("build")
def build(
    inputs: Any,
    args: Sequence[object] | None = None,
    target: object = None,
    target_host: object = None,
    runtime: object = None,
    name: str = "default_function",
    binds: Any = None,
) -> FunctionLibrary:
    """Compile a schedule (or what `lower` gave) for a target; `f(a, b, out)` then runs it on this machine.

    A function of a module is known by its symbol, and by its name in the module. `{target: module}` says the target.
    """
    if isinstance(inputs, Mapping) and not isinstance(inputs, IRModule):
        return _of_targets(inputs, args, target, target_host, name)
    if not isinstance(name, str):
        raise TypeMismatch(f"build: the name is {type(name).__name__}, wanted a string")
    where = warn_of_attributes(target_with_host(target, target_host))
    where = with_device_facts(where) if "from_device" in where.attrs else where
    if script_kind(where.kind.name) is not None:
        return _by_script(inputs, args, where, name, binds)
    backend = backend_of(where)
    is_simple = bool(backend.device)
    inputs = _merged(inputs) if isinstance(inputs, list | tuple) else inputs
    inputs = IRModule({inputs.get_attr("global_symbol", name): inputs}) if isinstance(inputs, PrimFunc) else inputs
    if isinstance(inputs, IRModule):
        module = inputs.map_functions(lambda _, f: _complete(f, where, is_simple) if isinstance(f, PrimFunc) else None)
    else:
        module = lower(inputs, args, name, binds, is_simple, target=where)
    symbols = _symbols({n: f for n, f in module.items() if isinstance(f, PrimFunc)})
    functions = {symbol: module[n] for n, symbol in symbols.items()}
    code = [backend.lower(f, n) for n, f in functions.items()]
    compiled = backend.build(code, where, cache=default_cache(), tir=functions)
    library = FunctionLibrary(where, compiled.objects, compiled.descriptor, compiled.externs, compiled.get_source)
    library.other_names = {n: symbol for n, symbol in symbols.items() if n not in functions}
    library.is_system_lib = is_for_system_lib(where, runtime)
    return library


def _by_script(
    inputs: object, args: Sequence[object] | None, target: Target, name: str, binds: object
) -> FunctionLibrary:
    """What the function that a script registered as `target.build.<kind>` makes of the lowered module."""
    result: FunctionLibrary = FUNCTIONS[f"{BUILD}{target.kind.name}"](lower(inputs, args, name, binds), target)
    return result  # or whatever the script makes


def _symbols(functions: Mapping[str, PrimFunc]) -> dict[str, str]:
    """The symbol of each function; its name in the module where it has none, or shares it."""
    symbols = {name: str(f.get_attr("global_symbol", name)) for name, f in functions.items()}
    counts = Counter(symbols.values())
    return {name: symbol if counts[symbol] == 1 else name for name, symbol in symbols.items()}


def _of_targets(
    modules: Mapping[object, object], args: object, target: object, host: object, name: str
) -> FunctionLibrary:
    """One library of modules by target; their targets are the same, or there is one."""
    if not modules or target is not None or args is not None:
        message = "no module" if not modules else "a target, or args, beside the modules by target"
        raise TypeMismatch(f"build: got {message}", hint="build({target: module})")
    libraries = [build(module, None, where, host, name=name) for where, module in modules.items()]
    for other in libraries[1:]:
        libraries[0].import_module(other)
    return libraries[0]
