"""Tuners of graphs: the solver against all there is, and records of a network chosen together."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from armillary import autotvm, relay, te
from armillary.autotvm.errors import TuningError
from armillary.autotvm.graph_tuner import BaseGraphTuner, DPTuner, PBQPTuner
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.record import Pair, load_from_file
from armillary.autotvm.tuner.pairwise_costs import least, total
from armillary.base.aliases import Array
from armillary.base.dispatch import Workload
from armillary.contrib import graph_executor
from armillary.errors import ArmillaryError
from armillary.ir import IRModule
from armillary.relay.testing import create_workload
from armillary.runtime.device import cpu
from armillary.target.cpu import cpu_model

TARGET = "llvm"
CONV2D = relay.op.get("nn.conv2d")


def problem(
    random: np.random.Generator, nodes: int, density: float
) -> tuple[dict[int, list[float]], dict[tuple[int, int], Array]]:
    sizes = random.integers(1, 4, nodes)
    costs = {n: list(random.uniform(0, 1, sizes[n])) for n in range(nodes)}
    pairs = {
        (a, b): random.uniform(0, 1, (sizes[a], sizes[b]))
        for a in range(nodes)
        for b in range(nodes)
        if random.uniform() < density
    }
    return costs, pairs


@pytest.mark.parametrize("seed", range(20))
def test_elimination_finds_what_trying_all_finds(seed: int) -> None:
    random = np.random.default_rng(seed)
    costs, pairs = problem(random, 6, 0.3)
    every = itertools.product(*(range(len(row)) for row in costs.values()))
    best = min(total(costs, pairs, dict(zip(costs, choice, strict=True))) for choice in every)
    assert total(costs, pairs, least(costs, pairs)) == pytest.approx(best)
    for limit in (0, 1, 2):
        found = total(costs, pairs, least(costs, pairs, most_neighbours=limit))
        assert found >= best - 1e-9
    assert total(costs, pairs, least(costs, pairs, most_entries=1)) >= best - 1e-9


def test_two_neighbours_are_enough_for_a_ring() -> None:
    random = np.random.default_rng(3)
    costs = {n: list(random.uniform(0, 1, 3)) for n in range(8)}
    pairs = {(n, (n + 1) % 8): random.uniform(0, 1, (3, 3)) for n in range(8)}
    exact = total(costs, pairs, least(costs, pairs))
    assert total(costs, pairs, least(costs, pairs, most_neighbours=2)) == pytest.approx(exact)


def network() -> tuple[IRModule, dict[str, object]]:
    """Three convolutions in a row; what the first gives is added to what the last gives."""
    x = relay.var("data", shape=(1, 32, 14, 14))
    y, first = x, None
    for number, width in enumerate((64, 96, 64)):
        y = relay.nn.conv2d(y, relay.var(f"w{number}_weight"), channels=width, kernel_size=(1, 1))
        y = relay.nn.relu(y)
        first = first if first is not None else y
    y = relay.add(y, first)
    return create_workload(relay.Function(relay.analysis.free_vars(y), y))


@pytest.fixture(scope="module")
def tasks() -> list[autotvm.Task]:
    mod, params = network()
    return autotvm.task.extract_from_program(mod, params, TARGET, ops=[CONV2D])


def records(tasks: list[autotvm.Task], seconds: dict[bool, float]) -> list[Pair]:
    """Of each task a record in its own blocks, and one in the narrowest others, with what they take."""
    made = []
    for task in tasks:
        space, seen = task.config_space, set()
        own = [space.get(index) for index, _ in task.template.estimates(task)]
        for config in own:
            blocks = config["data_block"].val, config["result_block"].val
            if blocks[0] == blocks[1] and blocks not in seen:
                is_own = not seen
                seen.add(blocks)
                made.append((MeasureInput(task.target, task, config), MeasureResult((seconds[is_own],), 0, 0.1, 0.0)))
    return made


def blocks_of(pairs: list[Pair]) -> set[tuple[int, int]]:
    return {(given.config["data_block"].val, given.config["result_block"].val) for given, _ in pairs}


@pytest.mark.parametrize("kind", [DPTuner, PBQPTuner])
def test_what_its_neighbours_need_is_chosen(
    kind: type[BaseGraphTuner], tasks: list[autotvm.Task], tmp_path: Path
) -> None:
    mod, _ = network()
    own = {task.workload[1][1][-1] for task in tasks}
    move = 4 * 64 * 14 * 14 / 8 / cpu_model(tasks[0].target).memory.ghz * 1e-9  # of a change of layout, by the model
    # A trial of other blocks has paid for two changes: 2 to 3 moves above the own, and faster without them.
    log = tmp_path / "all.log"
    given = records(tasks, {True: 10 * move, False: 9.9 * move})
    log.write_text("".join(autotvm.record.encode(*pair) + "\n" for pair in given))
    tuner = kind(mod["main"], {"data": (1, 32, 14, 14)}, str(log), [CONV2D], TARGET)
    with pytest.raises(TuningError, match=r"call run\(\) first"):
        tuner.get_optimal_records()
    tuner.run()
    chosen = tuner.get_optimal_records()
    assert {pair[0].task.workload for pair in chosen} == {task.workload for task in tasks}
    assert not blocks_of(chosen) & {(block, block) for block in own}, "faster in other blocks, all together"
    slow = kind(mod, {"data": (1, 32, 14, 14)}, records(tasks, {True: 10 * move, False: 14 * move}), [CONV2D], TARGET)
    slow.run()
    assert blocks_of(slow.get_optimal_records()) <= {(block, block) for block in own}
    out = tmp_path / "best.log"
    tuner.write_opt_sch2record_file(out)
    assert len(list(load_from_file(out))) == len(tasks)


def test_a_network_with_the_chosen_records_gives_the_same(tasks: list[autotvm.Task], tmp_path: Path) -> None:
    mod, params = network()
    tuner = DPTuner(mod["main"], {"data": (1, 32, 14, 14)}, records(tasks, {True: 1e-3, False: 1e-5}), [CONV2D], TARGET)
    tuner.benchmark_layout_transform(min_exec_num=3)
    timed = tuner.layout_transform_perf_records
    assert timed and all(0 < result.costs[0] < 1 for _, result in timed.values())
    tuner.run()
    log = tmp_path / "best.log"
    tuner.write_opt_sch2record_file(log)
    x = np.random.default_rng(0).standard_normal((1, 32, 14, 14)).astype("float32")

    def result() -> Array:
        graph = graph_executor.GraphModule(relay.build(mod, TARGET, params=params)["default"](cpu(0)))
        graph.run(data=x)
        return graph.get_output(0).numpy()

    wanted = result()
    with autotvm.apply_graph_best(str(log)):
        np.testing.assert_allclose(result(), wanted, rtol=1e-4, atol=1e-4)


def test_changes_of_layout_are_taken_from_records_or_as_long_for_an_element(tasks: list[autotvm.Task]) -> None:
    mod, shapes = network()[0], {"data": (1, 32, 14, 14)}
    given = records(tasks, {True: 1e-3, False: 1e-5})

    def tuned(*log: Pair, infer_layout: bool) -> dict[Workload, Pair]:
        tuner = DPTuner(mod, shapes, given, [CONV2D], TARGET)
        tuner.benchmark_layout_transform(min_exec_num=1, layout_records=log, infer_layout=infer_layout)
        return tuner.layout_transform_perf_records

    arguments = [te.placeholder((1, 64, 16, 16, 8), dtype="float32"), "NCHW8c", "NCHW512c"]
    task = autotvm.task.create("layout_transform", arguments, TARGET)
    known = MeasureInput(task.target, task, task.config_space.get(0)), MeasureResult((2e-5,), 0, 0.1, 0.0)
    inferred = tuned(known, infer_layout=True)
    assert inferred
    for workload, (_, result) in inferred.items():
        assert result.costs[0] == pytest.approx(np.prod(workload[1][1]) * 2e-5 / (64 * 16 * 16 * 8))
    workload, (own, _) = next(iter(inferred.items()))
    taken = tuned((own, MeasureResult((0.5,), 0, 0.5, 0.0)), infer_layout=False)
    assert taken[workload][1].costs == (0.5,) and max(r.costs[0] for w, (_, r) in taken.items() if w != workload) < 0.5


def test_what_cannot_be_chosen_from_is_named(tasks: list[autotvm.Task]) -> None:
    mod, shapes = network()[0], {"data": (1, 32, 14, 14)}
    with pytest.raises(TuningError, match="none of 0 records is of one of the 3 tasks"):
        DPTuner(mod, shapes, [], [CONV2D], TARGET).run()
    with pytest.raises(TuningError, match="no input 'x'"):
        DPTuner(mod, {"x": (1, 3, 8, 8)}, [], [CONV2D], TARGET)
    with pytest.raises(TuningError, match="not chosen for the target opencl"):
        PBQPTuner(mod, shapes, [], [CONV2D], "opencl")
    with pytest.raises(TuningError, match=r"nn\.relu is not tuned"):
        PBQPTuner(mod, shapes, [], [relay.op.get("nn.relu")], TARGET)
    with pytest.raises(ArmillaryError, match="graph is str"):
        DPTuner("graph", shapes, [], [CONV2D], TARGET)  # type: ignore[arg-type]
