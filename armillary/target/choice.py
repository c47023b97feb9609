"""What was decided for one call: the algorithm, its configuration and layouts, its expected cost, and why not others.

In: what a back end decides, a tuning record, or the text that a call carries as its
attribute `choice`. Out: a `Choice`, and its text. Invariant: value and text turn into each other; a choice without an
algorithm is empty, and leaves everything to the model of costs. A configuration may lack knobs: what selects an
algorithm for a call does not know the kernel yet that the call becomes a part of, which decides about the rest.

    conv2d.winograd tile=4 strip=14 rows=6 vectors=2 lines=1 | layouts NCHW16c OIHW16i16o NCHW16c
    | 91342.5 cycles, FMA units | by record | if width in 14..14 | not direct, tile 14x2: 132098.7 cycles

Who decides for CPUs: backends/cpu/select.py. Where records come from: autotvm/task/dispatcher.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any

from armillary.base.record import record
from armillary.errors import ConfigError

SEPARATOR = " | "
_NUMBER = r"[0-9]{1,18}(?:\.[0-9]{1,18})?(?:e[+-]?[0-9]{1,3})?"
_KNOB = re.compile(r"([a-z_]+)=([0-9]{1,18})")
_CYCLES = re.compile(rf"({_NUMBER}) cycles(?:, (.+))?")
_GUARD = re.compile(r"if (\w+) in ([0-9]{1,18})\.\.([0-9]{1,18})")
_REJECTED = re.compile(rf"not (.+?): (?:({_NUMBER}) cycles|(.+))")
EXAMPLE = '"conv2d.winograd tile=4 strip=7", "conv2d.direct rows=7 vectors=4 | layouts NCHW16c OIHW16i16o NCHW16c"'


class Source(Enum):
    """Who decided for an algorithm: the model of costs, a record, or the user."""

    DEFAULT = "default"  # the model of costs
    RECORD = "record"  # a tuning record
    OVERRIDE = "override"  # the option schedule.choice


@record
class Cost:
    """What a choice is expected to take on one thread, and what holds it up."""

    cycles: float
    bound: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cycles", round(float(self.cycles), 3))


@record
class Rejection:
    """What was not chosen: because it takes so many cycles, or for a reason."""

    name: str
    cycles: float = 0.0
    reason: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cycles", round(float(self.cycles), 3))


@record
class Guard:
    """A configuration holds where the extent `symbol` lies in [low, high]."""

    symbol: str
    low: int
    high: int

    def holds(self, extents: Mapping[str, int]) -> bool:
        """Whether the extents meet it; of one that is not known, it does not hold."""
        return self.symbol in extents and self.low <= extents[self.symbol] <= self.high


@record
class Choice:
    """The decision for one call. `config`: knobs in the order of the algorithm's space; `layouts`: of data, weight and
    result; `guards`: all must hold, or the configuration is the model's again."""

    algorithm: str = ""
    config: tuple[tuple[str, int], ...] = ()
    layouts: tuple[str, ...] = ()
    estimate: Cost | None = None
    source: Source = Source.DEFAULT
    rejected: tuple[Rejection, ...] = ()
    guards: tuple[Guard, ...] = ()

    def knob(self, name: str, default: int = -1) -> int:
        """The value of a knob."""
        return dict(self.config).get(name, default)

    def __bool__(self) -> bool:
        return bool(self.algorithm)

    def __str__(self) -> str:
        if not self.algorithm:
            return ""
        parts = [" ".join([self.algorithm, *(f"{name}={value}" for name, value in self.config)])]
        if self.layouts:
            parts.append(f"layouts {' '.join(self.layouts)}")
        if self.estimate is not None:
            bound = f", {self.estimate.bound}" if self.estimate.bound else ""
            parts.append(f"{_text(self.estimate.cycles)} cycles{bound}")
        if self.source is not Source.DEFAULT:
            parts.append(f"by {self.source.value}")
        parts += [f"if {g.symbol} in {g.low}..{g.high}" for g in self.guards]
        parts += [f"not {r.name}: {r.reason or f'{_text(r.cycles)} cycles'}" for r in self.rejected]
        return SEPARATOR.join(parts)

    @staticmethod
    def parse(text: str) -> Choice:
        """The choice of a text; "" is the empty one."""
        return _parsed(text) if text else Choice()


def _text(number: float) -> str:
    return f"{number:.3f}".rstrip("0").rstrip(".")


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Choice:
    first, *parts = text.split(SEPARATOR)
    algorithm, *knobs = first.split()
    if not re.fullmatch(r"\w+(\.\w+)+", algorithm):
        raise _unreadable(text, algorithm)
    fields: dict[str, Any] = {"config": _knobs(text, knobs)}  # Any: values of fields
    guards, rejected = list[Guard](), list[Rejection]()
    for part in parts:
        if part.startswith("layouts "):
            fields["layouts"] = tuple(part.split()[1:])
        elif match := _CYCLES.fullmatch(part):
            fields["estimate"] = Cost(float(match[1]), match[2] or "")
        elif part in (f"by {source.value}" for source in Source):
            fields["source"] = Source(part.removeprefix("by "))
        elif match := _GUARD.fullmatch(part):
            guards.append(Guard(match[1], int(match[2]), int(match[3])))
        elif match := _REJECTED.fullmatch(part):
            rejected.append(Rejection(match[1], float(match[2] or 0.0), match[3] or ""))
        else:
            raise _unreadable(text, part)
    return Choice(algorithm, guards=tuple(guards), rejected=tuple(rejected), **fields)


def _knobs(text: str, parts: Iterable[str]) -> tuple[tuple[str, int], ...]:
    matches = [(part, _KNOB.fullmatch(part)) for part in parts]
    for part, match in matches:
        if match is None:
            raise _unreadable(text, part)
    return tuple((match[1], int(match[2])) for _, match in matches if match is not None)


def _unreadable(text: str, part: str) -> ConfigError:
    return ConfigError(f"choice={text!r}: cannot read {part!r}", hint=f"for example {EXAMPLE}")


def stored_choice(call: object) -> Choice:  # an expression or a workload; those without attributes have none
    """The choice that a call carries; empty where it has none."""
    return Choice.parse(getattr(getattr(call, "attrs", None), "choice", ""))
