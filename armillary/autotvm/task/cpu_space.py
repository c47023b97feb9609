"""What a contraction's kernel on a CPU can choose from, and what the model of costs expects of each choice.

In: the kernel of a contraction, as a build lowers it. Out: the points of its space - algorithm, strip, register tile -
with estimated cycles. Invariant: every point compiles; the algorithms, tiles and estimates are those of the schedules
themselves (`backends/cpu`), so a point is what the compiler could have taken by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from armillary.autotvm.errors import TuningError
from armillary.backends.cpu.conv2d.amx import space as conv2d_tiles
from armillary.backends.cpu.conv2d.depthwise import cost as cost_depthwise
from armillary.backends.cpu.conv2d.depthwise import space as conv2d_depthwise
from armillary.backends.cpu.conv2d.direct import space as conv2d_blocked
from armillary.backends.cpu.conv2d.fourier.cost import FourierLayer, product_tile, product_tiles
from armillary.backends.cpu.conv2d.fourier.cost import estimate as estimate_fourier
from armillary.backends.cpu.conv2d.fourier.fourier_conv2d import is_faster
from armillary.backends.cpu.conv2d.winograd import cost as cost_winograd
from armillary.backends.cpu.conv2d.winograd.cost import Layer
from armillary.backends.cpu.cost import model as cost
from armillary.backends.cpu.cost.model import Estimate, Tile, weight_bandwidth
from armillary.backends.cpu.gemm import space as dense
from armillary.backends.cpu.gemm.amx_panel_cost import ranked
from armillary.backends.cpu.gemm.space_amx import TILES, sizes_of, tile_of_panel
from armillary.backends.cpu.graph.apply_records import BLOCKS, MATRIX_TILES, annotations_of
from armillary.backends.cpu.space import OWN_TAPS, TAPS
from armillary.backends.registry import choose
from armillary.backends.winograd import MAX_TILE
from armillary.backends.workload import Workload
from armillary.base.record import record
from armillary.target.cpu import CpuModel, cpu_model
from armillary.transform import PassContext

Knobs = Mapping[str, int | tuple[str, str]]  # annotations are texts


@record
class Point:
    """A choice and its estimated cycles; `winograd` 0 is the algorithm without transforms."""

    winograd: int
    strip: int
    tile: Tile
    cycles: float
    width: int = 0
    blocks: tuple[int, int] = (0, 0)  # of data and of result, where these are chosen
    fourier: int = -1  # 1: by Fourier transforms; -1: no point of the space is
    parts: int = 0  # that threads share, where these may be few; 0: not known
    by_tiles: bool = False  # by matrix tiles, as all points of the space are then
    taps: int = -1  # which loops over a window's taps are unrolled, by the bits of TAPS; -1: there are none to unroll

    def knobs(self) -> Knobs:
        """By the names of the space's knobs."""
        tile = {"rows": self.tile.rows, "vectors": self.tile.vectors, "lines": self.tile.tall}
        blocks = {name: block for name, block in zip(BLOCKS, self.blocks, strict=True) if block}
        by_transforms = {"fourier": self.fourier} if self.fourier >= 0 else {}
        by_tiles = {MATRIX_TILES: 1} if self.by_tiles else {}
        knobs = {"winograd": self.winograd, "strip": self.strip, **tile, "width": self.width}
        numbers = knobs | blocks | by_transforms | by_tiles
        return numbers if self.taps < 0 else {**numbers, TAPS: annotations_of(self.taps)}


Blocks = tuple[int, int]  # channels of a block of data, and of result
RANKED_AFTER = 1.001  # times the least: a point that comes after it, so that a build's own choice is first
SLOWER_TAPS = 1.02  # times the cycles with the usual ones, so that a build's own choice is first
LEAST_BLOCK = 4  # channels
MOVED_IN_A_CYCLE = 8  # bytes of a change of layout
NestRule = Callable[[Workload, CpuModel], Any]  # Any: a Nest or a DepthwiseNest
TilesRule = Callable[[Any, CpuModel], list[Tile]]
EstimateRule = Callable[[Any, Tile, CpuModel], Estimate]
_WORDS = tuple(f"packing_words_{name}" for name in ("dense", "batch_matmul"))
_PRODUCTS = ("packed_tile", "packing_dense", "packing_batch_matmul", *_WORDS)
_PRODUCT = (dense.nest_of, cost.tiles, cost.tile_estimate)
_DIRECT = (conv2d_blocked.nest_of, cost.tiles, cost.tile_estimate)
_RULES: dict[str, tuple[NestRule, TilesRule, EstimateRule]] = {
    **dict.fromkeys(("direct_blocked", "direct_bytes", "direct_bfloat16"), _DIRECT),
    "depthwise_blocked": (
        conv2d_depthwise.depthwise_nest,
        cost_depthwise.depthwise_tiles,
        cost_depthwise.depthwise_estimate,
    ),
    **dict.fromkeys(_PRODUCTS, _PRODUCT),
}


