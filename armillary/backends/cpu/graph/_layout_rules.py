"""How contractions get the CPU's layouts: channels in blocks of a vector, weights packed for dot products and tiles.

In: a call, the layout changes of its inputs, the request. Out: a `LayoutChoice`, or None: inputs as they were.
Invariant: a rule returns None unless it knows the result to be the same in the new layout. What is no contraction
follows its neighbours by the rules of relay/transform/layout/_rules.py.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial

from armillary.backends.cpu.conv2d.amx.cost import SIDE, TILE_DWORDS, tiled_channels
from armillary.backends.cpu.cost.narrow import has_inputs_in_lanes, has_terms_in_lanes
from armillary.backends.cpu.graph._asked_layouts import as_asked, blocked, is_depthwise, packed_dense
from armillary.backends.cpu.graph._bf16_products import is_first_layer
from armillary.base.data_layout import choose_block, layout
from armillary.base.lazy import deferred
from armillary.ops._dot_operands import BFLOATS, BYTES, LONG, fits_in_pairs, terms_per_operand
from armillary.ops.nn._windows import reshape_to
from armillary.relay.expr import Call, Constant, Expr, shape_of, typical_of
from armillary.relay.op import Op, get_op
from armillary.relay.transform._rules import is_from_constants, op_name
from armillary.relay.transform.layout._engine import (
    Change,
    LayoutChoice,
    LayoutRule,
    Request,
)
from armillary.relay.transform.layout._plan import stays_plain
from armillary.relay.transform.layout._rules import agreed_block, static
from armillary.relay.transform.layout._rules import find_rule as follow_rule
from armillary.relay.types import TensorType
from armillary.target.cpu import CpuModel, cpu_model

with deferred():
    from armillary.backends.cpu.conv2d.amx_first_layer.operator import channels_together as channels_together
    from armillary.backends.cpu.conv2d.amx_first_layer.operator import rows_of_windows as rows_of_windows
    from armillary.backends.cpu.conv2d.direct.operator_bytes import pack_taps as pack_taps

Changes = Sequence[Change | None]
WINOGRAD_IMAGE = 1024  # pixels
MIN_ROWS = 4  # with fewer rows a dense layer of less than a vector is left to the reductions
MOST_PHASES = 64  # of a transposed convolution: all of a stretch of columns are written out


# --- convolutions ---------------------------------------------------------------------------------------------------


def cpu_of(request: Request) -> CpuModel | None:
    """The CPU whose vectors a request is about."""
    return None if request.target is None else cpu_model(request.target)


def conv2d(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """nn.conv2d: into blocks of channels."""
    if not request.lanes or expr.attrs.data_layout != "NCHW" or expr.attrs.kernel_layout != "OIHW":
        return None
    shape, weight = shape_of(expr.args[0]), static(expr.args[1])
    plain_out = expr.attrs.out_layout in ("", "NCHW")
    if shape is None or weight is None or not plain_out or not isinstance(expr.args[1], Constant):
        return None
    if not isinstance(shape[1], int):
        return None
    cpu, is_of_bytes = cpu_of(request), _is_of_bytes(expr, request, is_depthwise(expr, shape, weight))
    if is_depthwise(expr, shape, weight):
        return (_depthwise_bytes if is_of_bytes else _depthwise_blocked)(expr, have, request, shape[1])
    if weight[1] % LONG == 0 and _multiplies_matrices(expr, cpu):
        result = _conv2d_dot_operands(expr, have, request, weight, LONG)
        if result is not None:
            return result
    if is_of_bytes and weight[1] % BYTES == 0:
        return _conv2d_dot_operands(expr, have, request, weight, BYTES)
    is_of_bfloat16 = _is_of_bfloat16(expr) and expr.attrs.groups == 1  # the kernels for it know one group
    if is_of_bfloat16 and is_first_layer(expr, weight):
        return _conv2d_first_layer(expr, request, weight)
    if is_of_bfloat16:
        return _conv2d_dot_operands(expr, have, request, weight, BFLOATS)
    return _conv2d_blocked(expr, have, request, shape[1], weight)


def _conv2d_blocked(
    expr: Call, have: Changes, request: Request, channels: int, weight: tuple[int, ...]
) -> LayoutChoice | None:
    groups, cpu = expr.attrs.groups, cpu_of(request)
    if weight[1] * groups != channels:
        return None
    if cpu is not None and is_to_few_channels(expr, request.lanes, cpu):
        return blocked("nn.contrib_conv2d_NCHWc", expr, request.lanes, weight[0], f"OIHW{request.lanes}i{weight[0]}o")
    if stays_plain(expr, request.lanes):
        return None
    current = have[0].new.block("C") if have[0] is not None else 0
    inner = current if current and weight[1] % current == 0 else agreed_block(expr.args[0], weight[1], request)
    if groups == 1 and not inner:
        inner = 1  # blocks of one are the plain layout: nothing is copied
    outer = agreed_block(expr, weight[0] // groups, request)
    if inner * 2 == outer == request.lanes and _is_winograd(expr, weight):
        outer = inner
    if not inner or not outer or (outer < 4 and weight[0] > 4):
        return None
    return blocked("nn.contrib_conv2d_NCHWc", expr, inner, outer, f"OIHW{inner}i{outer}o")


def is_to_few_channels(expr: Call, lanes: int, cpu: CpuModel) -> bool:
    """Whether a convolution adds up blocks of `lanes` channels for each of few outputs (narrow_output/schedule.py)."""
    weight, result = static(expr.args[1]), typical_of(expr)
    if op_name(expr) != "nn.conv2d" or expr.attrs.groups != 1 or weight is None or result is None or lanes != cpu.lanes:
        return False
    if _dtype(expr) != "float32" or _dtype(expr.args[1]) != "float32":
        return False
    return has_inputs_in_lanes(math.prod(result.static[2:]), weight[0], weight[1], math.prod(weight[2:]), cpu)


def _is_of_bytes(expr: Call, request: Request, is_depthwise: bool) -> bool:
    """Whether the convolution multiplies bytes on the target: by dot products, a depthwise one perhaps one by one."""
    signs, cpu = _signs_of(expr), cpu_of(request)
    if cpu is None or signs is None:
        return False
    if is_depthwise:
        return signs[1] == "int" and (cpu.widens_bytes or signs in cpu.dot_signs or joins_products(expr, cpu))
    return signs in cpu.dot_signs or joins_products(expr, cpu)


def _signs_of(expr: Call) -> tuple[str, str] | None:
    """Signs ("int", "uint") of a convolution's bytes, whose sums are int32; None where it multiplies something else."""
    data, weight = (a.checked_type for a in expr.args)
    if not isinstance(data, TensorType) or not isinstance(weight, TensorType) or expr.attrs.out_dtype != "int32":
        return None
    signs = data.dtype.code, weight.dtype.code
    is_of_bytes = data.dtype.bits == weight.dtype.bits == 8 and set(signs) <= {"int", "uint"}
    return signs if is_of_bytes and signs != ("int", "uint") else None


