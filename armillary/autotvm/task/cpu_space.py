"""What a contraction's kernel on a CPU can choose from, and what the model of costs expects of each choice.

In: the kernel of a contraction, as a build lowers it. Out: choices - algorithm, strip, register tile - with their
estimates. Invariant: every choice compiles; the algorithms, tiles and estimates are those of the schedules themselves
(`backends/cpu`), so a choice is what the compiler could have taken by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from armillary.autotvm.errors import TuningError
from armillary.backends.cpu.conv2d.fourier.cost import FourierLayer, product_tile, product_tiles
from armillary.backends.cpu.conv2d.fourier.cost import estimate as estimate_fourier
from armillary.backends.cpu.conv2d.fourier.fourier_conv2d import is_faster
from armillary.backends.cpu.conv2d.winograd import cost as cost_winograd
from armillary.backends.cpu.conv2d.winograd.cost import Layer
from armillary.backends.cpu.cost import model as cost
from armillary.backends.cpu.cost.model import weight_bandwidth
from armillary.backends.cpu.record_knobs import FOURIER, MATRIX_TILES, NOT_FOURIER, WINOGRAD, Blocks
from armillary.backends.cpu.space import OWN_TAPS, TAPS, Algorithm, tile_config
from armillary.backends.registry import choose
from armillary.backends.winograd import MAX_TILE
from armillary.backends.workload import Workload
from armillary.target.choice import Choice, Cost
from armillary.target.cpu import CpuModel, cpu_model
from armillary.transform import PassContext

RANKED_AFTER = 1.001  # times the least: a choice that comes after it, so that a build's own choice is first
SLOWER_TAPS = 1.02  # times the cycles with the usual ones, so that a build's own choice is first
LEAST_BLOCK = 4  # channels
MOVED_IN_A_CYCLE = 8  # bytes of a change of layout


def blocks_of(own: Blocks, channels: tuple[int, int], lanes: int, *, is_by_channel: bool) -> list[Blocks]:
    """Blocks of data and of result that a convolution may be computed in, its own first: a vector, half of it and two
    where these divide the channels, else as they are."""
    result = [own]
    for block in (lanes, lanes // 2, 2 * lanes):
        fits = [block >= LEAST_BLOCK and count % block == 0 for count in channels]
        inner, outer = (block if fit else retained for fit, retained in zip(fits, own, strict=True))
        if inner == outer or not is_by_channel:
            result.append((inner, outer))
    return list(dict.fromkeys(result))


def cycles_of(choice: Choice) -> float:
    """The estimated cycles of a choice of a space."""
    assert choice.estimate is not None, "choices of a space have estimates"
    return choice.estimate.cycles


def at_cycles(choice: Choice, cycles: float) -> Choice:
    """The choice with another estimate."""
    return replace(choice, estimate=Cost(cycles))


def direct_choices(workload: Workload) -> tuple[int, list[Choice]]:
    """The outputs of a row, and all configurations of the kernel that computes a workload without transforms: first the
    one that a build takes, as estimates may be equal."""
    algorithm, cpu, workload = selected(workload), cpu_model(workload.target), workload.typical
    own = algorithm.default(workload, cpu, ())
    configs = [config for config in algorithm.space(workload, cpu) if TAPS not in dict(config)]
    choices = list(weighed(workload, algorithm, sorted(configs, key=lambda config: config != own)))
    return algorithm.extents(workload, cpu)["width"], choices


def selected(workload: Workload) -> Algorithm:
    """The algorithm that computes a workload; a TuningError where it has nothing to tune."""
    implementation, _ = choose(workload)
    if not isinstance(implementation.candidate.algorithm, Algorithm):
        raise TuningError(f"{workload.op.name} is computed by {implementation.name!r}, which has nothing to tune")
    return implementation.candidate.algorithm


def weighed(
    workload: Workload, algorithm: Algorithm, configs: Sequence[tuple[tuple[str, int], ...]]
) -> Iterator[Choice]:
    """Configurations of an algorithm as choices, with their estimates."""
    cpu = cpu_model(workload.target)
    for config in configs:
        choice = Choice(algorithm.name, config)
        yield replace(choice, estimate=algorithm.weigh(workload, cpu, choice).cost)


def with_fourier(layer: FourierLayer, choices: Sequence[Choice], cpu: CpuModel) -> list[Choice]:
    """Those choices, and one for each register tile by Fourier transforms.

    What a build would take is expected to be the least: the passes do not compare estimates alone (fourier_conv2d.py).
    """
    direct, rate = [replace(choice, rejected=(NOT_FOURIER,)) for choice in choices], weight_bandwidth(cpu)
    own, mine = product_tile(layer, cpu)[0], estimate_fourier(layer, cpu, rate).cycles
    least = min(map(cycles_of, choices))
    if not is_faster(layer, cpu, 0):
        mine = max(mine, RANKED_AFTER * least)
    elif mine >= least:  # a convolution that is computed otherwise than the pass expects
        direct = [at_cycles(choice, cycles_of(choice) * RANKED_AFTER * mine / least) for choice in direct]
    result = [Choice(FOURIER, tile_config(own), estimate=Cost(mine))]
    for tile in product_tiles(layer, cpu):
        if tile != own:
            cycles = max(estimate_fourier(layer, cpu, rate, tile).cycles, RANKED_AFTER * mine)
            result.append(Choice(FOURIER, tile_config(tile), estimate=Cost(cycles)))
    return [*direct, *result]


def with_taps(choices: Sequence[Choice], window: Sequence[int]) -> list[Choice]:
    """Those choices, and the best direct one with none of the loops over a window's taps unrolled, and with both.

    Of one tile alone: tuners look at every value of a knob early, which costs them trials.
    """
    kh, kw = window
    if (kh, kw) == (1, 1) or choices[0].algorithm.endswith(MATRIX_TILES):
        return list(choices)
    others = ([0] if kw > 1 else []) + ([OWN_TAPS | 2] if kh > 1 else [])
    best = min((c for c in choices if c.algorithm not in (WINOGRAD, FOURIER)), key=cycles_of)
    slower = at_cycles(best, SLOWER_TAPS * cycles_of(best))
    return [*choices, *(replace(slower, config=(*best.config, (TAPS, taps))) for taps in others)]


def winograd_choices(layer: Layer, cpu: CpuModel) -> Iterator[Choice]:
    """Every size, form and register tile of Winograd's algorithm that the pass context allows."""
    for size in (t for t in cost_winograd.TILES if t <= PassContext.current().get(MAX_TILE)):
        for plan in cost_winograd.plans(layer, size):
            nest = cost_winograd.product_nest(layer, plan, cpu, weight_bandwidth(cpu))
            for tile in dict.fromkeys(cost.tiles(nest, cpu)):
                config = (("tile", size), ("strip", plan.strip), *tile_config(tile))
                cycles = cost_winograd.estimate(layer, plan, cpu, tile=tile).cycles
                yield Choice(WINOGRAD, config, estimate=Cost(cycles))
