"""simplify-expr: rules that make an expression smaller.

In: a typed module. Out: one to which no rule applies: neither one that an operator has (`add.simplify(…)` in its file),
nor one of those here, which hold for all operators of a fact. Each rule's arrow says what it does and when. Invariant,
of floats: `x + 0` is not `x` for -0.0, so it goes only for integers (`x + -0.0` goes for all), and `x * 0` is not 0 for
NaN, so it stays.

    def @main(%x: Tensor[(2, 3), float32]) {
      %0 = multiply(%x, 1f);
      %1 = transpose(%0, axes=(1, 0));
      %2 = transpose(%1, axes=(1, 0));
      subtract(%2, 0f)
    }
    ->
    def @main(%x: Tensor[(2, 3), float32]) { %x }
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.extent import Extent, Known
from armillary.ir import IRModule
from armillary.ops.nn._windows import reshape_to
from armillary.relay.call_budgets import Spent
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from armillary.relay.op import Op, has
from armillary.relay.op.facts import Fact
from armillary.relay.transform._rules import rewrite_module, splat, tensor
from armillary.relay.transform.simplify.simplify_inference import decompose, pick_field
from armillary.relay.types import TensorType
from armillary.transform import define_pass


@define_pass("simplify-expr")
def simplify_expr(module: IRModule) -> IRModule:
    """Apply the rules bottom-up until none applies; constants that they join are held against the budget of folds."""
    spent = Spent([f for f in module.functions.values() if isinstance(f, Function)])

    def rule(expr: Expr) -> Expr | None:
        new = simplify(expr)
        if isinstance(expr, Call) and isinstance(new, Call):
            before = {id(e) for a in expr.args for e in (a, *(a.args if isinstance(a, Call) else ()))}
            for constant in new.args:
                if isinstance(constant, Constant) and id(constant) not in before:
                    spent.add(expr, constant.nbytes)
        return new

    while (changed := rewrite_module(module, rule)) is not module:
        module = changed
    return module


def simplify(expr: Expr) -> Expr | None:
    """The first rule that applies."""
    if isinstance(expr, Call):
        for rule in _rules(expr):
            new = rule(expr)
            if new is not None and new.checked_type == expr.checked_type:
                return new
        return None
    return pick_field(expr) or rebuilt_tuple(expr)


def _rules(expr: Call) -> tuple[Callable[[Call], Expr | None], ...]:
    if has(expr, Fact.LIKE):
        return (like_shape,)
    if has(expr, Fact.ORDER_ONLY):
        return (position_of_dequantized,)
    if has(expr, Fact.VIEW):
        return (same_shape, consecutive_reshapes)
    return expr.op.simplify_rules if isinstance(expr.op, Op) else ()


def rebuilt_tuple(expr: Expr) -> Expr | None:
    """(t.0, t.1)  ->  t   if t has two fields"""
    if not isinstance(expr, Tuple) or not expr.fields or not all(isinstance(f, TupleGetItem) for f in expr.fields):
        return None
    items = [f for f in expr.fields if isinstance(f, TupleGetItem)]
    whole = items[0].tuple_value
    if all(f.tuple_value is whole and f.index == k for k, f in enumerate(items)):
        return whole if whole.checked_type == expr.checked_type else None
    return None


def position_of_dequantized(expr: Call) -> Expr | None:
    """argmax(qnn.dequantize(x, scale, zero))  ->  argmax(x)   if x has at most 16 bits and the scale is one, above 0

    Then different numbers stay different, in the same order.
    """
    inner = expr.args[0]
    if not has(inner, Fact.DEQUANTIZES) or not isinstance(inner, Call):
        return None
    data, scale = tensor(inner.args[0]), splat(inner.args[1])
    if data is None or data.dtype.bits > 16 or scale is None or not 1e-30 < scale < 1e30:
        return None
    if inner.attrs.out_dtype not in ("float32", "float64"):
        return None
    return Call(expr.op, (inner.args[0],), expr.attrs, expr.span)


def same_shape(expr: Call) -> Expr | None:
    """reshape(x, shape of x)  ->  x"""
    data = expr.args[0]
    return data if known_shape(data) is not None and data.checked_type == expr.checked_type else None


def consecutive_reshapes(expr: Call) -> Expr | None:
    """reshape(reshape(x))  ->  reshape(x)"""
    inner, shape = expr.args[0], known_shape(expr)
    if not has(inner, Fact.VIEW) or not isinstance(inner, Call) or shape is None or -1 in shape:
        return None
    return reshape_to(inner.args[0], shape)


def known_shape(expr: Expr) -> tuple[Known, ...] | None:
    """The shape of a tensor whose dimensions are numbers and expressions over named sizes; else None."""
    ty = expr.checked_type
    return ty.known if isinstance(ty, TensorType) and all(isinstance(d, int | Extent) for d in ty.shape) else None


def like_shape(expr: Call) -> Expr | None:
    """zeros_like(x)  ->  zeros(shape of x), and so for the operators that only read a tensor's shape"""
    return None if tensor(expr) is None else decompose(expr)
