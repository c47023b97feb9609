"""inline-compiler-functions-bound-to: functions for libraries back to where they are called.

In: a module; global variables, or names, of functions for libraries (attribute `Compiler`). Out: one without these, in
which their bodies stand in the place of calls, those of the composite functions inside too. Invariant: values stay;
functions of these names that are for no library stay as they are.
The way there: outline_compiler_functions_with_existing_global_symbols.py.

    def @main(%x: Tensor[(2,), int8]) -> Tensor[(2,), int8] { @f(%x) }
    def @f(%y: Tensor[(2,), int8], Primitive=1, Compiler="lib", global_symbol="f") -> Tensor[(2,), int8] { abs(%y) }
    ->
    def @main(%x: Tensor[(2,), int8]) -> Tensor[(2,), int8] { abs(%x) }
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.errors import ModelError
from armillary.ir import GlobalVar, IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.transform._rules import rewrite_module
from armillary.relay.transform.partition.outline_compiler_functions_with_existing_global_symbols import is_for
from armillary.relay.walk import rewrite, substitute
from armillary.transform import define_pass


@define_pass("inline-compiler-functions-bound-to")
def inline_compiler_functions_bound_to(module: IRModule, *, global_vars: Sequence[GlobalVar | str] = ()) -> IRModule:
    """Open the calls of functions for libraries that `global_vars` name."""
    names = [var.name_hint if isinstance(var, GlobalVar) else var for var in global_vars]
    unknown = [name for name in names if name not in module]
    if unknown:
        raise ModelError(f"inline-compiler-functions: the module has no function {unknown[0]!r}")
    bodies = {name: module[name] for name in names if is_for(module[name], "")}
    if not bodies:
        return module

    def rule(expr: Expr) -> Expr | None:
        """@f(a)  ->  its body, of a"""
        if not isinstance(expr, Call) or not isinstance(expr.op, GlobalVar) or expr.op.name_hint not in bodies:
            return None
        return rewrite(_opened(bodies[expr.op.name_hint], expr), _open_composite)

    changed = rewrite_module(module, rule)
    retained = {var: f for var, f in changed.functions.items() if var.name_hint not in bodies}
    return IRModule(retained, changed.type_definitions)  # type: ignore[arg-type]


def _open_composite(expr: Expr) -> Expr | None:
    """(fn (x, Composite="…") { body })(a)  ->  body, of a"""
    is_composite = isinstance(expr, Call) and isinstance(expr.op, Function) and expr.op.get_attr("Composite")
    return _opened(expr.op, expr) if is_composite and isinstance(expr, Call) else None


def _opened(function: object, call: Call) -> Expr:
    assert isinstance(function, Function), "a function of Relay"
    return substitute(function.body, {id(p): a for p, a in zip(function.params, call.args, strict=True)})
