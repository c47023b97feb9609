"""Databases of schedules: a workload, its traces, their times. In memory, or as two files of JSON lines.

In: records of trials. Out: the best schedule of a module. Invariant: workloads are equal where their programs are, up
to names; a schedule is made anew by applying the best trace. Files: `database_workload.json` has [digest, script],
`database_tuning_record.json` has [workload, [trace, seconds, target, arguments]]. Files of the old system hold its own
serialised programs and are refused. `network` holds the trials of networks (`relay_integration.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from hashlib import blake2b
from pathlib import Path

from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.record import LogFile, load_from_file
from armillary.autotvm.tuner.callback import Callback, log_to_file
from armillary.autotvm.tuner.tuner import Tuner
from armillary.base.boundary import bounded
from armillary.base.json_types import JsonValue
from armillary.errors import ScheduleError
from armillary.ir import IRModule, structural_equal
from armillary.meta_schedule.arg_info import ArgInfo, TensorInfo
from armillary.script import from_source
from armillary.target import Target, as_target
from armillary.tir import stmt as S
from armillary.tir.schedule.schedule import Schedule
from armillary.tir.schedule.trace import Trace

_CURRENT: ContextVar[Database | None] = ContextVar("database", default=None)
_FAILED = 1e10  # seconds of a trial that failed, as old files have it
Pairs = list[tuple[MeasureInput, MeasureResult]]


class Workload:
    """A module that is tuned."""

    def __init__(self, mod: S.PrimFunc | IRModule) -> None:
        self.mod = mod if isinstance(mod, IRModule) else IRModule({"main": mod})

    def as_json(self) -> list[str]:
        """Its digest and its script."""
        text = self.mod.script()
        return [blake2b(text.encode(), digest_size=8).hexdigest(), text]

    @staticmethod
    def from_json(json_obj: Sequence[str]) -> Workload:
        """The workload of a digest and a script."""
        if len(json_obj) != 2 or "prim_func" not in json_obj[1]:
            raise TuningError("this workload is of another system, whose programs are not read", hint="tune it again")
        return Workload(from_source(json_obj[1]))


class TuningRecord:
    """A trace with its seconds, target and arguments."""

    def __init__(
        self,
        trace: Trace,
        workload: Workload,
        run_secs: Sequence[float] | None = None,
        target: object = None,
        args_info: Sequence[TensorInfo] | None = None,
    ) -> None:
        self.trace, self.workload, self.run_secs = trace, workload, None if run_secs is None else list(run_secs)
        self.target: Target | None = None if target is None else as_target(target)
        self.args_info = list(args_info) if args_info is not None else ArgInfo.from_entry_func(workload.mod)

    @property
    def mean(self) -> float:
        """Mean seconds; infinite where it has none, or failed."""
        seconds = self.run_secs
        valid = seconds and all(s < _FAILED for s in seconds)
        return sum(seconds) / len(seconds) if seconds and valid else float("inf")

    def as_json(self) -> list[JsonValue]:
        """Trace, seconds, target, arguments."""
        target = None if self.target is None else str(self.target)
        return [self.trace.as_json(), self.run_secs, target, [info.as_json() for info in self.args_info]]

    @staticmethod
    def from_json(json_obj: Sequence[JsonValue], workload: Workload) -> TuningRecord:
        """The record of such a list."""
        trace, seconds, target, arguments = json_obj
        schedule = Schedule(workload.mod)
        Trace.apply_json_to_schedule(trace, schedule)
        return TuningRecord(schedule.trace, workload, seconds, target, [ArgInfo.from_json(row) for row in arguments])


class Database:
    """Workloads and records; `with database:` makes it the one in force."""

    def __init__(self, module_equality: str = "structural") -> None:
        del module_equality
        self.workloads: list[Workload] = []
        self.records: list[TuningRecord] = []
        self.network: Pairs = []
        self._tokens: list[Token[Database | None]] = []

    @staticmethod
    def create(kind: object = "json", *args: object, work_dir: str = "") -> Database:
        """The database of a name ("memory", "json", "union", "ordered_union"), or one that is one."""
        if isinstance(kind, Database):
            return kind
        if kind == "json":
            return JSONDatabase(*args, work_dir=work_dir or None) if args or work_dir else MemoryDatabase()  # type: ignore[arg-type]
        names = {"memory": MemoryDatabase, "union": UnionDatabase, "ordered_union": UnionDatabase}
        if kind not in names:
            raise TuningError(f"there is no database {kind!r:.60}", hint="json, memory, union, ordered_union")
        result: Database = names[str(kind)](*args)  # as scripts pass them
        return result

    def _equal(self, mod: IRModule) -> Workload | None:
        return next((w for w in self.workloads if structural_equal(w.mod, mod)), None)

    def has_workload(self, mod: S.PrimFunc | IRModule) -> bool:
        """Whether a module was committed."""
        return self._equal(Workload(mod).mod) is not None

    def commit_workload(self, mod: S.PrimFunc | IRModule) -> Workload:
        """The workload that a module is; a new one where there is none."""
        workload = self._equal(Workload(mod).mod)
        if workload is None:
            workload = Workload(mod)
            self.workloads.append(workload)
        return workload

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Add a record."""
        self.records.append(record)

    def network_callback(self) -> Callback:
        """What adds trials of a network."""
        return lambda _, inputs, results: self.network.extend(zip(inputs, results, strict=True))

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """All of them."""
        return list(self.records)

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        """The fastest of a workload."""
        rows = [r for r in self.records if r.workload is workload or structural_equal(r.workload.mod, workload.mod)]
        return sorted((r for r in rows if r.mean < float("inf")), key=lambda r: r.mean)[:top_k]

    def __len__(self) -> int:
        return len(self.records)

    def query_tuning_record(self, mod: IRModule, target: object, workload_name: str = "main") -> TuningRecord | None:
        """The best record of a module on a target."""
        del workload_name
        where = str(as_target(target))
        rows = self.get_top_k(Workload(mod), len(self.records))
        return next((r for r in rows if r.target is None or str(r.target) == where), None)

    def query_schedule(self, mod: IRModule, target: object, workload_name: str = "main") -> Schedule | None:
        """The best schedule of a module on a target."""
        best = self.query_tuning_record(mod, target, workload_name)
        if best is None:
            return None
        schedule = Schedule(mod)
        best.trace.apply_to_schedule(schedule)
        return schedule

    def query_ir_module(self, mod: IRModule, target: object, workload_name: str = "main") -> IRModule | None:
        """The module of that schedule."""
        schedule = self.query_schedule(mod, target, workload_name)
        return None if schedule is None else schedule.mod

    def query(
        self, mod: IRModule, target: object, *, workload_name: str = "main", kind: str = "schedule"
    ) -> Schedule | TuningRecord | IRModule | None:
        """A "schedule", a "record" or an "ir_module", as `kind` says."""
        kinds = {
            "schedule": self.query_schedule,
            "record": self.query_tuning_record,
            "ir_module": self.query_ir_module,
        }
        if kind not in kinds:
            raise ScheduleError(f"Database.query: there is no kind {kind!r}", hint=", ".join(kinds))
        return kinds[kind](mod, target, workload_name)

    def dump_pruned(self, destination: Database) -> None:
        """The best record of each workload into another database."""
        for workload in self.workloads:
            for best in self.get_top_k(workload, 1):
                own = destination.commit_workload(workload.mod)
                destination.commit_tuning_record(TuningRecord(best.trace, own, best.run_secs, best.target))

    def __enter__(self) -> Database:
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(self, *args: object) -> None:
        _CURRENT.reset(self._tokens.pop())

    @staticmethod
    def current() -> Database | None:
        """The one in force."""
        return _CURRENT.get()


