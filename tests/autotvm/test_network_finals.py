"""Front-runners are told apart where the network calls them, and a log then names the best of those."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from armillary import autotvm, relay
from armillary.autotvm.measure.local_runner import LocalRunner
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.record import Pair, best_of
from armillary.autotvm.task.space import ConfigEntity
from armillary.autotvm.task.task import Task
from armillary.autotvm.tuner import network_finals
from armillary.autotvm.tuner.kernel_check import Change, Kernel
from armillary.autotvm.tuner.network_check import Network, Timed
from armillary.autotvm.tuner.network_finals import (
    NOT_TIMED,
    finals_in_network,
    front_runners,
    groups_apart,
    ratio_of,
    results_in_network,
)
from armillary.driver.library import GraphLibrary
from armillary.ir import IRModule
from armillary.target import Target
from tests.autotvm.test_network_check import the_task

DEFAULT = 1e-4  # seconds of each kernel
ALONE = ((1.2, 0.8, 0.9), (1.1, 1.3, 1.05), (0.7, 1.0, 0.9))  # of each task: times the default's, of points 1 to 3
BEHIND = {(2, 1): 1.35, (2, 3): 0.95}  # of a point of a task: times the default's, of the kernel behind


class Known(Network):
    """A network of one kernel a task and one behind them, each with known times."""

    def __init__(self, *, with_names: bool = True) -> None:
        super().__init__(IRModule.from_expr(relay.const(0.0)), {}, "llvm", LocalRunner())
        self.with_names, self.builds = with_names, list[tuple[int, ...]]()

    def built(self, records: Sequence[Pair]) -> GraphLibrary:
        points = {pair[0].task.name: pair[0].config.index for pair in records}
        library: Any = tuple(points.get(f"task{n}", 0) for n in range(len(ALONE)))  # Any: in place of a library
        self.builds.append(library)
        return library  # type: ignore[no-any-return]

    def timed(self, library: GraphLibrary) -> Timed:
        points: Any = library  # Any: what `built` gave
        rng = np.random.default_rng(3)

        def kernels() -> list[float]:
            times = [1.0] * (len(points) + 1)
            for n, point in enumerate(points):
                times[n] *= (1.0, *ALONE[n])[point]
                times[n + 1] *= BEHIND.get((n, point), 1.0)
            return [DEFAULT * t * (1 + 0.005 * rng.random()) for t in times]

        if not self.with_names:
            return Timed(lambda number: sum(kernels()))
        named = [Kernel(f"k{n}", f"f_{n}_{point}") for n, point in enumerate(points)]
        return Timed(sum, kernels, (*named, Kernel("sum", "g_0")))


def record(n: int, point: int, alone: float) -> Pair:
    """A trial that says so many seconds."""
    task = Task(f"task{n}", ())
    task.target = Target("llvm")
    return MeasureInput(task.target, task, ConfigEntity(point, None, {})), MeasureResult((alone,), 0, 1.0, 1.0)


def fields() -> tuple[dict[Any, list[Pair]], dict[Any, frozenset[str]]]:
    """Points that trials rank in the order of their numbers."""
    rows = [[record(n, point, 1e-4 + 1e-6 * point) for point in (1, 2, 3)] for n in range(len(ALONE))]
    keyed = {row[0][0].task.workload: row for row in rows}
    return keyed, {workload: frozenset({f"k{n}"}) for n, workload in enumerate(keyed)}


def test_the_best_is_what_is_fastest_in_the_network_whatever_trials_say() -> None:
    network, (rows, names) = Known(), fields()
    found = finals_in_network(network, rows, names, math.inf)
    order = [[(pair[0].config.index, round(ratio, 1)) for pair, ratio in timed] for timed in found.values()]
    assert order[0] == [(2, 0.8), (3, 0.9), (1, 1.2)] and order[1] == [(3, 1.1), (1, 1.1), (2, 1.3)]
    assert order[2] == [(3, 0.9), (2, 1.0), (1, 1.1)], "what a kernel gains is lost where the one behind loses more"


def test_no_two_that_change_stand_side_by_side_and_what_gains_stays() -> None:
    network, (rows, names) = Known(), fields()
    finals_in_network(network, rows, names, math.inf)
    builds = list(dict.fromkeys(network.builds))
    assert builds == [
        *((0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 0, 3)),
        *((2, 0, 3), (3, 0, 0)),  # again, those that gained most
        *((2, 1, 3), (2, 2, 3), (2, 3, 3)),  # what stands between them, beside the best of those
    ]


def test_tasks_with_kernels_side_by_side_are_in_different_groups() -> None:
    kernels = [Kernel(name, f"f_{name}") for name in "abcabd"]
    names = {("a",): frozenset("a"), ("b",): frozenset("b"), ("c",): frozenset("c"), ("d",): frozenset("d")}
    assert groups_apart(kernels, names) == [[("a",), ("d",)], [("b",)], [("c",)]]


def test_nothing_is_begun_after_the_time_is_up_or_where_kernels_have_no_names() -> None:
    rows, names = fields()
    network = Known()
    assert not any(finals_in_network(network, rows, names, 0.0).values()) and network.builds == [(0, 0, 0)]
    assert finals_in_network(Known(with_names=False), rows, names, math.inf) == {}
    network = Known()
    assert finals_in_network(network, rows, {}, math.inf) == {} and network.builds == [(0, 0, 0)]


def change(without: float, again: float, with_it: float, rounds: tuple[float, float, float]) -> Change:
    return Change(frozenset("a"), without, with_it, again, (rounds,) * 9)


@pytest.mark.parametrize(
    ("changes", "ratio"),
    [
        ([], 1.0),
        ([change(10.0, 8.0, 6.0, (10.0, 8.0, 6.0))], 0.75),  # the faster of the executors without it counts
        ([change(10.0, 10.0, 5.0, (10.0, 10.0, 9.0))], 0.9),  # the least time of one round was luck
        ([change(10.0, 10.0, 9.0, (20.0, 20.0, 10.0))], 0.9),
        ([change(10.0, 10.0, 5.0, (10.0, 10.0, 5.0)), change(30.0, 30.0, 40.0, (30.0, 30.0, 40.0))], 1.125),
    ],
)
def test_the_worse_of_two_ratios_counts(changes: list[Change], ratio: float) -> None:
    assert ratio_of(changes) == pytest.approx(ratio)


def trial(task: Task, place: int, seconds: float) -> Pair:
    """Of the configuration at a place of the model's ranking."""
    index = task.template.estimates(task)[place][0]
    return MeasureInput(task.target, task, task.config_space.get(index)), MeasureResult((seconds,), 0, 1.0, 1.0)


