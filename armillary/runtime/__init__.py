"""The deployed half: tensors, devices, modules, executors, the thread pool.

In: a package or a shared library, and arrays. Out: arrays. Invariant: imports no part of the compiler, only `errors`,
`config`, `dtype`, `c_compiler` and `artifact`. The C half, which also runs without Python: `native/`.
"""

from armillary.runtime.benchmark import BenchmarkResult
from armillary.runtime.device import Device, cl, cpu, device, opencl
from armillary.runtime.executor import GraphExecutor, NodeTime, create_graph_module
from armillary.runtime.module import Function, Module, from_package, load_module, open_library
from armillary.runtime.ndarray import NDArray, array, empty, from_dlpack, from_numpy
from armillary.runtime.threads import config_threadpool, num_threads

__all__ = [
    "BenchmarkResult", "Device", "Function", "GraphExecutor", "Module", "NDArray", "NodeTime", "array", "cl",
    "config_threadpool", "cpu", "create_graph_module", "device", "empty", "from_dlpack", "from_numpy", "from_package",
    "load_module", "num_threads", "open_library", "opencl",
]  # fmt: skip
