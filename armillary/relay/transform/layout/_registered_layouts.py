"""Layouts by rules that a script registers: `relay.op.register_alter_op_layout("nn.conv2d", rule)`.

In: a module, a target. Out: the module with each call of an operator that has a rule as the rule writes it, what lies
between following (layout/_inference_walk.py). A rule is called with the attributes, the inputs as they are now, the
types that they had and the type of the result; None leaves the call. Invariant: a rule replaces a call by a call.
"""

from __future__ import annotations

from contextlib import nullcontext

from armillary.base.aliases import AnyFunction
from armillary.errors import TypeMismatch
from armillary.ir import IRModule
from armillary.ops.layout._inference import Attributes
from armillary.relay.expr import Call, Expr
from armillary.relay.op import LEGALIZE_RULES
from armillary.relay.transform._rules import on_functions
from armillary.relay.transform.layout._inference_walk import InferenceWalk
from armillary.target import as_target

ALTER_KEY = "FTVMAlterOpLayout"


def by_registered(module: IRModule, target: object) -> IRModule:
    """Write operators by their registered rules."""
    with as_target(target) if target is not None else nullcontext():
        return on_functions(module, lambda function: InferenceWalk(_write).run(function))


def _write(expr: Call, attrs: Attributes, inputs: list[Expr]) -> Expr | None:
    own_rule = LEGALIZE_RULES.get(ALTER_KEY, {}).get(expr.op.name)
    if own_rule is None:
        return None
    rule: AnyFunction = own_rule[1]
    result = rule(attrs, inputs, [arg.checked_type for arg in expr.args], expr.checked_type)
    if result is not None and not isinstance(result, Call):
        raise TypeMismatch(
            f"{ALTER_KEY} rule of {expr.op.name} gives {type(result).__name__}, wanted a call",
            span=expr.span,
            hint="a rule returns the call of an operator, or None to leave the call as it is",
        )
    return result
