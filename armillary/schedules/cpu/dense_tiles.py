"""Products of bytes by matrix tiles (AMX): sixteen rows times sixteen columns, 64 terms of the sum at a time.

In: a fused function anchored at nn.contrib_dense_pack with weights in words, (units/16, k/4, 16, 4). Out: a schedule
that computes blocks of 2 x 2 tiles into a scratch buffer, from which what follows the product is computed while they
are in the first cache. Groups of columns are outermost: their weights stay near for all rows. Invariant: tiles are
whole; rows that do not fill them, or do not lie one after another, are copied first. The choice of a block: cost model
below, in cycles of `CpuModel.has_tiles`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from armillary import te
from armillary.ops.nn_dense import WORD
from armillary.relay.types import TensorType
from armillary.schedules.cpu.common import fuse_all, static_extent
from armillary.schedules.cpu.default import PACKED, schedule_injective, schedule_stage
from armillary.schedules.registry import Fused, Workload, implement
from armillary.target import Target
from armillary.target.cost import Estimate, Explanation, explained
from armillary.target.cpu import CpuModel, cpu_model
from armillary.tir import build as T
from armillary.tir import stmt as S
from armillary.tir.expr import BufferLoad, Expr, Var

ROWS, COLUMNS, DEPTH = 16, 16, 64  # of a tile: rows, words of four bytes in one, bytes
ROW_CYCLES, LOAD_CYCLES, START_CYCLES = 1.0, 8.0, 120.0  # a row of a product, a tile from L1; setup, scratch and back
MIN_ROWS = 4  # with fewer rows vectors take as long: both wait for the weights
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


def _sizes(workload: Workload) -> tuple[int, int, int]:
    """Rows, columns in sixteens, and terms of a sum."""
    data, weight = workload.types
    assert isinstance(data, TensorType) and isinstance(weight, TensorType), "inference has checked"
    return math.prod(data.static[:-1]), weight.static[0], data.static[-1]


def _cannot_tile(workload: Workload) -> str | None:
    data, weight = workload.types
    cpu = cpu_model(workload.target)
    if workload.target.kind.name != "llvm" or not cpu.has_tiles:
        return "the processor has no matrix tiles"
    if not isinstance(data, TensorType) or not isinstance(weight, TensorType) or weight.ndim != 4:
        return "only products of bytes have tiles"
    rows, _, terms = _sizes(workload)
    if weight.static[2] != COLUMNS or terms % DEPTH:
        return f"{terms} terms do not fill tiles"
    return f"{rows} rows fill too little of a tile" if rows < MIN_ROWS else None


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


def _product(data: te.Tensor, weight: te.Tensor, rows: int) -> te.Tensor:
    """Sums over words, columns as (sixteens, one of them)."""
    chunks, words, lanes, _ = te.static_shape(weight)
    lead = (0,) * (len(data.shape) - 2)
    k = te.reduce_axis((0, words), name="k")

    def element(i: Any, chunk: Any, lane: Any) -> Any:
        left = te.four_bytes(*(data(*lead, i, k * WORD + byte) for byte in range(WORD)))
        right = te.four_bytes(*(weight(chunk, k, lane, byte) for byte in range(WORD)))
        return te.sum(te.dot_bytes(left, right), axis=k)

    return te.compute((rows, chunks, lanes), element, name="tiles", tag=TAG)


def _compute(attrs: Any, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """The product of whole blocks of rows, and what of it is asked for."""
    *batch, terms = te.static_shape(data)
    rows, chunks = math.prod(batch), te.static_shape(weight)[0]
    block = _ranked(rows, chunks, terms, cpu_model(Target.current() or Target("llvm")))[0][0]
    whole = -(-rows // block.lines) * block.lines
    if whole != rows or batch[-1] != rows or not isinstance(data.op, te.PlaceholderOp):
        data = _copied(data, batch, whole, terms)
    product = _product(data, weight, whole)

    def element(*index: Any) -> Any:
        *at, j = index
        return product(_flat(at, batch), j // COLUMNS, j % COLUMNS)

    kept: te.Tensor = te.compute((*batch, chunks * COLUMNS), element, name="kept", tag="injective")
    return kept


def _flat(at: list[Any], batch: list[int]) -> Any:
    total = at[0]
    for index, extent in zip(at[1:], batch[1:], strict=True):
        total = total * extent + index
    return total


def _copied(data: te.Tensor, batch: list[int], whole: int, terms: int) -> te.Tensor:
    """All rows one after another; behind the last one it is repeated, which nobody reads."""
    rows = math.prod(batch)

    def element(i: Any, k: Any) -> Any:
        row = i if whole == rows else te.min(i, T.const(rows - 1, "int32"))
        at = []
        for extent in reversed(batch[1:]):
            at.append(row % extent)
            row = row // extent
        return data(row, *reversed(at), k)

    copied: te.Tensor = te.compute((whole, terms), element, name="rows", tag=PACKED)
    return copied


def _intrinsic(block: Block, product: te.Tensor) -> te.TensorIntrin:
    """The sums of one block, from zero to its end, stored as rows of its columns."""
    data, weight = product.op.input_tensors
    terms, words = te.static_shape(data)[-1], te.static_shape(weight)[1]
    columns, high = block.columns, block.height
    left = te.placeholder((block.lines, terms), data.dtype, "left")
    right = te.placeholder((columns, words, COLUMNS, WORD), weight.dtype, "right")
    sums = _product(left, right, block.lines)
    signs = [int(x.dtype.startswith("int")) for x in (data, weight)]

    def emit(inputs: list[S.Buffer], outputs: list[S.Buffer]) -> S.Stmt:
        (a, b), (c,) = inputs, outputs
        tiles = [(i, j, i * columns + j) for i in range(block.rows) for j in range(columns)]
        step = Var("step")
        first = block.rows * columns
        body = [_call("tile_load", first + i, _at(a, i * high, step * DEPTH), terms, high) for i in range(block.rows)]
        second = first + block.rows
        for j in range(columns):
            at = _at(b, j, step * (DEPTH // WORD), 0, 0)
            body.append(_call("tile_load", second + j, at, COLUMNS * WORD, ROWS))
        body += [_call("tile_dot", t, first + i, second + j, *signs) for i, j, t in tiles]
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
        if tensor.op is not output.op and tensor.op is not product.op:
            schedule_stage(schedule, tensor, cpu)
    block = _ranked(*_sizes(fused.workload), cpu)[0][0]
    stage = schedule[output]
    *outer, column = stage.op.axis
    groups, inner = stage.split(column, factor=block.columns * COLUMNS)
    sub, lane = stage.split(inner, factor=COLUMNS)
    row = fuse_all(stage, outer)
    tiles, row = stage.split(row, factor=block.lines)
    stage.reorder(groups, tiles, row, sub, lane)
    stage.vectorize(lane)
    stage.unroll(sub)
    stage.parallel(groups if static_extent(groups) >= MIN_TASKS else fuse_all(stage, [groups, tiles]))
    at = tiles if static_extent(groups) >= MIN_TASKS else stage.leaf_iter_vars[0]
    schedule[product].compute_at(stage, at)
    schedule[product].tensorize(schedule[product].op.axis[0], _intrinsic(block, product))