class MemoryDatabase(Database):
    """Forgets everything with the process."""


class UnionDatabase(Database):
    """Asks several databases and takes the best of all."""

    def __init__(self, *databases: Database) -> None:
        super().__init__()
        self.databases = databases

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        """The fastest of all of them."""
        rows = [r for one in self.databases for r in one.get_top_k(workload, top_k)]
        return sorted(rows, key=lambda r: r.mean)[:top_k]

    def query_tuning_record(self, mod: IRModule, target: object, workload_name: str = "main") -> TuningRecord | None:
        """The best of all of them."""
        rows = [one.query_tuning_record(mod, target, workload_name) for one in self.databases]
        return min((r for r in rows if r is not None), key=lambda r: r.mean, default=None)


class OrderedUnionDatabase(UnionDatabase):
    """Asks several databases and takes the first answer."""

    def query_tuning_record(self, mod: IRModule, target: object, workload_name: str = "main") -> TuningRecord | None:
        """That of the first that has one."""
        rows = (one.query_tuning_record(mod, target, workload_name) for one in self.databases)
        return next((r for r in rows if r is not None), None)


class ScheduleFnDatabase(Database):
    """Asks a function of a schedule, which changes it and says whether it did, instead of records."""

    def __init__(self, schedule_fn: Callable[[Schedule], bool], module_equality: str = "structural") -> None:
        super().__init__(module_equality)
        self.schedule_fn = schedule_fn

    def query_schedule(self, mod: IRModule, target: object, workload_name: str = "main") -> Schedule | None:
        """The schedule that the function makes of a module."""
        schedule = Schedule(mod)
        return schedule if self.schedule_fn(schedule) else None

    def query_tuning_record(self, mod: IRModule, target: object, workload_name: str = "main") -> TuningRecord | None:
        """Its trace, without times."""
        schedule = self.query_schedule(mod, target, workload_name)
        return None if schedule is None else TuningRecord(schedule.trace, Workload(mod), None, target)


