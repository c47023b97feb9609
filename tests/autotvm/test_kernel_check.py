"""Records are kept or dropped by the kernels they change; which kernels of two builds stand for one another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from armillary import autotvm, relay
from armillary.autotvm.measure.local_runner import LocalRunner
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.record import LogFile, Pair, encode, load_from_file
from armillary.autotvm.task.space import ConfigEntity
from armillary.autotvm.tuner.kernel_check import Change, Found, Kernel, refused, stretches
from armillary.autotvm.tuner.network_check import NO_TIME_LEFT, Network, Timed, check
from armillary.base.aliases import Array
from armillary.cli.tune import _another_chance
from armillary.driver.library import GraphLibrary
from armillary.ir import IRModule
from armillary.target import Target
from armillary.transform import PassContext

RNG = np.random.default_rng(5)


def kernels(*rows: str) -> list[Kernel]:
    return [Kernel(*row.split(":")) for row in rows]


def told(first: list[Kernel], second: list[Kernel]) -> list[tuple[list[str], list[str], set[str]]]:
    """What changed, by functions of both and names."""
    return [
        ([first[i].function for i in s.first], [second[i].function for i in s.second], set(s.names))
        for s in stretches(first, second, frozenset("abcd"))
    ]


def test_a_kernel_of_another_function_is_a_change() -> None:
    first = kernels("a:f_0a", "b:f_0b", "c:f_0c", ":g_01", "d:f_0d")
    second = kernels("a:f_0a", "b:f_1b", "c:f_0c", ":g_01", "d:f_1d")
    assert told(first, second) == [(["f_0b"], ["f_1b"], {"b"}), (["f_0d"], ["f_1d"], {"d"})]
    assert told(first, first) == []


def test_what_is_put_around_a_kernel_is_part_of_its_change() -> None:
    first = kernels("a:f_0a", "b:f_0b", "c:f_0c", "d:f_0d")
    second = kernels("a:f_0a", ":transform_01", "b:f_1b", ":transform_02", "c:f_0c", "d:f_0d", ":transform_03")
    assert told(first, second) == [
        (["f_0b", "f_0c"], ["transform_01", "f_1b", "transform_02", "f_0c"], {"b", "c"}),
        (["f_0d"], ["f_0d", "transform_03"], {"d"}),
    ]


def test_a_change_of_layout_without_a_name_goes_with_its_neighbour() -> None:
    first = kernels(":transform_01", "a:f_0a", ":transform_02")
    second = kernels(":transform_11", "a:f_1a", ":transform_12")
    assert told(first, second) == [([k.function for k in first], [k.function for k in second], {"a"})]


def test_a_pooling_that_takes_other_blocks_goes_with_its_neighbour() -> None:
    first = kernels("a:f_0a", "pool:p_01", "b:f_0b", "pool2:p_02", "c:f_0c")
    second = kernels("a:f_1a", "pool:p_11", "b:f_0b", "pool2:p_02", "c:f_0c")
    assert told(first, second) == [(["f_0a", "p_01", "f_0b"], ["f_1a", "p_11", "f_0b"], {"a", "b"})]


def network(folder: Path) -> tuple[IRModule, dict[str, Array]]:
    """Two convolutions of different workloads, in a model that names its nodes."""
    weights = [RNG.normal(size=(64, 64, n, n)).astype("float32") / 24 for n in (3, 1)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["y"], name="wide", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["y"], ["z"], name="wide_relu"),
        helper.make_node("Conv", ["z", "w1"], ["out"], name="small"),
    ]
    shape = [1, 64, 28, 28]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "out")]
    given = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], given)
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return relay.frontend.from_onnx(str(path))


def pair_of(task: autotvm.Task, place: int, seconds: float = 1e-4) -> Pair:
    """The record of the configuration that stands at a place of the model's ranking."""
    index = task.template.estimates(task)[place][0]
    return MeasureInput(task.target, task, task.config_space.get(index)), MeasureResult((seconds,), 0, 1.0, 1.0)


def test_tasks_know_what_a_model_calls_their_nodes(tmp_path: Path) -> None:
    tasks = autotvm.task.extract_from_program(*network(tmp_path), "llvm")
    assert [set(task.names) for task in tasks] == [{"wide", "wide_relu"}, {"small"}]


def test_all_records_are_checked_at_once_and_each_by_its_own_kernels(tmp_path: Path) -> None:
    module, params = network(tmp_path)
    tasks = autotvm.task.extract_from_program(module, params, "llvm")
    names = {task.workload: task.names for task in tasks}
    best, worst = [pair_of(task, 0) for task in tasks], [pair_of(task, -1) for task in tasks]
    with Network(module, params, "llvm", LocalRunner()) as net:
        verdict = check(net, worst, 0.1, names=names)
        assert verdict.kept == [] and verdict.after == verdict.before and verdict.changes == ()
        assert [pair for pair, _ in verdict.dropped] == worst
        assert all("its kernels take" in why for _, why in verdict.dropped)
        late = check(net, worst, 0.1, until=0.0, names=names)
        assert [why for _, why in late.dropped] == [NO_TIME_LEFT] * 2
        with PassContext(config={"cpu.tile": "1x1"}):  # a model that chooses badly
            verdict = check(net, best, 0.1, names=names)
            if verdict.kept != best:  # on a busy machine the gain may be within the noise of so short a time
                verdict = check(net, best, 3.0, names=names)
    assert verdict.kept == best and verdict.after < verdict.before, [why for _, why in verdict.dropped]
    assert {name for change in verdict.changes for name in change.names} >= {"wide_relu", "small"}
    assert all(change.with_it < change.without for change in verdict.changes)


