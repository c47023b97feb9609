"""The deployed half: tensors, devices, modules, executors, the thread pool.

In: a package or a shared library, and arrays. Out: arrays. Invariant: imports no part of the compiler, only `errors`,
`config`, `dtype`, `c_compiler` and `artifact`. The C half, which also runs without Python: `native/`.
"""

from armillary.base.lazy import lazy_names
from armillary.runtime.benchmark import BenchmarkResult
from armillary.runtime.device import Device, cl, cpu, device, opencl
from armillary.runtime.executor import GraphExecutor
from armillary.runtime.module import Function, Module, create_graph_module, from_package, load_module, open_library
from armillary.runtime.ndarray import NDArray, array, empty, from_dlpack, from_numpy
from armillary.runtime.node_times import NodeTime
from armillary.runtime.threads import config_threadpool, num_threads

__getattr__, _ = lazy_names(  # names of Relay-era scripts that belong to the compiler or to formats
    __name__,
    {
        "DataType": "armillary.base.dtype:DType",
        "PackedFunc": "armillary.runtime.container:PackedFunc",
        "container": "armillary.runtime.container",
        "convert": "armillary.registry:convert",
        "enabled": "armillary.runtime.container:enabled",
        **{n: f"armillary.runtime.container:{n}" for n in ("load_param_dict_from_file", "save_param_dict_to_file")},
        "load_param_dict": "armillary.runtime.container:load_param_dict",
        "save_param_dict": "armillary.runtime.container:save_param_dict",
        "system_lib": "armillary.runtime.module:system_lib",
        "vm": "armillary.runtime.vm",
    },
)

__all__ = [
    "BenchmarkResult",
    "Device",
    "Function",
    "GraphExecutor",
    "Module",
    "NDArray",
    "NodeTime",
    "array",
    "cl",
    "config_threadpool",
    "cpu",
    "create_graph_module",
    "device",
    "empty",
    "from_dlpack",
    "from_numpy",
    "from_package",
    "load_module",
    "num_threads",
    "open_library",
    "opencl",
]
