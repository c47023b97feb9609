"""Functions run in other processes, which may crash or take too long: `PopenWorker`, `PopenPoolExecutor`.

In: functions and their arguments, pickled (by cloudpickle where it is installed, which takes lambdas too). Out: their
results. Invariant: a process that died or was too slow is replaced before the next call; nothing that a function prints
mixes with its result. The process's own loop: `exec/popen_worker.py`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from enum import IntEnum
from typing import IO, TypeAlias

from armillary.base.aliases import AnyFunction
from armillary.errors import ConfigError, ExecutionError

Stream: TypeAlias = "int | IO[bytes] | IO[str] | None"
HEADER = 8  # bytes that say how long a message is
_GRACE = 1.0  # seconds in which a process ends by itself


class StatusKind(IntEnum):
    """How a call ended."""

    COMPLETE = 0
    EXCEPTION = 1
    TIMEOUT = 2


class MapResult:
    """One result of `map_with_error_catching`: its status, and the value or the error."""

    def __init__(self, status: StatusKind, value: object) -> None:
        self.status, self.value = status, value

    def __repr__(self) -> str:
        return f"MapResult({self.status.name}, {self.value!r})"


def _pickled(value: object) -> bytes:
    try:
        if importlib.util.find_spec("cloudpickle") is not None:
            import cloudpickle

            return bytes(cloudpickle.dumps(value))
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        message = f"a call cannot be sent to another process: {error}"
        raise ConfigError(message, hint="pass a function of a module, or install cloudpickle") from None


class PopenWorker:
    """One process that runs functions, one after another.

    `initializer(*initargs)` runs first in each process; after `maximum_uses` calls the process is replaced. `stdout`,
    `stderr` are as for `subprocess.Popen`.
    """

    def __init__(
        self,
        initializer: AnyFunction | None = None,
        initargs: Sequence[object] = (),
        maximum_uses: int | None = None,
        stdout: Stream = None,
        stderr: Stream = None,
    ) -> None:
        if initializer is not None and not callable(initializer):
            raise ConfigError(f"PopenWorker: the initializer is {type(initializer).__name__}, wanted a function")
        self._first = (initializer, tuple(initargs))
        self._maximum, self._uses = maximum_uses, 0
        self._streams = stdout, stderr
        self._process: subprocess.Popen[bytes] | None = None
        self._ends: tuple[IO[bytes], IO[bytes]] | None = None  # to and from the process
        self._deadline: float | None = None

    def is_alive(self) -> bool:
        """Whether there is a process that runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End the process, now."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for end in self._ends or ():
            with contextlib.suppress(OSError):
                end.close()
        self._process, self._ends, self._uses = None, None, 0

    def join(self, timeout: float | None = None) -> None:
        """Let the process end by itself, for `timeout` seconds, then end it."""
        if self._process is not None and self._ends is not None:
            with contextlib.suppress(OSError):
                self._ends[0].close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE if timeout is None else timeout)
        self.kill()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.kill()

    def send(
        self,
        fn: AnyFunction,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Have the process call a function; `recv` gives what comes of it within `timeout` seconds."""
        message = _pickled((fn, tuple(args), dict(kwargs or {})))
        if self._maximum is not None and self._uses >= self._maximum:
            self.kill()
        if not self.is_alive():
            self.kill()
            self._start()
        self._uses += 1
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._write(message)

    def recv(self) -> object:
        """What the function returned, or raises what it raised; TimeoutError, ChildProcessError if the process died."""
        if self._ends is None or self._process is None:
            raise ExecutionError("recv: nothing was sent to the process", hint="send a function first")
        timer, process, is_late = None, self._process, threading.Event()
        if self._deadline is not None:

            def end() -> None:
                is_late.set()
                process.kill()

            timer = threading.Timer(max(0.0, self._deadline - time.monotonic()), end)
            timer.start()
        try:
            message = _read(self._ends[1])
        finally:
            if timer is not None:
                timer.cancel()
        if message is None:
            self.kill()
            raise TimeoutError("the call took too long") if is_late.is_set() else ChildProcessError("the process died")
        is_value, value = pickle.loads(message)
        if not is_value:
            raise value
        return value

    def _start(self) -> None:
        (to_read, to_write), (from_read, from_write) = os.pipe(), os.pipe()
        path = os.pathsep.join(dict.fromkeys([*filter(None, sys.path), os.getcwd()]))
        command = [sys.executable, "-m", "armillary.exec.popen_worker", str(to_read), str(from_write)]
        try:
            self._process = subprocess.Popen(
                command,
                pass_fds=(to_read, from_write),
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                stdout=self._streams[0],
                stderr=self._streams[1],
            )
        finally:
            os.close(to_read)
            os.close(from_write)
        self._ends = os.fdopen(to_write, "wb"), os.fdopen(from_read, "rb")
        if self._first[0] is not None:
            self._deadline = None
            self._write(_pickled((*self._first, {})))
            self.recv()

    def _write(self, message: bytes) -> None:
        assert self._ends is not None
        with contextlib.suppress(BrokenPipeError):  # recv says that it died
            self._ends[0].write(len(message).to_bytes(HEADER, "little") + message)
            self._ends[0].flush()


def _read(stream: IO[bytes]) -> bytes | None:
    """A message; None where the other side ended."""
    head = stream.read(HEADER)
    if len(head) < HEADER:
        return None
    size = int.from_bytes(head, "little")
    body = stream.read(size)
    return body if len(body) == size else None


class PopenPoolExecutor:
    """Processes that share calls: `submit` gives a Future, `map_with_error_catching` results in order.

    A call that takes more than `timeout` seconds is ended, and its process replaced.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        timeout: float | None = None,
        initializer: AnyFunction | None = None,
        initargs: Sequence[object] = (),
        maximum_process_uses: int | None = None,
        stdout: Stream = None,
        stderr: Stream = None,
    ) -> None:
        if max_workers is not None and max_workers < 1:
            raise ConfigError(f"PopenPoolExecutor: {max_workers} workers, wanted at least one")
        count, self._timeout = max_workers or os.cpu_count() or 1, timeout
        self._threads = ThreadPoolExecutor(count)
        self._idle: queue.LifoQueue[PopenWorker] = queue.LifoQueue()
        for _ in range(count):
            self._idle.put(PopenWorker(initializer, initargs, maximum_process_uses, stdout, stderr))

    def submit(self, fn: AnyFunction, *args: object, **kwargs: object) -> Future[object]:
        """Call a function in one of the processes."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def _call(self, fn: AnyFunction, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        worker = self._idle.get()
        try:
            worker.send(fn, args, kwargs, self._timeout)
            return worker.recv()
        finally:
            self._idle.put(worker)

    def map_with_error_catching(self, fn: AnyFunction, iterator: Iterable[object]) -> Iterator[MapResult]:
        """A result for each item, in order: what the function returned, or how it failed."""
        for future in [self.submit(fn, item) for item in iterator]:
            try:
                yield MapResult(StatusKind.COMPLETE, future.result())
            except TimeoutError as error:
                yield MapResult(StatusKind.TIMEOUT, error)
            except Exception as error:
                yield MapResult(StatusKind.EXCEPTION, error)

    def close(self) -> None:
        """End all processes, after their calls."""
        self._threads.shutdown(wait=True)
        while not self._idle.empty():
            self._idle.get().kill()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._threads.shutdown(wait=False, cancel_futures=True)
