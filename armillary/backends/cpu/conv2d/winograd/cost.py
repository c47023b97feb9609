"""Estimated cycles of 3x3 convolutions: direct, or by Winograd's algorithm with a tile, in strips or in phases.

In: a `Layer`, a `CpuModel`. Out: `Estimate`s and the plans they belong to. Invariant: the terms are those of the
schedules (conv2d/winograd/schedule.py): a product per point of the tile, transforms per vector and point, and the
weights, which come from afar once and then from where a strip or a chunk finds them. Tiles of products: cost/model.py.
Who asks: the pass winograd-conv2d for the tile, the schedule for the form, `armc profile` for the reasons.
"""

from __future__ import annotations

from dataclasses import replace
from typing import overload

from armillary.backends.cpu.cost.model import (
    MAX_OPEN_ROWS,
    SHOWN_INPUT,
    Estimate,
    Nest,
    Tile,
    bandwidth_of,
    crowded,
    ranked_tiles,
    tile_estimate,
    weight_bandwidth,
)
from armillary.backends.cpu.cost.model import has_prefetch as tile_has_prefetch
from armillary.base.extent import Known, ceil_div, least
from armillary.base.record import record
from armillary.target.cpu import CpuModel
from armillary.transform import PassContext, register_config_option

FORCED_STRIP = register_config_option(
    "cpu.winograd.strip", int, -1, "tiles of a strip of Winograd convolution; 0: phases; -1: by the cost model"
)
FORCED_WINOGRAD = register_config_option(
    "relay.WinogradConv2D.tile", int, -1, "Winograd tile for every convolution that can have one; 0: none; -1: by cost"
)
TILES = (2, 4, 6)
KERNEL = 3
DATA_CYCLES, OUTPUT_CYCLES = 9.5, 5.0  # per vector and point: both transforms of it, with loads and stores
BESIDE_TWO_PORTS = {2: 0.75, 4: 1.2, 6: 1.5}  # of them with two FMA ports, by tile: larger ones add up more per point
MIN_TASKS = 4  # strips: fewer leave threads without work
MIN_STRIP = 4  # tiles of a strip: fewer read the weights too often
TRAFFIC = 1.6  # carried points lie in as many places as a tile has points, which costs more than their bytes
# Cycles to carry a cache line through L3: for itself, and times those of reading one from there; with two FMA ports
CARRIED, CARRIED_BESIDE_TWO_PORTS = (13.6, 2.6), (4.0, 1.0)
SHOWN_AGAIN = 0.4  # of the time to read the weights again for each strip, beyond what its first tiles show: two ports
LINE = 64
AHEAD = (8, 64)  # tiles in phases: fewer are bound by memory, of more the arithmetic hides the weights by itself
STRIP_SHARE = 0.85  # of L2, for a strip and all weights
FLOAT = 4


@overload
def tiles_along(outputs: int, tile: int, dilation: int) -> int: ...


@overload
def tiles_along(outputs: Known, tile: int, dilation: int) -> Known: ...


def tiles_along(outputs: Known, tile: int, dilation: int) -> Known:
    """Tiles along an axis: each has up to `tile` outputs `dilation` apart, and so many begin side by side."""
    if dilation == 1:
        return ceil_div(outputs, tile)
    whole = (ceil_div(outputs, tile * dilation) - 1) * dilation
    return whole + least(dilation, outputs - whole * tile)