@bounded
class JSONDatabase(Database):
    """Two files of JSON lines in a folder, which are read first and then added to."""

    def __init__(
        self,
        path_workload: str | None = None,
        path_tuning_record: str | None = None,
        *,
        work_dir: str | None = None,
        allow_missing: bool = True,
        module_equality: str = "structural",
    ) -> None:
        super().__init__(module_equality)
        folder = Path(work_dir or ".")
        self.path_workload = Path(path_workload or folder / "database_workload.json")
        self.path_tuning_record = Path(path_tuning_record or folder / "database_tuning_record.json")
        self.path_network = self.path_tuning_record.with_name("database_network.log")
        if not allow_missing and not self.path_workload.exists():
            raise TuningError(f"{self.path_workload} does not exist", hint="allow_missing=True begins a new one")
        self.workloads = [Workload.from_json(row) for row in _lines(self.path_workload)]
        for number, row in _lines(self.path_tuning_record):
            self.records.append(TuningRecord.from_json(row, self.workloads[number]))
        if self.path_network.exists():
            self.network = list(load_from_file(str(self.path_network)))

    def commit_workload(self, mod: S.PrimFunc | IRModule) -> Workload:
        """The workload that a module is; a new one is written."""
        count = len(self.workloads)
        workload = super().commit_workload(mod)
        if len(self.workloads) > count:
            _append(self.path_workload, workload.as_json())
        return workload

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Add a record and write it."""
        number = self.workloads.index(self.commit_workload(record.workload.mod))
        super().commit_tuning_record(record)
        _append(self.path_tuning_record, [number, record.as_json()])

    def network_callback(self) -> Callback:
        """What adds trials of a network and writes them, as lines of AutoTVM."""
        self.path_network.parent.mkdir(parents=True, exist_ok=True)
        remember, write = super().network_callback(), log_to_file(self.path_network)

        def both(tuner: Tuner, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
            remember(tuner, inputs, results)
            write(tuner, inputs, results)

        return both


def _lines(path: Path) -> list[JsonValue]:
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    except json.JSONDecodeError as error:
        raise TuningError(f"{path}: line {error.lineno} is no JSON: {error.msg}") from None


def _append(path: Path, row: JsonValue) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    LogFile(path).append([json.dumps(row)])
