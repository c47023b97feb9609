"""Convolution of an image of few channels by matrix tiles (AMX): a row of a tile is a part of a line of the image.

In: a fused function anchored at cpu.conv2d_first_layer_NCHWc_bf16. Out: a copy of the data, rounded, with its
padding and two or four channels of a pixel in one number, in which the columns of a window follow each other; tiles
start at the window of each pixel, so that their rows overlap. Then as amx/schedule.py. Invariant: as there.
"""

from __future__ import annotations

from functools import partial

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.cpu.conv2d.amx.cost import COPY_CYCLES, DEPTH, SIDE, Block, Shape, ranked_blocks
from armillary.backends.cpu.conv2d.amx.schedule import TAG, Operand, schedule_blocks, tiled_block
from armillary.backends.cpu.conv2d.amx_first_layer.operator import PAIR, ROW, FirstLayerConv2DAttrs, result_shape
from armillary.backends.cpu.cost.model import Estimate, explained
from armillary.backends.cpu.elementwise.default import PACKED
from armillary.backends.cpu.loops import effect_of, element_of, fuse_all
from armillary.backends.explanation import Explanation
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.ops._dot_operands import BFLOAT16, BFLOATS
from armillary.ops.nn.conv import Window, window
from armillary.target import Target
from armillary.target.cpu import cpu_model
from armillary.tir import build as T
from armillary.tir import stmt as S
from armillary.tir.expr import Var

OPERATOR = "cpu.conv2d_first_layer_NCHWc_bf16"
HALF_BYTES, WORD_BITS = 2, 32


def _cannot_tile(workload: Workload) -> str | None:
    weight = workload.tensor(1)
    if workload.target.kind.name != "llvm" or not cpu_model(workload.target).has_bfloat16_tiles:
        return "the processor has no matrix tiles"
    return None if weight.static[4] % SIDE == 0 else f"{weight.static[4]} outputs do not fill tiles"


def _shape_of(
    attrs: FirstLayerConv2DAttrs, data: tuple[int, ...], weight: tuple[int, ...], size: tuple[int, ...]
) -> Shape:
    """The sizes that the cost model asks for."""
    chunks, kh, groups, _, lanes, _ = weight
    side = lanes // SIDE
    copy = COPY_CYCLES * data[0] * groups * data[2] * data[3] / attrs.together
    return Shape(size[0], size[1], chunks * side, kh * groups, side, copy)


def _block(attrs: FirstLayerConv2DAttrs, data: te.Tensor, weight: te.Tensor) -> Block:
    size = result_shape(attrs, data, weight)[2:4]
    shape = _shape_of(attrs, te.static_shape(data), te.static_shape(weight), size)
    return ranked_blocks(shape, cpu_model(Target.current() or Target("llvm")))[0][0]


def _ranked(workload: Workload) -> tuple[tuple[Block, float], ...]:
    """Blocks with their cycles, the best first."""
    result = workload.result
    data, weight = (workload.tensor(k).static for k in (0, 1))
    return ranked_blocks(_shape_of(workload.attrs, data, weight, result.static[2:4]), cpu_model(workload.target))


def _explain(workload: Workload) -> Explanation:
    """The block of tiles against the others."""
    ranked, what = _ranked(workload), "convolution of few channels in bfloat16 by matrix tiles"
    estimates = [Estimate(f"{block}", cycles, "matrix tiles") for block, cycles in ranked]
    return explained(what, f"{ranked[0][0]}", estimates, cpu_model(workload.target))


