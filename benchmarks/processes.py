"""Engines in processes of their own, and what the benchmarks share: packages, results, tables.

In: an engine's name, an ONNX file. Out: a package (made once, kept with the facts of its making), and `Process`es that
load one and are timed in turns. Invariant: a process is stopped while others run; a result file is complete at every
moment (written beside, then renamed), so an interrupted benchmark continues where it was.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from engines import ENGINES
from models import Array, Model
from networks import FOLDER
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

SCRIPT = Path(__file__).with_name("engines.py")
ALL = ",".join(ENGINES)
_THREADS = ("ARMILLARY_NUM_THREADS", "OMP_NUM_THREADS")
PATIENCE = 600.0  # seconds for making a package, or for loading and running it once
MAX_THREADS = 1024
console = Console(width=None if sys.stdout.isatty() else 150)
Row = dict[str, Any]


class EngineFailed(Exception):
    """An engine is not installed, cannot take the network, or gave no answer."""


def environment(threads: int, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables for a process with this many threads."""
    return {**os.environ, **dict.fromkeys(_THREADS, str(threads)), **(more or {})}


def pinned(threads: int) -> Callable[[], None] | None:
    """What a child does first: with one thread it stays on one CPU."""
    return (lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})) if threads == 1 else None


class Task:
    """A process of engines.py, in a group of its own so that what it starts ends with it."""

    def __init__(self, task: Sequence[str], env: Mapping[str, str], first: Callable[[], None] | None = None) -> None:
        self.name, pipe = task[1], subprocess.PIPE
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - a pipe would fill up and stop a talkative engine
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *task],
            env=dict(env),
            stdin=pipe,
            stdout=pipe,
            stderr=self.errors,
            text=True,
            preexec_fn=first,
            start_new_session=True,
        )

    def answer(self, patience: float = PATIENCE) -> Any:  # Any: JSON
        """The next answer; an EngineFailed says why there is none."""
        assert self.process.stdout is not None, "the pipe was asked for"
        late = threading.Timer(patience, self.kill)
        late.start()
        line = self.process.stdout.readline()
        was_late = late.finished.is_set()
        late.cancel()
        facts = json.loads(line) if line else {"failed": self._ending(patience, was_late)}
        if isinstance(facts, dict) and "failed" in facts:
            raise EngineFailed(f"{self.name}: {' '.join(facts['failed'].split())[:600]}")
        return facts

    def _ending(self, patience: float, was_late: bool) -> str:
        status = self.process.wait()
        self.errors.seek(0)
        said = "; ".join(self.errors.read().strip().splitlines()[-3:])
        if was_late and status == -signal.SIGKILL:
            return f"no answer within {patience:.0f} seconds"
        ending = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return f"the process ended with {ending}" + (f" after saying {said}" if said else "")

    def kill(self) -> None:
        """End the process and what it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def close(self) -> None:
        """End the process, and wait for it."""
        self.kill()
        self.process.wait()
        self.errors.close()


class Process(Task):
    """An engine that has loaded a network, stopped between its turns."""

    def __init__(
        self, task: list[str], threads: int, more: Mapping[str, str] | None = None, *, pin: bool = True
    ) -> None:
        super().__init__(task, environment(threads, more), pinned(threads) if pin else None)
        self.threads = threads
        self.times: list[list[float]] = []
        try:
            self.start: Row = self.answer()
            self.outputs = _taken(Path(self.start.pop("outputs")))
        except BaseException:
            self.close()
            raise
        self.process.send_signal(signal.SIGSTOP)

    def turn(self, seconds: float) -> list[float]:
        """Run for a while; the milliseconds of every run."""
        assert self.process.stdin is not None, "the pipe was asked for"
        self.process.send_signal(signal.SIGCONT)
        print(seconds, file=self.process.stdin, flush=True)
        self.times.append(self.answer(PATIENCE + seconds))
        self.process.send_signal(signal.SIGSTOP)
        return self.times[-1]

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _taken(file: Path) -> list[Array]:
    """The arrays of a file that is not needed any more."""
    with np.load(file) as archive:
        arrays = [archive[name] for name in archive.files]
    file.unlink()
    return arrays


def race(model: Model, engines: Sequence[str], threads: Sequence[int], args: argparse.Namespace) -> list[Row]:
    """A row for each engine and number of threads: its figures, or why it has none.

    `args` has rounds, seconds and a folder. The order rotates from round to round, so that drift of the machine hits
    all alike; an engine's turns with one and with more threads follow each other, so that their ratio is of one moment.
    Outputs are compared with those of ONNX Runtime, or of the first engine where it is not among them.
    """
    base: Row = {"file": str(model.path.resolve())}
    running: list[Process] = []
    rows: list[Row] = []
    try:
        for name, number in itertools.product(engines, threads):
            try:
                running.append(Process(run_task(name, model, number, args.folder), number))
            except EngineFailed as error:
                rows.append(base | {"engine": name, "threads": number, "failed": str(error)})
        for index in range(args.rounds):
            turn = index * len(threads) % max(1, len(running))
            for process in running[turn:] + running[:turn]:
                process.turn(args.seconds)
        truth = next((p for p in running if p.name == "onnxruntime"), running[0] if running else None)
        for process in running:
            medians = [statistics.median(times) for times in process.times]
            times = {"median_ms": statistics.median(medians), "min_ms": min(map(min, process.times))}
            off = {"round_ms": medians, "difference": difference(process.outputs, truth.outputs if truth else [])}
            rows.append(base | {"engine": process.name, "threads": process.threads} | times | process.start | off)
    finally:
        for process in running:
            process.close()
    return rows


def prepare(engine: str, model: Path, folder: Path, more: Mapping[str, str] | None = None) -> Row:
    """Make an engine's package in a process of its own; the facts of it."""
    folder.mkdir(parents=True, exist_ok=True)
    task = Task(["prepare", engine, str(model), str(folder)], {**os.environ, **(more or {})})
    try:
        facts: Row = task.answer()
    finally:
        task.close()
    return facts


