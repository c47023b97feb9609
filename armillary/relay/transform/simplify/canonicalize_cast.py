"""canonicalize-cast: give each consumer its own cast, so that the cast can be fused into it.

In: a module. Out: one where no cast has more than one consumer, but those to narrower integers: quantised values are
cheaper to read than what they are made of. Invariant: each consumer reads the values that it read before. Whoever
shares sub-expressions later skips casts (`is_cast`), or the pass would be undone.

    def @main(%x: Tensor[(2,), int8]) {
      %0 = cast(%x, dtype="float32");
      %1 = nn.relu(%0);
      %2 = negative(%0);
      add(%1, %2)
    }
    ->
    def @main(%x: Tensor[(2,), int8]) {
      %0 = cast(%x, dtype="float32");
      %1 = nn.relu(%0);
      %2 = cast(%x, dtype="float32");
      %3 = negative(%2);
      add(%1, %3)
    }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import Op
from armillary.relay.transform._rules import on_functions, op_name
from armillary.relay.types import TensorType
from armillary.relay.walk import not_primitive, rewrite
from armillary.transform import define_pass


def is_cast(expr: Expr) -> bool:
    """Whether an expression is a cast: what eliminate-common-subexpr must skip after this pass."""
    return op_name(expr) == "cast"


@define_pass("canonicalize-cast", opt_level=3)
def canonicalize_cast(module: IRModule) -> IRModule:
    """Duplicate casts with several consumers."""
    return on_functions(module, _split)


def _narrows(cast: Call) -> bool:
    source, result = cast.args[0].checked_type, cast.checked_type
    if not isinstance(source, TensorType) or not isinstance(result, TensorType):
        return False
    return result.dtype.is_int and source.dtype.is_int and result.dtype.bits < source.dtype.bits


def _split(function: Function) -> Expr:
    taken: set[int] = set()

    def own(arg: Expr) -> Expr:
        if op_name(arg) != "cast" or not isinstance(arg, Call) or _narrows(arg):
            return arg
        if id(arg) not in taken:
            taken.add(id(arg))
            return arg
        return Call(arg.op, arg.args, arg.attrs, arg.span)

    def rule(expr: Expr) -> Expr | None:
        if not isinstance(expr, Call) or not isinstance(expr.op, Op):
            return None
        args = tuple(map(own, expr.args))
        return None if all(a is b for a, b in zip(args, expr.args)) else Call(expr.op, args, expr.attrs, expr.span)

    return rewrite(function, rule, not_primitive)
