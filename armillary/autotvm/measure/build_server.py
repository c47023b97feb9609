"""The process on a worker that compiles: it forks for each build, so that a compiler which dies takes one fork with it.

In: requests on stdin, a pickle with its size before it: a task, a configuration, how to link. Out: on stdout the
library's bytes, or an error, in the same form. Invariant: both ends are ours (a worker of a cluster runs whatever its
scheduler sends it, so nothing is gained by another form); this process has one thread, as forks of a process with many
may hang; it ends with its parent. The other side: `dask_builder.py`.
"""

from __future__ import annotations

import functools
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

from armillary.autotvm.measure.local_builder import BuildFunction, Options, build_one
from armillary.autotvm.measure.measure import MeasureErrorNo, MeasureInput
from armillary.autotvm.measure.processes import run_all
from armillary.base.files import scratch_folder
from armillary.base.lazy import deferred
from armillary.base.record import record
from armillary.errors import InternalError

with deferred():
    import cloudpickle

_SIZE = struct.Struct("<Q")
_ROOT = str(Path(__file__).resolve().parents[3])
_MAIN = "from armillary.autotvm.measure.build_server import main; sys.exit(main())"
_START = "import sys; sys.path.insert(0, {root!r}); " + _MAIN


@record(slots=True)
class Built:
    """A library's bytes, or why there is none."""

    library: bytes
    error_no: int = 0
    error: str = ""
    seconds: float = 0.0
    flop: float = 0.0


def packed(trial: MeasureInput, build_func: BuildFunction | None, build_kwargs: Options) -> bytes:
    """A build as bytes; functions of the user's script travel by value."""
    result: bytes = cloudpickle.dumps((trial, build_func, build_kwargs))
    return result


def call_there(work: bytes) -> object:
    """On a worker: a function of one argument, both as bytes; it compiles nothing, so it runs in the worker itself."""
    function, argument = pickle.loads(work)
    result: object = function(argument)
    return result


class _Server(threading.local):
    """One process for each thread of a worker."""

    process: subprocess.Popen[bytes] | None = None


_SERVER = _Server()


def build_there(work: bytes, *, suffix: str, seconds: float) -> Built:
    """On a worker: have its process compile; a process that died is an error, which the cluster tries again."""
    server = _SERVER.process
    if server is None or server.poll() is not None:
        code = _START.format(root=_ROOT)
        server = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        _SERVER.process = server
    assert server.stdin is not None and server.stdout is not None, "the pipes were asked for"
    try:
        _write(server.stdin, pickle.dumps((work, suffix, seconds)))
        answer = _read(server.stdout)
    except BrokenPipeError:
        answer = None
    if answer is None:
        raise InternalError(f"the process that compiles ended with status {server.wait()}")
    result: Built = pickle.loads(answer)
    return result


def main() -> int:
    """Serve until stdin closes."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while (request := _read(sys.stdin.buffer)) is not None:
        _write(answers, pickle.dumps(serve(*pickle.loads(request))))
    return 0


def serve(work: bytes, suffix: str, seconds: float) -> Built:
    """What becomes of a build."""
    with scratch_folder() as folder:
        path = folder / f"trial.{suffix}"
        ((answer, how, spent),) = run_all([functools.partial(_build, work, path)], seconds, 1)
        if how == "timeout":
            message = f"compiling took longer than {seconds:g} s and was stopped"
            return Built(b"", MeasureErrorNo.BUILD_TIMEOUT, message, spent)
        if how:
            return Built(b"", MeasureErrorNo.COMPILE_HOST, f"while compiling, {how}", spent)
        error_no, error, flop = answer
        return Built(b"" if error_no else path.read_bytes(), int(error_no), error, spent, flop)


def _build(work: bytes, path: Path) -> tuple[int, str, float]:
    inp, build_func, build_kwargs = pickle.loads(work)
    return build_one(inp, path, build_func, build_kwargs)


def _write(stream: IO[bytes], data: bytes) -> None:
    stream.write(_SIZE.pack(len(data)) + data)
    stream.flush()


def _read(stream: IO[bytes]) -> bytes | None:
    """The next message; None at the end."""
    head = stream.read(_SIZE.size)
    if len(head) < _SIZE.size:
        return None
    (size,) = _SIZE.unpack(head)
    data = stream.read(size)
    return data if len(data) == size else None
