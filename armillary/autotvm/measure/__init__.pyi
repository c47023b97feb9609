"""Names of `armillary.autotvm.measure` for type checkers. Written by tools/write_docs.py; do not edit."""

from armillary.autotvm.measure.measure import BuildResult as BuildResult
from armillary.autotvm.measure.measure import Builder as Builder
from armillary.autotvm.measure.local_builder import LocalBuilder as LocalBuilder
from armillary.autotvm.measure.local_runner import LocalRunner as LocalRunner
from armillary.autotvm.measure.measure import MeasureErrorNo as MeasureErrorNo
from armillary.autotvm.measure.measure import MeasureInput as MeasureInput
from armillary.autotvm.measure.measure import MeasureResult as MeasureResult
from armillary.autotvm.measure.rpc_runner import RPCRunner as RPCRunner
from armillary.autotvm.measure.measure import Runner as Runner
from armillary.autotvm.measure.measure import create_measure_batch as create_measure_batch
from armillary.autotvm.measure.option import measure_option as measure_option
from armillary.autotvm.measure.rpc_runner import request_remote as request_remote

__all__ = [
    "BuildResult",
    "Builder",
    "LocalBuilder",
    "LocalRunner",
    "MeasureErrorNo",
    "MeasureInput",
    "MeasureResult",
    "RPCRunner",
    "Runner",
    "create_measure_batch",
    "measure_option",
    "request_remote",
]
