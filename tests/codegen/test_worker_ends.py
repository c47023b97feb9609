"""A worker that computes is gone within a second of whoever waited for it: killed, interrupted, or out of patience."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from armillary.codegen.workers import pool as pools
from armillary.codegen.workers.pool import CompileTimeoutError, Pool, Worker
from armillary.errors import ExecutionError, InternalError

LIMIT = 30.0  # seconds: one, and what a busy machine adds; a worker that is not ended goes on for 600
ROOT = Path(__file__).resolve().parents[2]
BUSY = """
import ctypes, subprocess, sys, time
from armillary.codegen.workers.worker import serve

def answer(request):
    sys.stderr.write("working\\n")
    sys.stderr.flush()
    if request["how"] == "python":
        while True:
            pass
    if request["how"] == "library":  # as LLVM: the lock of the interpreter is free, signals wait
        ctypes.CDLL(None).sleep(600) or ctypes.CDLL(None).sleep(600)
    if request["how"] == "children":
        subprocess.run(["sh", "-c", f"sleep 600 & echo $! > {request['file']}; wait"])
    if request["how"] == "fails":
        raise ValueError("no")
    return b"answer"

def main():
    return serve(answer)
"""
PARENT = """
import signal, sys
from armillary.codegen.workers.pool import Pool
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may have been ignored
list(Pool("busy").ask_all([{"how": sys.argv[1], "file": sys.argv[2]}] * 2, 2))
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "busy.py").write_text(BUSY)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    return tmp_path


def descendants(root: int) -> set[int]:
    """The processes below one, by /proc."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # ended meanwhile
            continue
    found, fresh = set[int](), {root}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh}
        found |= fresh
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("how", ["python", "library", "children"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_a_second_after_the_parent_died(environment: Path, how: str, end: signal.Signals) -> None:
    file = environment / "child"
    process = subprocess.Popen([sys.executable, "-c", PARENT, how, str(file)], stderr=subprocess.DEVNULL)
    wanted = 4 if how == "children" else 2  # two workers, each with a shell and what that runs
    try:
        assert wait_until(lambda: len(descendants(process.pid)) >= wanted, 60)
        assert wait_until(lambda: how != "children" or (file.exists() and file.read_text().strip() != ""), 60)
        if how != "children":
            time.sleep(1.5)  # in which they get to work; one that still starts must end, too
        below = descendants(process.pid)
        assert len(below) >= wanted
        process.send_signal(end)
        assert wait_until(lambda: not any(map(is_running, below)), LIMIT)
    finally:
        process.kill()
        process.wait()


def test_worker_outlives_the_thread_that_started_it(environment: Path) -> None:
    pool = Pool("busy")
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.extend(pool.ask_all([{"how": "at once"}], 1)))
    thread.start()
    thread.join()
    (worker,) = pool.idle
    time.sleep(0.5)
    assert answers == [(0, b"answer")] and worker.is_alive
    assert worker.ask({"how": "at once"}) == b"answer"
    pool.close()


def test_worker_that_takes_too_long_is_ended_and_said(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMILLARY_COMPILE_TIMEOUT", "1")
    pool = Pool("busy")
    start = time.monotonic()
    ((number, answer),) = pool.ask_all([{"how": "library"}], 1)
    assert number == 0 and isinstance(answer, CompileTimeoutError)
    assert "took longer than 1 s" in str(answer) and "ARMILLARY_COMPILE_TIMEOUT" in str(answer)
    assert time.monotonic() - start < LIMIT and pool.idle == []
    assert list(pool.ask_all([{"how": "at once"}], 1)) == [(0, b"answer")]
    pool.close()


def test_answer_that_waits_is_taken_although_time_is_over(environment: Path) -> None:
    worker = Worker("busy")
    assert worker.ask({"how": "at once"}) == b"answer"
    stdin, stdout = worker.process.stdin, worker.process.stdout
    assert stdin is not None and stdout is not None
    payload = b'{"how": "at once"}'
    stdin.write(pools.LENGTH.pack(len(payload)) + payload)
    stdin.flush()
    assert wait_until(lambda: bool(pools.select.select([stdout], [], [], 0)[0]), 30)
    worker._expire()  # as after Ctrl-Z and a long break
    assert worker.is_alive and not worker.is_late
    worker.stop()


@pytest.fixture
def busy_pool(environment: Path) -> Iterator[Pool]:
    pool = Pool("busy")
    yield pool
    pool.close()


def test_first_error_ends_the_other_workers(busy_pool: Pool) -> None:
    before = descendants(os.getpid())
    answers = busy_pool.ask_all([{"how": "library"}, {"how": "fails"}, {"how": "python"}], 2)
    number, answer = next(answers)
    assert number == 1 and isinstance(answer, InternalError)
    start = time.monotonic()
    answers.close()  # type: ignore[attr-defined]  # as when the caller raises
    assert time.monotonic() - start < LIMIT
    assert len(descendants(os.getpid()) - before) <= 1  # the one that failed is fit for more
    assert list(busy_pool.ask_all([{"how": "at once"}], 1)) == [(0, b"answer")]


def test_process_that_cannot_be_started_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(ExecutionError, match=r"cannot start a compile worker: No such file(.|\n)*JOBS=1"):
        Worker()