@record(slots=True)
class Layer:
    """A 3x3 convolution with stride 1: channels in and out, batch, output height and width, block (0: a vector).

    With a dilation a tile's outputs lie so far apart, and tiles interleave. Of the direct convolution's 3 rows and 3
    columns of taps, so many lie on the data, on average: `taps`.
    """

    inputs: int
    outputs: int
    batch: int
    height: int
    width: int
    block: int = 0
    dilation: tuple[int, ...] = (1, 1)
    taps: tuple[float, ...] = (3.0, 3.0)
    groups: int = 1

    def tiles_across(self, tile: int) -> int:
        """Tiles of F(tile, 3) in a row of them."""
        return tiles_along(self.width, tile, self.dilation[1])

    def tiles_down(self, tile: int) -> int:
        """Rows of tiles of F(tile, 3) in an image."""
        return tiles_along(self.height, tile, self.dilation[0])

    def tiles(self, tile: int) -> int:
        """Tiles of F(tile, 3) in all images."""
        return self.batch * self.tiles_down(tile) * self.tiles_across(tile)

    def weights(self, tile: int) -> int:
        """Bytes of the transformed weights of F(tile, 3)."""
        return FLOAT * (tile + 2) ** 2 * self.inputs * self.outputs // self.groups

    def chunks(self, cpu: CpuModel) -> int:
        """Blocks of a group's output channels."""
        return max(1, self.outputs // self.groups // (self.block or cpu.lanes))

    def is_narrow(self, cpu: CpuModel) -> bool:
        """Whether a block fills at most half a vector."""
        return 0 < 2 * self.block <= cpu.lanes


@record(slots=True)
class Plan:
    """How a layer is computed: F(tile, 3) in strips of `strip` tiles (0: in phases); tile 0: directly."""

    tile: int
    strip: int = 0

    def __str__(self) -> str:
        if not self.tile:
            return "direct"
        return f"F({self.tile},3) in {f'strips of {self.strip} tiles' if self.strip else 'phases'}"


def direct_nest(layer: Layer, cpu: CpuModel, weights_far: float) -> Nest:
    """The direct convolution as a register-tiled product.

    It leaves out taps beside the data. With one FMA port, where data comes from L3, a tile waits for it however few
    columns it multiplies; with two, tiles end where taps reach the padding, and all sum one part before the next.
    """
    data = FLOAT * layer.batch * layer.inputs * layer.height * layer.width
    reread = SHOWN_INPUT * data / bandwidth_of(data, cpu)
    lines = layer.batch * layer.height
    rows, columns = layer.taps
    is_cut = cpu.fma_ports > 1 or bandwidth_of(data, cpu) == cpu.memory.l2  # tiles end where taps reach the padding
    steps = round(rows * (columns if is_cut else KERNEL) * layer.inputs / layer.groups)
    narrow = layer.is_narrow(cpu)
    return Nest(
        layer.width,
        lines,
        layer.chunks(cpu),
        steps,
        weights_far,
        repeats=layer.groups,
        reread=reread,
        is_narrow=narrow,
        held=cpu.held_steps(layer.inputs // layer.groups),
    )


def has_prefetch(layer: Layer, plan: Plan, cpu: CpuModel) -> bool:
    """Whether the products ask for the weights of the next group of channels while they compute with the last ones.

    The processor by itself fetches weights only while the first tiles of a group wait for them. Asked for in time, they
    come during all of its tiles. In a network weights that L2 could hold are not there either: two FMA ports wait.
    """
    if not plan.tile or plan.strip:
        return False
    tiles = layer.tiles(plan.tile)
    least = cpu.l2 if cpu.fma_ports == 1 else cpu.l2 // 4
    return AHEAD[0] <= tiles <= AHEAD[1] and layer.weights(plan.tile) > max(least, 1 << 18)


def product_nest(layer: Layer, plan: Plan, cpu: CpuModel, weights_far: float) -> Nest:
    """The products of a Winograd plan: one per point of the tile."""
    held = cpu.held_steps(layer.inputs // layer.groups)
    return replace(_products(layer, plan, cpu, weights_far), is_narrow=layer.is_narrow(cpu), held=held)


def _products(layer: Layer, plan: Plan, cpu: CpuModel, weights_far: float) -> Nest:
    across, down = layer.tiles_across(plan.tile), layer.tiles_down(plan.tile)
    points, chunks, steps = (plan.tile + 2) ** 2, layer.chunks(cpu), layer.inputs // layer.groups
    data, _, rate = _carried(layer, plan, cpu)
    if not plan.strip:
        lines = layer.batch * down
        reread = TRAFFIC * data / rate
        if cpu.fma_ports > 1:  # those of one point, from near; they hide behind the sums of many tiles. Fitted by ports
            shown = SHOWN_INPUT if lines * across > cpu.vector_registers else TRAFFIC
            reread = shown * data / bandwidth_of(data / points, cpu)
        return Nest(
            across,
            lines,
            chunks,
            steps,
            weights_far,
            repeats=points * layer.groups,
            reread=reread,
            lines_per_image=down,
            is_ragged=cpu.fma_ports > 1,
            has_rest=cpu.multiplies_lanes,
        )
    reread = TRAFFIC * data / rate if rate else 0.0
    strips = layer.batch * down * (across // plan.strip)
    again = _again(layer, plan, cpu)
    repeats = points * layer.groups
    return Nest(plan.strip, strips, chunks, steps, weights_far, later_rate=again, repeats=repeats, reread=reread)


def _again(layer: Layer, plan: Plan, cpu: CpuModel) -> float:
    """Bytes per cycle at which every strip but the first reads the weights."""
    points, weights = (plan.tile + 2) ** 2, layer.weights(plan.tile) / layer.groups
    strip = FLOAT * points * plan.strip * (layer.inputs + layer.outputs) / layer.groups
    if weights + strip <= STRIP_SHARE * max(cpu.l2, 1 << 18):
        return cpu.memory.l2
    return cpu.memory.l3 if weights <= cpu.l3 else cpu.memory.dram


def estimate(layer: Layer, plan: Plan, cpu: CpuModel, network: int = 0, tile: Tile | None = None) -> Estimate:
    """Cycles of a plan with its best register tile, or the one given; `network`: bytes of all its parameters."""
    points = (plan.tile + 2) ** 2
    rate = weight_bandwidth(cpu, network)
    if not plan.tile:
        return _direct(layer, cpu, rate)
    nest = product_nest(layer, plan, cpu, rate)
    if tile is None:
        tile, _ = ranked_tiles(nest, cpu)[0]
    # The tile stays that for weights from afar: a narrow one asks too often. For weights that L2 could hold estimates
    # were fitted without asking, and rank tiles better so: 48 channels to 192 on 13x13 take 0.84 by F(2,3) of F(4,3).
    ahead = has_prefetch(layer, plan, cpu) and layer.weights(plan.tile) > cpu.l2
    product = tile_estimate(replace(nest, first_rate=max(rate, cpu.memory.l2)) if ahead else nest, tile, cpu)
    weights = layer.weights(plan.tile) / rate
    if ahead and weights > product.cycles:
        product = Estimate(product.name, weights, "memory bandwidth")
    vectors = layer.tiles(plan.tile) * (layer.inputs * DATA_CYCLES + layer.outputs * OUTPUT_CYCLES) / cpu.lanes
    share = BESIDE_TWO_PORTS[plan.tile] if cpu.fma_ports > 1 else 1.0
    transforms = share * vectors * points + _carrying(layer, plan, cpu) + _rereading(layer, plan, cpu)
    bound = product.bound if product.cycles > transforms else "the transforms"
    return Estimate(f"{plan}, tile {tile}", product.cycles + transforms, bound)


def estimate_open_direct(layer: Layer, cpu: CpuModel, network: int = 0) -> Estimate:
    """The direct convolution of few pixels over open sizes: tiles of any pixels (conv2d/direct/few_pixels.py)."""
    nest, pixels = direct_nest(layer, cpu, weight_bandwidth(cpu, network)), layer.batch * layer.height * layer.width
    nest = replace(nest, width=pixels, lines=1, lines_per_image=1, max_rows=MAX_OPEN_ROWS)
    tile, cost = ranked_tiles(nest, cpu)[0]
    return Estimate(f"direct, tile {tile}", cost.cycles, cost.bound)


def _direct(layer: Layer, cpu: CpuModel, rate: float) -> Estimate:
    """The direct convolution. With two FMA ports tiles of small images ask for their weights, which then hide.

    Nor do they multiply rows that lie on the padding. The weights of F(2,3) are nearly twice as many.
    """
    nest = direct_nest(layer, cpu, rate)
    if cpu.fma_ports > 1 and layer.groups == 1 and set(layer.dilation) == {1}:
        near = replace(nest, first_rate=max(rate, cpu.memory.l2), lines_per_image=layer.height)
        tile, hidden = ranked_tiles(near, cpu)[0]
        if tile_has_prefetch(near, tile, cpu):
            rows = 1 - 2 / (KERNEL * layer.height)  # the part that is no padding, with a margin of one on both sides
            weights = FLOAT * KERNEL**2 * layer.inputs * layer.outputs / rate
            bound = hidden.bound if hidden.cycles * rows > weights else "memory bandwidth"
            return Estimate(f"direct, tile {tile}", max(hidden.cycles * rows, weights), bound)
    tile, least = ranked_tiles(nest, cpu)[0]
    return Estimate(f"direct, tile {tile}", least.cycles, least.bound)


def _carried(layer: Layer, plan: Plan, cpu: CpuModel) -> tuple[float, float, float]:
    """Bytes of transformed data and of products, and the rate at which they go between the stages.

    The rate is 0 where a strip of both stays in L2.
    """
    points, tiles = (plan.tile + 2) ** 2, layer.tiles(plan.tile)
    data, products = (float(FLOAT * points * tiles * n) for n in (layer.inputs, layer.outputs))
    held = (data + products) * plan.strip / tiles / layer.groups if plan.strip else data + products
    if plan.strip and held <= STRIP_SHARE * max(cpu.l2, 1 << 18):
        return data, products, 0.0
    return data, products, bandwidth_of(held, cpu)


def _carrying(layer: Layer, plan: Plan, cpu: CpuModel) -> float:
    """Cycles to write data and products and to read them again, beyond those of a strip that stays in L2.

    What L2 keeps comes at its rate, a write as dear as two reads. Of the rest, lines on their way to L3 and back wait
    side by side, so its rate is a small part.
    """
    data, products, rate = _carried(layer, plan, cpu)
    if not rate or not data:
        return 0.0
    beyond = max(0.0, 1.0 - STRIP_SHARE * cpu.l2 / (data + products))
    own, reads = CARRIED if cpu.fma_ports == 1 else CARRIED_BESIDE_TWO_PORTS
    retained = TRAFFIC * (2 * data + 3 * products) / cpu.memory.l2
    gone = (data + products) / LINE * (own + reads * LINE / min(rate, cpu.memory.l3))
    return (1.0 - beyond) * retained + beyond * gone


def _rereading(layer: Layer, plan: Plan, cpu: CpuModel) -> float:
    """Cycles by which strips whose weights do not stay in L2 are slower than their tiles say, with two FMA ports."""
    rate = _again(layer, plan, cpu) if plan.strip else cpu.memory.l2
    if cpu.fma_ports == 1 or rate >= cpu.memory.l2:
        return 0.0
    strips = layer.batch * layer.tiles_down(plan.tile) * (layer.tiles_across(plan.tile) // plan.strip)
    return SHOWN_AGAIN * (strips - 1) * layer.weights(plan.tile) / rate


def plans(layer: Layer, tile: int) -> list[Plan]:
    """The forms F(tile, 3) can take: phases, and strips of a whole or an even part of a row of tiles."""
    across, down = layer.tiles_across(tile), layer.batch * layer.groups * layer.tiles_down(tile)
    return [Plan(tile)] + [
        Plan(tile, strip)
        for strip in reversed(range(min(across, MIN_STRIP), across + 1))
        if _is_strip(layer, tile, strip) and down * (across // strip) >= MIN_TASKS
    ]


def _is_strip(layer: Layer, tile: int, strip: int) -> bool:
    """Whether so many tiles are an even part of a row of them, with all that interleave."""
    across = layer.tiles_across(tile)
    return strip == across or (across % strip == 0 and strip % layer.dilation[1] == 0)


def best_plan(layer: Layer, tile: int, cpu: CpuModel, network: int = 0) -> Plan:
    """The cheapest form of F(tile, 3), or the one the pass context asks for."""
    forced: int = PassContext.current().get(FORCED_STRIP)
    if forced == 0 or (forced > 0 and _is_strip(layer, tile, forced)):
        return Plan(tile, forced)
    return min(plans(layer, tile), key=lambda plan: _score(layer, plan, cpu, network))


def ranked_plans(layer: Layer, cpu: CpuModel, limit: int, network: int = 0) -> list[tuple[Plan, Estimate]]:
    """Direct and the best form of every allowed tile, the cheapest first."""
    plans = [Plan(0), *(best_plan(layer, tile, cpu, network) for tile in TILES if tile <= limit)]
    plans.sort(key=lambda plan: _score(layer, plan, cpu, network))
    return [(plan, estimate(layer, plan, cpu, network)) for plan in plans]


def _score(layer: Layer, plan: Plan, cpu: CpuModel, network: int) -> float:
    """Alone and beside other busy cores alike: reading four times the weights may pay for one thread, not for two."""
    return estimate(layer, plan, cpu, network).cycles * estimate(layer, plan, crowded(cpu), network).cycles
