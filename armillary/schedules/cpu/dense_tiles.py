"""Products of bytes by matrix tiles (AMX): sixteen rows times sixteen columns, 64 terms of the sum at a time.

In: a fused function anchored at nn.contrib_dense_pack with weights in words, (units/16, k/4, 16, 4), or at nn.dense or
nn.batch_matmul of bytes, whose right-hand side is packed so at run time. Out: a schedule that computes blocks of 2 x 2
tiles into a scratch buffer, from which what follows the product is computed while they are in the first cache. Groups
of columns are outermost: their weights stay near for all rows. Invariant: tiles are whole; rows that do not fill them,
or do not lie one after another, are copied first. The choice of a block: cost model below, in cycles of
`CpuModel.has_tiles`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from armillary import te
from armillary.dtype import DType
from armillary.ops.nn_dense import WORD
from armillary.relay.types import TensorType
from armillary.schedules.cpu.common import fuse_all, static_extent
from armillary.schedules.cpu.default import PACKED, schedule_injective, schedule_stage
from armillary.schedules.cpu.dense import is_transposed
from armillary.schedules.cpu.pack import pack_blocks
from armillary.schedules.registry import Fused, Workload, implement
from armillary.target import Target
from armillary.target.cost import Estimate, Explanation, explained
from armillary.target.cpu import TILE_BYTES, CpuModel, cpu_model
from armillary.tir import build as T
from armillary.tir import stmt as S
from armillary.tir.expr import BufferLoad, Expr, Var

ROWS, COLUMNS, DEPTH = 16, 16, TILE_BYTES  # of a tile: rows, words of four bytes in one, bytes
ROW_CYCLES, LOAD_CYCLES, START_CYCLES = 1.0, 8.0, 120.0  # a row of a product, a tile from L1; setup, scratch and back
MIN_TASKS = 8  # groups of columns below which threads share rows, too
BLOCKS = ((2, 2), (3, 1), (1, 3), (2, 1), (1, 2), (1, 1))  # tiles of rows and columns; with operands at most eight
TAG = "tiled_product"


@dataclass(frozen=True, slots=True)
class Block:
    """`rows` x `columns` tiles of sums, each of `height` rows."""

    rows: int
    columns: int
    height: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns} of {self.height} rows"

    @property
    def lines(self) -> int:
        """Rows of the whole block."""
        return self.rows * self.height


def _block(rows: int, columns: int, lines: int) -> Block:
    """A block of tiles as high as `lines` rows, divided evenly, need."""
    count = -(-lines // (ROWS * rows)) * rows
    return Block(rows, columns, -(-lines // count))


def _is_packed(workload: Workload) -> bool:
    """Whether the right-hand side is a constant that was packed when compiling."""
    return workload.op.name == "nn.contrib_dense_pack"


def _sizes(workload: Workload) -> tuple[int, int, int]:
    """Rows of one product, columns in sixteens, and terms of a sum in whole tiles."""
    data, other = workload.types
    assert isinstance(data, TensorType) and isinstance(other, TensorType), "inference has checked"
    if _is_packed(workload):
        return math.prod(data.static[:-1]), other.static[0], data.static[-1]
    columns = other.static[-2 if is_transposed(workload.attrs, "b") else -1]
    rows = data.static[-2] if workload.op.name == "nn.batch_matmul" else math.prod(data.static[:-1])
    return rows, -(-columns // COLUMNS), -(-data.static[-1] // DEPTH) * DEPTH


def _cannot_tile(workload: Workload) -> str | None:
    data, other = workload.types
    cpu = cpu_model(workload.target)
    if workload.target.kind.name != "llvm" or not cpu.has_tiles:
        return "the processor has no matrix tiles"
    if not isinstance(data, TensorType) or not isinstance(other, TensorType) or data.ndim < 2:
        return "only products of bytes have tiles"
    if {str(data.dtype), str(other.dtype)} - {"int8", "uint8"} or workload.attrs.out_dtype != "int32":
        return "only products of bytes have tiles"
    rows, _, terms = _sizes(workload)
    if not cpu.takes_tiles(rows, terms):
        return f"{rows} rows of {terms} terms do not fill tiles"
    fills = other.static[2:3] == (COLUMNS,) if _is_packed(workload) else not _is_odd(workload, other.static)
    return None if fills else "an operand does not fill tiles"


def _is_odd(workload: Workload, other: tuple[int, ...]) -> bool:
    columns = other[-2 if is_transposed(workload.attrs, "b") else -1]
    return columns < COLUMNS or bool(getattr(workload.attrs, "transpose_a", False))


@lru_cache(maxsize=512)
def _ranked(rows: int, chunks: int, terms: int, cpu: CpuModel) -> tuple[tuple[Block, float], ...]:
    """Blocks with their cycles, the best first."""
    afar, found = ROWS * DEPTH / cpu.memory.l2, []

    def load(count: int) -> float:
        """Cycles to load a tile of so many tiles of rows or columns, which are all read before it is again."""
        return LOAD_CYCLES if count * ROWS * terms <= cpu.l1 // 2 else afar

    blocks = (_block(*b, rows) for b in BLOCKS if chunks % b[1] == 0)
    for block in (b for b in blocks if b.lines <= rows):  # a loop that is shorter than a block would cut it
        loads = block.rows * load(-(-rows // ROWS)) + block.columns * load(block.columns)
        step = max(block.rows * block.columns * block.height * ROW_CYCLES, loads)
        each = step * (terms // DEPTH) + START_CYCLES * block.rows * block.columns / 4
        found.append((block, -(-rows // block.lines) * (chunks // block.columns) * each))
    return tuple(sorted(found, key=lambda row: row[1]))


def explain_tiles(workload: Workload) -> Explanation:
    """The block of tiles against the others."""
    cpu = cpu_model(workload.target)
    ranked = _ranked(*_sizes(workload), cpu)
    estimates = [Estimate(f"{block} tiles", cycles, "matrix tiles") for block, cycles in ranked]
    return explained("product of bytes by matrix tiles", f"{ranked[0][0]}", estimates, cpu)


def _product(data: te.Tensor, weight: te.Tensor, batch: int | None = None) -> te.Tensor:
    """Sums over words, columns as (sixteens, one of them). The weight has words, or bytes in a last axis of four."""
    *_, rows, _ = te.static_shape(data)
    has_words = DType(weight.dtype).bits == 32
    chunks, words, lanes = te.static_shape(weight)[-3:] if has_words else te.static_shape(weight)[:3]
    one_left, one_right = (te.static_shape(x)[0] == 1 for x in (data, weight))
    k = te.reduce_axis((0, words), name="k")

    def element(*index: Any) -> Any:
        *at, i, chunk, lane = index
        lead = (0,) * (len(data.shape) - 2) if batch is None else (0 if one_left else at[0],)
        left = te.four_bytes(*(data(*lead, i, k * WORD + byte) for byte in range(WORD)))
        at = at if batch is None or not one_right else [0]
        if has_words:
            return te.sum(te.dot_bytes(left, weight(*at, chunk, k, lane)), axis=k)
        right = te.four_bytes(*(weight(chunk, k, lane, byte) for byte in range(WORD)))
        return te.sum(te.dot_bytes(left, right), axis=k)

    shape = (rows, chunks, lanes) if batch is None else (batch, rows, chunks, lanes)
    made: te.Tensor = te.compute(shape, element, name="tiles", tag=TAG)
    return made


def _compute(attrs: Any, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """The product of whole blocks of rows with a packed weight, and what of it is asked for."""
    *batch, _ = te.static_shape(data)
    chunks = te.static_shape(weight)[0]
    return _kept(_product(_whole_rows(data, batch, chunks), weight), batch, chunks * COLUMNS)


def _compute_packing(attrs: Any, data: te.Tensor, other: te.Tensor) -> te.Tensor:
    """The same with a right-hand side that is packed first, zeros beyond its columns and terms."""
    *batch, terms = te.static_shape(data)
    swapped = is_transposed(attrs, "b")
    columns = te.static_shape(other)[-2 if swapped else -1]
    chunks, words = -(-columns // COLUMNS), -(-terms // DEPTH) * DEPTH // WORD

    def word(*index: Any) -> Any:
        *at, chunk, k, lane = index
        return te.four_bytes(*(byte(at, k * WORD + n, chunk * COLUMNS + lane) for n in range(WORD)))

    def byte(at: list[Any], k: Any, column: Any) -> Any:
        value = other(*at, column, k) if swapped else other(*at, k, column)
        for test in [column < columns] * (columns % COLUMNS > 0) + [k < terms] * (terms % DEPTH > 0):
            value = te.if_then_else(te.likely(test), value, te.const(0, value.dtype))
        return value

    lead = te.static_shape(other)[:-2]
    packed = te.compute((*lead, chunks, words, COLUMNS), word, name="packed", tag=PACKED)
    if not lead:
        return _kept(_product(_whole_rows(data, batch, chunks), packed), batch, columns)
    count, rows = max(lead[0], batch[0]), _whole_rows(data, batch[1:], chunks, batch[0])
    return _kept(_product(rows, packed, count), batch[1:], columns, count)


def _kept(product: te.Tensor, batch: list[int], columns: int, count: int | None = None) -> te.Tensor:
    def element(*index: Any) -> Any:
        *at, j = index
        lead = () if count is None else (at.pop(0),)
        return product(*lead, _flat(at, batch), j // COLUMNS, j % COLUMNS)

    shape = (*batch, columns) if count is None else (count, *batch, columns)
    kept: te.Tensor = te.compute(shape, element, name="kept", tag="injective")
    return kept


def _flat(at: list[Any], batch: list[int]) -> Any:
    total = at[0]
    for index, extent in zip(at[1:], batch[1:], strict=True):
        total = total * extent + index
    return total


def _whole_rows(data: te.Tensor, batch: list[int], chunks: int, count: int | None = None) -> te.Tensor:
    """All rows one after another, in whole blocks, their terms in whole tiles: the data itself, or a copy.

    Behind the last row it is repeated, which nobody reads; behind the last term there are zeros.
    """
    rows, given = math.prod(batch), te.static_shape(data)[-1]
    terms = -(-given // DEPTH) * DEPTH
    block = _ranked(rows, chunks, terms, cpu_model(Target.current() or Target("llvm")))[0][0]
    whole = -(-rows // block.lines) * block.lines
    if whole == rows == batch[-1] and terms == given and isinstance(data.op, te.PlaceholderOp):
        return data

    def element(*index: Any) -> Any:
        *lead, i, k = index
        row = i if whole == rows else te.min(i, T.const(rows - 1, "int32"))
        at: list[Any] = []
        for extent in reversed(batch[1:]):
            at.append(row % extent)
            row = row // extent
        value = data(*lead, row, *reversed(at), k)
        return value if terms == given else te.if_then_else(te.likely(k < given), value, te.const(0, value.dtype))

    shape = (whole, terms) if count is None else (count, whole, terms)
    copied: te.Tensor = te.compute(shape, element, name="rows", tag=PACKED)
    return copied


def _intrinsic(block: Block, product: te.Tensor) -> te.TensorIntrin:
    """The sums of one block, from zero to its end, stored as rows of its columns."""
    data, weight = product.op.input_tensors
    terms, columns, high = te.static_shape(data)[-1], block.columns, block.height
    has_words = DType(weight.dtype).bits == 32
    words = te.static_shape(weight)[-2 if has_words else 1]
    left = te.placeholder((block.lines, terms), data.dtype, "left")
    shape = (columns, words, COLUMNS) if has_words else (columns, words, COLUMNS, WORD)
    right = te.placeholder(shape, weight.dtype, "right")
    sums = _product(left, right)
    signs = [int(x.dtype.startswith("int")) for x in (data, weight)]

    def emit(inputs: list[S.Buffer], outputs: list[S.Buffer]) -> S.Stmt:
        (a, b), (c,) = inputs, outputs
        tiles = [(i, j, i * columns + j) for i in range(block.rows) for j in range(columns)]
        step, first, body = Var("step"), block.rows * columns, []
        second = first + block.rows
        for i, j, t in tiles:  # a product behind the loads it needs: 3 % faster than all loads first
            if j == 0:
                body.append(_call("tile_load", first + i, _at(a, i * high, step * DEPTH), terms, high))
            if i == 0:
                at = _at(b, j, step * (DEPTH // WORD), *[0] * (len(shape) - 2))
                body.append(_call("tile_load", second + j, at, COLUMNS * WORD, ROWS))
            body.append(_call("tile_dot", t, first + i, second + j, *signs))
        loop = S.For(step, T.int32(0), T.int32(terms // DEPTH), S.LoopKind.SERIAL, S.seq(*body))
        stores = [_call("tile_store", t, _at(c, i * high, j, 0), columns * COLUMNS * 4, high) for i, j, t in tiles]
        return S.seq(*(_call("tile_zero", t, high) for _, _, t in tiles), loop, *stores)

    return te.decl_tensor_intrin(sums.op, emit, f"tiles of {block}")


def _at(buffer: S.Buffer, *indices: Any) -> Expr:
    return BufferLoad(buffer, tuple(T.convert(i) for i in indices))


def _call(name: str, *args: Any) -> S.Stmt:
    return S.Evaluate(T.call(name, *args, dtype="int32"))


@implement(
    "nn.contrib_dense_pack", family="cpu", name="byte_tiles", when=_cannot_tile, compute=_compute, priority=20,
    explain=explain_tiles,
)  # fmt: skip
@implement(
    "nn.dense", family="cpu", name="packing_tiles_dense", when=_cannot_tile, compute=_compute_packing, priority=20,
    explain=explain_tiles,
)  # fmt: skip
@implement(
    "nn.batch_matmul", family="cpu", name="packing_tiles", when=_cannot_tile, compute=_compute_packing, priority=20,
    explain=explain_tiles,
)  # fmt: skip
def byte_tiles(schedule: te.Schedule, fused: Fused) -> None:
    """Blocks of tiles, and behind each what follows the product, by vectors."""
    cpu = cpu_model(fused.workload.target)
    (anchor,) = fused.anchor
    kept = schedule_injective(schedule, fused)
    product = next(t for t in kept if t.op.tag == TAG)
    output = fused.outputs[0]
    if len(fused.outputs) > 1 or te.static_shape(output) != te.static_shape(anchor):
        output = anchor  # what reads the product has another shape: the product is stored first
        schedule[anchor].compute_root()
        kept = [s.op.output(0) for s in schedule.stages if any(s.op is t.op for t in (anchor, *kept))]
    for tensor in kept:
        if tensor.op.tag == PACKED and tensor.op.name == "packed":
            pack_blocks(schedule, tensor, COLUMNS)
        elif tensor.op is not output.op and tensor.op is not product.op:
            schedule_stage(schedule, tensor, cpu)
    block = _ranked(*_sizes(fused.workload), cpu)[0][0]
    stage, axis = schedule[output], len(product.op.axis) - 3
    *outer, column = stage.op.axis
    lead, rows = outer[:axis], outer[axis:]
    groups, inner = stage.split(column, factor=block.columns * COLUMNS)
    sub, lane = stage.split(inner, factor=COLUMNS)
    tiles, row = stage.split(fuse_all(stage, rows), factor=block.lines)
    stage.reorder(*lead, groups, tiles, row, sub, lane)
    stage.vectorize(lane)
    stage.unroll(sub)
    tasks = [*lead, groups]
    is_enough = math.prod(map(static_extent, tasks)) >= MIN_TASKS
    at = fuse_all(stage, tasks if is_enough else [*tasks, tiles])
    stage.parallel(at)
    schedule[product].compute_at(stage, tiles if is_enough else at)
    schedule[product].tensorize(schedule[product].op.axis[axis], _intrinsic(block, product))
