"""RPCRunner: trials on devices that a tracker lends.

In: libraries of a `Builder`, the key of a kind of device, the tracker's address. Out: a `MeasureResult` each, in order.
Invariant: each trial has a session of its own, which ends at `timeout`; a device that crashes, hangs or answers wrongly
costs that trial. A tracker that does not answer, or has no such device, is an error before the first trial. The answer
is compared with the reference, which is computed here. Sessions: `armillary/rpc`; trials here: `local_runner.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from armillary import rpc
from armillary.autotvm.measure.local_runner import LocalRunner
from armillary.autotvm.measure.measure import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult, failed
from armillary.autotvm.measure.processes import short_error
from armillary.autotvm.measure.trial import Array, difference, random_input, without_extremes
from armillary.autotvm.task.task import Task
from armillary.errors import ArmillaryError, RPCError, RPCSessionTimeoutError

HOST, PORT = "127.0.0.1", 9190


def request_remote(
    device_key: str,
    host: str | None = None,
    port: int | None = None,
    priority: int = 1,
    timeout: float = 60,
    wait_for_key: float = 5,
) -> Any:  # Any: an RPCSession
    """A session on a device of the key, for `timeout` seconds; RPCError says why there is none, after `wait_for_key`
    seconds where no server has the key."""
    tracker = rpc.connect_tracker(host or HOST, port or PORT)
    return tracker.request(device_key, priority=priority, session_timeout=timeout, wait_for_key=wait_for_key)


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
        module_loader: Any = None,
        check_correctness: bool = True,
        seed: int = 0,
    ) -> None:
        del module_loader  # sessions load libraries themselves
        super().__init__(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, check_correctness, seed
        )
        self.key, self.host, self.port, self.priority = key, host, port, priority
        self._wanted = n_parallel
        self.n_parallel = n_parallel or 1

    def set_task(self, task: Task) -> None:
        """See whether the tracker has such a device, then compute the task's reference."""
        tracker = rpc.connect_tracker(self.host, self.port)
        queue = tracker.summary()["queue_info"]
        if self.key not in queue:
            told = f"the tracker {self.host}:{self.port} has no device of the key {self.key!r}"
            raise RPCError(told, hint=f"its keys: {', '.join(sorted(queue)) or 'none'}")
        self.n_parallel = self._wanted or max(1, int(queue[self.key]["total"]))
        super().set_task(task)

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult]) -> list[MeasureResult]:
        """Run and time each library, on several devices at a time."""
        with ThreadPoolExecutor(self.n_parallel) as devices:
            return list(devices.map(self._one, build_results))

    def _one(self, built: BuildResult) -> MeasureResult:
        if built.error_no:
            return MeasureResult((), built.error_no, built.time_cost, time.time(), built.error)
        start = time.monotonic()
        try:
            costs = self._on_device(built.filename)
        except RPCSessionTimeoutError as error:
            return failed(MeasureErrorNo.RUN_TIMEOUT, short_error(error), _spent(built, start))
        except WrongAnswerError as error:
            return failed(MeasureErrorNo.WRONG_ANSWER, error.message, _spent(built, start))
        except ArmillaryError as error:
            return failed(MeasureErrorNo.RUNTIME_DEVICE, short_error(error), _spent(built, start))
        finally:
            time.sleep(self.cooldown_interval)
        return MeasureResult(without_extremes(costs), 0, _spent(built, start), time.time())

    def _on_device(self, path: str) -> list[float]:
        with request_remote(self.key, self.host, self.port, self.priority, self.timeout) as session:
            session.upload(path)
            module = session.load_module(os.path.basename(path))
            timing: dict[str, Any] = dict(self.timing)  # Any: numbers and a text
            if module.has_graph:
                executor = module.create_executor(session.device(self.device))
                for place, name in enumerate(executor.free_inputs):
                    shape, dtype = executor.input_type(name)
                    executor.set_input(name, np.array(random_input(place, shape, str(dtype), self.seed)))
                executor.run()
                self._check([executor.get_output(i).numpy() for i in range(executor.get_num_outputs())])
                return list(executor.time_evaluator("run", session.device(self.device), **timing)().results)
            arguments, outputs = self._arguments(session, module.entry_func.row)
            module.entry_func(*arguments)
            self._check([tensor.numpy() for tensor in outputs])
            measure = module.time_evaluator(module.entry_name, session.device(self.device), **timing)
            return list(measure(*arguments).results)

    def _arguments(self, session: Any, row: Any) -> tuple[list[Any], list[Any]]:  # Any: remote tensors, a FunctionRow
        """All arguments there, and those of them that are results."""
        made, outputs = [], []
        for place, argument in enumerate(row.args):
            if argument.role == "out":
                outputs.append(session.device(self.device).empty_elsewhere(argument.shape, argument.dtype))
                outputs[-1].copyfrom(np.zeros(argument.shape, random_input(0, (1,), argument.dtype, 0).dtype))
                made.append(outputs[-1])
            else:
                made.append(session.sent(np.array(random_input(place, argument.shape, argument.dtype, self.seed))))
        return made, outputs

    def _check(self, answer: list[Array]) -> None:
        if not self._reference:
            return
        with np.load(self._reference) as stored:
            wanted = [stored[name].view(a.dtype) for name, a in zip(stored.files, answer, strict=True)]
        told = difference(answer, wanted)
        if told:
            raise WrongAnswerError(told)


class WrongAnswerError(RPCError):
    """A library answers otherwise than the reference."""


def _spent(built: BuildResult, start: float) -> float:
    return built.time_cost + time.monotonic() - start
