"""Which algorithm and schedule an anchor operator gets on a target.

In: the anchor call of a fused function (operator, attrs, input types) and the target. Out: the best `Implementation`
whose `when` has no objection. An implementation may replace the operator's TE compute and schedules the fused result.
Invariant: for every operator kind and target family there is a default (`default_schedule`), so the choice
never fails. To add one: a schedule with `@implement(...)` in a folder of the back end (`Backend.algorithms`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Literal

from armillary import te
from armillary.backends.base import Backend, backend_of
from armillary.backends.explanation import Explanation
from armillary.backends.workload import Reason, Workload
from armillary.base.aliases import AnyFunction
from armillary.errors import InternalError
from armillary.relay.op import COMPUTE, STRATEGY
from armillary.relay.types import tensor_fields
from armillary.target.choice import stored_choice
from armillary.te.schedule import AutoInlineInjective
from armillary.tir.stmt import PrimFunc

ComputeRule = AnyFunction  # (attrs, *tensors) -> te tensor or list


@dataclass(frozen=True)
class Fused:
    """A fused function as tensors: `anchor` is the anchor operator's result, `outputs` the function's results.

    `inner`: the results of the workload's inner contractions.
    """

    workload: Workload
    anchor: tuple[te.Tensor, ...]
    outputs: tuple[te.Tensor, ...]
    inputs: tuple[te.Tensor, ...]
    inner: tuple[te.Tensor, ...] = ()


# A script's own rule makes another schedule; one whose loops are written gives them, and the stages are left alone.
ScheduleRule = Callable[[te.Schedule, Fused], te.Schedule | PrimFunc | None]
ExplainRule = Callable[[Workload], Explanation]
Sizes = Literal["fixed", "named", "any"]  # tensors that an implementation is for: without named sizes, with, or both


@dataclass(frozen=True)
class Implementation:
    """One way to compute an operator on a family of targets. Higher priority is asked first."""

    name: str
    op: str
    family: str
    schedule: ScheduleRule
    compute: ComputeRule | None = None
    when: Callable[[Workload], Reason] = lambda workload: None
    priority: int = 10
    explain: ExplainRule | None = None
    algorithm: str = ""  # as choices name it (target/choice.py)
    sizes: Sizes = "fixed"


_FIXED = "its tiles are made for fixed sizes"
_ROWS: dict[tuple[str, str], list[Implementation]] = {}
DEFAULTS: dict[str, ScheduleRule] = {}  # family -> schedule for any fused function


def implement(
    op: str | Mapping[str, str],
    *,
    family: str,
    name: str = "",
    when: Callable[[Workload], Reason] = lambda workload: None,
    compute: ComputeRule | None = None,
    priority: int = 10,
    explain: ExplainRule | None = None,
    algorithm: str = "",
    sizes: Sizes = "fixed",
) -> Callable[[ScheduleRule], ScheduleRule]:
    """Decorator: register a schedule (and perhaps a compute, and a rule that explains its choices) for an operator.

    `op` is the operator's name, or those of a kernel of several contractions with " + " between, the anchor last; or a
    name of the row for each of several operators.
    `when` gives None, or why this is not the way: a text for explanations, "" where nobody would ask.
    """

    def register(rule: ScheduleRule) -> ScheduleRule:
        for key, row in ({op: name or rule.__name__} if isinstance(op, str) else op).items():
            rows = _ROWS.setdefault((family, key), [])
            rows.append(Implementation(row, key, family, rule, compute, when, priority, explain, algorithm, sizes))
            rows.sort(key=lambda r: -r.priority)
        return rule

    return register


def default_schedule(family: str) -> Callable[[ScheduleRule], ScheduleRule]:
    """Decorator: register the schedule used when no implementation applies."""

    def register(rule: ScheduleRule) -> ScheduleRule:
        if family in DEFAULTS:
            raise InternalError(f"two default schedules for {family}")
        DEFAULTS[family] = rule
        return rule

    return register


def choose(workload: Workload) -> tuple[Implementation, tuple[str, ...]]:
    """The implementation for a workload, and why those of higher priority were passed over.

    Where sizes have names, what takes them is chosen by their typical values.
    """
    family = workload.target.kind.family
    _load(backend_of(workload.target))
    if workload.op.is_scripted_for(workload.target):
        return scripted(workload), ()
    if any(ty.dtype.is_custom for given in workload.types for ty in tensor_fields(given)):
        return Implementation("plain loops", workload.name, family, _plain), ("a data type of a script's own",)
    reasons: list[str] = []
    is_sized, workload = workload.is_sized, workload.typical
    for row in _named(_ROWS.get((family, workload.name), ()), workload):
        is_for_it = row.sizes in ("any", "named" if is_sized else "fixed")
        reason = row.when(workload) if is_for_it else _FIXED if is_sized else ""
        if reason is None:
            return row, tuple(reasons)
        if reason:
            reasons.append(f"{row.name}: {reason}")
    return Implementation("default", workload.name, family, DEFAULTS[family]), tuple(reasons)


def _plain(schedule: te.Schedule, fused: Fused) -> None:
    """Loops as they are written: each operation is a call of a function that a script names."""
    del fused
    AutoInlineInjective(schedule)


def scripted(workload: Workload) -> Implementation:
    """What a script's strategy, or its compute, says of a call."""
    op, attrs, target = workload.op, workload.attrs, workload.target
    result, default = op.infer_type(attrs, workload.types), DEFAULTS[target.kind.family]
    rule, compute, schedule, name = op.registered(STRATEGY), op.registered(COMPUTE), None, op.name
    if rule is not None:
        inputs = [te.placeholder(ty.static, ty.dtype) for given in workload.types for ty in tensor_fields(given)]
        with target:
            best = rule(attrs, inputs, result, target).best()
        name, compute, schedule = best.name, best.compute, best.schedule

    assert compute is not None, "an operator of a script has a strategy or a compute"

    def computed(attrs: object, *tensors: te.Tensor | tuple[te.Tensor, ...]) -> te.Tensor | Sequence[te.Tensor]:
        flat = [t for given in tensors for t in (given if isinstance(given, tuple) else (given,))]
        made: te.Tensor | Sequence[te.Tensor] = compute(attrs, flat, result)
        return made

    def scheduled(made: te.Schedule, fused: Fused) -> te.Schedule | PrimFunc | None:
        return default(made, fused) if schedule is None else schedule(attrs, list(fused.outputs), target)

    return Implementation(name, op.name, target.kind.family, scheduled, computed)


def _named(rows: Sequence[Implementation], workload: Workload) -> Sequence[Implementation]:
    """The rows of the algorithm that the call's choice names; all of them if it names none of theirs."""
    if not any(row.algorithm for row in rows):
        return rows
    name = stored_choice(workload).algorithm
    return [row for row in rows if row.algorithm == name] or rows if name else rows


def is_implemented(workload: Workload) -> bool:
    """Whether some schedule is made for its operators together."""
    _load(backend_of(workload.target))
    return (workload.target.kind.family, workload.name) in _ROWS


def explain(workload: Workload) -> Explanation:
    """Which implementation a workload gets, with what tile, and why; the same choice as `choose`."""
    row, objections = choose(workload)
    name = "generic loops" if row.name == "default" else row.name.replace("_", " ")
    message = row.explain(workload) if row.explain is not None else Explanation(name)
    return replace(message, objections=tuple(dict.fromkeys((*message.objections, *objections))))


@cache
def _load(backend: Backend) -> Sequence[ModuleType]:
    packages = map(importlib.import_module, backend.algorithms)
    found = (m.name for p in packages for m in pkgutil.walk_packages(getattr(p, "__path__", ()), f"{p.__name__}."))
    return [importlib.import_module(name) for name in sorted(found)]
