"""Importers: a trained network becomes `(IRModule, params)`.

In: a network of another framework. Out: a module in Relay and its parameters. `from_onnx` reads ONNX (see
onnx/entry.py), `from_keras` Keras (keras/entry.py), `from_mxnet` MXNet (mxnet/entry.py), `from_tflite` TFLite
(tflite/entry.py), `from_tensorflow` frozen graphs (tensorflow/entry.py), `from_darknet` Darknet (darknet/entry.py),
`from_exported_program` programs of torch.export (pytorch/entry.py). The other names of Relay-era scripts exist so that
a script meets a sentence instead of an AttributeError: each refuses with UnsupportedError and says how to go through
ONNX. Invariant: nothing is imported before first use, so this package costs nothing until a model is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base.lazy import lazy_names

if TYPE_CHECKING:
    from armillary.frontend.darknet.entry import from_darknet as from_darknet
    from armillary.frontend.keras.entry import from_keras as from_keras
    from armillary.frontend.mxnet.entry import from_mxnet as from_mxnet
    from armillary.frontend.onnx.entry import from_onnx as from_onnx
    from armillary.frontend.pytorch.entry import from_exported_program as from_exported_program
    from armillary.frontend.pytorch.entry import from_pytorch as from_pytorch
    from armillary.frontend.pytorch.entry import from_torch as from_torch
    from armillary.frontend.tensorflow.entry import from_tensorflow as from_tensorflow
    from armillary.frontend.tflite.entry import from_tflite as from_tflite

_REFUSED = ("caffe", "caffe2", "coreml", "oneflow", "paddle")
_TABLE = {
    "ChangeDatatype": "armillary.relay.transform.quantize.change_datatype:ChangeDatatype",
    "common": "armillary.frontend.common",
    "from_darknet": "armillary.frontend.darknet.entry:from_darknet",
    "from_onnx": "armillary.frontend.onnx.entry:from_onnx",
    "from_keras": "armillary.frontend.keras.entry:from_keras",
    "from_mxnet": "armillary.frontend.mxnet.entry:from_mxnet",
    "from_exported_program": "armillary.frontend.pytorch.entry:from_exported_program",
    "from_pytorch": "armillary.frontend.pytorch.entry:from_pytorch",
    "from_torch": "armillary.frontend.pytorch.entry:from_torch",
    "from_tensorflow": "armillary.frontend.tensorflow.entry:from_tensorflow",
    "from_tflite": "armillary.frontend.tflite.entry:from_tflite",
} | {f"from_{name}": f"armillary.frontend.refused:from_{name}" for name in _REFUSED}

__all__ = [
    "from_darknet",
    "from_exported_program",
    "from_keras",
    "from_mxnet",
    "from_onnx",
    "from_pytorch",
    "from_tensorflow",
    "from_tflite",
    "from_torch",
]
__getattr__, __dir__ = lazy_names(__name__, _TABLE)
