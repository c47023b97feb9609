"""Tuners measure each configuration once, stop where they should, repeat themselves by seed and go on from a log."""

from __future__ import annotations

import argparse
import io
import logging
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import templates  # noqa: F401  (registers templates)
from analytic import by_formula

from armillary import autotvm
from armillary.autotvm import record
from armillary.autotvm.errors import TuningError
from armillary.autotvm.tuner import DropletTuner, GATuner, GridSearchTuner, RandomTuner
from armillary.autotvm.tuner.finals import finals
from armillary.autotvm.tuner.gains import Gains
from armillary.autotvm.tuner.shared_time import tune_together
from armillary.cli.tune import _go_on

TUNERS = [RandomTuner, GridSearchTuner, GATuner]


def task(n: int = 64) -> autotvm.Task:
    return autotvm.task.create("test/matmul", (n, n, n, "float32"), "llvm")


def seconds(config: Any) -> float:
    """Least at tiles of 16 x 8."""
    y, x = config["tile_y"].size[-1], config["tile_x"].size[-1]
    return float(1e-3 * (1 + abs(y - 16) / 16 + abs(x - 8) / 8))


@pytest.mark.parametrize("kind", TUNERS)
def test_every_configuration_is_measured_once_and_the_best_is_found(kind: Any) -> None:
    option = by_formula(seconds)
    tuner = kind(task())
    tuner.tune(1000, option)
    assert sorted(option["runner"].seen) == list(range(49)) and tuner.trials == 49
    assert (tuner.best_config["tile_y"].size, tuner.best_config["tile_x"].size) == ((-1, 16), (-1, 8))
    assert tuner.best_flops == pytest.approx(task().flop / 1e-3)


@pytest.mark.parametrize("kind", TUNERS)
def test_a_seed_repeats_itself_and_another_does_not(kind: Any) -> None:
    orders = []
    for seed in (1, 1, 2):
        option = by_formula(seconds)
        kind(task(), seed=seed).tune(20, option)
        orders.append(option["runner"].seen)
    assert orders[0] == orders[1] and (orders[0] != orders[2] or kind is GridSearchTuner)


@pytest.mark.parametrize("kind", TUNERS)
def test_a_tuner_goes_on_from_a_log(kind: Any, tmp_path: Path) -> None:
    log = str(tmp_path / "t.log")
    kind(task()).tune(20, by_formula(seconds), callbacks=[autotvm.callback.log_to_file(log, fsync=False)])
    again, option = kind(task(), seed=5), by_formula(seconds)
    assert again.resume(record.load_from_file(log)) == 20
    again.tune(1000, option, callbacks=[autotvm.callback.log_to_file(log, fsync=False)])
    indices = [given.config.index for given, _ in record.load_from_file(log)]
    assert len(option["runner"].seen) == 29 and sorted(indices) == list(range(49))
    assert again.best_config["tile_y"].size == (-1, 16)


def test_descent_finds_the_best_of_a_valley_in_few_trials_and_moves_beyond_noise_only() -> None:
    option, tuner = by_formula(seconds), DropletTuner(task(), start_position=[0, 0])
    tuner.tune(1000, option)
    assert tuner.best_config["tile_y"].size == (-1, 16) and tuner.best_config["tile_x"].size == (-1, 8)
    first = option["runner"].seen.index(tuner.best_config.index)
    assert first < 24  # half of the space
    assert tuner._is_faster((1.0, 1.01, 0.99), (1.2, 1.21, 1.19)) and not tuner._is_faster((1.0, 1.4), (1.3, 1.15))
    with pytest.raises(TuningError, match=r"start_position=\[9, 0\]"):
        DropletTuner(task(), start_position=[9, 0])


def test_early_stopping_counts_from_the_best() -> None:
    tuner = GridSearchTuner(task())
    tuner.tune(49, by_formula(lambda config: 1.0 if config.index else 0.5), early_stopping=8)
    assert (tuner.best_iter, tuner.trials) == (1, 12)  # batches of four


def test_a_deadline_ends_tuning() -> None:
    tuner = GridSearchTuner(task())
    tuner.deadline = time.monotonic() + 0.05
    tuner.tune(49, by_formula(lambda config: time.sleep(0.01) or 1.0))
    assert 4 <= tuner.trials < 49


def test_the_line_of_progress_has_the_known_form(capsys: pytest.CaptureFixture[str]) -> None:
    tuner = GridSearchTuner(task())
    tuner.tune(8, by_formula(seconds), callbacks=[autotvm.callback.progress_bar(8, prefix="[Task  1/12] ")])
    last = capsys.readouterr().out.split("\r")[-1]
    form = r"\[Task  1/12\]  Current/Best: +\d+\.\d\d/ +\d+\.\d\d GFLOPS \| Progress: \(8/8\) \| \d+\.\d\d s Done\.\n"
    assert re.fullmatch(form, last), last