def _packed(attrs: FirstLayerConv2DAttrs, data: te.Tensor, size: tuple[int, int], kh: int) -> te.Tensor:
    """Numbers of two or four channels, with the padding, and as many lines and columns as whole blocks read."""
    batch, channels, height, width = te.static_shape(data)
    win, together = window(OPERATOR, attrs, 2), attrs.together
    (top, _), (left, _) = win.pads
    lines, columns = (size[0] - 1) * win.strides[0] + kh, (size[1] - 1) * win.strides[1] + ROW // together

    def half(n: te.Expr, channel: te.Expr, y: te.Expr, x: te.Expr, inside: te.Expr) -> te.Expr:
        taken = te.if_then_else(inside, data(n, channel, y - top, x - left), T.const(0, data.dtype))
        last = te.if_then_else(channel < channels, taken, T.const(0, data.dtype)) if channels % together else taken
        return T.cast(last, BFLOAT16)

    def together_at(n: te.Expr, y: te.Expr, group: te.Expr, x: te.Expr) -> te.Expr:
        inside = te.all(y >= top, y < height + top, te.likely(te.all(x >= left, x < width + left)))
        halves = [half(n, group * together + k, y, x, inside) for k in range(together)]
        words = [te.pack_bf16(*halves[k : k + PAIR]) for k in range(0, together, PAIR)]
        if together == PAIR:
            return words[0]
        low, high = (T.cast(word, "uint64") for word in words)
        return T.bitwise_or(low, T.shift_left(high, T.const(WORD_BITS, "uint64")))

    shape = (batch, lines, -(-channels // together), columns)
    result: te.Tensor = te.compute(shape, together_at, name="packed", tag=PACKED)
    return result


def _sums(data: te.Tensor, weight: te.Tensor, size: tuple[int, int], win: Window) -> te.Tensor:
    """Sums over words for `size` lines and columns, as (batch, line, column, block of outputs, one of them)."""
    chunks, kh, groups, words, lanes, _ = te.static_shape(weight)
    wide = 2 if data.dtype == "uint64" else 1  # words of a column
    extents = {"ry": kh, "group": groups, "rx": words // wide, "word": wide}
    axes = [te.reduce_axis((0, n), name=name) for name, n in extents.items()]
    places = [axis.var for axis in axes]  # the operators of variables are installed by tir.build
    ry, group, rx, word = places

    def element(n: te.Expr, y: te.Expr, x: te.Expr, chunk: te.Expr, lane: te.Expr) -> te.Expr:
        taps = te.pack_bf16(*(weight(chunk, ry, group, rx * wide + word, lane, k) for k in range(BFLOATS)))
        pixel = data(n, y * win.strides[0] + ry, group, x * win.strides[1] + rx)
        if wide > 1:
            pixel = T.cast(T.shift_right(pixel, T.cast(word * WORD_BITS, "uint64")), "uint32")
        return te.sum(te.dot_bf16(pixel, taps), axis=axes)

    shape = (te.static_shape(data)[0], *size, chunks, lanes)
    result: te.Tensor = te.compute(shape, element, name="tiles", tag=TAG)
    return result


def _compute(attrs: FirstLayerConv2DAttrs, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """The sums of whole blocks, and what of them is asked for."""
    block, shape = _block(attrs, data, weight), result_shape(attrs, data, weight)
    size = (-(-shape[2] // block.tall) * block.tall, -(-shape[3] // block.along) * block.along)
    packed = _packed(attrs, data, size, te.static_shape(weight)[1])
    sums = _sums(packed, weight, size, window(OPERATOR, attrs, 2))
    result: te.Tensor = te.compute(
        shape, lambda n, chunk, y, x, lane: sums(n, y, x, chunk, lane), name="kept", tag="injective"
    )
    return result


def _intrinsic(block: Block, sums: te.Tensor, win: Window, together: int) -> te.TensorIntrin:
    """The sums of one block, from zero to its end, stored pixel after pixel."""
    data, weight = sums.op.input_tensors
    _, kh, groups, words, lanes, _ = te.static_shape(weight)
    (sy, sx), side = win.strides, lanes // SIDE
    region = ((block.tall - 1) * sy + kh, groups, (block.along - 1) * sx + ROW // together)
    left = te.placeholder((1, *region), data.dtype, "left")
    right = te.placeholder((block.columns // side, kh, groups, words, lanes, BFLOATS), weight.dtype, "right")

    def emit(inputs: list[S.Buffer], outputs: list[S.Buffer]) -> S.Stmt:
        (a, b), (c,) = inputs, outputs
        ry, group = Var("ry"), Var("group")

        def row(t: int, x: int) -> Operand:
            return element_of(a, 0, ry + t * sy, group, x * sx), HALF_BYTES * together * sx

        def column(j: int) -> Operand:
            return element_of(b, j // side, ry, group, 0, j % side * SIDE, 0), DEPTH * side

        return tiled_block(
            block, side, ((ry, kh), (group, groups)), row, column, c, partial(effect_of, "tile_dot_bf16")
        )

    part_sums = _sums(left, right, (block.tall, block.along), win)
    return te.decl_tensor_intrin(part_sums.op, emit, f"tiles of {block}")


@implement(
    Candidate(OPERATOR, "first_layer_tiles", _cannot_tile, explain_rule=_explain), family="cpu", compute=_compute
)
def first_layer_tiles(schedule: te.Schedule, fused: Fused) -> None:
    """Blocks of tiles of an image of few channels."""
    attrs, block = fused.workload.attrs, _ranked(fused.workload)[0][0]
    win, together = window(OPERATOR, attrs, 2), attrs.together
    schedule_blocks(schedule, fused, block, lambda sums: _intrinsic(block, sums, win, together), _schedule_copy)


def _schedule_copy(stage: te.Stage) -> None:
    """Columns by vectors; threads share lines."""
    batch, line, group, column = stage.op.axis
    stage.parallel(fuse_all(stage, [batch, line]))
    stage.unroll(group)
    _, lanes = stage.split(column, factor=SIDE)
    stage.vectorize(lanes)
