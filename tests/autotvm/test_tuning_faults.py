"""What breaks while tuning: servers, trackers, tuners that are killed. No trial is lost, no lease, no record wrong."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import killed_tuners
import pytest
import templates  # noqa: F401  (registers templates)
from analytic import by_formula
from killed_tuners import kill_tuners, matmul

from armillary import autotvm, rpc
from armillary.autotvm import record
from armillary.autotvm.measure import rpc_runner
from armillary.autotvm.measure.measure import MeasureErrorNo, MeasureInput, create_measure_batch
from armillary.autotvm.tuner import RandomTuner
from armillary.errors import ArtifactError, RPCError, Span
from armillary.rpc.launch import Launched, Server, Tracker

HOST, KEY = "127.0.0.1", "board"


def until(condition: Any) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.05)


class Farm:
    """A tracker and two servers."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.stack = stack
        self.tracker: Launched = Tracker()
        self.port = self.tracker.port
        stack.callback(lambda: self.tracker.terminate())
        self.servers = [Server(key=KEY, tracker_addr=(HOST, self.port)) for _ in range(2)]
        for server in self.servers:
            stack.callback(server.terminate)
        self.client = rpc.connect_tracker(HOST, self.port)
        self.until(lambda: self.states() == ["free", "free"])

    def states(self) -> list[str]:
        return sorted(row["state"] for row in self.client.summary()["server_info"])

    until = staticmethod(until)

    def option(self, *, number: int = 1) -> Any:
        runner = autotvm.RPCRunner(KEY, HOST, self.port, timeout=60, number=number, repeat=1, cooldown_interval=0)
        return autotvm.measure_option(autotvm.LocalBuilder(timeout=60, n_parallel=1), runner)


@pytest.fixture
def farm() -> Iterator[Farm]:
    with contextlib.ExitStack() as stack:
        yield Farm(stack)


def test_a_server_that_is_killed_in_a_trial_costs_an_attempt_and_no_trial(
    farm: Farm, caplog: pytest.LogCaptureFixture
) -> None:
    task = matmul(64)
    batch = create_measure_batch(task, farm.option(number=400_000))  # a minute and more: it is killed before that

    def kill() -> None:
        farm.until(lambda: "busy" in farm.states())
        time.sleep(1.0)
        busy = [r["addr"][1] for r in farm.client.summary()["server_info"] if r["state"] == "busy"]
        batch.runner.timing["number"] = 1  # type: ignore[attr-defined]  # for the other attempt
        next(s for s in farm.servers if s.port in busy).process.kill()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    (result,) = batch([MeasureInput(task.target, task, task.config_space.get(3))])
    killer.join(60)
    batch.close()
    assert (result.error_no, result.error) == (0, "") and "runs again on another device" in caplog.text
    farm.until(lambda: farm.states() == ["free"])


