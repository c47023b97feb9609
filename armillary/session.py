"""`armillary.InferenceSession`, which opens packages and, where the compiler is installed, ONNX models.

In: nothing. Out: names. Invariant: what opens models is no part of `armillary-runtime`, which holds this file too, and
is imported by the first model: who opens packages imports no compiler.
"""

from __future__ import annotations

import importlib.util

from armillary.base.lazy import deferred
from armillary.runtime.session import (
    InferenceSession,
    ModelMetadata,
    NodeArg,
    RunOptions,
    SessionOptions,
    register_engine,
)
from armillary.runtime.session_binding import IOBinding, OrtValue

with deferred():
    from armillary.backend.session import OnnxEngine

if importlib.util.find_spec("armillary.backend") is not None:
    register_engine(OnnxEngine)

__all__ = ["IOBinding", "InferenceSession", "ModelMetadata", "NodeArg", "OrtValue", "RunOptions", "SessionOptions"]
