"""Convolution of bytes by matrix tiles (AMX): sixteen neighbouring pixels, sixteen outputs, 64 channels at a time.

In: a fused function anchored at nn.contrib_conv2d_NCHWc_int8 whose weight takes 64 channels together. Out: a copy of
the data with its padding and 64 channels of a pixel side by side, from which tiles take pixels at any stride; then
blocks of tiles of sums in a scratch buffer, from which what follows is computed while they are in the first cache.
Groups of outputs are outermost: their weights stay near for all pixels. Invariant: the same integers as by vectors;
what tiles compute beyond the image nobody reads. Costs: target/cost_bytes.py. The instructions: codegen/llvm_tiles.py.
Products: dense_tiles.py.
"""

from __future__ import annotations

from typing import Any

from armillary import te
from armillary.ops.nn_conv import Window, window
from armillary.ops.nn_conv_blocked import output_shape
from armillary.ops.nn_dense import WORD
from armillary.schedules.cpu.common import compute_in_tile, followers, fuse_all
from armillary.schedules.cpu.default import PACKED, schedule_injective, schedule_stage
from armillary.schedules.registry import Fused, Workload, implement
from armillary.target import Target
from armillary.target.cost import Estimate, Explanation, explained
from armillary.target.cost_bytes import DEPTH, SIDE, Block, Shape, ranked_blocks
from armillary.target.cpu import cpu_model
from armillary.tir import build as T
from armillary.tir import stmt as S
from armillary.tir.expr import BufferLoad, Expr, Var

OPERATOR = "nn.contrib_conv2d_NCHWc_int8"
TAG = "tiled_convolution"


def shape_of(attrs: Any, data: tuple[int, ...], weight: tuple[int, ...]) -> Shape:
    """The sizes that the cost model asks for."""
    chunks, blocks, kh, kw, *_ = weight
    win = window(OPERATOR, attrs, 2)
    size = [_count(data[2 + a], (kh, kw)[a], win, a) for a in range(2)]
    return Shape(size[0], size[1], chunks, blocks * kh * kw)


def _count(size: int, taps: int, win: Window, axis: int) -> int:
    reach = (taps - 1) * win.dilation[axis] + 1
    return (size + sum(win.pads[axis]) - reach) // win.strides[axis] + 1


