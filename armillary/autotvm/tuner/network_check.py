"""Whether records pay where they are used: a network with and without each record, timed in turns.

In: a module, its parameters, a target, the best record of each task with what it is expected to gain. Out: the records
that make the network faster, those that do not, and the network's time before and after. Invariant: a record is kept
only if its kernels were faster in the network (`kernel_check.py`) or, where kernels cannot be told apart, if the
network was faster with it than with those kept before it; and all of them only if together they beat the build without
records; what cannot be checked in time is not kept. Both networks of a comparison meet the same state of the machine,
since they run in turns.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.autotvm.measure.local_runner import LocalRunner
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult, device_kind
from armillary.autotvm.measure.trial import random_input
from armillary.autotvm.task.dispatcher import ApplyHistoryBest
from armillary.autotvm.task.network_template import at_level
from armillary.autotvm.tuner.kernel_check import Change, Kernel, Names, known_names, measured, refused
from armillary.base.files import scratch_folder
from armillary.base.lazy import deferred
from armillary.base.record import record
from armillary.driver.build import build
from armillary.driver.library import GraphLibrary
from armillary.ir import IRModule
from armillary.runtime.device import device
from armillary.target import as_target

with deferred():
    from armillary.autotvm.measure.rpc_runner import request_remote
if TYPE_CHECKING:
    from armillary.runtime.executor import GraphExecutor
Pair = tuple[MeasureInput, MeasureResult]


@record
class Timed:
    """How long a run takes, the mean of so many; of an executor of this machine's processor what each kernel takes."""

    run: Callable[[int], float]
    kernels: Callable[[], list[float]] | None = None
    names: tuple[Kernel, ...] = ()  # of those kernels

    def __call__(self, number: int) -> float:
        return self.run(number)


MARGIN = 0.0005  # of the time: a gain that is smaller is none
ROUND_SECONDS = 0.02  # least length of one timing
ROUNDS = 8  # at least
SESSION_SECONDS = 3600.0
LATE = "end-to-end check: there was no time left for it"
MOST_TURNS = 10  # measurements of all records together
LONGEST = 10  # times the seconds for a record: one of those


@record
class Verdict:
    """Least seconds of a run without records and with those kept, and the middle ratio of both in rounds of turns; of
    each record dropped, why."""

    before: float
    after: float
    ratio: float = 1.0
    kept: list[Pair] = field(default_factory=list)
    dropped: list[tuple[Pair, str]] = field(default_factory=list)
    changes: tuple[Change, ...] = ()  # what the records that are kept changed, where kernels are timed


class Network:
    """A network that can be built with records, and timed here or (while its `with` block runs) on a device."""

    def __init__(self, module: IRModule, params: Mapping[str, Any], target: Any, runner: Any) -> None:
        """Any: arrays; whatever Target accepts; the runner of the trials, which says where they run."""
        self.module, self.params, self.target, self.runner = module, params, target, runner
        self._stack = contextlib.ExitStack()
        self._session: Any = None  # Any: an RPCSession
        self._count = 0

    def __enter__(self) -> Network:
        where = self.runner
        if type(where) is not LocalRunner:
            session = request_remote(where.key, where.host, where.port, where.priority, SESSION_SECONDS)
            self._session = self._stack.enter_context(session)
            self._folder = self._stack.enter_context(scratch_folder())
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        self._stack.close()

    def built(self, records: Sequence[Pair]) -> GraphLibrary:
        """The network with these records and no others."""
        with ApplyHistoryBest(records, warns=False), at_level():
            return build(self.module, target=self.target, params=dict(self.params))

    def timed(self, library: GraphLibrary) -> Timed:
        """How long a run takes, with random inputs."""
        executor: Any  # Any: an executor here or there
        kind = device_kind(as_target(self.target))
        if self._session is None:
            executor = library["default"](device(kind))
        else:
            self._count += 1
            path = self._folder / f"network{self._count}.tar"
            library.export_library(path)
            self._session.upload(path)
            path.unlink()
            executor = self._session.load_module(path.name)["default"](self._session.device(kind))
        for place, name in enumerate(executor.free_inputs):
            shape, dtype = executor.input_type(name)
            executor.set_input(name, np.array(random_input(place, shape, str(dtype), 0)))
        executor.run()
        if self._session is None:
            return timed_here(executor, with_kernels=kind == "cpu")
        where = self._session.device(kind)
        return Timed(lambda number: float(executor.time_evaluator("run", where, number=number)().min))


def timed_here(executor: GraphExecutor, *, with_kernels: bool) -> Timed:
    """How long an executor of this process runs, with each kernel where these are timed."""

    def run(number: int) -> float:
        return float(executor.time(number)) / number

    if not with_kernels:
        return Timed(run)
    names = tuple(_kernel(row.name, row.function) for row in executor.profile())
    return Timed(run, lambda: [float(row.seconds) for row in executor.profile()], names)


def least_seconds(timed: Timed, rounds: int = 5) -> float:
    """Seconds of a run: of each kernel the least of some rounds, or of the runs where kernels are not timed."""
    if timed.kernels is None:
        return min(timed(1) for _ in range(rounds))
    rows = [timed.kernels() for _ in range(rounds)]
    return float(sum(min(column) for column in zip(*rows, strict=True)))


