"""Logs of trials: a JSON object in a line each, as Relay-era tools write and read them (version 0.2).

In: inputs and results of trials. Out: lines, files of lines, and what was in them. Invariant: a line is written whole
by one call, after the last whole one, under a lock, and is on the disk when `append` returns; a line that is damaged or
of another form is reported and left out, never fatal. Besides the old keys a line has `error` (the text),
`isa` (what the code may use), `compiler` and `host`. Contexts that use records: `task/dispatcher.py`.
"""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import IO, Any

import armillary
from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.task.space import ConfigEntity
from armillary.autotvm.task.task import Task
from armillary.base.boundary import boundary
from armillary.base.files import regular, unwritable, write_atomic
from armillary.base.json_types import JsonObject
from armillary.base.lazy import lazy_names
from armillary.errors import ArmillaryError, Span, TargetError
from armillary.target import Target
from armillary.target.cpu import isa_of

VERSION = 0.2
_MOST_TOLD = 5  # damaged lines of a log that are told one by one
_LONGEST_LINE = 1 << 20
_BEGINNINGS = b"{[#\r\n \t"  # of logs
FAILED_COST = 1e9  # what logs have for a trial without costs
Pair = tuple[MeasureInput, MeasureResult]
Source = str | os.PathLike[str] | IO[str]
logger = logging.getLogger("autotvm")
# where Relay-era scripts have it
__getattr__, __dir__ = lazy_names(__name__, {"ApplyHistoryBest": "armillary.autotvm.task.dispatcher:ApplyHistoryBest"})


def last_of_each(records: Iterable[Pair]) -> list[Pair]:
    """The last record of each configuration, without failures."""
    latest: dict[object, Pair] = {}
    for inp, result in records:
        key = (str(inp.target), inp.task.workload, inp.config.key())
        latest.pop(key, None)
        if result.error_no == 0:
            latest[key] = (inp, result)
    return list(latest.values())


@boundary("autotvm.record.measure_str_key", arguments=True)
def measure_str_key(inp: MeasureInput, include_config: bool = True) -> str:
    """A text that is equal for inputs of the same target, task and (with `include_config`) configuration."""
    config = inp.config if include_config else ""
    return f"{inp.target}{inp.task.name}{inp.task.args}{inp.task.kwargs}{config}"


@boundary("autotvm.record.encode", arguments=True)
def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """A line of a log, without its end."""
    _json_only(protocol)
    costs = list(result.costs) if result.error_no == 0 else [FAILED_COST]
    row = {
        "input": [str(inp.target), inp.task.name, inp.task.args, inp.task.kwargs],
        "config": inp.config.to_json_dict(),
        "result": [costs, int(result.error_no), result.all_cost, result.timestamp],
        "version": VERSION,
        "tvm_version": armillary.__version__,
        "compiler": f"armillary {armillary.__version__}",
        "isa": isa_of(inp.target),
        "host": platform.node(),
    }
    if result.error:
        row["error"] = result.error
    return json.dumps(row)


def _json_only(protocol: str) -> None:
    if protocol != "json":
        message = f"a log of protocol {protocol!r} is refused: reading a pickle runs the code in it"
        raise TuningError(message, hint='protocol="json"')


@boundary("autotvm.record.decode", arguments=True)
def decode(row: str, protocol: str = "json") -> Pair | None:
    """What a line holds; None for an empty line or a comment; TuningError says why it is none."""
    _json_only(protocol)
    if not row.strip() or row.startswith("#"):
        return None
    try:
        row_values = json.loads(row)
    except ValueError as error:
        raise TuningError(f"it is no JSON: {error}") from None
    try:
        return _pair(row_values)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise TuningError(f"it is no record: {type(error).__name__} {error}") from None


