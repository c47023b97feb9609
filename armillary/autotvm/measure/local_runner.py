"""LocalRunner: trials on this machine, one at a time, in processes of their own.

In: libraries of a `Builder`. Out: a `MeasureResult` each, in order. The kernels of a batch for a device are compiled by
its driver in several processes first. Invariant: the answer of a trial is compared with that of the task's reference
(its computation with plain loops) before it is timed; a trial that crashes, runs longer than `timeout` or answers
wrongly is a result with a text. The process that forks for trials: `run_server.py`.
"""

from __future__ import annotations

import json
import logging
import select
import subprocess
import sys
import time
from collections.abc import Hashable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.executor import Executor
from armillary.autotvm.measure.measure import (
    NO_ROOM,
    BuildResult,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    device_kind,
    failed,
)
from armillary.autotvm.measure.processes import run_all, short_error
from armillary.autotvm.measure.trial import save_answer
from armillary.autotvm.task.task import Shapes, Task
from armillary.base.aliases import Array
from armillary.base.arguments import Arguments
from armillary.base.files import disk_fault, scratch_folder
from armillary.driver.library import FunctionLibrary
from armillary.errors import ArmillaryError, ArtifactError

logger = logging.getLogger("autotvm")
_ROOT = str(Path(__file__).resolve().parents[3])
_START = (
    "import sys; sys.path.insert(0, {root!r}); from armillary.autotvm.measure.run_server import main; sys.exit(main())"
)
_REFERENCE_SECONDS = 120.0  # to compile and to run plain loops
_GRACE, _END_SECONDS = 60.0, 5.0  # for the answer of a process whose trial is over; for its end
FLUSH = "cache_flush_cpu_non_first_arg"


