"""ModelTuner: from the compiler's model of costs to the fastest configuration, in few trials.

In: a task whose template has a model (those of networks), else any task. Out: trials in the order of what is expected:
first the model's own choice, then others by an estimate that the trials correct. Invariant: the first trial is what a
build takes without a record, so tuning never ends slower than that; it stops by itself when the chance that any
configuration left is faster by `worth` is small. The order of equals is that of the indices; nothing is random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.local_runner import LocalRunner
from armillary.autotvm.measure.measure import MeasureInput, MeasureOption, MeasureResult
from armillary.autotvm.task.task import Task
from armillary.autotvm.tuner.tuner import Tuner
from armillary.base.aliases import Array
from armillary.base.arguments import Arguments
from armillary.base.config import setting

Numbers = Array
PRIOR = 0.35  # standard deviation of the logarithm of seconds about the model's estimate, before any trial
LENGTH = 0.35  # of the kernel: how far apart configurations are that behave alike, in features scaled to [0, 1]
NOISE = 0.05  # of one measurement: on a busy machine the least of eighteen runs moved by up to 7 %
ASPECT = 0.25  # of the prior's variance that is common to all configurations: the clock, other tenants
LEAST = 8  # trials before it may stop


class ModelTuner(Tuner):
    """A Gaussian process over the logarithm of measured by estimated seconds; the next is what promises most gain."""

    def __init__(self, task: Task, *, worth: float = 0.01, seed: int = 0) -> None:
        super().__init__(task, seed=seed)
        Arguments("ModelTuner", TuningError).number("worth", worth, 0)
        self.worth = worth
        estimates = task.template.estimates(task)
        if not estimates:  # no model: all are alike, and the order is a random one
            estimates = [(index, 1.0) for index in self.space.sample_ints(min(len(self.space), 2048), self.rng)]
        self.indices = np.array([index for index, _ in estimates])
        self.places = {int(index): place for place, index in enumerate(self.indices)}
        self.prior = np.log(np.array([max(seconds, 1e-12) for _, seconds in estimates]))
        self.columns = np.stack([_features(self.space.get(int(i))) for i in self.indices])
        self.features = _scaled(self.columns, self.prior)
        self.threads = 1
        self.seen: list[int] = []
        self.values: list[float] = []
        self.expected = np.inf  # gain of the best configuration left, as a part of the best time

    def prepare(self, measure_option: MeasureOption) -> None:
        """Expect what the threads of this machine make of each configuration, where trials run on it."""
        if isinstance(measure_option["runner"], LocalRunner) and self.threads == 1:
            self.share(int(setting("ARMILLARY_NUM_THREADS")))

    def share(self, threads: int) -> None:
        """Expect that so many threads share the parts of each configuration."""
        self.threads, parts = threads, self.task.template.parts(self.task)
        self.prior = self.prior + np.log([whole_rounds(parts.get(int(i), 0), threads) for i in self.indices])
        self.features = _scaled(self.columns, self.prior)

    def propose(self, count: int) -> list[int]:
        if not self.seen and not self.visited:
            return [int(i) for i in self.indices[:1]]
        seen, values = list(self.seen), list(self.values)
        taken, result = self.visited | set[int](), list[int]()
        for index in sorted(taken):  # without a result yet: as expected
            if (place := self.places.get(index)) is not None and place not in seen:
                self._believe(place)
        while len(result) < count:
            gains = self._gains()
            order = np.argsort(-gains, kind="stable")
            place = next((int(i) for i in order if int(self.indices[i]) not in taken), None)
            if place is None:
                break
            result.append(int(self.indices[place]))
            taken.add(result[-1])
            self._believe(place)
        self.seen, self.values = seen, values
        return result

    def _believe(self, place: int) -> None:
        """Take the expectation for a result, so that the next one of a batch is not next to it."""
        expected = float(self._predictions()[0][place]) if self.values else float(self.prior[place])
        self.seen.append(place)
        self.values.append(expected)

    def has_next(self) -> bool:
        return any(int(i) not in self.visited for i in self.indices)

    def is_done(self) -> bool:
        """Whether the time is up, or no configuration left is expected to gain more than `worth`."""
        if super().is_done():
            return True
        return self.trials >= LEAST and bool(self.values) and self.expected < self.worth

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from results; a failure counts as ten times the estimate."""
        for inp, result in zip(inputs, results, strict=True):
            place = self.places.get(inp.config.index)
            if place is not None:
                self.seen.append(place)
                offset = float(np.median(self._offsets())) if self.values else 0.0
                self.values.append(
                    float(self.prior[place] + offset + np.log(10)) if result.error_no else float(np.log(result.mean))
                )
        gains = self._gains()
        left = [place for place, index in enumerate(self.indices) if int(index) not in self.visited]
        self.expected = float(gains[left].max()) if left else 0.0

    def _offsets(self) -> Numbers:
        known = self.seen[: len(self.values)]
        offsets: Numbers = np.array(self.values) - self.prior[known]
        return offsets

    def _gains(self) -> Numbers:
        """Expected improvement of each configuration over the best, as a part of its time."""
        if not self.values:
            speeds: Numbers = np.exp(self.prior.min() - self.prior)
            return speeds
        mean, deviation = self._predictions()
        best = min(self.values)
        z = (best - mean) / deviation
        density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
        gains: Numbers = (best - mean) * _normal(z) + deviation * density
        return gains

    def _predictions(self) -> tuple[Numbers, Numbers]:
        known = self.features[self.seen]
        offsets = self._offsets()
        level = float(np.median(offsets))
        inner = _kernel(known, known) + NOISE**2 * np.eye(len(known))
        across = _kernel(self.features, known)
        solved = np.linalg.solve(inner, np.column_stack([offsets - level, across.T]))
        mean = self.prior + level + across @ solved[:, 0]
        variance = PRIOR**2 * (1 + ASPECT) - np.einsum("ij,ji->i", across, solved[:, 1:])
        return mean, np.sqrt(np.maximum(variance, NOISE**2 / 4))


def whole_rounds(parts: int, threads: int) -> float:
    """Times what threads would take if they shared work evenly: the last round of parts may lack some.

    whole_rounds(8, 16)  ->  2.0
    whole_rounds(0, 16)  ->  1.0
    """
    return -(-parts // threads) * threads / parts if parts else 1.0


def _features(config: Any) -> Numbers:  # Any: a ConfigEntity
    numbers = config.get_flatten_feature().astype(np.float64)
    return np.concatenate([numbers, np.log2(1 + np.abs(numbers))])


def _scaled(features: Numbers, prior: Numbers) -> Numbers:
    """Columns that differ, to [0, 1], with the estimate as one more; the distance is a mean over columns."""
    low, high = features.min(axis=0), features.max(axis=0)
    retained = high > low
    columns = (features[:, retained] - low[retained]) / (high - low)[retained]
    spread = np.clip(prior - prior.min(), 0, 2) / 2
    scaled = np.column_stack([columns, spread])
    return np.asarray(scaled / np.sqrt(scaled.shape[1]))


def _kernel(a: Numbers, b: Numbers) -> Numbers:
    squares = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)
    alike: Numbers = PRIOR**2 * (np.exp(-squares / (2 * LENGTH**2)) + ASPECT)
    return alike


def _normal(z: Numbers) -> Numbers:
    """The cumulative normal distribution, to a part in 1e7 (Abramowitz and Stegun 7.1.26)."""
    x = np.abs(z) / np.sqrt(2)
    t = 1 / (1 + 0.3275911 * x)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    error = 1 - poly * np.exp(-x * x)
    result: Numbers = 0.5 * (1 + np.sign(z) * error)
    return result
