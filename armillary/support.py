"""What this installation is made of: `armillary.support.libinfo()`.

In: nothing. Out: names and texts, under keys that Relay-era scripts look up. Invariant: only what is there is ON.
"""

from __future__ import annotations

import platform

import llvmlite
import llvmlite.binding as llvm

import armillary
from armillary.runtime.container import enabled

_ABSENT = ("CUDA", "CUDNN", "CUBLAS", "METAL", "VULKAN", "ROCM", "HEXAGON", "TENSORRT_CODEGEN", "DNNL", "MKL", "MICRO")


def libinfo() -> dict[str, str]:
    """What the package was built with, by the names of the era."""
    version = ".".join(map(str, llvm.llvm_version_info))
    present = {"USE_LLVM": f"ON (llvmlite {llvmlite.__version__})", "LLVM_VERSION": version, "USE_RPC": "ON"}
    present |= {"USE_OPENCL": "ON" if enabled("opencl") else "OFF", "USE_GRAPH_EXECUTOR": "ON", "USE_PROFILER": "ON"}
    return {**present, **{f"USE_{name}": "OFF" for name in _ABSENT}, "GIT_COMMIT_HASH": f"v{armillary.__version__}"}


def describe() -> None:
    """Print the installation."""
    print(f"armillary {armillary.__version__}, Python {platform.python_version()}, {platform.platform()}")
    for name, value in sorted(libinfo().items()):
        print(f"  {name}: {value}")
