"""Shape-specialised variants: one network, compiled for several shapes of its inputs, in one library.

In: a module whose entry functions are `main` and those marked `Variant=1` (`from_onnx(…, variants=…)`, or
`variants_of(modules)`), which compute the same for inputs of other shapes. Out: the entry functions, each to be
optimised for its own shapes. Invariant: they take inputs of the same names, and no two take the same shapes; kernels
and parameters that are equal exist once (driver/program_codegen.py). At run time: runtime/native/arm_variants.c. A
module that compiles a variant when its shapes are met first: contrib/variants.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ir import IRModule
from armillary.relay.expr import Function
from armillary.relay.types import Type

MARK = "Variant"


def entries(module: IRModule) -> list[str]:
    """Names of the functions that are compiled to run: main, then the variants."""
    marked = [name for name, f in module.items() if isinstance(f, Function) and f.get_attr(MARK, 0) and name != "main"]
    return ["main", *marked]


def single(module: IRModule, name: str) -> IRModule:
    """The module with one entry function, as its main; what it calls stays."""
    others = set(entries(module))
    result = IRModule({"main": module[name]})
    for key, function in module.items():
        if key not in others:
            result[key] = function
    return result


def variants_of(modules: Sequence[IRModule]) -> IRModule:
    """One module from several that compute the same for other shapes; each has a main and nothing else."""
    if not modules:
        raise TypeMismatch("there are no variants")
    result = IRModule({"main": modules[0]["main"]})
    for number, module in enumerate(modules[1:], 1):
        if len(module) != 1:
            raise UnsupportedError(f"variant {number} has {len(module)} functions", hint="inline them into main")
        result[f"main_{number}"] = module["main"].with_attr(MARK, 1)
    check_variants([result[name] for name in entries(result)])
    return result


def check_variants(mains: Sequence[Function]) -> None:
    """Same names of inputs, same number of results, different shapes."""
    seen: dict[tuple[Type, ...], int] = {}
    for number, main in enumerate(mains):
        names = [[p.name_hint for p in f.params] for f in (mains[0], main)]
        if names[0] != names[1]:
            raise TypeMismatch(f"variant {number} takes {', '.join(names[1])}; the first takes {', '.join(names[0])}")
        key = tuple(p.checked_type for p in main.params)
        if key in seen:
            shapes = ", ".join(f"{p.name_hint}: {p.checked_type}" for p in main.params)
            raise TypeMismatch(f"variants {seen[key]} and {number} take the same shapes: {shapes}")
        seen[key] = number


def each_variant(module: IRModule, change: Callable[[IRModule], IRModule]) -> IRModule:
    """`change` applied to every entry function, each as the main of a module of its own."""
    names = entries(module)
    if len(names) == 1:
        return change(module)
    check_variants([module[name] for name in names])
    result = IRModule()
    for name in names:
        changed = change(single(module, name))
        if len(changed) != 1:
            raise UnsupportedError(
                f"{name}: functions that variants call by name are not supported", hint="inline them"
            )
        result[name] = changed["main"] if name == "main" else changed["main"].with_attr(MARK, 1)
    return result