def change(name: str, without: float, with_it: float, again: float = 0.0) -> Change:
    """Of twenty rounds that are all alike."""
    again = again or without
    return Change(frozenset(name), without, with_it, again, ((without, again, with_it),) * 20)


@pytest.mark.parametrize(
    ("changes", "is_refused"),
    [
        ([("a", 10.0, 9.0)], False),
        ([("a", 10.0, 9.99)], True),  # hardly faster
        ([("a", 10.0, 5.0), ("b", 1.0, 1.02)], True),  # one of its kernels is slower
        ([("a", 10.0, 9.0), ("c", 1.0, 2.0)], False),  # of another task
        ([("a", 10.0, 5.0), ("b", 1.0, 1.005)], True),  # a little slower, in every round
        ([("a", 10.0, 9.0, 9.4)], True),  # what its gain is, two executors of the same network differ by
        ([("a", 10.0, 9.0, 9.8)], False),
        ([], True),  # it changes nothing
    ],
)
def test_a_record_with_one_slower_kernel_is_refused(
    tmp_path: Path, changes: list[tuple[Any, ...]], is_refused: bool
) -> None:
    (task, _) = autotvm.task.extract_from_program(*network(tmp_path), "llvm")
    names = {task.workload: frozenset("ab")}
    found = Found(20.0, 10.0, tuple(change(*row) for row in changes))
    pair = pair_of(task, 0)
    assert [given for given, _ in refused([pair], found, names)] == ([pair] if is_refused else [])


class Placed(Network):
    """A network of one kernel: 10 us, 9 with a record; a second executor without records takes what `again` says."""

    def __init__(self, again: list[float]) -> None:
        super().__init__(IRModule.from_expr(relay.const(0.0)), {}, "llvm", LocalRunner())
        self.again = [10.0, *again]

    def built(self, records: Sequence[Pair]) -> GraphLibrary:
        library: Any = bool(records)  # Any: in place of a library
        return library  # type: ignore[no-any-return]

    def timed(self, library: GraphLibrary) -> Timed:
        takes = 9.0 if library else self.again.pop(0)
        return Timed(lambda number: takes, lambda: [takes], (Kernel("a", f"f_{bool(library)}"),))


@pytest.mark.parametrize(
    ("again", "is_kept"),
    [
        ([10.0, 10.0], True),
        ([9.4, 10.0, 10.0], True),  # within the noise of two executors, beyond that of two others
        ([9.4, 9.4], False),
        ([9.4, 10.0, 9.4], False),  # one more chance, no two
        ([8.9], False),  # an executor without it is as fast
    ],
)
def test_a_gain_within_the_noise_has_one_more_chance(again: list[float], is_kept: bool) -> None:
    given = MeasureInput(Target("llvm"), autotvm.Task("a", ()), ConfigEntity(0, None, {}))
    pair, made = (given, MeasureResult((9e-6,), 0, 1.0, 1.0)), Placed(again)
    verdict = check(made, [pair], 0.0, names={given.task.workload: frozenset("a")})
    assert verdict.kept == ([pair] if is_kept else []) and made.again == []


class Slow(Network):
    """Two kernels of 10 us by a clock on which each run takes a millisecond; a record makes `a` faster, `b` slower."""

    def __init__(self) -> None:
        super().__init__(IRModule.from_expr(relay.const(0.0)), {}, "llvm", LocalRunner())

    def built(self, records: Sequence[Pair]) -> GraphLibrary:
        library: Any = frozenset(pair[0].task.name for pair in records)  # Any: in place of a library
        return library  # type: ignore[no-any-return]

    def timed(self, library: GraphLibrary) -> Timed:
        given: Any = library  # Any: names of records, in place of a library

        def kernels() -> list[float]:
            time.sleep(1e-3)
            return [9.0 if "a" in given else 10.0, 11.0 if "b" in given else 10.0]

        return Timed(lambda number: 20.0, kernels, tuple(Kernel(n, f"f_{n}_{n in given}") for n in "ab"))


def test_a_measurement_leaves_time_for_those_behind_it() -> None:
    given = [MeasureInput(Target("llvm"), autotvm.Task(name, ()), ConfigEntity(0, None, {})) for name in "ab"]
    first, second = [(one, MeasureResult((9e-6,), 0, 1.0, 1.0)) for one in given]
    names = {one.task.workload: frozenset(name) for one, name in zip(given, "ab", strict=True)}
    verdict = check(Slow(), [first, second], 60.0, until=time.monotonic() + 1.0, names=names)
    assert verdict.kept == [first] and [pair for pair, _ in verdict.dropped] == [second]


def test_records_that_were_not_checked_for_lack_of_time_get_another_chance(tmp_path: Path) -> None:
    (task, other) = autotvm.task.extract_from_program(*network(tmp_path), "llvm")
    log, pairs = tmp_path / "net.log", [pair_of(task, 1, 2e-4), pair_of(other, 1, 3e-4)]
    reasons = (NO_TIME_LEFT, "end-to-end check: its kernels take longer")
    failures = [(g, replace_result(r, why)) for (g, r), why in zip(pairs, reasons, strict=True)]
    LogFile(log).append([encode(*pair) for pair in [*pairs, *failures]])
    _another_chance(log)
    _another_chance(log)
    rows = list(load_from_file(log))
    assert len(rows) == 5 and rows[-1][0].task.workload == task.workload and rows[-1][1].costs == (2e-4,)


def replace_result(result: MeasureResult, why: str) -> MeasureResult:
    return MeasureResult(result.costs, 8, result.all_cost, result.timestamp, why)
