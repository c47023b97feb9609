"""simplify-inference: replace operators that mean others by what they mean when not training.

In: a module. Out: one without batch_norm, dropout and others whose record has a `decompose` rule; those of the qnn
dialect have a pass of their own. Invariant: each rule sits with its operator; the result computes the same values.
`sums_float16`: products that are asked for in float16 (`out_dtype`) stay as they are, for a target that adds float16.

    def @main(%x: Tensor[(2,), float32]) { nn.dropout(%x) }
    ->
    def @main(%x: Tensor[(2,), float32]) { %x }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.call_budgets import Constants, Spent
from armillary.relay.expr import Call, Expr, Function, Tuple, TupleGetItem
from armillary.relay.op import Op
from armillary.relay.transform._rules import op_name, rewrite_module
from armillary.transform import define_pass

_ROUNDS = 8  # a decomposition may use operators that decompose again; deeper is a defect of a rule


@define_pass("simplify-inference")
def simplify_inference(module: IRModule, *, sums_float16: bool = False) -> IRModule:
    """Apply the `decompose` rules of operators until none applies.

    nn.dropout(x)  ->  x
    """

    functions, constants = [f for _, f in module.items() if isinstance(f, Function)], Constants()
    spent = Spent(functions)

    def rule(expr: Expr) -> Expr | None:
        result = None if sums_float16 and _gives_float16(expr) else _not_quantised(expr)
        if result is not None and isinstance(expr, Call):
            if not constants:
                for function in functions:  # what is there is not made
                    constants.more(function)
            spent.add(expr, constants.more(result))
        return result

    for _ in range(_ROUNDS):
        changed = rewrite_module(module, rule, pick_field)
        if changed is module:
            break
        module = changed
    return module


def _gives_float16(expr: Expr) -> bool:
    return isinstance(expr, Call) and getattr(expr.attrs, "out_dtype", "") == "float16"


def _not_quantised(expr: Expr) -> Expr | None:
    return None if op_name(expr).startswith("qnn.") else decompose(expr)


def decompose(expr: Expr) -> Expr | None:
    """A call by its operator's `decompose` rule."""
    if isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.decompose_rule is not None:
        return expr.op.decompose_rule(expr.attrs, *expr.args)
    return None


def pick_field(expr: Expr) -> Expr | None:
    """Field of a tuple that is written out.

    (a, b).1  ->  b
    """
    if isinstance(expr, TupleGetItem) and isinstance(expr.tuple_value, Tuple):
        return expr.tuple_value.fields[expr.index]
    return None
