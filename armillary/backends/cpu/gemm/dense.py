"""Matrix products on the CPU by a register tile; right-hand sides computed at run time are packed first, most of them.

In: a fused function anchored at nn.dense, nn.matmul, nn.batch_matmul or nn.contrib_dense_pack. Out: a schedule whose
innermost loops are full register tiles over a right-hand side in blocks of columns, contiguous for each row of it
(constant weights come so from alter-op-layout). Invariant: as for conv2d_blocked: the accumulators of a tile fit the
registers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from armillary import te
from armillary.backends.cpu.cost.model import (
    Tile,
    sums_by_parts,
    weights_stay,
)
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.cpu.elementwise.default import PACKED, schedule_injective, schedule_stage
from armillary.backends.cpu.gemm.pack import pack_blocks
from armillary.backends.cpu.gemm.space import (
    MIN_TASKS,
    PRODUCT,
    block_of,
    column_block,
    is_long,
    is_transposed,
    nest_of,
    padded_columns,
    reads_in_place,
    row_axis,
)
from armillary.backends.cpu.loops import (
    MOST_CACHES,
    accumulator_of,
    accumulators,
    compute_in_tile,
    followers,
    fuse_all,
    keeps_shape,
    static_extent,
)
from armillary.backends.cpu.space import chosen, tile_of
from armillary.backends.registry import Fused, implement
from armillary.base.aliases import AnyFunction
from armillary.base.dtype import DType
from armillary.ops.nn.dense import BatchMatmulAttrs, DenseAttrs
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model

MUCH_LARGER = 4  # rows for each column
MOST_ROWS_OF_BLOCK = 64  # of a much larger left side, whose weights stay in L2 for all blocks
ANY_SIZE = 1 << 30
MAX_SUMS_BYTES = 128 * 1024  # of the sums of a block of rows that wait in memory for the next part


MIN_TILES_OF_PARTS = 8  # tiles of rows that take a part of a long sum one after another


def packed_product(attrs: DenseAttrs | BatchMatmulAttrs, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """The product over a copy of the right-hand side in blocks of columns, zeros beyond the last one, or in place."""
    shape_a, shape_b = te.static_shape(a), te.static_shape(b)
    swap_a, swap_b = is_transposed(attrs, "a") and hasattr(attrs, "transpose_a"), is_transposed(attrs, "b")
    rows, inner = (shape_a[-1], shape_a[-2]) if swap_a else (shape_a[-2], shape_a[-1])
    columns = shape_b[-2] if swap_b else shape_b[-1]
    block = column_block(columns)
    batch_a, batch_b = shape_a[:-2], shape_b[:-2]
    is_stored = isinstance(b.op, te.PlaceholderOp)  # else its elements would be computed for every tile
    cpu = cpu_model(Target.current() or Target("llvm"))
    fits = reads_in_place(rows, columns, DType(b.dtype), cpu) and not is_long(rows, inner, cpu)
    lies_well = is_stored and not swap_b and fits
    padded = columns if lies_well else padded_columns(columns)

    def element_b(*index: te.Expr) -> te.Expr:
        *batch, chunk, k, lane = index
        column = chunk * block + lane
        value = b(*batch, column, k) if swap_b else b(*batch, k, column)
        return value if padded == columns else te.if_then_else(te.likely(column < columns), value, 0.0)

    packed = te.compute((*batch_b, padded // block, inner, block), element_b, name="packed", tag=PACKED)

    def term(at_a: list[te.Expr], at_b: list[te.Expr], i: te.Expr, j: te.Expr, k: te.Expr) -> te.Expr:
        lhs = a(*at_a, k, i) if swap_a else a(*at_a, i, k)
        return lhs * (b(*at_b, k, j) if lies_well else packed(*at_b, j // block, k, j % block))

    return sum_of_terms((*batch_a, rows), (*batch_b, columns), padded, inner, term)


def sum_of_terms(
    left: tuple[int, ...], right: tuple[int, ...], padded: int, steps: int, term: AnyFunction
) -> te.Tensor:
    """A product from its terms, `term(place in a's batch, in b's, row, column, step)`; columns to `padded` are cut off.

    `left`: the batch of a and its rows; `right`: that of b and its columns; the batches are broadcast.
    """
    (*batch_a, rows), (*batch_b, columns) = left, right
    k = te.reduce_axis((0, steps), name="k")

    def element(*index: te.Expr) -> te.Expr:
        *batch, i, j = index
        at_a = [0 if size == 1 else x for size, x in zip(batch_a, batch, strict=False)]
        at_b = [0 if size == 1 else x for size, x in zip(batch_b, batch, strict=False)]
        return te.sum(term(at_a, at_b, i, j, k), axis=k)

    batch = tuple(max(x, y) for x, y in zip(batch_a, batch_b or (1,) * len(batch_a), strict=True))
    product: te.Tensor = te.compute((*batch, rows, padded), element, name="product", tag="packed_product")
    if padded == columns:
        return product
    retained: te.Tensor = te.compute((*batch, rows, columns), lambda *i: product(*i), name="kept", tag="injective")
    return retained


def _product_of(fused: Fused) -> te.Tensor:
    """The reduction: the anchor, or what it takes its columns from."""
    (anchor,) = fused.anchor
    return anchor if anchor.op.reduce_axis else anchor.op.input_tensors[0]


@implement("packed_tile", family="cpu")
@implement("packing_dense", "packing_matmul", "packing_batch_matmul", family="cpu", compute=packed_product)
def matmul_tile(schedule: te.Schedule, fused: Fused) -> None:
    """Rows x vectors register tile; the reduction is the loop around it."""
    cpu = cpu_model(fused.workload.target)
    product = _product_of(fused)
    retained = schedule_injective(schedule, fused)
    output = fused.outputs[0]
    if len(product.op.axis) < 2:
        for tensor in retained:
            schedule_stage(schedule, tensor, cpu)
        return
    nest = nest_of(fused.workload, cpu)
    tile = tile_of(chosen(fused.workload, PRODUCT))
    lanes = min(lanes_of(cpu, product.dtype), block_of(fused.workload))
    plain = keeps_shape(fused) or (len(fused.outputs) == 1 and te.static_shape(output) == te.static_shape(product))
    output = output if plain else product  # what reads the product has another shape: the product is stored first
    after = [t for t in followers(schedule, product, retained) if t.op is not output.op] if plain else []
    others = [t for t in retained if t.op is not product.op and t.op is not output.op and t not in after]
    packed = _schedule_others(schedule, others, cpu)
    accumulator = accumulator_of(schedule, product, output)
    stage, at_row = schedule[output], row_axis(fused.workload)
    *outer, column = stage.op.axis
    row = outer.pop(at_row + 1)
    columns = static_extent(column)
    if nest.width < static_extent(row):
        block, row = stage.split(row, factor=nest.width)
        outer.append(block)
    if output.op is not product.op:  # with one tile to a row its sums would be as narrow as the output
        schedule[product].round_up(product.op.axis[-1], lanes)
    row_outer, column_outer = _tile_loops(stage, outer, row, column, tile, lanes)
    groups, lines = -(-columns // (tile.vectors * lanes)), math.prod(static_extent(axis) for axis in outer)
    asks = _is_weight(product)
    by_columns = groups >= MIN_TASKS and asks and weights_stay(nest, tile, cpu)
    loops = [column_outer, *outer] if by_columns else [*outer, column_outer]
    tasks, left_is_larger = groups if by_columns else groups * lines, static_extent(row) > MUCH_LARGER * columns
    by_parts = bool(packed) and is_long(static_extent(row), nest.steps, cpu)
    sizes = _block_sizes(tile, left_is_larger, by_parts, 4 * columns * nest.steps <= cpu.l2 // 4)
    at = _share_out(stage, loops, row_outer, tasks, by_columns, left_is_larger, sizes)
    compute_in_tile(schedule, after, stage, at)
    sums = accumulators(schedule, accumulator) if DType(product.dtype).is_float else [schedule[accumulator]]
    asking = _Asking(at_row, tile, product, static_extent(row), by_columns)
    prefetches = asks and nest.held == 1
    is_whole = by_columns or (lines == 1 and groups >= MIN_TASKS)  # a task has all rows
    part = None
    if len(sums) > 1 and (by_parts or (asks and is_whole and sums_by_parts(nest, tile, cpu))):
        part = sums[0], sums[0].op.reduce_axis[0]
        _sum_by_parts(sums.pop(0), sums[0], stage, asking, lanes)
        if prefetches:
            asking.for_next_part(sums[0])
    else:
        schedule[accumulator].compute_at(stage, at)
        rows = lines * static_extent(row)
        if prefetches and asking.tiles > 1:
            asking.for_next_group(sums[-1])
        if asks and rows * columns * DType(output.dtype).bytes > cpu.l2 // 4:
            stage.prefetch(stage.op.output(0), at, 0, MOST_CACHES)
        if at_row == -2 and 4 * rows * nest.steps > cpu.l2 and nest.held == 1:
            _ask_for_rows(sums[-1], product, tile)
    _write_sums(sums, at_row, lanes, nest.held)
    for tensor in packed:
        pack_blocks(schedule, tensor, lanes_of(cpu, tensor.dtype), part)


def _schedule_others(schedule: te.Schedule, others: Sequence[te.Tensor], cpu: CpuModel) -> list[te.Tensor]:
    """Loops for all but packed copies of a right-hand side, which are given."""
    packed = [t for t in others if t.op.tag == PACKED and t.op.name == "packed"]
    for tensor in others:
        if tensor not in packed:
            schedule_stage(schedule, tensor, cpu)
    return packed


def _ask_for_rows(inside: te.Stage, product: te.Tensor, tile: Tile) -> None:
    """Rows that lie beyond L2 come while the tile before them is computed: a share in each step."""
    data, (step,) = product.op.input_tensors[0], inside.op.reduce_axis
    terms = static_extent(product.op.reduce_axis[0])
    if not isinstance(data.op, te.PlaceholderOp) or te.static_shape(data)[-1] != terms:
        return
    ahead = [te.Term(((step, 1),), tile.rows - 1)]
    if len(inside.op.axis) > len(product.op.axis):  # the sum is in parts, the first axis says which
        ahead.append(te.Term(((inside.op.axis[0], 1),), static_extent(step) * (tile.rows - 1)))
    inside.prefetch(data, step, terms * tile.rows, MOST_CACHES, spread=te.Spread(tuple(ahead)))


def _tile_loops(
    stage: te.Stage, outer: list[te.IterVar], row: te.IterVar, column: te.IterVar, tile: Tile, lanes: int
) -> tuple[te.IterVar, te.IterVar]:
    """Cut rows and columns into tiles, which are spelled out; gives the loops over tiles."""
    row_outer, row_inner = stage.split(row, factor=tile.rows)
    column_outer, column_inner = stage.split(column, factor=tile.vectors * lanes)
    column_sub, vector = stage.split(column_inner, factor=lanes)
    stage.reorder(*outer, column_outer, row_outer, row_inner, column_sub, vector)
    stage.vectorize(vector)
    stage.unroll(row_inner)
    stage.unroll(column_sub)
    return row_outer, column_outer


def _block_sizes(tile: Tile, left_is_larger: bool, is_long: bool, weights_are_small: bool) -> range:
    """How many tiles of rows a block may have that meets a group of columns, and then the next."""
    if is_long:
        return range(MIN_TILES_OF_PARTS, ANY_SIZE)
    return range(1, max(1, MOST_ROWS_OF_BLOCK // tile.rows) + 1 if left_is_larger and weights_are_small else ANY_SIZE)


def _share_out(
    stage: te.Stage,
    loops: list[te.IterVar],
    rows: te.IterVar,
    tasks: int,
    by_columns: bool,
    left_is_larger: bool,
    sizes: range,
) -> te.IterVar:
    """Divide the tiles among threads, by all loops or by the first alone; gives the loop that makes a tile.

    A block has one of these `sizes`, tiles of rows with a group of columns, if there are so many.

    Where rows are shared out too, a thread has all columns of its rows if the left side is much the larger one: divided
    by columns first, each thread would read all of it, half from the other core's cache. Else a group
    of columns stays in the first cache for all rows.
    """
    tiles = static_extent(rows)
    if tasks < MIN_TASKS or tiles >= sizes.stop:  # by blocks of rows too, all alike but for the last one's last tile
        dividing = [n for n in range(1, max(1, tiles // sizes.start) + 1) if tiles % n == 0 and tiles // n < sizes.stop]
        blocks = next((n for n in dividing if n * tasks >= 2 * MIN_TASKS), dividing[-1])
        block, rows = stage.split(rows, nparts=blocks)
        order = [*loops[:-1], block, loops[-1]] if left_is_larger else [*loops, block]
        stage.reorder(*order, rows)
        stage.parallel(fuse_all(stage, order))
        return rows
    stage.reorder(*loops)
    stage.parallel(loops[0] if by_columns else fuse_all(stage, loops))
    return rows  # a serial loop over rows can be split where the last tile is not full; a fused one cannot


def _write_out(stage: te.Stage, at_row: int, lanes: int, row: te.IterVar, outer: Sequence[te.IterVar] = ()) -> None:
    """The loops of a register tile, rows and vectors unrolled, inside the sum and the tiles of rows in `outer`."""
    *blocks, column = stage.op.axis
    blocks.pop(at_row + 1)
    sub, lane = stage.split(column, factor=lanes)
    stage.reorder(*stage.op.reduce_axis, *blocks, *outer, row, sub, lane)
    stage.vectorize(lane)
    stage.unroll(row)
    stage.unroll(sub)


def _write_sums(sums: Sequence[te.Stage], at_row: int, lanes: int, held: int) -> None:
    """The loops of register tiles; the innermost sum spells out the steps whose inputs lie in one register."""
    for inside in sums:
        _write_out(inside, at_row, lanes, inside.op.axis[at_row])
    inside = sums[-1]
    (step,) = inside.op.reduce_axis
    if held > 1 and static_extent(step) % held == 0:
        _, lane = inside.split(step, factor=held)
        inside.unroll(lane)


def _is_weight(product: te.Tensor) -> bool:
    """Whether the right-hand side is a constant, stored in groups of columns."""
    return product.op.tag != "packed_product" and isinstance(product.op.input_tensors[-1].op, te.PlaceholderOp)


def _sum_by_parts(whole: te.Stage, part: te.Stage, stage: te.Stage, asking: _Asking, lanes: int) -> None:
    """The sums of a group of columns lie in memory: a part of the sum for all rows, then the next part for all rows.

    Many rows come in blocks, so that these sums stay near.
    """
    group, outermost, *inner = stage.leaf_iter_vars
    size = math.prod(map(static_extent, inner)) * whole.op.output(0).dtype.bytes
    most = max(1, MAX_SUMS_BYTES // size)
    blocks = -(-static_extent(outermost) // most)
    if blocks > 1:  # alike: of one tile more than fits, the last block would read all weights for a tile
        group, _ = stage.split(outermost, factor=-(-static_extent(outermost) // blocks))
    whole.set_scope("local")
    whole.compute_at(stage, group)
    outer, row = whole.split(whole.op.axis[asking.at_row], factor=asking.tile.rows)
    _write_out(whole, asking.at_row, lanes, row, (outer,))
    part.compute_at(whole, outer)


class _Asking:
    """The tiles of rows that share a group of columns ask for the weights that come next, each for its share.

    They come to the second-level cache; behind the last group nothing is read.
    """

    def __init__(self, at_row: int, tile: Tile, product: te.Tensor, rows: int, by_columns: bool) -> None:
        self.at_row, self.tile, self.rank, self.rows = at_row, tile, len(product.op.axis), rows
        self.steps, self.axes = static_extent(product.op.reduce_axis[0]), {at_row: 1}
        self.tiles = -(-rows // tile.rows)
        self.is_block = rows < static_extent(product.op.axis[at_row])
        for axis in reversed(range(-self.rank, -1)):
            if axis != at_row and by_columns:
                self.axes[axis] = self.tiles * tile.rows
                self.tiles *= static_extent(product.op.axis[axis])

    def tile_of(self, inside: te.Stage) -> tuple[tuple[te.IterVar, int], ...]:
        """Which tile it is, times the rows of a tile."""
        return tuple((inside.op.axis[axis], times) for axis, times in self.axes.items())

    def for_next_group(self, inside: te.Stage) -> None:
        """A group's weights follow one another in memory, `tile.vectors` vectors for each step of the sum."""
        weight, (step,) = inside.op.input_tensors[-1], inside.op.reduce_axis
        lanes, tile = math.prod(te.static_shape(weight)[2:]), self.tile  # elements of a step
        share = -(-tile.vectors * lanes // self.tiles)  # elements for each step of each tile
        terms = [te.Term(self.tile_of(inside), self.steps * share, tile.rows), te.Term(((step, 1),), share - lanes)]
        if self.is_block:  # each block of rows begins with the first share
            terms.append(te.Term(((inside.op.axis[self.at_row], 1),), -self.tiles * self.steps * share, self.rows))
        if len(inside.op.axis) > self.rank:  # the sum is in parts, the first axis says which
            terms.append(te.Term(((inside.op.axis[0], 1),), static_extent(step) * (share - lanes)))
        inside.prefetch(weight, step, self.steps * tile.vectors, MOST_CACHES, spread=te.Spread(tuple(terms)))

    def for_next_part(self, inside: te.Stage) -> None:
        """A part's weights are a run of memory for each vector. Behind the last part: the first one of the next group.

        With fewer tiles than vectors each tile asks for several runs.
        """
        weight, (step,) = inside.op.input_tensors[-1], inside.op.reduce_axis
        part, lanes, tile = static_extent(step), te.static_shape(weight)[-1], self.tile
        run, which = self.steps * lanes, self.tile_of(inside)
        wrap = te.Term(((inside.op.axis[0], 1),), (tile.vectors - 1) * run, self.steps // part, 1)
        if self.tiles < tile.vectors:
            calls = -(-tile.vectors // self.tiles)
            for call in range(calls):
                spread = te.Spread((te.Term(which, calls * run, tile.rows), wrap))
                inside.prefetch(weight, step, part + call * self.steps, MOST_CACHES, spread=spread)
            return
        sharing = self.tiles // tile.vectors  # tiles that share one run
        share = -(-lanes // sharing)
        run_of_tile = te.Term(which, run - sharing * part * share, tile.rows * sharing)
        terms = (run_of_tile, te.Term(which, part * share, tile.rows), te.Term(((step, 1),), share - lanes), wrap)
        inside.prefetch(weight, step, part, MOST_CACHES, spread=te.Spread(terms))
