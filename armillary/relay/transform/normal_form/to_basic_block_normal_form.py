"""to-basic-block-normal-form: bind what several scopes share.

In: a module. Out: one where an expression used in a branch or inner function and also elsewhere is bound by a let in
the innermost scope that holds all its uses, so each expression belongs to one basic block. Invariant: functions without
control flow and inner functions are returned as they are.

    def @main(%c: Tensor[(), bool], %x: Tensor[(), float32]) {
      %0 = negative(%x);
      if (%c) { nn.relu(%0) } else { %0 }
    }
    ->
    def @main(%c: Tensor[(), bool], %x: Tensor[(), float32]) {
      %0 = negative(%x);
      let %b0: Tensor[(), float32] = %0;
      if (%c) { nn.relu(%b0) } else { %b0 }
    }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function, If, Let, Var
from armillary.relay.transform._rules import on_functions
from armillary.relay.walk import Scope, children, is_leaf, map_children, not_primitive, post_order, scopes
from armillary.transform import define_pass


@define_pass("to-basic-block-normal-form", opt_level=1)
def to_basic_block_normal_form(module: IRModule) -> IRModule:
    """Let-bind expressions shared between scopes."""
    return on_functions(module, normalise)


def normalise(function: Function) -> Expr | None:
    """The function in basic-block normal form; None where it is already."""
    order = post_order(function, not_primitive)
    if not any(isinstance(e, If) or (isinstance(e, Function) and e is not function) for e in order):
        return None
    shared = _shared(function, order)
    return Binder(function, order, shared).run() if shared else None


def _shared(function: Function, order: list[Expr]) -> set[int]:
    """Nodes used in a scope inside their own."""
    of, inner = scopes(function)
    result: set[int] = set()
    for expr in order:
        for child, scope in _uses(expr, of, inner):
            if not is_leaf(child) and of[id(child)] is not scope and not isinstance(child, Function):
                result.add(id(child))
    return result


def _uses(expr: Expr, of: dict[int, Scope], inner: dict[tuple[int, int], Scope]) -> list[tuple[Expr, Scope]]:
    match expr:
        case Function():
            return [(expr.body, inner[id(expr), 0])] if (id(expr), 0) in inner else []
        case If():
            parts = (expr.cond, expr.true_branch, expr.false_branch)
            return [(part, inner[id(expr), k]) for k, part in enumerate(parts)]
        case Let():
            return [(part, inner[id(expr), k]) for k, part in enumerate((expr.value, expr.var, expr.body))]
        case _:
            return [(child, of[id(expr)]) for child in children(expr)] if not is_leaf(expr) else []


class Binder:
    """Rebuilds in post order; each scope collects its bindings, and is wrapped in them when it closes."""

    def __init__(self, function: Function, order: list[Expr], shared: set[int]) -> None:
        self.function, self.order, self.shared = function, order, shared
        self.of, self.inner = scopes(function)
        self.memo: dict[int, Expr] = {}
        self.bindings: dict[int, list[tuple[Var, Expr]]] = {}
        self.lets = {id(e.var): e for e in order if isinstance(e, Let)}

    def run(self) -> Expr:
        for expr in self.order:
            self.memo[id(expr)] = self._visit(expr)
        return self.memo[id(self.function)]

    def _get(self, expr: Expr) -> Expr:
        return self.memo.get(id(expr), expr)

    def _visit(self, expr: Expr) -> Expr:
        if isinstance(expr, Var):
            if id(expr) in self.lets:
                let = self.lets[id(expr)]
                self._bind(self.inner[id(let), 1], expr, self._get(let.value))
            return expr
        result = self._rebuild(expr)
        if id(expr) not in self.shared:
            return result
        var = Var(f"b{sum(map(len, self.bindings.values()))}", expr.checked_type)
        self._bind(self.of[id(expr)], var, result)
        return var

    def _rebuild(self, expr: Expr) -> Expr:
        if isinstance(expr, If):
            yes = self._close(self.inner[id(expr), 1], expr.true_branch)
            no = self._close(self.inner[id(expr), 2], expr.false_branch)
            return If(self._get(expr.cond), yes, no, expr.span)
        if isinstance(expr, Function):
            if not not_primitive(expr):
                return expr
            body = self._close(self.inner[id(expr), 0], expr.body)
            return Function(expr.params, body, expr.ret_type, expr.attrs, expr.span)
        if isinstance(expr, Let):
            scope = self.inner[id(expr), 2]
            return self._get(expr.body) if scope is self.of[id(expr)] else self._close(scope, expr.body)
        return map_children(expr, self._get)

    def _bind(self, scope: Scope, var: Var, value: Expr) -> None:
        self.bindings.setdefault(id(scope), []).append((var, value))

    def _close(self, scope: Scope, body: Expr) -> Expr:
        result = self._get(body)
        for var, value in reversed(self.bindings.pop(id(scope), [])):
            result = Let(var, value, result)
        return result