def test_a_log_names_the_winner_and_keeps_the_scale_of_trials() -> None:
    task = the_task()
    records = [trial(task, n, 1e-3 * seconds) for n, seconds in enumerate((4, 2, 3, 2.5, 5))]
    ranked = [pair[0].config.index for pair in records]
    own, field = front_runners(task, records, most=3)
    assert own == records[0] and field == [records[1], records[3], records[2]]
    found = results_in_network(own, [(records[2], 0.9), (records[1], 1.1)], records)
    assert [round(1e3 * r.mean, 6) for _, r in found if not r.error_no] == [3.6, 4.4]
    assert [(g.config.index, r.error) for g, r in found if r.error_no] == [(ranked[3], NOT_TIMED)]
    (best,) = best_of([*records, *found])
    assert best[0].config.index == ranked[2]
    none = results_in_network(own, [(records[1], 1.2)], records)
    (best,) = best_of([*records, *none])
    assert best[0].config.index == ranked[0], "what was not timed in the network is no reason to leave the default"


def test_a_task_whose_own_choice_failed_has_no_finals() -> None:
    task: autotvm.Task = the_task()
    assert front_runners(task, []) == (None, [])
    assert front_runners(task, [trial(task, 1, 1e-3)]) == (None, [])


def test_what_is_far_slower_alone_is_no_front_runner() -> None:
    task = the_task()
    records = [trial(task, 0, 1e-3), trial(task, 1, 1.4e-3), trial(task, 2, 1.6e-3)]
    assert front_runners(task, records) == (records[0], [records[1]])


def test_each_group_has_a_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(network_finals.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(network_finals, "rows_in_turns", lambda sides, _: passed(now, sides))
    network, (rows, names) = Known(), fields()
    found = finals_in_network(network, rows, names, 3.0)
    assert [len(timed) for timed in found.values()] == [2, 2, 2], "builds of a second, a half of three for each group"


def passed(now: list[float], sides: Sequence[Timed]) -> list[Any]:
    """Rounds of a second in all, that say that nothing is faster."""
    now[0] += 1
    return [np.ones((3, len(side.names))) for side in sides]
