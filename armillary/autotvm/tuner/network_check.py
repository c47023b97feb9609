"""Whether records pay where they are used: a network with and without each record, timed in turns.

In: a module, its parameters, a target, the best record of each task with what it is expected to gain. Out: the records
that make the network faster, those that do not, and the network's time before and after. Invariant: a record is kept
only if its kernels were faster in the network (`kernel_check.py`) or, where kernels cannot be told apart, if the
network was faster with it than with those kept before it, by more than two executors of the build without records
differ and in more rounds than chance gives (`noise.py`); and all of them only if together they beat that build, in an
executor made anew; what cannot be checked in time is not kept. Both networks of a comparison meet the same state of the
machine, since they run in turns.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar

from armillary.autotvm.measure.local_runner import LocalRunner
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult, device_kind
from armillary.autotvm.measure.trial import set_inputs
from armillary.autotvm.task.dispatcher import ApplyHistoryBest
from armillary.autotvm.task.network_template import at_level, shapes_at
from armillary.autotvm.tuner.kernel_check import Change, Kernel, Names, is_promising, known_names, measured, refused
from armillary.autotvm.tuner.noise import is_faster
from armillary.base.files import scratch_folder
from armillary.base.lazy import deferred
from armillary.base.record import record
from armillary.driver.build import build
from armillary.driver.library import GraphLibrary
from armillary.ir import IRModule
from armillary.runtime.device import device
from armillary.target import as_target

with deferred():
    from armillary.autotvm.measure.rpc_runner import check_machines, request_remote
if TYPE_CHECKING:
    from armillary.runtime.executor import GraphExecutor
Pair = tuple[MeasureInput, MeasureResult]
Sizes = Sequence[Mapping[str, int]]
T = TypeVar("T")


@record
class Timed:
    """How long a run takes, the mean of so many; of an executor of this machine's processor what each kernel takes."""

    run: Callable[[int], float]
    kernels: Callable[[], list[float]] | None = None
    names: tuple[Kernel, ...] = ()  # of those kernels

    def __call__(self, number: int) -> float:
        return self.run(number)


MARGIN = 0.0005  # of the time: a gain that is smaller is none, however little noise there is
ROUND_SECONDS = 0.02  # least length of one timing
ROUNDS = 12  # at least: of fewer than ten, chance may win all
SESSION_SECONDS = 3600.0
NO_TIME_LEFT = "end-to-end check: there was no time left for it"
MOST_ROUNDS = 10  # measurements of all records together
LONGEST = 10  # times the seconds for a record: one of those
LEFT_PART = 0.25  # of the time left, at most: one of those, as another one confirms it


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

    def __init__(
        self, module: IRModule, params: Mapping[str, Any], target: Any, runner: Any, sizes: Sizes = ()
    ) -> None:
        """Any: arrays; whatever Target accepts; the runner of the trials, which says where they run. `sizes`: of open
        axes, that a run is timed at one after another (default: typical ones)."""
        self.shapes = shapes_at(module["main"], sizes or ({},))
        self.module, self.params, self.target, self.runner = module, params, target, runner
        self._stack = contextlib.ExitStack()
        self._session: Any = None  # Any: an RPCSession
        self._count = 0

    def __enter__(self) -> Network:
        where = self.runner
        if type(where) is not LocalRunner:
            with contextlib.ExitStack() as undo:
                session = request_remote(where.key, where.host, where.port, where.priority, SESSION_SECONDS)
                self._session = undo.enter_context(session)
                check_machines(as_target(self.target), where.key, [session.info])
                self._folder = undo.enter_context(scratch_folder())
                self._stack = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        self._stack.close()

    def built(self, records: Sequence[Pair]) -> GraphLibrary:
        """The network with these records and no others."""
        with ApplyHistoryBest(records, warns=False), at_level():
            return build(self.module, target=self.target, params=dict(self.params))

    def timed(self, library: GraphLibrary) -> Timed:
        """How long a run takes, with random inputs; at several sizes the sum of their runs."""
        kind = device_kind(as_target(self.target))
        executors = [self._executor(library, kind) for _ in self.shapes]
        for executor, shapes in zip(executors, self.shapes, strict=True):
            set_inputs(executor, 0, shapes)
            executor.run()
        if self._session is None:
            return summed([timed_here(executor, with_kernels=kind == "cpu") for executor in executors])
        where = self._session.device(kind)
        timers = [executor.time_evaluator for executor in executors]
        return Timed(lambda number: sum(float(timer("run", where, number=number)().min) for timer in timers))

    def _executor(self, library: GraphLibrary, kind: str) -> Any:  # an executor here or there
        if self._session is None:
            return library["default"](device(kind))
        self._count += 1
        path = self._folder / f"network{self._count}.tar"
        library.export_library(path)
        self._session.upload(path)
        path.unlink()
        return self._session.load_module(path.name)["default"](self._session.device(kind))


