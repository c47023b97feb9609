"""Against tests that hang: each phase of a test has a deadline, and no process of a run outlives it.

In: the hooks of `conftest.py`. Out: a test that fails with the stacks of all threads, or, where the interpreter itself
does not come back, the end of the test process, which pytest-xdist reports as a failure of that test. Invariant:
processes are known by a variable of their environment or as descendants, so none of another run is touched.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

SECONDS, SLOW_SECONDS = 900.0, 7200.0  # of a phase of a test: far more than any takes on a busy machine
_GRACE = 60.0  # until the process ends
_STDERR = 2
_TOKEN = "PROCESS_OF_TEST_RUN"


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Fail what runs inside when it takes longer."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(number: int, frame: FrameType | None) -> None:
        faulthandler.dump_traceback(_STDERR)
        pytest.fail(f"it took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + _GRACE, exit=True, file=_STDERR)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


def mark_children() -> None:
    """Let every program that this process starts carry its number."""
    os.environ[_TOKEN] = str(os.getpid())


def left_over() -> dict[int, str]:
    """Processes that this one started, directly or not, and that still run, with their command lines."""
    mine, parents, marked = os.getpid(), dict[int, int](), set[int]()
    wanted = f"{_TOKEN}={mine}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(folder.name)] = int(parent)
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    marked.add(int(folder.name))
    found = {pid for pid in parents if pid in marked or _is_below(pid, mine, parents)} - {mine}
    message = {pid: _command_of(pid) for pid in found}
    return {pid: words for pid, words in message.items() if words and "resource_tracker" not in words}


def _is_below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == ancestor:
            return True
    return False


def _command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def end_left_over() -> None:
    """Kill them, so that none holds the output of a run open."""
    for pid in left_over():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
