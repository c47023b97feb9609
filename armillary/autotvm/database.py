"""Results of trials in memory, asked for by their inputs: `autotvm.database` of Relay-era scripts.

In: pairs of MeasureInput and MeasureResult. Out: the results of an input, or the inputs that a function picks.
Invariant: inputs are the same when target, task, configuration and hash of the template's code are; the results of one
input stand in the order in which they came. What outlives the process is a log: `record.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.record import measure_str_key
from armillary.base.boundary import bounded

Results = list[MeasureResult]


@bounded
class DummyDatabase:
    """Results by inputs, as long as the process lives."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[MeasureInput, Results]] = {}

    def load(self, inp: MeasureInput, get_all: bool = False) -> MeasureResult | Results | None:
        """The last result of an input, or with `get_all` all of them; None where there is none."""
        _, results = self._rows.get(measure_str_key(inp), (inp, []))
        if not results:
            return None
        return list(results) if get_all else results[-1]

    def save(self, inp: MeasureInput, res: MeasureResult, extend: bool = False) -> None:
        """Keep a result of an input, with `extend` beside the earlier ones, else instead of them."""
        _, earlier = self._rows.get(measure_str_key(inp), (inp, []))
        self._rows[measure_str_key(inp)] = inp, [*(earlier if extend else ()), res]

    def filter(self, func: Callable[[MeasureInput, Results], bool]) -> list[tuple[MeasureInput, MeasureResult]]:
        """Inputs with their last results, for which `func(input, results)` is true."""
        return [(inp, results[-1]) for inp, results in self._rows.values() if func(inp, list(results))]

    def flush(self) -> None:
        """Forget all results."""
        self._rows.clear()
