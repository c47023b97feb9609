"""outline-compiler-functions-with-existing-global-symbols: functions for a library become functions of the module.

In: a module whose functions for libraries (attribute `Compiler`) stand where they are called, or are bound by a let,
and say their name in `global_symbol`; the name of a library, or "" for all. Out: one that has them under these names.
Invariant: attributes stay; two functions of one name are the same function, else it is a ModelError.
The way back: inline_compiler_functions_bound_to.py.

    def @main(%x: Tensor[(2,), int8]) {
      %0 = fn (%y: Tensor[(2,), int8], Primitive=1, Compiler="lib", global_symbol="f") -> Tensor[(2,), int8] {
        abs(%y)
      };
      %0(%x)
    }
    ->
    def @main(%x: Tensor[(2,), int8]) { @f(%x) }
    def @f(%y: Tensor[(2,), int8], Primitive=1, Compiler="lib", global_symbol="f") -> Tensor[(2,), int8] { abs(%y) }
"""

from __future__ import annotations

from armillary.errors import ModelError
from armillary.ir import GlobalVar, IRModule
from armillary.relay.expr import Expr, Function, Let
from armillary.relay.structural import structural_equal
from armillary.relay.transform._rules import rewrite_module
from armillary.relay.walk import substitute
from armillary.transform import define_pass


@define_pass("outline-compiler-functions-with-existing-global-symbols")
def outline_compiler_functions_with_existing_global_symbols(module: IRModule, *, compiler_filter: str = "") -> IRModule:
    """Move functions for `compiler_filter` out of the functions that call them."""
    outlined: dict[str, tuple[GlobalVar, Function]] = {}

    def rule(expr: Expr) -> Expr | None:
        """fn (…, global_symbol="f") { … }  ->  @f"""
        if isinstance(expr, Let) and id(expr.value) in {id(variable) for variable, _ in outlined.values()}:
            return substitute(expr.body, {id(expr.var): expr.value})
        if not isinstance(expr, Function) or not is_for(expr, compiler_filter):
            return None
        symbol = str(expr.get_attr("global_symbol") or "")
        variable, first = outlined.setdefault(symbol, (GlobalVar(symbol), expr))
        if not symbol or symbol in module or not (first is expr or structural_equal(first, expr)):
            raise ModelError(
                f"outline-compiler-functions: the name {symbol!r} is missing or taken by another function",
                hint="give each function a global_symbol of its own",
            )
        return variable  # type: ignore[return-value]  # a value like any other where it is called

    changed = rewrite_module(module, rule)
    if not outlined:
        return module
    result = IRModule(changed.functions, changed.type_definitions)  # type: ignore[arg-type]
    for variable, function in outlined.values():
        result[variable] = function
    return result


def is_for(function: object, compiler: str) -> bool:
    """Whether this is a function for a library of that name, or for any where it is ""."""
    own = function.get_attr("Compiler") if isinstance(function, Function) else None
    return own is not None and compiler in ("", str(own))
