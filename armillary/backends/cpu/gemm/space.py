"""What a matrix product by register tiles can choose from.

In: a workload (nn.dense, nn.matmul, nn.batch_matmul, nn.contrib_dense_pack) and a `CpuModel`. Out: the product as the
model of costs sees it (`nest_of`), whether its right-hand side is packed, the explanation. Invariant: no tensor
expression is imported; dense.py makes the loops.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from armillary.backends.cpu.cost.model import (
    L2_SHARE,
    SHOWN_INPUT,
    Nest,
    bandwidth_of,
    tiles,
    weighed_tiles,
    weight_bandwidth,
)
from armillary.backends.cpu.cost.vectors import lanes_of, longest_part
from armillary.backends.cpu.space import (
    Algorithm,
    Config,
    Weighed,
    agreeing,
    best_tile_config,
    tile_config,
    tile_of,
)
from armillary.backends.workload import Workload
from armillary.base.dtype import DType
from armillary.ops._dot_operands import BYTES, LONG, terms_per_operand
from armillary.relay.types import TensorType
from armillary.target.choice import Choice, Cost, Source, stored_choice
from armillary.target.cpu import CpuModel

if TYPE_CHECKING:
    from armillary.ops.nn.dense import BatchMatmulAttrs, DenseAttrs

MIN_TASKS = 8  # groups of columns below which threads share rows too
MIN_BLOCK, BLOCK_SHARE = 256, 0.5  # rows of a block, and what it best takes of L2, beside weights
# Rows a page apart share one set of the L1 cache, which has 8 ways.
# Blocks of columns are pages apart too. One row reads its weights in four streams. With two FMA ports a step of 8 x 2
# vectors takes 8 cycles and fetches 20 bytes in each, most of what L2 gives, so a tile has three vectors there.
MAX_ROWS, MAX_SUMS, MAX_VECTOR_SUMS = 8, 16, 4
MAX_SUMS_OF_TWO_PORTS, MAX_VECTORS_OF_TWO_PORTS = 24, 4
SHARED_WEIGHTS = ("nn.contrib_dense_pack", "nn.dense")  # one right-hand side for all leading axes
MIN_ROWS = 4  # rows below which packing the right-hand side costs more than it gives
LONG_COLUMNS = 64  # columns of which a sum's terms fill L2, so that it is long
MIN_COLUMNS = 3  # below which generic loops are as fast
# A copy of the right-hand side is read, written and read again; in place it is read once for each tile of rows. With
# two that is less. More tiles pay where a row is short; longer ones lie on pages of their own.
# Columns that fill no vectors leave a narrow last tile, which many hide.
MAX_TILES_IN_PLACE, SHORT_ROW, MANY_VECTORS = 2, 1024, 4  # tiles of rows; bytes; vectors of columns


def is_transposed(attrs: DenseAttrs | BatchMatmulAttrs, side: str) -> bool:
    """Whether an operand is stored with its last two axes swapped; nn.dense always has (units, inner)."""
    return bool(getattr(attrs, f"transpose_{side}", side == "b"))


def refuses(workload: Workload) -> str | None:
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


def open_batch_refuses(workload: Workload) -> str | None:
    """Two float32 matrices."""
    types = [t for t in workload.types if isinstance(t, TensorType)]
    if {str(t.dtype) for t in types} != {"float32"} or (workload.attrs.out_dtype or "float32") != "float32":
        return "only float32 is packed"
    return None


def is_long(rows: int, terms: int, cpu: CpuModel) -> bool:
    """Whether a right-hand side that is computed goes through the rows part by part of the sum, packed on the way.

    Else it comes from beyond L2 for each tile of rows.
    """
    return rows > MAX_ROWS and longest_part(terms, 1) > 0 and 4 * LONG_COLUMNS * terms >= cpu.l2 > 0


def reads_in_place(rows: int, columns: int, dtype: DType, cpu: CpuModel) -> bool:
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


def block_of(workload: Workload) -> int:
    """Columns stored side by side in the packed right-hand side."""
    weight = workload.types[1]
    if not isinstance(weight, TensorType):
        return 1 << 30
    if workload.op.name == "nn.contrib_dense_pack":
        return weight.static[2]
    columns = weight.static[-2 if is_transposed(workload.attrs, "b") else -1]
    return column_block(columns)


def nest_of(workload: Workload, cpu: CpuModel) -> Nest:
    """The product as register tiles: rows x vectors of columns; each matrix of a batch has its own right-hand side."""
    data = workload.tensor(0)
    result = workload.result
    *outer, columns = (max(1, n) for n in result.static)  # an empty product gets the tile of one element
    rows = outer.pop(row_axis(workload) + 1)
    weight = workload.tensor(1)
    is_packed = workload.op.name == "nn.contrib_dense_pack"
    columns = weight.static[0] * block_of(workload) if is_packed else padded_columns(columns)
    lanes = min(lanes_of(cpu, result.dtype), block_of(workload))
    inner = data.static[-2 if getattr(workload.attrs, "transpose_a", False) else -1] // _terms_per_operand(workload)
    weights, held = weight_bandwidth(cpu), rows * inner * result.dtype.bytes
    reread = SHOWN_INPUT * held / bandwidth_of(held, cpu) if held > cpu.l1 / 2 else 0.0
    shared, batch = (1, math.prod(outer)) if workload.op.name == "nn.batch_matmul" else (math.prod(outer), 1)
    chunks, register = max(1, columns // lanes), lanes * result.dtype.bytes
    nest = Nest(
        rows,
        shared,
        chunks,
        inner,
        weights,
        register_bytes=register,
        repeats=batch,
        reread=reread,
        max_rows=MAX_ROWS,
        max_sums=MAX_SUMS if rows > 1 else _vector_sums(workload, lanes, cpu),
        part=longest_part(inner, 1) if result.dtype.is_float else 0,
        held=_held(workload, inner, cpu),
        has_rest=rows == 1 and _held(workload, inner, cpu) > 1,
    )
    if _terms_per_operand(workload) == BYTES and cpu.widens_bytes and getattr(workload.attrs, "is_symmetric", False):
        nest = replace(nest, is_spread=True, held=max(2, cpu.held_steps(inner)))
    if _terms_per_operand(workload) == LONG:
        nest = replace(nest, pairs=True, register_bytes=2 * register, held=_held_operands(inner))
    is_widened = weight.dtype.is_float and weight.dtype.bits < result.dtype.bits and _terms_per_operand(workload) == 1
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
    return replace(nest, max_sums=MAX_SUMS_OF_TWO_PORTS, max_vectors=widest, is_prefetched=True, has_rest=has_rest)


def _held(workload: Workload, inner: int, cpu: CpuModel) -> int:
    """Steps whose numbers of a row come in one register; they lie side by side unless the left side is transposed."""
    types = {str(getattr(t, "dtype", "")) for t in workload.types}
    is_plain = types == {"float32"} or (types <= {"int8", "uint8"} and bool(cpu.dot_signs))
    return cpu.held_steps(inner) if is_plain and not getattr(workload.attrs, "transpose_a", False) else 1


def _vector_sums(workload: Workload, lanes: int, cpu: CpuModel) -> int:
    """Sums of one row, whose weights are read in as many streams of one vector or, packed so, of several."""
    is_run = cpu.takes_runs and workload.op.name == "nn.contrib_dense_pack"
    return MAX_VECTOR_SUMS * (block_of(workload) // lanes if is_run else 1)


def _held_operands(steps: int) -> int:
    """The same of words of eight bytes."""
    return 2 if steps % 2 == 0 else 1


def _row_blocks(nest: Nest, held: int, cpu: CpuModel) -> int:
    """Blocks of rows of which each meets all columns before the next does, so that its `held` bytes stay in L2.

    From L3 rows come again for each group of columns. Smaller blocks read the weights too often.
    """
    if nest.lines > 1 or held <= L2_SHARE * cpu.l2:
        return 1
    sizes = [n for n in range(2, nest.width // MIN_BLOCK + 1) if nest.width % (n * MAX_ROWS) == 0]
    return next((n for share in (BLOCK_SHARE, L2_SHARE) for n in sizes if held <= n * share * cpu.l2), 1)


def _terms_per_operand(workload: Workload) -> int:
    """Terms of a sum that one step takes: bytes come in words of four, bfloat16 in words of two, where packed so."""
    data, weight = workload.types
    assert isinstance(data, TensorType) and isinstance(weight, TensorType), "inference has checked"
    if workload.op.name == "nn.contrib_dense_pack":
        return weight.static[3] if weight.ndim == 4 else 1
    return terms_per_operand(data.dtype, weight.dtype, workload.attrs.out_dtype) or 1


def row_axis(workload: Workload) -> int:
    """The axis that gives a tile its rows, counted from the end: -2, or a longer one if that is shorter than a tile.

    Rows of one matrix may lie along any axis but the last: sequences that come first are (positions, 1, features).
    """
    result = workload.result
    leading = result.static[:-1]
    if workload.op.name not in SHARED_WEIGHTS or leading[-1] >= MAX_ROWS:
        return -2
    longest: int = max(range(len(leading)), key=lambda n: (leading[n], n))
    return longest - len(leading) - 1


def with_many_rows(workload: Workload) -> Workload:
    """The workload with as many rows as a tile has, where they are a size that is typically one; else itself."""
    data = workload.tensor(0)
    if workload.op.name != "nn.contrib_dense_pack" or data.ndim != 2 or 0 not in workload.named or data.shape[0] != 1:
        return workload
    return replace(workload, types=(TensorType((MAX_ROWS, *data.shape[1:]), data.dtype), *workload.types[1:]))


def _space(workload: Workload, cpu: CpuModel) -> list[Config]:
    nests = (nest_of(workload, cpu), nest_of(with_many_rows(workload), cpu))
    return [tile_config(tile) for tile in dict.fromkeys(tile for nest in nests for tile in tiles(nest, cpu))]


def _default(workload: Workload, cpu: CpuModel, stated: Config = ()) -> Config:
    is_usual = not stated or agreeing([tile_config(t) for t in tiles(nest_of(workload, cpu), cpu)], stated)
    return best_tile_config(nest_of(workload if is_usual else with_many_rows(workload), cpu), cpu, stated)


def many_rows_choice(workload: Workload, cpu: CpuModel) -> Choice:
    """The choice for more rows than one, where they are a size that is typically one; else empty."""
    many, stored = with_many_rows(workload), stored_choice(workload)
    if many is workload or stored.source is Source.OVERRIDE:
        return Choice()
    return Choice(PRODUCT.name, best_tile_config(nest_of(many, cpu), cpu, ()))


def _weigh(workload: Workload, cpu: CpuModel, choice: Choice) -> Weighed:
    """The register tile against the next best ones."""
    cost, *others = weighed_tiles(nest_of(workload, cpu), tile_of(choice), cpu)
    return Weighed(Cost(cost.cycles, cost.bound), tuple(others))


def _title(workload: Workload, cpu: CpuModel, config: Config) -> str:
    nest = nest_of(workload, cpu)
    result = workload.result
    packed = "" if workload.op.name == "nn.contrib_dense_pack" else ", right-hand side packed at run time"
    is_plain = bool(packed) and not is_transposed(workload.attrs, "b")
    if packed and is_long(nest.width, nest.steps, cpu):
        packed = ", right-hand side packed part by part of the sum"
    elif is_plain and reads_in_place(nest.width, result.static[-1], result.dtype, cpu):
        packed = ", right-hand side as it lies"
    return f"product by register tiles{packed}"


def _extents(workload: Workload, cpu: CpuModel) -> dict[str, int]:
    return {"width": nest_of(workload, cpu).width}


PRODUCT = Algorithm("gemm.register_tiles", _space, _default, _weigh, _title, _extents)
