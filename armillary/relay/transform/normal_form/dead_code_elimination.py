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
from collections.abc import Callable
from functools import partial

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function, Let, Var
from armillary.relay.op import Op
from armillary.relay.transform._rules import on_functions
from armillary.relay.walk import children, has_effect, map_children, not_primitive, post_order, scopes
from armillary.transform import define_pass

Purity = Callable[[Expr], bool]


@define_pass("dead-code-elimination", opt_level=1)
def dead_code_elimination(module: IRModule, *, inline_once: bool = False, ignore_purity: bool = False) -> IRModule:
    """Remove lets that are not read."""
    functions = [f for f in module.functions.values() if isinstance(f, Function)]
    cells = any(has_effect(e) for f in functions for e in post_order(f, not_primitive))
    pure: Purity = (lambda e: True) if ignore_purity else partial(_is_pure, cells=cells)
    return on_functions(module, lambda f: _without_dead(f, inline_once, pure))


def _without_dead(function: Function, inline_once: bool, pure: Purity) -> Expr | None:
    current: Expr = function
    while isinstance(current, Function) and (changed := _once(current, inline_once, pure)) is not None:
        current = changed
    return None if current is function else current


def _once(function: Function, inline_once: bool, pure: Purity) -> Expr | None:
    """One round: what becomes dead by it goes in the next."""
    order = post_order(function, not_primitive)
    uses: Counter[int] = Counter(id(c) for e in order for c in children(e) if isinstance(c, Var))
    lets = [e for e in order if isinstance(e, Let)]  # the let itself counts as a use
    dead = {id(e) for e in lets if uses[id(e.var)] == 1 and pure(e.value)}
    single = {id(e.var): e for e in lets if inline_once and uses[id(e.var)] == 2 and id(e) not in dead}
    single = {key: e for key, e in single.items() if pure(e.value)}
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


def _is_pure(value: Expr, cells: bool) -> bool:
    """Whether it does not matter when, or if, a value is computed. `cells`: what is called may write one."""
    if isinstance(value, Function):
        return True  # it does nothing until it is called
    order = post_order(value, not_primitive)
    if cells and any(has_effect(e) or (isinstance(e, Call) and not isinstance(e.op, Op)) for e in order):
        return False
    return not any(isinstance(e, Call) and isinstance(e.op, Op) and e.op.stateful for e in order)


def _in_same_scope(function: Function, order: list[Expr], lets: dict[int, Let]) -> dict[int, Let]:
    """Those whose only reader is evaluated as often as the let."""
    of, inner = scopes(function)
    readers = {id(c): e for e in order if not isinstance(e, Let) for c in children(e) if id(c) in lets}
    result = {}
    for key, let in lets.items():
        reader = readers.get(key)
        if reader is not None and not isinstance(reader, Function) and of.get(id(reader)) is inner.get((id(let), 2)):
            result[key] = let
    return result
