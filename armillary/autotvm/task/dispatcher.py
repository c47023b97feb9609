"""Dispatch contexts that hold configurations: a fixed one, the best of a log, none.

In: records (a log, an open file, pairs of input and result). Out: a `DispatchContext` to use in a `with` block.
Invariant: of several records for one workload the one with the least mean time is used, where of one configuration the
last record counts (front-runners are measured again); a record for the target's model
(-model=) precedes one for its keys; a workload without record is named once, by a warning, and so are operators of
another compiler, whose records are left out, and a record whose knobs do not fit what it would compute, which makes
room for the next best.
The stack they are part of: `armillary/base/dispatch.py`.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from armillary.autotvm.task.space import ConfigSpace, FallbackConfigEntity
from armillary.base.boundary import boundary
from armillary.base.dispatch import DispatchContext, Workload
from armillary.base.lazy import deferred
from armillary.errors import ArmillaryError
from armillary.target import Target
from armillary.target.cpu import isa_of

with deferred():
    from armillary.autotvm.record import foreign_reason, last_of_each, load_from_file
    from armillary.autotvm.task.task import Task
    from armillary.autotvm.task.templates import find_template
if TYPE_CHECKING:
    from armillary.autotvm.measure.measure import MeasureInput, MeasureResult

Record: TypeAlias = "tuple[MeasureInput, MeasureResult]"
Best: TypeAlias = "dict[tuple[str, Workload], Record]"
Records = Any  # a path, an open file, a pair (MeasureInput, MeasureResult) in an iterable, or an iterable of those
logger = logging.getLogger("autotvm")
UNKNOWN = "unknown"
_OF_TEMPLATES = (ArmillaryError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class ApplyConfig(DispatchContext):
    """One configuration for whatever is asked."""

    def __init__(self, config: ConfigSpace) -> None:
        super().__init__()
        self.config = config

    def _query_inside(self, target: Target, workload: Workload) -> ConfigSpace | None:
        return self.config

    def has_records(self) -> bool:
        return True


class ApplyFixedConfig(ApplyConfig):
    """One configuration for the tasks of some names."""

    def __init__(self, tasks: Any, schedule_names: str | list[str]) -> None:  # Any: (task, config) pairs or a config
        config = tasks[0][1] if isinstance(tasks, list | tuple) else tasks
        super().__init__(config)
        self.names = [schedule_names] if isinstance(schedule_names, str) else list(schedule_names)

    def _query_inside(self, target: Target, workload: Workload) -> ConfigSpace | None:
        return self.config if workload[0] in self.names else None


class ApplyHistoryBest(DispatchContext):
    """The best configuration of records for each workload."""

    def __init__(self, records: Records = None, *, warns: bool = True) -> None:
        super().__init__()
        self.warns = warns
        self.best_by_targetkey: Best = {}
        self.best_by_model: Best = {}
        self._user_defined: dict[tuple[str, Workload], ConfigSpace] = {}
        self._records: list[Record] = []
        self._fitting: set[tuple[str, int]] = set()  # targets, and configurations by identity
        self._named: set[Workload] = set()
        if records is not None:
            self.load(records)

    @boundary("autotvm.apply_history_best", arguments=True, first=1)
    def load(self, records: Records) -> None:
        """Add records. Those of another compiler's operators are left out, and named once for each operator."""
        foreign = Counter[str]()
        for inp, result in last_of_each(_each_record(records)):
            if foreign_reason(inp.task.name):
                foreign[inp.task.name] += 1
                continue
            self._records.append((inp, result))
            self._rank(inp, result)
        for name, count in foreign.items():
            logger.warning("%s (%d configurations)", foreign_reason(name), count)

    def _rank(self, trial: MeasureInput, result: MeasureResult) -> None:
        """Use a record where it is the fastest."""
        target, workload = trial.target, spelled_out(trial.task.workload)
        for key in target_keys(target):
            _keep_best(self.best_by_targetkey, (key, workload), trial, result)
        if target.model != UNKNOWN:
            _keep_best(self.best_by_model, (target.model, workload), trial, result)

    def _best(self, table: Best, key: tuple[str, Workload], target: Target) -> ConfigSpace | None:
        """The fastest configuration that fits; what does not is told, and not looked at again."""
        while key in table:
            config = table[key][0].config
            mark = (str(target), id(config))
            reason = "" if mark in self._fitting else _objection(key[1], config, target)
            if not reason:
                self._fitting.add(mark)
                return config
            logger.warning("%s, of %s, is left out: %s", config.origin or "a record", key[1][0], reason)
            self._records = [record for record in self._records if record[0].config is not config]
            self.best_by_targetkey.clear()
            self.best_by_model.clear()
            for record in self._records:
                self._rank(*record)
        return None

    def _query_inside(self, target: Target, workload: Workload) -> ConfigSpace | None:
        workload = spelled_out(workload)
        models = (target.model,) if target.model != UNKNOWN else ()
        for table, keys in ((self.best_by_model, models), (self.best_by_targetkey, target_keys(target))):
            for key in keys:
                asked = self._user_defined.get((key, workload))
                config = self._best(table, (key, workload), target) if asked is None else asked
                if config is not None:
                    return config
        if self.warns and workload not in self._named:
            self._named.add(workload)
            logger.warning("no record for target=%s, workload=%s: the default is used", target, workload)
        return None

    def update(self, target: Target, workload: Workload, cfg: ConfigSpace) -> None:
        """Use a configuration for a workload, whatever the records say."""
        for key in target_keys(target):
            self._user_defined[key, spelled_out(workload)] = cfg

    def has_records(self) -> bool:
        return True


