"""Tuners that need no results: in the order of the indices, or at random.

In: a task, perhaps a range of indices. Out: each valid index of the range once. Invariant: both end when the range is
used up; the random order is that of the seed.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.autotvm.errors import TuningError
from armillary.autotvm.task.task import Task
from armillary.autotvm.tuner.tuner import Tuner
from armillary.base.aliases import Array
from armillary.base.arguments import Arguments

_MOST_LISTED = 1 << 24  # points of a space whose valid indices are listed


class _IndexTuner(Tuner):
    def __init__(self, task: Task, range_idx: tuple[int, int] | None = None, *, seed: int = 0) -> None:
        super().__init__(task, seed=seed)
        last = self.space.range_length - 1
        arguments = Arguments(type(self).__name__, TuningError)
        arguments.kind("range_idx", () if range_idx is None else range_idx, (list, tuple), "a pair of indices")
        if range_idx and len(range_idx) != 2:
            arguments.refuse("range_idx", range_idx, "a pair of indices")
        for index in range_idx or ():
            arguments.whole("range_idx", index)
        first, end = (range_idx[0], range_idx[1] + 1) if range_idx else (0, last + 1)
        if not 0 <= first < end <= last + 1:
            raise TuningError(f"range_idx={range_idx}: wanted a range within 0 and {last}")
        self.begin_idx, self.end_idx = first, end
        self.order: Sequence[int] | Array = range(first, end)
        if self.space.range_length <= _MOST_LISTED:
            valid = self.space.valid_indices()
            self.order = valid[(valid >= first) & (valid < end)]

    @property
    def range_length(self) -> int:
        """How many indices the range has, valid or not."""
        return self.end_idx - self.begin_idx

    @property
    def visited_max(self) -> int:
        """How many configurations there are to propose."""
        return len(self.order)


class GridSearchTuner(_IndexTuner):
    """In the order of the indices."""

    def __init__(self, task: Task, range_idx: tuple[int, int] | None = None, *, seed: int = 0) -> None:
        super().__init__(task, range_idx, seed=seed)
        self._place = 0

    @property
    def index(self) -> int:
        """The index that is proposed next; `end_idx` where none is left."""
        following = self._next()
        return self.end_idx if following is None else following

    def has_next(self) -> bool:
        return self._next() is not None

    def _next(self) -> int | None:
        while self._place < len(self.order):
            index = int(self.order[self._place])
            if index not in self.visited and self.space.is_index_valid(index):
                return index
            self._place += 1
        return None

    def propose(self, count: int) -> list[int]:
        result: list[int] = []
        while len(result) < count and (index := self._next()) is not None:
            result.append(index)
            self._place += 1
        return result


class RandomTuner(_IndexTuner):
    """At random, without repetition: a random order of a list that is shuffled as it is used."""

    def __init__(self, task: Task, range_idx: tuple[int, int] | None = None, *, seed: int = 0) -> None:
        super().__init__(task, range_idx, seed=seed)
        self._swapped: dict[int, int] = {}  # places of the order that hold another one's index
        self._left = len(self.order)
        self._ready: list[int] = []

    def has_next(self) -> bool:
        if not self._ready:
            self._ready = self._draw(1)
        return bool(self._ready)

    def propose(self, count: int) -> list[int]:
        ready = [index for index in self._ready if index not in self.visited]
        result = [*ready, *self._draw(count - len(ready))]
        self._ready = []
        return result

    def _draw(self, count: int) -> list[int]:
        result: list[int] = []
        while len(result) < count and self._left:
            at = int(self.rng.integers(self._left))
            self._left -= 1
            index = int(self.order[self._swapped.get(at, at)])
            self._swapped[at] = self._swapped.pop(self._left, self._left)
            if index not in self.visited and self.space.is_index_valid(index):
                result.append(index)
        return result
