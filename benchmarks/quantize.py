"""Quantised ONNX files of the benchmarks' networks, as ONNX Runtime's quantiser writes them.

In: names of networks (benchmarks/networks.py) or ONNX files of floats. Out: `NAME_int8.onnx` beside the networks, with
pairs of QuantizeLinear and DequantizeLinear, uint8 data, int8 weights with a scale for each channel, normalisations
folded; ranges are those of a few seeded inputs. Invariant: nothing is downloaded. Timing: compare.py takes the files.

    python benchmarks/quantize.py mobilenet_v1 resnet18
    python benchmarks/compare.py build/benchmarks/*_int8.onnx --engines armillary,onnxruntime,openvino
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from models import add_arguments, models_of
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

INPUTS = 4  # that give the ranges of values


class Seeded(CalibrationDataReader):  # type: ignore[misc]  # the library has no types
    """Normal inputs of a file."""

    def __init__(self, path: Path) -> None:
        session, random = ort.InferenceSession(str(path)), np.random.default_rng(0)
        named = [(each.name, each.shape) for each in session.get_inputs()]
        self.rows = [{n: random.standard_normal(shape).astype("float32") for n, shape in named} for _ in range(INPUTS)]

    def get_next(self) -> dict[str, Any] | None:  # Any: arrays; None ends them, as the library wants
        """The next input."""
        return self.rows.pop() if self.rows else None


def quantized(path: Path, target: Path) -> Path:
    """The file in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.onnx"
        quant_pre_process(str(path), str(ready), skip_symbolic_shape=True)
        forms = {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(str(ready), str(target), Seeded(ready), per_channel=True, **forms)
    onnx.checker.check_model(str(target))
    return target


def main(words: Sequence[str] | None = None) -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_arguments(parser)
    args = parser.parse_args(words)
    for model in models_of(args):
        print(quantized(model.path, args.folder / f"{model.path.stem}_int8.onnx"), flush=True)


if __name__ == "__main__":
    main()