def test_a_device_that_is_lost_each_time_is_the_result_of_the_trial(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, seen = matmul(16), list[int]()
    batch = create_measure_batch(task, farm.option())

    def lose(session: Any, path: str, trial: Any) -> list[float]:
        seen.append(1)
        session._transport.close()
        session.upload(path)
        return []

    monkeypatch.setattr(batch.runner, "_on_device", lose)
    (result,) = batch([MeasureInput(task.target, task, task.config_space.get(3))])
    batch.close()
    assert result.error_no == MeasureErrorNo.RUNTIME_DEVICE and len(seen) == rpc_runner.ATTEMPTS
    farm.until(lambda: farm.states() == ["free", "free"])


def test_tuning_goes_on_when_the_tracker_is_restarted(farm: Farm, tmp_path: Path) -> None:
    log, trackers = tmp_path / "log", list[Launched]()

    def restart(tuner: Any, inputs: Any, results: Any) -> None:
        if not trackers:
            farm.tracker.process.kill()
            farm.tracker.process.wait(10)
            trackers.append(Launched("rpc_tracker", f"--port={farm.port}"))

    tuner = RandomTuner(matmul(16), seed=1)
    tuner.tune(4, farm.option(), callbacks=[restart, autotvm.callback.log_to_file(str(log))])
    farm.stack.callback(trackers[0].terminate)
    found = list(record.load_from_file(log))
    assert [result.error for _, result in found] == [""] * 4
    farm.until(lambda: farm.states() == ["free", "free"])


def test_a_tracker_that_stays_away_is_an_error_and_no_trial_is_logged(
    farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_runner, "PATIENCE", 0.5)
    log = tmp_path / "log"

    def end(tuner: Any, inputs: Any, results: Any) -> None:
        farm.tracker.process.kill()
        farm.tracker.process.wait(10)

    tuner = RandomTuner(matmul(16), seed=1)
    with pytest.raises(RPCError, match="cannot connect"):
        tuner.tune(9, farm.option(), callbacks=[autotvm.callback.log_to_file(str(log)), end])
    assert [result.error for _, result in record.load_from_file(log)] == [""]


_TUNES = """
import sys
sys.path.insert(0, sys.argv[1])
import templates
from armillary import autotvm
task = autotvm.task.create("test/matmul", (8, 8, 8, "float32"), "llvm")
tuner = autotvm.tuner.RandomTuner(task, seed=int(sys.argv[3]))
option = autotvm.measure_option(
    autotvm.LocalBuilder(n_parallel=1, timeout=60), autotvm.LocalRunner(number=1, repeat=1, cooldown_interval=0))
tuner.tune(4, option, callbacks=[autotvm.callback.log_to_file(sys.argv[2])])
"""


def test_two_tuners_share_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    start = [sys.executable, "-c", _TUNES, str(Path(__file__).parent), str(log)]
    both = [subprocess.Popen([*start, str(seed)]) for seed in (1, 2)]
    assert [process.wait(300) for process in both] == [0, 0]
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(rows) == 8 and len(list(record.load_from_file(log))) == 8
    (best,) = record.best_of(record.load_from_file(log))
    assert best[1].mean == min(row["result"][0][0] for row in rows)


_PARTS = 16  # of the 1,000 kills: any of them can run elsewhere, beside the others


@pytest.mark.parametrize(
    ("part", "kills"), [(0, 12), *(pytest.param(n, 1000 // _PARTS + 1, marks=pytest.mark.slow) for n in range(_PARTS))]
)
def test_a_tuner_may_be_killed_at_any_time(part: int, kills: int, tmp_path: Path) -> None:
    toll = kill_tuners(kills, 5 + part, tmp_path)
    assert toll.killed + toll.done == kills and 2 * toll.killed > kills, toll
    assert toll.trials >= kills // 2, toll


@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_a_program_that_tunes_may_be_killed_at_any_time_and_leaves_no_process(kills: int, tmp_path: Path) -> None:
    toll = kill_tuners(kills, 5, tmp_path, compiles=True)
    assert toll.killed and toll.trials, toll


_HANGS = """
import sys
sys.path.insert(0, sys.argv[1])
import templates
from armillary import autotvm
from armillary.autotvm.measure.measure import MeasureInput, create_measure_batch
task = autotvm.task.create("test/faulty", ("compiler hangs",), "llvm")
batch = create_measure_batch(task, autotvm.measure_option(autotvm.LocalBuilder(n_parallel=1, timeout=900), "local"))
print("begins", flush=True)
batch([MeasureInput(task.target, task, task.config_space.get(1))])
"""


def test_a_build_that_hangs_ends_with_the_tuner_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HANGS, str(Path(__file__).parent)]
    env = os.environ | {killed_tuners.MARK: str(tmp_path)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as tuner:
        assert tuner.stdout is not None and tuner.stdout.readline() == "begins\n"

        def builds() -> int:
            return sum("compiler hangs" in command for command in killed_tuners.left_over(tmp_path))

        until(lambda: builds() == 2)  # the tuner and its fork, which sleeps for a minute
        begin = time.monotonic()
        tuner.kill()
        until(lambda: not killed_tuners.left_over(tmp_path))
        assert time.monotonic() - begin < 40


def disk_is_full(output: str, objects: list[str], options: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), output)


def test_a_disk_without_room_for_builds_ends_tuning_and_is_no_result_of_a_trial(tmp_path: Path) -> None:
    log, builder = tmp_path / "log", autotvm.LocalBuilder(n_parallel=1, timeout=60)
    option = autotvm.measure_option(builder, autotvm.LocalRunner(number=1, repeat=1, cooldown_interval=0, timeout=60))

    def fill(tuner: Any, inputs: Any, results: Any) -> None:
        builder.build_func = disk_is_full

    tuner = autotvm.tuner.GridSearchTuner(matmul(16))
    with pytest.raises(ArtifactError, match=r"trials cannot be made: .*No space left on device\n.*hint: make room"):
        tuner.tune(4, option, callbacks=[autotvm.callback.log_to_file(log), fill])
    assert [result.error for _, result in record.load_from_file(log)] == [""]
    again = autotvm.tuner.GridSearchTuner(matmul(16))
    assert again.resume(record.load_from_file(log)) == 1
    builder.build_func = None
    again.tune(3, option, callbacks=[autotvm.callback.log_to_file(log)])
    assert [result.error for _, result in record.load_from_file(log)] == [""] * 3


def test_a_device_without_room_costs_attempts_and_then_ends_tuning(
    farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, full, log = matmul(16), [False, True, False, *[True] * 9], tmp_path / "log"
    option = farm.option()
    runner, attempts = option["runner"], iter(full)
    on_device = runner._on_device

    def full_or_not(session: Any, path: str, trial: Any) -> list[float]:
        if next(attempts):
            session.close()
            raise ArtifactError("the device refuses: No space left on device", span=Span(path))
        return list(on_device(session, path, trial))

    monkeypatch.setattr(runner, "_on_device", full_or_not)
    monkeypatch.setattr(option["builder"], "n_parallel", 1)
    with pytest.raises(ArtifactError, match=r"be made: 127\.0\.0\.1:\d+: the device refuses: No space left on device"):
        autotvm.tuner.GridSearchTuner(task).tune(5, option, callbacks=[autotvm.callback.log_to_file(log)])
    assert [result.error for _, result in record.load_from_file(log)] == [""] * 2
    assert len(list(attempts)) == 12 - 3 - rpc_runner.ATTEMPTS
    farm.until(lambda: farm.states() == ["free", "free"])


def test_a_full_disk_ends_tuning_with_an_error_and_resume_goes_on(tmp_path: Path) -> None:
    log, room = tmp_path / "log", 3
    script = f"""
import resource, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import templates
from analytic import by_formula
from killed_tuners import kill_tuners, matmul
from armillary import autotvm
task = autotvm.task.create("test/matmul", (8, 8, 8, "float32"), "llvm")
line = len(autotvm.record.encode(
    autotvm.MeasureInput(task.target, task, task.config_space.get(15)), autotvm.MeasureResult((1e-3,), 0, 0.0, 1e9)))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({room} * (line + 40), resource.RLIM_INFINITY))
option = by_formula(lambda config: 1e-3)
option["builder"].n_parallel = 1
autotvm.tuner.GridSearchTuner(task).tune(16, option, callbacks=[autotvm.callback.log_to_file({str(log)!r})])
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1 and ArtifactError.__name__ in ended.stderr and "cannot write" in ended.stderr
    text = log.read_text()
    assert text.endswith("\n") and 1 <= text.count("\n") <= room + 1
    task = autotvm.task.create("test/matmul", (8, 8, 8, "float32"), "llvm")
    tuner = autotvm.tuner.GridSearchTuner(task)
    assert tuner.resume(record.load_from_file(log)) == text.count("\n")
    tuner.tune(16, by_formula(lambda config: 1e-3), callbacks=[autotvm.callback.log_to_file(str(log))])
    assert log.read_text().startswith(text)
    assert sorted(given.config.index for given, _ in record.load_from_file(log)) == list(range(16))
