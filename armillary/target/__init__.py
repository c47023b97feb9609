"""Targets: where code is to run.

In: a target's text, a dictionary or a board's name. Out: a `Target`, and what follows from it. Core modules: target
(the value), grammar (its text), kind and kinds/ (manifests), devices (boards by name), cpu (facts derived for a CPU),
host (this machine), virtual_device and compilation_config (several devices). Invariant: importing this package does not
load LLVM.
"""

from armillary.base.lazy import lazy_names
from armillary.target.cpu import CpuModel, cpu_model
from armillary.target.devices import adreno, arm_cpu, cuda, hexagon, intel_graphics, mali, rocm
from armillary.target.features import TargetFeatures
from armillary.target.generic_func import generic_func, get_native_generic_func, override_native_generic_func
from armillary.target.kind import TargetKind
from armillary.target.target import Target, as_target

create = Target
current = Target.current
list_kinds = Target.list_kinds
bifrost = mali

__all__ = [
    "CpuModel",
    "Target",
    "TargetFeatures",
    "TargetKind",
    "adreno",
    "arm_cpu",
    "as_target",
    "bifrost",
    "cpu_model",
    "create",
    "cuda",
    "current",
    "generic_func",
    "get_native_generic_func",
    "hexagon",
    "intel_graphics",
    "list_kinds",
    "mali",
    "override_native_generic_func",
    "rocm",
]
_CONFIG = "armillary.target.compilation_config"
__getattr__, _ = lazy_names(
    __name__,
    {
        "codegen": "armillary.target.codegen",
        "CompilationConfig": f"{_CONFIG}:CompilationConfig",
        "VirtualDevice": "armillary.target.virtual_device:VirtualDevice",
        "make_compilation_config": f"{_CONFIG}:make_compilation_config",
    },
)