def compare(first: Timed, second: Timed, seconds: float) -> tuple[float, float, float]:
    """Seconds of a run of each, and the ratio of the second to the first.

    Here they are sums over kernels, of each the least time in rounds of both: what disturbs a run seldom disturbs the
    same kernel in each. Of devices they are the least times of runs, and the middle ratio over rounds.
    """
    if first.kernels is not None and second.kernels is not None:
        a, b = _least_of_kernels(first.kernels, second.kernels, seconds)
        return a, b, b / a
    number = max(1, math.ceil(ROUND_SECONDS / max(1e-9, first(1), second(1))))
    rows, until = list[tuple[float, float]](), time.monotonic() + seconds
    while len(rows) < ROUNDS or time.monotonic() < until:
        if len(rows) % 2:
            b, a = second(number), first(number)
        else:
            a, b = first(number), second(number)
        rows.append((a, b))
    ratio = statistics.median(b / a for a, b in rows)
    return min(a for a, _ in rows), min(b for _, b in rows), ratio


def _least_of_kernels(
    first: Callable[[], list[float]], second: Callable[[], list[float]], seconds: float
) -> tuple[float, float]:
    least: tuple[list[float], list[float]] = (first(), second())
    rounds, until = 1, time.monotonic() + seconds
    while rounds < ROUNDS or time.monotonic() < until:
        pairs = [(least[0], first), (least[1], second)]
        for kept, measure in pairs if rounds % 2 else reversed(pairs):
            kept[:] = map(min, kept, measure())
        rounds += 1
    return sum(least[0]), sum(least[1])


def check(
    network: Network,
    candidates: Sequence[Pair],
    seconds: float = 2.0,
    until: float = math.inf,
    names: Names | None = None,
) -> Verdict:
    """Which of the records, those that promise most first, pay. Each is measured for `seconds`, none after `until`
    (time.monotonic). `names`: what a model calls the nodes of each workload."""
    timed = network.timed(network.built([]))
    found = _by_kernels(network, timed, candidates, seconds, until, names or {}) if timed.names else None
    return _one_by_one(network, timed, candidates, seconds, until) if found is None else found


def _by_kernels(
    network: Network, default: Timed, candidates: Sequence[Pair], seconds: float, until: float, names: Names
) -> Verdict | None:
    """All records together, without those whose kernels are slower, until none is; None where it is not known whose a
    kernel is."""
    kept, dropped = list(candidates), list[tuple[Pair, str]]()
    before, good = 0.0, None
    for _ in range(MOST_TURNS):
        if not kept or time.monotonic() > until:
            break
        known, spent = known_names(kept, names), seconds * min(LONGEST, 1 + len(kept))
        found = measured(default, network.timed(network.built(kept)), spent, known)
        if not all(change.names for change in found.changes):
            return None
        slow = refused(kept, found, names)
        if not slow and found.after >= found.before:
            slow = [(pair, _told(found.before, found.after)) for pair in kept]
        if not slow and good is not None:  # as in the measurement before
            break
        before, good = found.before, None if slow else found
        dropped += slow
        kept = [pair for pair in kept if not any(pair is other for other, _ in slow)]
    if good is not None:
        return Verdict(good.before, good.after, good.after / good.before, kept, dropped, good.changes)
    before = before or sum(default.kernels() if default.kernels else [default(1)])
    return Verdict(before, before, 1.0, [], [*dropped, *((pair, LATE) for pair in kept)])


def together(
    network: Network, kept: Sequence[Pair], joint: Sequence[Pair], seconds: float = 2.0, names: Names | None = None
) -> Verdict:
    """Whether records that were chosen together pay beside those kept before: all of them, in place of what is kept for
    their workloads, or none; and, where kernels are timed and known by names, only if none of them is slower."""
    replaced = {pair[0].task.workload for pair in joint}
    after = [*(pair for pair in kept if pair[0].task.workload not in replaced), *joint]
    first, second = (network.timed(network.built(pairs)) for pairs in (kept, after))
    spent = seconds * min(LONGEST, 1 + len(joint))
    if first.kernels is None or second.kernels is None:
        without, with_it, ratio = compare(first, second, spent)
        told = "" if ratio < 1 - MARGIN and with_it <= without * (1 + MARGIN) else _told(without, with_it)
    else:
        found = measured(first, second, spent, known_names(joint, names or {}))
        without, with_it = found.before, found.after
        is_known = all(change.names for change in found.changes)  # a model named its nodes
        ratio, slow = with_it / without, refused(joint, found, names or {}) if is_known else []
        told = slow[0][1] if slow else "" if ratio < 1 - MARGIN else _told(without, with_it)
    if told:
        return Verdict(without, without, 1.0, list(kept), [(pair, told) for pair in joint])
    return Verdict(without, with_it, ratio, after)


def _kernel(name: str, function: str) -> Kernel:
    """Of a node such as relu_5#17; those that a model gave no name are called node#17."""
    given = name.rpartition("#")[0]
    return Kernel("" if given == "node" else given, function)


def _one_by_one(
    network: Network, timed_default: Timed, candidates: Sequence[Pair], seconds: float, until: float
) -> Verdict:
    """Add the records one by one; keep what pays."""
    timed = timed_default
    kept, dropped = list[Pair](), list[tuple[Pair, str]]()
    for pair in candidates:
        if time.monotonic() > until:
            dropped.append((pair, LATE))
            continue
        candidate = network.timed(network.built([*kept, pair]))
        without, with_it, ratio = compare(timed, candidate, seconds)
        if ratio < 1 - MARGIN and with_it <= without * (1 + MARGIN):
            kept.append(pair)
            timed = candidate
        else:
            dropped.append((pair, _told(without, with_it)))
    before, after, ratio = compare(timed_default, timed, 2 * seconds)
    if kept and (ratio > 1 or after > before):
        dropped += [(pair, _told(before, after)) for pair in kept]
        kept = []
    return Verdict(before, after if kept else before, ratio if kept else 1.0, kept, dropped)


def _told(without: float, with_it: float) -> str:
    return f"end-to-end check: the network takes {1e3 * with_it:.3f} ms with it, {1e3 * without:.3f} ms without"
