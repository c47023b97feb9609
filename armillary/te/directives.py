"""What a schedule was told, as values: directives print, compare, become JSON and are replayed.

In: the primitives of `te/schedule.py` record a `Directive` each. Out: the list in the order written; `apply_directives`
repeats it on a fresh schedule of the same computation. Invariant: a directive names stages and axes by keys (unique in
the schedule and in the stage), never by object, so that replaying gives the same keys again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from armillary.base.aliases import AnyFunction
from armillary.base.boundary import boundary
from armillary.errors import ScheduleError
from armillary.te.prefetch import Sharer, Spread, Term

if TYPE_CHECKING:
    from armillary.te.schedule import Schedule

Value = Any  # a string, number, None, or tuple of them


@dataclass(frozen=True, slots=True)
class Directive:
    """One primitive as it was called: on which stage, which primitive, with which arguments."""

    stage: str
    primitive: str
    arguments: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        return f"{self.stage}.{self.primitive}({', '.join(f'{k}={_text(v)}' for k, v in self.arguments)})"

    def as_json(self) -> dict[str, Value]:
        """The directive as a JSON object."""
        return {"stage": self.stage, "do": self.primitive, **{k: _plain(v) for k, v in self.arguments}}

    @staticmethod
    def from_json(row: Mapping[str, Value]) -> Directive:
        """The directive of a JSON object; ScheduleError when it is none."""
        if not isinstance(row, Mapping) or not isinstance(row.get("stage"), str) or not isinstance(row.get("do"), str):
            raise ScheduleError(f"not a schedule directive: {row!r}", hint='wanted {"stage": …, "do": …, arguments}')
        rest = tuple((k, _frozen(v)) for k, v in row.items() if k not in ("stage", "do"))
        return Directive(row["stage"], row["do"], rest)


def _text(value: Value) -> str:
    return f"[{', '.join(map(_text, value))}]" if isinstance(value, tuple) else str(value)


def _plain(value: Value) -> Value:
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _frozen(value: Value) -> Value:
    return tuple(_frozen(v) for v in value) if isinstance(value, list | tuple) else value


def to_json(directives: Sequence[Directive]) -> str:
    """Directives as JSON text."""
    return json.dumps([d.as_json() for d in directives])


def from_json(text: str) -> tuple[Directive, ...]:
    """Directives from JSON text; ScheduleError when damaged."""
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise ScheduleError(f"schedule directives are not JSON: {error}") from error
    if not isinstance(rows, list):
        raise ScheduleError("schedule directives must be a JSON list")
    return tuple(Directive.from_json(row) for row in rows)


@boundary("apply_directives", arguments=True)
def apply_directives(
    schedule: Schedule, directives: Sequence[Directive] | str, intrinsics: Mapping[str, object] | None = None
) -> Schedule:
    """Repeat directives on a fresh schedule; `intrinsics` holds the tensor intrinsics that tensorize names."""
    rows = from_json(directives) if isinstance(directives, str) else directives
    for row in rows:
        _apply(schedule, row, intrinsics or {})
    return schedule


def _apply(schedule: Schedule, row: Directive, intrinsics: Mapping[str, object]) -> None:
    if row.primitive not in _KNOWN:
        raise ScheduleError(f"unknown primitive {row.primitive!r}", hint=f"known: {', '.join(sorted(_KNOWN))}")
    arguments = dict(row.arguments)
    try:
        _KNOWN[row.primitive](schedule, row.stage, arguments, intrinsics)
    except (KeyError, TypeError, ValueError) as error:
        raise ScheduleError(f"directive {row} cannot be applied: {error!r}") from error


def _axes_rule(name: str) -> AnyFunction:
    def rule(schedule: Schedule, stage: str, a: dict[str, Value], intrinsics: Mapping[str, object]) -> None:
        at = schedule.stage(stage)
        getattr(at, name)(*(at.axis(key) for key in a["axes"]))

    return rule


def _axis_rule(name: str) -> AnyFunction:
    def rule(schedule: Schedule, stage: str, a: dict[str, Value], intrinsics: Mapping[str, object]) -> None:
        at = schedule.stage(stage)
        rest = {k: v for k, v in a.items() if k != "axis"}
        getattr(at, name)(at.axis(a["axis"]), **rest)

    return rule


def _plain_rule(name: str) -> AnyFunction:
    def rule(schedule: Schedule, stage: str, a: dict[str, Value], intrinsics: Mapping[str, object]) -> None:
        getattr(schedule.stage(stage), name)(**a)

    return rule


def _bind(schedule: Schedule, stage: str, a: dict[str, Value], intrinsics: Mapping[str, object]) -> None:
    at = schedule.stage(stage)
    at.bind(at.axis(a["axis"]), schedule.thread(a["thread"]))


def _compute_at(schedule: Schedule, stage: str, a: dict[str, Value], intrinsics: Mapping[str, object]) -> None:
    parent = schedule.stage(a["parent"])
    schedule.stage(stage).compute_at(parent, parent.axis(a["axis"]))


def _cache_read(schedule: Schedule, stage: str, a: dict[str, Value], intrinsics: Mapping[str, object]) -> None:
    tensor = schedule.stage(stage).op.output(a["output"])
    schedule.cache_read(tensor, a["scope"], [schedule.stage(r).op for r in a["readers"]])


def _cache_write(schedule: Schedule, stage: str, a: dict[str, Value], intrinsics: Mapping[str, object]) -> None:
    schedule.cache_write(list(schedule.stage(stage).op.outputs), a["scope"])


def _rfactor(schedule: Schedule, stage: str, a: dict[str, Value], intrinsics: Mapping[str, object]) -> None:
    at = schedule.stage(stage)
    schedule.rfactor(at.op.output(0), at.axis(a["axis"]), a["factor_axis"])


def _tensorize(schedule: Schedule, stage: str, a: dict[str, Value], intrinsics: Mapping[str, Any]) -> None:
    at = schedule.stage(stage)
    if a["intrinsic"] not in intrinsics:
        raise ScheduleError(f"the directives use tensor intrinsic {a['intrinsic']!r}, which was not given")
    at.tensorize(at.axis(a["axis"]), intrinsics[a["intrinsic"]])


def _prefetch(schedule: Schedule, stage: str, a: dict[str, Value], intrinsics: Mapping[str, object]) -> None:
    at = schedule.stage(stage)
    tensor = schedule.stage(a["tensor"]).op.output(a["output"])
    more = {"locality": a["locality"]} if "locality" in a else {}
    if "spread" in a:
        more["spread"] = Spread(
            tuple(Term(tuple((at.axis(key), times) for key, times in of), *rest) for of, *rest in a["spread"])
        )
    shared = [Sharer(at.axis(key), step, count) for key, step, count in a.get("shared", ())]
    at.prefetch(tensor, at.axis(a["axis"]), a["offset"], shared=shared, **more)


_KNOWN = {
    **{name: _axes_rule(name) for name in ("fuse", "reorder")},
    **{
        name: _axis_rule(name)
        for name in ("split", "vectorize", "unroll", "parallel", "pragma", "storage_align", "round_up")
    },
    **{
        name: _plain_rule(name)
        for name in ("compute_inline", "compute_root", "set_scope", "double_buffer", "transform_layout")
    },
    "bind": _bind,
    "compute_at": _compute_at,
    "cache_read": _cache_read,
    "cache_write": _cache_write,
    "rfactor": _rfactor,
    "tensorize": _tensorize,
    "prefetch": _prefetch,
}
