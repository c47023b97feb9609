"""Kernels whose code a script makes: `target.build.<kind>`, reached by the name of the target's kind.

In: kernels, and a target of a kind that a script brought (or `ext_dev`). Out: `CompiledKernel`s, as `driver/kernels.py`
gives them. Invariant: the function gets one module of all kernels' loops, after the passes over loops, and the target;
what it gives is a library that has a function of each kernel's name and arguments, which the host calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.artifact import FunctionRow
from armillary.artifact.kernel import CompiledKernel
from armillary.base.functions import FUNCTIONS
from armillary.driver.kernel_code import lower_kernel
from armillary.driver.kernels import Progress
from armillary.driver.library import FunctionLibrary
from armillary.driver.program_codegen import Kernel
from armillary.errors import ConfigError, TargetError
from armillary.ir import BaseFunc, GlobalVar, IRModule
from armillary.relay.types import tensor_fields
from armillary.target import Target
from armillary.target.grammar import BUILD


def compile_by_script(kernels: Sequence[Kernel], target: Target, progress: Progress) -> dict[str, CompiledKernel]:
    """Call the script's function once; ConfigError where a kernel is not what was asked for."""
    if not kernels:
        return {}
    name = f"{BUILD}{target.kind.name}"
    build = FUNCTIONS.get(name)
    if build is None:
        message = f"{len(kernels)} kernels are for target kind {target.kind.name}, and there is no function {name!r}"
        raise TargetError(message, hint=f'register_func("{name}", f), where f(module, target) gives a library')
    loops: dict[GlobalVar | str, BaseFunc] = {k.name: lower_kernel(k, target)[1] for k in kernels}
    library = build(IRModule(loops), target)
    if not isinstance(library, FunctionLibrary):
        raise ConfigError(
            f"{name} gave {type(library).__name__}", hint='it gives a library, as build(module, "llvm") does'
        )
    rows = {kernel.name: _checked(kernel, library, name) for kernel in kernels}
    progress("compile", len(kernels), len(kernels))
    code = dict(zip(rows, library.objects, strict=False))  # objects belong to the library, not to one kernel each
    rest = library.objects[len(rows) :]
    if rest:
        message = f"{name} gave {len(library.objects)} objects for {len(rows)} functions"
        raise ConfigError(message, hint="one for each, or less")
    externs, needs = tuple(library.externs), library.descriptor.needs
    return {key: CompiledKernel(row, code.get(key, b""), externs, needs, {}) for key, row in rows.items()}


def _checked(kernel: Kernel, library: FunctionLibrary, name: str) -> FunctionRow:
    row = library.descriptor.functions.get(kernel.name)
    types = [t for e in (*kernel.function.params, kernel.function.body) for t in tensor_fields(e.checked_type)]
    wanted = [(t.static, str(t.dtype)) for t in types]
    if row is None or [(tuple(arg.shape), arg.dtype) for arg in row.args] != wanted:
        got = "no such function" if row is None else f"arguments {[(arg.shape, arg.dtype) for arg in row.args]}"
        raise ConfigError(f"{name} was asked for {kernel.name} and gave {got}", hint=f"wanted: {wanted}")
    return row
