"""What makes more of a graph fit OpenCLML, before its patterns are looked for.

In: a module. Out: one without dropout, whose sums have operands of one shape, whose normalisations behind convolutions
are in the weights. Invariant: the graph computes the same to rounding. The layouts and the order of the steps:
`__init__.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from armillary.ir import IRModule
from armillary.offload.clml.single import BINARY
from armillary.offload.rows import name_of, tensor
from armillary.relay.expr import Call, Constant, Expr, TupleGetItem, const
from armillary.relay.transform._rules import call, rewrite_module
from armillary.relay.types import TensorType
from armillary.transform import Pass, PassInfo


def without_dropout(expr: Expr) -> Expr | None:
    """Dropout means nothing when not training.

    nn.dropout(x)  ->  x
    """
    source = expr.tuple_value if isinstance(expr, TupleGetItem) else expr
    if name_of(source) != "nn.dropout" or not isinstance(source, Call):
        return None
    is_field, is_tensor = source is not expr, isinstance(source.checked_type, TensorType)
    return source.args[0] if is_field or is_tensor else None


def broadcast_operands(expr: Expr) -> Expr | None:
    """An operand that is not of the result's shape is made so.

    add(x, y)  ->  add(x, broadcast_to(y))
    """
    if name_of(expr) not in BINARY or not isinstance(expr, Call):
        return None
    result, lhs, rhs = tensor(expr), tensor(expr.args[0]), tensor(expr.args[1])
    if result is None or lhs is None or rhs is None or lhs.shape == rhs.shape or _is_channel_sum(expr):
        return None
    shape = result.static
    wide = [a if t.shape == result.shape else _wide(a, shape) for a, t in zip(expr.args, (lhs, rhs), strict=True)]
    return call(name_of(expr), *wide)


def _wide(value: Expr, shape: tuple[int, ...]) -> Expr:
    if isinstance(value, Constant):
        return const(np.ascontiguousarray(np.broadcast_to(value.data, shape)))
    return call("broadcast_to", value, shape=shape)


def _is_channel_sum(expr: Call) -> bool:
    """Whether it is the bias of a convolution or of a dense layer, whose patterns want it as it is."""
    producer, added = expr.args
    while name_of(producer) in ("add", "nn.bias_add", "cast"):
        producer = producer.args[0]  # type: ignore[attr-defined]
    contracts = ("nn.conv2d", "nn.conv2d_transpose", "nn.dense")
    return name_of(expr) == "add" and isinstance(added, Constant) and name_of(producer) in contracts


def channels_first(expr: Expr) -> Expr | None:
    """Upsampling with channels last is one with channels first between two changes of layout.

    nn.upsampling(x, layout="NHWC")  ->  layout_transform(nn.upsampling(layout_transform(x), layout="NCHW"))
    """
    if name_of(expr) != "nn.upsampling" or not isinstance(expr, Call) or expr.attrs.layout != "NHWC":
        return None
    attrs = dataclasses.replace(expr.attrs, layout="NCHW")
    data = call("layout_transform", expr.args[0], src_layout="NHWC", dst_layout="NCHW")
    plain = Call(expr.op, (data,), attrs, expr.span)
    return call("layout_transform", plain, src_layout="NCHW", dst_layout="NHWC")


def cancel_layouts(expr: Expr) -> Expr | None:
    """A change of layout and back is none.

    layout_transform(layout_transform(x, "NHWC", "NCHW"), "NCHW", "NHWC")  ->  x
    """
    inner = expr.args[0] if name_of(expr) == "layout_transform" and isinstance(expr, Call) else None
    if not isinstance(expr, Call) or not isinstance(inner, Call) or name_of(inner) != "layout_transform":
        return None
    there, back = inner.attrs, expr.attrs
    same = (there.src_layout, there.dst_layout) == (back.dst_layout, back.src_layout)
    return inner.args[0] if same else None


def fold_batch_norm(expr: Expr) -> Expr | None:
    """A normalisation behind a convolution goes into its weights and a sum.

    nn.batch_norm(nn.conv2d(x, w), …).0  ->  add(nn.conv2d(x, w * scale), shift)
    """
    if not isinstance(expr, TupleGetItem) or expr.index != 0 or name_of(expr.tuple_value) != "nn.batch_norm":
        return None
    norm: Call = expr.tuple_value  # type: ignore[assignment]
    conv = norm.args[0]
    is_conv = name_of(conv) in ("nn.conv2d", "nn.conv2d_transpose")
    if not is_conv or not isinstance(conv, Call) or norm.attrs.axis not in (1, -3) or conv.attrs.data_layout != "NCHW":
        return None
    weight, layout = conv.args[1], conv.attrs.kernel_layout
    if conv.attrs.groups != 1 and name_of(conv) == "nn.conv2d_transpose":
        return None
    if not all(isinstance(e, Constant) for e in (weight, *norm.args[1:])):
        return None
    gamma, beta, mean, variance = (np.asarray(e.data, "float64") for e in norm.args[1:])  # type: ignore[attr-defined]
    scale = (gamma if norm.attrs.scale else 1.0) / np.sqrt(variance + norm.attrs.epsilon)
    shift = (beta if norm.attrs.center else 0.0) - mean * scale
    dtype = weight.data.dtype  # type: ignore[attr-defined]
    along = tuple(-1 if letter == "O" else 1 for letter in layout)
    folded = const((weight.data * scale.reshape(along)).astype(dtype))  # type: ignore[attr-defined]
    folded_call = Call(conv.op, (conv.args[0], folded), conv.attrs, conv.span)
    return call("add", folded_call, const(shift.reshape(1, -1, 1, 1).astype(dtype)))


def _pass(name: str, rule: Callable[[Expr], Expr | None]) -> Pass:
    def run(module: IRModule) -> IRModule:
        return rewrite_module(module, rule)

    return Pass(run, PassInfo(name, name, 0, ()))


REMOVE_DROPOUT = _pass("RemoveDropoutPass", without_dropout)
CHANNELS_FIRST = _pass("UpsamplingChannelsFirst", channels_first)
CANCEL_LAYOUTS = _pass("CancelLayouts", cancel_layouts)
BROADCAST_OPERANDS = _pass("BinaryOpBroadcaster", broadcast_operands)
FOLD_BATCH_NORM = _pass("OptimizeBatchnormPass", fold_batch_norm)
