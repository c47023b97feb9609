"""Engines that take turns over one network, so that what disturbs the machine meets all of them.

In: files by engine, inputs, numbers of threads and streams. Out: a `Lane` for each combination with its latencies and
throughput, or why it has none. Invariant: while one runs the others are stopped (SIGSTOP), spinning threads included;
the order rotates from round to round; nothing is left running. The processes: `engines.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from armillary.base.aliases import Array
from armillary.base.files import scratch_folder


@dataclasses.dataclass
class Lane:
    """One engine with some threads and streams, and what it did in all its turns."""

    engine: str
    threads: int
    streams: int
    load_s: float = 0.0
    times: list[float] = dataclasses.field(default_factory=list)  # milliseconds of each inference
    rounds: list[float] = dataclasses.field(default_factory=list)  # the median of each round
    seconds: float = 0.0
    outputs: list[Array] = dataclasses.field(default_factory=list)
    failed: str = ""
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)  # of open dimensions of its inputs

    @property
    def per_second(self) -> float:
        """Inferences a second, all streams together."""
        return len(self.times) / self.seconds if self.seconds else 0.0

    def percentile(self, percent: float) -> float:
        """Milliseconds that so many percent of the inferences stay below."""
        return float(np.percentile(self.times, percent))

    def plain(self) -> dict[str, object]:
        """For JSON."""
        row: dict[str, object] = {"engine": self.engine, "threads": self.threads, "streams": self.streams}
        row |= {"sizes": self.sizes} if self.sizes else {}
        if self.failed:
            return row | {"failed": self.failed}
        shares = {f"p{p}_ms": self.percentile(p) for p in (50, 90, 99)}
        return row | shares | {"min_ms": min(self.times), "per_second": self.per_second, "load_s": self.load_s}


class _Process:
    def __init__(self, lane: Lane, file: str, inputs: Path, folder: Path) -> None:
        self.lane = lane
        self.outputs = folder / f"{lane.engine}-{lane.threads}-{lane.streams}.npz"
        command = [sys.executable, "-m", "armillary.backend.bench.engines", lane.engine, file, str(inputs)]
        command += [str(self.outputs), str(lane.threads), str(lane.streams)]
        self.errors = (folder / f"{self.outputs.stem}.log").open("w+")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self.errors, text=True)

    def answer(self) -> dict[str, object]:
        assert self.process.stdout is not None, "the pipe was asked for"
        line = self.process.stdout.readline()
        if line:
            result: dict[str, object] = json.loads(line)
            return result
        self.errors.seek(0)
        said = "; ".join(self.errors.read().strip().splitlines()[-2:])
        return {"failed": f"the process ended with status {self.process.wait()}: {said}"}

    def start(self) -> bool:
        """Wait until it has loaded; whether it did."""
        message = self.answer()
        self.lane.failed = str(message.get("failed", ""))
        if not self.lane.failed:
            self.lane.load_s = float(str(message["load_s"]))
            with np.load(self.outputs) as archive:
                self.lane.outputs = [archive[name] for name in archive.files]
            self.process.send_signal(signal.SIGSTOP)
        return not self.lane.failed

    def turn(self, seconds: float) -> None:
        assert self.process.stdin is not None, "the pipe was asked for"
        self.process.send_signal(signal.SIGCONT)
        print(seconds, file=self.process.stdin, flush=True)
        message = self.answer()
        self.process.send_signal(signal.SIGSTOP)
        times = message.get("times")
        if isinstance(times, list):
            self.lane.times += times
            self.lane.rounds.append(statistics.median(times))
            self.lane.seconds += float(str(message["seconds"]))
        else:
            self.lane.failed = str(message.get("failed"))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.errors):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


@contextlib.contextmanager
def _running(files: Mapping[str, str], lanes: Sequence[Lane], inputs: Mapping[str, Array]) -> Iterator[list[_Process]]:
    with scratch_folder() as folder:
        processes = list[_Process]()
        np.savez(folder / "inputs.npz", **inputs)  # type: ignore[arg-type, unused-ignore]  # names of arrays are free
        try:
            for lane in lanes:
                processes.append(_Process(lane, files[lane.engine], folder / "inputs.npz", folder))
                processes[-1].start()
            yield [process for process in processes if not process.lane.failed]
        finally:
            for process in processes:
                process.close()


def race(
    files: Mapping[str, str],
    inputs: Mapping[str, Array],
    threads: Sequence[int],
    streams: Sequence[int],
    rounds: int,
    seconds: float,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Lane]:
    """Every engine of `files` with every number of threads and streams, `rounds` turns of `seconds` each."""
    lanes = [Lane(engine, t, s) for t, s in itertools.product(threads, streams) for engine in files]
    progress(f"loading {len(lanes)} processes")
    with _running(files, lanes, inputs) as running:
        for index in range(rounds):
            progress(f"round {index + 1} of {rounds}")
            first = index % max(1, len(running))
            for process in running[first:] + running[:first]:
                if not process.lane.failed:
                    process.turn(seconds)
    return lanes


def difference(outputs: Sequence[Array], truths: Sequence[Array]) -> float:
    """The largest difference of any output from the truth, in parts of that output's largest value."""
    if [o.shape for o in outputs] != [t.shape for t in truths]:
        return float("inf")
    worst = 0.0
    for output, truth in zip(outputs, truths, strict=True):
        if truth.size:
            wanted = truth.astype(np.float64)
            worst = max(worst, float(np.abs(output - wanted).max() / max(float(np.abs(wanted).max()), 1e-30)))
    return worst
