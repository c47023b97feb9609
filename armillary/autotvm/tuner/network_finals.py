"""Finals in the network: front-runners of every task are timed where the network calls them, a point of each at once.

In: a network, the front-runners of each task, a build's own choice not among them. Out: for each that was timed, what
its kernels take in the network as a part of what stands there without it. Invariant: the network runs in turns with two
executors without records; the worse of two ratios counts, of least times and of the middle round, and for the best of
each task the worse of two builds, so that neither a lucky round nor a lucky place in memory makes a winner. Nothing is
decided here: `network_check.py` does that, for one record of each task. Why: what a kernel takes depends on where its
operands lie and on the threads that wait for it, and the more threads there are, the less a trial alone knows of that.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from armillary.autotvm.measure.measure import MeasureErrorNo, MeasureInput, MeasureResult, failed
from armillary.autotvm.task.dispatcher import last_of_each, spelled_out
from armillary.autotvm.task.task import Task
from armillary.autotvm.tuner.kernel_check import Change, Names, known_names, measured
from armillary.autotvm.tuner.network_check import Network, Timed
from armillary.base.dispatch import Workload

Pair = tuple[MeasureInput, MeasureResult]
NOT_TIMED = "others were timed in the network, this one was not"
MOST = 16  # front-runners of a task
AGAIN = 2  # of each task: how many are timed in a second build
ROUND_SECONDS = 0.5  # for a build with a point of every task, beside the least number of rounds


def finals_in_network(
    network: Network, fields: Mapping[Workload, Sequence[Pair]], names: Names, until: float
) -> dict[Workload, list[tuple[Pair, float]]]:
    """Of each task the front-runners that were timed, the best first, with the ratio of times; {} where kernels cannot
    be told to tasks. No build is begun after `until` (time.monotonic)."""
    library = network.built([])
    sides = network.timed(library), network.timed(library)
    if not sides[0].names:
        return {}
    found: dict[Workload, list[tuple[Pair, float]]] = {workload: [] for workload in fields}
    for place in range(max(map(len, fields.values()), default=0)):
        heat = [field[place] for field in fields.values() if place < len(field)]
        if not _timed(network, sides, heat, names, until, found):
            break
    sides = network.timed(library), network.timed(library)
    for rows in found.values():
        rows.sort(key=lambda row: row[1])
    for place in range(AGAIN):
        heat = [rows[place][0] for rows in found.values() if place < len(rows) and rows[place][1] < 1]
        if heat and not _timed(network, sides, heat, names, until, found):
            break
    return {workload: _worst_of_each(rows) for workload, rows in found.items()}


def _timed(
    network: Network,
    sides: tuple[Timed, Timed],
    heat: Sequence[Pair],
    names: Names,
    until: float,
    found: dict[Workload, list[tuple[Pair, float]]],
) -> bool:
    """Time a point of each task in one build; whether there was time, and kernels could be told apart."""
    if time.monotonic() > until:
        return False
    seen = measured(sides[0], network.timed(network.built(heat)), ROUND_SECONDS, known_names(heat, names), sides[1])
    if not all(change.names for change in seen.changes):
        return False
    for pair in heat:
        workload = pair[0].task.workload
        mine = [change for change in seen.changes if change.names & names.get(workload, frozenset())]
        found[workload].append((pair, ratio_of(mine)))
    return True


def ratio_of(changes: Iterable[Change]) -> float:
    """Times with records by times without, of all changes together: of the least times or of the middle round, against
    the faster of the executors without records, whichever is the worse; 1 where nothing changed."""
    kept = list(changes)
    if not kept:
        return 1.0
    without, again, with_it = (sum(getattr(c, side) for c in kept) for side in ("without", "again", "with_it"))
    rounds = np.sum([c.rounds for c in kept], axis=0)
    first, second, third = np.median(rounds, axis=0)
    return float(max(with_it / min(without, again), third / min(first, second)))


def _worst_of_each(rows: Iterable[tuple[Pair, float]]) -> list[tuple[Pair, float]]:
    """Each front-runner once with the worst of its ratios, the best first."""
    kept: dict[int, tuple[Pair, float]] = {}
    for pair, ratio in rows:
        before = kept.get(id(pair))
        kept[id(pair)] = (pair, ratio if before is None else max(ratio, before[1]))
    return sorted(kept.values(), key=lambda row: row[1])


def front_runners(task: Task, records: Iterable[Pair], most: int = MOST) -> tuple[Pair | None, list[Pair]]:
    """The trial of what a build takes without a record, and the best of the others."""
    own = next(iter(task.template.estimates(task)), (-1, 0.0))[0]
    mine = [(g, r) for g, r in last_of_each(records) if spelled_out(g.task.workload) == spelled_out(task.workload)]
    mine.sort(key=lambda pair: pair[1].mean)
    others = [pair for pair in mine if pair[0].config.index != own]
    return next((pair for pair in mine if pair[0].config.index == own), None), others[:most]


def results_in_network(own: Pair, timed: Sequence[tuple[Pair, float]], records: Iterable[Pair]) -> list[Pair]:
    """What a log gets of a task: each front-runner with the time of a build's own choice times its ratio in the
    network, so that times stay those of trials; what was faster in a trial than the best of these, and not timed in the
    network, is left out from then on."""
    now = time.time()
    found = [(g, MeasureResult((own[1].mean * ratio,), 0, r.all_cost, now)) for (g, r), ratio in timed]
    least = min([own[1].mean, *(result.mean for _, result in found)])
    known = {given.config.key() for given, _ in (own, *found)}
    mine = [pair for pair in last_of_each(records) if pair[0].task.workload == own[0].task.workload]
    for given, result in mine:
        if given.config.key() not in known and result.mean <= least:
            found.append((given, failed(MeasureErrorNo.UNKNOWN_ERROR, NOT_TIMED, result.all_cost)))
    return found
