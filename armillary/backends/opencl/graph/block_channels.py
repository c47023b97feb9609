"""block-channels: channels in blocks of four, for GPUs that read four numbers at once (`-device=adreno`).

In: a module with conv2d in NCHW whose weights are constants. Out: the same on blocks. Where images come with their
channels second: nn.contrib_conv2d_NCHWc and nn.contrib_depthwise_conv2d_NCHWc on NCHW4c data; weights are OIHW4i4o:
four outputs are a pixel, and the four inputs of a block lie side by side. Where they come with channels last, nn.conv2d
on NHWC4c, which is NHWC in memory, with weights HWIO4o or, depthwise, HWOI4o. Input channels are filled up to four with
zeros. What lies between follows (relay/transform/layout/_rules.py). A dense layer of few rows with constant weights is
a convolution of images of one pixel; of four rows and more it is opencl.dense_pixels on NC4c. Invariant: the types of
inputs and outputs stay; what has no such form, or carries a choice for its own layout, keeps it.

    nn.conv2d(%x, weight)
    ->
    layout_transform(nn.contrib_conv2d_NCHWc(layout_transform(%x), layout_transform(weight)))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

from armillary.backends.opencl.graph._bound_blocks import with_bound_blocks
from armillary.backends.opencl.space import MIN_ROWS, TEXELS
from armillary.base.data_layout import Layout, layout
from armillary.base.record import record
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.ops.nn._windows import reshape_to
from armillary.relay.expr import Call, Expr, Function, Var, var
from armillary.relay.infer import infer_type
from armillary.relay.op import Kind, Op, get_op
from armillary.relay.transform._rules import call, is_from_constants, on_functions, op_name, tensor
from armillary.relay.transform.layout._engine import (
    BlockPlan,
    Change,
    LayoutChoice,
    LayoutEngine,
    LayoutRule,
    Request,
    transform,
)
from armillary.relay.transform.layout._plan import plan_blocks
from armillary.relay.transform.layout._rules import find_rule as follow_rule
from armillary.relay.transform.layout._rules import static
from armillary.relay.types import TensorType
from armillary.relay.walk import not_primitive, post_order, rewrite, substitute
from armillary.target.choice import stored_choice
from armillary.target.texture import LAST_CHANNELS, PIXEL
from armillary.transform import define_pass

_FLOATS = ("float32", "float16")
LEAST_TERMS = 128  # of a dense layer
_NCHW, _NHWC, _OIHW = layout("NCHW"), layout("NHWC"), layout("OIHW")
_NC, _OI = layout("NC"), layout("OI")
TO_SECOND, TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)
_MOVES = {TO_SECOND: (_NHWC, _NCHW), TO_LAST: (_NCHW, _NHWC)}  # by the axes of a transpose
_MAPS = (Kind.ELEMENTWISE, Kind.BROADCAST)


@record
class Form:
    """How images lie in blocks, how weights of dense and depthwise convolutions do, and which operators these are."""

    data: Layout
    kernels: tuple[str, str]
    operators: tuple[str, str]


SECOND = Form(
    layout(f"NCHW{PIXEL}c"),
    (f"OIHW{PIXEL}i{PIXEL}o", f"OIHW1i{PIXEL}o"),
    ("nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc"),
)
LAST = Form(layout(LAST_CHANNELS), (f"HWIO{PIXEL}o", f"HWOI{PIXEL}o"), ("nn.conv2d", "nn.conv2d"))


@define_pass("block-channels", opt_level=2)
def block_channels(module: IRModule) -> IRModule:
    """Use NCHW4c, or NHWC4c where images come with channels last, where convolutions can."""
    return on_functions(module, _blocks_of)


def _blocks_of(function: Function) -> Expr:
    plan = plan_blocks(function, PIXEL, PIXEL)
    if not has_channels_last(function):
        result = LayoutEngine(Request(lanes=PIXEL, plan=plan), partial(_find_rule, SECOND)).run(function)
        assert isinstance(result, Function), "a function stays one"
        return with_bound_blocks(result, _NCHW, SECOND.data)
    request = Request(lanes=PIXEL, plan=BlockPlan(plan.need, frozenset()))
    result = LayoutEngine(request, partial(_find_rule, LAST)).run(function)
    return rewrite(rewrite(result, _as_layout), _joined)


def has_channels_last(function: Function) -> bool:
    """Whether convolutions are computed with channels last: one reads an image that was moved there from NHWC."""
    for expr in post_order(function, not_primitive):
        if op_name(expr) != "nn.conv2d" or not isinstance(expr, Call):
            continue
        data = expr.args[0]
        while isinstance(data, Call) and (op_name(data) == "nn.pad" or _kind(data) in _MAPS):
            data = data.args[0]
        if _move(data) == (_NHWC, _NCHW) and not is_from_constants(data):
            return True
    return False


def with_channels_last(function: Function) -> Function:
    """The function of images in NCHW for images in NHWC, given and returned. NHWC is in memory what its blocks are, so
    a kernel stands before each image: it leaves a texture, as the layers before a convolution do.

        fn (x: (1, 8, 5, 7)) { f(x) }
        ->
        fn (x: (1, 5, 7, 8)) { transpose(f(nn.relu(transpose(x, axes=(0, 3, 1, 2)))), axes=(0, 2, 3, 1)) }
    """
    params, moved = list[Var](), dict[int, Expr]()
    for param in function.params:
        ty = tensor(param)
        assert ty is not None, "operands of a task are tensors"
        params.append(param)
        if ty.ndim == len(TO_LAST):
            params[-1] = var(param.name_hint, TensorType(tuple(ty.shape[axis] for axis in TO_LAST), ty.dtype))
            moved[id(param)] = call("nn.relu", call("transpose", params[-1], axes=TO_SECOND))
    result = Function(tuple(params), call("transpose", substitute(function.body, moved), axes=TO_LAST))
    infer_type(result)
    return result


def _kind(expr: Call) -> Kind | None:
    return expr.op.kind if isinstance(expr.op, Op) else None


def _move(expr: Expr) -> tuple[Layout, Layout] | None:
    """From which layout to which a call moves a tensor; a transposition is one between NCHW and NHWC."""
    if not isinstance(expr, Call):
        return None
    if op_name(expr) == "layout_transform":
        return layout(expr.attrs.src_layout), layout(expr.attrs.dst_layout)
    return _MOVES.get(tuple(expr.attrs.axes or ())) if op_name(expr) == "transpose" else None


def _as_layout(expr: Expr) -> Expr | None:
    """transpose(x, axes=(0, 3, 1, 2))  ->  layout_transform(x, src_layout="NHWC", dst_layout="NCHW")"""
    layout = _move(expr) if op_name(expr) == "transpose" else None
    if layout is None:
        return None
    assert isinstance(expr, Call), "asked by _move"
    return call("layout_transform", expr.args[0], src_layout=layout[0].text, dst_layout=layout[1].text)


def _joined(expr: Expr) -> Expr | None:
    """layout_transform(layout_transform(x, A, B), B, C)  ->  layout_transform(x, A, C), a view from NHWC to NHWC4c."""
    outer = _move(expr)
    if outer is None or not isinstance(expr, Call):
        return None
    inner = _move(expr.args[0])
    if inner is None or inner[1] != outer[0] or not isinstance(expr.args[0], Call):
        return None
    return transform(expr.args[0].args[0], inner[0], outer[1])


def _find_rule(form: Form, op: Op) -> LayoutRule | None:
    own = _RULES.get(op.name)
    return follow_rule(op) if own is None else partial(own, form)


def _conv2d(form: Form, expr: Call, have: Sequence[Change | None], request: Request) -> LayoutChoice | None:
    asked = stored_choice(expr)
    if asked and asked.algorithm != TEXELS.name:  # of a record or a script: for this layout
        return None
    message = objection_to_blocks(expr)
    if message:
        if asked:
            raise ConfigError(
                f"nn.conv2d: the choice {TEXELS.name} does not fit: {message}", hint="leave it to the model"
            )
        return None
    if is_depthwise(expr):
        return _blocked(form, expr, depthwise=True)
    shape = static(expr.args[0])
    assert shape is not None, "it has no objection"
    return _dense(form, expr, -shape[1] % PIXEL if expr.attrs.groups == 1 else 0)


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
    message = f"{PIXEL} does not divide the channels of a group, {sizes[0]} and {sizes[1]}"
    return message if any(n % PIXEL for n in sizes) else ""


def _blocked(form: Form, expr: Call, *, depthwise: bool = False) -> LayoutChoice:
    op, kernel = get_op(form.operators[depthwise]), form.kernels[depthwise]
    retained = {f.name: getattr(expr.attrs, f.name) for f in dataclasses.fields(expr.attrs)}
    retained |= {"data_layout": form.data.text, "kernel_layout": kernel, "out_layout": form.data.text}
    attrs = op.make_attrs((), retained)
    wanted, out = (Change(_NCHW, form.data), Change(_OIHW, layout(kernel))), Change(_NCHW, form.data)
    return LayoutChoice(wanted, lambda args: Call(op, tuple(args), attrs, expr.span), out)


def _dense(form: Form, expr: Call, missing: int) -> LayoutChoice:
    """One group, or several of whole blocks; `missing` channels of zeros fill up the last block of the data."""
    result = _blocked(form, expr)
    if not missing:
        return result
    pads = ((0, 0), (0, missing), (0, 0), (0, 0))

    def build(args: Sequence[Expr]) -> Expr:
        data, weight = (call("nn.pad", arg, pad_width=pads) for arg in args)
        return result.build((transform(data, _NCHW, form.data), transform(weight, _OIHW, layout(form.kernels[0]))))

    return LayoutChoice((None, None), build, result.output)


def _bias_add(form: Form, expr: Call, have: Sequence[Change | None], request: Request) -> LayoutChoice | None:
    """A bias for each channel is a sum with an image of one pixel."""
    change, bias = have[0], static(expr.args[1])
    if change is None or change.new != form.data or expr.attrs.axis != 1 or bias is None:
        return None

    def build(args: Sequence[Expr]) -> Expr:
        data, plain = args
        return call("add", data, transform(reshape_to(plain, (1, bias[0], 1, 1)), _NCHW, form.data))

    return LayoutChoice((change, None), build, change)


def _dense_layer(_form: Form, expr: Call, have: Sequence[Change | None], request: Request) -> LayoutChoice | None:
    """Few rows times constant weights: images of one pixel. More rows: pixels of four outputs, which tiles share."""
    shapes, ty = [static(arg) for arg in expr.args], expr.args[0].checked_type
    (shape, weight), message = shapes, isinstance(ty, TensorType) and str(ty.dtype) in _FLOATS
    if not message or shape is None or weight is None or len(shape) != 2 or stored_choice(expr):
        return None
    (rows, terms), units = shape, weight[0]
    if terms % PIXEL or units % PIXEL or not is_from_constants(expr.args[1]):
        return None
    if rows >= MIN_ROWS:
        return _dense_pixels(expr)
    if terms < LEAST_TERMS:
        return None
    op, kernel = get_op(SECOND.operators[0]), SECOND.kernels[0]
    layouts = {"data_layout": SECOND.data.text, "kernel_layout": kernel, "out_layout": SECOND.data.text}
    sizes = {"kernel_size": (1, 1), "channels": units, "out_dtype": expr.attrs.out_dtype}
    attrs = op.make_attrs((), {**layouts, **sizes})

    def build(args: Sequence[Expr]) -> Expr:
        data = reshape_to(args[0], (rows, terms // PIXEL, 1, 1, PIXEL))
        plain = reshape_to(args[1], (units, terms, 1, 1))
        result = Call(op, (data, transform(plain, _OIHW, layout(kernel))), attrs, expr.span)
        return reshape_to(result, (rows, units))

    return LayoutChoice((None, None), build, None)


def _dense_pixels(expr: Call) -> LayoutChoice:
    """A dense layer on blocks of four terms and four outputs: (M, K) is (M, K/4, 4) in memory."""
    op = get_op("opencl.dense_pixels")
    attrs = op.make_attrs((), {"out_dtype": expr.attrs.out_dtype})
    wanted = (Change(_NC, layout(f"NC{PIXEL}c")), Change(_OI, layout(f"IO{PIXEL}o")))
    return LayoutChoice(wanted, lambda args: Call(op, tuple(args), attrs, expr.span), wanted[0])


_RULES: dict[str, Callable[..., LayoutChoice | None]] = {
    "nn.conv2d": _conv2d,
    "nn.bias_add": _bias_add,
    "nn.dense": _dense_layer,
}
