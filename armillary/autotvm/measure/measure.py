"""What a trial is: a configuration to measure, a built library, a result; and who builds and who runs.

In: `MeasureInput`s. Out: a `MeasureResult` for each, in order. Invariant: whatever happens to a trial - it does not
compile, crashes, hangs, answers wrongly - is its result, with a number and a text; it never ends the tuner. A full disk
is no trial's result: it does. A `Builder` and a `Runner` know their task by `set_task`. Here: `local_builder.py`,
`local_runner.py`; devices: `rpc_runner.py`; which of them: `option.py`.
"""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from armillary.autotvm.errors import TuningError
from armillary.autotvm.task.space import ConfigEntity
from armillary.autotvm.task.task import Task
from armillary.backends.base import backend_of
from armillary.base.arguments import Arguments
from armillary.base.boundary import boundary
from armillary.base.files import disk_fault
from armillary.errors import ArtifactError
from armillary.target import Target

NO_ROOM = "make room (TMPDIR names the folder of temporary files); what the log has stays, and resuming goes on with it"


class MeasureErrorNo(enum.IntEnum):
    """How a trial ended."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


class MeasureInput(NamedTuple):
    """A configuration of a task on a target."""

    target: Target
    task: Task
    config: ConfigEntity


class _Timing(NamedTuple):
    """The four values that scripts unpack."""

    costs: tuple[float, ...]
    error_no: int
    all_cost: float
    timestamp: float


class MeasureResult(_Timing):
    """Seconds per call, one for each repeat; or an error's number and text. `all_cost`: seconds of the whole trial.

    As in Relay-era scripts a tuple of four; the text of the error is an attribute beside them.
    """

    error: str = ""

    def __new__(
        cls, costs: tuple[float, ...], error_no: int, all_cost: float, timestamp: float, error: str = ""
    ) -> MeasureResult:
        self = super().__new__(cls, costs, error_no, all_cost, timestamp)
        self.error = error
        return self

    def __reduce__(self) -> tuple[type[MeasureResult], tuple[object, ...]]:
        return MeasureResult, (*self, self.error)

    @property
    def mean(self) -> float:
        """The mean of the costs; infinity for a trial that failed."""
        return sum(self.costs) / len(self.costs) if self.error_no == 0 and self.costs else math.inf


class BuildResult(NamedTuple):
    """A library to run, or why there is none."""

    filename: str
    error_no: int = 0
    error: str = ""
    time_cost: float = 0.0
    flop: float = 0.0


def device_kind(target: Target) -> str:
    """The kind of device that a target's kernels run on, as `runtime.device` takes it."""
    return backend_of(target).device or "cpu"


def failed(error_no: MeasureErrorNo, error: str, all_cost: float) -> MeasureResult:
    """The result of a trial that failed now."""
    return MeasureResult((), int(error_no), all_cost, time.time(), error)


class Builder(Protocol):
    """Makes libraries of configurations; a script's own may be derived from it."""

    n_parallel: int
    timeout: float

    def __init__(self, timeout: float = 10, n_parallel: int | None = None) -> None:
        self.timeout, self.n_parallel = timeout, n_parallel or 1

    def set_task(self, task: Task, build_kwargs: dict[str, object] | None = None) -> None:
        """Say whose configurations come."""

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[BuildResult]:
        """A library, or an error, for each input."""

    def close(self) -> None:
        """End processes, remove files."""


class Runner(Protocol):
    """Runs libraries and times them; a script's own may be derived from it."""

    n_parallel: int
    timeout: float

    def __init__(self, timeout: float = 5, n_parallel: int | None = None) -> None:
        self.timeout, self.n_parallel = timeout, n_parallel or 1

    def set_task(self, task: Task) -> None:
        """Say whose libraries come; makes the reference that answers are checked against."""

    def get_build_kwargs(self) -> dict[str, Any]:
        """What the builder must know of the device (Any: options of the builder)."""
        return {}

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult]) -> list[MeasureResult]:
        """Times, or an error, for each library."""

    def close(self) -> None:
        """End processes, remove files."""


MeasureOption = dict[str, Any]  # builder and runner


MeasureBatch = Callable[[Sequence[MeasureInput]], list[MeasureResult]]


class Measurer:
    """Builds and runs batches of one task."""

    def __init__(self, task: Task, option: MeasureOption) -> None:
        wanted = "what measure_option(builder, runner) gives"
        arguments = Arguments("create_measure_batch", TuningError)
        arguments.kind("task", task, Task, "a task", "autotvm.task.create, or extract_from_program")
        arguments.kind("option", option, dict, wanted)
        if not {"builder", "runner"} <= option.keys():
            arguments.refuse("option", option, wanted)
        self.builder: Builder = option["builder"]
        self.runner: Runner = option["runner"]
        self.n_parallel = self.builder.n_parallel
        self.runner.set_task(task)
        self.builder.set_task(task, self.runner.get_build_kwargs())

    def __call__(self, measure_inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """The results, in the order of the inputs; ArtifactError where a disk is full, which is no trial's fault."""
        built = self.builder.build(measure_inputs)
        results = self.runner.run(measure_inputs, built)
        for result in results:
            message = disk_fault(result.error) if result.error_no else ""
            if message:
                raise ArtifactError(f"trials cannot be made: {message.removeprefix('ArtifactError: ')}", hint=NO_ROOM)
        return results

    def close(self) -> None:
        """End what the task started."""
        self.builder.close()
        self.runner.close()


@boundary("autotvm.create_measure_batch", arguments=True)
def create_measure_batch(task: Task, option: MeasureOption) -> Measurer:
    """A function that measures lists of MeasureInputs of a task."""
    return Measurer(task, option)
