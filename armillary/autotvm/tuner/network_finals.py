"""Finals in the network: front-runners of every task are timed where the network calls them, many tasks at once.

In: a network, the front-runners of each task, a build's own choice not among them. Out: for each that was timed, what
its kernels take in the network as a part of what stands there without it. Invariant: in one build no two kernels that
change stand side by side, since threads find what others wrote in the caches of other cores: so a change of time is the
record's own, and what it does to the kernel behind it counts too. What a group of tasks gains is part of the build that
the next group is compared with. Two executors of that build run in the same turns; of least times and of the middle
round the worse ratio counts, and of the best of each task the worse of two builds. Nothing is decided here:
`network_check.py` does that, for one record of each task.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from armillary.autotvm.measure.measure import MeasureErrorNo, MeasureInput, MeasureResult, failed
from armillary.autotvm.record import last_of_each
from armillary.autotvm.task.dispatcher import spelled_out
from armillary.autotvm.task.task import Task
from armillary.autotvm.tuner.kernel_check import Change, Kernel, Names, changes_between, known_names, rows_in_turns
from armillary.autotvm.tuner.network_check import Network, Timed
from armillary.base.aliases import Array
from armillary.base.dispatch import Workload

Pair = tuple[MeasureInput, MeasureResult]
Ratios = dict[Workload, list[tuple[Pair, float]]]
NOT_TIMED = "others were timed in the network, this one was not"
MOST = 20  # front-runners of a task
FAR = 1.5  # times the trial of a build's own choice: what is not timed in the network
AGAIN = 2  # of each task: how many are timed in a second build
GAINS = 0.985  # times the time without: a record that the next group of tasks is timed beside
LEAST_RATIO = 0.1  # what the kernel behind gains may be more than the kernel takes
ROUND_SECONDS = 0.6  # for a build with a point of every task, beside the least number of rounds


def finals_in_network(
    network: Network, fields: Mapping[Workload, Sequence[Pair]], names: Names, until: float
) -> Ratios:
    """Of each task the front-runners that were timed, the best first, with the ratio of times; {} where kernels cannot
    be told to tasks. No build is begun after `until` (time.monotonic),
    of which each group of tasks has its part."""
    kernels = network.timed(network.built([])).names
    known = {workload: names.get(workload, frozenset()) for workload in fields}
    groups = groups_apart(kernels, known)
    result: Ratios = {workload: [] for workload in known} if groups else {}
    retained = list[Pair]()
    for number, group in enumerate(groups):
        now = time.monotonic()
        end = now + (until - now) / (len(groups) - number)
        heats = Heats(network, retained, names, end)
        for place in range(max(len(fields[workload]) for workload in group)):
            heats.time([fields[workload][place] for workload in group if place < len(fields[workload])], result)
        heats = Heats(network, retained, names, max(end, time.monotonic()))
        best = {workload: sorted(result[workload], key=lambda row: row[1])[:AGAIN] for workload in group}
        for place in range(AGAIN):
            heats.time([rows[place][0] for rows in best.values() if place < len(rows) and rows[place][1] < 1], result)
        for workload in group:
            result[workload] = _worst_of_each(result[workload])
            retained += [pair for pair, ratio in result[workload][:1] if ratio < GAINS]
    return result


def groups_apart(kernels: Sequence[Kernel], names: Names) -> list[list[Workload]]:
    """Tasks in groups of which no two have kernels side by side; those with most kernels first, none without."""
    places = {w: {at for at, kernel in enumerate(kernels) if kernel.name in mine} for w, mine in names.items()}
    groups = list[tuple[list[Workload], set[int]]]()
    for workload in sorted(filter(places.get, places), key=lambda w: -len(places[w])):
        near = {at + step for at in places[workload] for step in (-1, 0, 1)}
        group = next((g for g in groups if not g[1] & near), None)
        if group is None:
            groups.append(([workload], set(places[workload])))
        else:
            group[0].append(workload)
            group[1].update(places[workload])
    return [group for group, _ in groups]


class Heats:
    """Builds with some more records than `kept`, in turns with two executors that have those alone."""

    def __init__(self, network: Network, winners: Sequence[Pair], names: Names, until: float) -> None:
        self.network, self.finalists, self.names, self.until = network, list(winners), names, until
        self._sides: tuple[Timed, Timed] | None = None

    def time(self, pairs: Sequence[Pair], ratios: Ratios) -> None:
        """Time one point of each task in one build, if there is time."""
        if not pairs or time.monotonic() > self.until:
            return
        if self._sides is None:
            library = self.network.built(self.finalists)
            self._sides = self.network.timed(library), self.network.timed(library)
        side = self.network.timed(self.network.built([*self.finalists, *pairs]))
        rows = rows_in_turns((*self._sides, side), ROUND_SECONDS)
        before = self._sides[0].names
        changes = changes_between(before, side.names, known_names(pairs, self.names), rows)
        if not all(change.names for change in changes):
            return
        for pair in pairs:
            mine = self.names.get(pair[0].task.workload, frozenset())
            ratio = ratio_of([change for change in changes if change.names & mine])
            if [kernel.key for kernel in before] == [kernel.key for kernel in side.names]:
                ratio = ratio_with_next([at for at, kernel in enumerate(before) if kernel.name in mine], rows)
            ratios[pair[0].task.workload].append((pair, ratio))


def ratio_of(changes: Iterable[Change]) -> float:
    """Times with records by times without, of all changes together: of the least times or of the middle round, against
    the faster of the executors without records, whichever is the worse; 1 where nothing changed."""
    retained = list(changes)
    if not retained:
        return 1.0
    without, again, with_it = (sum(getattr(c, side) for c in retained) for side in ("without", "again", "with_it"))
    middle = np.median(np.sum([c.rounds for c in retained], axis=0), axis=0)
    return _worse((without, again, with_it), middle)


def ratio_with_next(places: Sequence[int], rows: Sequence[Array]) -> float:
    """The same of kernels at some places, with what the kernels behind them gain or lose; no gain of those makes up for
    kernels that are no faster themselves."""
    behind = sorted({at + 1 for at in places if at + 1 < rows[0].shape[1]} - set(places))
    own, after = (
        [(times[:, at].min(axis=0).sum(), np.median(times[:, at].sum(axis=1))) for times in rows]
        for at in (list(places), behind)
    )
    (least, middle), (next_least, next_middle) = (zip(*side, strict=True) for side in (own, after))
    alone = _worse(least, middle)
    moved = [third - min(first, second) for first, second, third in (next_least, next_middle)]
    change = max(moved[0] / min(least[:2]), moved[1] / min(middle[:2]))
    both = max(LEAST_RATIO, alone + float(change))
    return both if alone < GAINS else max(alone, both)


def _worse(least: Sequence[float], middle: Sequence[float]) -> float:
    """Of least times and of middle rounds: of one side, of it again, of the other."""
    return float(max(times[2] / min(times[:2]) for times in (least, middle)))


def _worst_of_each(rows: Iterable[tuple[Pair, float]]) -> list[tuple[Pair, float]]:
    """Each front-runner once with the worst of its ratios, the best first."""
    retained: dict[int, tuple[Pair, float]] = {}
    for pair, ratio in rows:
        before = retained.get(id(pair))
        retained[id(pair)] = (pair, ratio if before is None else max(ratio, before[1]))
    return sorted(retained.values(), key=lambda row: row[1])


def front_runners(task: Task, records: Iterable[Pair], most: int = MOST) -> tuple[Pair | None, list[Pair]]:
    """The trial of what a build takes without a record, and the best of the others, but such as are far slower."""
    own = next(iter(task.template.estimates(task)), (-1, 0.0))[0]
    mine = [(g, r) for g, r in last_of_each(records) if spelled_out(g.task.workload) == spelled_out(task.workload)]
    mine.sort(key=lambda pair: pair[1].mean)
    first = next((pair for pair in mine if pair[0].config.index == own), None)
    others = [pair for pair in mine if pair is not first and first and pair[1].mean <= FAR * first[1].mean]
    return first, others[:most]


def results_in_network(own: Pair, timed: Sequence[tuple[Pair, float]], records: Iterable[Pair]) -> list[Pair]:
    """What a log gets of a task: each front-runner with the time of a build's own choice times its ratio in the
    network, so that times stay those of trials; what was faster in a trial than the best of these, and not timed in the
    network, is left out from then on."""
    now = time.time()
    ratios = [(g, MeasureResult((own[1].mean * ratio,), 0, r.all_cost, now)) for (g, r), ratio in timed]
    least = min([own[1].mean, *(result.mean for _, result in ratios)])
    known = {inp.config.key() for inp, _ in (own, *ratios)}
    mine = [pair for pair in last_of_each(records) if pair[0].task.workload == own[0].task.workload]
    for inp, result in mine:
        if inp.config.key() not in known and result.mean <= least:
            ratios.append((inp, failed(MeasureErrorNo.UNKNOWN_ERROR, NOT_TIMED, result.all_cost)))
    return ratios
