"""No record whose kernel is slower is kept, however noisy the machine is: measured noise, put on known times.

The noise is a network's own: several executors of it run in turns, and what each kernel takes beyond its least time is
kept in the order in which it happened; what the executors differ by is where they lie in memory. A simulated executor
takes known times, times the noise of the moment at which it is asked, times that of an executor.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary import autotvm, relay
from armillary.autotvm.measure.local_runner import LocalRunner
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.record import Pair
from armillary.autotvm.task.space import ConfigEntity
from armillary.autotvm.tuner import kernel_check, network_check
from armillary.autotvm.tuner.kernel_check import Kernel
from armillary.autotvm.tuner.network_check import Network, Timed, check
from armillary.autotvm.tuner.noise import is_faster, wins_needed
from armillary.base.aliases import Array
from armillary.driver.library import GraphLibrary
from armillary.ir import IRModule
from armillary.target import Target
from tests.autotvm.test_kernel_check import network

EXECUTORS, ROUNDS = 5, 40
SLOWER = (1.002, 1.005, 1.01, 1.03, 1.11)  # what records make of the times of their kernels
KERNELS = 2 + len(SLOWER) + 1  # two whose records change nothing, and in the end one that is faster beyond all noise


@pytest.mark.parametrize("rounds", [1, 9, 10, 11, 40, 400])
def test_wins_that_chance_does_not_explain(rounds: int) -> None:
    needed = wins_needed(rounds)

    def chance(wins: int) -> int:
        return sum(comb(rounds, n) for n in range(wins, rounds + 1))

    assert 1000 * chance(needed) <= 2**rounds < 1000 * chance(needed - 1)


def test_ties_are_nobodys_wins() -> None:
    assert not is_faster([1.0] * 50, [1.0] * 50) and not is_faster([], [])
    assert is_faster([1.0] * 10, [2.0] * 10) and not is_faster([1.0] * 9, [2.0] * 9)
    assert not is_faster([1.0] * 20 + [3.0] * 10, [2.0] * 30)


class Noise:
    """Of a network on this machine: factors of each kernel over time, and of each executor over the least of all."""

    def __init__(self, folder: Path) -> None:
        module, params = network(folder)
        with Network(module, params, "llvm", LocalRunner()) as net:
            library = net.built([])
            sides = [net.timed(library).kernels for _ in range(EXECUTORS)]
        times = np.array([[side() for side in sides if side is not None] for _ in range(ROUNDS)])
        least = times.min(axis=0)
        self.moments = (times / least).reshape(ROUNDS * EXECUTORS, -1)
        self.places = least / least.min(axis=0)
        self.ratios = np.array([1.0, 1.0, *SLOWER, 0.25 / self.places.max() ** 2])


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Noise:
    return Noise(tmp_path_factory.mktemp("noise"))


class Simulated(Network):
    """A network of kernels with known times, under noise. The records are those of `pairs`, one for each kernel."""

    def __init__(self, noise: Noise, pairs: Sequence[Pair], seed: int, *, with_kernels: bool) -> None:
        super().__init__(IRModule.from_expr(relay.const(0.0)), {}, "llvm", LocalRunner())
        self.noise, self.pairs, self.rng, self.with_kernels = noise, pairs, np.random.default_rng(seed), with_kernels
        self.now = int(self.rng.integers(len(noise.moments)))

    def built(self, records: Sequence[Pair]) -> GraphLibrary:
        library: Any = [any(pair is kept for kept in records) for pair in self.pairs]  # Any: in place of a library
        return library  # type: ignore[no-any-return]

    def timed(self, library: GraphLibrary) -> Timed:
        with_record: Any = library  # Any: what `built` gave
        column = self.rng.integers(self.noise.places.shape[1], size=KERNELS)
        place = self.noise.places[self.rng.integers(EXECUTORS, size=KERNELS), column]
        factors = np.where(with_record, self.noise.ratios, 1.0)

        def kernels() -> list[float]:
            self.now = (self.now + 1) % len(self.noise.moments)
            moment: Array = self.noise.moments[self.now][column]
            return (1e-4 * factors * place * moment).tolist()  # type: ignore[no-any-return]

        names = tuple(Kernel(f"k{n}", f"f_{n}_{'ab'[bool(changed)]}") for n, changed in enumerate(with_record))
        if self.with_kernels:
            return Timed(lambda number: sum(kernels()), kernels, names)
        return Timed(lambda number: sum(kernels()))


def records() -> tuple[list[Pair], dict[Any, frozenset[str]]]:
    """A record for each kernel, as of a task of its own."""
    pairs, target = list[Pair](), Target("llvm")
    for n in range(KERNELS):
        given = MeasureInput(target, autotvm.Task(f"kernel{n}", ()), ConfigEntity(0, None, {}))
        pairs.append((given, MeasureResult((1e-4,), 0, 1.0, 1.0)))
    return pairs, {pair[0].task.workload: frozenset({f"k{n}"}) for n, pair in enumerate(pairs)}


@pytest.mark.parametrize("with_kernels", [True, False], ids=["kernels", "runs"])
def test_no_slower_record_is_kept_whatever_the_noise(
    noise: Noise, monkeypatch: pytest.MonkeyPatch, with_kernels: bool
) -> None:
    monkeypatch.setattr(kernel_check, "ROUNDS", 60)
    monkeypatch.setattr(network_check, "ROUNDS", 60)
    pairs, names = records()
    kept = dict.fromkeys(range(KERNELS), 0)
    for seed in range(12):
        net = Simulated(noise, pairs, seed, with_kernels=with_kernels)
        for pair in check(net, pairs, 0.0, names=names).kept:
            kept[pairs.index(pair)] += 1
    no_gain = [kept[n] for n in range(KERNELS - 1)]
    if not with_kernels:  # in a whole run, the change of one kernel lies within what places in memory make of it
        assert sum(no_gain) <= 12, f"of 84 records without a gain more than a few were kept: {kept}"
        return
    assert not any(no_gain[2:]), f"slower records were kept: {kept}"
    assert sum(no_gain) <= 1, f"records that change nothing were kept: {kept}"
    assert kept[KERNELS - 1] >= 9, f"a gain beyond the noise was not: {kept}"
