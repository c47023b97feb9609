"""Matrix products on the CPU by a register tile; right-hand sides computed at run time are packed first, most of them.

In: a fused function anchored at nn.dense, nn.matmul, nn.batch_matmul or nn.contrib_dense_pack. Out: a schedule whose
innermost loops are full register tiles over a right-hand side in blocks of columns, contiguous for each row of it
(constant weights come so from alter-op-layout). Invariant: as for conv2d_blocked: the accumulators of a tile fit the
registers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from armillary import te
from armillary.backends.cpu.cost.model import (
    L2_SHARE,
    SHOWN_INPUT,
    Nest,
    Tile,
    choose_tile,
    explained,
    far,
    far_weights,
    sums_by_parts,
    weighed_tiles,
    weights_stay,
)  # fmt: skip
from armillary.backends.cpu.elementwise.default import PACKED, schedule_injective, schedule_stage
from armillary.backends.cpu.gemm.pack import pack_blocks
from armillary.backends.cpu.loops import (
    MOST_CACHES,
    accumulator_of,
    accumulators,
    compute_in_tile,
    followers,
    fuse_all,
    keeps_shape,
    lanes_of,
    longest_part,
    static_extent,
)
from armillary.backends.explanation import Explanation
from armillary.backends.registry import Fused, Workload, implement
from armillary.base.dtype import DType
from armillary.ops._dot_operands import in_word
from armillary.relay.types import TensorType
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model

MIN_TASKS = 8  # groups of columns below which threads share rows too
MUCH_LARGER = 4  # rows for each column
MIN_BLOCK, BLOCK_SHARE = 256, 0.5  # rows of a block, and what it best takes of L2, beside weights
# Of a much larger left side, whose weights stay in L2 for all blocks: 3136x96x384 takes 0.84, 65536x16x64 0.78 of the
# time that it takes with all rows of a thread, 8192x128x128 0.91 by the requests of rows alone.
MOST_ROWS_OF_BLOCK = 64
ANY_SIZE = 1 << 30
MAX_SUMS_BYTES = 128 * 1024  # of the sums of a block of rows that wait in memory for the next part


# Rows a page apart share one set of the L1 cache, which has 8 ways: 29 rows of 512 floats run at a third of the peak.
# Blocks of columns are pages apart too. On ten shapes a tile of 8 x 2 vectors is within 2.4 % of the best; 14 x 2 loses
# up to 23 %, 6 x 4 up to 31 %. One row reads its weights in four streams: eight are up to 20 % slower.
# With two FMA ports a step of that tile takes 8 cycles and fetches 20 bytes in each, most of what L2 gives: 8 x 3 is 5
# to 20 % faster, with a narrower last tile too; 6 x 4 is 2 to 4 % slower than it.
MAX_ROWS, MAX_SUMS, MAX_VECTOR_SUMS = 8, 16, 4
MAX_SUMS_OF_TWO_PORTS, MAX_VECTORS_OF_TWO_PORTS = 24, 4
SHARED_WEIGHTS = ("nn.contrib_dense_pack", "nn.dense")  # one right-hand side for all leading axes
MIN_ROWS = 4  # rows below which packing the right-hand side costs more than it gives
MIN_TILES_OF_PARTS = 8  # tiles of rows that take a part of a long sum one after another
LONG_COLUMNS = 64  # columns of which a sum's terms fill L2, so that it is long
MIN_COLUMNS = 3  # 65536x3x3 takes 61 us, 398 by generic loops; two columns are as fast by these
# A copy of the right-hand side is read, written and read again; in place it is read once for each tile of rows. With
# two that is less: 8x512x512 takes 0.55 of the time, 16x320x1280 0.62. More tiles pay where a row is short, as what
# they read then shares pages and sets of the caches: 128x500x64 0.94, 64x196x192 0.86; 1 KB 1.02, 2 KB to 1.3, 4 KB 2.
# Columns that fill no vectors leave a narrow last tile, which many hide: 64 of 4x256x100 1.4 ms, in place 0.28.
MAX_TILES_IN_PLACE, SHORT_ROW, MANY_VECTORS = 2, 1024, 4  # tiles of rows; bytes; vectors of columns


def is_transposed(attrs: Any, side: str) -> bool:
    """Whether an operand is stored with its last two axes swapped; nn.dense always has (units, inner)."""
    return bool(getattr(attrs, f"transpose_{side}", side == "b"))


def _can_pack(workload: Workload) -> str | None:
    """Enough rows to pay for packing, and columns for a vector."""
    data, other = workload.types
    if not isinstance(data, TensorType) or not isinstance(other, TensorType):
        return "not of two tensors"
    if {str(data.dtype), str(other.dtype), workload.attrs.out_dtype or "float32"} != {"float32"}:
        return "only float32 is packed"
    rows = data.static[-1 if is_transposed(workload.attrs, "a") and data.ndim > 1 else -2] if data.ndim > 1 else 1
    columns = other.static[-2 if is_transposed(workload.attrs, "b") else -1]
    if columns < MIN_COLUMNS:
        return f"{columns} columns are fewer than a vector"
    return None if rows >= MIN_ROWS else f"{rows} rows are too few to pay for packing"


def packed_product(attrs: Any, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """The product over a copy of the right-hand side in blocks of columns, zeros beyond the last one, or in place."""
    shape_a, shape_b = te.static_shape(a), te.static_shape(b)
    swap_a, swap_b = is_transposed(attrs, "a") and hasattr(attrs, "transpose_a"), is_transposed(attrs, "b")
    rows, inner = (shape_a[-1], shape_a[-2]) if swap_a else (shape_a[-2], shape_a[-1])
    columns = shape_b[-2] if swap_b else shape_b[-1]
    block = column_block(columns)
    batch_a, batch_b = shape_a[:-2], shape_b[:-2]
    is_stored = isinstance(b.op, te.PlaceholderOp)  # else its elements would be computed for every tile
    cpu = cpu_model(Target.current() or Target("llvm"))
    fits = _reads_in_place(rows, columns, DType(b.dtype), cpu) and not _is_long(rows, inner, cpu)
    lies_well = is_stored and not swap_b and fits
    padded = columns if lies_well else padded_columns(columns)

    def element_b(*index: Any) -> Any:
        *batch, chunk, k, lane = index
        column = chunk * block + lane
        value = b(*batch, column, k) if swap_b else b(*batch, k, column)
        return value if padded == columns else te.if_then_else(te.likely(column < columns), value, 0.0)

    packed = te.compute((*batch_b, padded // block, inner, block), element_b, name="packed", tag=PACKED)

    def term(at_a: list[Any], at_b: list[Any], i: Any, j: Any, k: Any) -> Any:
        lhs = a(*at_a, k, i) if swap_a else a(*at_a, i, k)
        return lhs * (b(*at_b, k, j) if lies_well else packed(*at_b, j // block, k, j % block))

    return sum_of_terms((*batch_a, rows), (*batch_b, columns), padded, inner, term)


def sum_of_terms(
    left: tuple[int, ...], right: tuple[int, ...], padded: int, steps: int, term: Callable[..., Any]
) -> te.Tensor:
    """A product from its terms, `term(place in a's batch, in b's, row, column, step)`; columns to `padded` are cut off.

    `left`: the batch of a and its rows; `right`: that of b and its columns; the batches are broadcast.
    """
    (*batch_a, rows), (*batch_b, columns) = left, right
    k = te.reduce_axis((0, steps), name="k")

    def element(*index: Any) -> Any:
        *batch, i, j = index
        at_a = [0 if size == 1 else x for size, x in zip(batch_a, batch, strict=False)]
        at_b = [0 if size == 1 else x for size, x in zip(batch_b, batch, strict=False)]
        return te.sum(term(at_a, at_b, i, j, k), axis=k)

    batch = tuple(max(x, y) for x, y in zip(batch_a, batch_b or (1,) * len(batch_a), strict=True))
    product: te.Tensor = te.compute((*batch, rows, padded), element, name="product", tag="packed_product")
    if padded == columns:
        return product
    kept: te.Tensor = te.compute((*batch, rows, columns), lambda *i: product(*i), name="kept", tag="injective")
    return kept


def _is_long(rows: int, terms: int, cpu: CpuModel) -> bool:
    """Whether a right-hand side that is computed goes through the rows part by part of the sum, packed on the way.

    Else it comes from beyond L2 for each tile of rows: 64x20000x64 takes 2.4 ms, by parts 1.3, 128x8192x128 4.7, 2.3.
    """
    return rows > MAX_ROWS and longest_part(terms, 1) > 0 and 4 * LONG_COLUMNS * terms >= cpu.l2 > 0


def _reads_in_place(rows: int, columns: int, dtype: DType, cpu: CpuModel) -> bool:
    """Whether a product takes a right-hand side whose rows are contiguous as it lies, without a packed copy."""
    few, short = rows <= MAX_TILES_IN_PLACE * MAX_ROWS, columns * dtype.bytes < SHORT_ROW
    if padded_columns(columns) == columns:
        return few or short
    return few and columns >= MANY_VECTORS * lanes_of(cpu, dtype)


def column_block(columns: int) -> int:
    """Columns that lie side by side in the packed right-hand side."""
    return 16 if columns > 8 else 8


def padded_columns(columns: int) -> int:
    """Columns with the padding that costs least: tiles one vector wide do a sixth less per cycle than wider ones."""
    block = column_block(columns)
    blocks = -(-columns // block)
    return block * min(range(blocks, blocks + 3), key=lambda n: n * (1.0 if n % 2 == 0 or n % 3 == 0 else 1.17))


def _block(workload: Workload) -> int:
    """Columns stored side by side in the packed right-hand side."""
    weight = workload.types[1]
    if not isinstance(weight, TensorType):
        return 1 << 30
    if workload.op.name == "nn.contrib_dense_pack":
        return weight.static[2]
    columns = weight.static[-2 if is_transposed(workload.attrs, "b") else -1]
    return column_block(columns)


def _product_of(fused: Fused) -> te.Tensor:
    """The reduction: the anchor, or what it takes its columns from."""
    (anchor,) = fused.anchor
    return anchor if anchor.op.reduce_axis else anchor.op.input_tensors[0]


def nest_of(workload: Workload, cpu: CpuModel) -> Nest:
    """The product as register tiles: rows x vectors of columns; each matrix of a batch has its own right-hand side."""
    data: Any = workload.types[0]  # Any: tensor types, as inference has checked
    result: Any = workload.op.infer_type(workload.attrs, workload.types)
    *outer, columns = (max(1, n) for n in result.static)  # an empty product gets the tile of one element
    rows = outer.pop(row_axis(workload) + 1)
    weight: Any = workload.types[1]
    is_packed = workload.op.name == "nn.contrib_dense_pack"
    columns = weight.static[0] * _block(workload) if is_packed else padded_columns(columns)
    lanes = min(lanes_of(cpu, result.dtype), _block(workload))
    inner = data.static[-2 if getattr(workload.attrs, "transpose_a", False) else -1] // _in_word(workload)
    weights, held = far_weights(cpu), rows * inner * result.dtype.bytes
    reread = SHOWN_INPUT * held / far(held, cpu) if held > cpu.l1 / 2 else 0.0
    shared, batch = (1, math.prod(outer)) if workload.op.name == "nn.batch_matmul" else (math.prod(outer), 1)
    chunks, register = max(1, columns // lanes), lanes * result.dtype.bytes
    nest = Nest(
        rows, shared, chunks, inner, weights, register_bytes=register, repeats=batch, reread=reread,
        max_rows=MAX_ROWS, max_sums=MAX_SUMS if rows > 1 else MAX_VECTOR_SUMS,
        part=longest_part(inner, 1) if result.dtype.is_float else 0,
    )  # fmt: skip
    is_widened = weight.dtype.is_float and weight.dtype.bits < result.dtype.bits and _in_word(workload) == 1
    if is_widened:  # read in the time that one chain of sums takes
        nest = replace(nest, register_bytes=lanes * weight.dtype.bytes, has_rest=rows == 1)
    if rows == 1 or cpu.fma_ports == 1:
        return nest
    all_chunks, widest = math.prod(outer) * chunks, MAX_VECTORS_OF_TWO_PORTS
    if all_chunks < MIN_TASKS * widest:  # too few groups of the widest tile to share them out
        widest -= 1
    # two tails at once, of rows and of columns, where rows are shared out too, are slower than narrow tiles
    has_rest = all_chunks >= MIN_TASKS * widest or (chunks % 2 > 0 and chunks % 3 > 0 and rows % MAX_ROWS == 0)
    blocks = _row_blocks(nest, held, cpu) if workload.op.name == "nn.contrib_dense_pack" else 1
    if blocks > 1:
        near = SHOWN_INPUT * held / cpu.memory.l2
        nest = replace(nest, width=rows // blocks, lines=blocks, reread=near)
    return replace(nest, max_sums=MAX_SUMS_OF_TWO_PORTS, max_vectors=widest, is_asked_for=True, has_rest=has_rest)


def _row_blocks(nest: Nest, held: int, cpu: CpuModel) -> int:
    """Blocks of rows of which each meets all columns before the next does, so that its `held` bytes stay in L2.

    From L3 rows come again for each group of columns: 1024x768x768 runs at 156 GFLOP/s, by two blocks at 168, by four
    at 179. Smaller blocks read the weights too often: 512x3072x768 runs at 164 by two blocks, at 145 by four.
    """
    if nest.lines > 1 or held <= L2_SHARE * cpu.l2:
        return 1
    sizes = [n for n in range(2, nest.width // MIN_BLOCK + 1) if nest.width % (n * MAX_ROWS) == 0]
    return next((n for share in (BLOCK_SHARE, L2_SHARE) for n in sizes if held <= n * share * cpu.l2), 1)


def _in_word(workload: Workload) -> int:
    """Terms of a sum that one step takes: bytes come in words of four, bfloat16 in words of two, where packed so."""
    data, weight = workload.types
    assert isinstance(data, TensorType) and isinstance(weight, TensorType), "inference has checked"
    if workload.op.name == "nn.contrib_dense_pack" and weight.ndim == 3:
        return 1
    return in_word(data.dtype, weight.dtype, workload.attrs.out_dtype) or 1


def row_axis(workload: Workload) -> int:
    """The axis that gives a tile its rows, counted from the end: -2, or a longer one if that is shorter than a tile.

    Rows of one matrix may lie along any axis but the last: sequences that come first are (positions, 1, features).
    """
    result: Any = workload.op.infer_type(workload.attrs, workload.types)  # Any: a tensor type, as inference has checked
    leading = result.static[:-1]
    if workload.op.name not in SHARED_WEIGHTS or leading[-1] >= MAX_ROWS:
        return -2
    longest: int = max(range(len(leading)), key=lambda n: (leading[n], n))
    return longest - len(leading) - 1


def explain_product(workload: Workload) -> Explanation:
    """The register tile against the next best ones."""
    cpu = cpu_model(workload.target)
    result: Any = workload.op.infer_type(workload.attrs, workload.types)
    if result.ndim < 2:
        return Explanation("product by the default schedule")
    nest = nest_of(workload, cpu)
    tile, rows = weighed_tiles(nest, cpu)
    packed = "" if workload.op.name == "nn.contrib_dense_pack" else ", right-hand side packed at run time"
    is_plain = bool(packed) and not is_transposed(workload.attrs, "b")
    if packed and _is_long(nest.width, nest.steps, cpu):
        packed = ", right-hand side packed part by part of the sum"
    elif is_plain and _reads_in_place(nest.width, result.static[-1], result.dtype, cpu):
        packed = ", right-hand side as it lies"
    return explained(f"product by register tiles{packed}", f"{tile}", rows, cpu)


@implement("nn.contrib_dense_pack", family="cpu", name="packed_tile", explain=explain_product)
@implement(
    "nn.dense", family="cpu", name="packing_dense", when=_can_pack, compute=packed_product, explain=explain_product
)
@implement(
    "nn.matmul", family="cpu", name="packing_matmul", when=_can_pack, compute=packed_product, explain=explain_product
)
@implement(
    "nn.batch_matmul", family="cpu", name="packing_batch_matmul", when=_can_pack, compute=packed_product,
    explain=explain_product,
)  # fmt: skip
def matmul_tile(schedule: te.Schedule, fused: Fused) -> None:
    """Rows x vectors register tile; the reduction is the loop around it."""
    cpu = cpu_model(fused.workload.target)
    product = _product_of(fused)
    kept = schedule_injective(schedule, fused)
    output = fused.outputs[0]
    if len(product.op.axis) < 2:
        for tensor in kept:
            schedule_stage(schedule, tensor, cpu)
        return
    nest = nest_of(fused.workload, cpu)
    tile = choose_tile(nest, cpu)
    lanes = min(lanes_of(cpu, product.dtype), _block(fused.workload))
    plain = keeps_shape(fused) or (len(fused.outputs) == 1 and te.static_shape(output) == te.static_shape(product))
    output = output if plain else product  # what reads the product has another shape: the product is stored first
    after = [t for t in followers(schedule, product, kept) if t.op is not output.op] if plain else []
    others = [t for t in kept if t.op is not product.op and t.op is not output.op and t not in after]
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
    is_long = bool(packed) and _is_long(static_extent(row), nest.steps, cpu)
    sizes = _block_sizes(tile, left_is_larger, is_long, 4 * columns * nest.steps <= cpu.l2 // 4)
    at = _share_out(stage, loops, row_outer, tasks, by_columns, left_is_larger, sizes)
    compute_in_tile(schedule, after, stage, at)
    sums = accumulators(schedule, accumulator) if DType(product.dtype).is_float else [schedule[accumulator]]
    asking = _Asking(at_row, tile, product, static_extent(row), by_columns)
    is_whole = by_columns or (lines == 1 and groups >= MIN_TASKS)  # a task has all rows
    part = None
    if len(sums) > 1 and (is_long or (asks and is_whole and sums_by_parts(nest, tile, cpu))):
        part = sums[0], sums[0].op.reduce_axis[0]
        _sum_by_parts(sums.pop(0), sums[0], stage, asking, lanes)
        if asks:
            asking.for_next_part(sums[0])
    else:
        schedule[accumulator].compute_at(stage, at)
        rows = lines * static_extent(row)
        if asks and asking.tiles > 1:
            asking.for_next_group(sums[-1])
        if asks and rows * columns * DType(output.dtype).bytes > cpu.l2 // 4:
            stage.prefetch(stage.op.output(0), at, 0, MOST_CACHES)  # 384 to 1536, 197 rows: 0.94 of the time
        if at_row == -2 and 4 * rows * nest.steps > cpu.l2:
            _ask_for_rows(sums[-1], product, tile)
    for inside in sums:
        _write_out(inside, at_row, lanes, inside.op.axis[at_row])
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
    stage: te.Stage, loops: list[te.IterVar], rows: te.IterVar, tasks: int, by_columns: bool, left_is_larger: bool,
    sizes: range,
) -> te.IterVar:  # fmt: skip
    """Divide the tiles among threads, by all loops or by the first alone; gives the loop that makes a tile.

    A block has one of these `sizes`, tiles of rows with a group of columns, if there are so many.

    Where rows are shared out too, a thread has all columns of its rows if the left side is much the larger one: divided
    by columns first, each thread would read all of it, half from the other core's cache (500x500x64 on two threads
    0.7 of the time). Else a group of columns stays in the first cache for all rows.
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