def blocks_of(own: tuple[int, int], channels: tuple[int, int], lanes: int, *, is_by_channel: bool) -> list[Blocks]:
    """Blocks of data and of result that a convolution may be computed in, its own first: a vector, half of it and two
    where these divide the channels, else as they are."""
    found = [own]
    for block in (lanes, lanes // 2, 2 * lanes):
        fits = [block >= LEAST_BLOCK and count % block == 0 for count in channels]
        inner, outer = (block if fit else retained for fit, retained in zip(fits, own, strict=True))
        if inner == outer or not is_by_channel:
            found.append((inner, outer))
    return list(dict.fromkeys(found))


def direct_points(workload: Workload) -> tuple[int, list[Point]]:
    """The outputs of a row, and the register tiles of the kernel that computes a workload without transforms."""
    implementation, _ = choose(workload)
    if implementation.candidate.algorithm is TILES:
        return _panels(workload)
    if implementation.candidate.algorithm is conv2d_tiles.TILES:
        width = workload.result.static[3]
        blocks = [(conv2d_tiles.tile_of_block(block), cycles) for block, cycles in conv2d_tiles.blocks_of(workload)]
        return width, [Point(0, 0, tile, cycles, width, by_tiles=True) for tile, cycles in blocks]
    rules = _RULES.get(implementation.name)
    if rules is None:
        raise TuningError(f"{workload.op.name} is computed by {implementation.name!r}, which has nothing to tune")
    cpu = cpu_model(workload.target)
    nest_of, tiles_of, estimate_of = rules
    nest = nest_of(workload, cpu)
    found, has_parts = dict.fromkeys(tiles_of(nest, cpu)), implementation.name == "direct_blocked"
    parts = {tile: conv2d_blocked.flat_parts(workload, tile, cpu) if has_parts else 0 for tile in found}
    cycles = {tile: estimate_of(nest, tile, cpu).cycles for tile in found}
    return nest.width, [Point(0, 0, tile, cycles[tile], nest.width, parts=parts[tile]) for tile in found]


def _panels(workload: Workload) -> tuple[int, list[Point]]:
    """The rows of a product by matrix tiles, and its panels."""
    sizes = sizes_of(workload)
    found = ranked(*sizes, cpu_model(workload.target))
    return sizes[0], [Point(0, 0, tile_of_panel(p), cycles, sizes[0], by_tiles=True) for p, cycles in found]


def with_fourier_points(layer: FourierLayer, found: Sequence[Point], cpu: CpuModel) -> list[Point]:
    """Those points, and one for each register tile by Fourier transforms: what a build would take is expected to be the
    least, as the passes do not compare estimates alone (backends/cpu/conv2d/fourier/fourier_conv2d.py)."""
    direct, rate = [replace(point, fourier=0) for point in found], weight_bandwidth(cpu)
    own, mine = product_tile(layer, cpu)[0], estimate_fourier(layer, cpu, rate).cycles
    least = min(point.cycles for point in found)
    if not is_faster(layer, cpu, 0):
        mine = max(mine, RANKED_AFTER * least)
    elif mine >= least:  # a convolution that is computed otherwise than the pass expects
        direct = [replace(point, cycles=point.cycles * RANKED_AFTER * mine / least) for point in direct]
    made = [Point(0, 0, own, mine, found[0].width, fourier=1)]
    for tile in product_tiles(layer, cpu):
        if tile != own:
            cycles = estimate_fourier(layer, cpu, rate, tile).cycles
            made.append(Point(0, 0, tile, max(cycles, RANKED_AFTER * mine), found[0].width, fourier=1))
    return [*direct, *made]


def with_taps(found: Sequence[Point], window: Sequence[int]) -> list[Point]:
    """Those points, and the best direct one with none of the loops over a window's taps unrolled, and with both.

    Of one tile alone: tuners look at every value of a knob early, which costs them trials.
    """
    kh, kw = window
    if (kh, kw) == (1, 1) or found[0].by_tiles:
        return list(found)
    others = ([0] if kw > 1 else []) + ([OWN_TAPS | 2] if kh > 1 else [])
    best = min((p for p in found if not p.winograd and p.fourier <= 0), key=lambda p: p.cycles)
    annotated = [replace(best, cycles=SLOWER_TAPS * best.cycles, taps=taps) for taps in others]
    return [*(replace(point, taps=OWN_TAPS) for point in found), *annotated]


def winograd_points(layer: Layer, cpu: CpuModel) -> Iterator[Point]:
    """Every size, form and register tile of Winograd's algorithm that the pass context allows."""
    for size in (t for t in cost_winograd.TILES if t <= PassContext.current().get(MAX_TILE)):
        for plan in cost_winograd.plans(layer, size):
            nest = cost_winograd.product_nest(layer, plan, cpu, weight_bandwidth(cpu))
            for tile in dict.fromkeys(cost.tiles(nest, cpu)):
                yield Point(size, plan.strip, tile, cost_winograd.estimate(layer, plan, cpu, tile=tile).cycles)
