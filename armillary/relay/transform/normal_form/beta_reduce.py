"""beta-reduce: put the body of a function that is written in place where it is called.

In: a module. Out: one whose calls are calls of operators, of global functions, and of functions that belong to a
kernel or a library; a let of a function is gone with its last call. Invariant: a function that calls itself is left
alone; each call gets nodes of its own, but what does not depend on the arguments stays shared.

    def @main(%x: Tensor[(2,), float32]) {
      let %f = fn (%y: Tensor[(2,), float32]) { negative(%y) };
      %f(%x)
    }
    ->
    def @main(%x: Tensor[(2,), float32]) { negative(%x) }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function, Let, Var
from armillary.relay.transform._rules import on_functions
from armillary.relay.walk import not_primitive, open_lets, post_order, substitute
from armillary.transform import define_pass

_ROUNDS = 64  # a function that is given functions shows new calls once it is opened


@define_pass("beta-reduce")
def beta_reduce(module: IRModule) -> IRModule:
    """Substitute arguments into functions that are written where they are called.

    (fn (y) { f(y) })(x)  ->  f(x)
    """
    return on_functions(module, _reduced)


def _reduced(function: Function) -> Expr | None:
    current: Expr = function
    for _ in range(_ROUNDS):
        changed = _once(current)
        if changed is current:
            break
        current = changed
    return None if current is function else current


def _once(root: Expr) -> Expr:
    order = post_order(root, not_primitive)
    lets = {id(e.var): e for e in order if isinstance(e, Let) and _is_open(e.value) and not _reads(e.value, e.var)}
    return open_lets(order, lets, _opened)


def _opened(expr: Expr) -> Expr:
    if not isinstance(expr, Call) or not _is_open(expr.op) or len(expr.op.params) != len(expr.args):
        return expr
    return substitute(expr.op.body, {id(p): a for p, a in zip(expr.op.params, expr.args, strict=True)})


def _is_open(expr: Expr) -> bool:
    return isinstance(expr, Function) and not_primitive(expr)


def _reads(expr: Expr, var: Var) -> bool:
    return any(e is var for e in post_order(expr))
