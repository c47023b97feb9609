"""Offloaded functions in a build: a partitioned function to a row of the descriptor.

In: a function with the attribute Compiler, and the target. Out: an `Offloaded`: its row, the constants that travel with
the parameters, and objects where the library's generator wrote C. With `offload.fallback` the row also has a graph of
our own kernels, which runs where the library is not there or refuses. Invariant: arguments are the inputs, then the
library's constants, then the own graph's parameters, then the outputs, all of fixed shape; each symbol is made once.
The contract: offload/contract.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from armillary.artifact import ArgRow, ExternalRow, FunctionRow, PhaseRow
from armillary.artifact.modules import OffloadedModule
from armillary.base.files import scratch_folder
from armillary.base.record import record
from armillary.codegen.toolchain import compile_c
from armillary.driver.library import FunctionLibrary
from armillary.errors import ConfigError, TypeMismatch, UnsupportedError
from armillary.ir import IRModule
from armillary.offload.contract import JsonModule, SourceModule, codegen_of
from armillary.relay.expr import Constant, Expr, Function
from armillary.relay.transform.normal_form.beta_reduce import beta_reduce
from armillary.relay.transform.normal_form.infer_type import infer_type
from armillary.relay.types import TensorType, tensor_fields
from armillary.relay.walk import not_primitive, post_order, rewrite
from armillary.target import Target

if TYPE_CHECKING:
    from armillary.driver.program_codegen import Kernel


@record
class FallbackGraph:
    """Our own kernels for a function of a library: graph JSON, its parameters as its inputs come, the kernels."""

    json: str
    constants: tuple[Constant, ...]
    kernels: Mapping[str, Kernel]


@record
class Offloaded:
    """One offloaded function: how it is called, its constants, and the module that computes it."""

    row: FunctionRow
    constants: tuple[Constant, ...]
    module: OffloadedModule
    objects: tuple[bytes, ...] | None = None  # machine code, where the generator gave it


def _imported(library: str, symbol: str, function: Function, objects: FunctionLibrary) -> Offloaded:
    """What a script built itself: a function of the symbol's name, of the inputs, the constants and the outputs."""
    row = objects.descriptor.functions.get(symbol)
    constants = tuple(expr for expr in post_order(function.body) if isinstance(expr, Constant))
    types = [t for e in (*function.params, *constants, function.body) for t in tensor_fields(e.checked_type)]
    wanted = [(t.static, str(t.dtype)) for t in types]
    if row is None or [(tuple(arg.shape), arg.dtype) for arg in row.args] != wanted:
        got = "no such function" if row is None else f"arguments {[(arg.shape, arg.dtype) for arg in row.args]}"
        message = f"the code generator of {library} was asked for {symbol} and gave {got}"
        raise ConfigError(message, hint=f"build(…, name={symbol!r}) of inputs, constants, outputs: {wanted}")
    module = OffloadedModule(symbol, "c", objects.get_source(), len(constants))
    return Offloaded(row, constants, module, tuple(objects.objects))


def offloaded(function: Function, fallback: FallbackGraph | None = None) -> Offloaded:
    """Ask the library's code generator for a partitioned function; `fallback` computes the same without the library."""
    library, symbol = str(function.get_attr("Compiler")), str(function.get_attr("global_symbol", ""))
    if not symbol:
        message = f"a function for {library} has no attribute global_symbol, so it has no name in the library"
        raise TypeMismatch(message, span=function.span, hint="PartitionGraph gives one")
    result = codegen_of(library, function)(function)
    if isinstance(result, FunctionLibrary):
        return _imported(library, symbol, function, result)
    if not isinstance(result, JsonModule | SourceModule):
        message = f"the code generator of {library} gave {type(result).__name__} for {symbol}"
        raise ConfigError(message, hint="it gives what build() gives, a JsonModule or a SourceModule")
    inputs = [t for p in function.params for t in tensor_fields(p.checked_type)]
    owned = fallback.constants if fallback is not None and isinstance(result, JsonModule) else ()
    constants = [t for c in (*result.constants, *owned) for t in tensor_fields(c.checked_type)]
    outputs = tensor_fields(function.body.checked_type)
    args = (*_rows("i", inputs, "in"), *_rows("c", constants, "in"), *_rows("o", outputs, "out"))
    if isinstance(result, SourceModule):
        row = FunctionRow(symbol, args, (PhaseRow(f"{symbol}__p0", 1),), asserts=result.failures)
        return Offloaded(row, result.constants, OffloadedModule(symbol, "c", result.source, len(constants)))
    if fallback is not None and result.device:
        message = f"offload.fallback: {symbol} runs on {result.device}, where {library} has no kernels of ours"
        raise UnsupportedError(message, hint="leave offload.fallback off, or the library out")
    module = OffloadedModule(symbol, result.kind or library, result.source, len(constants) - len(owned))
    graph = fallback.json if fallback is not None else ""
    external = ExternalRow(module.type_key, module.source, module.num_constants, result.device, graph, len(owned))
    row = FunctionRow(symbol, args, (), external=external)
    return Offloaded(row, (*result.constants, *owned), module)


def without_library(function: Function) -> IRModule:
    """What a library's function computes, as a plain module: no attributes, composites written out."""
    body = rewrite(function.body, _plain)
    inputs = tuple(function.params)
    return beta_reduce(infer_type(IRModule.from_expr(Function(inputs, body))))


def _plain(expr: Expr) -> Expr | None:
    return Function(expr.params, expr.body) if isinstance(expr, Function) and not not_primitive(expr) else None


def _rows(letter: str, types: Iterable[TensorType], role: Literal["in", "out"]) -> Iterable[ArgRow]:
    return (ArgRow(f"{letter}{k}", t.static, str(t.dtype), role) for k, t in enumerate(types))


def check_device(part: Offloaded, device: str) -> None:
    """Refuse a library's function that runs elsewhere than the graph: values would have to move in between."""
    own = "" if part.row.external is None else part.row.external.device
    if own == device:
        return
    library = part.module.type_key
    message = f"{part.row.name} is computed by {library} on {own or 'the CPU'}, the rest on {device or 'the CPU'}"
    hint = f'a list of targets such as "{own}, {library}, llvm"' if own else "leave the library out"
    raise UnsupportedError(message, hint=hint)


def compiled_sources(parts: Mapping[str, Offloaded], target: Target) -> list[bytes]:
    """The objects of the functions whose library wrote C."""
    objects = list[bytes]()
    with scratch_folder() as folder:
        for symbol, one in parts.items():
            if one.objects is not None:
                objects.extend(one.objects)
            elif one.row.external is None:
                objects.append(compile_c(one.module.source, folder / f"{symbol}.o", target).read_bytes())
    return objects