def test_failures_are_told_where_all_trials_fail(caplog: pytest.LogCaptureFixture) -> None:
    broken = autotvm.task.create("test/faulty", ("refuses",), "llvm")
    with caplog.at_level(logging.DEBUG, "autotvm"):
        tuner = GridSearchTuner(broken, range_idx=(1, 1))
        tuner.tune(1, autotvm.measure_option("local", autotvm.LocalRunner(cooldown_interval=0)))
    text = caplog.text
    assert "Could not find any valid schedule" in text and text.count("this is not what the template does") >= 2
    (path,) = re.findall(r"all in (\S+)\)", text)
    Path(path).unlink()


def test_a_stream_can_be_the_log() -> None:
    stream = io.StringIO()
    RandomTuner(task()).tune(4, by_formula(seconds), callbacks=[autotvm.callback.log_to_file(stream)])
    assert len(list(record.load_from_file(io.StringIO(stream.getvalue())))) == 4


_KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
import templates
from armillary import autotvm
task = autotvm.task.create("test/matmul", (8, 8, 8, "float32"), "llvm")
tuner = autotvm.tuner.RandomTuner(task)
tuner.resume(autotvm.record.load_from_file(sys.argv[2])) if len(sys.argv) > 3 else None
option = autotvm.measure_option(autotvm.LocalBuilder(n_parallel=1), autotvm.LocalRunner(number=1, repeat=1, cooldown_interval=0))
tuner.tune(8, option, callbacks=[autotvm.callback.log_to_file(sys.argv[2])])
"""  # noqa: E501


def test_a_tuner_that_is_killed_goes_on_without_losing_or_repeating_a_trial(tmp_path: Path) -> None:
    log = tmp_path / "t.log"
    start = [sys.executable, "-c", _KILLED, str(Path(__file__).parent), str(log)]
    first = subprocess.Popen(start)
    limit = time.monotonic() + 60
    while not (log.exists() and log.read_text().count("\n") >= 3):
        assert first.poll() is None and time.monotonic() < limit
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait(20)
    held = log.read_text()
    assert 3 <= held.count("\n") < 8 and held.endswith("\n")
    subprocess.run([*start, "resume"], check=True, timeout=120)
    assert log.read_text().startswith(held)
    indices = [given.config.index for given, _ in record.load_from_file(log)]
    assert len(indices) == len(set(indices)) == 8


def test_tasks_that_are_tuned_together_get_trials_where_they_promise_most(tmp_path: Path) -> None:
    option, log = by_formula(lambda config: seconds(config) * 1e3), str(tmp_path / "t.log")
    small, large, often = (RandomTuner(task(n)) for n in (16, 64, 32))
    often.task.calls = 1000
    callbacks = [autotvm.callback.log_to_file(log, fsync=False)]
    tune_together([small, large, often], option, 20, callbacks, batch=4, most=12)
    assert [t.trials for t in (small, large, often)] == [12, 12, 12], "all, up to the limit"
    order = [
        given.task.args[0][0] if isinstance(given.task.args[0], tuple) else given.task.args[0]
        for given, _ in record.load_from_file(log)
    ]
    assert order[:12] == [32] * 4 + [64] * 4 + [16] * 4, "each a batch first, the longest first"
    assert order[12:20] == [32] * 8, "then what is called most"
    again = RandomTuner(task(32))
    assert again.resume(record.load_from_file(log)) == 12


def test_front_runners_are_measured_again_in_turns() -> None:
    option, made = by_formula(lambda config: 1e-3 * (1 + chance.random())), task()
    chance = random.Random(1)
    first = [1e-3, 1.1e-3, 1.14e-3, 1.2e-3, 2e-3, 1.05e-3]  # by configuration
    pairs = [
        (
            autotvm.MeasureInput(made.target, made, made.config_space.get(place)),
            autotvm.MeasureResult((s,), 0, 1.0, 1.0),
        )
        for place, s in enumerate(first)
    ]
    again = finals(made, pairs, option, rounds=5)
    assert option["runner"].seen == [0, 5, 1, 2] * 5, "those within 15 % of the best, one after another in each round"
    assert [given.config.index for given, _ in again] == [0, 5, 1, 2]
    assert all(len(result.costs) == 1 for _, result in again)
    chance = random.Random(1)
    rounds = [[1e-3 * (1 + chance.random()) for _ in range(4)] for _ in range(5)]
    assert [result.mean for _, result in again] == [min(column) for column in zip(*rounds, strict=True)]
    assert finals(made, pairs[:1], option) == [], "one has nobody to be compared with"


def test_time_that_is_left_goes_to_more_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    option, log = by_formula(seconds), str(tmp_path / "t.log")
    done, left = GridSearchTuner(task(16)), RandomTuner(task(64))
    callbacks = [autotvm.callback.log_to_file(log, fsync=False)]
    for tuner in (done, left):
        tuner.tune(1000 if tuner is done else 4, option, callbacks=callbacks)
    before = len(list(record.load_from_file(log)))
    args = argparse.Namespace(output=log, trials=12)
    assert _go_on(args, [done, left], option, Gains(0.0), time.monotonic() + 20)
    assert left.trials == 12 and not done.has_next()
    assert len(list(record.load_from_file(log))) >= before + 8
    message = capsys.readouterr().err
    assert "8 more trials of 1 tasks; expected end-to-end gain: " in message and " s left" in message
    assert not _go_on(args, [done, left], option, Gains(0.0), time.monotonic() + 20)
