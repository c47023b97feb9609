"""What watches a tuner: the log, the line of progress, a monitor.

In: a tuner and the inputs and results of a batch. Out: lines of a log (`record.py`), a line on the screen. Invariant: a
result is in the log before the next batch is built; the line of progress has the form of Relay-era scripts.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.record import LogFile, encode
from armillary.autotvm.tuner.tuner import Tuner, check_prefix
from armillary.base.arguments import Arguments

Inputs = Sequence[MeasureInput]
Results = Sequence[MeasureResult]
Callback = Callable[[Tuner, Inputs, Results], None]


def log_to_file(file_out: str | os.PathLike[str] | IO[str], protocol: str = "json", *, fsync: bool = True) -> Callback:
    """A callback that adds every result to a log: a path (safe against kills, full disks, two writers) or a stream."""
    Arguments("log_to_file", TuningError).text("protocol", protocol)
    if protocol != "json":
        message = "reading a pickle runs the code in it" if protocol == "pickle" else "wanted json"
        raise TuningError(f"log_to_file: protocol {protocol!r} is refused: {message}", hint='protocol="json"')
    wanted = "a path or a stream of text"
    if not hasattr(file_out, "write"):
        Arguments("log_to_file", TuningError).kind("file_out", file_out, (str, os.PathLike), wanted)
    log = None if hasattr(file_out, "write") else LogFile(file_out, fsync=fsync)

    def callback(_: Tuner, inputs: Inputs, results: Results) -> None:
        lines = [encode(inp, result) for inp, result in zip(inputs, results, strict=True)]
        if log is not None:
            log.append(lines)
            return
        stream: Any = file_out  # Any: a stream, as it has no path
        stream.write("".join(f"{line}\n" for line in lines))
        stream.flush()

    return callback


class Monitor:
    """Keeps operations per second and times of all trials."""

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.timestamps: list[float] = []

    def __call__(self, tuner: Tuner, inputs: Inputs, results: Results) -> None:
        for inp, result in zip(inputs, results, strict=True):
            self.scores.append(0.0 if result.error_no else inp.task.flop / result.mean)
            self.timestamps.append(result.timestamp)

    def reset(self) -> None:
        """Forget all trials."""
        self.scores, self.timestamps = [], []

    def trial_scores(self) -> list[float]:
        """Operations per second of each trial, 0 for failures."""
        return self.scores

    def trial_timestamps(self) -> list[float]:
        """When each trial ended."""
        return self.timestamps


class ProgressBar:
    """The line of progress, written again and again, or (`is_live` false) once the task is done."""

    def __init__(
        self, total: int, prefix: str, si_prefix: str, stream: IO[str] | None = None, is_live: bool = True
    ) -> None:
        arguments = Arguments("progress_bar", TuningError)
        arguments.whole("total", total, 0)
        arguments.text("prefix", prefix)
        self.total, self.prefix, self.si_prefix = total, prefix, si_prefix
        self.scale = check_prefix(si_prefix)
        self.stream, self.is_live = stream, is_live
        self.start, self.current, self.best, self.done = time.monotonic(), 0.0, 0.0, 0
        self._write("")

    def __call__(self, tuner: Tuner, inputs: Inputs, results: Results) -> None:
        for inp, result in zip(inputs, results, strict=True):
            if not result.error_no:
                self.current = inp.task.flop / result.mean
        self.best, self.done = tuner.best_flops, tuner.trials
        self._write("")

    def line(self) -> str:
        """The line as it stands."""
        rates = f"{self.current / self.scale:7.2f}/{self.best / self.scale:7.2f} {self.si_prefix}FLOPS"
        spent = f"{time.monotonic() - self.start:.2f} s"
        return f"\r{self.prefix} Current/Best: {rates} | Progress: ({self.done}/{self.total}) | {spent}"

    def finish(self) -> None:
        """The last state of the line."""
        self._write(" Done.\n")

    def _write(self, end: str) -> None:
        stream = self.stream or sys.stdout
        if not self.is_live:
            stream.write(f"{self.line().strip()}{end}" if end else "")
            return
        stream.write(self.line() + end)
        stream.flush()


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G") -> ProgressBar:
    """A callback that shows `Current/Best: … GFLOPS | Progress: (n/total) | … s Done.`"""
    return ProgressBar(total, prefix, si_prefix)
