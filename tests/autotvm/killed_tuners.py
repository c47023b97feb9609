"""Tuners that are killed with SIGKILL, again and again, and what their log then holds.

In: a number of kills, a seed, a folder. Out: a `Toll`, or an AssertionError that says what was lost. Invariant: after
every kill the log has each trial that it had before, none twice, none of other costs than were measured; a kill waits
for what the tuner has done, never for a number of seconds, so that a busy machine makes it later and not emptier.
As a program, without pytest: `PYTHONPATH=. python tests/autotvm/killed_tuners.py --help`; each part of the kills has
its own log, so parts run side by side. The tests: `test_tuning_faults.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import templates  # noqa: F401  (registers templates)
from analytic import by_formula

from armillary import autotvm
from armillary.autotvm import record
from armillary.autotvm.tuner import RandomTuner

_HERE = Path(__file__).resolve().parent
PATIENCE = 600.0  # seconds for one tuner to get where it is to be killed
_POLL = 0.0005
MARK = "TUNER_TO_KILL"  # a variable of the environment of a tuner and of all that it starts


@dataclass
class Toll:
    """What happened: kills that found a running tuner, tuners that were done before, trials, logs."""

    killed: int = 0
    done: int = 0
    trials: int = 0
    logs: int = 0
    waits: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        middle = sorted(self.waits)[len(self.waits) // 2] if self.waits else 0.0
        message = f"{self.killed} killed, {self.done} done before, {self.trials} trials in {self.logs} logs"
        return f"{message}, {middle * 1e3:.0f} ms from start to kill (median)"


def matmul(n: int) -> autotvm.Task:
    return autotvm.task.create("test/matmul", (n, n, n, "float32"), "llvm")


def cost(config: Any) -> float:
    return 1e-3 + 1e-6 * float(config.index)


def slowly(config: Any) -> float:
    time.sleep(0.002)
    return cost(config)


def _tune_in_fork(log: Path, n: int) -> int:
    """Start a tuner of many short trials that goes on with the log; its process."""
    pid = os.fork()
    if pid:
        return pid
    try:
        tuner = RandomTuner(matmul(n), seed=os.getpid())
        if log.exists():
            tuner.resume(record.load_from_file(log, report=False))
        tuner.tune(1000, by_formula(slowly), callbacks=[autotvm.callback.log_to_file(str(log), fsync=False)])
    finally:
        os._exit(0)


_PROGRAM = """
import sys
sys.path[:0] = sys.argv[1:3]
import templates
from armillary import autotvm
task = autotvm.task.create("test/matmul", (int(sys.argv[4]),) * 3 + ("float32",), "llvm")
tuner = autotvm.tuner.RandomTuner(task, seed=int(sys.argv[5]))
try:
    tuner.resume(autotvm.record.load_from_file(sys.argv[3]))
except autotvm.errors.TuningError:
    pass  # no log yet
option = autotvm.measure_option(
    autotvm.LocalBuilder(n_parallel=2, timeout=120),
    autotvm.LocalRunner(number=1, repeat=1, cooldown_interval=0, timeout=120))
