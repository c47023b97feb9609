"""The loop of every tuner: propose, measure, learn, tell the callbacks.

In: a task, how to measure, how many trials. Out: the best configuration, and whatever callbacks keep. Invariant: no
configuration is measured twice; the first one is what a build takes without a record, where a model of costs says; a
failed trial counts as one and never ends the loop; the order of proposals depends on the seed and the results alone.
`resume` takes the trials of a log as done. Proposals: the subclasses beside this file.
"""

from __future__ import annotations

import logging
import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import (
    MeasureBatch,
    MeasureInput,
    MeasureOption,
    MeasureResult,
    create_measure_batch,
)
from armillary.autotvm.task.space import ConfigEntity
from armillary.autotvm.task.task import Task
from armillary.base.arguments import Arguments
from armillary.errors import ArmillaryError

logger = logging.getLogger("autotvm")
Callback = Callable[["Tuner", Sequence[MeasureInput], Sequence[MeasureResult]], None]
Pairs = Iterable[tuple[MeasureInput, MeasureResult]]
_SHOWN = 3  # kinds of errors that a warning repeats


class Tuner:
    """Base of tuners; a subclass proposes configurations (`propose`) and may learn (`update`)."""

    def __init__(self, task: Task, *, seed: int = 0) -> None:
        arguments = Arguments(type(self).__name__, TuningError)
        arguments.kind("task", task, Task, "a task", "autotvm.task.create, or extract_from_program")
        arguments.whole("seed", seed, 0)
        self.task, self.space = task, task.config_space
        self.rng = np.random.default_rng(seed)
        self.visited: set[int] = set()
        self.best_config: ConfigEntity | None = None
        self.best_flops = 0.0
        self.best_measure_pair: tuple[MeasureInput, MeasureResult] | None = None
        self.best_iter, self.trials, self.ttl = 0, 0, math.inf
        self.n_trial = 0
        self.error_ct_threshold = 150
        self.starts_from_model = True  # where the task's template has a model of costs
        self.deadline = math.inf  # on time.monotonic()
        self.resumed: list[tuple[MeasureInput, MeasureResult]] = []  # what a log had, as it stands there
        self._errors: Counter[str] = Counter()
        self._failed = 0  # since the last success

    def has_next(self) -> bool:
        """Whether a configuration is left to propose."""
        return len(self.visited) < len(self.space)

    def propose(self, count: int) -> list[int]:
        """At most `count` indices that were not visited."""
        raise TuningError(f"{type(self).__name__} proposes nothing", hint="define propose(count)")

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        """The next configurations to measure."""
        indices = self._model_choice()
        self.visited.update(indices)
        indices += self.propose(batch_size - len(indices)) if batch_size > len(indices) else []
        self.visited.update(indices)
        return [self.space.get(index) for index in indices]

    def _model_choice(self) -> list[int]:
        """What a build takes without a record, once: the best record is then never worse than none."""
        if not self.starts_from_model:
            return []
        self.starts_from_model = False
        return [index for index, _ in self.task.template.estimates(self.task)[:1] if index not in self.visited]

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from results; the base learns nothing."""

    def load_history(self, data_set: Pairs, min_seed_records: int = 500) -> None:
        """Learn from records of other tasks, where the tuner can."""

    def prepare(self, measure_option: MeasureOption) -> None:
        """Take what helps from how trials are measured, before the first; the base takes nothing."""

    def is_done(self) -> bool:
        """Whether the time is up, or the tuner itself expects no gain from more trials."""
        return time.monotonic() >= self.deadline

    def tune(
        self,
        n_trial: int,
        measure_option: MeasureOption,
        early_stopping: int | None = None,
        callbacks: Sequence[Callback] = (),
        si_prefix: str = "G",
    ) -> None:
        """Measure up to `n_trial` configurations (those of `resume` included); stop when `early_stopping` trials in a
        row bring nothing better."""
        check_prefix(si_prefix)
        arguments = Arguments(f"{type(self).__name__}.tune", TuningError)
        arguments.whole("n_trial", n_trial, 0)
        if early_stopping is not None:
            arguments.whole("early_stopping", early_stopping, 0)
        arguments.kind("callbacks", callbacks, (list, tuple), "a list of functions (tuner, inputs, results)")
        for callback in callbacks:
            arguments.callable("callbacks", callback, "functions (tuner, inputs, results)")
        self.n_trial, patience = n_trial, early_stopping or math.inf
        self.prepare(measure_option)
        measure = create_measure_batch(self.task, measure_option)
        try:
            while self.trials < n_trial and self.has_next() and not self.is_done():
                self.measure_next(
                    measure, min(measure.n_parallel, n_trial - self.trials), callbacks, si_prefix, patience
                )
                if self.trials >= self.best_iter + patience:
                    logger.debug("Early stopped. Best iter: %d.", self.best_iter)
                    break
        finally:
            measure.close()
        for callback in callbacks:
            finish = getattr(callback, "finish", None)
            if finish is not None:
                finish()
        self._warn_of_failures()

    def measure_next(
        self,
        measure: MeasureBatch,
        count: int,
        callbacks: Sequence[Callback] = (),
        si_prefix: str = "G",
        patience: float = math.inf,
    ) -> None:
        """Propose at most `count` configurations, measure them, learn from the results."""
        configs = self.next_batch(count)
        inputs = [MeasureInput(self.task.target, self.task, config) for config in configs]
        results: list[MeasureResult] = measure(inputs)
        for inp, result in zip(inputs, results, strict=True):
            self._note(inp, result)
            logger.debug("No: %d\t%s", self.trials, debug_line(self, inp, result, si_prefix))
        self.ttl = min(patience + self.best_iter, self.n_trial) - self.trials
        self.update(inputs, results)
        for callback in callbacks:
            callback(self, inputs, results)
        if self._failed > self.error_ct_threshold and logger.level != logging.DEBUG:
            logger.setLevel(logging.DEBUG)
            logger.warning("Too many errors happen in the tuning. Switching to debug mode.")

    def _note(self, trial: MeasureInput, result: MeasureResult) -> None:
        self.trials += 1
        if result.error_no:
            self._failed += 1
            self._errors[result.error.partition("\n")[0][:300]] += 1
            return
        self._failed = 0
        flops = self.task.flop / result.mean
        if flops > self.best_flops:
            self.best_flops, self.best_config, self.best_iter = flops, trial.config, self.trials
            self.best_measure_pair = (trial, result)

    def resume(self, records: Pairs) -> int:
        """Take the records of this task as trials done; gives their number. Those that do not fit are named."""
        inputs, results = [], []
        for inp, result in records:
            if inp.task.workload != self.task.workload or str(inp.target) != str(self.task.target):
                continue
            try:
                index = self.space.index_of(inp.config.entity_map)
            except ArmillaryError as error:
                place = inp.config.origin or "a record"
                logger.warning("%s, of %s, is left out: %s", place, self.task.name, error.message)
                continue
            again = MeasureInput(self.task.target, self.task, self.space.get(index))
            self.resumed.append((again, result))
            if index not in self.visited:
                self.visited.add(index)
                inputs.append(again)
                results.append(result)
                self._note(inputs[-1], result)
        if inputs:
            self.update(inputs, results)
        return len(inputs)

    def set_error_threshold(self, threshold: int) -> None:
        """After how many failures in a row every trial is logged."""
        self.error_ct_threshold = threshold

    def reset(self) -> None:
        """Forget all results."""
        fresh = Tuner(self.task)
        fresh.rng = self.rng
        self.__dict__.update({name: value for name, value in fresh.__dict__.items() if name != "rng"})

    def _warn_of_failures(self) -> None:
        failures = sum(self._errors.values())
        if not failures or failures < self.trials:
            return
        with tempfile.NamedTemporaryFile("w", prefix="tvm_tuning_errors_", suffix=".log", delete=False) as file:
            file.write("\n".join(f"{count} x {text}" for text, count in self._errors.most_common()) + "\n")
        message = "; ".join(f"{count} x {text}" for text, count in self._errors.most_common(_SHOWN))
        logger.warning("Could not find any valid schedule for task %s: %s (all in %s)", self.task, message, file.name)


def debug_line(tuner: Tuner, trial: MeasureInput, result: MeasureResult, si_prefix: str) -> str:
    """What the log at DEBUG tells of a trial."""
    scale = check_prefix(si_prefix)
    flops = 0.0 if result.error_no else tuner.task.flop / result.mean
    message = f"{si_prefix}FLOPS: {flops / scale:.2f}/{tuner.best_flops / scale:.2f}\tresult: "
    kind = f"error {result.error_no}: {result.error}" if result.error_no else f"{list(result.costs)}"
    return f"{message}{kind}\t{trial.config}"


_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def check_prefix(si_prefix: str) -> float:
    """The factor of an SI prefix."""
    if not isinstance(si_prefix, str) or si_prefix not in _PREFIXES:
        raise TuningError(f"unknown SI prefix {si_prefix!r}", hint=", ".join(filter(None, _PREFIXES)))
    return _PREFIXES[si_prefix]
