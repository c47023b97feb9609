"""Compile workers do not outlive their use: 100 MB each must not stay while networks run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from armillary.codegen.llvm.target import request
from armillary.codegen.workers.pool import Pool, Worker
from armillary.target import Target

ROOT = Path(__file__).resolve().parents[2]
IDLE = """
import sys
from armillary.codegen.workers import worker
worker.IDLE_SECONDS = 0.1
sys.exit(worker.main())
"""
IR = "define i32 @one() { ret i32 1 }"


def test_worker_without_requests_ends_although_its_pipe_is_open() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", IDLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)}
    )
    with process:
        assert process.wait(timeout=30) == 0


def test_pool_starts_a_new_worker_for_one_that_went_idle() -> None:
    pool, gone = Pool(), Worker()
    assert gone.process.stdin is not None
    gone.process.stdin.close()
    assert gone.process.wait(timeout=30) == 0
    pool.idle.append(gone)
    (code,) = pool.compile_many([request(IR, Target("llvm"))], jobs=1)
    assert code[:4] == b"\x7fELF" and len(pool.idle) == 1 and pool.idle[0] is not gone
    pool.close()


def test_request_that_meets_a_worker_just_gone_goes_to_another() -> None:
    class Leaving(Worker):
        """Goes idle between the pool's look and the request."""

        is_alive = True

    pool, gone = Pool(), Leaving()
    gone.process.communicate(b"")  # its input ends, and so does it
    gone.process.stdin = open("/dev/full", "wb", buffering=0)  # noqa: SIM115 - writing to it fails as to a closed pipe
    pool.idle.append(gone)
    (code,) = pool.compile_many([request(IR, Target("llvm"))], jobs=1)
    assert code[:4] == b"\x7fELF"
    pool.close()


def test_worker_that_complains_at_length_still_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "talkative.py").write_text(
        "import sys\nfrom armillary.codegen.workers.worker import serve\n"
        "def main():\n    sys.stderr.write('x' * 1_000_000)\n    return serve(lambda request: b'answer')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    worker, answers = Worker("talkative"), list[bytes]()
    thread = threading.Thread(target=lambda: answers.append(worker.ask({})), daemon=True)
    thread.start()
    thread.join(timeout=60)
    if thread.is_alive():
        worker.process.kill()
    worker.stop()
    assert answers == [b"answer"]


def test_forked_process_takes_no_worker_of_its_parent() -> None:
    pool = Pool()
    wanted = pool.compile_many([request(IR, Target("llvm"))], jobs=1)
    (worker,) = pool.idle
    child = os.fork()
    if child == 0:  # nothing of the test runner's may run here
        code = 1
        try:
            is_empty = not pool.idle
            code = 0 if is_empty and pool.compile_many([request(IR, Target("llvm"))], jobs=1) == wanted else 2
            pool.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.idle == [worker] and worker.is_alive
    assert pool.compile_many([request(IR, Target("llvm"))], jobs=1) == wanted
    pool.close()
