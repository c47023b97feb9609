"""Engines in processes of their own, and what the benchmarks share: packages, results, tables.

In: an engine's name, an ONNX file. Out: a package (made once, kept with the facts of its making), and `Process`es that
load one and are timed in turns. Invariant: a process is stopped while others run; a result file is complete at every
moment (written beside, then renamed), so an interrupted benchmark continues where it was.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from engines import ENGINES
from networks import FOLDER, inputs_file
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

SCRIPT = Path(__file__).with_name("engines.py")
ALL = ",".join(ENGINES)
_THREADS = ("ARMILLARY_NUM_THREADS", "OMP_NUM_THREADS")
console = Console(width=None if sys.stdout.isatty() else 150)
Row = dict[str, Any]


class EngineFailed(Exception):
    """An engine's process ended without an answer: it is not installed, or cannot take the network."""


def environment(threads: int, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables for a process with this many threads."""
    return {**os.environ, **dict.fromkeys(_THREADS, str(threads)), **(more or {})}


def pinned(threads: int) -> Callable[[], None] | None:
    """What a child does first: with one thread it stays on one CPU."""
    return (lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})) if threads == 1 else None


class Process:
    """An engine that has loaded a network, stopped between its turns."""

    def __init__(
        self, task: list[str], threads: int, more: Mapping[str, str] | None = None, *, pin: bool = True
    ) -> None:
        self.name = task[1]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *task], env=environment(threads, more), stdin=pipe, stdout=pipe, stderr=pipe,
            text=True, preexec_fn=pinned(threads) if pin else None,
        )  # fmt: skip
        self.times: list[list[float]] = []
        self.start: Row = self._answer()
        self.output = np.array(self.start.pop("output", [0.0]))
        self.process.send_signal(signal.SIGSTOP)

    def _answer(self) -> Any:  # Any: JSON
        assert self.process.stdout is not None and self.process.stderr is not None, "the pipes were asked for"
        line = self.process.stdout.readline()
        if not line:
            tail = self.process.stderr.read().strip().splitlines()[-1:]
            status = self.process.wait()
            raise EngineFailed(f"{self.name} ended with status {status}: {' '.join(tail)[:300]}")
        return json.loads(line)

    def turn(self, seconds: float) -> list[float]:
        """Run for a while; the milliseconds of every run."""
        assert self.process.stdin is not None, "the pipe was asked for"
        self.process.send_signal(signal.SIGCONT)
        print(seconds, file=self.process.stdin, flush=True)
        self.times.append(self._answer())
        self.process.send_signal(signal.SIGSTOP)
        return self.times[-1]

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def prepare(engine: str, model: Path, folder: Path, more: Mapping[str, str] | None = None, cpus: int = 0) -> Row:
    """Make an engine's package in a process of its own; the facts of it."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(SCRIPT), "prepare", engine, str(model), str(folder)]
    done = subprocess.run(command, env={**os.environ, **(more or {})}, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = " ".join(done.stderr.strip().splitlines()[-1:])[:300]
        raise EngineFailed(f"{engine} cannot prepare {model.name}: {tail}")
    facts: Row = json.loads(done.stdout.splitlines()[-1])
    return facts


def package_of(engine: str, model: Path, folder: Path = FOLDER) -> Path:
    """The package of a network, made unless it is there and newer than the model (and than Armillary's sources)."""
    place = folder / engine
    facts = place / f"{model.stem}.json"
    newest = max(model.stat().st_mtime, _sources_changed() if engine == "armillary" else 0.0)
    if not facts.exists() or facts.stat().st_mtime < newest:
        write_json(facts, prepare(engine, model, place))
    return Path(json.loads(facts.read_text())["package"])


def _sources_changed() -> float:
    """When a source file of the installed compiler was last written."""
    found = importlib.util.find_spec("armillary")
    folders = list(found.submodule_search_locations or ()) if found is not None else []
    files = (file for folder in folders for suffix in ("py", "c", "h") for file in Path(folder).rglob(f"*.{suffix}"))
    return max((file.stat().st_mtime for file in files), default=0.0)


def run_task(engine: str, model: Path, threads: int, folder: Path = FOLDER) -> list[str]:
    """The arguments of a process that loads a network's package."""
    return ["run", engine, str(package_of(engine, model, folder)), str(inputs_file(model, folder)), str(threads)]


def difference(output: Any, truth: Any) -> float:  # Any: arrays
    """The largest difference from the truth, relative to its largest value."""
    if output.shape != truth.shape:
        return float("inf")
    return float(np.abs(output - truth).max() / max(float(np.abs(truth).max()), 1e-30))


def write_json(path: Path, content: Any) -> None:  # Any: JSON
    """Write a file that is complete or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    partial.write_text(json.dumps(content, indent=1))
    partial.replace(path)


class Results:
    """Rows in a JSON file, kept as they come; `has` says what need not be measured again."""

    def __init__(self, path: Path, keys: tuple[str, ...], fresh: bool = False) -> None:
        self.path, self.keys = path, keys
        self.rows: list[Row] = [] if fresh or not path.exists() else json.loads(path.read_text())["rows"]

    def has(self, **values: Any) -> bool:  # Any: JSON values
        """Whether there is a row with these values."""
        return any(all(row.get(key) == value for key, value in values.items()) for row in self.rows)

    def add(self, row: Row) -> None:
        """Keep a row in place of an older one with the same keys."""
        same = [all(old.get(k) == row.get(k) for k in self.keys) for old in self.rows]
        self.rows = [old for old, is_same in zip(self.rows, same, strict=True) if not is_same] + [row]
        write_json(self.path, {"machine": machine(), "rows": self.rows})


def machine() -> Row:
    """What the figures belong to."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    cpus = len(os.sched_getaffinity(0))
    return {"cpu": models[0] if models else platform.machine(), "cpus": cpus, "python": platform.python_version()}


def progress_bar() -> Progress:
    """A bar on stderr with the number of steps and the time."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    stderr = Console(stderr=True)
    return Progress(*columns, console=stderr, disable=not stderr.is_terminal)


def print_failures(rows: Sequence[Row]) -> None:
    """Say which engines gave no figures, and why."""
    for row in rows:
        if "failed" in row:
            console.print(f"{row['engine']}: {row['failed']}", markup=False)


def chosen(text: str) -> list[str]:
    """Engines by name, from a comma list."""
    names = [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in ENGINES]
    if unknown:
        raise SystemExit(f"there is no engine {unknown[0]!r}; known: {', '.join(ENGINES)}")
    return names
