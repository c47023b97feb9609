"""Direct convolution on blocked layouts (NCHW[v]c data, OIHW[i]i[o]o weights), with a register tile.

In: a fused function whose anchor is nn.contrib_conv2d_NCHWc or nn.contrib_conv2d_frames_NCHWc (tag "conv2d_NCHWc").
Out: for each tile of the output - `rows` neighbouring columns, of `tall` lines, times `vectors` blocks of channels -
one loop nest over the reduction whose accumulators all stay in registers; the elementwise consumers run on the tile
before it is stored.
Threads share the rows of an image where its weights are few (`is_banded`), else the channels; of a flat image, whose
pixels are one row (backends/cpu/graph/_one_row.py), bands of tiles.
Invariant: rows * tall * vectors + vectors + 1 <= vector registers. The tile is chosen by `choose_tile`. Depthwise
convolutions: depthwise/schedule.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from armillary import te
from armillary.backends.cpu.conv2d.direct.operator import output_shape
from armillary.backends.cpu.conv2d.direct.operator_frames import FramesConv2DAttrs, frame_count
from armillary.backends.cpu.conv2d.winograd.cost import TILES, best_plan, estimate
from armillary.backends.cpu.conv2d.winograd.operator import layer_of
from armillary.backends.cpu.cost.model import (
    SHOWN_INPUT,
    Nest,
    Tile,
    asks_ahead,
    choose_tile,
    explained,
    far,
    far_weights,
    shares_tiles,
    sums_by_parts,
    waits,
    weighed_tiles,
)
from armillary.backends.cpu.elementwise.default import PACKED, schedule_injective, schedule_stage
from armillary.backends.cpu.loops import (
    MIN_BAND,
    accumulator_of,
    accumulators,
    ask_ahead,
    compute_in_tile,
    dividing,
    followers,
    fuse_all,
    in_bands,
    lanes_of,
    longest_part,
    static_extent,
)
from armillary.backends.explanation import Explanation
from armillary.backends.registry import Fused, Workload, implement
from armillary.ops._dot_operands import BYTES, dot
from armillary.ops.nn.conv import result_dtype, window
from armillary.target.cpu import CpuModel, cpu_model
from armillary.tir import build as T

FLOAT = 4
MAX_SUMS_BYTES = 128 * 1024  # of the sums of a block of lines that wait in memory for the next part
TileRule = Callable[[te.Schedule, te.Tensor, te.Tensor, CpuModel, Workload], te.IterVar]
WORDS_AXES = 7  # of a weight for dot products
COMMON_COLUMNS = 14  # of a tile
MAX_SPELLED = 12  # tiles of a row that are spelled out where many reach into the padding
MAX_SPELLED_ROWS = 8  # of an image whose tall tiles are
WEIGHTS_PER_DATA, WEIGHTS_PER_DATA_BESIDE_TWO_PORTS = 4, 6
PIXELS_TOGETHER = 256  # of a batch's images, that use weights from beyond L2 one after another: 1024 to 1024 on 7x7
FEW_BANDS, MOST_BANDS = 2, 8  # of a flat image, where each band reads the weights from beyond L2 or not


def lies_inside(position: Any, size: Any, pads: tuple[int, int]) -> Any:
    """The condition that a tap of the window lies on the data."""
    before, after = pads
    tests = ([position >= before] if before else []) + ([position < size + before] if after else [])
    return te.all(*tests)


def is_in_words(weight: Any) -> bool:
    """Whether a weight of this shape is packed for dot products: a step of the sum then is one of those."""
    return len(weight) == WORDS_AXES


def direct_compute(attrs: Any, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """The convolution without a padded copy: taps outside the data are left out of the sum."""
    win, dtype = window("nn.contrib_conv2d_NCHWc", attrs, 2), result_dtype(attrs, data)
    o_blocks, i_blocks, kh, kw, ci, *_ = te.static_shape(weight)
    extents = {"ic_outer": i_blocks, "kh": kh, "kw": kw, "ic_inner": ci}
    axes = [te.reduce_axis((0, n), name=name) for name, n in extents.items()]
    places: list[Any] = [axis.var for axis in axes]  # Any: the operators of variables are installed by tir.build
    ico, ry, rx, ici = places
    shape = output_shape(attrs, data, weight)
    (sy, sx), (dy, dx) = win.strides, win.dilation
    pads = win.pads
    if getattr(attrs, "pad_value", 0):
        data, pads = _with_border(data, pads, attrs.pad_value), ((0, 0), (0, 0))
    (top, _), (left, _) = pads
    is_film = isinstance(attrs, FramesConv2DAttrs)

    def element(n: Any, ob: Any, y: Any, x: Any, oi: Any) -> Any:
        block = ico if attrs.groups == 1 else ob // (o_blocks // attrs.groups) * i_blocks + ico
        image, on_film = n, te.all()
        if is_film:
            frame, block = n * attrs.frame_stride + block // data.shape[1] * attrs.frame_dilation, block % data.shape[1]
            image, on_film = frame - attrs.frame_padding[0], lies_inside(frame, data.shape[0], attrs.frame_padding)
        row, column = y * sy + ry * dy, x * sx + rx * dx
        # `likely` asks loop partition to peel the border tiles of a row; the test of rows stays outside the inner loops
        on_row, on_column = (lies_inside(at, data.shape[2 + a], pads[a]) for a, at in enumerate((row, column)))
        inside = te.all(on_film, on_row, te.likely(on_column))
        place = (image, block, row - top, column - left)
        if is_in_words(weight.shape):
            word = te.static_shape(weight)[-1]
            pixel = [data(*place, word * ici + k) for k in range(word)]
            product = dot(pixel, [weight(ob, ico, ry, rx, ici, oi, k) for k in range(word)])
        else:
            product = data(*place, ici).astype(dtype) * weight(ob, ico, ry, rx, ici, oi).astype(dtype)
        return te.sum(product, axis=axes, where=inside)

    if is_film:
        shape = (frame_count(attrs, data), *shape[1:])
    made: te.Tensor = te.compute(shape, element, name="conv2d", tag="conv2d_NCHWc")
    return made


def _with_border(data: te.Tensor, pads: Any, value: int) -> te.Tensor:
    """A copy of the data with `value` around it: the products of a zero point are no zeros."""
    (top, bottom), (left, right) = pads
    batch, blocks, height, width, lanes = te.static_shape(data)

    def element(n: Any, block: Any, y: Any, x: Any, lane: Any) -> Any:
        inside = te.all(y >= top, y < height + top, te.likely(te.all(x >= left, x < width + left)))
        return te.if_then_else(inside, data(n, block, y - top, x - left, lane), T.const(value, data.dtype))

    shape = (batch, blocks, height + top + bottom, width + left + right, lanes)
    made: te.Tensor = te.compute(shape, element, name="data_pad", tag=PACKED)
    return made


def border_of(conv: te.Tensor) -> list[te.Tensor]:
    """The copy with a border that a convolution reads, if it does."""
    return [t for t in conv.op.input_tensors if t.op.name == "data_pad"]


def nest_of(workload: Workload, cpu: CpuModel) -> Nest:
    """The convolution as a register-tiled product: lines are output rows, steps are taps times input channels."""
    weight: Any = workload.types[1]  # Any: tensor types, as inference has checked
    result: Any = workload.op.infer_type(workload.attrs, workload.types)
    batch, chunks, height, width, block = result.static
    images = _images_with_weights_near(workload, cpu)
    _, i_blocks, kh, kw, ci, *_ = weight.static
    lanes = lanes_of(cpu, result.dtype)
    wide, narrow = max(1, block // lanes), 2 * block <= lanes
    data: Any = workload.types[0]
    weights = far_weights(cpu)
    groups = workload.attrs.groups if cpu.fma_ports > 1 else 1  # one port has time for each group's inputs
    reread = SHOWN_INPUT * data.nbytes / groups / far(data.nbytes * images // max(1, batch), cpu)
    steps = i_blocks * kh * kw * ci
    # 32 blocks by threes took 2 to 8 % longer than by twos, and threads share them less evenly where they are all tasks
    is_flat = _is_flat(workload, cpu) and not _is_small(workload, cpu)
    has_rest = (chunks % 2 == 1 or is_flat) and workload.attrs.groups == 1 and cpu.fma_ports > 1
    below = 1 if is_banded(workload) or (_has_padded_rows(workload) and not _spells_rows(height, cpu)) else height
    in_words = is_in_words(weight.shape)
    taps, step = () if in_words else _taps_of_a_line(workload), kh * kw * ci
    return Nest(
        width, images * height, chunks, steps, weights, wide=wide, reread=reread, is_narrow=narrow,
        below=below, is_ragged=True, has_rest=has_rest, group=chunks // groups if groups > 1 else 0,
        taps=taps, part=longest_part(i_blocks, step) * step if taps and ci > 1 else 0,
        may_ask=cpu.fma_ports > 1 and not in_words, repeats=batch // images,
    )  # fmt: skip


def _is_small(workload: Workload, cpu: CpuModel) -> bool:
    """Whether an image has so few pixels that their products wait for the weights, yet more than a tile of two blocks.

    1024 to 1024 channels on 5x5 take 535 us by 9x3, 490 by 13x2.
    """
    result: Any = workload.op.infer_type(workload.attrs, workload.types)
    height, width = result.static[2:4]
    weight: Any = workload.types[1]
    if is_in_words(weight.shape):
        return False
    pixels = _images_with_weights_near(workload, cpu) * height * width
    return bool(2 * pixels + 2 >= cpu.vector_registers and waits(pixels, far_weights(cpu), cpu))


def _taps_of_a_line(workload: Workload) -> tuple[tuple[int, int], ...]:
    """The columns of the output for which each tap of a window lies on the data; () where padding is narrow."""
    data, weight = (t.static for t in workload.types[:2])  # type: ignore[attr-defined]
    result: Any = workload.op.infer_type(workload.attrs, workload.types)
    win, width = window(workload.op.name, workload.attrs, 2), result.static[3]
    step, dilation, (left, right) = win.strides[1], win.dilation[1], win.pads[1]
    if dilation == 1 or left + right == 0 or not has_wide_border(workload, COMMON_COLUMNS):
        return ()
    starts = [tap * dilation - left for tap in range(weight[3])]  # where a tap lies for the first output
    return tuple((max(0, -(start // step)), min(width, -((start - data[3]) // step))) for start in starts)


def _has_padded_rows(workload: Workload) -> bool:
    return any(window(workload.op.name, workload.attrs, 2).pads[0])


def _spells_rows(height: int, cpu: CpuModel) -> bool:
    """Whether tall tiles may reach into padding: each is spelled out with its taps, so that none is asked about.

    With them 512 to 512 channels by 4x4 on 4x4 read their weights once and take 0.57 of the time, by 3x3 on 7x7 0.95.
    """
    return height <= MAX_SPELLED_ROWS and cpu.fma_ports > 1


def explain_direct(workload: Workload) -> Explanation:
    """The register tile against the best with other numbers of vectors, and Winograd, or why it does not apply."""
    cpu = cpu_model(workload.target)
    nest = nest_of(workload, cpu)
    tile, rows = weighed_tiles(nest, cpu)
    parts = ", the sum by parts" if nest.taps and sums_by_parts(nest, tile, cpu) else ""
    reason = _not_winograd(workload)
    if reason is not None:
        return explained(f"direct convolution{parts}", f"{tile}", rows, cpu, [f"Winograd: {reason}"])
    data, result = workload.types[0], workload.op.infer_type(workload.attrs, workload.types)
    layer = layer_of(workload.attrs, data, result)  # type: ignore[arg-type]  # tensor types, as inference has checked
    winograd = [estimate(layer, best_plan(layer, m, cpu), cpu) for m in TILES[:2]]
    return explained(f"direct convolution{parts}", f"{tile}", rows + winograd, cpu)


def _not_winograd(workload: Workload) -> str | None:
    """Why Winograd's algorithm cannot compute this convolution; None if it can."""
    weight: Any = workload.types[1]
    kernel, attrs = weight.static[2:4], workload.attrs
    if is_in_words(weight.shape):
        return f"its transforms need more than {'bytes' if weight.static[-1] == BYTES else 'bfloat16'}"
    if isinstance(attrs, FramesConv2DAttrs):
        return f"it reads {attrs.frames} frames for a result"
    if kernel != (3, 3):
        return f"the kernel is {kernel[0]}x{kernel[1]}, not 3x3"
    if set(attrs.strides) != {1}:
        return f"the strides are {attrs.strides[0]}x{attrs.strides[1]}, not 1x1"
    return None


