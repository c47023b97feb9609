"""What a convolution by matrix tiles (AMX) can choose from: the block of tiles.

In: a workload of blocked data and weights in words, and a `CpuModel` with tiles. Out: blocks with their cycles, the
block of a call, who refuses, the algorithm. Invariant: no tensor expression is imported; schedule.py makes the loops.
Costs: cost.py.
"""

from __future__ import annotations

from armillary.backends.cpu.conv2d.amx.cost import COPY_CYCLES, SIDE, TILE_DWORDS, Block, Shape, ranked_blocks
from armillary.backends.cpu.cost.model import Estimate, Tile
from armillary.backends.cpu.space import Algorithm, Config, Weighed, agreeing, tile_config
from armillary.backends.workload import Workload
from armillary.ops._dot_operands import BFLOATS
from armillary.ops.nn.conv import Conv2DAttrs, Window, window
from armillary.target.choice import Choice, Cost
from armillary.target.cpu import CpuModel, cpu_model

OPERATOR = "cpu.conv2d_NCHWc_int8"


def tile_of_block(block: Block) -> Tile:
    """A block as the knobs say it: tiles of pixels, tiles of outputs, the pixels of a tile."""
    return Tile(block.tall * block.beside, block.columns, block.pixels)


def block_of(attrs: object, shape: Shape, cpu: CpuModel) -> Block:
    """The block of a convolution whose call has these attributes: what its choice says, or the best."""
    ranked, choice = ranked_blocks(shape, cpu), Choice.parse(getattr(attrs, "choice", ""))
    stated = set(choice.config) if choice.algorithm == TILES.name else set[tuple[str, int]]()
    return next((b for b, _ in ranked if stated <= set(tile_config(tile_of_block(b)))), ranked[0][0])


def blocks_of(workload: Workload) -> tuple[tuple[Block, float], ...]:
    """Blocks with their cycles, the best first, each configuration once."""
    data, weight = (workload.tensor(k).static for k in (0, 1))
    rows = ranked_blocks(shape_of(workload.attrs, data, weight), cpu_model(workload.target))
    return tuple({tile_of_block(block): (block, cycles) for block, cycles in reversed(rows)}.values())[::-1]


def shape_of(attrs: Conv2DAttrs, data: tuple[int, ...], weight: tuple[int, ...]) -> Shape:
    """The sizes that the cost model asks for."""
    chunks, blocks, kh, kw, words, lanes, word = weight
    win = window(OPERATOR, attrs, 2)
    size = [_count(data[2 + a], (kh, kw)[a], win, a) for a in range(2)]
    copy = COPY_CYCLES * data[0] * blocks * (data[2] + kh) * (data[3] + kw) * word / BFLOATS
    is_padded = any(map(any, win.pads)) or words * word != data[4]
    side = lanes // SIDE
    return Shape(size[0], size[1], chunks * side, blocks * kh * kw, side, copy, is_padded)


def _count(size: int, taps: int, win: Window, axis: int) -> int:
    reach = (taps - 1) * win.dilation[axis] + 1
    return (size + sum(win.pads[axis]) - reach) // win.strides[axis] + 1


def refuses(workload: Workload) -> str | None:
    """None, or why matrix tiles do not compute it."""
    data, weight = (workload.tensor(k).static for k in (0, 1))
    cpu = cpu_model(workload.target)
    has_tiles = cpu.has_bfloat16_tiles if weight[6] == BFLOATS else cpu.has_tiles
    if workload.target.kind.name != "llvm" or not has_tiles:
        return "the processor has no matrix tiles"
    if weight[4] != TILE_DWORDS or weight[5] % SIDE or TILE_DWORDS * weight[6] % data[4] or workload.attrs.groups != 1:
        return f"{weight[4] * weight[6]} channels for {weight[5]} outputs do not fill tiles"
    return None


def _ranked(workload: Workload) -> list[tuple[Config, Estimate]]:
    """Configurations with their estimates, the best first."""
    rows = blocks_of(workload)
    return [(tile_config(tile_of_block(b)), Estimate(f"{b}", cycles, "matrix tiles")) for b, cycles in rows]


def _space(workload: Workload, cpu: CpuModel) -> list[Config]:
    return [config for config, _ in _ranked(workload)]


def _default(workload: Workload, cpu: CpuModel, stated: Config = ()) -> Config:
    return agreeing(_space(workload, cpu), stated)[0]


def _weigh(workload: Workload, cpu: CpuModel, choice: Choice) -> Weighed:
    """The block of tiles against the others."""
    ranked = _ranked(workload)
    mine = next(estimate for config, estimate in ranked if config == choice.config)
    return Weighed(Cost(mine.cycles, mine.bound), tuple(e for _, e in ranked if e is not mine))


def _title(workload: Workload, cpu: CpuModel, config: Config) -> str:
    kind = "bfloat16" if workload.tensor(1).static[6] == BFLOATS else "bytes"
    return f"convolution of {kind} by matrix tiles"


def _extents(workload: Workload, cpu: CpuModel) -> dict[str, int]:
    return {"width": workload.result.static[3]}


TILES = Algorithm("conv2d.matrix_tiles", _space, _default, _weigh, _title, _extents)
