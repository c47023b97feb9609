"""to-graph-normal-form: put the values of lets where their names are read.

In: a module. Out: one whose lets bind functions only; a value that is read several times is one shared node. Invariant:
expressions have no side effects, so when each is computed does not matter. A function that contains a branch is left
as it is: there a let says which scope computes the value.

    def @main(%x: Tensor[(2,), float32]) {
      let %y = negative(%x);
      add(%y, %x)
    }
    ->
    def @main(%x: Tensor[(2,), float32]) {
      %0 = negative(%x);
      add(%0, %x)
    }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function, If, Let
from armillary.relay.transform._rules import on_functions
from armillary.relay.walk import not_primitive, open_lets, post_order
from armillary.transform import define_pass


@define_pass("to-graph-normal-form")
def to_graph_normal_form(module: IRModule) -> IRModule:
    """Remove lets of values.

    let y = f(x); g(y, y)  ->  g(f(x), f(x)), with one f(x)
    """
    return on_functions(module, _without_lets)


def _without_lets(function: Function) -> Expr | None:
    order = post_order(function, not_primitive)
    lets = {id(e.var): e for e in order if isinstance(e, Let) and not isinstance(e.value, Function)}
    if not lets or any(isinstance(e, If) for e in order):
        return None
    return open_lets(order, lets)
