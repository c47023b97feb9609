"""Blocks of channels for neighbouring convolutions at once, after each was tuned alone: `armc tune --layouts-together`.

In: a network, its tasks, how to measure, a log. Out: lines of the log, and sentences for people. Invariant: records of
the new blocks become the best of their workloads only if the network is faster with all of them than with the records
that it had, and none of its kernels slower; else the log gets nothing. How they are chosen:
autotvm/tuner/joint_layouts.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from armillary.autotvm.measure.measure import MeasureErrorNo, MeasureOption, failed
from armillary.autotvm.record import LogFile, Pair, best_of, encode, last_of_each, load_from_file
from armillary.autotvm.task.network import links_of_program
from armillary.autotvm.task.task import Task
from armillary.autotvm.tuner.joint_layouts import choose, measured_in_blocks, records_of, seconds_of
from armillary.autotvm.tuner.network_check import Network, together

OTHERS = "the blocks of channels were chosen together with those of neighbours: others are not used"


def choose_layouts(
    network: Network,
    tasks: Sequence[Task],
    option: MeasureOption,
    log: Path,
    until: float,
    check_seconds: float,
    note: Callable[[str], None],
) -> None:
    """Measure, choose, try in the network, and write what is kept. `until`: of measuring (time.monotonic); `note` gets
    the sentences."""
    target, began = tasks[0].target, time.monotonic()
    options = measured_in_blocks(tasks, option, until)
    links = links_of_program(network.module, network.params, target)
    chosen = choose(options, links, target)
    joint = records_of(chosen, options)
    spent = f"{sum(map(len, options.values()))} kernels in blocks of channels, {time.monotonic() - began:.0f} s"
    if not joint:
        note(f"layouts together: {spent}: each of {len(options)} convolutions keeps its own")
        return
    own = {workload: next(iter(rows)) for workload, rows in options.items()}
    before, after = (1e3 * seconds_of(blocks, options, links, target) for blocks in (own, chosen))
    note(f"layouts together: {spent}: {len(joint)} of {len(options)} change, expected {before:.3f} to {after:.3f} ms")
    names = {task.workload: task.names for task in tasks}
    records = list(load_from_file(log, report=False)) if log.exists() else []
    verdict = together(
        network, [p for p in best_of(records) if p[0].task.workload in names], joint, check_seconds, names
    )
    if verdict.dropped:
        note(f"layouts together: not used: {verdict.dropped[0][1]}")
        return
    LogFile(log).append([line for pair in joint for line in lines_of(pair, records)])
    message = (
        f"the network takes {1e3 * verdict.after:.3f} ms with them, {1e3 * verdict.before:.3f} ms with what was kept"
    )
    note(f"layouts together: {message}: {100 * (1 / verdict.ratio - 1):.1f} % faster")


def lines_of(pair: Pair, records: Sequence[Pair]) -> list[str]:
    """Lines after which a record is the best of its workload."""
    mine = [p for p in last_of_each(records) if p[0].task.workload == pair[0].task.workload]
    better = [p for p in mine if p[1].mean <= pair[1].mean and p[0].config.key() != pair[0].config.key()]
    withdrawn = [encode(g, failed(MeasureErrorNo.UNKNOWN_ERROR, OTHERS, r.all_cost)) for g, r in better]
    return [*withdrawn, encode(*pair)]
