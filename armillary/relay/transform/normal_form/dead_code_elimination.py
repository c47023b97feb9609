"""dead-code-elimination: drop lets that nobody reads.

In: a module. Out: one without lets whose variable is not used; with `inline_once` also without those whose variable is
used once, in the same scope: the value takes its place. Invariant: a let of a stateful operator stays, unless
`ignore_purity` says that the effect may go.

    def @main(%x: Tensor[(2,), float32]) {
      let %a = negative(%x);
      let %b = nn.relu(%a);
      %x
    }
    ->
    def @main(%x: Tensor[(2,), float32]) { %x }
"""

from __future__ import annotations

from collections import Counter

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function, Let, Var
from armillary.relay.op import Op
from armillary.relay.transform._rules import on_functions
from armillary.relay.walk import children, map_children, not_primitive, post_order, scopes
from armillary.transform import define_pass


@define_pass("dead-code-elimination", opt_level=1)
def dead_code_elimination(module: IRModule, *, inline_once: bool = False, ignore_purity: bool = False) -> IRModule:
    """Remove lets that are not read."""
    return on_functions(module, lambda f: _without_dead(f, inline_once, ignore_purity))


def _without_dead(function: Function, inline_once: bool, ignore_purity: bool) -> Expr | None:
    current: Expr = function
    while isinstance(current, Function) and (changed := _once(current, inline_once, ignore_purity)) is not None:
        current = changed
    return None if current is function else current


def _once(function: Function, inline_once: bool, ignore_purity: bool) -> Expr | None:
    """One round: what becomes dead by it goes in the next."""
    order = post_order(function, not_primitive)
    uses: Counter[int] = Counter(id(c) for e in order for c in children(e) if isinstance(c, Var))
    lets = [e for e in order if isinstance(e, Let)]  # the let itself counts as a use
    dead = {id(e) for e in lets if uses[id(e.var)] == 1 and (ignore_purity or _is_pure(e.value))}
    single = {id(e.var): e for e in lets if inline_once and uses[id(e.var)] == 2 and id(e) not in dead}
    single = _in_same_scope(function, order, single) if single else single
    if not dead and not single:
        return None
    memo: dict[int, Expr] = {}

    def get(expr: Expr) -> Expr:
        return memo.get(id(expr), expr)

    for expr in order:
        if isinstance(expr, Var) and id(expr) in single:
            memo[id(expr)] = get(single[id(expr)].value)
        elif isinstance(expr, Let) and (id(expr) in dead or id(expr.var) in single):
            memo[id(expr)] = get(expr.body)
        else:
            memo[id(expr)] = map_children(expr, get)
    return memo[id(function)]


def _is_pure(value: Expr) -> bool:
    calls = (e for e in post_order(value, not_primitive) if isinstance(e, Call))
    return not any(isinstance(c.op, Op) and c.op.stateful for c in calls)


def _in_same_scope(function: Function, order: list[Expr], lets: dict[int, Let]) -> dict[int, Let]:
    """Those whose only reader is evaluated as often as the let."""
    of, inner = scopes(function)
    readers = {id(c): e for e in order if not isinstance(e, Let) for c in children(e) if id(c) in lets}
    found = {}
    for key, let in lets.items():
        reader = readers.get(key)
        if reader is not None and not isinstance(reader, Function) and of.get(id(reader)) is inner.get((id(let), 2)):
            found[key] = let
    return found