def _multiplies_matrices(expr: Call, cpu: CpuModel | None) -> bool:
    """Whether one instruction multiplies two rows of eight of the convolution's bytes with two columns (i8mm)."""
    return cpu is not None and cpu.has_byte_matrices and _signs_of(expr) is not None


def joins_products(expr: Call, cpu: CpuModel) -> bool:
    """Whether int8 meets constant weights whose products 16-bit numbers add up in twos, without dot products."""
    data, weight = expr.args[0].checked_type, expr.args[1]
    if not cpu.widens_bytes or not isinstance(data, TensorType) or not isinstance(weight, Constant):
        return False
    is_of_int8 = str(data.dtype) == str(weight.data.dtype) == "int8" and expr.attrs.out_dtype == "int32"
    return is_of_int8 and fits_in_pairs(weight.data)


def _is_of_bfloat16(expr: Call) -> bool:
    """Whether the convolution multiplies bfloat16."""
    return all(getattr(a.checked_type, "dtype", None) == "bfloat16" for a in expr.args)


_DOT_OPERATORS = {BYTES: "cpu.conv2d_NCHWc_int8", LONG: "cpu.conv2d_NCHWc_int8", BFLOATS: "cpu.conv2d_NCHWc_bf16"}


def _conv2d_dot_operands(
    expr: Call, have: Changes, request: Request, weight: tuple[int, ...], word: int
) -> LayoutChoice | None:
    """The channels of a dot product, `word` of them, lie together, in the data's blocks and in the weight."""
    current = have[0].new.block("C") if have[0] is not None else 0
    choices = (current, agreed_block(expr.args[0], weight[1], request), *range(request.lanes, 0, -1))
    inner = next((block for block in choices if block and weight[1] % block == 0 and block % word == 0), 0)
    outer = agreed_block(expr, weight[0] // expr.attrs.groups, request)
    if not outer or not inner:
        return None
    layout = blocked(_DOT_OPERATORS[word], expr, inner, outer, "OIHW")
    cpu = cpu_of(request)
    together = _tiled_channels(expr, weight, inner, outer, cpu, word) or inner
    chunks, blocks = weight[0] // outer, -(-weight[1] // together)
    words = (chunks, outer, blocks, together // word, word, *weight[2:])

    def packed(kernel: Expr) -> Expr:
        if weight[1] % together:
            kernel = get_op("nn.pad")(kernel, pad_width=((0, 0), (0, -weight[1] % together), (0, 0), (0, 0)))
        return get_op("transpose")(reshape_to(kernel, words), axes=(0, 2, 5, 6, 3, 1, 4))

    changes: dict[str, object] = {"kernel_layout": f"OIHW{together // word}i{outer}o{word}i"}
    if cpu is not None and joins_products(expr, cpu):
        assert isinstance(expr.args[1], Constant), "joins_products has looked"  # by shorter blocks taps would be joined
        changes["is_symmetric"] = bool(inner % LONG == 0 or expr.args[1].data.min() > -128)
    return _with_dot_weight(layout, packed, changes)


def _conv2d_first_layer(expr: Call, request: Request, weight: tuple[int, ...]) -> LayoutChoice | None:
    """The columns of a window lie side by side in the weight; the data stays plain, and is rounded in the kernel."""
    outer, constant = agreed_block(expr, weight[0], request), expr.args[1]
    if not outer or not isinstance(constant, Constant):
        return None
    op, out = get_op("cpu.conv2d_first_layer_NCHWc_bf16"), layout(f"NCHW{outer}c")
    retained = {f.name: getattr(expr.attrs, f.name) for f in dataclasses.fields(expr.attrs)}
    together = channels_together(weight[1], weight[3])
    retained |= {"out_layout": out.text, "kernel_size": weight[2:], "together": together}
    packed, attrs = (
        Constant(rows_of_windows(constant.data, outer, together), constant.span),
        op.make_attrs((), retained),
    )

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
    depth = TILE_DWORDS * word
    if cpu is None or word == LONG or expr.attrs.groups != 1 or outer % SIDE or depth % inner:
        return 0
    if word == BFLOATS:
        return depth if cpu.has_bfloat16_tiles else 0
    if static(expr.args[0]) is None:  # matrix tiles are for images whose sizes are numbers
        return 0
    outputs, inputs, *kernel = weight
    return tiled_channels(inputs, outputs, math.prod(kernel), math.prod(expr.attrs.strides), cpu)


def _with_dot_weight(choice: LayoutChoice, packed: Callable[[Expr], Expr], changes: dict[str, object]) -> LayoutChoice:
    """A choice whose weight is packed further, for dot products; `changes` are those of the attributes."""

    def build(args: Sequence[Expr]) -> Expr:
        result = choice.build((args[0], packed(args[1])))
        assert isinstance(result, Call), "of the blocked operator"
        result = Call(result.op, result.args, dataclasses.replace(result.attrs, **changes), result.span)
        return _pads_itself(result) if hasattr(result.attrs, "pad_value") else result

    return LayoutChoice(choice.inputs, build, choice.output)


def _depthwise_bytes(expr: Call, have: Changes, request: Request, channels: int) -> LayoutChoice | None:
    """The four taps of a dot product lie together in the weight, or each by itself; the data is in any blocks."""
    block = have[0].new.block("C") if have[0] is not None else agreed_block(expr, channels, request)
    weight = expr.args[1]
    if block < 2 or not isinstance(weight, Constant):
        return None
    blocks = blocked("cpu.depthwise_conv2d_NCHWc_int8", expr, block, block, "OIHW")
    cpu = cpu_of(request)
    taken = 1 if cpu is not None and cpu.widens_bytes else BYTES
    words, size = Constant(pack_taps(weight.data, block, taken), weight.span), weight.data.shape[2:]
    return _with_dot_weight(blocks, lambda _: words, {"kernel_size": size, "kernel_layout": f"OHW{block}o{taken}w"})


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
    attrs, result = expr.attrs, typical_of(expr)
    plain = attrs.groups == 1 and set(attrs.strides) == {1} and set(attrs.dilation) == {1}
    return plain and weight[2:] == (3, 3) and result is not None and math.prod(result.static[2:]) >= WINOGRAD_IMAGE


def _depthwise_blocked(expr: Call, have: Changes, request: Request, channels: int) -> LayoutChoice | None:
    block = have[0].new.block("C") if have[0] is not None else agreed_block(expr, channels, request)
    if block < 2:
        return None
    return blocked("nn.contrib_depthwise_conv2d_NCHWc", expr, block, block, f"OIHW1i{block}o")


def conv2d_transpose(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """nn.conv2d_transpose: into blocks of channels where it has one group or one for each.

    Weights that are computed are packed when they are: generic loops, with the inserted zeros, take longer by far.
    """
    attrs = expr.attrs
    if not request.lanes:
        return None
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW")
    shape, weight = static(expr.args[0]), static(expr.args[1])
    if layouts != ("NCHW", "IOHW", "NCHW") or set(attrs.dilation) != {1} or shape is None or weight is None:
        return None
    if max(attrs.strides) > MOST_PHASES:
        return None
    if attrs.groups != 1:
        block = have[0].new.block("C") if have[0] is not None else agreed_block(expr, shape[1], request)
        if block < 2 or attrs.groups != shape[1] or weight[1] != 1:
            return None
        return blocked("cpu.conv2d_transpose_NCHWc", expr, block, block, f"IHWO1o{block}i", "IOHW")
    current = have[0].new.block("C") if have[0] is not None else 0
    inner, outer = current or agreed_block(expr.args[0], shape[1], request) or 1, agreed_block(expr, weight[1], request)
    if not outer:
        return None
    return blocked("cpu.conv2d_transpose_NCHWc", expr, inner, outer, f"OHWI{inner}i{outer}o", "IOHW")


# --- dense ----------------------------------------------------------------------------------------------------------


def dense(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """nn.dense with a constant weight: the weight packed by blocks of outputs, contiguous for each input.

    Bytes in words of four inputs, bfloat16 of two. Not where the sums of few outputs have their terms in lanes.
    """
    weight, result, cpu = static(expr.args[1]), static(expr), cpu_of(request)
    if not request.lanes or weight is None or not is_from_constants(expr.args[1]) or reads_rows(expr, cpu):
        return None
    word = operand_terms(expr)
    units, rows = weight[0], math.prod(result[:-1]) if result is not None else 0
    has_pairs = cpu is not None and cpu.has_byte_matrices and rows > 1
    if word == BYTES and has_pairs and weight[1] % LONG == 0:
        word = LONG
    lanes = choose_block(units, request.outputs) if word else outputs_together(units, rows, request)
    if lanes < 4 or (word and weight[1] % word):
        return None
    is_run = rows == 1 and cpu is not None and cpu.takes_runs
    if is_run and lanes == request.outputs and units % (2 * lanes) == 0:
        lanes *= 2
    is_symmetric = word == BYTES and cpu is not None and joins_products(expr, cpu)
    return packed_dense(expr, units, lanes, word, is_symmetric)


def outputs_together(units: int, rows: int, request: Request) -> int:
    """How many outputs of a dense layer lie together, of which the last block may lack some; 0: they stay apart.

    A vector of them, unless a block that divides all takes as few instructions. An instruction on half a vector counts
    half where that is a fact of the CPU.
    """
    whole, half = request.outputs, max(4, request.outputs // 2)
    if units < whole and rows < MIN_ROWS and choose_block(units, whole) not in (whole, half):
        return 0
    by_half_vectors = -(-units // half) * (0.5 if has_fast_half_vectors(cpu_of(request)) else 1.0)
    if units <= half or (units % half == 0 and by_half_vectors <= -(-units // whole)):
        return half
    return whole


def has_fast_half_vectors(cpu: CpuModel | None) -> bool:
    """Whether half a vector takes half the time: where one port does the widest ones, two do halves of them."""
    return cpu is not None and cpu.fma_ports == 1 and cpu.vector_bits == 512


def operand_terms(expr: Call) -> int:
    """How many terms of a sum come in one word: of bytes in int32 four, of bfloat16 in float32 two; 0: no words."""
    data, weight = (arg.checked_type for arg in expr.args)
    if not isinstance(data, TensorType) or not isinstance(weight, TensorType):
        return 0
    return terms_per_operand(data.dtype, weight.dtype, expr.attrs.out_dtype)


def reads_rows(expr: Call, cpu: CpuModel | None) -> bool:
    """Whether an nn.dense has so few outputs that its kernel reads rows of the weight, as they are."""
    result, weight = expr.checked_type, static(expr.args[1])
    if cpu is None or weight is None or not isinstance(result, TensorType) or result.ndim < 2 or 0 in result.shape:
        return False
    units, terms = weight
    return str(result.dtype) == "float32" and has_terms_in_lanes(max(result.typical[:-1]), units, terms, cpu)


_RULES: dict[str, LayoutRule] = {"nn.conv2d": conv2d, "nn.conv2d_transpose": conv2d_transpose, "nn.dense": dense}


def find_rule(op: Op) -> LayoutRule | None:
    """The rule of an operator: its own, the CPU's, or the way it follows; what a script asks for comes first."""
    if op.layout_rule is not None or op.name not in _RULES or op.is_scripted:
        return follow_rule(op)
    return partial(as_asked, _RULES[op.name])
