"""block-channels: channels in blocks of four, for GPUs that read four numbers at once (`-device=adreno`).

In: a module with conv2d in NCHW whose weights are constants. Out: the same with nn.contrib_conv2d_NCHWc and
nn.contrib_depthwise_conv2d_NCHWc on NCHW4c data; weights are OIHW4i4o: four outputs are a pixel, and the four inputs of
a block lie side by side. Input channels are filled up to four with zeros. What lies between follows (relay/transform/
layout/_rules.py). A dense layer of few rows with constant weights is a convolution of images of one pixel. Invariant:
the types of inputs and outputs stay; what has no such form, or carries a choice for its own layout, keeps it.

    nn.conv2d(%x, weight)
    ->
    layout_transform(nn.contrib_conv2d_NCHWc(layout_transform(%x), layout_transform(weight)))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from armillary.backends.opencl.space import MIN_ROWS, TEXELS
from armillary.base.data_layout import layout
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.ops.nn._windows import reshape_to
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import Op, get_op
from armillary.relay.transform._rules import call, is_from_constants, on_functions
from armillary.relay.transform.layout._engine import Change, LayoutChoice, LayoutEngine, LayoutRule, Request, transform
from armillary.relay.transform.layout._plan import plan_blocks
from armillary.relay.transform.layout._rules import find_rule as follow_rule
from armillary.relay.transform.layout._rules import static
from armillary.relay.types import TensorType
from armillary.target.choice import stored_choice
from armillary.target.texture import PIXEL
from armillary.transform import define_pass

_FLOATS = ("float32", "float16")
LEAST_TERMS = 128  # of a dense layer
_NCHW, _OIHW, _BLOCKED = layout("NCHW"), layout("OIHW"), layout(f"NCHW{PIXEL}c")


@define_pass("block-channels", opt_level=2)
def block_channels(module: IRModule) -> IRModule:
    """Use NCHW4c where convolutions can."""

    def change(function: Function) -> Expr:
        request = Request(lanes=PIXEL, plan=plan_blocks(function, PIXEL, PIXEL))
        return LayoutEngine(request, _find_rule).run(function)

    return on_functions(module, change)


def _find_rule(op: Op) -> LayoutRule | None:
    return _RULES.get(op.name) or follow_rule(op)


def _conv2d(expr: Call, have: Sequence[Change | None], request: Request) -> LayoutChoice | None:
    asked = stored_choice(expr)
    if asked and asked.algorithm != TEXELS:  # of a record or a script: for this layout
        return None
    told = objection_to_blocks(expr)
    if told:
        if asked:
            raise ConfigError(f"nn.conv2d: the choice {TEXELS} does not fit: {told}", hint="leave it to the model")
        return None
    if is_depthwise(expr):
        return _blocked("nn.contrib_depthwise_conv2d_NCHWc", expr, f"OIHW1i{PIXEL}o")
    shape = static(expr.args[0])
    assert shape is not None, "it has no objection"
    return _dense(expr, -shape[1] % PIXEL if expr.attrs.groups == 1 else 0)


def is_depthwise(expr: Call) -> bool:
    """Whether each channel is a group of its own."""
    shape, weight = (static(arg) for arg in expr.args)
    if shape is None or weight is None:
        return False
    return bool(expr.attrs.groups == weight[0] == shape[1] and weight[1] == 1)


def objection_to_blocks(expr: Call) -> str:
    """Why a convolution is not computed on blocks of four channels; "" where it is."""
    attrs, shapes = expr.attrs, [static(arg) for arg in expr.args]
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW")
    shape, weight, ty = shapes[0], shapes[1], expr.args[0].checked_type
    if layouts != ("NCHW", "OIHW", "NCHW") or shape is None or weight is None:
        return "its layouts are not NCHW and OIHW, or its sizes not known"
    if not is_from_constants(expr.args[1]):
        return "its weights are computed"
    if not isinstance(ty, TensorType) or str(ty.dtype) not in _FLOATS:
        return "it is in neither float32 nor float16"
    if weight[0] % PIXEL:
        return f"{PIXEL} does not divide {weight[0]} output channels"
    if attrs.groups == 1 or is_depthwise(expr):
        return ""
    sizes = (shape[1] // attrs.groups, weight[0] // attrs.groups)
    told = f"{PIXEL} does not divide the channels of a group, {sizes[0]} and {sizes[1]}"
    return told if any(n % PIXEL for n in sizes) else ""


def _blocked(name: str, expr: Call, kernel: str) -> LayoutChoice:
    op = get_op(name)
    kept = {f.name: getattr(expr.attrs, f.name) for f in dataclasses.fields(expr.attrs)}
    kept |= {"data_layout": _BLOCKED.text, "kernel_layout": kernel, "out_layout": _BLOCKED.text}
    attrs = op.make_attrs((), kept)
    wanted, out = (Change(_NCHW, _BLOCKED), Change(_OIHW, layout(kernel))), Change(_NCHW, _BLOCKED)
    return LayoutChoice(wanted, lambda args: Call(op, tuple(args), attrs, expr.span), out)


def _dense(expr: Call, missing: int) -> LayoutChoice:
    """One group, or several of whole blocks; `missing` channels of zeros fill up the last block of the data."""
    kernel = f"OIHW{PIXEL}i{PIXEL}o"
    found = _blocked("nn.contrib_conv2d_NCHWc", expr, kernel)
    if not missing:
        return found
    pads = ((0, 0), (0, missing), (0, 0), (0, 0))

    def build(args: Sequence[Expr]) -> Expr:
        data, weight = (call("nn.pad", arg, pad_width=pads) for arg in args)
        return found.build((transform(data, _NCHW, _BLOCKED), transform(weight, _OIHW, layout(kernel))))

    return LayoutChoice((None, None), build, found.output)


def _bias_add(expr: Call, have: Sequence[Change | None], request: Request) -> LayoutChoice | None:
    """A bias for each channel is a sum with an image of one pixel."""
    change, bias = have[0], static(expr.args[1])
    if change is None or change.new != _BLOCKED or expr.attrs.axis != 1 or bias is None:
        return None

    def build(args: Sequence[Expr]) -> Expr:
        data, plain = args
        return call("add", data, transform(reshape_to(plain, (1, bias[0], 1, 1)), _NCHW, _BLOCKED))

    return LayoutChoice((change, None), build, change)


def _dense_layer(expr: Call, have: Sequence[Change | None], request: Request) -> LayoutChoice | None:
    """Few rows times constant weights: images of one pixel; of many rows tiles share what they read."""
    shapes, ty = [static(arg) for arg in expr.args], expr.args[0].checked_type
    (shape, weight), told = shapes, isinstance(ty, TensorType) and str(ty.dtype) in _FLOATS
    if not told or shape is None or weight is None or len(shape) != 2 or stored_choice(expr):
        return None
    (rows, terms), units = shape, weight[0]
    if rows >= MIN_ROWS or terms % PIXEL or units % PIXEL or terms < LEAST_TERMS or not is_from_constants(expr.args[1]):
        return None
    op, kernel = get_op("nn.contrib_conv2d_NCHWc"), f"OIHW{PIXEL}i{PIXEL}o"
    layouts = {"data_layout": _BLOCKED.text, "kernel_layout": kernel, "out_layout": _BLOCKED.text}
    sizes = {"kernel_size": (1, 1), "channels": units, "out_dtype": expr.attrs.out_dtype}
    attrs = op.make_attrs((), {**layouts, **sizes})

    def build(args: Sequence[Expr]) -> Expr:
        data = reshape_to(args[0], (rows, terms // PIXEL, 1, 1, PIXEL))
        plain = reshape_to(args[1], (units, terms, 1, 1))
        made = Call(op, (data, transform(plain, _OIHW, layout(kernel))), attrs, expr.span)
        return reshape_to(made, (rows, units))

    return LayoutChoice((None, None), build, None)


_RULES: dict[str, LayoutRule] = {"nn.conv2d": _conv2d, "nn.bias_add": _bias_add, "nn.dense": _dense_layer}
