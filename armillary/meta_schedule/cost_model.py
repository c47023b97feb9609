"""Models of costs by the names of scripts; the trees are AutoTVM's (`autotvm/tuner/xgb_tuner.py`).

In: options, which do nothing. Out: what `tune_tir(cost_model=…)` takes. Invariant: "random" and `RandomModel` learn
nothing, all others are the trees.
"""

from __future__ import annotations

from armillary.auto_scheduler.search import XGBModel
from armillary.autotvm.errors import TuningError

__all__ = ["CostModel", "MLPModel", "RandomModel", "XGBModel"]
MLPModel = XGBModel


class RandomModel(XGBModel):
    """Learns nothing."""


class CostModel:
    """Makes models by their names."""

    @staticmethod
    def create(kind: str = "xgb", *args: object, **options: object) -> XGBModel:
        """The model of a name: xgb, mlp, random."""
        names = {"xgb": XGBModel, "mlp": MLPModel, "random": RandomModel}
        if kind not in names:
            raise TuningError(f"there is no cost model {kind!r:.60}", hint=f"there are: {', '.join(names)}")
        return names[kind](*args, **options)
