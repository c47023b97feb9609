"""eliminate-common-subexpr: compute the same thing once.

In: a module. Out: one where no two calls have the same operator, attributes and arguments. Invariant: stateful
operators and calls without arguments are left alone; `fskip(expr)` true keeps an expression out.

    def @main(%x: Tensor[(2,), float32]) { %0 = nn.relu(%x); %1 = nn.relu(%x); add(%0, %1) }
    ->
    def @main(%x: Tensor[(2,), float32]) { %0 = nn.relu(%x); add(%0, %0) }
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from armillary.relay.op import Op
from armillary.relay.transform._rules import on_functions
from armillary.relay.walk import not_primitive, rewrite
from armillary.transform import define_pass

_SMALL = 256  # bytes; larger constants are compared by identity


@define_pass("eliminate-common-subexpr", opt_level=3)
def eliminate_common_subexpr(module: IRModule, *, fskip: Callable[[Expr], bool] | None = None) -> IRModule:
    """Share calls that compute the same."""
    return on_functions(module, lambda function: _share(function, fskip))


def _share(function: Function, skip: Callable[[Expr], bool] | None) -> Expr:
    seen: dict[Hashable, Expr] = {}

    def rule(expr: Expr) -> Expr | None:
        key = _key(expr)
        if key is None or (skip is not None and skip(expr)):
            return None
        result = seen.setdefault(key, expr)
        return None if result is expr else result

    return rewrite(function, rule, not_primitive)


def _key(expr: Expr) -> Hashable | None:
    """Equal for expressions that compute the same; None for those not to be shared."""
    match expr:
        case Call(Op() as op, args) if args and not op.stateful:
            return (op.name, repr(expr.attrs), *map(id, args))
        case Tuple(fields):
            return ("()", *map(id, fields))
        case TupleGetItem(value, index):
            return (".", id(value), index)
        case Constant() if expr.nbytes <= _SMALL:
            return ("const", expr.data.dtype.name, expr.data.shape, expr.data.tobytes())
    return None