class FallbackContext(DispatchContext):
    """What a template falls back on, kept so that asking twice gives the same."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: dict[tuple[str, Workload], ConfigSpace] = {}

    def _query_inside(self, target: Target, workload: Workload) -> ConfigSpace | None:
        return self.memory.setdefault((str(target), workload), FallbackConfigEntity())

    def clear_cache(self, target: Target, workload: Workload) -> None:
        """Forget what was given for a workload."""
        self.memory.pop((str(target), workload), None)

    def update(self, target: Target, workload: Workload, cfg: ConfigSpace) -> None:
        """Give this configuration from now on."""
        self.memory[str(target), workload] = cfg


def spelled_out(workload: Workload) -> Workload:
    """A convolution's workload with the padding of all four sides: model files say (1, 1, 1, 1), scripts (1, 1), and
    a record of one is a record of the other."""
    place = next((i for i, name in enumerate(workload[1:], 1) if not _is_tensor(name)), 0) + 1
    padding = workload[place] if "conv2d" in str(workload[0]) and place < len(workload) else ()
    if not isinstance(padding, tuple | list) or len(padding) not in (1, 2):
        return workload
    return (*workload[:place], tuple(padding) * (4 // len(padding)), *workload[place + 1 :])


def _is_tensor(argument: object) -> bool:
    return isinstance(argument, tuple | list) and len(argument) == 3 and argument[0] == "TENSOR"


class ApplyGraphBest(ApplyHistoryBest):
    """What a tuner of graphs has chosen: records as `write_opt_sch2record_file` writes them, one for each workload."""


@boundary("autotvm.apply_history_best", arguments=True)
def apply_history_best(records: Records) -> ApplyHistoryBest:
    """A context with the best records of a log (a path, or pairs of input and result)."""
    return ApplyHistoryBest(records)


@boundary("autotvm.apply_graph_best", arguments=True)
def apply_graph_best(records: Records) -> ApplyGraphBest:
    """A context that uses what a tuner of graphs has chosen (`autotvm.graph_tuner`), from a log or from records."""
    return ApplyGraphBest(records)


def target_keys(target: Target) -> tuple[str, ...]:
    """Under what records for a target are kept: its device, its keys, its kind, each with what code may use."""
    device = (target.device_name,) if target.device_name else ()
    isa = isa_of(target)
    return tuple(f"{key} {isa}".strip() for key in dict.fromkeys((*device, *target.keys, target.kind.name)))


def _each_record(records: Records) -> Iterable[Record]:
    if isinstance(records, str | os.PathLike) or hasattr(records, "readline"):
        yield from load_from_file(records)
        return
    for item in records:
        is_pair = isinstance(item, tuple) and len(item) == 2 and hasattr(item[0], "config")
        yield from (item,) if is_pair else _each_record(item)


def _keep_best(table: Best, key: tuple[str, Workload], trial: MeasureInput, result: MeasureResult) -> None:
    retained = table.get(key)
    if retained is None or result.mean < retained[1].mean:
        table[key] = (trial, result)


def _objection(workload: Workload, config: ConfigSpace, target: Target) -> str:
    """Why a configuration does not fit its workload, as making the loops says; "" if it does, or nobody knows."""
    try:
        template = find_template(workload[0])
    except ArmillaryError:
        return ""  # a script's own, which is not defined here
    task = Task(workload[0], workload[1:])
    task.target = target
    try:
        with _Silence(), target:
            template.loops(task, config)
    except _OF_TEMPLATES as error:
        return error.message if isinstance(error, ArmillaryError) else f"{type(error).__name__}: {error}"
    return ""


class _Silence(DispatchContext):
    """No records, not even those around."""

    def query(self, target: object, workload: Workload) -> None:
        return None

    def has_records(self) -> bool:
        return False
