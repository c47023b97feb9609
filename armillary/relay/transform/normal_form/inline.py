"""inline: put the bodies of functions marked `Inline=1` where they are called; `everything`: of all but main.

In: a module. Out: one without calls of such functions by name, and without the functions. Invariant: a function that
calls itself is not inlined, nor one that nobody calls; one that belongs to a library (`Compiler`) takes the place of
its name, unopened.

    def @main(%y: Tensor[(2,), float32]) { @twice(%y) }
    def @twice(%x: Tensor[(2,), float32], Inline=1) -> Tensor[(2,), float32] { add(%x, %x) }
    ->
    def @main(%y: Tensor[(2,), float32]) { add(%y, %y) }
"""

from __future__ import annotations

from armillary.ir import GlobalVar, IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.transform._rules import on_functions
from armillary.relay.transform.normal_form.remove_unused_functions import called_functions
from armillary.relay.walk import not_primitive, rewrite, substitute
from armillary.transform import define_pass


@define_pass("inline", opt_level=1, name="Inline", aliases=("InlineGlobals",))
def inline(module: IRModule, *, everything: bool = False) -> IRModule:
    """Substitute the arguments into the bodies of functions marked Inline=1; or of all that are no kernel's."""
    marked = [name for name, f in module.items() if isinstance(f, Function) and f.get_attr("Inline", 0)]
    if everything:
        plain = (n for n, f in module.items() if isinstance(f, Function) and not_primitive(f) and n != "main")
        marked += [name for name in plain if name not in marked]
    done: list[str] = []
    for name in marked:
        if name in called_functions(module[name]) or not (everything or _is_called(module, name)):
            continue
        target: Function = module[name]
        module = on_functions(module, lambda f, n=name, t=target: _inline(f, n, t))  # type: ignore[misc]
        done.append(name)
    if not done:
        return module
    return IRModule({v: f for v, f in module.functions.items() if v.name_hint not in done}, module.type_definitions)


def _is_called(module: IRModule, name: str) -> bool:
    """Whether another function names one; the others are entries, which stay."""
    return any(name in called_functions(f) for n, f in module.items() if n != name)


def _inline(function: Function, name: str, target: Function) -> Expr:
    def rule(expr: Expr) -> Expr | None:
        as_value: object = expr
        if isinstance(as_value, GlobalVar):
            return target if as_value.name_hint == name else None
        if not isinstance(expr, Call) or not isinstance(expr.op, GlobalVar) or expr.op.name_hint != name:
            return None
        if target.get_attr("Compiler"):  # a library's: the function itself is called, its body stays closed
            return Call(target, expr.args, expr.attrs, expr.span)
        return substitute(target.body, {id(p): a for p, a in zip(target.params, expr.args, strict=True)})

    return rewrite(function, rule, not_primitive)
