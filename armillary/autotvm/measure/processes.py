"""A function in a process of its own, with a limit of time.

In: a function without arguments, a number of seconds. Out: what it returned (by pickle, between our own processes), or
how its process ended. Invariant: a process that crashes, hangs or floods its output costs its own answer only; it and
all it started are gone when the answer comes, or soon after whoever asked was killed; one that is kept answers several
times. Processes are forked, so the function may be any closure.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import pickle
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from armillary.base.json_types import JsonObject
from armillary.errors import ArmillaryError

Answer = Callable[[JsonObject], JsonObject]

KEPT = 4000  # characters of what a process wrote
_LAST = 0.05  # seconds for a process that is ending
_PR_SET_PDEATHSIG = 1
_TAKES = 10.0  # seconds for it to take a question


class Forked:
    """One running process."""

    def __init__(self, work: Callable[[], object], seconds: float) -> None:  # what pickles
        self.started, self.limit = time.monotonic(), time.monotonic() + seconds
        reading, writing = os.pipe()
        self._log = os.memfd_create("output-of-a-trial")
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            end_with_parent(parent)
            os.close(reading)
            _be_the_child(work, writing, self._log)
        os.close(writing)
        self.pipe, self._parts = reading, [b""]

    def read(self) -> bool:
        """Take what has come; whether the process has closed its pipe."""
        part = os.read(self.pipe, 1 << 20)
        self._parts.append(part)
        return not part

    def end(self) -> tuple[Any, str]:
        """(answer, ""), or (None, how it ended); whatever runs is killed."""
        is_late = time.monotonic() >= self.limit
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):  # not yet a leader of a group
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pipe)
        written = _written(self._log)
        os.close(self._log)
        answer = b"".join(self._parts)
        if answer:
            with suppress(pickle.UnpicklingError, EOFError):
                return pickle.loads(answer), ""
        if is_late:
            return None, "timeout"
        return None, f"{describe_status(status)}{written}"


class Kept:
    """A process that answers one question after the other, until one of them ends it."""

    def __init__(self, answer: Answer) -> None:
        ours, theirs = socket.socketpair()
        self._log = os.memfd_create("output-of-trials")
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self.pid, self.asked = os.fork(), 0
        if not self.pid:
            end_with_parent(parent)
            ours.close()
            _serve_forever(answer, theirs, self._log)
        theirs.close()
        self._stream = ours.makefile("rwb")
        self._socket = ours

    def ask(self, question: JsonObject, seconds: float) -> tuple[JsonObject | None, str]:
        """(answer, ""), or (None, how it ended): then the process is gone."""
        try:
            self.send(question)
            self._socket.settimeout(seconds)
            return pickle.load(self._stream), ""
        except TimeoutError:
            self.end()
            return None, "timeout"
        except (OSError, EOFError, pickle.UnpicklingError):
            return None, self.end()

    def send(self, question: JsonObject) -> None:
        """Ask; the answer comes later (`ask_all`)."""
        self.asked += 1
        self._socket.settimeout(_TAKES)
        pickle.dump(question, self._stream)
        self._stream.flush()

    def has_answered(self) -> bool:
        """Take the answer that has come; False if the process has ended instead."""
        with suppress(OSError, EOFError, pickle.UnpicklingError):
            pickle.load(self._stream)
            return True
        return False

    def fileno(self) -> int:
        """Of the connection, for `select`."""
        return self._socket.fileno()

    def end(self) -> str:
        """How it ended; killed if it runs."""
        self._socket.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            self._stream.close()
        self._socket.close()
        ended, status = os.waitpid(self.pid, os.WNOHANG)
        if not ended:
            time.sleep(_LAST)  # it may be dying of the signal that closed its end
            ended, status = os.waitpid(self.pid, os.WNOHANG)
        if not ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # what it started
        written = _written(self._log)
        os.close(self._log)
        return f"{describe_status(status)}{written}"


def end_with_parent(parent: int) -> None:
    """In a process that was just forked: be killed when the parent, or the thread of it that forks, ends; where the
    system can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        os._exit(1)


def ask_all(pool: list[Kept], questions: Sequence[JsonObject], seconds: float) -> None:
    """Ask each question of one of the processes, which work side by side; no answer is looked at.

    Processes that end, or take longer than `seconds` for one, are taken out of the pool.
    """
    waiting, busy = list(questions), dict[Kept, float]()
    while waiting or busy:
        for retained in [k for k in pool if k not in busy]:
            if waiting:
                busy[retained] = time.monotonic() + seconds
                with suppress(OSError):
                    retained.send(waiting.pop())
        if not busy:
            return  # nobody is left
        ready, _, _ = select.select(list(busy), [], [], max(0.0, min(busy.values()) - time.monotonic()))
        for retained in [k for k in busy if k in ready or time.monotonic() >= busy[k]]:
            del busy[retained]
            if retained not in ready or not retained.has_answered():
                retained.end()
                pool.remove(retained)


def _serve_forever(answer: Answer, where: socket.socket, log: int) -> None:
    """Never returns."""
    code = 1
    try:
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        faulthandler.disable()
        stream = where.makefile("rwb")
        while True:
            response = answer(pickle.load(stream))
            pickle.dump(response, stream)
            stream.flush()
    except EOFError:
        code = 0
    except BaseException:  # as in `_be_the_child`
        os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(code)


def describe_status(status: int) -> str:
    """How a process ended, from what `waitpid` says."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"the process died of {signal.Signals(number).name} (signal {number})"
    return f"the process ended with status {os.WEXITSTATUS(status)} and no answer"


def _written(log: int) -> str:
    size = os.fstat(log).st_size
    text = os.pread(log, KEPT, max(0, size - KEPT)).decode(errors="replace").strip()
    return f"; it wrote: {text}" if text else ""


def _be_the_child(work: Callable[[], object], writing: int, log: int) -> None:
    """Never returns."""
    code = 1
    try:
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        faulthandler.disable()  # a crash is told by the status
        payload = pickle.dumps(work())
        with os.fdopen(writing, "wb") as stream:
            stream.write(payload)
        code = 0
    except BaseException:  # the process ends here, whatever happened, and says so
        os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(code)


def run_all(works: list[Callable[[], Any]], seconds: float, at_once: int) -> list[tuple[Any, str, float]]:
    """Each work's (answer, how it failed, seconds), so many at once."""
    outcomes: list[tuple[Any, str, float] | None] = [None] * len(works)
    waiting, running = list(enumerate(works)), dict[int, Forked]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                place, work = waiting.pop(0)
                running[place] = Forked(work, seconds)
            for place in _finished(running):
                one = running.pop(place)
                answer, how = one.end()
                outcomes[place] = (answer, how, time.monotonic() - one.started)
    finally:
        for one in running.values():
            one.end()
    return [row for row in outcomes if row is not None]


def _finished(running: dict[int, Forked]) -> list[int]:
    """Those that answered or are late, after waiting for one."""
    left = min(one.limit for one in running.values()) - time.monotonic()
    ready, _, _ = select.select([one.pipe for one in running.values()], [], [], max(0.0, left))
    now = time.monotonic()
    return [p for p, one in running.items() if (one.pipe in ready and one.read()) or now >= one.limit]


def short_error(error: BaseException) -> str:
    """An exception in one text: ours by their message, others with their kind and last lines."""
    if isinstance(error, ArmillaryError):
        return f"{type(error).__name__}: {error}"
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return "".join(lines)[-KEPT:].strip()