tuner.tune(1000, option, callbacks=[autotvm.callback.log_to_file(sys.argv[3])])
"""


def _tune_in_program(log: Path, n: int) -> int:
    """The same as a program that compiles and measures, as a user's script does."""
    command = [sys.executable, "-c", _PROGRAM, str(_HERE), str(_HERE.parents[1]), str(log), str(n)]
    seed = str(random.randrange(1 << 30))
    process = subprocess.Popen(
        [*command, seed], env=os.environ | {MARK: str(log)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return process.pid


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _killed(pid: int, is_time: Callable[[], bool]) -> bool:
    """Kill the process when it is time; False where it had ended."""
    limit = time.monotonic() + PATIENCE
    while not is_time():
        if os.waitpid(pid, os.WNOHANG)[0]:
            return False
        assert time.monotonic() < limit, "the tuner made no trial"
        time.sleep(_POLL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def _moment(chance: random.Random, log: Path, start: float) -> Callable[[], bool]:
    """When to kill: at a share of the time that a first trial takes, if that is known, or some trials and a moment
    later."""
    if start and chance.random() < 0.4:
        end = time.monotonic() + chance.uniform(0.0, 1.5 * start)
        return lambda: time.monotonic() >= end
    before, more, later = _size(log), chance.randrange(1, 1500), chance.uniform(0.0, 0.01)

    def reached() -> bool:
        if _size(log) < before + more:
            return False
        time.sleep(later)
        return True

    return reached


def left_over(mark: object) -> list[str]:
    """Processes whose environment has the mark, by their command lines."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [command for command in found if command]


def _wait_for_none_left(log: Path) -> None:
    limit = time.monotonic() + PATIENCE
    while found := left_over(log):
        assert time.monotonic() < limit, f"left behind by a killed tuner: {found}"
        time.sleep(0.01)


def _check(log: Path, held: dict[int, str], compiles: bool) -> dict[int, str]:
    """The trials of the log by index, after looking at them."""
    text = log.read_bytes().decode() if log.exists() else ""
    whole = text[: text.rfind("\n") + 1].splitlines()
    for line in whole:
        json.loads(line)  # whatever a killed writer left is at the end
    pairs = list(record.load_from_file(log, report=False)) if log.exists() else []
    indices = [given.config.index for given, _ in pairs]
    assert len(whole) <= len(pairs) <= len(whole) + 1, "a line is no record"
    assert len(indices) == len(set(indices)), "a trial was made twice"
    now = {index: repr(result) for index, (_, result) in zip(indices, pairs, strict=True)}
    assert all(now.get(index) == row for index, row in held.items()), "a trial was lost or changed"
    for given, result in pairs:
        assert result.error_no == 0, f"a trial failed: {result.error}"
        assert compiles or result.costs == (cost(given.config),), "a record is wrong"
    return now


def kill_tuners(kills: int, seed: int, folder: Path, *, compiles: bool = False) -> Toll:
    """Kill so many tuners that share a log, one after the other; a full log is followed by another one."""
    chance, toll, held, start = random.Random(seed), Toll(logs=1), dict[int, str](), 0.0
    tune, n = (_tune_in_program, 64) if compiles else (_tune_in_fork, 1024)
    space = len(matmul(n).config_space)
    log = folder / "log0"
    for _ in range(kills):
        begin = time.monotonic()
        was_killed = _killed(tune(log, n), _moment(chance, log, start))
        toll.waits.append(time.monotonic() - begin)
        start = start or toll.waits[-1]
        toll.killed, toll.done = toll.killed + was_killed, toll.done + (not was_killed)
        if compiles:
            _wait_for_none_left(log)
        now = _check(log, held, compiles)
        toll.trials, held = toll.trials + len(now) - len(held), now
        if len(held) == space:
            log, held, toll.logs = folder / f"log{toll.logs}", {}, toll.logs + 1
    return toll


def _in_parts(given: argparse.Namespace, folder: Path) -> int:
    """Run the parts side by side, each in a process; the number that failed."""
    share = Counter(place % given.processes for place in range(given.kills))
    running = []
    for part, kills in share.items():
        where = folder / f"part{part}"
        where.mkdir()
        command = [sys.executable, str(Path(__file__).resolve()), f"--kills={kills}", f"--seed={given.seed + part}"]
        command += [f"--folder={where}", *(["--compiles"] if given.compiles else [])]
        running.append(subprocess.Popen(command, env=os.environ | {"ARMILLARY_COMPILE_JOBS": "1"}))
    failed = [process.wait() for process in running]
    return sum(code != 0 for code in failed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill tuners; 1 where something was lost."""
    parser = argparse.ArgumentParser(description="Kill tuners with SIGKILL; check after each that no trial is lost.")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=1, help="parts, side by side, each with its own log")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--compiles", action="store_true", help="each tuner is a program that compiles and measures")
    parser.add_argument("--folder", type=Path, default=None, help="where logs go; a temporary one without it")
    given = parser.parse_args(arguments)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        if given.processes > 1:
            failed = _in_parts(given, folder)
            print(
                f"{given.kills} kills in {time.monotonic() - begin:.0f} s: {failed} of {given.processes} parts failed"
            )
            return int(failed > 0)
        toll = kill_tuners(given.kills, given.seed, folder, compiles=given.compiles)
        print(f"seed {given.seed}: {toll}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
