"""Split functions to a compiled module: objects, descriptor rows, sources.

In: `PhasedFunction`s and a target. Out: a `CompiledModule`. Invariant: every row of its descriptor names symbols that
the objects define; equal functions, target and versions give equal objects, found in a cache that is given.
Emitters: `llvm.py`, `c.py`; linking: `toolchain.py`; loading: `jit.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from armillary.artifact import ArgRow, Descriptor, FunctionRow, PhaseRow, VarRow
from armillary.base.extent import Known, sizes_of
from armillary.base.files import scratch_folder
from armillary.base.names import Names, check_name, identifier, printable_name, symbol
from armillary.codegen import base
from armillary.codegen.c import source as c
from armillary.codegen.llvm import emit as llvm
from armillary.codegen.llvm.target import VERSION, check_target, emit_assembly, machine_text, request
from armillary.codegen.object.used_features import used_features
from armillary.codegen.toolchain import compile_c, find_toolchain
from armillary.codegen.workers.cache import Cache, cache_key
from armillary.codegen.workers.pool import compile_many
from armillary.errors import TargetError, TypeMismatch, UnsupportedError
from armillary.target.cpu import cpu_model, fast_math_flags, llvm_cpu, needed_features
from armillary.target.target import Target, as_target, check_attributes
from armillary.tir import expr as E
from armillary.tir.extents import from_expr
from armillary.tir.phases import PhasedFunction
from armillary.tir.printer import print_function
from armillary.tir.stmt import PrimFunc

_EXTERN = re.compile(r"^declare .*@(?!llvm\.)([\w.]+)\(", re.MULTILINE)
_DEFINED = re.compile(r"^define .*@([\w.]+)\(", re.MULTILINE)
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
            return "\n".join(self.sources[name] for name in sorted(self.sources))
        if form == "asm" and native == "ll":
            return "\n".join(emit_assembly(ir, self.target) for ir in self.sources.values())
        if form == "c":
            return "\n".join(c.emit_source(function) for function in self.functions)
        if form == "tir":
            return "\n".join(print_function(loops, name) for name, loops in self.tir.items())
        raise TargetError(f"no source of form {form!r} for target {self.target}", hint=f"forms: {', '.join(FORMATS)}")


def build_functions(
    functions: Sequence[PhasedFunction],
    target: object,
    *,
    cache: Cache | None,
    jobs: int | None = None,
    tir: Mapping[str, PrimFunc] | None = None,
) -> CompiledModule:
    """Compile functions for a target (Any: whatever Target accepts), through a cache if one is given.

    `tir` is kept for get_source.
    """
    module = emit_functions(functions, target)
    compile_all = _COMPILERS[module.target.kind.codegen]
    objects = compile_all(list(module.sources.values()), module.target, jobs, cache)
    descriptor = replace(module.descriptor, needs=needed_features(module.target, _used(objects)))
    return replace(module, objects=tuple(objects), descriptor=descriptor, tir=dict(tir or {}))


def _used(objects: Sequence[bytes]) -> frozenset[str] | None:
    """The rarer features of a processor that the objects use; None if it cannot be told."""
    features = [used_features(code) for code in objects]
    return None if None in features else frozenset().union(*(names for names in features if names is not None))


def emit_functions(functions: Sequence[PhasedFunction], target: object) -> CompiledModule:
    """The module that `build_functions` makes, without objects: for its sources."""
    where = as_target(target)
    check_attributes(where)
    symbols = [symbol(check_name(function.name, "a function")) for function in functions]
    if len(set(symbols)) != len(symbols):
        raise TypeMismatch(f"two functions have one symbol among {symbols}", hint="rename one of them")
    emit = _EMITTERS.get(where.kind.codegen)
    if emit is None:
        raise TargetError(f"code for kind {where.kind.name} is not built by the CPU path")
    sources = {function.name: text for function, text in zip(functions, emit(functions, where), strict=True)}
    rows = {function.name: function_row(function) for function in functions}
    externs = sorted({name for text in sources.values() for name in foreign(text)})
    return CompiledModule(where, (), Descriptor(str(where), rows), sources, tuple(functions), externs=tuple(externs))


def foreign(text: str) -> set[str]:
    """The C functions that a source calls and no module in it defines."""
    return set(_EXTERN.findall(text)) - set(_DEFINED.findall(text))


def _emit_llvm(functions: Sequence[PhasedFunction], target: Target) -> list[str]:
    check_target(target)
    model, flags = cpu_model(target), fast_math_flags(target)
    return [llvm.emit_module(function, model, flags) for function in functions]


def _emit_c(functions: Sequence[PhasedFunction], target: Target) -> list[str]:
    return [c.emit_source(function) for function in functions]


def _compile_llvm(sources: Sequence[str], target: Target, jobs: int | None, cache: Cache | None) -> list[bytes]:
    machine = repr(llvm_cpu(target))

    def compile_missing(indices: list[int]) -> list[bytes]:
        return compile_many([request(sources[i], target) for i in indices], jobs)

    return _through_cache([("llvm", text, machine, VERSION) for text in sources], cache, compile_missing)


def _compile_c(sources: Sequence[str], target: Target, jobs: int | None, cache: Cache | None) -> list[bytes]:
    tool, machine = find_toolchain(target), machine_text(target)

    def compile_missing(indices: list[int]) -> list[bytes]:
        with scratch_folder() as folder:
            return [compile_c(sources[i], folder / f"k{i}.o", target).read_bytes() for i in indices]

    return _through_cache([("c", text, machine, *tool.command) for text in sources], cache, compile_missing)


def _through_cache(
    parts: Sequence[tuple[str, ...]], cache: Cache | None, compile_missing: Callable[[list[int]], list[bytes]]
) -> list[bytes]:
    """Objects from the cache under keys of these parts, or made and written there."""
    if cache is None:
        return compile_missing(list(range(len(parts))))
    keys = [cache_key(*part) for part in parts]
    stored = [cache.get(key) for key in keys]
    missing = [index for index, data in enumerate(stored) if data is None]
    for index, data in zip(missing, compile_missing(missing) if missing else [], strict=True):
        stored[index] = data
        cache.put(keys[index], data)
    if missing:
        cache.trim_at_times()
    return [data for data in stored if data is not None]


_EMITTERS = {"armillary.codegen.llvm": _emit_llvm, "armillary.codegen.c": _emit_c}
_COMPILERS = {"armillary.codegen.llvm": _compile_llvm, "armillary.codegen.c": _compile_c}


def function_row(function: PhasedFunction) -> FunctionRow:
    """The descriptor row of one function."""
    written = base.written_params(function)
    arguments, names = [], _var_names(function)
    for buffer, shape in zip(function.params, function.shapes, strict=True):
        role = "out" if buffer in written else "in"
        lanes = (buffer.dtype.lanes,) if buffer.dtype.lanes > 1 else ()  # of elements that are vectors: an axis more
        dims = (*(dimension(function.name, buffer.name, extent, names) for extent in shape), *lanes)
        arguments.append(
            ArgRow(printable_name(buffer.name), dims, buffer.dtype.element, "out" if role == "out" else "in")
        )
    phases = []
    for index, phase in enumerate(function.phases):
        extent = base.constant_extent(phase)
        row = PhaseRow(
            base.phase_symbol(function, index), base.extent_symbol(function, index) if extent is None else extent
        )
        phases.append(row)
    return FunctionRow(
        function.name,
        tuple(arguments),
        tuple(phases),
        tuple(VarRow(names[v], v.dtype) for v in function.vars),
        _as_row(function.shared_bytes),
        _as_row(function.thread_bytes),
        function.asserts,
        may_overlap=not function.noalias,
    )


def _var_names(function: PhasedFunction) -> dict[E.Var, str]:
    """A name for each variable, as dimensions refer to variables by name; those of the program may be alike."""
    names = Names()
    return {v: names.fresh(printable_name(v.name)) for v in function.vars}


def dimension(function: str, name: str, extent: E.Expr, names: Mapping[E.Var, str]) -> int | str:
    """A dimension of an argument as its row has it: a number, the name of a variable, or an expression over them."""
    if isinstance(extent, E.Var) and extent in names:
        return names[extent]
    known = from_expr(extent)
    if set(sizes_of([known])) <= {name for name in names.values() if name == identifier(name)}:
        return _as_row(known)
    raise UnsupportedError(
        f"{function}: a dimension of {name} is no expression over the function's variables: {extent!r}",
        hint="name each symbolic dimension with a variable of its own",
    )


def _as_row(extent: Known) -> int | str:
    return extent if isinstance(extent, int) else str(extent)
