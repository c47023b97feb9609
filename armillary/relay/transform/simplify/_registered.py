"""Applying the rules that `relay.op.register_legalize` holds.

In: a module, the kind of rule, a target. Out: the module with each call of an operator that has a rule replaced by what
the rule gives. Invariant: a call is offered to its rule once, and the result has the call's type: a rule that breaks
this is a TypeMismatch that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from armillary.errors import TypeMismatch
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr
from armillary.relay.infer import is_compatible
from armillary.relay.op import LEGALIZE_RULES
from armillary.relay.transform._rules import op_name, rewrite_module
from armillary.target import as_target

Rule = Callable[[Expr], Expr | None]


def apply_registered(module: IRModule, kind: str, target: object, otherwise: Rule | None = None) -> IRModule:
    """Rewrite by the registered rules; `otherwise` is for calls that have none, or whose rule stays out."""
    rules = LEGALIZE_RULES.get(kind, {})
    if not rules and otherwise is None:
        return module

    def rule(expr: Expr) -> Expr | None:
        rule_of_op = rules.get(op_name(expr)) if rules else None
        result = _checked(expr, rule_of_op[1], kind) if rule_of_op is not None and isinstance(expr, Call) else None
        return result if result is not None or otherwise is None else otherwise(expr)

    with as_target(target) if target is not None else nullcontext():
        return rewrite_module(module, rule)


def _checked(expr: Call, rule: Callable[..., Expr | None], kind: str) -> Expr | None:
    types = [*(a.checked_type for a in expr.args), expr.checked_type]
    result = rule(expr.attrs, list(expr.args), types)
    if result is None or result is expr:
        return None
    if not is_compatible(result.checked_type, expr.checked_type):
        name = getattr(rule, "__name__", repr(rule))
        raise TypeMismatch(
            f"{kind} rule {name} of {op_name(expr)} gives {result.checked_type}, wanted {expr.checked_type}",
            span=expr.span,
            hint="a rule says the same in other words: same shape, same dtype",
        )
    return result
