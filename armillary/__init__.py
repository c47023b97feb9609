"""A deep-learning compiler: a trained network in, one small package for the device out.

In: an ONNX model or a Relay module. Out: a library that the runtime, or a C program, runs. The names below are resolved
on first use, so importing the package costs almost nothing; Relay-era scripts find the modules they know.
Invariant: nothing here has logic. Where to look next: `docs/architecture.md`, `relay/`, `driver/`, `cli/`.
"""

from __future__ import annotations

import armillary.wiring  # noqa: F401 - fills the slots of base/slots.py
from armillary.base.lazy import find_old_modules, lazy_names

__version__ = "0.1.0"

_MODULES = (
    "arith",
    "artifact",
    "auto_scheduler",
    "autotvm",
    "backend",
    "backends",
    "base",
    "cli",
    "codegen",
    "compute",
    "contrib",
    "driver",
    "error",
    "errors",
    "exec",
    "frontend",
    "instrument",
    "ir",
    "meta_schedule",
    "ops",
    "relay",
    "rpc",
    "runtime",
    "script",
    "support",
    "target",
    "te",
    "testing",
    "tir",
    "topi",
    "transform",
)
_TABLE = {name: f"armillary.{name}" for name in _MODULES} | {
    "_ffi": "armillary._ffi",
    "DataType": "armillary.base.dtype:DType",
    "DataTypeCode": "armillary.base.dtype:DataTypeCode",
    "ArmillaryError": "armillary.errors:ArmillaryError",
    "TVMError": "armillary.errors:ArmillaryError",
    "IRModule": "armillary.ir:IRModule",
    **{name: f"armillary.session:{name}" for name in ("InferenceSession", "OrtValue", "RunOptions", "SessionOptions")},
    "build": "armillary.driver.te_build:build",
    **{name: f"armillary.base.{name}" for name in ("config", "dtype", "node")},
    "cl": "armillary.runtime.device:cl",
    "container": "armillary.runtime.container",
    "convert": "armillary.registry:convert",
    "cpu": "armillary.runtime.device:cpu",
    **dict.fromkeys(("cuda", "gpu"), "armillary.runtime.device:cuda"),
    **{name: f"armillary.runtime.device:{name}" for name in ("metal", "rocm", "vulkan")},
    "device": "armillary.runtime.device:device",
    "lower": "armillary.driver.te_build:lower",
    "nd": "armillary.runtime.ndarray",
    "opencl": "armillary.runtime.device:cl",
    "quantize": "armillary.driver.quantization.network:quantize",
    "quantize_weights": "armillary.driver.quantization.weights:quantize_weights",
    **{name: f"armillary.registry:{name}" for name in ("get_global_func", "register_func")},
}

__getattr__, __dir__ = lazy_names(__name__, _TABLE)
find_old_modules()
