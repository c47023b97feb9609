"""widen-conv1d: convolutions over one axis as convolutions over two, the first of size 1.

In: a typed module. Out: one without nn.conv1d and nn.conv1d_transpose on NCW data with OIW and IOW weights; elementwise
operators between them work on four axes too, so that blocked layouts go through. Invariant: same values; the added axes
are views. Other layouts stay as they are.

    nn.conv1d(%x, %w)
    ->
    %0 = expand_dims(%x, axis=2);
    %1 = expand_dims(%w, axis=2);
    %2 = nn.conv2d(%0, %1, padding=[0, 0, 0, 0]);
    squeeze(%2, axis=[2])
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, known_of
from armillary.relay.op import Kind, Op
from armillary.relay.transform._rules import call, names_places, op_name, rewrite_module
from armillary.transform import define_pass


@define_pass("widen-conv1d", opt_level=3)
def widen_conv1d(module: IRModule) -> IRModule:
    """Replace convolutions over one axis, and carry the new axis through elementwise operators."""
    return rewrite_module(module, _wider, _carried)


def _wider(expr: Expr) -> Expr | None:
    """nn.conv1d(x, w)  ->  squeeze(nn.conv2d(expand_dims(x), expand_dims(w)))"""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or known_of(expr) is None:
        return None
    a = expr.attrs
    if not expr.op.wider or not hasattr(a, "kernel_layout"):
        return None
    plain = type(a).kernel_layout
    if (a.data_layout, a.kernel_layout) != ("NCW", plain) or a.out_layout not in ("", "NCW"):
        return None
    before, after = (a.padding * 2)[:2]
    attrs = {
        "strides": (1, *a.strides),
        "padding": (0, before, 0, after),
        "dilation": (1, *a.dilation),
        "groups": a.groups,
        "channels": a.channels,
        "kernel_size": None if a.kernel_size is None else (1, *a.kernel_size),
        "out_dtype": a.out_dtype,
    }
    if hasattr(a, "output_padding"):
        attrs["output_padding"] = (0, *a.output_padding)
    data, weight = (call("expand_dims", x, axis=2) for x in expr.args)
    return call("squeeze", call(expr.op.wider, data, weight, **attrs), axis=(2,))


def _carried(expr: Expr) -> Expr | None:
    """op(squeeze(x), y)  ->  squeeze(op(x, expand_dims(y)))   for elementwise and broadcasting operators"""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op.kind > Kind.BROADCAST:
        return None
    ty = known_of(expr)
    if ty is None or ty.ndim != 3 or not any(_is_narrowed(a) for a in expr.args) or names_places(expr):
        return None
    args = [_four(a) for a in expr.args]
    if any(a is None for a in args):
        return None
    wide = Call(expr.op, tuple(a for a in args if a is not None), expr.attrs, expr.span)
    return call("squeeze", wide, axis=(2,))


def _is_narrowed(expr: Expr) -> bool:
    """Whether it is the squeeze of a tensor of four axes."""
    if op_name(expr) != "squeeze" or not isinstance(expr, Call):
        return False
    source = known_of(expr.args[0])
    axes = expr.attrs.axis or ()
    return source is not None and source.ndim == 4 and tuple(a % 4 for a in axes) == (2,)


def _four(expr: Expr) -> Expr | None:
    """An operand for data of four axes."""
    if _is_narrowed(expr) and isinstance(expr, Call):
        return expr.args[0]
    ty = known_of(expr)
    if ty is None or ty.ndim > 3:
        return None
    if ty.ndim < 2:
        return expr
    if isinstance(expr, Constant) and ty.size == 1:
        return call("reshape", expr, newshape=(1,))
    return call("expand_dims", expr, axis=ty.ndim - 1)
