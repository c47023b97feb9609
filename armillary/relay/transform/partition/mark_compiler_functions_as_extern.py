"""mark-compiler-functions-as-extern: functions for a library have been compiled; calls of them stay.

In: a module with functions for libraries (attribute `Compiler`); the name of a library, or "" for all. Out: one in
which these have the attribute `Extern` alone: nothing generates code for them again. Invariant: bodies stay, which say
what is computed.

    def @main(%x: Tensor[(2,), int8]) -> Tensor[(2,), int8] { @f(%x) }
    def @f(%y: Tensor[(2,), int8], Primitive=1, Compiler="lib", global_symbol="f") -> Tensor[(2,), int8] { abs(%y) }
    ->
    def @main(%x: Tensor[(2,), int8]) -> Tensor[(2,), int8] { @f(%x) }
    def @f(%y: Tensor[(2,), int8], Extern=1) -> Tensor[(2,), int8] { abs(%y) }
"""

from __future__ import annotations

from armillary.ir import BaseFunc, IRModule
from armillary.relay.expr import Function
from armillary.relay.transform.partition.outline_compiler_functions_with_existing_global_symbols import is_for
from armillary.transform import define_pass


@define_pass("mark-compiler-functions-as-extern")
def mark_compiler_functions_as_extern(module: IRModule, *, compiler_filter: str = "") -> IRModule:
    """Leave `Extern` as the only attribute of functions for `compiler_filter`."""

    def rule(_: str, function: BaseFunc) -> BaseFunc | None:
        if not isinstance(function, Function) or not is_for(function, compiler_filter):
            return None
        return Function(function.params, function.body, function.ret_type, (("Extern", 1),), function.span)

    return module.map_functions(rule)
