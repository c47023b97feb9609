"""check-sizes: refuse results and padding beyond the budgets, before any pass makes or counts through them.

In: a typed module. Out: the same module, or a BudgetError that names the operator. Invariant: nothing changes. The
budgets: armillary/budgets.py; what is held against them: armillary/relay/call_budgets.py.

    def @main(%x: Tensor[(2, 3), float32]) { exp(%x) }
    ->
    def @main(%x: Tensor[(2, 3), float32]) { exp(%x) }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.call_budgets import check_call, check_rank, check_result
from armillary.relay.expr import Call, Constant, Expr, Function, Loop, Var
from armillary.relay.transform._rules import on_functions
from armillary.relay.walk import post_order
from armillary.transform import define_pass


@define_pass("check-sizes", opt_level=0)
def check_sizes(module: IRModule) -> IRModule:
    """Hold results and padding against the budgets."""

    def visit(function: Function) -> Expr:
        for expr in post_order(function):
            if isinstance(expr, Call):
                check_call(expr)
            elif isinstance(expr, Loop):
                check_result(expr.checked_type, "loop", expr.span)
            elif isinstance(expr, Var | Constant):
                check_rank(expr.checked_type, getattr(expr, "name_hint", "a constant"), expr.span)
        return function

    return on_functions(module, visit)
