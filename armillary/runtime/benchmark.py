"""Timing: repeat, number, minimum duration, and the table users know.

In: a function that runs something n times and says how long it took. Out: `BenchmarkResult`, in seconds.
Invariant: one untimed call comes first; every repeat lasts at least `min_repeat_ms`, unless
`limit_zero_time_iterations` repeats in a row took no measurable time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from armillary.base.arguments import Arguments
from armillary.base.boundary import bounded
from armillary.base.lazy import deferred
from armillary.base.record import record
from armillary.errors import ConfigError

with deferred():
    from armillary.text.html import table_html
Measure = Callable[[int], float]  # runs n times, returns seconds
FLUSH_DEFAULT = 64 << 20  # bytes, more than caches have


@bounded
class BenchmarkResult:
    """Seconds per call, one value for each repeat."""

    def __init__(self, results: Sequence[float]) -> None:
        self.results = tuple(float(value) for value in results)
        self.mean = float(np.mean(self.results))
        self.std = float(np.std(self.results))
        self.median = float(np.median(self.results))
        self.min = float(np.min(self.results))
        self.max = float(np.max(self.results))

    def __repr__(self) -> str:
        return (
            f"BenchmarkResult(min={self.min}, mean={self.mean}, median={self.median}, max={self.max}, "
            f"std={self.std}, results={list(self.results)})"
        )

    def __str__(self) -> str:
        head = " ".join(f"{name:^12}" for name in ("mean (ms)", "median (ms)", "max (ms)", "min (ms)", "std (ms)"))
        values = (self.mean, self.median, self.max, self.min, self.std)
        row = " ".join(f"{f'{value * 1000:.4f}':^12}" for value in values)
        return f"Execution time summary:\n{head}\n{row}"

    def _repr_html_(self) -> str:
        names = ("mean", "median", "max", "min", "std")
        heads = [f"{name} (ms)" for name in names] + ["repeats"]
        row = [*(f"{1e3 * getattr(self, name):.4f}" for name in names), str(len(self.results))]
        return str(table_html(heads, [row]))


class SessionResult(BenchmarkResult):
    """A measurement in a session on another machine; its text ends with the line that scripts which tune for one close
    with."""

    def __str__(self) -> str:
        mean, deviation = 1000 * self.mean, 1000 * self.std
        return f"{super().__str__()}\nMean inference time (std dev): {mean:.2f} ms ({deviation:.2f} ms)"


@record(slots=True)
class Timing:
    """How to repeat a measurement; the fields are those of `Module.time_evaluator`."""

    number: int = 10
    repeat: int = 1
    min_repeat_ms: float = 0
    limit_zero_time_iterations: int = 100
    cooldown_interval_ms: float = 0
    repeats_to_cooldown: int = 1
    cache_flush_bytes: int = 0
    f_preproc: str = ""

    def __post_init__(self) -> None:
        arguments = Arguments("time_evaluator", ConfigError)
        for name in ("number", "repeat", "repeats_to_cooldown"):
            arguments.whole(name, getattr(self, name))
        for name in ("limit_zero_time_iterations", "cache_flush_bytes"):
            arguments.whole(name, getattr(self, name), 0)
        for name in ("min_repeat_ms", "cooldown_interval_ms"):
            arguments.number(name, getattr(self, name), 0)
        arguments.text("f_preproc", self.f_preproc)
        if self.number < 1 or self.repeat < 1 or self.repeats_to_cooldown < 1:
            raise ConfigError("number, repeat and repeats_to_cooldown must be at least 1")
        if self.f_preproc not in ("", "cache_flush_cpu_non_first_arg"):
            raise ConfigError(f"unknown f_preproc {self.f_preproc!r}", hint="use cache_flush_cpu_non_first_arg")


def check_calls(what: str, number: object) -> None:
    """Refuse what is no number of calls."""
    Arguments(what, ConfigError).whole("number", number, 1, 2**31 - 1)


def evaluate(measure: Measure, timing: Timing) -> BenchmarkResult:
    """One warm-up call, then `repeat` measurements."""
    flush = _flusher(timing)
    measure(1)
    results, number = [], timing.number
    for index in range(timing.repeat):
        flush()
        seconds, number = _one_repeat(measure, number, timing)
        results.append(seconds / number)
        if timing.cooldown_interval_ms > 0 and (index + 1) % timing.repeats_to_cooldown == 0:
            time.sleep(timing.cooldown_interval_ms / 1000)
    return BenchmarkResult(results)


def _one_repeat(measure: Measure, number: int, timing: Timing) -> tuple[float, int]:
    zeros = 0
    while True:
        seconds = measure(number)
        zeros += seconds <= 0
        if seconds * 1000 >= timing.min_repeat_ms or zeros > timing.limit_zero_time_iterations:
            return seconds, number
        needed = timing.min_repeat_ms / max(seconds * 1000 / number, 1e-6) + 1
        number = int(max(needed, 1.618 * number))


def _flusher(timing: Timing) -> Callable[[], object]:
    if not timing.cache_flush_bytes and not timing.f_preproc:
        return lambda: None
    junk = np.ones(max(timing.cache_flush_bytes, FLUSH_DEFAULT if timing.f_preproc else 0) // 8 + 1)
    return lambda: np.add(junk, 1.0, out=junk)
