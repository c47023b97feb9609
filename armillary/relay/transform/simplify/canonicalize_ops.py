"""canonicalize-ops: fewer ways to say the same.

In: a module. Out: one where adding a bias is a plain broadcast addition, a leaky activation with a slope per channel is
made of broadcasts, and parts of a split of an image's channels are slices, so that folding, layouts and fusion see one
form. Invariant: types stay, and values, for infinities too.

    def @main(%x: Tensor[(1, 4, 2, 2), float32], %b: Tensor[(4,), float32]) { nn.bias_add(%x, %b) }
    ->
    def @main(%x: Tensor[(1, 4, 2, 2), float32], %b: Tensor[(4,), float32]) {
      %0 = expand_dims(%b, axis=1, num_newaxis=2);
      add(%x, %0)
    }
"""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, TupleGetItem
from armillary.relay.op import constant_value
from armillary.relay.transform._rules import call, op_name, rewrite_module, tensor, with_span
from armillary.relay.types import TensorType
from armillary.transform import define_pass


@define_pass("canonicalize-ops", opt_level=3)
def canonicalize_ops(module: IRModule) -> IRModule:
    """Write bias_add as expand_dims and add, prelu as relu, minimum, multiply and add, parts of channels as slices."""
    return rewrite_module(module, bias_add, prelu, split_channels)


def bias_add(expr: Expr) -> Expr | None:
    """nn.bias_add(x, b, axis)  ->  add(x, expand_dims(b))"""
    if op_name(expr) != "nn.bias_add" or not isinstance(expr, Call):
        return None
    data, bias = expr.args
    ty = data.checked_type
    if not isinstance(ty, TensorType):
        return None
    return with_span(data + _along(bias, ty, expr.attrs.axis), expr)


def prelu(expr: Expr) -> Expr | None:
    """nn.prelu(x, a, axis)  ->  add(nn.relu(x), multiply(minimum(x, 0), expand_dims(a)))

    Unlike a maximum of x and a * x it holds for slopes above 1, and for an infinity with a slope of 0. An infinite
    slope would be multiplied by 0, so slopes are known.
    """
    if op_name(expr) != "nn.prelu" or not isinstance(expr, Call):
        return None
    data, slope = expr.args
    ty, of = data.checked_type, slope.checked_type
    known = constant_value(slope)
    if not isinstance(ty, TensorType) or not isinstance(of, TensorType) or known is None:
        return None
    if not np.all(np.isfinite(known)):
        return None
    slope = slope if of.shape == (1,) else _along(slope, ty, expr.attrs.axis)
    below = call("minimum", data, Constant(np.zeros((), ty.dtype.numpy)))
    return with_span(call("nn.relu", data) + below * slope, expr)


def split_channels(expr: Expr) -> Expr | None:
    """split(x, axis=1)[i]  ->  strided_slice(x, axes=[1])   if x has four axes: slices keep blocked layouts"""
    if not isinstance(expr, TupleGetItem) or op_name(expr.tuple_value) != "split":
        return None
    whole: Any = expr.tuple_value  # Any: a Call, as just tested
    data, part = tensor(whole.args[0]), tensor(expr)
    if data is None or part is None or data.ndim != 4 or whole.attrs.axis % 4 != 1:
        return None
    cuts = whole.attrs.indices_or_sections
    begin = expr.index * part.static[1] if isinstance(cuts, int) else (0, *cuts)[expr.index]
    return call("strided_slice", whole.args[0], begin=(begin,), end=(begin + part.static[1],), axes=(1,))


def _along(vector: Expr, data: TensorType, axis: int) -> Expr:
    """A vector with the axes it needs to broadcast along one axis of the data."""
    after = data.ndim - 1 - axis % data.ndim
    return call("expand_dims", vector, axis=1, num_newaxis=after) if after else vector
