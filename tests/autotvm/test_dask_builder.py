"""Builds on a Dask cluster: as those here, one trial for a crash or a timeout, a retry for a worker that dies."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import templates

from armillary import autotvm, relay
from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureErrorNo, MeasureInput, create_measure_batch
from armillary.autotvm.tuner.feature_reader import FeatureReader
from armillary.autotvm.tuner.xgb_tuner import XGBTuner

if os.environ.get("CI") != "true":
    pytest.importorskip("distributed", reason="the extra cluster is not installed")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two workers, processes of this machine, which know the templates by value."""
    import cloudpickle
    import distributed

    for module in (templates, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as made,
    ):
        yield made


def convolution() -> autotvm.Task:
    x = relay.var("x", shape=(1, 16, 14, 14))
    w = relay.const(np.random.default_rng(0).random((16, 16, 3, 3), "float32"))
    body = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1), kernel_size=(3, 3), channels=16))
    (task,) = autotvm.task.extract_from_program(relay.Function([x], body), target="llvm")
    return task


def inputs(task: autotvm.Task, count: int) -> list[MeasureInput]:
    indices = task.config_space.valid_indices()[:count]
    return [MeasureInput(task.target, task, task.config_space.get(int(i))) for i in indices]


def test_trials_of_a_network_are_compiled_there_and_run_here(client: Any) -> None:
    task = convolution()
    assert task.around is not None, "its kernel has a relu"
    runner = autotvm.LocalRunner(number=1, repeat=1, cooldown_interval=0)
    builder = autotvm.DaskBuilder(client, timeout=60)
    assert builder.n_parallel == 2
    batch = create_measure_batch(task, autotvm.measure_option(builder, runner))
    results = batch(inputs(task, 3))
    batch.close()
    assert [r.error for r in results] == [""] * 3 and all(0 < r.mean < 1 for r in results)


def test_an_address_is_enough_and_an_error_of_the_compiler_costs_one_trial(client: Any) -> None:
    task = convolution()
    good, bad = inputs(task, 2)
    del bad.config.entity_map["rows"]
    builder = autotvm.DaskBuilder(client.scheduler.address, timeout=60)
    builder.set_task(task)
    first, second = builder.build([bad, good])
    assert (first.error_no, second.error_no) == (MeasureErrorNo.COMPILE_HOST, 0) and "other knobs" in first.error
    late = autotvm.DaskBuilder(client, timeout=0.001)
    (result,) = late.build([good])
    assert result.error_no == MeasureErrorNo.BUILD_TIMEOUT and "longer than 0.001 s" in result.error
    builder.close()
    builder.client.close()


def test_a_worker_that_dies_costs_a_retry(client: Any) -> None:
    task = convolution()
    before = set(client.run(os.getpid).values())
    killed: list[int] = []

    def kill() -> None:
        time.sleep(0.7)
        killed.append(min(before))
        os.kill(min(before), 9)

    builder = autotvm.DaskBuilder(client, timeout=60)
    builder.set_task(task)
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    results = builder.build(inputs(task, 6))
    killer.join(60)
    assert [r.error for r in results] == [""] * 6 and all(os.path.getsize(r.filename) for r in results)
    assert len({r.filename for r in results}) == 6 and killed
    client.wait_for_workers(2, timeout=60)
    assert set(client.run(os.getpid).values()) != before
    builder.close()


def test_a_search_of_the_trees_reads_features_there_and_finds_the_same(client: Any) -> None:
    pytest.importorskip("xgboost")
    task, builder = convolution(), autotvm.DaskBuilder(client, timeout=60)
    assert os.getpid() not in builder.spread(_process_of, range(4)), "it is computed on workers"
    indices = [int(i) for i in task.config_space.valid_indices()[:10]]
    there, here = FeatureReader(task, "itervar"), FeatureReader(task, "itervar")
    asked: list[int] = []

    def spread(function: Any, works: Any) -> list[Any]:
        asked.extend(index for _, _, part in works for index in part)
        return builder.spread(function, works)

    there.spread = spread
    there.ahead(indices)
    assert asked == indices
    for index in indices:
        np.testing.assert_array_equal(there(index), here(index))
    there.ahead(indices)
    assert asked == indices, "each is computed once"
    tuner = XGBTuner(task, feature_type="itervar")
    tuner.tune(1, autotvm.measure_option(builder, autotvm.LocalRunner(number=1, repeat=1, cooldown_interval=0)))
    assert tuner.read.spread == builder.spread


def test_a_part_of_a_search_whose_worker_dies_is_tried_again_and_one_that_fails_is_done_here(
    client: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    builder = autotvm.DaskBuilder(client, timeout=60)
    assert builder.spread(_dying_once, [str(tmp_path / "died")]) == [1]
    assert builder.spread(_failing, [0, 1]) == [None, 1]
    assert "is done here, not on the cluster: " in caplog.text


def _process_of(place: int) -> int:
    return os.getpid()


def _dying_once(path: str) -> int:
    if not os.path.exists(path):
        Path(path).touch()
        os._exit(1)
    return 1


def _failing(place: int) -> float:
    return 1 / place


def test_a_cluster_without_workers_is_an_error() -> None:
    class Nobody:
        def nthreads(self) -> dict[str, int]:
            return {}

    with pytest.raises(TuningError, match="has no workers"):
        autotvm.DaskBuilder(Nobody())
