"""Whatever a trial does, it costs itself: its number and text say what happened, and the next trial runs."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import templates  # noqa: F401  (registers templates)

from armillary import autotvm, runtime
from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure import processes
from armillary.autotvm.measure.local_runner import FLUSH
from armillary.autotvm.measure.measure import MeasureErrorNo, MeasureInput, MeasureResult, create_measure_batch
from armillary.autotvm.measure.trial import Prepared, prepare, times
from armillary.runtime.benchmark import Timing
from tests.autotvm.test_network_check import the_task


def measure(task: autotvm.Task, indices: list[int], seconds: float = 10) -> list[MeasureResult]:
    runner = autotvm.LocalRunner(timeout=seconds, number=1, repeat=1, cooldown_interval=0)
    builder = autotvm.LocalBuilder(timeout=seconds, n_parallel=1)
    batch = create_measure_batch(task, autotvm.measure_option(builder, runner))
    try:
        inputs = [MeasureInput(task.target, task, task.config_space.get(i)) for i in indices]
        return batch(inputs)
    finally:
        batch.close()


@pytest.mark.parametrize(
    ("kind", "error", "told"),
    [
        ("refuses", MeasureErrorNo.INSTANTIATION_ERROR, "this is not what the template does"),
        ("raises", MeasureErrorNo.INSTANTIATION_ERROR, "ValueError: a defect of the template"),
        ("compiler dies", MeasureErrorNo.COMPILE_HOST, "while compiling, the process died of SIGSEGV"),
        ("compiler hangs", MeasureErrorNo.BUILD_TIMEOUT, "compiling took longer than 4 s and was stopped"),
        ("answers wrongly", MeasureErrorNo.WRONG_ANSWER, "in 1 of 32 elements; at (3,): 1000, wanted"),
        ("crashes", MeasureErrorNo.RUNTIME_DEVICE, "the process died of SIGSEGV (signal 11)"),
        ("hangs", MeasureErrorNo.RUN_TIMEOUT, "it ran longer than 4 s and was killed"),
    ],
)
def test_a_failure_costs_one_trial_and_says_what_it_was(kind: str, error: MeasureErrorNo, told: str) -> None:
    task = autotvm.task.create("test/faulty", (kind,), "llvm")
    bad, good = measure(task, [1, 0], 4 if "hangs" in kind else 20)
    assert (bad.error_no, bad.costs) == (error, ()) and told in bad.error
    assert good.error_no == 0 and len(good.costs) == 1 and 0 < good.costs[0] < 1, good.error


def test_of_three_or_more_repeats_the_extremes_are_left_out() -> None:
    task = autotvm.task.create("test/matmul", (16, 16, 16, "float32"), "llvm")
    runner = autotvm.LocalRunner(number=2, repeat=5, cooldown_interval=0, enable_cpu_cache_flush=True)
    batch = create_measure_batch(task, autotvm.measure_option("local", runner))
    (found,) = batch([MeasureInput(task.target, task, task.config_space.get(3))])
    batch.close()
    assert found.error_no == 0 and len(found.costs) == 3 and found.mean == pytest.approx(sum(found.costs) / 3)


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    question = asked["question"]
    if question == "crash":
        os.write(1, b"the last words")
        os.kill(os.getpid(), signal.SIGSEGV)
    if question == "hang":
        time.sleep(60)
    return {"pid": os.getpid(), "question": question}


def test_threads_are_awake_when_a_trial_is_timed() -> None:
    done = list[str]()

    def timed(number: int) -> float:
        done.append("timed")
        return 1e-3

    prepared = Prepared(
        lambda: None, timed, list, lambda: done.append("inputs touched"), lambda: done.append("threads woken")
    )
    times([prepared], Timing(number=1, repeat=2, f_preproc=FLUSH))
    assert done == ["inputs touched", "threads woken", "timed"] * 3, "the first is the untimed one"


def test_other_memory_than_that_of_a_trial_wakes_its_threads(tmp_path: Path) -> None:
    task = the_task()
    library = task.template.library(task, task.config_space.get(task.template.estimates(task)[0][0]))
    library.export_library(tmp_path / "trial.so")
    before = runtime.num_threads()
    try:
        runtime.config_threadpool(0, 2)
        prepared = prepare(str(tmp_path / "trial.so"))
        assert prepared.wake.__self__ is not prepared.run.__self__  # type: ignore[attr-defined]  # methods
        prepared.wake()
        runtime.config_threadpool(0, 1)
        assert prepare(str(tmp_path / "trial.so")).wake() is None, "one thread is always awake"
    finally:
        runtime.config_threadpool(0, before)


def test_a_process_that_is_kept_answers_until_a_trial_ends_it() -> None:
    for last, how in (("crash", "died of SIGSEGV (signal 11); it wrote: the last words"), ("hang", "timeout")):
        kept = processes.Kept(_answer)
        rows = [kept.ask({"question": word}, 10) for word in ("one", "two")]
        assert rows == [({"pid": kept.pid, "question": word}, "") for word in ("one", "two")]
        answer, told = kept.ask({"question": last}, 10 if last == "crash" else 0.2)
        assert answer is None and how in told
        with pytest.raises(ProcessLookupError):
            os.kill(kept.pid, 0)
    kept = processes.Kept(_answer)
    assert "the process" in kept.end()


def test_processes_that_are_kept_share_questions_and_those_that_end_leave_the_pool() -> None:
    pool = [processes.Kept(_answer) for _ in range(3)]
    processes.ask_all(pool, [{"question": str(n)} for n in range(9)], 20)
    assert len(pool) == 3 and sum(kept.asked for kept in pool) == 9 and min(kept.asked for kept in pool) > 0
    processes.ask_all(pool, [{"question": word} for word in ("1", "crash", "hang")], 1)
    assert len(pool) == 1 and pool[0].ask({"question": "more"}, 10)[1] == ""
    pool[0].end()


@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_other_types_are_checked_too(dtype: str) -> None:
    task = autotvm.task.create("test/matmul", (8, 8, 8, dtype), "llvm")
    assert measure(task, [5])[0].error_no == 0


def test_a_process_that_runs_trials_and_dies_is_started_again() -> None:
    task = autotvm.task.create("test/matmul", (8, 8, 8, "float32"), "llvm")
    runner = autotvm.LocalRunner(number=1, repeat=1, cooldown_interval=0)
    batch = create_measure_batch(task, autotvm.measure_option("local", runner))
    given = [MeasureInput(task.target, task, task.config_space.get(1))]
    assert batch(given)[0].error_no == 0
    assert runner._server is not None
    runner._server.kill()
    runner._server.wait(20)
    assert batch(given)[0].error_no == 0
    batch.close()


def test_options_that_cannot_be_are_refused() -> None:
    with pytest.raises(TuningError, match="timeout=0"):
        autotvm.LocalRunner(timeout=0)
    with pytest.raises(TuningError, match="unknown build_func 'gcc'"):
        autotvm.LocalBuilder(build_func="gcc")
    with pytest.raises(TuningError, match="unknown runner 'remote'"):
        autotvm.measure_option(runner="remote")


def test_trials_get_the_arguments_that_a_runner_is_given() -> None:
    task = autotvm.task.create("test/matmul", (16, 16, 16, "float32"), "llvm")
    runner = autotvm.LocalRunner(number=1, repeat=1, cooldown_interval=0)
    batch = create_measure_batch(task, autotvm.measure_option("local", runner))
    runner.ref_input = [np.ones((16, 16), "float32")] * 3
    (right,) = batch([MeasureInput(task.target, task, task.config_space.get(3))])
    runner.ref_input = [np.ones((16, 8), "float32")] * 3
    (wrong,) = batch([MeasureInput(task.target, task, task.config_space.get(3))])
    batch.close()
    assert right.error_no == 0
    assert "ref_input has float32 (16, 8)" in wrong.error


def test_trials_are_submitted_to_an_executor_that_a_runner_is_given() -> None:
    task = autotvm.task.create("test/matmul", (16, 16, 16, "float32"), "llvm")
    runner = autotvm.LocalRunner(number=1, repeat=1, cooldown_interval=0)
    submitted = []

    class Counted(autotvm.measure.executor.Executor):
        def submit(self, func: Any, *args: object, **kwargs: object) -> Future[MeasureResult]:
            submitted.append(args)
            future: Future[MeasureResult] = Future()
            future.set_result(func(*args, **kwargs))
            return future

    runner.executor = Counted()
    batch = create_measure_batch(task, autotvm.measure_option("local", runner))
    (result,) = batch([MeasureInput(task.target, task, task.config_space.get(3))])
    batch.close()
    assert result.error_no == 0
    assert len(submitted) == 1
