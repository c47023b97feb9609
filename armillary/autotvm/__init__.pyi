"""Names of `armillary.autotvm` for type checkers. Written by tools/write_docs.py; do not edit."""

from armillary.autotvm.task.dispatcher import ApplyConfig as ApplyConfig
from armillary.autotvm.task.dispatcher import ApplyFixedConfig as ApplyFixedConfig
from armillary.autotvm.task.dispatcher import ApplyGraphBest as ApplyGraphBest
from armillary.autotvm.task.dispatcher import ApplyHistoryBest as ApplyHistoryBest
from armillary.autotvm.task.space import ConfigEntity as ConfigEntity
from armillary.autotvm.task.space import ConfigSpace as ConfigSpace
from armillary.autotvm.measure.dask_builder import DaskBuilder as DaskBuilder
from armillary.base.dispatch import DispatchContext as DispatchContext
from armillary.autotvm.task.space import FallbackConfigEntity as FallbackConfigEntity
from armillary.autotvm.task.dispatcher import FallbackContext as FallbackContext
from armillary.autotvm.measure.local_builder import LocalBuilder as LocalBuilder
from armillary.autotvm.measure.local_runner import LocalRunner as LocalRunner
from armillary.autotvm.measure.measure import MeasureErrorNo as MeasureErrorNo
from armillary.autotvm.measure.measure import MeasureInput as MeasureInput
from armillary.autotvm.measure.measure import MeasureResult as MeasureResult
from armillary.autotvm.measure.rpc_runner import RPCRunner as RPCRunner
from armillary.autotvm.task.task import Task as Task
from armillary.autotvm.task.dispatcher import apply_graph_best as apply_graph_best
from armillary.autotvm.task.dispatcher import apply_history_best as apply_history_best
from armillary.autotvm.tuner import callback as callback
from armillary.autotvm.measure.measure import create_measure_batch as create_measure_batch
from armillary.autotvm import database as database
from armillary.autotvm import feature as feature
from armillary.autotvm.task.task import get_config as get_config
from armillary.autotvm import graph_tuner as graph_tuner
from armillary.autotvm import measure as measure
from armillary.autotvm.measure.option import measure_option as measure_option
from armillary.autotvm import record as record
from armillary.autotvm.task.topi_integration import register_topi_compute as register_topi_compute
from armillary.autotvm.task.topi_integration import register_topi_schedule as register_topi_schedule
from armillary.autotvm import task as task
from armillary.autotvm.task.task import template as template
from armillary.autotvm import tophub as tophub
from armillary.autotvm import tuner as tuner

__all__ = [
    "ApplyConfig",
    "ApplyFixedConfig",
    "ApplyGraphBest",
    "ApplyHistoryBest",
    "ConfigEntity",
    "ConfigSpace",
    "DaskBuilder",
    "DispatchContext",
    "FallbackConfigEntity",
    "FallbackContext",
    "LocalBuilder",
    "LocalRunner",
    "MeasureErrorNo",
    "MeasureInput",
    "MeasureResult",
    "RPCRunner",
    "Task",
    "apply_graph_best",
    "apply_history_best",
    "callback",
    "create_measure_batch",
    "database",
    "feature",
    "get_config",
    "graph_tuner",
    "measure",
    "measure_option",
    "record",
    "register_topi_compute",
    "register_topi_schedule",
    "task",
    "template",
    "tophub",
    "tuner",
]
