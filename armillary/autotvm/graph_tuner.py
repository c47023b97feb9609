"""`autotvm.graph_tuner`: names of scripts that chose layouts for a whole graph after they had tuned its operators.

In: what such scripts pass. Out: an UnsupportedError that says what does this work here. Invariant: nothing is tuned.
Every build weighs moves of data between layouts against kernels, with the records in force
(`backends/`, docs/notes/092): there is no step between tuning and building.
"""

from __future__ import annotations

from armillary.errors import UnsupportedError


class BaseGraphTuner:
    """Refused when it is made."""

    def __init__(self, *_: object, **__: object) -> None:
        told = f"autotvm.graph_tuner.{type(self).__name__}: the layouts of a graph are chosen when it is built"
        hint = "leave this step out; build under `with autotvm.apply_history_best(records):`, with the operators' log"
        raise UnsupportedError(told, hint=hint)


class DPTuner(BaseGraphTuner):
    """Refused when it is made."""


class PBQPTuner(BaseGraphTuner):
    """Refused when it is made."""
