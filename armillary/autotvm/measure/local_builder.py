"""LocalBuilder: libraries of configurations, compiled on this machine, each in a process of its own.

In: `MeasureInput`s. Out: a `BuildResult` each, in order: a shared library, or the error with its text. Invariant: a
build that crashes or takes longer than `timeout` costs one trial; so many run at once as `n_parallel` says; libraries
lie in a temporary folder that goes with `close`. Machine code comes from the kernel cache where it is known.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from armillary.autotvm.errors import InstantiationError, TuningError
from armillary.autotvm.measure.measure import BuildResult, MeasureErrorNo, MeasureInput
from armillary.autotvm.measure.processes import run_all, short_error
from armillary.autotvm.task.task import Task
from armillary.base.aliases import AnyFunction
from armillary.base.arguments import Arguments
from armillary.base.config import setting
from armillary.base.files import scratch_folder
from armillary.contrib import ndk
from armillary.errors import ArmillaryError, ScheduleError

Options = dict[str, Any]  # of export_library
BuildFunction = AnyFunction  # (output, objects, options), as `export_library` takes it


class LocalBuilder:
    """Compiles on this machine. `build_func`: "default", "ndk" or a function that links (output, objects, options)."""

    def __init__(
        self,
        timeout: float = 10,
        n_parallel: int | None = None,
        build_kwargs: Options | None = None,
        build_func: str | BuildFunction = "default",
        do_fork: bool = True,
        runtime: object = None,
    ) -> None:
        del do_fork, runtime  # every build is forked; there is one runtime
        arguments = Arguments(type(self).__name__, TuningError)
        arguments.number("timeout", timeout, above=0)
        options = {} if build_kwargs is None else build_kwargs
        arguments.kind("build_kwargs", options, Mapping, "options of export_library by name")
        if n_parallel is not None:
            arguments.whole("n_parallel", n_parallel, 1)
        self.timeout = timeout
        self.n_parallel = n_parallel or int(setting("ARMILLARY_COMPILE_JOBS"))
        self.build_kwargs = dict(options)
        self.build_func = _linker(build_func)
        self._stack = ExitStack()
        self._folder: Path | None = None
        self._count = 0

    def set_task(self, task: Task, build_kwargs: Options | None = None) -> None:
        """A new folder for a new task."""
        self.close()
        self.build_kwargs |= build_kwargs or {}
        self._folder = self._stack.enter_context(scratch_folder())

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[BuildResult]:
        """Compile each configuration; libraries of the batch before are removed."""
        paths = self.fresh_paths(len(measure_inputs))
        how = (self.build_func, self.build_kwargs)
        works = [partial(build_one, inp, path, *how) for inp, path in zip(measure_inputs, paths, strict=True)]
        rows = run_all(list(works), self.timeout, self.n_parallel)
        return [self._result(path, *row) for path, row in zip(paths, rows, strict=True)]

    def fresh_paths(self, count: int) -> list[Path]:
        """Where the libraries of a batch go; those of the one before are removed."""
        if self._folder is None:
            self._folder = self._stack.enter_context(scratch_folder())
        for old in os.listdir(self._folder):
            (self._folder / old).unlink()
        self._count += count
        return [self._folder / f"trial{self._count - place}.{self.suffix}" for place in range(count)]

    @property
    def suffix(self) -> str:
        """The kind of file that is linked."""
        return str(getattr(self.build_func, "output_format", "so"))

    def _result(self, path: Path, answer: Any, how: str, seconds: float) -> BuildResult:  # Any: what _one returns
        if how == "timeout":
            message = f"compiling took longer than {self.timeout:g} s and was stopped"
            return BuildResult("", MeasureErrorNo.BUILD_TIMEOUT, message, seconds)
        if how:
            return BuildResult("", MeasureErrorNo.COMPILE_HOST, f"while compiling, {how}", seconds)
        error_no, error, flop = answer
        return BuildResult("" if error_no else str(path), int(error_no), error, seconds, flop)

    def close(self) -> None:
        """Remove the libraries."""
        self._stack.close()
        self._stack, self._folder = ExitStack(), None


def build_one(
    trial: MeasureInput, path: Path, build_func: BuildFunction | None, build_kwargs: Options
) -> tuple[int, str, float]:
    """In a process of its own: (error number, error, operations)."""
    try:
        library = trial.task.template.library(trial.task, trial.config)
        library.export_library(path, build_func, **build_kwargs)
    except (InstantiationError, ScheduleError) as error:
        return MeasureErrorNo.INSTANTIATION_ERROR, short_error(error), 0.0
    except ArmillaryError as error:
        return MeasureErrorNo.COMPILE_HOST, short_error(error), 0.0
    except Exception as error:  # of the user's template: a result of the trial
        return MeasureErrorNo.INSTANTIATION_ERROR, short_error(error), 0.0
    return MeasureErrorNo.NO_ERROR, "", trial.config.flop


def _linker(build_func: str | BuildFunction) -> BuildFunction | None:
    if callable(build_func):
        return build_func
    if isinstance(build_func, str) and build_func in ("default", "ndk"):
        return ndk.create_shared if build_func == "ndk" else None
    raise TuningError(f"LocalBuilder: unknown build_func {build_func!r}", hint='"default", "ndk" or a function')
