"""to-a-normal-form: name every intermediate value.

In: a module. Out: one in which each constant, call, tuple, field and branch is the value of a let, in the order of
evaluation, in the innermost scope that holds all its uses; arguments are variables. Invariant: nothing is computed
twice or in another scope; to-graph-normal-form goes back.

    def @main(%x: Tensor[(2,), float32]) {
      %0 = nn.relu(%x);
      add(%0, %0)
    }
    ->
    def @main(%x: Tensor[(2,), float32]) {
      let %b0: Tensor[(2,), float32] = nn.relu(%x);
      let %b1: Tensor[(2,), float32] = add(%b0, %b0);
      %b1
    }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Constant, Expr, Function, Let
from armillary.relay.transform._rules import on_functions
from armillary.relay.transform.normal_form.to_basic_block_normal_form import Binder
from armillary.relay.walk import is_leaf, not_primitive, post_order
from armillary.transform import define_pass


@define_pass("to-a-normal-form", name="ToANormalForm")
def to_a_normal_form(module: IRModule) -> IRModule:
    """Let-bind every value that is not bound yet."""
    return on_functions(module, _named)


def _named(function: Function) -> Expr | None:
    order = post_order(function, not_primitive)
    bound = {id(e.value) for e in order if isinstance(e, Let)}
    named = (e for e in order if isinstance(e, Constant) or not (is_leaf(e) or isinstance(e, Let | Function)))
    values = {id(e) for e in named if id(e) not in bound}
    return Binder(function, order, values).run() if values else None
