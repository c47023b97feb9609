"""Names of `armillary.autotvm.task` for type checkers. Written by tools/write_docs.py; do not edit."""

from armillary.autotvm.task.templates import register_source as register_source
from armillary.autotvm.task.space import ConfigEntity as ConfigEntity
from armillary.autotvm.task.space import ConfigSpace as ConfigSpace
from armillary.base.dispatch import DispatchContext as DispatchContext
from armillary.autotvm.task.space import FallbackConfigEntity as FallbackConfigEntity
from armillary.autotvm.task.task import Task as Task
from armillary.autotvm.task.task import args_to_workload as args_to_workload
from armillary.autotvm.task.flop import compute_flop as compute_flop
from armillary.autotvm.task.task import create as create
from armillary.autotvm.task.task import deserialize_args as deserialize_args
from armillary.autotvm.task import dispatcher as dispatcher
from armillary.autotvm.task.network import extract_from_multiple_program as extract_from_multiple_program
from armillary.autotvm.task.network import extract_from_program as extract_from_program
from armillary.autotvm.task.task import get_config as get_config
from armillary.autotvm.task.topi_integration import register_topi_compute as register_topi_compute
from armillary.autotvm.task.topi_integration import register_topi_schedule as register_topi_schedule
from armillary.autotvm.task.task import serialize_args as serialize_args
from armillary.autotvm.task import space as space
from armillary.autotvm.task import task as task
from armillary.autotvm.task.task import template as template
from armillary.autotvm.task import topi_integration as topi_integration

__all__ = [
    "ConfigEntity",
    "ConfigSpace",
    "DispatchContext",
    "FallbackConfigEntity",
    "Task",
    "args_to_workload",
    "compute_flop",
    "create",
    "deserialize_args",
    "dispatcher",
    "extract_from_multiple_program",
    "extract_from_program",
    "get_config",
    "register_source",
    "register_topi_compute",
    "register_topi_schedule",
    "serialize_args",
    "space",
    "task",
    "template",
    "topi_integration",
]