def _pair(row: JsonObject) -> Pair:  # Any: JSON
    if "v" in row and "version" not in row:
        raise TuningError("it is of version 0.1, which no current tool writes", hint="tune again")
    if float(row["version"]) != VERSION:
        raise TuningError(f"it is of version {row['version']}, known is {VERSION}")
    target, name, args, kwargs = row["input"]
    if kwargs:
        raise TuningError(f"its task has named arguments {kwargs}", hint="templates take positional ones")
    where = lenient_target(str(target))
    task = Task(str(name), _tuples(args))
    task.target = where
    costs, error_no, all_cost, timestamp = row["result"]
    config = ConfigEntity.from_json_dict(row["config"])
    error = str(row.get("error", ""))
    good = tuple(float(c) for c in costs) if int(error_no) == 0 else ()
    if int(error_no) == 0 and not (good and all(math.isfinite(c) and c > 0 for c in good)):
        raise TuningError(f"its costs are {costs}")
    result = MeasureResult(good, int(error_no), float(all_cost), float(timestamp), error)
    isa = row.get("isa")
    if isa and where.kind.family == "cpu" and isa != isa_of(where):
        raise TuningError(f"it was measured with vectors {isa}, the target {where} has {isa_of(where)} here")
    return MeasureInput(where, task, config), result


def _tuples(value: object) -> Any:  # Any: JSON
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


@cache
def lenient_target(text: str) -> Target:
    """A target of an old log: options that are no longer known are left out."""
    try:
        return Target(text)
    except TargetError:
        retained: list[str] = []
        for part in text.split():
            try:
                Target(" ".join([*retained, part]))
            except TargetError:
                if not retained:
                    raise
                continue
            retained.append(part)
        return Target(" ".join(retained))


_FOREIGN = tuple(
    f".{kind}"
    for kind in (
        *("x86", "arm_cpu", "micro_dev", "generic", "mali", "bifrost", "adreno", "gpu", "cuda", "rocm"),
        *("intel_graphics", "hexagon", "hls", "vta"),
    )
)


def foreign_reason(task_name: str) -> str:
    """Why a record of another compiler's operator cannot be used; "" where nothing speaks against it."""
    if task_name.endswith(_FOREIGN):
        return f"the knobs of {task_name} mean other loops than those of this compiler: the record is not used"
    return ""


def load_from_file(filepath: Source, *, report: bool = True) -> Iterator[Pair]:
    """The records of a log, in order; what is no record is reported by its line (many of them: by their number) and
    left out."""
    name, left_out = filepath if isinstance(filepath, str | os.PathLike) else getattr(filepath, "name", "a log"), 0
    for number, line in _lines(filepath):
        try:
            pair = decode(line)
        except ArmillaryError as error:
            left_out += 1
            if report and left_out <= _MOST_TOLD:
                logger.warning("%s, line %d is left out: %s", name, number, error.message)
            continue
        if pair is not None:
            pair[0].config.origin = f"{name}, line {number}"
            yield pair
    if report and left_out > _MOST_TOLD:
        logger.warning("%s: %d more lines are left out; is it a log of tuning?", name, left_out - _MOST_TOLD)


def _lines(filepath: Source) -> Iterator[tuple[int, str]]:
    if not isinstance(filepath, str | os.PathLike):
        yield from enumerate(filepath, 1)
        return
    try:
        with open(filepath, encoding="utf-8", errors="replace", opener=regular) as stream:
            yield from _bounded_lines(stream)
    except OSError as error:
        message = f"cannot read the log: {error.strerror}"
        raise TuningError(message, span=Span(str(filepath)), hint="tuning writes one: log_to_file") from None


def _bounded_lines(stream: IO[str]) -> Iterator[tuple[int, str]]:
    """Lines by number; of one that is too long its beginning, which is no record."""
    number = 0
    while line := stream.readline(_LONGEST_LINE):
        number += 1
        yield number, line
        while not line.endswith("\n") and (line := stream.readline(_LONGEST_LINE)):
            continue