def package_of(engine: str, model: Model, folder: Path = FOLDER) -> Path:
    """The package of a network, made unless it is there and newer than the model (and than Armillary's sources)."""
    place = folder / engine / model.key
    facts = place / "facts.json"
    if not facts.exists() or facts.stat().st_mtime < newest(engine, model):
        shutil.rmtree(place, ignore_errors=True)
        write_json(facts, prepare(engine, model.path, place))
    return Path(json.loads(facts.read_text())["package"])


def newest(engine: str, model: Model) -> float:
    """When what an engine runs was last changed: the model, and Armillary's sources."""
    return max(model.changed, sources_changed() if engine == "armillary" else 0.0)


@functools.cache
def sources_changed() -> float:
    """When a source file of the installed compiler was last written."""
    found = importlib.util.find_spec("armillary")
    folders = list(found.submodule_search_locations or ()) if found is not None else []
    files = (file for folder in folders for suffix in ("py", "c", "h") for file in Path(folder).rglob(f"*.{suffix}"))
    return max((file.stat().st_mtime for file in files), default=0.0)


def run_task(engine: str, model: Model, threads: int, folder: Path = FOLDER) -> list[str]:
    """The arguments of a process that loads a network's package."""
    return ["run", engine, str(package_of(engine, model, folder)), str(model.inputs), str(threads)]


def difference(outputs: Sequence[Array], truths: Sequence[Array]) -> float:
    """The largest difference of any output from the truth, relative to that output's largest value."""
    if len(outputs) != len(truths) or any(o.size != t.size for o, t in zip(outputs, truths, strict=True)):
        return float("inf")
    return max((_difference(o.ravel(), t.ravel()) for o, t in zip(outputs, truths, strict=True)), default=0.0)


def _difference(output: Array, truth: Array) -> float:
    got, want = output.astype(np.float64), truth.astype(np.float64)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    if same.all():
        return 0.0
    off = np.abs(got[~same] - want[~same]).max()
    return float(off / max(float(np.abs(want[np.isfinite(want)]).max(initial=0.0)), 1e-30))


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
        self.rows: list[Row] = [] if fresh or not path.exists() else _read_rows(path)

    def has(self, **values: Any) -> bool:  # Any: JSON values
        """Whether there is a row with these values."""
        return any(all(row.get(key) == value for key, value in values.items()) for row in self.rows)

    def measured(self, engine: str, model: Model, **values: Any) -> bool:  # Any: JSON values
        """Whether there is a row of an engine that is younger than what it ran."""
        since, wanted = newest(engine, model), {"engine": engine, "file": str(model.path.resolve()), **values}
        rows = [row for row in self.rows if all(row.get(key) == value for key, value in wanted.items())]
        return any(row.get("at", 0.0) >= since for row in rows)

    def add(self, row: Row) -> None:
        """Keep a row in place of an older one with the same keys."""
        row = {**row, "at": time.time()}
        same = [all(old.get(k) == row.get(k) for k in self.keys) for old in self.rows]
        self.rows = [old for old, is_same in zip(self.rows, same, strict=True) if not is_same] + [row]
        write_json(self.path, {"machine": machine(), "rows": self.rows})


def _read_rows(path: Path) -> list[Row]:
    try:
        rows: list[Row] = json.loads(path.read_text())["rows"]
        return rows
    except (ValueError, KeyError, TypeError):
        raise SystemExit(f"{path}: not a result file of these benchmarks: name another, or remove it") from None


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
            console.print(row["failed"], markup=False, highlight=False)


def chosen(text: str) -> list[str]:
    """Engines by name, from a comma list."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in ENGINES]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no engine {unknown[0]!r}; known: {', '.join(ENGINES)}")
    if not names:
        raise argparse.ArgumentTypeError(f"name at least one engine of {', '.join(ENGINES)}")
    return names


def counts(text: str) -> list[int]:
    """Numbers from 1 on, from a comma list."""
    items = [item.strip() for item in text.split(",")]
    if not all(item.isdigit() and int(item) > 0 for item in items):
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted whole numbers from 1 on, such as 1,2")
    return list(dict.fromkeys(map(int, items)))


def count(text: str) -> int:
    """One number from 1 on."""
    return only(counts(text), text)


def thread_counts(text: str) -> list[int]:
    """Thread counts that every engine takes, from a comma list."""
    found = counts(text)
    if max(found) > MAX_THREADS:
        raise argparse.ArgumentTypeError(f"{max(found)} threads; at most {MAX_THREADS}")
    return found


def thread_count(text: str) -> int:
    """One thread count."""
    return only(thread_counts(text), text)


def only(found: list[int], text: str) -> int:
    """The one number of a list of one."""
    if len(found) != 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted one whole number")
    return found[0]


def seconds(text: str) -> float:
    """A time above zero."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < PATIENCE:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted seconds above 0 and below {PATIENCE:.0f}")
    return value
