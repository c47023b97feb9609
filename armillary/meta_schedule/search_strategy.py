"""How a space is searched, by the names of scripts: each is one of AutoTVM's tuners.

In: a task. Out: its tuner. Invariant: "evolutionary" is trees that learn from trials and propose the best of an
annealing walk (`XGBTuner`), where `cost_model` is "random" generations of the best trials (`GATuner`); "replay-trace"
and "replay-func" draw at random.
"""

from __future__ import annotations

from armillary.autotvm.errors import TuningError
from armillary.autotvm.task.task import Task
from armillary.autotvm.tuner.ga_tuner import GATuner
from armillary.autotvm.tuner.index_based_tuner import RandomTuner
from armillary.autotvm.tuner.tuner import Tuner
from armillary.autotvm.tuner.xgb_tuner import XGBTuner


class SearchStrategy:
    """Who proposes trials. Numbers of populations, of generations and of chances are the tuner's own."""

    def __init__(self, **options: object) -> None:
        del options

    def tuner(self, task: Task, cost_model: object = "xgb") -> Tuner:
        """The tuner of a task."""
        del cost_model
        return RandomTuner(task)

    @staticmethod
    def create(kind: object = "evolutionary", **options: object) -> SearchStrategy:
        """The strategy of a name, or one that is one."""
        if isinstance(kind, SearchStrategy):
            return kind
        names = {"evolutionary": EvolutionarySearch, "replay-trace": ReplayTrace, "replay-func": ReplayFunc}
        if kind not in names:
            raise TuningError(f"there is no search strategy {kind!r:.60}", hint=f"there are: {', '.join(names)}")
        return names[str(kind)](**options)


class EvolutionarySearch(SearchStrategy):
    """Learns from trials which to try next."""

    def tuner(self, task: Task, cost_model: object = "xgb") -> Tuner:
        """Trees that rank, or generations where nothing is to be learned."""
        is_random = cost_model == "random" or type(cost_model).__name__ == "RandomModel"
        return GATuner(task) if is_random else XGBTuner(task, loss_type="rank")


class ReplayTrace(SearchStrategy):
    """Draws at random."""


class ReplayFunc(ReplayTrace):
    """Draws at random."""
