"""RPCRunner: trials on devices that a tracker lends.

In: libraries of a `Builder`, the key of a kind of device, the tracker's address. Out: a `MeasureResult` each, in order.
Invariant: each trial has a session of its own, which ends at `timeout`; a kernel that crashes, hangs or answers wrongly
costs that trial. A device that is lost on the way costs an attempt: the trial runs again on another one; a tracker that
is gone is waited for, then it is an error, and no trial is logged. Without such a device there is no first trial. The
answer is compared with the reference, which is computed here. Sessions: `armillary/rpc`. Here: `local_runner.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import platform
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from armillary import rpc
from armillary.artifact import FunctionRow
from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.local_runner import LocalRunner
from armillary.autotvm.measure.measure import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult, failed
from armillary.autotvm.measure.processes import short_error
from armillary.autotvm.measure.trial import check_arguments, difference, random_input, set_inputs, without_extremes
from armillary.autotvm.task.task import Task
from armillary.base.aliases import Array
from armillary.base.arguments import Arguments
from armillary.base.files import disk_fault
from armillary.base.json_types import JsonObject
from armillary.errors import (
    ArmillaryError,
    ArtifactError,
    InternalError,
    RPCConnectionError,
    RPCError,
    RPCSessionTimeoutError,
)
from armillary.rpc.client import RPCSession, TrackerSession
from armillary.rpc.connection import check_address
from armillary.rpc.remote import RemoteNDArray
from armillary.target import Target
from armillary.target.cpu import architecture
from armillary.target.target import host_target

HOST, PORT = "127.0.0.1", 9190
ATTEMPTS = 3  # at a trial whose device is lost
PATIENCE = 60.0  # seconds for a tracker, or a device of the key, to come back
_PAUSE = 1.0
_ALSO = {"x86_64": ("i386",), "aarch64": ("arm",)}  # whose code these machines may run, too
_NOBODY = ("became free within", "no device has the key")
logger = logging.getLogger("autotvm")


def request_remote(
    device_key: str,
    host: str | None = None,
    port: int | None = None,
    priority: int = 1,
    timeout: float = 60,
    wait_for_key: float = 5,
) -> RPCSession:
    """A session on a device of the key, for `timeout` seconds; RPCError says why there is none, after `wait_for_key`
    seconds where no server has the key."""
    tracker: TrackerSession = rpc.connect_tracker(HOST if host is None else host, PORT if port is None else port)
    return tracker.request(device_key, priority=priority, session_timeout=timeout, wait_for_key=wait_for_key)


def check_machines(target: Target, key: str, message: Sequence[JsonObject]) -> None:
    """TuningError where no device of a key, by what its server tells, runs a target's code."""
    host = host_target(target)
    machines = sorted({str(info.get("arch", "")) for info in message})
    wanted = architecture(host.mtriple or platform.machine())
    runs = {other for machine in machines for other in (architecture(machine), *_ALSO.get(architecture(machine), ()))}
    if host.kind.name != "llvm" or not machines or "" in machines or wanted in runs:
        return
    difference = f"the target {host} is for {wanted}, devices of the key {key!r} are {', '.join(machines)}"
    option = "target" if host is target else "target host"
    triples = " or ".join(f'"llvm -mtriple={architecture(machine)}-linux-gnu"' for machine in machines)
    raise TuningError(difference, hint=f"a {option} for them, such as {triples}")


