"""`meta_schedule`: spaces of schedules over blocks are searched by AutoTVM, and their best traces kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import meta_schedule as ms
from armillary import relay, te, tir
from armillary.errors import ArmillaryError, ScheduleError

TARGET = "llvm -mcpu=native"
RNG = np.random.default_rng(4)


def _product(n: int = 32) -> tir.PrimFunc:
    k = te.reduce_axis((0, n), "k")
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return te.create_prim_func([a, b, te.compute((n, n), lambda i, j: te.max(c[i, j], 1.0), name="d")])


def _check(mod: armillary.IRModule, n: int = 32) -> None:
    x, y = RNG.random((n, n), dtype=np.float32), RNG.random((n, n), dtype=np.float32)
    out = np.zeros((n, n), np.float32)
    armillary.build(mod, target=TARGET)(x, y, out)
    np.testing.assert_allclose(out, np.maximum(x @ y, 1), rtol=1e-5)


def _runner() -> ms.runner.LocalRunner:
    how = ms.runner.EvaluatorConfig(number=1, repeat=1, min_repeat_ms=0)
    return ms.runner.LocalRunner(timeout_sec=20, evaluator_config=how)


def test_a_function_is_tuned_and_its_best_schedule_read_back(tmp_path: Path) -> None:
    func = _product()
    database = ms.tune_tir(func, TARGET, str(tmp_path), max_trials_global=3, runner=_runner(), strategy="replay-trace")
    again = ms.database.JSONDatabase(work_dir=str(tmp_path))
    assert len(again) == len(database) > 0
    schedule = ms.compile_tir(again, func, TARGET)
    assert schedule is not None
    assert "parallel" in str(schedule.mod)
    _check(schedule.mod)
    best = again.query_tuning_record(armillary.IRModule({"main": func}), TARGET)
    assert best is not None
    assert best.mean == min(r.mean for r in database.get_all_tuning_records())
    assert best.as_json() == json.loads(json.dumps(best.as_json()))
    assert ms.compile_tir(again, _product(16), TARGET) is None


def test_what_a_user_draws_is_what_is_searched() -> None:
    def space(s: tir.Schedule) -> None:
        s.compute_inline  # noqa: B018  (the schedule has the primitives of tir.Schedule)
        i, j, k = s.get_loops(s.get_block("c"))
        rows = s.sample_perfect_tile(i, n=2, max_innermost_factor=8)
        width = s.sample_categorical([8, 16], [0.5, 0.5])
        i0, i1 = s.split(i, rows)
        j0, j1 = s.split(j, [None, width])
        s.reorder(i0, j0, k, i1, j1)
        s.vectorize(j1)
        s.parallel(i0)

    context = ms.TuneContext(_product(), target=TARGET, space_generator=ms.space_generator.ScheduleFn(space))
    assert context.task.config_space.dims == [4, 2]
    strategy = ms.search_strategy.ReplayTrace()
    database = ms.tune_tir(
        _product(), TARGET, max_trials_global=4, space=space, strategy=strategy, runner=_runner(), database="memory"
    )
    assert len({str(r.trace.decisions.values()) for r in database.get_all_tuning_records()}) == 4
    with database:
        assert ms.database.Database.current() is database
    schedule = ms.compile_tir(database, _product(), TARGET)
    assert schedule is not None
    _check(schedule.mod)


def test_a_function_stands_for_records() -> None:
    def rows(s: tir.Schedule) -> bool:
        s.parallel(s.get_loops("c")[0])
        return True

    database = ms.database.ScheduleFnDatabase(rows)
    schedule = ms.compile_tir(database, _product(), TARGET)
    assert schedule is not None
    assert "parallel" in str(schedule.mod)
    _check(schedule.mod)


def test_other_functions_are_tiled_too() -> None:
    a = te.placeholder((6, 40), name="a")
    twice = te.compute((6, 40), lambda i, j: a[i, j] * 2, name="twice")
    func = te.create_prim_func([a, te.compute((6, 40), lambda i, j: twice[i, j] + 1, name="out")])
    (schedule,) = ms.TuneContext(func, target=TARGET).generate_design_space()
    x, y = RNG.random((6, 40), dtype=np.float32), np.zeros((6, 40), np.float32)
    armillary.build(schedule.mod, target=TARGET)(x, y)
    np.testing.assert_allclose(y, x * 2 + 1)


def test_a_network_is_tuned_by_its_tasks(tmp_path: Path) -> None:
    data, weight = relay.var("data", shape=(4, 16)), relay.const(RNG.random((8, 16), dtype=np.float32))
    mod = armillary.IRModule.from_expr(relay.nn.relu(relay.nn.dense(data, weight)))
    tasks = ms.relay_integration.extract_tasks(mod, TARGET, {})
    assert tasks and tasks[0].weight == 1 and "main" in dict(tasks[0].dispatched[0].items())
    database = ms.relay_integration.tune_relay(mod, {}, TARGET, str(tmp_path), 2, runner=_runner())
    assert len(database.network) > 0
    again = ms.database.JSONDatabase(work_dir=str(tmp_path))
    lib = ms.relay_integration.compile_relay(again, mod, TARGET, {})
    run = armillary.contrib.graph_executor.GraphModule(lib["default"](armillary.cpu()))
    x = RNG.random((4, 16), dtype=np.float32)
    run.run(data=x)
    np.testing.assert_allclose(run.get_output(0).numpy(), np.maximum(x @ weight.data.numpy().T, 0), rtol=1e-5)


def test_names_are_there_and_what_is_not_says_so(tmp_path: Path) -> None:
    assert ms.arg_info.ArgInfo.from_prim_func(_product())[0].as_json() == ["TENSOR", "float32", [32, 32]]
    assert ms.schedule_rule.MultiLevelTiling("SSRSRS").args == ("SSRSRS",)
    assert ms.Database.create("memory").has_workload(_product()) is False
    (tmp_path / "database_workload.json").write_text('["1234", "gASV"]\n')
    with pytest.raises(ArmillaryError, match="of another system"):
        ms.database.JSONDatabase(work_dir=str(tmp_path))
    with pytest.raises(ArmillaryError, match="no space"):
        ms.TuneContext(_product(), space_generator="dlight")
    with pytest.raises(ArmillaryError, match="tracker_host is not known"):
        ms.runner.RPCRunner(ms.runner.RPCConfig(tracker_port=1, tracker_key="a"))
    with pytest.raises(ScheduleError, match="no kind"):
        ms.Database.create("memory").query(armillary.IRModule({"main": _product()}), TARGET, kind="x")
