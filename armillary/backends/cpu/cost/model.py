"""Estimated cycles of CPU kernels: which register tile, which algorithm, what the bound is, and why.

In: a `CpuModel` and the sizes of a problem. Out: tiles, `Estimate`s, and for people an `Explanation`. Invariant:
arithmetic on facts of the target (target/cpu_table.py), no operator and no schedule in sight, so graph passes and
schedules ask the same model. An estimate is for one thread; parameters come from beyond the L2 cache, as in a network.
Winograd's algorithm: winograd/cost.py. Measured against search: docs/decisions/cost-model.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from armillary.backends.explanation import Explanation
from armillary.base.record import record
from armillary.errors import ConfigError
from armillary.target.cpu import CpuModel, outgrows_caches
from armillary.transform import PassContext, register_config_option

FORCED_TILE = register_config_option(
    "cpu.tile", str, "", "register tile ROWSxVECTORS[xLINES] of all kernels that it fits; by the cost model if empty"
)
PARAMETERS = register_config_option(
    "cpu.parameters", int, 0, "megabytes of parameters of the network a module is a part of; 0: what is known of it"
)
FORCED_SHAPE = re.compile(r"([1-9]\d?)x([1-9]\d?)(?:x([1-9]\d?))?")
VECTORS = (1, 2, 3, 4, 5, 6, 8)  # blocks of outputs side by side in a tile
L2_SHARE = 0.75  # of the L2 cache that data to be read again may fill
LOOP = 5.0  # instructions that end a turn of a loop over steps
START, STORE = 10.0, 1.0  # cycles to start a tile's loops, and per vector for its end: bias, activation, store
SHOWN = {"L1": 0.0, "L2": 0.1, "L3": 0.3, "memory": 0.1}  # of the lesser of arithmetic and fetching: what does not hide
CHAIN_STALL = 1.2  # two ports wait for sums that are just as many as ports times latency
SHOWN_INPUT = 0.3  # of the time to read a direct convolution's data again for other outputs
MAX_OPEN_ROWS = 8  # of a tile where the width is a size: the last tile has a version for each count of columns
THREADS, EVENER = (2, 4, 8, 16), 0.95  # the numbers of threads to divide work for; what a division must gain
PAIR_REGISTERS = (
    3  # beside sums and weights, where two rows share an instruction: their words, and what those are made of
)
SPREAD_REGISTERS = 6  # beside sums and weights, where two steps are joined: both words of a row, four of products
SPREAD_STEP = 3.0  # instructions for a vector of sums in a step: products of its halves, half an addition of each
MIN_TILES, MAX_TILES = 2, 32  # that use the same weights: one is bound by memory, more hide it by themselves
MAX_FLAT_TILES = 128  # the same, where tiles go on without a break
SHOWN_LINEAR = 0.05  # the same where weights are read from beyond L2 in one long run: the prefetcher keeps up


@record(slots=True)
class Tile:
    """`rows` output columns times `vectors` output-channel blocks held in registers, of `tall` lines together."""

    rows: int
    vectors: int
    tall: int = 1

    def __str__(self) -> str:
        return f"{self.rows}x{self.vectors}{f'x{self.tall}' if self.tall > 1 else ''}"


@record(slots=True)
class Nest:
    """A product by register tiles: `lines` times a row of `width` outputs, each of `chunks` blocks of vectors.

    A block takes `wide` registers; a value is a sum over `steps`. `repeats` such products use other weights each, or
    fetch the same ones again.
    Rates in bytes per cycle: `first_rate` at which weights come the first time (0: they are few), `later_rate` at which
    each line finds them (None: in the smallest cache that holds a tile's part of them).
    """

    width: int
    lines: int
    chunks: int
    steps: int
    first_rate: float
    later_rate: float | None = None
    wide: int = 1
    register_bytes: int = 0  # of weights in one register; 0: a whole vector
    repeats: int = 1
    is_narrow: bool = False  # blocks fill at most half a vector
    reread: float = 0.0  # cycles that show when all inputs are read once more, for the next group of blocks
    lines_per_image: int = 1  # a tile as wide as a line may take several of them
    is_ragged: bool = False  # the lowest such tile may take fewer
    has_rest: bool = False  # the last tile of blocks may take fewer
    group: int = 0  # neighbouring blocks that are of the same inputs; 0: all are
    max_rows: int = 1 << 30
    max_sums: int = 1 << 30  # sums of a tile
    max_vectors: int = 1 << 30
    is_prefetched: bool = False  # weights are in L2 when a group needs them; that they would fit L1 is no gain
    part: int = 0  # steps of a partial sum that all rows of a line may take before the next; 0: the sum is whole
    taps: tuple[tuple[int, int], ...] = ()  # of a line: the outputs [begin, end) whose data is no padding; (): all
    can_prefetch: bool = (
        False  # the estimate counts on tiles that ask for the next blocks' weights, where `has_prefetch`
    )
    held: int = 1  # steps whose inputs one load brings: lanes of a register for each row, beside the sums
    pairs: bool = False  # two rows share an instruction, and weights of a step take two registers for one of sums
    is_spread: bool = False  # sums take two registers each; two steps are joined (codegen/llvm/dots/spread_sums.py)

    def inputs_of(self, vectors: int) -> int:
        """Inputs that a step reads in each row of a tile of so many blocks: one for blocks known to be of a group."""
        return vectors // math.gcd(vectors, self.group) if self.group else 1


@record(slots=True)
class Estimate:
    """What a way of computing a kernel is expected to take on one thread, and what holds it up."""

    name: str
    cycles: float
    bound: str

    def milliseconds(self, cpu: CpuModel) -> float:
        """At the clock the table gives."""
        return self.cycles / cpu.memory.ghz * 1e-6


def weighed_tiles(nest: Nest, tile: Tile, cpu: CpuModel) -> list[Estimate]:
    """The estimate of a tile, then those of the best ones with other numbers of vectors."""
    best: dict[int, Estimate] = {}
    for other, estimate in ranked_tiles(nest, cpu):
        best.setdefault(other.vectors, estimate)
    return [tile_estimate(nest, tile, cpu), *(e for vectors, e in best.items() if vectors != tile.vectors)]


def explained(
    algorithm: str, tile: str, estimates: Sequence[Estimate], cpu: CpuModel, objections: Iterable[str] = ()
) -> Explanation:
    """The explanation of `estimates[0]`, with the others as alternatives, best first."""
    chosen, *others = estimates
    rest = sorted(others, key=lambda e: e.cycles)[:4]
    return Explanation(
        algorithm,
        tile,
        round(chosen.milliseconds(cpu), 6),
        chosen.bound,
        tuple((e.name, round(e.milliseconds(cpu), 6)) for e in rest),
        tuple(objections),
    )


def forced_tile() -> Tile | None:
    """The tile that the pass context asks for, if it does."""
    text: str = PassContext.current().get(FORCED_TILE)
    if not text:
        return None
    match = FORCED_SHAPE.fullmatch(text)
    if match is None:
        raise ConfigError(f"cpu.tile={text!r}: expected ROWSxVECTORS or ROWSxVECTORSxLINES", hint='for example "7x4"')
    return Tile(*(int(n) for n in match.groups("1")))


def choose_tile(nest: Nest, cpu: CpuModel) -> Tile:
    """The tile with the least estimated cycles (or the one the pass context asks for, where it fits)."""
    return asked_tile(tiles(nest, cpu)) or ranked_tiles(nest, cpu)[0][0]


def asked_tile(fitting: Sequence[Tile]) -> Tile | None:
    """The tile that the pass context asks for all kernels, if it is one of these."""
    forced = forced_tile()
    return forced if forced in fitting else None


@lru_cache(maxsize=4096)
def ranked_tiles(nest: Nest, cpu: CpuModel) -> tuple[tuple[Tile, Estimate], ...]:
    """Every tile that fits the registers, the cheapest first; of equal ones the one with most rows."""
    estimates = [(tile, tile_estimate(nest, tile, cpu)) for tile in tiles(nest, cpu)]
    return tuple(sorted(estimates, key=lambda row: (row[1].cycles, -row[0].rows)))


def tiles(nest: Nest, cpu: CpuModel) -> list[Tile]:
    """The tiles whose accumulators, weights and one input fit the vector registers; at least 1 x 1."""
    free = cpu.vector_registers - (PAIR_REGISTERS if nest.pairs else SPREAD_REGISTERS if nest.is_spread else 1)
    room = max(3, free // nest.wide)
    result = []
    most = min(nest.max_vectors, nest.chunks)
    for vectors in (v for v in VECTORS if v <= most and (nest.has_rest or nest.chunks % v == 0)):
        registers = vectors * (2 if nest.is_spread else 1) + (nest.held > 1)  # of a row
        weights = vectors * (2 if nest.pairs or nest.is_spread else 1)
        tallest = min((room - weights) // registers, nest.max_sums // vectors)
        tallest -= tallest % 2 if nest.pairs else 0  # a row alone takes the registers of two
        result += [Tile(rows, vectors) for rows in range(1, min(nest.width, nest.max_rows, tallest) + 1)]
        talls = range(2, min(nest.lines_per_image, tallest // max(1, nest.width)) + 1)
        result += [
            Tile(nest.width, vectors, tall) for tall in talls if nest.is_ragged or nest.lines_per_image % tall == 0
        ]
    return result or [Tile(1, 1)]


def tile_estimate(nest: Nest, tile: Tile, cpu: CpuModel) -> Estimate:
    """Cycles of the whole nest with a tile, and its bound.

    The first tile of a line fetches weights that the line's other tiles find near; the very first one fetches them from
    afar. The last tile of a line may be narrower.
    """
    if nest.can_prefetch and waits(nest.lines * nest.width, nest.first_rate, cpu) and has_prefetch(nest, tile, cpu):
        return _prefetching(nest, tile, cpu)
    if rest := nest.chunks % tile.vectors:
        parts = ((nest.chunks - rest, tile), (rest, replace(tile, vectors=rest)))
        whole, last = (tile_estimate(replace(nest, chunks=chunks), part, cpu) for chunks, part in parts)
        return Estimate(whole.name, whole.cycles + last.cycles, whole.bound)
    part = tile.vectors * nest.wide * (nest.register_bytes or cpu.vector_bits / 8)  # bytes of weights in a step
    is_linear = tile.vectors == 1 and nest.later_rate is not None
    held = part * (nest.part if sums_by_parts(nest, tile, cpu) else nest.steps)
    near = bandwidth_of(held, cpu) if nest.is_prefetched else near_rate(held, cpu)
    again = near if nest.later_rate is None else nest.later_rate
    few = _share_of_streams(tile)
    streams = 1.0 if is_linear or _is_run(nest, tile, cpu, nest.first_rate * few) else few
    full, rest = divmod(nest.width, tile.rows)
    if nest.taps:
        return _with_border(nest, tile, cpu, part, near)
    rows = tile.rows * tile.tall
    images = nest.lines / nest.lines_per_image
    tall, low = divmod(nest.lines_per_image, tile.tall)  # a tall tile is a line of several
    body, bound = _tile(nest, rows, tile, cpu, part, near)
    line = full * body + (_tile(nest, rest, tile, cpu, part, near)[0] if rest else 0.0)
    lines = images * (tall + (low > 0))
    next_tile, again_bound = _tile(nest, rows, tile, cpu, part, again, is_linear)
    first_tile, far_bound = _tile(nest, rows, tile, cpu, part, nest.first_rate * streams, is_linear)
    cycles = images * tall * line + (lines - 1) * (next_tile - body) + first_tile - body
    if low:
        cycles += images * _tile(nest, tile.rows * low, tile, cpu, part, near)[0]
    if lines * full == 1 or first_tile > cycles / 2:
        bound = far_bound
    elif next_tile > 1.5 * body:
        bound = again_bound
    groups = nest.chunks / tile.vectors
    return Estimate(f"tile {tile}", nest.repeats * groups * cycles + groups * nest.reread, bound)


def has_prefetch(nest: Nest, tile: Tile, cpu: CpuModel) -> bool:
    """Whether to ask for the weights of the next blocks while the last ones are in use, as few tiles use them."""
    tiles = nest.lines / nest.lines_per_image * -(-nest.lines_per_image // tile.tall) * -(-nest.width // tile.rows)
    most = MAX_TILES if nest.lines > 1 else MAX_FLAT_TILES
    return _weights(nest, cpu) > cpu.l2 // 4 and MIN_TILES <= tiles <= most


def waits(outputs: int, rate: float, cpu: CpuModel) -> bool:
    """Whether weights that come at `rate` take longer than the FMAs of so many outputs of each."""
    return outputs * rate < cpu.fma_ports * cpu.vector_bits / 8


def _weights(nest: Nest, cpu: CpuModel) -> int:
    """Bytes of all weights of whole vectors of float32."""
    return 4 * nest.chunks * nest.wide * cpu.lanes * nest.steps


def _prefetching(nest: Nest, tile: Tile, cpu: CpuModel) -> Estimate:
    """The same where tiles ask for the weights of the next blocks: those come while the last ones are in use.

    One tile for all outputs waits for them instead.
    """
    near = tile_estimate(replace(nest, first_rate=max(nest.first_rate, cpu.memory.l2), can_prefetch=False), tile, cpu)
    alone = 1.0 if tile.vectors > 1 else _share_of_streams(tile)
    uneven = -(-nest.width // tile.rows) * tile.rows / nest.width  # a narrow tile has less time for as large a share
    fetch = uneven * nest.repeats * _weights(nest, cpu) / (nest.first_rate * alone)
    bound = near.bound if near.cycles >= fetch else f"{_place(nest.first_rate, cpu)} bandwidth"
    return Estimate(near.name, max(near.cycles, fetch) + cpu.memory.beside * min(near.cycles, fetch), bound)


def _share_of_streams(tile: Tile) -> float:
    """Few streams of addresses keep too few lines of memory under way, unless one goes on and on."""
    return min(1.0, 0.5 + 0.2 * tile.vectors)


def _with_border(nest: Nest, tile: Tile, cpu: CpuModel, part: float, near: float) -> Estimate:
    """The same where a tap lies on the data for a part of a line only: a tile takes so many of its columns as it does.

    Weights are read for every tile that has one, so that the best tiles begin and end where the taps do.
    """
    tap = replace(nest, steps=nest.steps // len(nest.taps), taps=())
    cycles, bound = START * -(-nest.width // tile.rows), ""
    for first in range(0, nest.width, tile.rows):
        last = min(first + tile.rows, nest.width)
        for begin, end in nest.taps:
            columns = min(end, last) - max(begin, first)
            if columns > 0:
                spent, bound = _tile(tap, columns, tile, cpu, part, near)
                cycles += spent - START
    groups = nest.chunks / tile.vectors
    return Estimate(f"tile {tile}", nest.repeats * groups * nest.lines * cycles + groups * nest.reread, bound)


def sums_by_parts(nest: Nest, tile: Tile, cpu: CpuModel) -> bool:
    """Whether all rows take one part of the sum before the next one.

    Else the weights of a group of columns wait in L2 until the last rows have read them, beside those of the next
    group. Where both fill half of it, a line is often gone, and what lies beyond is slower than the arithmetic. The
    sums then go to memory and back once a part; sums that fit stay whole.
    Rows that are more than twice L2 come again from beyond for each group, in pieces of a part that are too short to
    hide, so where L2 keeps a group sums stay whole.
    Where taps lie on padding, tiles read more weights for their products, which two ports feel sooner.
    """
    group = tile.vectors * nest.wide * nest.steps * (nest.register_bytes or cpu.vector_bits // 8)
    if nest.taps:
        share = 1 / 8 if cpu.fma_ports > 1 else L2_SHARE
        return nest.part > 0 and tile.tall == 1 < nest.lines and group > share * cpu.l2 > 0
    wanted = cpu.fma_ports * cpu.vector_bits / 8 / tile.rows  # bytes of weights in a cycle
    has_reuse = nest.width * nest.lines > tile.rows
    comes_again = 4 * nest.width * nest.lines * nest.steps > 2 * cpu.l2 and group <= L2_SHARE * cpu.l2
    return nest.part > 0 and has_reuse and not comes_again and 4 * group >= cpu.l2 > 0 and wanted > cpu.memory.l3


def weights_stay(nest: Nest, tile: Tile, cpu: CpuModel) -> bool:
    """Whether a group of blocks goes through all lines before the next group, rather than a line through all groups.

    Where all weights stay in L2, or a line is wide enough to hide that they come again, the data stays instead.
    """
    weights = nest.chunks * nest.steps * nest.wide * (nest.register_bytes or cpu.vector_bits // 8)
    data = nest.lines * nest.width * nest.steps * 4
    is_narrow = nest.width * 4 < tile.vectors * nest.wide * cpu.vector_bits // 8  # weights are more than data, per step
    return nest.lines > 1 and weights > L2_SHARE * cpu.l2 > 0 and (is_narrow or data <= L2_SHARE * cpu.l2)


def _is_run(nest: Nest, tile: Tile, cpu: CpuModel, rate: float) -> bool:
    """Whether a tile holds all outputs of a block, so that weights are one run, and would wait for them at `rate`.

    Where tiles ask for weights, several of them do better: 8 rows of 768 to 3072 take 1.29 by 8x1 of AVX2, 1 by 4x3.
    """
    holds_all = tile.vectors == 1 and tile.rows == nest.width and tile.tall == nest.lines
    return holds_all and not nest.is_prefetched and rate * tile.rows * tile.tall < cpu.fma_ports * cpu.vector_bits / 8


def _tile(
    nest: Nest, rows: int, tile: Tile, cpu: CpuModel, part: float, rate: float, is_linear: bool = False
) -> tuple[float, str]:
    """Cycles of a tile of `rows` whose weights come at `rate` bytes per cycle (0: from L1), and its bound."""
    vectors = tile.vectors * nest.wide
    ports, wide_loads = cpu.fma_ports, cpu.loads_per_cycle
    if nest.is_narrow and cpu.vector_bits == 512:  # half vectors: two ports where one does whole ones, and full loads
        ports, wide_loads = max(2, ports), cpu.memory.load_ports
    busy = (rows + rows % 2 if nest.pairs else rows) * vectors / ports
    if nest.is_spread:  # the words of a row: one for each step, of which four come by one load
        busy = (rows * (SPREAD_STEP * vectors + 1.25) + vectors + LOOP / max(2, nest.held)) / ports
    elif nest.held > 1:  # no such core was there to measure: the fewest instructions are the best guess
        busy += (vectors + rows * nest.inputs_of(tile.vectors) / nest.held + LOOP / nest.held) / ports
    arithmetic = max(busy, float(cpu.fma_latency))
    if nest.is_prefetched and rows * vectors <= cpu.fma_chains:
        arithmetic *= CHAIN_STALL
    inputs = rows * nest.inputs_of(tile.vectors) / cpu.memory.load_ports / nest.held
    loads = vectors / wide_loads + inputs
    fetch = part / rate if rate else 0.0
    place = _place(rate, cpu)
    keeps_up = is_linear and place in ("L3", "memory") and fetch <= arithmetic
    # two ports leave half the time to hide weights from L2 in
    shown = SHOWN_LINEAR if keeps_up else SHOWN[place] * (cpu.fma_ports if place == "L2" else 1)
    step = max(arithmetic, loads, fetch) + shown * min(arithmetic, fetch) + cpu.memory.beside * min(arithmetic, loads)
    if arithmetic >= max(loads, fetch):
        bound = "FMA units" if busy >= cpu.fma_latency else "FMA latency"
    else:
        bound = "load ports" if loads >= fetch else f"{place} bandwidth"
    return nest.steps * step + START + STORE * rows * vectors, bound


def shares_tiles(nest: Nest, tile: Tile, cpu: CpuModel) -> bool:
    """Whether threads share the tiles of a single line, all blocks each, rather than the blocks.

    Each tile then reads all weights, which must be near.
    """
    weights = nest.chunks * nest.wide * nest.steps * (nest.register_bytes or cpu.vector_bits // 8)
    if nest.lines * nest.repeats > 1 or weights > cpu.l2 // 4:
        return False
    return is_more_even(-(-nest.width // tile.rows), nest.chunks // tile.vectors)


def is_more_even(units: int, others: int) -> bool:
    """Whether threads divide so many units of work more evenly than so many others, with 2 to 16 threads."""

    def largest_shares(count: int) -> float:
        return sum(-(-count // threads) / count for threads in THREADS)

    return largest_shares(units) < EVENER * largest_shares(others)


def _place(rate: float, cpu: CpuModel) -> str:
    """Where data lies that comes at `rate` bytes per cycle."""
    if not rate or rate >= cpu.memory.l2:
        return "L2" if rate else "L1"
    return "L3" if rate > cpu.memory.dram else "memory"


def near_rate(nbytes: float, cpu: CpuModel) -> float:
    """Bytes per cycle from the smallest cache that keeps `nbytes` between two uses; 0: L1, whose cost is its loads."""
    return 0.0 if nbytes <= cpu.l1 / 2 else bandwidth_of(nbytes, cpu)


def bandwidth_of(nbytes: float, cpu: CpuModel) -> float:
    """Bytes per cycle from the smallest cache beyond L1 that keeps `nbytes` between two uses."""
    if nbytes <= L2_SHARE * cpu.l2 or not cpu.l2:
        return cpu.memory.l2
    return cpu.memory.dram if outgrows_caches(nbytes, cpu) or not cpu.l3 else cpu.memory.l3


def weight_bandwidth(cpu: CpuModel, network: int = 0) -> float:
    """Bytes per cycle at which a kernel first finds its weights, in a network with so many bytes of parameters.

    The other layers have pushed them out as far as all parameters together reach; of an unknown network: to memory.
    """
    stated: int = PassContext.current().get(PARAMETERS)
    nbytes = (stated << 20) or network
    return bandwidth_of(nbytes, cpu) if nbytes else cpu.memory.dram


@lru_cache(maxsize=64)
def crowded(cpu: CpuModel) -> CpuModel:
    """The CPU as one of two busy cores sees it: a share of the memory's bandwidth."""
    memory = replace(cpu.memory, dram=min(cpu.memory.dram, cpu.memory.dram_all / 2))
    return replace(cpu, memory=memory)