def _has_longer_blocks(workload: Workload) -> str | None:
    data, weight = (t.static for t in workload.types)  # type: ignore[attr-defined]
    if weight[4] * weight[6] == data[4]:
        return None
    return f"the weight takes {weight[4] * weight[6]} channels together, the data has blocks of {data[4]}"


@implement(
    "nn.contrib_conv2d_frames_NCHWc", family="cpu", name="direct_frames", compute=direct_compute, explain=explain_direct
)
@implement(
    "nn.contrib_conv2d_NCHWc_bf16", family="cpu", name="direct_halves", when=_has_longer_blocks, compute=direct_compute,
    explain=explain_direct,
)  # fmt: skip
@implement(
    "nn.contrib_conv2d_NCHWc_int8", family="cpu", name="direct_bytes", when=_has_longer_blocks, compute=direct_compute,
    explain=explain_direct,
)  # fmt: skip
@implement(
    "nn.contrib_conv2d_NCHWc", family="cpu", name="direct_blocked", compute=direct_compute, explain=explain_direct
)
def direct_blocked(schedule: te.Schedule, fused: Fused) -> None:
    """Register-tiled direct convolution."""
    (conv,) = fused.anchor
    border = border_of(conv)
    schedule_in_tiles(schedule, fused, _tile_output, own=border)
    for copy in border:
        stage = schedule[copy]
        batch, block, row, _, lane = stage.op.axis
        stage.parallel(fuse_all(stage, [batch, block, row]))
        stage.vectorize(lane)