class LogFile:
    """A log that grows: see the invariant above. Several processes may add to one log."""

    def __init__(self, path: str | os.PathLike[str], *, fsync: bool = True) -> None:
        self.path, self.fsync = os.path.expanduser(os.fspath(path)), fsync

    def append(self, lines: Sequence[str]) -> None:
        """Add whole lines; ArtifactError where the system refuses, with the log as after the last whole line."""
        try:
            with self._locked() as handle:
                _refuse_other_files(handle, self.path)
                _repair_tail(handle, self.path)
                for line in lines:
                    _write_whole(handle, line.encode() + b"\n")
                if self.fsync:
                    os.fsync(handle)
        except OSError as error:
            raise unwritable(self.path, error) from None

    @contextmanager
    def _locked(self) -> Iterator[int]:
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)


def _refuse_other_files(handle: int, path: str) -> None:
    """TuningError for a file that is no log, such as the model: its tail would be cut off."""
    begins = os.pread(handle, 8, 0)
    if begins and begins[0] not in _BEGINNINGS:
        message = f"trials are not added to a file that is no log of tuning: it begins with {begins!r}"
        raise TuningError(message, span=Span(path), hint="name another file for the log")


def _write_whole(handle: int, line: bytes) -> None:
    """One write; where only a part fits, none of it stays."""
    size = os.fstat(handle).st_size
    try:
        written = os.write(handle, line)
        while written < len(line):
            written += os.write(handle, line[written:])
    except OSError:
        os.ftruncate(handle, size)
        raise


def _repair_tail(handle: int, path: str) -> None:
    """End the last line, which a killed writer left: a whole one gets its end, a part is cut off and reported."""
    size = os.fstat(handle).st_size
    if not size or os.pread(handle, 1, size - 1) == b"\n":
        return
    start, step = size, 1 << 16
    tail = b""
    while start and b"\n" not in tail:
        begin = max(0, start - step)
        tail = os.pread(handle, start - begin, begin) + tail
        start = begin
    part = tail.rpartition(b"\n")[2]
    try:
        json.loads(part)
    except ValueError:
        logger.warning("%s ends in the middle of a line: %d bytes are cut off", path, len(part))
        os.ftruncate(handle, size - len(part))
        return
    os.write(handle, b"\n")


@boundary("autotvm.record.best_of", arguments=True)
def best_of(records: Iterable[Pair]) -> list[Pair]:
    """The fastest record of each workload and target, in the order of their first appearance."""
    best: dict[tuple[str, Any], Pair] = {}
    for inp, result in last_of_each(records):
        key = (str(inp.target), inp.task.workload)
        retained = best.get(key)
        if retained is None or result.mean < retained[1].mean:
            best[key] = (inp, result)
    return list(best.values())


@boundary("autotvm.record.pick_best", arguments=True)
def pick_best(in_file: Source, out_file: Source) -> int:
    """Write the fastest record of each workload of a log to another one; gives their number."""
    best = best_of(load_from_file(in_file))
    text = "".join(f"{encode(*pair)}\n" for pair in best)
    if isinstance(out_file, str | os.PathLike):
        write_atomic(out_file, text.encode())
    else:
        out_file.write(text)
    logger.info("Extract %d best records from %s to %s", len(best), in_file, out_file)
    return len(best)


def split_workload(in_file: Source, clean: bool = True) -> list[str]:
    """Write the records of each workload to `<in_file>.<number>`; gives those files. `clean` keeps the fastest half."""
    groups: dict[Any, list[Pair]] = {}
    for pair in load_from_file(in_file):
        groups.setdefault(pair[0].task.workload, []).append(pair)
    paths = []
    for number, rows in enumerate(groups.values()):
        rows.sort(key=lambda pair: pair[1].mean)
        retained = rows[: max(1, len(rows) // 2)] if clean else rows
        paths.append(f"{getattr(in_file, 'name', in_file)}.{number}")
        write_atomic(paths[-1], "".join(f"{encode(*pair)}\n" for pair in retained).encode())
    return paths
