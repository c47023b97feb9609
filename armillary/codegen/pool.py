"""Parallel compilation in worker processes (LLVM behind llvmlite holds one lock per process, so threads do not help).

In: many `Request`s. Out: their objects, in order. Invariant: workers start on first use, are reused, and end with
this process (their input pipe closes) or after some idle seconds; with one job, or one request, `compile_many` compiles
in this process, unless told not to. A worker that dies makes the call fail with its exit status; the next call starts a
new one. The other side: `worker.py`.
"""

from __future__ import annotations

import atexit
import dataclasses
import importlib
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

from armillary.codegen.wire import LENGTH, REPLY
from armillary.config import setting
from armillary.errors import ArmillaryError, ExecutionError, InternalError

_ROOT = str(Path(__file__).resolve().parents[2])
_START = f"import sys; sys.path.insert(0, {_ROOT!r}); from armillary.codegen.worker import main; sys.exit(main())"


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """One module to compile; `form` is object, assembly or llvm."""

    ir: str
    triple: str
    cpu: str
    features: str
    form: str = "object"
    abi: str = ""
    opt_level: int = 2


class _WentIdle(ExecutionError):
    """The worker had ended by itself, just before the request reached it."""


class Worker:
    """One process and its pipes."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def compile(self, request: Request) -> bytes:
        """Send one request and wait for its object."""
        incoming, outgoing = self.process.stdout, self.process.stdin
        assert incoming is not None and outgoing is not None, "the pipes were asked for"
        payload = json.dumps(dataclasses.asdict(request)).encode()
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

    def _died(self) -> ExecutionError:
        code = self.process.wait()
        if code == 0:
            return _WentIdle("a compile worker ended before its request was done")
        errors = self.process.stderr.read().decode(errors="replace")[-2000:] if self.process.stderr else ""
        return ExecutionError(
            f"a compile worker died (exit status {code}) {errors}".rstrip(),
            hint="was it killed, or out of memory? ARMILLARY_COMPILE_JOBS=1 compiles one kernel at a time",
        )

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """Close the pipe and wait; kill what does not end by itself."""
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # the other end is gone, and so is what was buffered
                    continue
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Pool:
    """A growing set of workers."""

    def __init__(self) -> None:
        self.idle: list[Worker] = []
        self.lock = threading.Lock()

    def compile_many(self, requests: Sequence[Request], jobs: int) -> list[bytes]:
        """Objects of `requests`, by up to `jobs` workers; raises the first failure."""
        todo: SimpleQueue[int] = SimpleQueue()
        for index in sorted(range(len(requests)), key=lambda i: -len(requests[i].ir)):  # the longest first
            todo.put(index)
        results: list[bytes] = [b""] * len(requests)
        failures: list[BaseException] = []

        def serve() -> None:
            try:
                self._drain(requests, todo, results, failures)
            except (ArmillaryError, OSError) as error:
                failures.append(error)

        threads = [threading.Thread(target=serve, daemon=True) for _ in range(min(jobs, len(requests)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return results

    def _drain(
        self, requests: Sequence[Request], todo: SimpleQueue[int], results: list[bytes], failures: list[BaseException]
    ) -> None:
        worker = self._take()
        try:
            while not failures:
                index = todo.get_nowait()
                try:
                    results[index] = worker.compile(requests[index])
                except _WentIdle:
                    worker.stop()
                    worker = Worker()
                    results[index] = worker.compile(requests[index])
        except Empty:
            pass
        finally:
            self._give(worker)

    def _take(self) -> Worker:
        with self.lock:
            while self.idle:
                worker = self.idle.pop()
                if worker.is_alive:
                    return worker
                worker.stop()
        return Worker()

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
    compile_ir = importlib.import_module("armillary.codegen.machine").compile_ir
    try:
        return [compile_ir(**dataclasses.asdict(request)) for request in requests]
    except ValueError as error:
        raise InternalError(str(error)) from None