def summed(sizes: Sequence[Timed]) -> Timed:
    """The runs of the same network at several sizes as one."""
    first, measures = sizes[0], [size.kernels for size in sizes if size.kernels is not None]

    def kernels() -> list[float]:
        return [sum(row) for row in zip(*(measure() for measure in measures), strict=True)]

    return Timed(lambda number: sum(size(number) for size in sizes), kernels if measures else None, first.names)


def timed_here(executor: GraphExecutor, *, with_kernels: bool) -> Timed:
    """How long an executor of this process runs, with each kernel where these are timed."""

    def run(number: int) -> float:
        return float(executor.time(number)) / number

    if not with_kernels:
        return Timed(run)
    names = tuple(_kernel(row.name, row.function) for row in executor.profile())

    def kernels() -> list[float]:
        executor.run()  # its threads wake, its buffers are where its own kernels left them
        return [float(row.seconds) for row in executor.profile()]

    return Timed(run, kernels, names)


def least_seconds(timed: Timed, rounds: int = 5) -> float:
    """Seconds of a run: of each kernel the least of some rounds, or of the runs where kernels are not timed."""
    if timed.kernels is None:
        return min(timed(1) for _ in range(rounds))
    rows = [timed.kernels() for _ in range(rounds)]
    return float(sum(min(column) for column in zip(*rows, strict=True)))


@record
class Compared:
    """Least seconds of a run of two programs, the ratio of the second to the first, and whether the second was faster
    in more rounds than chance gives."""

    first: float
    second: float
    ratio: float
    is_faster: bool


def compare(first: Timed, second: Timed, seconds: float) -> Compared:
    """Both in turns for so long.

    Here seconds are sums over kernels, of each the least time in rounds of both: what disturbs a run seldom disturbs
    the same kernel in each. Of devices they are the least times of runs, and the ratio is the middle one over rounds.
    """
    if first.kernels is not None and second.kernels is not None:
        a, b = _interleaved(first.kernels, second.kernels, seconds)
        one, two = (float(sum(map(min, zip(*rows, strict=True)))) for rows in (a, b))
        return Compared(one, two, two / one, is_faster([sum(row) for row in b], [sum(row) for row in a]))
    number = max(1, math.ceil(ROUND_SECONDS / max(1e-9, first(1), second(1))))
    before, after = _interleaved(lambda: first(number), lambda: second(number), seconds)
    ratio = statistics.median(y / x for x, y in zip(before, after, strict=True))
    return Compared(min(before), min(after), ratio, is_faster(after, before))


def _interleaved(first: Callable[[], T], second: Callable[[], T], seconds: float) -> tuple[list[T], list[T]]:
    """What both measure in rounds, each before the other in every second one."""
    rows: tuple[list[T], list[T]] = ([], [])
    until = time.monotonic() + seconds
    while len(rows[0]) < ROUNDS or time.monotonic() < until:
        turns = list(zip(rows, (first, second), strict=True))
        for row, measure in turns[:: -1 if len(rows[0]) % 2 else 1]:
            row.append(measure())
    return rows


def check(
    network: Network,
    candidates: Sequence[Pair],
    seconds: float = 2.0,
    until: float = math.inf,
    names: Names | None = None,
) -> Verdict:
    """Which of the records, those that promise most first, pay. Each is measured for `seconds`, none after `until`
    (time.monotonic). `names`: what a model calls the nodes of each workload."""
    library = network.built([])
    default = network.timed(library)
    result = _by_kernels(network, default, library, candidates, seconds, until, names or {}) if default.names else None
    return _one_by_one(network, default, library, candidates, seconds, until) if result is None else result


def _by_kernels(
    network: Network,
    default: Timed,
    library: GraphLibrary,
    candidates: Sequence[Pair],
    seconds: float,
    until: float,
    names: Names,
) -> Verdict | None:
    """All records together, without those whose kernels are slower, until none is; None where it is not known whose a
    kernel is. `library`: without records; its second executor is another one each time, as that with records is. A
    record whose gain was within the noise has another chance with those, once."""
    retained, dropped, spared = list(candidates), list[tuple[Pair, str]](), list[Pair]()
    before, good = 0.0, None
    for _ in range(MOST_ROUNDS):
        if not retained or time.monotonic() > until:
            break
        known, left = known_names(retained, names), LEFT_PART * (until - time.monotonic())
        spent = min(seconds * min(LONGEST, 1 + len(retained)), left)
        by_kernel = measured(default, network.timed(network.built(retained)), spent, known, network.timed(library))
        if not all(change.names for change in by_kernel.changes):
            return None
        slow = refused(retained, by_kernel, names)
        if not slow and by_kernel.after >= by_kernel.before:
            slow = [(pair, _times_text(by_kernel.before, by_kernel.after)) for pair in retained]
        if not slow and good is not None:  # as in the measurement before
            break
        before, good = by_kernel.before, None if slow else by_kernel
        unsure = [pair for pair, _ in slow if is_promising(pair, by_kernel, names) and not _is_in(pair, spared)]
        spared += unsure
        dropped += [(pair, message) for pair, message in slow if not _is_in(pair, unsure)]
        retained = [pair for pair in retained if not any(pair is other for other, _ in dropped)]
    if good is not None:
        return Verdict(good.before, good.after, good.after / good.before, retained, dropped, good.changes)
    before = before or sum(default.kernels() if default.kernels else [default(1)])
    return Verdict(before, before, 1.0, [], [*dropped, *((pair, NO_TIME_LEFT) for pair in retained)])


