"""Records what TensorFlow computes: `python record.py` with tensorflow 2.21 writes operators.npz.

Out: for each case a frozen graph, its inputs and outputs. The cases are those of TFLite (../tflite/record.py).
"""

from __future__ import annotations

import importlib.util
import zlib
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

FOLDER = Path(__file__).parent


def main() -> None:
    spec = importlib.util.spec_from_file_location("tflite_record", FOLDER.parent / "tflite" / "record.py")
    assert spec is not None and spec.loader is not None
    cases = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cases)
    stored: dict[str, np.ndarray] = {}
    for name, (function, shapes) in (cases.SMOOTH | cases.REAL).items():
        concrete = tf.function(function).get_concrete_function(*(tf.TensorSpec(shape) for shape in shapes))
        frozen = convert_variables_to_constants_v2(concrete)
        random = np.random.default_rng(zlib.crc32(name.encode()))
        inputs = [random.uniform(-2, 2, shape).astype("float32") for shape in shapes]
        outputs = frozen(*map(tf.constant, inputs))
        stored[f"{name}:graph"] = np.frombuffer(frozen.graph.as_graph_def().SerializeToString(), np.uint8)
        stored[f"{name}:outputs"] = np.array([x.name for x in frozen.outputs])
        for k, (x, value) in enumerate(zip(frozen.inputs, inputs, strict=True)):
            stored[f"{name}:in{k}:{x.name}"] = value
        for k, value in enumerate(outputs if isinstance(outputs, list | tuple) else [outputs]):
            stored[f"{name}:out{k}"] = value.numpy()
    np.savez_compressed(FOLDER / "operators.npz", **stored)


if __name__ == "__main__":
    main()