def _cannot_tile(workload: Workload) -> str | None:
    data, weight = (t.static for t in workload.types)  # type: ignore[attr-defined]
    if workload.target.kind.name != "llvm" or not cpu_model(workload.target).has_tiles:
        return "the processor has no matrix tiles"
    if weight[4:6] != (DEPTH // WORD, SIDE) or DEPTH % data[4] or workload.attrs.groups != 1:
        return f"{weight[4] * WORD} channels for {weight[5]} outputs do not fill tiles"
    return None


def explain_tiles(workload: Workload) -> Explanation:
    """The block of tiles against the others."""
    cpu = cpu_model(workload.target)
    data, weight = (t.static for t in workload.types)  # type: ignore[attr-defined]
    ranked = ranked_blocks(shape_of(workload.attrs, data, weight), cpu)
    estimates = [Estimate(f"{block}", cycles, "matrix tiles") for block, cycles in ranked]
    return explained("convolution of bytes by matrix tiles", f"{ranked[0][0]}", estimates, cpu)


def _packed(attrs: Any, data: te.Tensor, weight: te.Tensor, block: Block, shape: Shape) -> te.Tensor:
    """The data with its padding, and as many lines and columns as whole blocks read; 64 channels side by side."""
    batch, blocks, height, width, ci = te.static_shape(data)
    _, wide, kh, kw, *_ = te.static_shape(weight)
    win = window(OPERATOR, attrs, 2)
    (top, _), (left, _) = win.pads
    parts = DEPTH // ci
    whole = (-(-shape.height // block.tall) * block.tall, -(-shape.width // block.along) * block.along)
    size = [(whole[a] - 1) * win.strides[a] + ((kh, kw)[a] - 1) * win.dilation[a] + 1 for a in range(2)]

    def element(n: Any, b: Any, y: Any, x: Any, part: Any, lane: Any) -> Any:
        source = b * parts + part
        tests = ([y >= top] if top else []) + ([y < height + top] if size[0] > height + top else [])
        beside = ([x >= left] if left else []) + ([x < width + left] if size[1] > width + left else [])
        inside = te.all(*tests, te.likely(te.all(*beside))) if beside else te.all(*tests)
        taken = data(n, source, y - top, x - left, lane)
        if tests or beside:
            taken = te.if_then_else(inside, taken, T.const(attrs.pad_value, data.dtype))
        return te.if_then_else(source < blocks, taken, T.const(0, data.dtype)) if wide * parts > blocks else taken

    made: te.Tensor = te.compute((batch, wide, *size, parts, ci), element, name="packed", tag=PACKED)
    return made


def _sums(data: te.Tensor, weight: te.Tensor, size: tuple[int, int], win: Window) -> te.Tensor:
    """Sums over words for `size` lines and columns, as (batch, line, column, sixteens of outputs, one of them)."""
    chunks, wide, kh, kw, words, lanes, _ = te.static_shape(weight)
    batch, parts = te.static_shape(data)[0], te.static_shape(data)[4]
    extents = {"block": wide, "ry": kh, "rx": kw, "part": parts, "word": words // parts}
    axes = [te.reduce_axis((0, n), name=name) for name, n in extents.items()]
    places: list[Any] = [axis.var for axis in axes]  # Any: the operators of variables are installed by tir.build
    block, ry, rx, part, word = places
    (sy, sx), (dy, dx) = win.strides, win.dilation

    def element(n: Any, y: Any, x: Any, chunk: Any, lane: Any) -> Any:
        at = (n, block, y * sy + ry * dy, x * sx + rx * dx, part)
        left = te.four_bytes(*(data(*at, word * WORD + byte) for byte in range(WORD)))
        of = (chunk, block, ry, rx, part * (words // parts) + word, lane)
        return te.sum(te.dot_bytes(left, te.four_bytes(*(weight(*of, byte) for byte in range(WORD)))), axis=axes)

    made: te.Tensor = te.compute((batch, *size, chunks, lanes), element, name="tiles", tag=TAG)
    return made


def _compute(attrs: Any, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """The sums of whole blocks, and what of them is asked for."""
    shape = shape_of(attrs, te.static_shape(data), te.static_shape(weight))
    block = ranked_blocks(shape, cpu_model(Target.current() or Target("llvm")))[0][0]
    packed = _packed(attrs, data, weight, block, shape)
    whole = (-(-shape.height // block.tall) * block.tall, -(-shape.width // block.along) * block.along)
    sums = _sums(packed, weight, whole, window(OPERATOR, attrs, 2))
    made: te.Tensor = te.compute(
        output_shape(attrs, data, weight), lambda n, chunk, y, x, lane: sums(n, y, x, chunk, lane), name="kept",
        tag="injective",
    )  # fmt: skip
    return made


def _intrinsic(block: Block, sums: te.Tensor, win: Window) -> te.TensorIntrin:
    """The sums of one block, from zero to its end, stored pixel after pixel."""
    data, weight = sums.op.input_tensors
    _, wide, _, _, parts, ci = te.static_shape(data)
    _, _, kh, kw, words, lanes, _ = te.static_shape(weight)
    (sy, sx), (dy, dx) = win.strides, win.dilation
    size = (block.tall, block.along)
    region = [(size[a] - 1) * win.strides[a] + ((kh, kw)[a] - 1) * win.dilation[a] + 1 for a in range(2)]
    left = te.placeholder((1, wide, *region, parts, ci), data.dtype, "left")
    right = te.placeholder((block.columns, wide, kh, kw, words, lanes, WORD), weight.dtype, "right")
    signs = [int(x.dtype.startswith("int")) for x in (data, weight)]
    pixels = [(t, b) for t in range(block.tall) for b in range(block.beside)]
    tiles = [(i, j, i * block.columns + j) for i in range(len(pixels)) for j in range(block.columns)]
    first = len(tiles)
    second = first + len(pixels)

    def emit(inputs: list[S.Buffer], outputs: list[S.Buffer]) -> S.Stmt:
        (a, b), (c,) = inputs, outputs
        step, ry, rx = Var("step"), Var("ry"), Var("rx")
        body = []
        for i, (t, beside) in enumerate(pixels):
            place = _at(a, 0, step, ry * dy + t * sy, rx * dx + beside * block.pixels * sx, 0, 0)
            body.append(_call("tile_load", first + i, place, DEPTH * sx, block.pixels))
        for j in range(block.columns):
            body.append(_call("tile_load", second + j, _at(b, j, step, ry, rx, 0, 0, 0), DEPTH, SIDE))
        body += [_call("tile_dot", tile, first + i, second + j, *signs) for i, j, tile in tiles]
        loop: S.Stmt = S.seq(*body)
        for var, extent in ((rx, kw), (ry, kh), (step, wide)):
            loop = S.For(var, T.int32(0), T.int32(extent), S.LoopKind.SERIAL, loop)
        stride = block.columns * SIDE * 4
        stores = []
        for i, j, tile in tiles:
            t, beside = pixels[i]
            stores.append(_call("tile_store", tile, _at(c, 0, t, beside * block.pixels, j, 0), stride, block.pixels))
        return S.seq(*(_call("tile_zero", tile, block.pixels) for *_, tile in tiles), loop, *stores)

    return te.decl_tensor_intrin(_sums(left, right, size, win).op, emit, f"tiles of {block}")


def _at(buffer: S.Buffer, *indices: Any) -> Expr:
    return BufferLoad(buffer, tuple(T.convert(i) for i in indices))


def _call(name: str, *args: Any) -> S.Stmt:
    return S.Evaluate(T.call(name, *args, dtype="int32"))


@implement(
    OPERATOR, family="cpu", name="byte_tiles", when=_cannot_tile, compute=_compute, priority=20, explain=explain_tiles
)
def byte_tiles(schedule: te.Schedule, fused: Fused) -> None:
    """Blocks of tiles, and behind each what follows the convolution, by vectors."""
    workload, (anchor,), output = fused.workload, fused.anchor, fused.outputs[0]
    cpu = cpu_model(workload.target)
    kept = schedule_injective(schedule, fused)
    sums = next(t for t in kept if t.op.tag == TAG)
    packed = sums.op.input_tensors[0]
    if len(fused.outputs) > 1 or te.static_shape(output) != te.static_shape(anchor):
        output = anchor  # what reads the sums has another shape: they are stored first
        schedule[anchor].compute_root()
        kept = [s.op.output(0) for s in schedule.stages if any(s.op is t.op for t in (anchor, *kept))]
    read = [] if output is anchor else followers(schedule, sums, kept)
    after = [t for t in read if t.op is not output.op]
    for tensor in kept:
        if all(tensor.op is not own.op for own in (output, sums, packed, *after)):
            schedule_stage(schedule, tensor, cpu)
    _schedule_copy(schedule[packed])
    data, weight = (t.static for t in workload.types)  # type: ignore[attr-defined]
    block = ranked_blocks(shape_of(workload.attrs, data, weight), cpu)[0][0]
    stage = schedule[output]
    batch, chunk, y, x, lane = stage.op.axis
    group, chunk = stage.split(chunk, factor=block.columns)
    lines, y = stage.split(y, factor=block.tall)
    parts, x = stage.split(x, factor=block.along)
    stage.reorder(batch, group, lines, parts, y, x, chunk, lane)
    stage.vectorize(lane)
    stage.unroll(chunk)
    stage.parallel(fuse_all(stage, [batch, group, lines]))
    compute_in_tile(schedule, after, stage, x)
    schedule[sums].compute_at(stage, parts)
    made = schedule[sums]
    made.tensorize(made.op.axis[0], _intrinsic(block, sums, window(OPERATOR, workload.attrs, 2)))


def _schedule_copy(stage: te.Stage) -> None:
    """A pixel's channels by vectors; threads share lines."""
    batch, block, y, _, part, lane = stage.op.axis
    stage.parallel(fuse_all(stage, [batch, block, y]))
    stage.unroll(part)
    stage.vectorize(lane)
