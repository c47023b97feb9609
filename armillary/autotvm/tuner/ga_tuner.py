"""GATuner: a genetic algorithm over the points of a space.

In: a task, size of a population, elite, probability of mutation. Out: generations of configurations: parents in
proportion to their speed, one crossing, mutations of single knobs. Invariant: a generation has no configuration that
was measured before; where crossing gives none that is new, a random one takes its place, until the space is used up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.task.space import knob2point, point2knob
from armillary.autotvm.task.task import Task
from armillary.autotvm.tuner.tuner import Tuner
from armillary.base.aliases import Array
from armillary.base.arguments import Arguments

Chances = Array
_TRIES = 20  # to find a child that is new


class GATuner(Tuner):
    """Breeds configurations from the fastest ones."""

    def __init__(
        self, task: Task, pop_size: int = 100, elite_num: int = 3, mutation_prob: float = 0.1, *, seed: int = 0
    ) -> None:
        super().__init__(task, seed=seed)
        arguments = Arguments("GATuner", TuningError)
        arguments.whole("pop_size", pop_size, 2)
        arguments.whole("elite_num", elite_num, 0)
        arguments.number("mutation_prob", mutation_prob, 0)
        if pop_size < 2 or not 0 <= elite_num <= pop_size or not 0 <= mutation_prob <= 1:
            raise TuningError(f"GATuner: pop_size={pop_size}, elite_num={elite_num}, mutation_prob={mutation_prob}")
        self.pop_size, self.elite_num, self.mutation_prob = pop_size, elite_num, mutation_prob
        self.dims = self.space.dims
        self.elites: list[tuple[float, int]] = []
        self.genes: list[int] = self.space.sample_ints(pop_size, self.rng)
        self.scored: list[tuple[float, int]] = []

    def propose(self, count: int) -> list[int]:
        result: list[int] = []
        while len(result) < count and len(self.visited) + len(result) < len(self.space):
            if not self.genes:
                self.genes = self._generation(result)
            index = self.genes.pop(0)
            if index not in self.visited and index not in result:
                result.append(index)
        return result

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Keep scores: operations per second, 0 for failures."""
        for inp, result in zip(inputs, results, strict=True):
            self.scored.append((self.task.flop / result.mean if not result.error_no else 0.0, inp.config.index))

    def _generation(self, taken: list[int]) -> list[int]:
        parents = sorted(set(self.scored[-self.pop_size :] + self.elites), reverse=True)
        self.elites = parents[: self.elite_num]
        scores = np.array([score for score, _ in parents]) + 1e-8
        known = {*self.visited, *taken}
        children: list[int] = []
        while len(children) < self.pop_size and len(known) < len(self.space):
            child = self._new_child(parents, scores / scores.sum(), known) if parents else None
            if child is None:
                child = self._random_unknown(known)
            known.add(child)
            children.append(child)
        return children

    def _new_child(self, parents: list[tuple[float, int]], chance: Chances, known: set[int]) -> int | None:
        for _ in range(_TRIES):
            first, second = (parents[i][1] for i in self.rng.choice(len(parents), 2, p=chance))
            a, b = knob2point(first, self.dims), knob2point(second, self.dims)
            cut = int(self.rng.integers(len(self.dims) + 1))
            point = [*a[:cut], *b[cut:]]
            for place, size in enumerate(self.dims):
                if self.rng.random() < self.mutation_prob:
                    point[place] = int(self.rng.integers(size))
            index = point2knob(point, self.dims)
            if index not in known and self.space.is_index_valid(index):
                return index
        return None

    def _random_unknown(self, known: set[int]) -> int:
        """A configuration at random that is not known."""
        for _ in range(_TRIES):
            (index,) = self.space.sample_ints(1, self.rng)
            if index not in known:
                return index
        return next(int(i) for i in self.space.valid_indices() if int(i) not in known)
