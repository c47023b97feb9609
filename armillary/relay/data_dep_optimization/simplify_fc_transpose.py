"""Dense layers whose weight is transposed where they read it: `simplify_fc_transpose.convert(func, params)`.

In: a function and its parameters. Out: both; the weights are transposed beforehand, under new names. Invariant: the
results are the same.

    nn.dense(%x, transpose(%w, axes=[1, 0]))  ->  nn.dense(%x, %w.T)
"""

from __future__ import annotations

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.ops.nn.dense import dense
from armillary.ops.shape.shape import transpose
from armillary.relay.data_dep_optimization._parameters import New, Params, rewritten
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import is_call


@boundary("simplify_fc_transpose.convert", arguments=True)
def convert(func: Function, params: Params) -> tuple[Function, dict[str, Array]]:
    """The function without transpositions of weights that are parameters."""

    def rule(call: Call, weight: Array, new: New) -> Expr | None:
        if not is_call(call.args[1], transpose.name):
            return None
        return Call(call.op, (call.args[0], new("T", weight)), call.attrs, call.span)

    return rewritten("simplify_fc_transpose.convert", func, params, (dense.name,), rule)
