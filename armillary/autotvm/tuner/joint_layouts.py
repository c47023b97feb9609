"""Layouts of neighbouring convolutions, chosen together: what is gained only where all of them change.

In: the convolutions of a module as tasks, which of them read what another gives (`task/network.py`, links_of_program),
and of each task what its kernel takes in each blocks of channels that it may be computed in. Out: blocks for each task.
Invariant: the sum of kernels and of changes of layout between them, as it is counted here, is never above that of the
blocks that the tasks have by themselves; it is a local least, as no single task can lower it by other blocks. Whether
it holds in the network: `network_check.together`. A trial of a task in other blocks pays for changes of layout on both
sides (docs/decisions/tuning.md); the trials here are of the call in its blocks alone, and pay for none.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from armillary.autotvm.measure.measure import MeasureInput, MeasureOption, MeasureResult, create_measure_batch
from armillary.autotvm.task.cpu_space import MOVED_IN_A_CYCLE
from armillary.autotvm.task.network import Link
from armillary.autotvm.task.network_cpu import knobs_in_blocks, tasks_in_blocks
from armillary.autotvm.task.task import Task
from armillary.backends.cpu.record_knobs import Blocks
from armillary.base.dispatch import Workload
from armillary.base.record import record
from armillary.target import Target
from armillary.target.cpu import cpu_model

Pair = tuple[MeasureInput, MeasureResult]
TRIES = 2  # configurations of each blocks that are measured, the first by the model of costs
MOST_SWEEPS = 20
Chosen = dict[Workload, Blocks]


@record
class Timed:
    """A task in some blocks: what a run of its kernel takes in a network (all calls together), and by which record."""

    seconds: float
    pair: Pair


Options = Mapping[Workload, Mapping[Blocks, Timed]]  # of each task its own blocks first


def measured_in_blocks(
    tasks: Sequence[Task], option: MeasureOption, until: float, tries: int = TRIES
) -> dict[Workload, dict[Blocks, Timed]]:
    """Each task in each of its blocks, by the best of some trials; a task that there is no time for, or that has no
    other blocks, has its own alone or nothing."""
    result: dict[Workload, dict[Blocks, Timed]] = {}
    for task in sorted(tasks, key=lambda t: -t.calls * t.flop):
        rows: dict[Blocks, Timed] = {}
        for blocks, alone in tasks_in_blocks(task).items():
            if time.monotonic() > until:
                break
            timed = _best(task, alone, blocks, option, tries)
            if timed is not None:
                rows[blocks] = timed
            elif not rows:  # its own
                break
        if rows:
            result[task.workload] = rows
    return result


def _best(task: Task, alone: Task, blocks: Blocks, option: MeasureOption, tries: int) -> Timed | None:
    indices = [index for index, _ in alone.template.estimates(alone)[:tries]]
    inputs = [MeasureInput(alone.target, alone, alone.config_space.get(index)) for index in indices]
    measure = create_measure_batch(alone, option)
    pairs = [pair for pair in zip(inputs, measure(inputs), strict=True) if not pair[1].error_no]
    if not pairs:
        return None
    inp, result = min(pairs, key=lambda pair: min(pair[1].costs))
    (index,) = task.config_space.indices_of([knobs_in_blocks(inp.config, blocks)])
    retained = MeasureInput(task.target, task, task.config_space.get(index))
    least = min(result.costs)
    return Timed(task.calls * least, (retained, MeasureResult((least,), 0, result.all_cost, result.timestamp)))


def seconds_of(chosen: Chosen, options: Options, links: Iterable[Link], target: Target) -> float:
    """What kernels and changes of layout between them take."""
    kernels = sum(rows[chosen[workload]].seconds for workload, rows in options.items())
    return kernels + sum(_moved(link, chosen, target) for link in links)


def _moved(link: Link, chosen: Chosen, target: Target) -> float:
    """Seconds of the changes of layout of a link."""
    first, second = chosen.get(link.first), chosen.get(link.second)
    if first is None or second is None or first[1] == second[0]:
        return 0.0
    return link.bytes / MOVED_IN_A_CYCLE / cpu_model(target).memory.ghz * 1e-9


def choose(options: Options, links: Sequence[Link], target: Target) -> Chosen:
    """Blocks for each task: the least of local leasts that are found from the tasks' own blocks, and from each blocks
    that any task can have, where they can have them (Besag 1986, iterated conditional modes)."""
    own = {workload: next(iter(rows)) for workload, rows in options.items()}
    near: dict[Workload, list[Link]] = {workload: [] for workload in options}
    for link in links:
        for workload in {link.first, link.second} & near.keys():
            near[workload].append(link)
    best, least = own, seconds_of(own, options, links, target)
    for wanted in (None, *dict.fromkeys(blocks for rows in options.values() for blocks in rows)):
        start = {w: wanted if wanted in rows else own[w] for w, rows in options.items()} if wanted else own
        chosen_layouts = _descended(dict(start), options, near, target)
        seconds = seconds_of(chosen_layouts, options, links, target)
        if seconds < least:
            best, least = chosen_layouts, seconds
    return best


def _descended(chosen: Chosen, options: Options, near: Mapping[Workload, list[Link]], target: Target) -> Chosen:
    for _ in range(MOST_SWEEPS):
        before = dict(chosen)
        for workload, rows in options.items():

            def cost(blocks: Blocks, workload: Workload = workload, rows: Mapping[Blocks, Timed] = rows) -> float:
                trial = chosen | {workload: blocks}
                return rows[blocks].seconds + sum(_moved(link, trial, target) for link in near[workload])

            chosen[workload] = min((chosen[workload], *rows), key=cost)
        if chosen == before:
            break
    return chosen


def records_of(chosen: Chosen, options: Options) -> list[Pair]:
    """Records of the tasks that got other blocks than their own."""
    return [rows[chosen[w]].pair for w, rows in options.items() if chosen[w] != next(iter(rows))]
