"""The process that runs trials: it forks for each, so that a kernel that crashes or hangs takes one fork with it.

In: requests on stdin, a JSON object in a line each: library, device, timing, seed, timeout, shapes (of inputs with open
axes, at each size that is run), arguments (a file of them, or ""), and reference (an answer to compare with) or save
(where to write the answer). Out: on stdout a JSON object in a line: costs, error_no, error.
A request with `libraries` has a device's driver compile their kernels, several at a time. Invariant: one trial runs at
a time; this process loads no library itself, starts no threads, and ends with its parent (stdin closes). Trials on a
CPU have a process each; those on a device one that has opened it, until a trial ends it. The other side:
`local_runner.py`.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import resource
import signal
import sys

import numpy as np

from armillary.autotvm.measure import processes, trial
from armillary.base.aliases import Array
from armillary.base.config import setting
from armillary.base.json_types import JsonObject
from armillary.errors import ArmillaryError
from armillary.runtime.benchmark import Timing

RUNTIME, WRONG, TIMEOUT = 4, 5, 7  # of MeasureErrorNo, whose module is much larger
Request = JsonObject  # Any: JSON
_MOST_TRIALS = 256  # of one process: drivers leak
_MOST_LOADERS = 16  # each has opened the device, which takes memory there
_MANY = 64 << 20  # bytes of reference answers to keep


def main() -> int:
    """Serve until stdin closes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tuner, who then closes stdin
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(serve(request)) + "\n")
        answers.flush()
    return 0


def serve(request: Request) -> Request:
    """The answer to a request."""
    if request.get("libraries"):
        _load_all(request["libraries"], request["device"], request["timeout"])
        return {"costs": [], "error_no": 0, "error": ""}  # what does not load says so in its trial
    if request["reference"]:
        _reference(request["reference"])  # here, so that forks find it
    if request["device"] == "cpu":
        ((answer, how, _),) = processes.run_all([functools.partial(_run, request)], request["timeout"], 1)
    else:
        answer, how = _asked(request)
    if answer is not None:
        return dict(answer)
    if how == "timeout":
        return _failed(TIMEOUT, f"it ran longer than {request['timeout']:g} s and was killed")
    return _failed(RUNTIME, how)


def _failed(error_no: int, error: str) -> Request:
    return {"costs": [], "error_no": error_no, "error": error}


_DEVICES: dict[str, processes.Kept] = {}  # by kind: the process that has opened it


def _asked(request: Request) -> tuple[Request | None, str]:
    """The answer of the process that holds the device. To open one takes longer than most trials do."""
    kind = request["device"]
    if kind not in _DEVICES:
        _DEVICES[kind] = processes.Kept(_run_and_forget)
    held = _DEVICES[kind]
    answer, how = held.ask(request, request["timeout"])
    if how:
        del _DEVICES[kind]
    elif held.asked >= _MOST_TRIALS:
        held.end()
        del _DEVICES[kind]
    return answer, how


def _run_and_forget(request: Request) -> Request:
    result = _run(request)
    gc.collect()  # the memory of the device
    return result


_LOADERS: dict[str, list[processes.Kept]] = {}  # by kind: processes that have opened the device, to compile kernels


def _load_all(paths: list[str], kind: str, seconds: float) -> None:
    """Let the driver of a device compile the kernels of libraries; the runtime keeps what it makes."""
    pool = _LOADERS.setdefault(kind, [])
    wanted = min(len(paths), int(setting("ARMILLARY_COMPILE_JOBS")), _MOST_LOADERS)
    pool += [processes.Kept(_load_and_forget) for _ in range(wanted - len(pool))]
    processes.ask_all(pool, [{"library": path, "device": kind} for path in paths], seconds)


def _load_and_forget(request: Request) -> Request:
    try:
        prepared = trial.prepare(request["library"], 0, request["device"])
        del prepared
    except ArmillaryError:
        pass  # its trial says why
    gc.collect()  # the memory of the device
    return {}


def _run(request: Request) -> Request:
    """In a process of its own."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        of_library = functools.partial(trial.prepare, request["library"], request["seed"], request["device"])
        arguments = _reference(request["arguments"]) if request["arguments"] else ()
        sizes = [of_library(shapes, arguments) for shapes in request["shapes"]]
        for prepared in sizes:
            prepared.run()
        answer = [output for prepared in sizes for output in prepared.outputs()]
        if request["save"]:
            trial.save_answer(request["save"], answer)
            return {"costs": [], "error_no": 0, "error": ""}
        if request["reference"]:
            wanted = _reference(request["reference"])
            message = trial.difference(answer, [w.view(a.dtype) for w, a in zip(wanted, answer, strict=True)])
            if message:
                return _failed(WRONG, message)
        costs = trial.times(sizes, Timing(**request["timing"]))
        return {"costs": list(trial.without_extremes(costs)), "error_no": 0, "error": ""}
    except ArmillaryError as error:
        return _failed(RUNTIME, processes.short_error(error))


_KEPT: dict[str, list[Array]] = {}


def _reference(path: str) -> list[Array]:
    if path not in _KEPT:
        with np.load(path) as stored:
            answer = [stored[name] for name in stored.files]
        if sum(a.nbytes for retained in _KEPT.values() for a in retained) > _MANY:
            _KEPT.clear()
        _KEPT[path] = answer
    return _KEPT[path]


if __name__ == "__main__":
    sys.exit(main())
