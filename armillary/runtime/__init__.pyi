"""Names of `armillary.runtime` for type checkers. Written by tools/write_docs.py; do not edit."""

from armillary.runtime.benchmark import BenchmarkResult as BenchmarkResult
from armillary.runtime.device import Device as Device
from armillary.runtime.device import cl as cl
from armillary.runtime.device import cpu as cpu
from armillary.runtime.device import device as device
from armillary.runtime.device import opencl as opencl
from armillary.runtime.executor import GraphExecutor as GraphExecutor
from armillary.runtime.module import Function as Function
from armillary.runtime.module import Module as Module
from armillary.runtime.module import create_graph_module as create_graph_module
from armillary.runtime.module import from_package as from_package
from armillary.runtime.module import load_module as load_module
from armillary.runtime.module import open_library as open_library
from armillary.runtime.ndarray import NDArray as NDArray
from armillary.runtime.ndarray import array as array
from armillary.runtime.ndarray import empty as empty
from armillary.runtime.ndarray import from_dlpack as from_dlpack
from armillary.runtime.ndarray import from_numpy as from_numpy
from armillary.runtime.node_times import NodeTime as NodeTime
from armillary.runtime.threads import config_threadpool as config_threadpool
from armillary.runtime.threads import num_threads as num_threads
from armillary.base.dtype import DType as DataType
from armillary.runtime.container import PackedFunc as PackedFunc
from armillary.runtime import container as container
from armillary.registry import convert as convert
from armillary.runtime.container import enabled as enabled
from armillary.runtime.container import load_param_dict as load_param_dict
from armillary.runtime.container import load_param_dict_from_file as load_param_dict_from_file
from armillary.runtime.container import save_param_dict as save_param_dict
from armillary.runtime.container import save_param_dict_to_file as save_param_dict_to_file
from armillary.runtime.module import system_lib as system_lib
from armillary.runtime import vm as vm

__all__ = [
    "BenchmarkResult",
    "DataType",
    "Device",
    "Function",
    "GraphExecutor",
    "Module",
    "NDArray",
    "NodeTime",
    "PackedFunc",
    "array",
    "cl",
    "config_threadpool",
    "container",
    "convert",
    "cpu",
    "create_graph_module",
    "device",
    "empty",
    "enabled",
    "from_dlpack",
    "from_numpy",
    "from_package",
    "load_module",
    "load_param_dict",
    "load_param_dict_from_file",
    "num_threads",
    "open_library",
    "opencl",
    "save_param_dict",
    "save_param_dict_to_file",
    "system_lib",
    "vm",
]
