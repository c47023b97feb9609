"""Names of `armillary.autotvm.tuner` for type checkers. Written by tools/write_docs.py; do not edit."""

from armillary.autotvm.tuner.droplet_tuner import DropletTuner as DropletTuner
from armillary.autotvm.tuner.ga_tuner import GATuner as GATuner
from armillary.autotvm.tuner.index_based_tuner import GridSearchTuner as GridSearchTuner
from armillary.autotvm.tuner.model_tuner import ModelTuner as ModelTuner
from armillary.autotvm.tuner.index_based_tuner import RandomTuner as RandomTuner
from armillary.autotvm.tuner.tuner import Tuner as Tuner
from armillary.autotvm.tuner.xgb_tuner import XGBTuner as XGBTuner
from armillary.autotvm.tuner import callback as callback

__all__ = [
    "DropletTuner",
    "GATuner",
    "GridSearchTuner",
    "ModelTuner",
    "RandomTuner",
    "Tuner",
    "XGBTuner",
    "callback",
]
