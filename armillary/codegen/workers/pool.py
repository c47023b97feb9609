"""Parallel compilation in worker processes (LLVM behind llvmlite holds one lock per process, so threads do not help).

In: many requests. Out: their answers. Invariant: workers start on first use, are reused, and end with this process
(`orphans.py`) or after some idle seconds. A worker that dies makes the call fail with its exit status, one that takes
longer than ARMILLARY_COMPILE_TIMEOUT is ended; the next call starts a new one. Whoever stops waiting for answers (an
error, Ctrl-C) ends the workers that compute them. `compile_many` turns LLVM IR into objects: with one job, or one
request, in this process, unless told not to. The other side: `worker.py`. Whole kernels: `driver/kernel_worker.py`.
"""

from __future__ import annotations

import atexit
import dataclasses
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue

from armillary.base.config import setting
from armillary.base.record import record
from armillary.codegen.workers import LENGTH, REPLY
from armillary.errors import ExecutionError, InternalError

_ROOT = str(Path(__file__).resolve().parents[3])
_START = (
    "import sys; sys.path.insert(0, {root!r}); from armillary.codegen.workers.orphans import end_with_parent; "
    "end_with_parent({parent}); from {module} import main; sys.exit(main())"
)
_PATIENCE = 0.4  # seconds for a worker that is told to end
_FEWER = "ARMILLARY_COMPILE_JOBS=1 compiles one kernel at a time"
_COMPILER = "armillary.codegen.workers.worker"


@record(slots=True)
class Request:
    """One module to compile; `form` is object, assembly or llvm."""

    ir: str
    triple: str
    cpu: str
    features: str
    form: str = "object"
    abi: str = ""
    opt_level: int = 2


class CompileTimeoutError(ExecutionError):
    """A request took longer than it may."""


class _WorkerEnded(ExecutionError):
    """The worker had ended by itself, just before the request reached it."""


class Worker:
    """One process and its pipes; `module` has its `main`. It leads a session: Ctrl-C is for us, who then end it."""

    def __init__(self, module: str = _COMPILER) -> None:
        code = _START.format(root=_ROOT, parent=os.getpid(), module=module)
        pipe = subprocess.PIPE
        # a pipe that nobody reads would be full some day, and stop the worker
        self.errors = os.fdopen(os.memfd_create("compile-worker-errors"), "rb")
        self.is_late = False
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=self.errors, start_new_session=True
            )
        except OSError as error:
            raise ExecutionError(f"cannot start a compile worker: {error.strerror}", hint=_FEWER) from None

    def ask(self, request: Mapping[str, object]) -> bytes:  # JSON
        """Send one request and wait for the answer; InternalError with the reason for a refusal."""
        seconds = setting("ARMILLARY_COMPILE_TIMEOUT")
        timer = threading.Timer(seconds, self._expire)
        timer.daemon = True
        timer.start()
        try:
            return self._ask(request)
        except ExecutionError:
            if not self.is_late:
                raise
            message = f"a compile worker took longer than {seconds} s and was stopped"
            raise CompileTimeoutError(message, hint="ARMILLARY_COMPILE_TIMEOUT=<seconds> waits longer") from None
        finally:
            timer.cancel()
            timer.join()

    def _ask(self, request: Mapping[str, object]) -> bytes:  # JSON
        incoming, outgoing = self.process.stdout, self.process.stdin
        assert incoming is not None and outgoing is not None, "the pipes were asked for"
        payload = json.dumps(request).encode()
        try:
            outgoing.write(LENGTH.pack(len(payload)) + payload)
            outgoing.flush()
        except OSError:
            raise self._died() from None
        header = incoming.read(REPLY.size)
        if len(header) != REPLY.size:
            raise self._died()
        status, size = REPLY.unpack(header)
        reply = incoming.read(size)
        if len(reply) != size:
            raise self._died()
        if status:
            raise InternalError(reply.decode(errors="replace"))
        return reply

    def _expire(self) -> None:
        """End it, unless its answer waits: this process may have been stopped (Ctrl-Z) meanwhile."""
        assert self.process.stdout is not None, "the pipes were asked for"
        poll = select.poll()
        poll.register(self.process.stdout, select.POLLIN)
        if not poll.poll(0):
            self.is_late = True
            end_workers([self])

    def _died(self) -> ExecutionError:
        code = self.process.wait()
        if code == 0:
            return _WorkerEnded("a compile worker ended before its request was done")
        self.errors.seek(0)
        errors = self.errors.read().decode(errors="replace")[-2000:]
        return ExecutionError(
            f"a compile worker died (exit status {code}) {errors}".rstrip(),
            hint=f"was it killed, or out of memory? {_FEWER}",
        )

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def leave(self) -> None:
        """Let go of a process that is somebody else's."""
        self._close_pipes()
        self.process.returncode = 0  # not ours to wait for

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout, self.errors):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # the other end is gone, and so is what was buffered
                    continue

    def stop(self) -> None:
        """Close the pipe and wait; kill what does not end by itself."""
        self._close_pipes()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            end_workers([self])


def end_workers(workers: Iterable[Worker]) -> None:
    """End workers that may be computing, with what they started; whoever reads from them sees their output end."""
    left = [worker.process for worker in workers]
    deadline = time.monotonic() + _PATIENCE
    for number, until in ((signal.SIGTERM, deadline), (signal.SIGKILL, None)):
        left = [process for process in left if _signal_group(process, number)]
        left = [process for process in left if not _has_ended(process, until)]


