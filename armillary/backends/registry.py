"""Which schedule an anchor operator gets on a target: the code of candidates.

In: the anchor call of a fused function (operator, attrs, input types) and the target. Out: the `Implementation` of the
candidate that is selected for it (backends/candidate.py). An implementation may replace the operator's TE compute and
schedules the fused result. Invariant: for every operator kind and target family there is a default
(`default_schedule`), so the selection never fails. To add one: a schedule with `@implement(...)` in a folder of the
back end (`Backend.algorithms`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import TypeAlias

from armillary import te
from armillary.backends.base import Backend, backend_of
from armillary.backends.candidate import Candidate, in_order, select
from armillary.backends.explanation import Explanation
from armillary.backends.workload import Workload
from armillary.base.aliases import AnyFunction
from armillary.base.extent import Known
from armillary.errors import InternalError
from armillary.relay.expr import Call
from armillary.relay.op import COMPUTE, STRATEGY
from armillary.relay.types import tensor_fields
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


@dataclass(frozen=True)
class Version:
    """A call for some sizes: those at which extents have these values, all where there are none."""

    call: Call
    equal: tuple[tuple[Known, int], ...] = ()


@dataclass(frozen=True)
class Versions:
    """Calls that compute the same: where `extent` is below `fewest` the one of `few` that is for these sizes, else
    `many`. Some of `few` is for each such size with elements."""

    extent: Known
    fewest: int
    few: tuple[Version, ...]
    many: Call


VersionsRule = Callable[[Call, Workload], Versions | None]  # None: the call has one version


@dataclass(frozen=True)
class Implementation:
    """A candidate with its code: the schedule of a fused function, and tensors where they are not the operator's."""

    candidate: Candidate
    schedule: ScheduleRule
    compute: ComputeRule | None = None
    versions: VersionsRule | None = None  # of a call that may be one of two calls, by its sizes: these are scheduled

    @property
    def name(self) -> str:
        """What the candidate is called."""
        return self.candidate.name


_DECLARED: dict[tuple[str, str], list[Candidate]] = {}  # family, operator -> candidates that no manifest has
_Code: TypeAlias = "tuple[ScheduleRule, ComputeRule | None, VersionsRule | None]"
_CODE: dict[tuple[str, str], _Code] = {}  # by family and name of a candidate
DEFAULTS: dict[str, ScheduleRule] = {}  # family -> schedule for any fused function


def implement(
    *candidates: Candidate | str,
    family: str,
    compute: ComputeRule | None = None,
    versions: VersionsRule | None = None,
) -> Callable[[ScheduleRule], ScheduleRule]:
    """Decorator: attach a schedule (and perhaps a compute) to candidates of a family: those of manifests by name, those
    that have nothing to choose as they are declared here."""

    def register(rule: ScheduleRule) -> ScheduleRule:
        for candidate in candidates:
            name = candidate if isinstance(candidate, str) else candidate.name
            if not isinstance(candidate, str):
                _DECLARED.setdefault((family, candidate.op), []).append(candidate)
            if _CODE.setdefault((family, name), (rule, compute, versions)) != (rule, compute, versions):
                raise InternalError(f"two schedules for {name} of {family}")
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


def candidates_of(backend: Backend, op: str) -> tuple[Candidate, ...]:
    """All candidates of an operator on a family, in the order in which they are asked."""
    _load(backend)
    return in_order((*backend.candidates(op), *_DECLARED.get((backend.family, op), ())))


def choose(workload: Workload) -> tuple[Implementation, tuple[str, ...]]:
    """The implementation for a workload, and why those that are asked before it were passed over."""
    backend = backend_of(workload.target)
    if workload.op.is_scripted_for(workload.target):
        return scripted(workload), ()
    if any(ty.dtype.is_custom for ty in workload.types for ty in tensor_fields(ty)):
        return Implementation(Candidate(workload.name, "plain loops"), _plain), ("a data type of a script's own",)
    candidate, rejections = select(candidates_of(backend, workload.name), workload)
    reasons = tuple(f"{rejection.name}: {rejection.reason}" for rejection in rejections)
    if candidate is None:
        return Implementation(Candidate(workload.name, "default"), DEFAULTS[backend.family]), reasons
    return Implementation(candidate, *_CODE[backend.family, candidate.name]), reasons


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
        inputs = [
            te.placeholder(ty.static, ty.dtype)
            for type_of_input in workload.types
            for ty in tensor_fields(type_of_input)
        ]
        with target:
            best = rule(attrs, inputs, result, target).best()
        name, compute, schedule = best.name, best.compute, best.schedule

    assert compute is not None, "an operator of a script has a strategy or a compute"

    def computed(attrs: object, *tensors: te.Tensor | tuple[te.Tensor, ...]) -> te.Tensor | Sequence[te.Tensor]:
        flat = [t for tensor in tensors for t in (tensor if isinstance(tensor, tuple) else (tensor,))]
        outcome: te.Tensor | Sequence[te.Tensor] = compute(attrs, flat, result)
        return outcome

    def scheduled(unfinished: te.Schedule, fused: Fused) -> te.Schedule | PrimFunc | None:
        return default(unfinished, fused) if schedule is None else schedule(attrs, list(fused.outputs), target)

    return Implementation(Candidate(op.name, name), scheduled, computed)


def is_implemented(workload: Workload) -> bool:
    """Whether some schedule is made for its operators together."""
    return bool(candidates_of(backend_of(workload.target), workload.name))


def explain(workload: Workload) -> Explanation:
    """Which implementation a workload gets, with what tile, and why; the same choice as `choose`."""
    implementation, objections = choose(workload)
    is_default = implementation.name == "default"
    message = Explanation("generic loops") if is_default else implementation.candidate.explain(workload)
    return replace(message, objections=tuple(dict.fromkeys((*message.objections, *objections))))


@cache
def _load(backend: Backend) -> Sequence[ModuleType]:
    packages = map(importlib.import_module, backend.algorithms)
    names = (m.name for p in packages for m in pkgutil.walk_packages(getattr(p, "__path__", ()), f"{p.__name__}."))
    return [importlib.import_module(name) for name in sorted(names)]
