"""Split functions to a compiled module: objects, descriptor rows, sources.

In: `PhasedFunction`s and a target. Out: a `CompiledModule`. Invariant: every row of its descriptor names symbols that
the objects define; equal functions, target and versions give equal objects, found in the disk cache the next time.
Emitters: `llvm.py`, `c.py`; linking: `toolchain.py`; loading: `jit.py`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.artifact import ArgRow, Descriptor, FunctionRow, PhaseRow, VarRow
from armillary.codegen import base, c, llvm
from armillary.codegen.cache import Cache, cache_key, default_cache
from armillary.codegen.llvm_target import VERSION, check_target, emit_assembly, machine_text, request
from armillary.codegen.pool import compile_many
from armillary.codegen.toolchain import compile_c, find_toolchain
from armillary.errors import InternalError, TargetError, UnsupportedError
from armillary.target.cpu import cpu_model, fast_math_flags, llvm_cpu
from armillary.target.target import Target, as_target, check_attributes
from armillary.tir import expr as E
from armillary.tir.phases import PhasedFunction
from armillary.tir.printer import print_function
from armillary.tir.stmt import PrimFunc

_EXTERN = re.compile(r"^declare .*@(?!llvm\.)([\w.]+)\(", re.MULTILINE)
FORMATS = ("ll", "asm", "c", "tir")


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """Machine code of some functions, with what a runtime must know to call them."""

    target: Target
    objects: tuple[bytes, ...]
    descriptor: Descriptor
    sources: Mapping[str, str]  # by function: LLVM IR, or C for the kind c
    functions: tuple[PhasedFunction, ...] = ()
    tir: Mapping[str, PrimFunc] = field(default_factory=dict)  # the loops they were cut from, where they are kept
    externs: tuple[str, ...] = ()

    @property
    def rows(self) -> Mapping[str, FunctionRow]:
        return self.descriptor.functions

    def get_source(self, form: str = "") -> str:
        """The text of all functions: ll (LLVM IR), asm, c, or tir. The default is what the target's emitter wrote."""
        native = "c" if self.target.kind.name == "c" else "ll"
        form = form or native
        if form == native:
            return "\n".join(self.sources.values())
        if form == "asm" and native == "ll":
            return "\n".join(emit_assembly(ir, self.target) for ir in self.sources.values())
        if form == "c":
            return "\n".join(c.emit_source(function) for function in self.functions)
        if form == "tir":
            return "\n".join(print_function(loops, name) for name, loops in self.tir.items())
        raise TargetError(f"no source of form {form!r} for target {self.target}", hint=f"forms: {', '.join(FORMATS)}")


def build_functions(
    functions: Sequence[PhasedFunction], target: Any, *, jobs: int | None = None, cache: Cache | None = None,
    tir: Mapping[str, PrimFunc] | None = None,
) -> CompiledModule:  # fmt: skip
    """Compile functions for a target (Any: whatever Target accepts); `tir` is kept for get_source."""
    where = as_target(target)
    check_attributes(where)
    symbols = [base.symbol(function.name) for function in functions]
    if len(set(symbols)) != len(symbols):
        raise InternalError(f"two functions have one symbol among {symbols}")
    compile_all = _EMITTERS.get(where.kind.codegen)
    if compile_all is None:
        raise TargetError(f"code for kind {where.kind.name} is not built by the CPU path")
    sources, objects = compile_all(functions, where, jobs, cache if cache is not None else default_cache())
    descriptor = Descriptor(str(where), {function.name: function_row(function) for function in functions})
    externs = sorted({name for text in sources for name in _EXTERN.findall(text)})
    named = {function.name: text for function, text in zip(functions, sources, strict=True)}
    return CompiledModule(where, tuple(objects), descriptor, named, tuple(functions), dict(tir or {}), tuple(externs))


def _compile_llvm(
    functions: Sequence[PhasedFunction], target: Target, jobs: int | None, cache: Cache | None
) -> tuple[list[str], list[bytes]]:
    check_target(target)
    model, machine = cpu_model(target), llvm_cpu(target)
    flags = fast_math_flags(target)
    sources = [llvm.emit_module(function, model, flags) for function in functions]
    keys = [cache_key("llvm", text, repr(machine), VERSION) for text in sources]

    def compile_missing(indices: list[int]) -> list[bytes]:
        return compile_many([request(sources[i], target) for i in indices], jobs)

    return sources, _through_cache(keys, cache, compile_missing)


def _compile_c(
    functions: Sequence[PhasedFunction], target: Target, jobs: int | None, cache: Cache | None
) -> tuple[list[str], list[bytes]]:
    sources = [c.emit_source(function) for function in functions]
    tool = find_toolchain(target)
    keys = [cache_key("c", text, machine_text(target), *tool.command) for text in sources]

    def compile_missing(indices: list[int]) -> list[bytes]:
        with tempfile.TemporaryDirectory() as directory:
            return [compile_c(sources[i], Path(directory, f"k{i}.o"), target).read_bytes() for i in indices]

    return sources, _through_cache(keys, cache, compile_missing)


def _through_cache(
    keys: Sequence[str], cache: Cache | None, compile_missing: Callable[[list[int]], list[bytes]]
) -> list[bytes]:
    found = [cache.get(key) if cache is not None else None for key in keys]
    missing = [index for index, data in enumerate(found) if data is None]
    for index, data in zip(missing, compile_missing(missing) if missing else [], strict=True):
        found[index] = data
        if cache is not None:
            cache.put(keys[index], data)
    if missing and cache is not None:
        cache.trim_at_times()
    return [data for data in found if data is not None]


_EMITTERS = {"armillary.codegen.llvm": _compile_llvm, "armillary.codegen.c": _compile_c}


def function_row(function: PhasedFunction) -> FunctionRow:
    """The descriptor row of one function."""
    written = base.written_params(function)
    arguments = []
    for buffer, shape in zip(function.params, function.shapes, strict=True):
        role = "out" if buffer in written else "in"
        dims = tuple(_dim(function, buffer.name, extent) for extent in shape)
        arguments.append(ArgRow(buffer.name, dims, buffer.dtype, "out" if role == "out" else "in"))
    phases = []
    for index, phase in enumerate(function.phases):
        extent = base.constant_extent(phase)
        row = PhaseRow(
            base.phase_symbol(function, index), base.extent_symbol(function, index) if extent is None else extent
        )
        phases.append(row)
    return FunctionRow(
        function.name, tuple(arguments), tuple(phases), tuple(VarRow(v.name, v.dtype) for v in function.vars),
        function.shared_bytes, function.thread_bytes, function.asserts,
    )  # fmt: skip


def _dim(function: PhasedFunction, name: str, extent: E.Expr) -> int | str:
    if isinstance(extent, E.IntImm):
        return extent.value
    if isinstance(extent, E.Var) and extent in function.vars:
        return extent.name
    raise UnsupportedError(
        f"{function.name}: a dimension of {name} is neither a number nor a variable: {extent!r}",
        hint="name each symbolic dimension with a variable of its own",
    )