def _is_in(pair: Pair, pairs: Sequence[Pair]) -> bool:
    return any(pair is other for other in pairs)


def together(
    network: Network, winners: Sequence[Pair], joint: Sequence[Pair], seconds: float = 2.0, names: Names | None = None
) -> Verdict:
    """Whether records that were chosen together pay beside those kept before: all of them, in place of what is kept for
    their workloads, or none; and, where kernels are timed and known by names, only if none of them is slower."""
    replaced = {pair[0].task.workload for pair in joint}
    after = [*(pair for pair in winners if pair[0].task.workload not in replaced), *joint]
    library = network.built(winners)
    first, again, second = network.timed(library), network.timed(library), network.timed(network.built(after))
    spent = seconds * min(LONGEST, 1 + len(joint))
    by_kernels = first.kernels is not None and second.kernels is not None
    by_kernel = measured(first, second, spent, known_names(joint, names or {}), again) if by_kernels else None
    if by_kernel is not None and all(change.names for change in by_kernel.changes):  # a model named its nodes
        without, with_it = by_kernel.before, by_kernel.after
        slow = refused(joint, by_kernel, names or {})
        message = slow[0][1] if slow else "" if with_it < (1 - MARGIN) * without else _times_text(without, with_it)
    else:
        margin, seen = _noise(first, again, seconds), compare(first, second, spent)
        without, with_it = seen.first, seen.second
        message = "" if _pays(seen, margin) else _times_text(without, with_it, margin)
    if message:
        return Verdict(without, without, 1.0, list(winners), [(pair, message) for pair in joint])
    return Verdict(without, with_it, with_it / without, after)


def _noise(one: Timed, other: Timed, seconds: float) -> float:
    """By what part two executors of the same network differ."""
    return max(MARGIN, abs(1 - compare(one, other, seconds).ratio))


def _pays(seen: Compared, margin: float) -> bool:
    """Whether the second program is faster beyond the noise."""
    return seen.is_faster and seen.ratio < 1 - margin and seen.second <= seen.first * (1 + MARGIN)


def _kernel(name: str, function: str) -> Kernel:
    """Of a node such as relu_5#17; those that a model gave no name are called node#17."""
    base = name.rpartition("#")[0]
    return Kernel("" if base == "node" else base, function)


def _one_by_one(
    network: Network,
    default: Timed,
    library: GraphLibrary,
    candidates: Sequence[Pair],
    seconds: float,
    until: float,
) -> Verdict:
    """Add the records one by one; keep what pays. `library`: without records."""
    timed, margin = default, _noise(default, network.timed(library), seconds) if candidates else MARGIN
    retained, dropped = list[Pair](), list[tuple[Pair, str]]()
    for pair in candidates:
        if time.monotonic() > until:
            dropped.append((pair, NO_TIME_LEFT))
            continue
        candidate = network.timed(network.built([*retained, pair]))
        seen = compare(timed, candidate, seconds)
        if _pays(seen, margin):
            retained.append(pair)
            timed = candidate
        else:
            dropped.append((pair, _times_text(seen.first, seen.second, margin)))
    if not retained:
        before = least_seconds(default)
        return Verdict(before, before, 1.0, [], dropped)
    seen = compare(default, network.timed(network.built(retained)), 2 * seconds)
    if _pays(seen, margin):
        return Verdict(seen.first, seen.second, seen.ratio, retained, dropped)
    dropped += [(pair, _times_text(seen.first, seen.second, margin)) for pair in retained]
    return Verdict(seen.first, seen.first, 1.0, [], dropped)


def _times_text(without: float, with_it: float, margin: float = 0.0) -> str:
    message = f"end-to-end check: the network takes {1e3 * with_it:.3f} ms with it, {1e3 * without:.3f} ms without"
    return f"{message}, at a noise of {100 * margin:.1f} %" if margin > MARGIN else message
