"""`armillary.InferenceSession`, which opens packages and, where the compiler is installed, ONNX models.

In: nothing. Out: names. Invariant: no logic: what opens models makes itself known when it is imported, and is no part
of `armillary-runtime`, which holds this file too.
"""

from __future__ import annotations

import importlib.util

from armillary.runtime.session import InferenceSession, ModelMetadata, NodeArg, RunOptions, SessionOptions
from armillary.runtime.session_binding import IOBinding, OrtValue

if importlib.util.find_spec("armillary.backend") is not None:
    importlib.import_module("armillary.backend.session")

__all__ = ["IOBinding", "InferenceSession", "ModelMetadata", "NodeArg", "OrtValue", "RunOptions", "SessionOptions"]
