"""`from armillary.relay.frontend import from_onnx`: the importers, where Relay-era scripts import them from.

In: a name. Out: what `armillary.frontend` has under it. Invariant: no logic here; importers are found when asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.frontend import from_darknet as from_darknet
    from armillary.frontend import from_exported_program as from_exported_program
    from armillary.frontend import from_keras as from_keras
    from armillary.frontend import from_mxnet as from_mxnet
    from armillary.frontend import from_onnx as from_onnx
    from armillary.frontend import from_pytorch as from_pytorch
    from armillary.frontend import from_tensorflow as from_tensorflow
    from armillary.frontend import from_tflite as from_tflite
    from armillary.frontend import from_torch as from_torch


def __getattr__(name: str) -> Any:  # Any: an importer or a module
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(importlib.import_module("armillary.frontend"), name)