def _signal_group(process: subprocess.Popen[bytes], number: int) -> bool:
    """Whether there was a process to signal."""
    if process.poll() is not None:
        return False
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:  # it ended meanwhile
        return False
    return True


def _has_ended(process: subprocess.Popen[bytes], until: float | None) -> bool:
    try:
        process.wait(None if until is None else max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


class Pool:
    """A growing set of workers of one kind. A forked process begins with none: those of its parent are not its own."""

    def __init__(self, module: str = _COMPILER) -> None:
        self.module = module
        self._begin()
        pool = weakref.ref(self)  # what is registered stays for good
        os.register_at_fork(after_in_child=lambda: _begin_anew(pool()))

    def _begin(self) -> None:
        self.idle: list[Worker] = []
        self.lock = threading.Lock()

    def ask_all(
        self,
        requests: Sequence[Mapping[str, object]],
        jobs: int,
        took: dict[int, float] | None = None,  # Any: JSON
    ) -> Iterator[tuple[int, bytes | BaseException]]:
        """(its number, the answer or what went wrong) for each request, as they come, by up to `jobs` workers.

        `took` gets the seconds of each. Requests are sent in their order. Once nobody wants more answers, the others
        are not, and workers are ended.
        """
        crew = _Crew()
        todo: SimpleQueue[int] = SimpleQueue()
        done: SimpleQueue[tuple[int, bytes | BaseException]] = SimpleQueue()
        for index in range(len(requests)):
            todo.put(index)

        def serve() -> None:
            for index in _taken(todo):
                begin = time.monotonic()
                try:
                    answer = self._ask(requests[index], crew)
                    if took is not None:
                        took[index] = time.monotonic() - begin
                    done.put((index, answer))
                except BaseException as error:  # whoever waits for the answer raises it
                    done.put((index, error))

        threads = [threading.Thread(target=serve, daemon=True) for _ in range(min(jobs, len(requests)))]
        for thread in threads:
            thread.start()
        try:
            for _ in requests:
                yield done.get()
        finally:
            for _ in _taken(todo):
                pass
            crew.end()
            for thread in threads:
                thread.join()

    def _ask(self, request: Mapping[str, object], crew: _Crew) -> bytes:  # JSON
        worker = self._take()
        try:
            with crew.holding(worker):
                return worker.ask(request)
        except _WorkerEnded:
            if crew.is_over:
                raise
            worker.stop()
            worker = Worker(self.module)
            with crew.holding(worker):
                return worker.ask(request)
        finally:
            self._give(worker)

    def compile_many(self, requests: Sequence[Request], jobs: int) -> list[bytes]:
        """Objects of `requests`, by up to `jobs` workers; raises the first failure."""
        order = sorted(range(len(requests)), key=lambda i: -len(requests[i].ir))  # the longest first
        results: list[bytes] = [b""] * len(requests)
        for number, answer in self.ask_all([dataclasses.asdict(requests[i]) for i in order], jobs):
            if isinstance(answer, BaseException):
                raise answer
            results[order[number]] = answer
        return results

    def _take(self) -> Worker:
        with self.lock:
            while self.idle:
                worker = self.idle.pop()
                if worker.is_alive:
                    return worker
                worker.stop()
        return Worker(self.module)

    def _give(self, worker: Worker) -> None:
        if not worker.is_alive:
            worker.stop()
            return
        with self.lock:
            self.idle.append(worker)

    def close(self) -> None:
        """Stop every idle worker."""
        with self.lock:
            workers, self.idle = self.idle, []
        for worker in workers:
            worker.stop()


class _Crew:
    """The workers that compute answers of one call, so that they can be ended when nobody waits for them any more."""

    def __init__(self) -> None:
        self._workers: set[Worker] = set()
        self._lock = threading.Lock()
        self.is_over = False

    @contextmanager
    def holding(self, worker: Worker) -> Iterator[None]:
        """While the block runs, `worker` is one of them."""
        with self._lock:
            if self.is_over:
                raise _WorkerEnded("nobody waits for this answer")
            self._workers.add(worker)
        try:
            yield
        finally:
            with self._lock:
                self._workers.discard(worker)

    def end(self) -> None:
        """End those that are still there, and take no more."""
        with self._lock:
            self.is_over = True
            workers = list(self._workers)
        end_workers(workers)


def _begin_anew(pool: Pool | None) -> None:
    """In the child of a fork: a request over a pipe that two processes hold would get the answer to another one."""
    if pool is not None:
        for worker in pool.idle:
            worker.leave()
        pool._begin()


def _taken(queue: SimpleQueue[int]) -> Iterator[int]:
    """What is in a queue that nobody fills any more."""
    while True:
        try:
            yield queue.get_nowait()
        except Empty:
            return


POOL = Pool()
atexit.register(POOL.close)


def compile_many(requests: Sequence[Request], jobs: int | None = None) -> list[bytes]:
    """Objects of many modules; `jobs` defaults to ARMILLARY_COMPILE_JOBS; 0 means one worker, never this process."""
    count = int(setting("ARMILLARY_COMPILE_JOBS")) if jobs is None else jobs
    if count == 0:
        return POOL.compile_many(requests, 1)
    if min(count, len(requests)) > 1:
        return POOL.compile_many(requests, count)
    if not requests:
        return []
    compile_ir = importlib.import_module("armillary.codegen.llvm.machine").compile_ir
    try:
        return [compile_ir(**dataclasses.asdict(request)) for request in requests]
    except ValueError as error:
        raise InternalError(str(error)) from None
