"""Tuners, and what watches them.

In: a task and how to measure. Out: the best configuration and a log. Invariant: names are resolved on first use.
Where to look next: `tuner.py` (the loop), one file per tuner, `callback.py`.
"""

from __future__ import annotations

from armillary.base.lazy import lazy_names

_HERE = "armillary.autotvm.tuner"
_TABLE = {
    "DropletTuner": f"{_HERE}.droplet_tuner:DropletTuner",
    "GATuner": f"{_HERE}.ga_tuner:GATuner",
    "GridSearchTuner": f"{_HERE}.index_based_tuner:GridSearchTuner",
    "ModelTuner": f"{_HERE}.model_tuner:ModelTuner",
    "RandomTuner": f"{_HERE}.index_based_tuner:RandomTuner",
    "Tuner": f"{_HERE}.tuner:Tuner",
    "XGBTuner": f"{_HERE}.xgb_tuner:XGBTuner",
    "callback": f"{_HERE}.callback",
}

__getattr__, __dir__ = lazy_names(__name__, _TABLE)