def schedule_in_tiles(
    schedule: te.Schedule, fused: Fused, tile_output: TileRule, own: Sequence[te.Tensor] = ()
) -> None:
    """The sum in registers at a tile of the output, as `tile_output` makes it; consumers between the two there too.

    `own`: stages that are left to `tile_output`.
    """
    (conv,) = fused.anchor
    cpu = cpu_model(fused.workload.target)
    kept = schedule_injective(schedule, fused)
    output = fused.outputs[0]
    if len(fused.outputs) != 1 or len(output.op.axis) != len(conv.op.axis):
        for tensor in kept:
            schedule_stage(schedule, tensor, cpu)
        return
    kept = [t for t in kept if all(t.op is not o.op for o in own)]
    after = [t for t in followers(schedule, conv, kept) if t.op is not output.op]
    for tensor in kept:
        if tensor.op is not conv.op and tensor.op is not output.op and tensor not in after:
            schedule_stage(schedule, tensor, cpu)
    accumulator = accumulator_of(schedule, conv, output)
    at = tile_output(schedule, output, accumulator, cpu, fused.workload)
    compute_in_tile(schedule, after, schedule[output], at)


def _tile_output(
    schedule: te.Schedule, output: te.Tensor, accumulator: te.Tensor, cpu: CpuModel, workload: Workload
) -> te.IterVar:
    """Tile the output, put the sum inside; gives the loop of a tile."""
    stage = schedule[output]
    batch, chunk, height, width, block = stage.op.axis
    nest = nest_of(workload, cpu)
    tile = choose_tile(nest, cpu)
    if nest.taps and sums_by_parts(nest, tile, cpu):
        return _tile_by_parts(schedule, output, accumulator, tile, workload)
    chunk_outer, chunk_inner = stage.split(chunk, factor=tile.vectors)
    width_outer, width_inner = stage.split(width, factor=tile.rows)
    at = chunk_outer if shares_tiles(nest, tile, cpu) else width_outer
    tiles_below, tiles_beside = -(-static_extent(height) // tile.tall), -(-static_extent(width) // tile.rows)
    images, together = images_together(workload, cpu), list[te.IterVar]()
    if images > 1:
        batch, *together = stage.split(batch, factor=images)
    if tile.tall > 1:  # the loop over lines stays by itself, so that loop partition can peel a lower last tile
        height, height_inner = stage.split(height, factor=tile.tall)
        stage.reorder(batch, chunk_outer, *together, height, width_outer, chunk_inner, height_inner, width_inner, block)
        stage.unroll(height_inner)
        if _has_padded_rows(workload):
            stage.unroll(height)
        stage.parallel(fuse_all(stage, [batch, chunk_outer]))
    elif _is_flat(workload, cpu):
        bands = 1 if together else _bands(tiles_beside, workload, cpu)
        chunk_loops = [chunk_outer]
        if bands > 1:
            band, width_outer = stage.split(width_outer, nparts=bands)
            chunk_loops = [band, chunk_outer]
            tiles_beside = -(-tiles_beside // bands)
        at = width_outer
        stage.reorder(batch, *chunk_loops, *together, height, width_outer, chunk_inner, width_inner, block)
        stage.parallel(fuse_all(stage, [batch, *chunk_loops]))
    elif at is not width_outer:  # the loop over tiles stays by itself: loop partition tells those without padding
        stage.reorder(width_outer, batch, height, chunk_outer, chunk_inner, width_inner, block)
        stage.parallel(width_outer)
    else:
        lines = in_bands(stage, chunk_outer, height) if is_banded(workload) and not together else [chunk_outer, height]
        tiles_below //= static_extent(lines[0]) if len(lines) == 3 else 1
        stage.reorder(batch, lines[0], *together, *lines[1:], width_outer, chunk_inner, width_inner, block)
        stage.parallel(fuse_all(stage, [batch, chunk_outer] if together else [batch, *lines]))
    stage.vectorize(block)
    stage.unroll(width_inner)
    stage.unroll(chunk_inner)
    if at is width_outer and tiles_beside <= MAX_SPELLED and has_wide_border(workload, tile.rows):
        stage.unroll(width_outer)
    schedule[accumulator].compute_at(stage, at)
    sums = accumulators(schedule, accumulator)
    if asks_ahead(nest, tile, cpu):
        number, _, row, column, _ = sums[-1].op.axis[-5:]
        sharers = [te.Sharer(row, tile.tall, tiles_below), te.Sharer(column, tile.rows, tiles_beside)]
        ask_ahead(sums[-1], tile.vectors * nest.steps, [*(te.Sharer(number, 1, images) for _ in together), *sharers])
    for inside in sums:
        spelled = ("kh", "kw") if tile.tall > 1 and _has_padded_rows(workload) else ("kw",)
        schedule_sum(inside, spelled, is_tall=tile.tall > 1)
    return at


def _tile_by_parts(
    schedule: te.Schedule, output: te.Tensor, accumulator: te.Tensor, tile: Tile, workload: Workload
) -> te.IterVar:
    """The sums of a group of channels lie in memory: a part of the sum for all tiles, then the next part for all.

    Lines of many columns come in blocks, so that these sums stay near. Tiles know which columns lie on the data.
    """
    stage, (whole, part) = schedule[output], accumulators(schedule, accumulator)
    batch, chunk, height, width, block = stage.op.axis
    extent, columns = static_extent(height), static_extent(width)
    chunk_outer, chunk_inner = stage.split(chunk, factor=tile.vectors)
    most = MAX_SUMS_BYTES // (FLOAT * tile.vectors * static_extent(block) * columns)
    lines, height = stage.split(height, factor=dividing(max(1, min(most, extent)), extent))
    width_outer, width_inner = stage.split(width, factor=tile.rows)
    stage.reorder(batch, chunk_outer, lines, height, width_outer, chunk_inner, width_inner, block)
    group = fuse_all(stage, [batch, chunk_outer, lines])
    stage.parallel(group)
    whole.compute_at(stage, group)
    _, chunk, row, column, lane = whole.op.axis
    column_outer, column = whole.split(column, factor=tile.rows)
    whole.reorder(*whole.op.reduce_axis, row, column_outer, chunk, column, lane)
    for each, axes in ((stage, (chunk_inner, width_inner)), (whole, (chunk, column))):
        each.vectorize(each.op.axis[-1])
        for axis in axes:
            each.unroll(axis)
    if -(-columns // tile.rows) <= MAX_SPELLED and has_wide_border(workload, tile.rows):
        whole.unroll(column_outer)
    part.compute_at(whole, column_outer)
    schedule_sum(part, ("kw",), is_tall=False)
    return width_outer


def _is_flat(workload: Workload, cpu: CpuModel) -> bool:
    """Whether it is a product of one row of pixels with a matrix, as backends/cpu/graph/_one_row.py makes it."""
    data, weight = (t.static for t in workload.types[:2])  # type: ignore[attr-defined]
    result: Any = workload.op.infer_type(workload.attrs, workload.types)
    return bool(cpu.fma_ports > 1 and weight[2:4] == (1, 1) and data[2] == 1 and result.static[2:4] == data[2:4])


def _bands(tiles: int, workload: Workload, cpu: CpuModel) -> int:
    """Bands of tiles, so that threads share a flat image by pixels, as `in_bands` does rows."""
    if not is_banded(workload):
        return 1
    weights: Any = workload.types[1]
    most = FEW_BANDS if weights.nbytes > cpu.l2 // 2 else MOST_BANDS
    fitting = (n for n in (8, 4, 2) if n <= most and tiles >= n * MIN_BAND and -tiles % n <= max(1, tiles // n // 8))
    return next(fitting, 1)


def is_banded(workload: Workload) -> bool:
    """Whether threads share the rows, and each reads all weights, or the channels, and each reads all data.

    A line of data from the other core's cache takes about as long as four lines of weights from memory; on servers with
    two ports and a mesh between the cores as six: 256 to 1024 channels on 14x14 and what comes next, ResNet-50 0.975.
    """
    data, weight = (t.nbytes for t in workload.types[:2])  # type: ignore[attr-defined]
    has_two_ports = cpu_model(workload.target).fma_ports > 1
    return bool(weight <= (WEIGHTS_PER_DATA_BESIDE_TWO_PORTS if has_two_ports else WEIGHTS_PER_DATA) * data)


def images_together(workload: Workload, cpu: CpuModel) -> int:
    """How many images of a batch go through a group of channels before the next group does.

    Weights that do not stay in L2 otherwise come again for each image. So many that their products hide it, while L2
    keeps their data.
    """
    data, weight = (t.nbytes for t in workload.types[:2])  # type: ignore[attr-defined]
    result: Any = workload.op.infer_type(workload.attrs, workload.types)
    batch, _, height, width, _ = result.static
    is_other = workload.attrs.groups > 1 or isinstance(workload.attrs, FramesConv2DAttrs)
    if is_other or batch < 2 or _stays_near(weight, cpu):
        return 1
    fitting = [n for n in range(1, batch + 1) if batch % n == 0 and n * data // batch <= cpu.l2 // 2]
    return next((n for n in fitting if n * height * width >= PIXELS_TOGETHER), max(fitting, default=1))


def _stays_near(nbytes: int, cpu: CpuModel) -> bool:
    """Whether weights of so many bytes are still in L2 when the next image needs them."""
    return nbytes <= cpu.l2 // 2


def _images_with_weights_near(workload: Workload, cpu: CpuModel) -> int:
    """How many images find weights near which the first of them fetched."""
    weight: Any = workload.types[1]
    result: Any = workload.op.infer_type(workload.attrs, workload.types)
    batch = max(1, result.static[0])
    return batch if _stays_near(weight.nbytes, cpu) else images_together(workload, cpu)


def has_wide_border(workload: Workload, columns: int) -> bool:
    """Whether padding reaches into more than one tile on a side of a row, or into all, as dilated windows have it.

    Loop partition peels one tile on each side. Spelled out, each tile knows which columns lie on the data.
    """
    data, weight = (t.static for t in workload.types[:2])  # type: ignore[attr-defined]
    win = window(workload.op.name, workload.attrs, 2)
    step, (left, right) = win.strides[1] * columns, win.pads[1]
    reach = (weight[3] - 1) * win.dilation[1] + 1
    width = (data[3] + left + right - reach) // win.strides[1] + 1
    tiles, before = -(-width // columns), -(-left // step)
    whole = max(0, data[3] + left - reach + win.strides[1]) // step  # tiles that end before the padding on the right
    return bool(max(before, tiles - whole) > 1 or (whole <= before and tiles > 1))


def tile_lines(
    schedule: te.Schedule, conv: te.Tensor, sums: te.Tensor, tile: Tile
) -> tuple[te.IterVar, te.IterVar, te.IterVar]:  # fmt: skip
    """Tile a convolution in lines of pixels; gives its loops over groups of blocks, rows and tiles, in this order."""
    stage = schedule[conv]
    batch, chunk, height, width, block = stage.op.axis
    chunk_outer, chunk_inner = stage.split(chunk, factor=tile.vectors)
    width_outer, width_inner = stage.split(width, factor=tile.rows)
    stage.reorder(batch, chunk_outer, height, width_outer, chunk_inner, width_inner, block)
    stage.vectorize(block)
    stage.unroll(width_inner)
    stage.unroll(chunk_inner)
    schedule[sums].compute_at(stage, width_outer)
    for inside in accumulators(schedule, sums):
        schedule_sum(inside, ("kw",), is_tall=False)
    return chunk_outer, height, width_outer


def schedule_sum(inside: te.Stage, spelled: tuple[str, ...], *, is_tall: bool) -> None:
    """One tile: its reduction loops outside, all its registers and the loops over `spelled` taps unrolled."""
    *blocks, _, chunk_tile, row_tile, width_tile, block_tile = inside.op.axis
    reduce_axes = list(inside.op.reduce_axis)
    if len(reduce_axes) == 4 and static_extent(reduce_axes[3]) == 1:  # plain layout: a loop over channels ends each tap
        reduce_axes = [*reduce_axes[1:3], reduce_axes[0], reduce_axes[3]]
    # columns outside channel blocks: one broadcast at a time is live beside the accumulators
    lines = [*reduce_axes, row_tile] if is_tall else [row_tile, *reduce_axes]
    inside.reorder(*blocks, *lines, width_tile, chunk_tile, block_tile)
    inside.vectorize(block_tile)
    inside.unroll(width_tile)
    inside.unroll(chunk_tile)
    if is_tall:
        inside.unroll(row_tile)
    for axis in reduce_axes:
        if axis.var.name in spelled:
            inside.unroll(axis)
