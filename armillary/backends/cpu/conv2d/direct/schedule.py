"""Direct convolution on blocked layouts (NCHW[v]c data, OIHW[i]i[o]o weights), with a register tile.

In: a fused function whose anchor is nn.contrib_conv2d_NCHWc or cpu.conv2d_frames_NCHWc (tag "conv2d_NCHWc").
Out: for each tile of the output - `rows` neighbouring columns, of `tall` lines, times `vectors` blocks of channels -
one loop nest over the reduction whose accumulators all stay in registers; the elementwise consumers run on the tile
before it is stored.
Threads share the rows of an image where its weights are few (`is_banded`), else the channels; of a flat image, whose
pixels are one row (backends/cpu/graph/_collapse_rows.py), bands of tiles.
Invariant: rows * tall * vectors + vectors + 1 <= vector registers. The tile is chosen by `choose_tile`. Depthwise
convolutions: depthwise/schedule.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary import te
from armillary.backends.cpu.conv2d.direct.few_pixels import by_pixels
from armillary.backends.cpu.conv2d.direct.operator_frames import FramesConv2DAttrs, frame_count
from armillary.backends.cpu.conv2d.direct.space import (
    DIRECT,
    IMAGE,
    flat_bands,
    has_dot_operands,
    has_padded_rows,
    has_wide_border,
    images_together,
    is_banded,
    is_flat,
    nest_of,
    reads_weights_once,
    spelled_taps,
)
from armillary.backends.cpu.cost.model import (
    Tile,
    has_prefetch,
    shares_tiles,
    sums_by_parts,
)
from armillary.backends.cpu.cost.vectors import dividing
from armillary.backends.cpu.elementwise.default import PACKED, schedule_injective, schedule_stage
from armillary.backends.cpu.loops import (
    accumulator_of,
    accumulators,
    compute_in_tile,
    followers,
    fuse_all,
    in_bands,
    lane_axes,
    prefetch_weights,
    static_extent,
)
from armillary.backends.cpu.space import chosen, tile_of
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.ops._dot_operands import dot
from armillary.ops.nn._windows import Pairs
from armillary.ops.nn.conv import Conv2DAttrs, result_dtype, window
from armillary.ops.nn.conv_blocked import output_shape
from armillary.target.choice import Choice
from armillary.target.cpu import CpuModel, cpu_model
from armillary.tir import build as T

FLOAT = 4
MAX_SUMS_BYTES = 128 * 1024  # of the sums of a block of lines that wait in memory for the next part
TileRule = Callable[[te.Schedule, te.Tensor, te.Tensor, CpuModel, Workload], te.IterVar]
MAX_SPELLED = 12  # tiles of a row that are spelled out where many reach into the padding


def lies_inside(position: te.Expr, size: te.Expr, pads: tuple[int, int]) -> te.Expr:
    """The condition that a tap of the window lies on the data."""
    before, after = pads
    tests = ([position >= before] if before else []) + ([position < size + before] if after else [])
    return te.all(*tests)


def direct_compute(attrs: Conv2DAttrs, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """The convolution without a padded copy: taps outside the data are left out of the sum."""
    win, dtype = window("nn.contrib_conv2d_NCHWc", attrs, 2), result_dtype(attrs, data)
    o_blocks, i_blocks, kh, kw, ci, *_ = te.static_shape(weight)
    extents = {"ic_outer": i_blocks, "kh": kh, "kw": kw, "ic_inner": ci}
    axes = [te.reduce_axis((0, n), name=name) for name, n in extents.items()]
    places = [axis.var for axis in axes]  # the operators of variables are installed by tir.build
    ico, ry, rx, ici = places
    shape = output_shape(attrs, data, weight)
    (sy, sx), (dy, dx) = win.strides, win.dilation
    pads = win.pads
    if value := getattr(attrs, "pad_value", 0):
        data, pads = _with_border(data, pads, value), ((0, 0), (0, 0))
    (top, _), (left, _) = pads
    film = attrs if isinstance(attrs, FramesConv2DAttrs) else None

    def element(n: te.Expr, ob: te.Expr, y: te.Expr, x: te.Expr, oi: te.Expr) -> te.Expr:
        block = ico if attrs.groups == 1 else ob // (o_blocks // attrs.groups) * i_blocks + ico
        image, on_film = n, te.all()
        if film is not None:
            frame, block = n * film.frame_stride + block // data.shape[1] * film.frame_dilation, block % data.shape[1]
            image, on_film = frame - film.frame_padding[0], lies_inside(frame, data.shape[0], film.frame_padding)
        row, column = y * sy + ry * dy, x * sx + rx * dx
        # `likely` asks loop partition to peel the border tiles of a row; the test of rows stays outside the inner loops
        on_row, on_column = (lies_inside(at, data.shape[2 + a], pads[a]) for a, at in enumerate((row, column)))
        inside = te.all(on_film, on_row, te.likely(on_column))
        place = (image, block, row - top, column - left)
        if has_dot_operands(weight.shape):
            word = te.static_shape(weight)[-1]
            pixel = [data(*place, word * ici + k) for k in range(word)]
            taps = [weight(ob, ico, ry, rx, ici, oi, k) for k in range(word)]
            product = dot(pixel, taps, getattr(attrs, "is_symmetric", False))
        else:
            product = data(*place, ici).astype(dtype) * weight(ob, ico, ry, rx, ici, oi).astype(dtype)
        return te.sum(product, axis=axes, where=inside)

    if film is not None:
        shape = (frame_count(film, data), *shape[1:])
    result: te.Tensor = te.compute(shape, element, name="conv2d", tag="conv2d_NCHWc")
    return result


def _with_border(data: te.Tensor, pads: Pairs, value: int) -> te.Tensor:
    """A copy of the data with `value` around it: the products of a zero point are no zeros."""
    (top, bottom), (left, right) = pads
    batch, blocks, height, width, lanes = data.shape

    def element(n: te.Expr, block: te.Expr, y: te.Expr, x: te.Expr, lane: te.Expr) -> te.Expr:
        inside = te.all(y >= top, y < height + top, te.likely(te.all(x >= left, x < width + left)))
        return te.if_then_else(inside, data(n, block, y - top, x - left, lane), T.const(value, data.dtype))

    shape = (batch, blocks, height + top + bottom, width + left + right, lanes)
    result: te.Tensor = te.compute(shape, element, name="data_pad", tag=PACKED)
    return result


def border_of(conv: te.Tensor) -> list[te.Tensor]:
    """The copy with a border that a convolution reads, if it does."""
    return [t for t in conv.op.input_tensors if t.op.name == "data_pad"]


@implement(
    *("direct_frames", "direct_blocked", "direct_bfloat16", "direct_bytes"),
    family="cpu",
    compute=direct_compute,
    versions=by_pixels,
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
    retained = schedule_injective(schedule, fused)
    output = fused.outputs[0]
    if len(fused.outputs) != 1 or len(output.op.axis) != len(conv.op.axis):
        for tensor in retained:
            schedule_stage(schedule, tensor, cpu)
        return
    retained = [t for t in retained if all(t.op is not o.op for o in own)]
    after = [t for t in followers(schedule, conv, retained) if t.op is not output.op]
    for tensor in retained:
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
    nest, choice = nest_of(workload, cpu), chosen(workload, DIRECT)
    tile = tile_of(choice)
    if nest.taps and sums_by_parts(nest, tile, cpu) and not workload.named & IMAGE:
        return _tile_by_parts(schedule, output, accumulator, choice, workload)
    chunk_outer, chunk_inner = stage.split(chunk, factor=tile.vectors)
    width_outer, width_inner = stage.split(width, factor=tile.rows)
    at = chunk_outer if shares_tiles(nest, tile, cpu) else width_outer
    rows_below, columns = workload.result.static[2:4]
    tiles_below, tiles_beside = -(-rows_below // tile.tall), -(-columns // tile.rows)
    is_open = bool(workload.named & IMAGE)  # the numbers above then are typical ones
    images, together = images_together(workload, cpu), list[te.IterVar]()
    if images > 1:
        batch, *together = stage.split(batch, factor=images)
    outer = [chunk_outer, batch] if not together and reads_weights_once(workload, cpu) else [batch, chunk_outer]
    if tile.tall > 1:  # the loop over lines stays by itself, so that loop partition can peel a lower last tile
        height, height_inner = stage.split(height, factor=tile.tall)
        stage.reorder(*outer, *together, height, width_outer, chunk_inner, height_inner, width_inner, block)
        stage.unroll(height_inner)
        if has_padded_rows(workload):
            stage.unroll(height)
        stage.parallel(fuse_all(stage, outer))
    elif is_flat(workload, cpu):
        bands = 1 if together else flat_bands(tiles_beside, workload, cpu)
        if bands > 1:
            tiles_beside = -(-tiles_beside // bands)
            factor, parts = (tiles_beside, None) if is_open else (None, bands)
            band, width_outer = stage.split(width_outer, factor=factor, nparts=parts)
            outer = [batch, band, chunk_outer]
        at = width_outer
        stage.reorder(*outer, *together, height, width_outer, chunk_inner, width_inner, block)
        stage.parallel(fuse_all(stage, outer))
    elif at is not width_outer:  # the loop over tiles stays by itself: loop partition tells those without padding
        stage.reorder(width_outer, batch, height, chunk_outer, chunk_inner, width_inner, block)
        stage.parallel(width_outer)
    else:
        lines = in_bands(stage, chunk_outer, height) if is_banded(workload) and not together else [chunk_outer, height]
        tiles_below //= static_extent(lines[0]) if len(lines) == 3 else 1
        outer = [batch, *lines] if len(lines) == 3 else outer if together else [*outer, height]
        stage.reorder(*outer, *([*together, height] if together else []), width_outer, chunk_inner, width_inner, block)
        stage.parallel(fuse_all(stage, outer))
    stage.vectorize(block)
    stage.unroll(width_inner)
    stage.unroll(chunk_inner)
    if at is width_outer and not is_open and tiles_beside <= MAX_SPELLED and has_wide_border(workload, tile.rows):
        stage.unroll(width_outer)
    schedule[accumulator].compute_at(stage, at)
    sums = accumulators(schedule, accumulator)
    if has_prefetch(nest, tile, cpu) and not is_open:
        _prefetch(sums[-1], tile, nest.steps, (images if together else 1, tiles_below, tiles_beside))
    spelled = spelled_taps(choice, needs_lines=tile.tall > 1 and has_padded_rows(workload))
    for inside in sums:
        schedule_sum(inside, (*spelled, *lane_axes(cpu)), is_tall=tile.tall > 1)
    return at


def _prefetch(inside: te.Stage, tile: Tile, steps: int, counts: tuple[int, int, int]) -> None:
    """Ask for the weights of the next group, which as many images, lines and tiles beside each other share."""
    number, _, row, column, _ = inside.op.axis[-5:]
    images, below, beside = counts
    sharers = [te.Sharer(row, tile.tall, below), te.Sharer(column, tile.rows, beside)]
    prefetch_weights(inside, tile.vectors * steps, [*([te.Sharer(number, 1, images)] if images > 1 else []), *sharers])


def _tile_by_parts(
    schedule: te.Schedule, output: te.Tensor, accumulator: te.Tensor, choice: Choice, workload: Workload
) -> te.IterVar:
    """The sums of a group of channels lie in memory: a part of the sum for all tiles, then the next part for all.

    Lines of many columns come in blocks, so that these sums stay near. Tiles know which columns lie on the data.
    """
    stage, (whole, part) = schedule[output], accumulators(schedule, accumulator)
    tile = tile_of(choice)
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
    schedule_sum(part, spelled_taps(choice), is_tall=False)
    return width_outer


def tile_lines(
    schedule: te.Schedule, conv: te.Tensor, sums: te.Tensor, tile: Tile
) -> tuple[te.IterVar, te.IterVar, te.IterVar]:
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
    is_plain = len(reduce_axes) == 4 and static_extent(reduce_axes[3]) == 1
    if is_plain and reduce_axes[3].var.name not in spelled:  # a loop over channels ends each tap; else taps are lanes
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