class LocalRunner:
    """Measures on this machine; options as those of `time_evaluator`, `timeout` in seconds for one trial.

    `enable_cpu_cache_flush` empties the caches before each repeat, as the rest of a network would.
    """

    n_parallel = 1

    def __init__(
        self,
        timeout: float = 10,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: float = 0,
        cooldown_interval: float = 0.1,
        enable_cpu_cache_flush: bool = False,
        check_correctness: bool = True,
        seed: int = 0,
    ) -> None:
        arguments = Arguments(type(self).__name__, TuningError)
        arguments.number("timeout", timeout, above=0)
        arguments.number("min_repeat_ms", min_repeat_ms, 0)
        arguments.number("cooldown_interval", cooldown_interval, 0)
        arguments.counts(1, number=number, repeat=repeat)
        arguments.counts(0, seed=seed)
        self.timeout, self.seed, self.checks = timeout, seed, check_correctness
        self.cooldown_interval = cooldown_interval
        self.timing = {"number": number, "repeat": repeat, "min_repeat_ms": min_repeat_ms}
        if enable_cpu_cache_flush:
            self.timing["f_preproc"] = FLUSH  # type: ignore[assignment]  # JSON values
        self.executor: Executor | None = None  # what trials are submitted to, instead of one by one from here
        self._ref_input: list[Array] | None = None
        self._arguments_file = ""  # the file of them
        self._reference, self.device = "", "cpu"
        self._task: Task | None = None
        self._shapes: Sequence[Shapes] = ({},)
        self._server: subprocess.Popen[str] | None = None
        self._stack = ExitStack()
        self._answers: dict[Hashable, str] = {}  # by what identifies a task's computation: a file, until `close`

    def set_task(self, task: Task) -> None:
        """Compute the task's reference."""
        self.device = device_kind(task.target)
        self._task, self._shapes = task, task.template.shapes(task)
        self._refer_to(task)

    def _refer_to(self, task: Task) -> None:
        self._reference = ""
        if self.checks:
            key = (task.workload, str(task.sizes), "" if task.around is None else str(task.around))
            if key not in self._answers:
                self._answers[key] = self._answer_of(task)
            self._reference = self._answers[key]

    @property
    def ref_input(self) -> list[Array] | None:
        """The arguments of functions that are tuned; None: random values."""
        return self._ref_input

    @ref_input.setter
    def ref_input(self, value: Sequence[Array] | None) -> None:
        self._answers, self._arguments_file = {}, ""  # of other values
        self._ref_input = None if value is None else list(value)
        if self._task is not None:
            self._refer_to(self._task)

    def _file_of(self, arguments: Sequence[Array] | None) -> str:
        """The file with the arguments, which are the same until `ref_input` is set again; "" without any."""
        if arguments and not self._arguments_file:
            self._arguments_file = str(self._stack.enter_context(scratch_folder()) / "arguments.npz")  # until `close`
            save_answer(self._arguments_file, arguments)
        return self._arguments_file

    def get_build_kwargs(self) -> dict[str, Any]:
        return {}

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult]) -> list[MeasureResult]:
        """Run and time each library."""
        if self.device != "cpu" and len(build_results) > 1:
            libraries = [built.filename for built in build_results if not built.error_no]
            self._ask("", libraries=libraries, timeout=self.timeout)
        pairs = zip(measure_inputs, build_results, strict=True)
        if self.executor is None:
            return [self._one(built, self.ref_input) for _, built in pairs]
        futures = [self.executor.submit(self._one, built, self.ref_input) for _, built in pairs]
        return [future.result() for future in futures]

    def _one(self, built: BuildResult, ref_input: Sequence[Array] | None) -> MeasureResult:
        """The result of a library, with these arguments or with random ones."""
        if built.error_no:
            return MeasureResult((), built.error_no, built.time_cost, time.time(), built.error)
        start = time.monotonic()
        arguments = self._file_of(ref_input)
        answer_of_worker = self._ask(built.filename, reference=self._reference, arguments=arguments)
        spent = built.time_cost + time.monotonic() - start
        if self.cooldown_interval:
            time.sleep(self.cooldown_interval)
        if answer_of_worker["error_no"]:
            return failed(MeasureErrorNo(answer_of_worker["error_no"]), answer_of_worker["error"], spent)
        return MeasureResult(tuple(answer_of_worker["costs"]), 0, spent, time.time())

    def _answer_of(self, task: Task) -> str:
        """The file with the answer of the task's plain loops; "" (and a warning) where there are none."""
        folder = self._stack.enter_context(scratch_folder())  # until `close`
        library, answer = folder / "reference.so", folder / "answer.npz"

        def build() -> str:
            try:
                expected = task.template.reference(task)
                if isinstance(expected, FunctionLibrary):
                    expected.export_library(library)
                else:
                    save_answer(str(answer), expected(self.seed))
            except ArmillaryError as error:
                return short_error(error)
            return ""

        ((message, how, _),) = run_all([build], _REFERENCE_SECONDS, 1)
        if not how and not message and library.exists():
            arguments = self._file_of(self.ref_input)
            saved = self._ask(
                str(library), save=str(answer), timeout=_REFERENCE_SECONDS, device="cpu", arguments=arguments
            )
            message = saved["error"]
        if disk_fault(how or message):
            raise ArtifactError(f"the reference cannot be computed: {disk_fault(how or message)}", hint=NO_ROOM)
        if how or message:
            logger.warning("the answers of %s are not checked, its plain loops fail: %s", task.name, how or message)
            return ""
        return str(answer)

    def _ask(
        self,
        library: str,
        *,
        reference: str = "",
        save: str = "",
        timeout: float = 0,
        device: str = "",
        libraries: Sequence[str] = (),
        arguments: str = "",
    ) -> dict[str, Any]:
        request = {
            "library": library,
            "libraries": list(libraries),
            "device": device or self.device,
            "reference": reference,
            "save": save,
            "arguments": arguments,
            "seed": self.seed,
            "shapes": list(self._shapes),
            "timing": self.timing,
            "timeout": timeout or self.timeout,
        }
        server = self._running()
        try:
            assert server.stdin is not None and server.stdout is not None, "the pipes were asked for"
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.flush()
            longest = (timeout or self.timeout) * max(1, len(libraries)) + _GRACE
            answers, _, _ = select.select([server.stdout], [], [], longest)
            answer = server.stdout.readline() if answers else ""
        except BrokenPipeError:
            answer = ""
        if answer:
            return dict(json.loads(answer))
        status = ended(server)
        self._server = None
        message = f"the process that runs trials ended with status {status}"
        return {"costs": [], "error_no": int(MeasureErrorNo.RUNTIME_DEVICE), "error": message}

    def _running(self) -> subprocess.Popen[str]:
        if self._server is None or self._server.poll() is not None:
            code = _START.format(root=_ROOT)
            pipe = subprocess.PIPE
            self._server = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)
        return self._server

    def close(self) -> None:
        """End the process, remove the reference."""
        server, self._server = self._server, None
        if server is not None:
            assert server.stdin is not None and server.stdout is not None, "the pipes were asked for"
            server.stdin.close()
            ended(server)
            server.stdout.close()
        self._stack.close()
        self._stack, self._answers, self._arguments_file = ExitStack(), {}, ""


def ended(server: subprocess.Popen[str]) -> int:
    """The status of a process that was told to end; it is killed where it does not."""
    try:
        return server.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()