class RPCRunner(LocalRunner):
    """Measures on devices of a key; `n_parallel`: at a time (default: as many as the tracker has)."""

    def __init__(
        self,
        key: str,
        host: str = HOST,
        port: int = PORT,
        priority: int = 1,
        timeout: float = 10,
        n_parallel: int | None = None,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: float = 0,
        cooldown_interval: float = 0.1,
        enable_cpu_cache_flush: bool = False,
        module_loader: object = None,
        check_correctness: bool = True,
        seed: int = 0,
    ) -> None:
        del module_loader  # sessions load libraries themselves
        super().__init__(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, check_correctness, seed
        )
        arguments = Arguments("RPCRunner", TuningError)
        arguments.text("key", key, is_empty_allowed=False)
        arguments.whole("priority", priority)
        if n_parallel is not None:
            arguments.whole("n_parallel", n_parallel, 1)
        check_address(host, port)
        self.key, self.host, self.port, self.priority = key, host, port, priority
        self._wanted = n_parallel
        self._done = _Done()
        self.n_parallel = n_parallel or 1

    def set_task(self, task: Task) -> None:
        """See whether the tracker has such a device, then compute the task's reference."""
        tracker = rpc.connect_tracker(self.host, self.port)
        summary = tracker.summary()
        queue = summary["queue_info"]
        if self.key not in queue:
            message = f"the tracker {self.host}:{self.port} has no device of the key {self.key!r}"
            start = f"none: armc rpc server --tracker={self.host}:{self.port} --key={self.key}, on the device"
            raise RPCError(message, hint=f"its keys: {', '.join(sorted(queue)) or start}")
        check_machines(task.target, self.key, [r["info"] for r in summary["server_info"] if r["key"] == self.key])
        self.n_parallel = self._wanted or max(1, int(queue[self.key]["total"]))
        self._done = _Done(f"{task.name} {' '.join(map(_shown, task.args))}"[:400], task.flop, len(task.config_space))
        super().set_task(task)

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult]) -> list[MeasureResult]:
        """Run and time each library, on several devices at a time."""
        with ThreadPoolExecutor(self.n_parallel) as devices:
            result = list(devices.map(self._one, build_results, itertools.repeat(self.ref_input)))
        self._done.add(result)
        with contextlib.suppress(RPCError):  # who watches the page misses a point of the curve
            rpc.connect_tracker(self.host, self.port).report({"key": self.key, **self._done.report()})
        return result

    def _one(self, built: BuildResult, ref_input: Sequence[Array] | None) -> MeasureResult:
        if built.error_no:
            return MeasureResult((), built.error_no, built.time_cost, time.time(), built.error)
        start = time.monotonic()
        try:
            costs = self._patiently(built.filename, ref_input or ())
        except RPCSessionTimeoutError as error:
            return failed(MeasureErrorNo.RUN_TIMEOUT, short_error(error), _spent(built, start))
        except WrongAnswerError as error:
            return failed(MeasureErrorNo.WRONG_ANSWER, error.message, _spent(built, start))
        except NoSessionError:
            raise
        except ArmillaryError as error:
            return failed(MeasureErrorNo.RUNTIME_DEVICE, short_error(error), _spent(built, start))
        finally:
            time.sleep(self.cooldown_interval)
        return MeasureResult(without_extremes(costs), 0, _spent(built, start), time.time())

    def _patiently(self, path: str, values: Sequence[Array]) -> list[float]:
        """Times on a device; on another one where the connection to it breaks or its disk is full."""
        for left in reversed(range(ATTEMPTS)):
            session = self._session()
            try:
                return self._on_device(session, path, values)
            except ArmillaryError as error:
                is_full = bool(disk_fault(error.message))
                if is_full and not left:
                    raise ArtifactError(f"{session.name}: {error.message}", span=error.span) from None
                if not left or not (is_full or isinstance(error, RPCConnectionError)):
                    raise
                logger.warning("a trial runs again on another device: %s", error.message)
        raise InternalError("there is no attempt left")

    def _session(self) -> RPCSession:
        """A session on a device; NoSessionError where there is none for a minute."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return request_remote(self.key, self.host, self.port, self.priority, self.timeout)
            except RPCError as error:
                is_passing = isinstance(error, RPCConnectionError) or any(
                    message in error.message for message in _NOBODY
                )
                if not is_passing or time.monotonic() > until:
                    raise NoSessionError(error.message, hint="--resume goes on with what the log has") from None
            time.sleep(_PAUSE)

    def _on_device(self, session: RPCSession, path: str, values: Sequence[Array]) -> list[float]:
        with session:
            session.upload(path)
            module = session.load_module(os.path.basename(path))
            timing: JsonObject = dict(self.timing)  # Any: numbers and a text
            if module.has_graph:
                executor, costs, answer = (
                    module.create_executor(session.device(self.device)),
                    list[Array](),
                    list[Array](),
                )
                for shapes in self._shapes:
                    set_inputs(executor, self.seed, shapes)
                    executor.run()
                    answer += [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]
                    timed = executor.time_evaluator("run", session.device(self.device), **timing)()
                    costs.append(np.array(timed.results))
                self._check(answer)
                return [float(cost) for cost in np.sum(costs, axis=0)]
            arguments, outputs = self._sent(session, module.entry_func.row, values)
            module.entry_func(*arguments)
            self._check([tensor.numpy() for tensor in outputs])
            measure = module.time_evaluator(module.entry_name, session.device(self.device), **timing)
            return list(measure(*arguments).results)

    def _sent(
        self, session: RPCSession, row: FunctionRow, values: Sequence[Array]
    ) -> tuple[list[RemoteNDArray], list[RemoteNDArray]]:
        """All arguments there, and those of them that are results."""
        buffers, outputs = [], []
        check_arguments(row, values)
        for place, argument in enumerate(row.args):
            shape = tuple(int(n) for n in argument.shape)
            if argument.role == "out":
                outputs.append(session.device(self.device).empty_elsewhere(shape, argument.dtype))
                outputs[-1].copyfrom(np.zeros(shape, random_input(0, (1,), argument.dtype, 0).dtype))
                buffers.append(outputs[-1])
            else:
                value = values[place] if values else random_input(place, shape, argument.dtype, self.seed)
                buffers.append(session.sent(np.array(value)))
        return buffers, outputs

    def _check(self, answer: list[Array]) -> None:
        if not self._reference:
            return
        with np.load(self._reference) as stored:
            wanted = [stored[name].view(a.dtype) for name, a in zip(stored.files, answer, strict=True)]
        message = difference(answer, wanted)
        if message:
            raise WrongAnswerError(message)


class NoSessionError(RPCError):
    """No device of the key can be had: that is no trial's fault."""


class WrongAnswerError(RPCError):
    """A library answers otherwise than the reference."""


class _Done:
    """The trials of a task so far, as the tracker's page shows them."""

    def __init__(self, task: str = "", flop: float = 0.0, total: int = 0) -> None:
        self.task, self.flop, self.total = task, flop, total
        self.trials = self.failed = self.last = self.best = 0
        self.error = ""

    def add(self, results: Sequence[MeasureResult]) -> None:
        """Count results."""
        self.trials += len(results)
        for result in results:
            if result.error_no:
                first = result.error.partition("\n")[0][:400]
                self.failed, self.error = self.failed + 1, "".join(c if c.isprintable() else " " for c in first)
            else:
                self.last = round(self.flop / result.mean)
                self.best = max(self.best, self.last)

    def report(self) -> JsonObject:  # Any: JSON
        """The fields of a report (rpc/protocol.py)."""
        numbers = {"trials": self.trials, "total": self.total, "failed": self.failed}
        return {"task": self.task, "error": self.error, "flops": self.last, "best": self.best, **numbers}


def _shown(argument: Any) -> str:  # Any: of a task
    is_tensor = isinstance(argument, tuple) and len(argument) == 3 and argument[0] == "TENSOR"
    return "x".join(map(str, argument[1])) if is_tensor else str(argument)


def _spent(built: BuildResult, start: float) -> float:
    return built.time_cost + time.monotonic() - start
