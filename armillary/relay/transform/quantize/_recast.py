"""recast: chosen operators compute in another type, between casts.

In: a function or expression, the type of inputs, the type of results. Out: the same, where each call of the operators
reads casts and is cast back to the type it had. Invariant: everything else keeps its type; calls are numbered in post
order, so `skip_layers=[0]` keeps the first one as it is, `[-1]` the last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.errors import TypeMismatch
from armillary.ops.elementwise.cast import cast
from armillary.ops.nn.conv import conv2d
from armillary.relay.expr import Call, Expr, Tuple
from armillary.relay.infer import infer_type
from armillary.relay.transform._rules import op_name
from armillary.relay.types import TensorType
from armillary.relay.walk import map_children, post_order


@boundary("recast", arguments=True)
def recast(
    expr: Expr,
    dtype: str,
    out_dtype: str,
    ops: Sequence[str] | None = None,
    skip_layers: Sequence[int] | None = None,
) -> Expr:
    """Compute the operators `ops` (convolutions) of `dtype` inputs, those with an `out_dtype` in that type."""
    wanted, result_dtype = frozenset(ops or (conv2d.name,)), DType(dtype)
    infer_type(expr)
    order = post_order(expr)
    layers = [e for e in order if op_name(e) in wanted]
    for number in skip_layers or ():
        if not -len(layers) <= number < len(layers):
            raise TypeMismatch(f"recast: skip_layers has {number}, there are {len(layers)} calls of the operators")
    skipped = {id(layers[number]) for number in skip_layers or ()}
    chosen = {id(e) for e in layers} - skipped
    memo: dict[int, Expr] = {}
    for e in order:
        rebuilt = map_children(e, lambda child: memo.get(id(child), child))
        if isinstance(rebuilt, Call) and id(e) in chosen:
            rebuilt = _recast_call(rebuilt, e.checked_type, result_dtype, out_dtype)
        memo[id(e)] = rebuilt
    result = memo[id(expr)]
    infer_type(result)
    return result


def _recast_call(call: Call, was: object, dtype: DType, out_dtype: str) -> Expr:
    if not isinstance(was, TensorType):
        raise TypeMismatch(f"recast: {op_name(call)} gives {was}, wanted a tensor", span=call.span)
    attrs = call.attrs
    if hasattr(attrs, "out_dtype"):
        attrs = dataclasses.replace(attrs, out_dtype=str(DType(out_dtype)))
    computed = Call(call.op, tuple(_cast(arg, dtype) for arg in call.args), attrs, call.span)
    return cast(computed, dtype=was.dtype)


def _cast(arg: Expr, dtype: DType) -> Expr:
    if isinstance(arg, Tuple):
        return Tuple(tuple(_cast(field, dtype) for field in arg.fields))
    return cast(arg, dtype=dtype)
