"""Convolution by matrix tiles (AMX): sixteen neighbouring pixels, sixteen outputs, 64 bytes of channels at a time.

In: a fused function anchored at cpu.conv2d_NCHWc_int8 or _bf16 whose weight takes 64 or 32 channels together.
Out: a copy of the data with its padding and so many channels of a pixel side by side, from which tiles take pixels at
any stride, or the data itself where it lies so; then blocks of tiles of sums in a scratch buffer, from which what
follows is computed while they are in the first cache. Groups of outputs are outermost: their weights stay near for all
pixels, which ask for those of the next group. Invariant: the same integers as by vectors; what tiles compute beyond the
image nobody reads. Which block: space.py. The instructions: codegen/llvm/amx.py. First layers: amx_first_layer.
Products: gemm/amx.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary import te
from armillary.backends.cpu.conv2d.amx.cost import DEPTH, SIDE, TILE_DWORDS, Block, Shape, has_prefetch
from armillary.backends.cpu.conv2d.amx.space import OPERATOR, block_of, shape_of
from armillary.backends.cpu.elementwise.default import PACKED, schedule_injective, schedule_stage
from armillary.backends.cpu.loops import compute_in_tile, effect_of, element_of, followers, fuse_all, stored_or_fused
from armillary.backends.registry import Fused, implement
from armillary.ops._dot_operands import BFLOATS, dot
from armillary.ops.nn.conv import Conv2DAttrs, Window, window
from armillary.ops.nn.conv_blocked import output_shape
from armillary.target import Target
from armillary.target.cpu import cpu_model
from armillary.tir import build as T
from armillary.tir import stmt as S
from armillary.tir.expr import Expr, Var

BFLOAT16_OPERATOR = "cpu.conv2d_NCHWc_bf16"
TAG = "tiled_convolution"
BLOCKED_AXES = 5  # of data in blocks of channels
Operand = tuple[Expr, int]  # the first element of a tile, and the bytes from one row to the next


def _packed(attrs: Conv2DAttrs, data: te.Tensor, weight: te.Tensor, block: Block, shape: Shape) -> te.Tensor:
    """The data with its padding, and as many lines and columns as whole blocks read; a tile's row side by side."""
    if not shape.is_padded and shape.fits(block):
        return data
    batch, blocks, height, width, ci = te.static_shape(data)
    _, wide, kh, kw, words, _, word = te.static_shape(weight)
    win = window(OPERATOR, attrs, 2)
    (top, _), (left, _) = win.pads
    parts = words * word // ci
    whole = (-(-shape.height // block.tall) * block.tall, -(-shape.width // block.along) * block.along)
    size = [(whole[a] - 1) * win.strides[a] + ((kh, kw)[a] - 1) * win.dilation[a] + 1 for a in range(2)]

    def element(n: te.Expr, b: te.Expr, y: te.Expr, x: te.Expr, part: te.Expr, lane: te.Expr) -> te.Expr:
        source = b * parts + part
        tests = ([y >= top] if top else []) + ([y < height + top] if size[0] > height + top else [])
        beside = ([x >= left] if left else []) + ([x < width + left] if size[1] > width + left else [])
        inside = te.all(*tests, te.likely(te.all(*beside))) if beside else te.all(*tests)
        taken = data(n, source, y - top, x - left, lane)
        if tests or beside:
            taken = te.if_then_else(inside, taken, T.const(getattr(attrs, "pad_value", 0), data.dtype))
        return te.if_then_else(source < blocks, taken, T.const(0, data.dtype)) if wide * parts > blocks else taken

    result: te.Tensor = te.compute((batch, wide, *size, parts, ci), element, name="packed", tag=PACKED)
    return result


def _parts(data: te.Tensor) -> int:
    """The blocks of data that are one row of a tile: of a copy; the data itself has one."""
    return te.static_shape(data)[4] if data.ndim > BLOCKED_AXES else 1


def _sums(data: te.Tensor, weight: te.Tensor, size: tuple[int, int], win: Window) -> te.Tensor:
    """Sums over words for `size` lines and columns, as (batch, line, column, block of outputs, one of them)."""
    chunks, wide, kh, kw, words, lanes, word_size = te.static_shape(weight)
    batch, parts = te.static_shape(data)[0], _parts(data)
    extents = {"block": wide, "ry": kh, "rx": kw, "part": parts, "word": words // parts}
    axes = [te.reduce_axis((0, n), name=name) for name, n in extents.items()]
    places = [axis.var for axis in axes]  # the operators of variables are installed by tir.build
    block, ry, rx, part, word = places
    (sy, sx), (dy, dx) = win.strides, win.dilation

    def element(n: te.Expr, y: te.Expr, x: te.Expr, chunk: te.Expr, lane: te.Expr) -> te.Expr:
        at = (n, block, y * sy + ry * dy, x * sx + rx * dx, *([part] if data.ndim > BLOCKED_AXES else []))
        of = (chunk, block, ry, rx, part * (words // parts) + word, lane)
        left = [data(*at, word * word_size + k) for k in range(word_size)]
        return te.sum(dot(left, [weight(*of, k) for k in range(word_size)]), axis=axes)

    result: te.Tensor = te.compute((batch, *size, chunks, lanes), element, name="tiles", tag=TAG)
    return result


def _compute(attrs: Conv2DAttrs, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """The sums of whole blocks, and what of them is asked for."""
    shape = shape_of(attrs, te.static_shape(data), te.static_shape(weight))
    block = block_of(attrs, shape, cpu_model(Target.current() or Target("llvm")))
    packed = _packed(attrs, data, weight, block, shape)
    whole = (-(-shape.height // block.tall) * block.tall, -(-shape.width // block.along) * block.along)
    sums = _sums(packed, weight, whole, window(OPERATOR, attrs, 2))
    result: te.Tensor = te.compute(
        output_shape(attrs, data, weight),
        lambda n, chunk, y, x, lane: sums(n, y, x, chunk, lane),
        name="kept",
        tag="injective",
    )
    return result


def _intrinsic(block: Block, sums: te.Tensor, win: Window, *, asks: bool) -> te.TensorIntrin:
    """The sums of one block, from zero to its end, stored pixel after pixel."""
    data, weight = sums.op.input_tensors
    wide, inner = te.static_shape(data)[1], te.static_shape(data)[4:]
    _, _, kh, kw, words, lanes, word = te.static_shape(weight)
    (sy, sx), (dy, dx) = win.strides, win.dilation
    size, side = (block.tall, block.along), lanes // SIDE
    region = [(size[a] - 1) * win.strides[a] + ((kh, kw)[a] - 1) * win.dilation[a] + 1 for a in range(2)]
    left = te.placeholder((1, wide, *region, *inner), data.dtype, "left")
    right = te.placeholder((block.columns // side, wide, kh, kw, words, lanes, word), weight.dtype, "right")
    signs = [] if word == BFLOATS else [int(x.dtype.startswith("int")) for x in (data, weight)]
    multiply = "tile_dot_bf16" if word == BFLOATS else "tile_dot"

    def emit(inputs: list[S.Buffer], outputs: list[S.Buffer]) -> S.Stmt:
        (a, b), (c,) = inputs, outputs
        step, ry, rx = Var("step"), Var("ry"), Var("rx")

        def row(t: int, x: int) -> Operand:
            return element_of(a, 0, step, ry * dy + t * sy, rx * dx + x * sx, *(0 for _ in inner)), DEPTH * sx

        def column(j: int) -> Operand:
            return element_of(b, j // side, step, ry, rx, 0, j % side * SIDE, 0), DEPTH * side

        def ahead(j: int, k: int) -> Expr:
            """A line of the weights of the next group of outputs."""
            return element_of(b, (block.columns + j) // side, step, ry, rx, k, j % side * SIDE, 0)

        def dot_tiles(*tiles: int) -> S.Stmt:
            return effect_of(multiply, *tiles, *signs)

        loops = ((step, wide), (ry, kh), (rx, kw))
        return tiled_block(block, side, loops, row, column, c, dot_tiles, ahead if asks else None)

    return te.decl_tensor_intrin(_sums(left, right, size, win).op, emit, f"tiles of {block}")


def tiled_block(
    block: Block,
    side: int,
    loops: Sequence[tuple[Var, int]],
    row: Callable[[int, int], Operand],
    column: Callable[[int], Operand],
    sums: S.Buffer,
    multiply: Callable[..., S.Stmt],
    ahead: Callable[[int, int], Expr] | None = None,
) -> S.Stmt:
    """The sums of a block over `loops`: `row` places a tile of pixels (its line and first column), `column` outputs."""
    pixels = [(t, b * block.pixels) for t in range(block.tall) for b in range(block.beside)]
    tiles = [(i, j, i * block.columns + j) for i in range(len(pixels)) for j in range(block.columns)]
    first = len(tiles)
    second = first + len(pixels)
    body = [effect_of("tile_load", first + i, *row(*pixel), block.pixels) for i, pixel in enumerate(pixels)]
    body += [effect_of("tile_load", second + j, *column(j), SIDE) for j in range(block.columns)]
    if ahead is not None:
        body += [effect_of("prefetch", ahead(j, k), 0, 2, 1) for j in range(block.columns) for k in range(TILE_DWORDS)]
    body += [multiply(tile, first + i, second + j) for i, j, tile in tiles]
    loop: S.Stmt = S.seq(*body)
    for var, extent in reversed(loops):
        loop = S.For(var, T.int32(0), T.int32(extent), S.LoopKind.SERIAL, loop)
    stores = []
    for i, j, tile in tiles:
        place = element_of(sums, 0, *pixels[i], j // side, j % side * SIDE)
        stores.append(effect_of("tile_store", tile, place, block.columns * SIDE * 4, block.pixels))
    return S.seq(*(effect_of("tile_zero", tile, block.pixels) for *_, tile in tiles), loop, *stores)


@implement("half_tiles", "byte_tiles", family="cpu", compute=_compute)
def in_tiles(schedule: te.Schedule, fused: Fused) -> None:
    """Blocks of tiles of blocked data."""
    workload = fused.workload
    data, weight = (workload.tensor(k).static for k in (0, 1))
    cpu, shape = cpu_model(workload.target), shape_of(workload.attrs, data, weight)
    block = block_of(workload.attrs, shape, cpu)
    win = window(OPERATOR, workload.attrs, 2)
    asks = weight[6] == BFLOATS and has_prefetch(shape, block, cpu)  # of bytes, half as many, nothing was gained
    schedule_blocks(schedule, fused, block, lambda sums: _intrinsic(block, sums, win, asks=asks), _schedule_copy)


def schedule_blocks(
    schedule: te.Schedule,
    fused: Fused,
    block: Block,
    intrinsic: Callable[[te.Tensor], te.TensorIntrin],
    schedule_copy: Callable[[te.Stage], None],
) -> None:
    """Blocks of tiles, and behind each what follows the convolution, by vectors."""
    workload, (anchor,) = fused.workload, fused.anchor
    cpu = cpu_model(workload.target)
    retained = schedule_injective(schedule, fused)
    sums = next(t for t in retained if t.op.tag == TAG)
    packed = sums.op.input_tensors[0]
    output, retained = stored_or_fused(schedule, fused, retained)
    read = [] if output is anchor else followers(schedule, sums, retained)
    after = [t for t in read if t.op is not output.op]
    for tensor in retained:
        if all(tensor.op is not own.op for own in (output, sums, packed, *after)):
            schedule_stage(schedule, tensor, cpu)
    if packed.op.tag == PACKED:
        schedule_copy(schedule[packed])
    stage = schedule[output]
    batch, chunk, y, x, lane = stage.op.axis
    group, chunk = stage.split(chunk, factor=block.columns * SIDE // te.static_shape(output)[4])
    lines, y = stage.split(y, factor=block.tall)
    parts, x = stage.split(x, factor=block.along)
    stage.reorder(batch, group, lines, parts, y, x, chunk, lane)
    stage.vectorize(lane)
    stage.unroll(chunk)
    stage.parallel(fuse_all(stage, [batch, group, lines]))
    compute_in_tile(schedule, after, stage, x)
    schedule[sums].compute_at(stage, parts)
    stage = schedule[sums]
    stage.tensorize(stage.op.axis[0], intrinsic(sums))


def _schedule_copy(stage: te.Stage) -> None:
    """A pixel's channels by vectors; threads share lines."""
    batch, block, y, _, part, lane = stage.op.axis
    stage.parallel(fuse_all(stage, [batch, block, y]))
    stage.unroll(part)
    stage.vectorize(lane)
