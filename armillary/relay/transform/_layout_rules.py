"""How operators take part in layout changes: contractions start them, the rest follows or ends them.

In: a call, the layout changes of its inputs, the request. Out: a `LayoutChoice`, or None: inputs as they were.
Invariant: a rule returns None unless it knows the result to be the same in the new layout.
An operator's own `layout` facet comes before these; a kind's rule comes last.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from armillary.base.lazy import late
from armillary.ops._words import BYTES, HALVES, in_word
from armillary.ops.nn_common import call, reshape_to
from armillary.relay.expr import Call, Constant, Expr, Tuple
from armillary.relay.layout import Layout, choose_block, layout
from armillary.relay.op import Kind, Op, get_op
from armillary.relay.transform._half_products import has_few_channels
from armillary.relay.transform._layout_engine import (
    Change,
    LayoutChoice,
    LayoutRule,
    Request,
    flat_arguments,
    transform,
)
from armillary.relay.transform._layout_plan import PLAIN, stays_plain
from armillary.relay.transform._layout_shuffle import channel_shuffle
from armillary.relay.transform._layout_views import strided_slice, take
from armillary.relay.transform._rules import is_from_constants, op_name
from armillary.relay.types import TensorType
from armillary.target.cost_few import has_inputs_in_lanes, has_terms_in_lanes
from armillary.target.cost_tiles import SIDE, WORDS, tiled_channels
from armillary.target.cpu import CpuModel

Changes = Sequence[Change | None]
words_of_taps = late("armillary.ops.nn_conv_bytes:words_of_taps")
channels_together = late("armillary.ops.nn_conv_few:channels_together")
rows_of_windows = late("armillary.ops.nn_conv_few:rows_of_windows")
WINOGRAD_IMAGE = 1024  # pixels
MIN_ROWS = 4  # with fewer rows a dense layer of less than a vector is left to the reductions
_KERNEL_OF = {  # the weight layout that goes with a data layout by default
    ("nn.conv2d", "NCHW"): "OIHW",
    ("nn.conv2d", "NHWC"): "HWIO",
    ("qnn.conv2d", "NCHW"): "OIHW",
    ("qnn.conv2d", "NHWC"): "HWIO",
    ("nn.conv2d_transpose", "NCHW"): "IOHW",
    ("nn.conv2d_transpose", "NHWC"): "HWIO",
}


def find_rule(op: Op) -> LayoutRule | None:
    """The rule of an operator: its own, the table's, or its kind's."""
    if op.layout_rule is not None:
        return op.layout_rule
    if op.name in _RULES:
        return _RULES[op.name]
    return _BY_KIND.get(op.kind)


def static(expr: Expr) -> tuple[int, ...] | None:
    """The shape of a tensor expression, where known."""
    ty = expr.checked_type
    if not isinstance(ty, TensorType) or not all(isinstance(d, int) for d in ty.shape):
        return None
    return ty.static


def _rebuilt(expr: Call, changes: dict[str, Any]) -> Any:  # Any: attrs differ by operator
    attrs = dataclasses.replace(expr.attrs, **changes) if changes else expr.attrs

    def build(args: Sequence[Expr]) -> Expr:
        return Call(expr.op, tuple(args), attrs, expr.span)

    return build


def _first(have: Changes) -> Change | None:
    return next((change for change in have if change is not None), None)


# --- convolutions ---------------------------------------------------------------------------------------------------


def conv2d(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """nn.conv2d: into blocks of channels, or into the layouts asked for."""
    desired = request.layouts_of("nn.conv2d")
    if desired is not None:
        return _conv2d_as_asked(expr, desired)
    if not request.lanes or expr.attrs.data_layout != "NCHW" or expr.attrs.kernel_layout != "OIHW":
        return None
    shape, weight = static(expr.args[0]), static(expr.args[1])
    plain_out = expr.attrs.out_layout in ("", "NCHW")
    if shape is None or weight is None or not plain_out or not isinstance(expr.args[1], Constant):
        return None
    is_of_bytes = _is_of_bytes(expr, request)
    if _is_depthwise(expr, shape, weight):
        return (_depthwise_bytes if is_of_bytes else _depthwise_blocked)(expr, have, request, shape)
    if is_of_bytes and weight[1] % BYTES == 0:
        return _conv2d_words(expr, have, request, weight, BYTES)
    if _is_of_halves(expr) and has_few_channels(weight):
        return _conv2d_few(expr, request, weight)
    if _is_of_halves(expr):
        return _conv2d_words(expr, have, request, weight, HALVES)
    return _conv2d_blocked(expr, have, request, shape, weight)


def _is_depthwise(expr: Call, shape: tuple[int, ...], weight: tuple[int, ...]) -> bool:
    groups = expr.attrs.groups
    return bool(groups > 1 and groups == shape[1] and weight[0] == groups and weight[1] == 1)


def _conv2d_blocked(
    expr: Call, have: Changes, request: Request, shape: tuple[int, ...], weight: tuple[int, ...]
) -> LayoutChoice | None:
    groups = expr.attrs.groups
    if weight[1] * groups != shape[1]:
        return None
    if request.cpu is not None and is_to_few_channels(expr, request.lanes, request.cpu):
        return _blocked("nn.contrib_conv2d_NCHWc", expr, request.lanes, weight[0], f"OIHW{request.lanes}i{weight[0]}o")
    if stays_plain(expr, request.lanes):
        return None
    current = have[0].new.block("C") if have[0] is not None else 0
    inner = current if current and weight[1] % current == 0 else _agreed(expr.args[0], weight[1], request)
    if groups == 1 and not inner:
        inner = 1  # blocks of one are the plain layout: nothing is copied
    outer = _agreed(expr, weight[0] // groups, request)
    if inner * 2 == outer == request.lanes and _is_winograd(expr, weight):
        outer = inner
    if not inner or not outer or (outer < 4 and weight[0] > 4):
        return None
    return _blocked("nn.contrib_conv2d_NCHWc", expr, inner, outer, f"OIHW{inner}i{outer}o")


def is_to_few_channels(expr: Call, lanes: int, cpu: CpuModel) -> bool:
    """Whether a convolution adds up blocks of `lanes` channels for each of few outputs (conv2d_few_outputs.py)."""
    weight, result = static(expr.args[1]), static(expr)
    if op_name(expr) != "nn.conv2d" or expr.attrs.groups != 1 or weight is None or result is None or lanes != cpu.lanes:
        return False
    if _dtype(expr) != "float32" or _dtype(expr.args[1]) != "float32":
        return False
    return has_inputs_in_lanes(math.prod(result[2:]), weight[0], weight[1], math.prod(weight[2:]), cpu)


def _is_of_bytes(expr: Call, request: Request) -> bool:
    """Whether the convolution is one of dot products of bytes on the target."""
    data, weight = (a.checked_type for a in expr.args)
    if not isinstance(data, TensorType) or not isinstance(weight, TensorType) or request.cpu is None:
        return False
    if weight.dtype != "int8" or data.dtype.bits != 8 or expr.attrs.out_dtype != "int32":
        return False
    return (data.dtype.code, "int") in request.cpu.dot_signs


def _is_of_halves(expr: Call) -> bool:
    """Whether the convolution multiplies bfloat16."""
    return all(getattr(a.checked_type, "dtype", None) == "bfloat16" for a in expr.args)


_IN_WORDS = {BYTES: "nn.contrib_conv2d_NCHWc_int8", HALVES: "nn.contrib_conv2d_NCHWc_bf16"}


def _conv2d_words(
    expr: Call, have: Changes, request: Request, weight: tuple[int, ...], word: int
) -> LayoutChoice | None:
    """The channels of a dot product, `word` of them, lie together, in the data's blocks and in the weight."""
    current = have[0].new.block("C") if have[0] is not None else 0
    choices = (current, _agreed(expr.args[0], weight[1], request), *range(request.lanes, 0, -1))
    inner = next((block for block in choices if block and weight[1] % block == 0 and block % word == 0), 0)
    outer = _agreed(expr, weight[0] // expr.attrs.groups, request)
    if not outer or not inner:
        return None
    found = _blocked(_IN_WORDS[word], expr, inner, outer, "OIHW")
    together = _tiled_channels(expr, weight, inner, outer, request.cpu, word) or inner
    chunks, blocks = weight[0] // outer, -(-weight[1] // together)
    words = (chunks, outer, blocks, together // word, word, *weight[2:])

    def packed(kernel: Expr) -> Expr:
        if weight[1] % together:
            kernel = get_op("nn.pad")(kernel, pad_width=((0, 0), (0, -weight[1] % together), (0, 0), (0, 0)))
        return get_op("transpose")(reshape_to(kernel, words), axes=(0, 2, 5, 6, 3, 1, 4))

    return _in_words(found, packed, {"kernel_layout": f"OIHW{together // word}i{outer}o{word}i"})


def _conv2d_few(expr: Call, request: Request, weight: tuple[int, ...]) -> LayoutChoice | None:
    """The columns of a window lie side by side in the weight; the data stays plain, and is rounded in the kernel."""
    outer, constant = _agreed(expr, weight[0], request), expr.args[1]
    if not outer or not isinstance(constant, Constant):
        return None
    op, out = get_op("nn.contrib_conv2d_few_NCHWc_bf16"), layout(f"NCHW{outer}c")
    kept = {f.name: getattr(expr.attrs, f.name) for f in dataclasses.fields(expr.attrs)}
    together = channels_together(weight[1], weight[3])
    kept |= {"out_layout": out.text, "kernel_size": weight[2:], "together": together}
    packed, attrs = Constant(rows_of_windows(constant.data, outer, together), constant.span), op.make_attrs((), kept)

    def build(args: Sequence[Expr]) -> Expr:
        data = args[0]
        is_cast = isinstance(data, Call) and op_name(data) == "cast" and _dtype(data.args[0]) == "float32"
        return Call(op, (data.args[0] if is_cast else data, packed), attrs, expr.span)  # type: ignore[attr-defined]

    return LayoutChoice((None, None), build, Change(layout("NCHW"), out))


def _dtype(expr: Expr) -> str:
    return str(getattr(expr.checked_type, "dtype", ""))


def _tiled_channels(
    expr: Call, weight: tuple[int, ...], inner: int, outer: int, cpu: CpuModel | None, word: int
) -> int:
    """How many channels the weight takes together for matrix tiles; 0: it does not."""
    depth = WORDS * word
    if cpu is None or expr.attrs.groups != 1 or outer % SIDE or depth % inner:
        return 0
    if word == HALVES:
        return depth if cpu.has_half_tiles else 0
    outputs, inputs, *kernel = weight
    return tiled_channels(inputs, outputs, math.prod(kernel), math.prod(expr.attrs.strides), cpu)


def _in_words(choice: LayoutChoice, packed: Callable[[Expr], Expr], changes: dict[str, Any]) -> LayoutChoice:
    """A choice whose weight is packed further, for dot products; `changes` are those of the attributes."""

    def build(args: Sequence[Expr]) -> Expr:
        made = choice.build((args[0], packed(args[1])))
        assert isinstance(made, Call), "of the blocked operator"
        made = Call(made.op, made.args, dataclasses.replace(made.attrs, **changes), made.span)
        return _pads_itself(made) if hasattr(made.attrs, "pad_value") else made

    return LayoutChoice(choice.inputs, build, choice.output)


def _depthwise_bytes(expr: Call, have: Changes, request: Request, shape: tuple[int, ...]) -> LayoutChoice | None:
    """The four taps of a dot product lie together in the weight; the data is in any blocks."""
    block = have[0].new.block("C") if have[0] is not None else _agreed(expr, shape[1], request)
    weight = expr.args[1]
    if block < 2 or not isinstance(weight, Constant):
        return None
    found = _blocked("nn.contrib_depthwise_conv2d_NCHWc_int8", expr, block, block, "OIHW")
    words, size = Constant(words_of_taps(weight.data, block), weight.span), weight.data.shape[2:]
    return _in_words(found, lambda _: words, {"kernel_size": size, "kernel_layout": f"OHW{block}o{BYTES}w"})


def _pads_itself(expr: Call) -> Call:
    """convolution(pad(x, value))  ->  convolution(x) with that padding, which its kernel writes where it reads"""
    data, weight = expr.args
    moved = data if op_name(data) == "layout_transform" and isinstance(data, Call) else None
    padded = data if moved is None else moved.args[0]
    if op_name(padded) != "nn.pad" or not isinstance(padded, Call) or padded.attrs.pad_mode != "constant":
        return expr
    outer, inner = padded.attrs.pad_width[:2], padded.attrs.pad_width[4:]
    (top, bottom), (left, right) = padded.attrs.pad_width[2:4]
    if any(map(any, (*outer, *inner, expr.attrs.padding))) or (moved is not None and moved.attrs.src_layout != "NCHW"):
        return expr
    pads, value = (top, left, bottom, right), int(padded.attrs.pad_value)
    attrs = dataclasses.replace(expr.attrs, padding=pads, pad_value=value)
    source = padded.args[0] if moved is None else Call(moved.op, (padded.args[0],), moved.attrs, moved.span)
    return Call(expr.op, (source, weight), attrs, expr.span)


def _is_winograd(expr: Call, weight: tuple[int, ...]) -> bool:
    """Whether Winograd's algorithm pays for half vectors: it wants one block before and after. Small images do not."""
    attrs, result = expr.attrs, static(expr)
    plain = attrs.groups == 1 and set(attrs.strides) == {1} and set(attrs.dilation) == {1}
    return plain and weight[2:] == (3, 3) and result is not None and result[2] * result[3] >= WINOGRAD_IMAGE


def _agreed(expr: Expr, channels: int, request: Request) -> int:
    """The block of a tensor: one that its consumers take as it is, if there is one, else the best for itself."""
    agreed = request.plan.common(expr, channels)
    return (choose_block(agreed, request.lanes) if agreed >= 4 else 0) or choose_block(channels, request.lanes)


def _depthwise_blocked(expr: Call, have: Changes, request: Request, shape: tuple[int, ...]) -> LayoutChoice | None:
    block = have[0].new.block("C") if have[0] is not None else _agreed(expr, shape[1], request)
    if block < 2:
        return None
    return _blocked("nn.contrib_depthwise_conv2d_NCHWc", expr, block, block, f"OIHW1i{block}o")


def _blocked(name: str, expr: Call, inner: int, outer: int, kernel: str, old_kernel: str = "OIHW") -> LayoutChoice:
    nchw, data, out = layout("NCHW"), layout(f"NCHW{inner}c"), layout(f"NCHW{outer}c")
    op = get_op(name)
    kept = {f.name: getattr(expr.attrs, f.name) for f in dataclasses.fields(expr.attrs)}
    kept |= {"data_layout": data.text, "kernel_layout": kernel, "out_layout": out.text}
    attrs = op.make_attrs((), kept)
    wanted = (Change(nchw, data), Change(layout(old_kernel), layout(kernel)))
    return LayoutChoice(wanted, lambda args: Call(op, tuple(args), attrs, expr.span), Change(nchw, out))


def _conv2d_as_asked(expr: Call, desired: tuple[str, ...]) -> LayoutChoice | None:
    attrs = expr.attrs
    kernel = desired[1] if len(desired) > 1 else "default"
    if kernel == "default":
        kernel = _KERNEL_OF.get((expr.op.name, desired[0]), attrs.kernel_layout)
    if attrs.out_layout not in ("", attrs.data_layout):
        return None
    pairs = ((attrs.data_layout, desired[0]), (attrs.kernel_layout, kernel))
    if all(old == new for old, new in pairs) or any(layout(old).is_blocked for old, _ in pairs):
        return None
    wanted = tuple(Change(layout(old), layout(new)) for old, new in pairs)
    build = _rebuilt(expr, {"data_layout": desired[0], "kernel_layout": kernel, "out_layout": ""})
    rest = (None,) * (len(expr.args) - 2)  # the zero points and scales of qnn.conv2d
    return LayoutChoice((*wanted, *rest), build, wanted[0])


def conv2d_transpose(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """nn.conv2d_transpose: into blocks of channels where it has one group or one for each, or as asked for.

    Weights that are computed are packed when they are: generic loops, with the inserted zeros, take longer by far.
    """
    attrs = expr.attrs
    if request.layouts_of(expr.op.name) is not None or not request.lanes:
        return conv2d_relative(expr, have, request)
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW")
    shape, weight = static(expr.args[0]), static(expr.args[1])
    if layouts != ("NCHW", "IOHW", "NCHW") or set(attrs.dilation) != {1} or shape is None or weight is None:
        return None
    if attrs.groups != 1:
        block = have[0].new.block("C") if have[0] is not None else _agreed(expr, shape[1], request)
        if block < 2 or attrs.groups != shape[1] or weight[1] != 1:
            return None
        return _blocked("nn.contrib_conv2d_transpose_NCHWc", expr, block, block, f"IHWO1o{block}i", "IOHW")
    current = have[0].new.block("C") if have[0] is not None else 0
    inner, outer = current or _agreed(expr.args[0], shape[1], request) or 1, _agreed(expr, weight[1], request)
    if not outer:
        return None
    return _blocked("nn.contrib_conv2d_transpose_NCHWc", expr, inner, outer, f"OHWI{inner}i{outer}o", "IOHW")


def conv2d_relative(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """qnn.conv2d: into the layouts asked for (so is nn.conv2d_transpose)."""
    desired = request.layouts_of(expr.op.name)
    return None if desired is None else _conv2d_as_asked(expr, desired)


# --- dense ----------------------------------------------------------------------------------------------------------


def dense(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """nn.dense with a constant weight: the weight packed by blocks of outputs, contiguous for each input.

    Bytes in words of four inputs, bfloat16 of two. Not where the sums of few outputs have their terms in lanes.
    """
    weight, result = static(expr.args[1]), static(expr)
    if not request.lanes or weight is None or not is_from_constants(expr.args[1]) or reads_rows(expr, request.cpu):
        return None
    word = word_of(expr)
    units, rows = weight[0], math.prod(result[:-1]) if result is not None else 0
    lanes = choose_block(units, request.outputs) if word else outputs_together(units, rows, request)
    if lanes < 4 or (word and weight[1] % word):
        return None
    op, packed = get_op("nn.contrib_dense_pack"), layout(f"NC{lanes}n{word}c" if word else f"NC{lanes}n")
    kept = {"units": expr.attrs.units, "out_dtype": expr.attrs.out_dtype, "weight_layout": packed.text}
    if units % lanes == 0:
        attrs, wanted = op.make_attrs((), kept), (None, Change(layout("NC"), packed))
        return LayoutChoice(wanted, lambda args: Call(op, tuple(args), attrs, expr.span), None)
    padded = op.make_attrs((), {**kept, "units": units})

    def build(args: Sequence[Expr]) -> Expr:
        wider = call("nn.pad", args[1], pad_width=((0, -units % lanes), (0, 0)))
        return Call(op, (args[0], transform(wider, layout("NC"), packed)), padded, expr.span)

    return LayoutChoice((None, None), build, None)


def outputs_together(units: int, rows: int, request: Request) -> int:
    """How many outputs of a dense layer lie together, of which the last block may lack some; 0: they stay apart.

    A vector of them, unless a block that divides all takes as few instructions. An instruction on half a vector counts
    half where that is a fact of the CPU. 128 rows of 400 numbers to 120 take 0.7 of the time by 16 instead of by 8.
    """
    whole, half = request.outputs, max(4, request.outputs // 2)
    if units < whole and rows < MIN_ROWS and choose_block(units, whole) not in (whole, half):
        return 0
    by_halves = -(-units // half) * (0.5 if has_fast_halves(request.cpu) else 1.0)
    if units <= half or (units % half == 0 and by_halves <= -(-units // whole)):
        return half
    return whole


def has_fast_halves(cpu: CpuModel | None) -> bool:
    """Whether half a vector takes half the time: where one port does the widest ones, two do halves of them."""
    return cpu is not None and cpu.fma_ports == 1 and cpu.vector_bits == 512


def word_of(expr: Call) -> int:
    """How many terms of a sum come in one word: of bytes in int32 four, of bfloat16 in float32 two; 0: no words."""
    data, weight = (arg.checked_type for arg in expr.args)
    if not isinstance(data, TensorType) or not isinstance(weight, TensorType):
        return 0
    return in_word(data.dtype, weight.dtype, expr.attrs.out_dtype)


def reads_rows(expr: Call, cpu: CpuModel | None) -> bool:
    """Whether an nn.dense has so few outputs that its kernel reads rows of the weight, as they are."""
    result, weight = expr.checked_type, static(expr.args[1])
    if cpu is None or weight is None or not isinstance(result, TensorType) or result.ndim < 2 or 0 in result.shape:
        return False
    units, terms = weight
    return str(result.dtype) == "float32" and has_terms_in_lanes(max(result.static[:-1]), units, terms, cpu)


# --- followers ------------------------------------------------------------------------------------------------------


def pool2d(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """Pooling works on any layout with whole spatial axes; some start a blocked one (see BlockPlan.starts)."""
    change = have[0]
    shape = static(expr)
    asked = request.layouts_of(expr.op.name)
    if asked is not None and asked[0] != expr.attrs.layout and not layout(expr.attrs.layout).is_blocked:
        change = Change(layout(expr.attrs.layout), layout(asked[0]))
    if change is None and request.lanes and id(expr) in request.plan.starts and shape is not None:
        block = _agreed(expr, shape[1], request)
        change = Change(layout("NCHW"), layout(f"NCHW{block}c")) if block >= 4 else None
    if change is None or expr.attrs.layout != change.old.text or expr.attrs.out_layout not in ("", change.old.text):
        return None
    return LayoutChoice((change,), _rebuilt(expr, {"layout": change.new.text, "out_layout": ""}), change)


def elementwise(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """One tensor in, the same positions out."""
    change = have[0] if len(have) == 1 else None
    if change is None or _has_axis(expr):
        return None
    return LayoutChoice((change,), _rebuilt(expr, {}), change)


def broadcast(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """The others follow the first input that was changed, where they broadcast axis by axis."""
    lead = _first(have)
    shape = static(expr)
    if lead is None or shape is None or _has_axis(expr) or len(shape) != len(lead.old.axes):
        return None
    if _is_wanted_plain(expr, have, request):
        return None
    wanted: list[Change | None] = []
    for arg, change in zip(expr.args, have, strict=True):
        operand = static(arg)
        if operand is None or (change is not None and change.old != lead.old):
            return None
        wanted.append(None if _is_scalar(operand) and change is None else _operand(operand, shape, lead))
        if wanted[-1] is None and not _is_scalar(operand):
            return None
    return LayoutChoice(tuple(wanted), _rebuilt(expr, {}), lead)


def _is_wanted_plain(expr: Call, have: Changes, request: Request) -> bool:
    """Whether a reader wants the result plain, and a part of its size already is."""
    if request.plan.need.get(id(expr)) != PLAIN or not request.lanes:
        return False
    rank = len(static(expr) or ())
    computed = [(arg, c) for arg, c in zip(flat_arguments(expr), have, strict=True) if not is_from_constants(arg)]
    return any(change is None and len(static(arg) or ()) == rank for arg, change in computed)


def _is_scalar(shape: tuple[int, ...]) -> bool:
    return all(d == 1 for d in shape)


def _operand(operand: tuple[int, ...], shape: tuple[int, ...], lead: Change) -> Change | None:
    """How an operand of a broadcast must come: blocks of one where it does not extend along the blocked axis."""
    full = (1,) * (len(shape) - len(operand)) + operand
    new: Layout = lead.new
    for letter, block in lead.new.parts:
        if not block:
            continue
        size = full[lead.old.index(letter.upper())]
        if size == 1:
            new = new.with_block(letter.upper(), 1)
        elif size % block:
            return None
    return Change(lead.old, new)


def _has_axis(expr: Call) -> bool:
    """Attributes that name positions would have to be translated; such calls do not follow."""
    if expr.attrs is None:
        return False
    names = {f.name for f in dataclasses.fields(expr.attrs)}
    return bool(names & {"axis", "axes", "shape", "newshape", "layout"})


def bias_add(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """A bias along an axis that is whole before and after."""
    change = have[0]
    if change is None or have[1] is not None or change.new.is_blocked:
        return None
    axis = change.new.index(change.old.axes[expr.attrs.axis % len(change.old.axes)])
    return LayoutChoice((change, None), _rebuilt(expr, {"axis": axis}), change)


def concatenate(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """Along channels: all inputs in the first one's layout, if its block divides each of them."""
    if _is_wanted_plain(expr, have, request):
        return None
    lead = _first(have)
    shapes = [static(arg) for arg in flat_arguments(expr)]
    if lead is None or any(s is None or len(s) != len(lead.old.axes) for s in shapes):
        return None
    if any(change is not None and change.old != lead.old for change in have):
        return None
    letter = lead.old.axes[expr.attrs.axis % len(lead.old.axes)]
    known = [s for s in shapes if s is not None]
    block = _common_block(lead, letter, [s[lead.old.index(letter)] for s in known], request)
    if block is None:
        return None
    change = Change(lead.old, lead.new.with_block(letter, block) if block else lead.new)
    axis = change.new.index(letter)
    attrs = dataclasses.replace(expr.attrs, axis=axis)
    return LayoutChoice(
        (change,) * len(known), lambda args: Call(expr.op, (Tuple(tuple(args)),), attrs, expr.span), change
    )


def _common_block(lead: Change, letter: str, sizes: list[int], request: Request) -> int | None:
    """The lead's block if it divides all sizes, else the best that does; 0: not blocked; None: there is none."""
    current = lead.new.block(letter)
    if not current or all(size % current == 0 for size in sizes):
        return current
    smaller = choose_block(math.gcd(current, *sizes), request.lanes)
    return smaller if smaller >= 4 else None


def reduction(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """Over whole axes: the same axes wherever they lie now. Without its image a tensor is plain again."""
    change = have[0]
    attrs = expr.attrs
    if change is None or getattr(attrs, "exclude", False):
        return None
    axes = getattr(attrs, "axis", None)
    axes = (axes,) if isinstance(axes, int) else axes
    if not axes:
        return None
    letters = [change.old.axes[a % len(change.old.axes)] for a in axes]
    if any(change.new.block(letter) for letter in letters):
        return None
    moved = tuple(change.new.index(letter) for letter in letters)
    build = _rebuilt(expr, {"axis": moved, "keepdims": True})
    if getattr(attrs, "keepdims", False):
        return LayoutChoice((change,), build, change)
    shape = static(expr)
    if shape is None or change.old.text != "NCHW" or sorted(letters) != ["H", "W"] or change.new.axes[:2] != "NC":
        return None  # blocks of channels are in order where nothing lies between them
    return LayoutChoice((change,), lambda args: reshape_to(build(args), shape), None)


def pad(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """Padding of axes that are not in blocks."""
    change = have[0]
    if change is None or any(c is not None for c in have[1:]) or len(expr.args) > 2:
        return None
    width = dict(zip(change.old.axes, expr.attrs.pad_width, strict=True))
    if any(change.new.block(letter) and tuple(pair) != (0, 0) for letter, pair in width.items()):
        return None
    moved = tuple(tuple(width[letter]) if letter.isupper() else (0, 0) for letter, _ in change.new.parts)
    rest = (None,) * (len(expr.args) - 1)
    return LayoutChoice((change, *rest), _rebuilt(expr, {"pad_width": moved}), change)


_POOLED = ("max", "avg", "global_max", "global_avg", "adaptive_max", "adaptive_avg")
_POOLS = tuple(f"nn.{kind}_pool2d" for kind in _POOLED)
_RULES: dict[str, LayoutRule] = {
    "nn.conv2d": conv2d,
    "nn.conv2d_transpose": conv2d_transpose,
    "qnn.conv2d": conv2d_relative,
    "nn.dense": dense,
    "nn.bias_add": bias_add,
    "reshape": channel_shuffle,
    "concatenate": concatenate,
    "nn.pad": pad,
    "strided_slice": strided_slice,
    "take": take,
    **dict.fromkeys(("mean", "sum", "max", "min", "prod"), reduction),
    **dict.fromkeys(_POOLS, pool2d),
}
_BY_KIND: dict[Kind, LayoutRule] = {Kind.ELEMENTWISE: elementwise, Kind.BROADCAST: broadcast}
