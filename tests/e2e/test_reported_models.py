"""Small models that once went wrong, as they were reported: what runs agrees with ONNX Runtime, the rest is refused.

In: `reported_models.txt`, a line for each model: its name and the file in base64 of its zlib stream. Out: the answers
at every level through a package, or an `ArmillaryError` within seconds.
"""

from __future__ import annotations

import base64
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from armillary.contrib.graph_executor import GraphModule
from armillary.driver.build import build
from armillary.errors import ArmillaryError, InternalError
from armillary.frontend import from_onnx
from armillary.runtime import load_module
from armillary.runtime.device import cpu
from armillary.transform import PassContext

MODELS = {
    name: zlib.decompress(base64.b64decode(text))
    for name, text in (
        line.split() for line in Path(__file__).with_name("reported_models.txt").read_text("ascii").splitlines()
    )
}
RUN = ["p0_same_shape", "p1_same_shape", *(name for name in MODELS if name.startswith("CONV_"))]
REFUSED = {
    "convpad": "2^31",
    "growloop_nest": "iterations",
    "laughs30": "nodes",
    "concatdoublec": "bytes",
    "resize": "budget",
    "e_long": "its data in the file",
    "nulname": "NUL",
    "rank33": "33",
}
SECONDS = 20.0  # of the processor; a model of this size may take a minute


def inputs_of(model: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    held = {tensor.name for tensor in model.graph.initializer}
    rng, found = np.random.default_rng(5), {}
    for info in model.graph.input:
        if info.name not in held:
            shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            found[info.name] = (rng.integers(-9, 9, shape)).astype(dtype)
    return found


@pytest.mark.parametrize("name", RUN)
def test_reported_answers_are_right_at_every_level(name: str, tmp_path: Path) -> None:
    model = onnx.ModelProto.FromString(MODELS[name])
    inputs = inputs_of(model)
    session = onnxruntime.InferenceSession(MODELS[name], providers=["CPUExecutionProvider"])
    wanted = session.run(None, inputs)
    for level in range(4):
        module, params = from_onnx(model, freeze_params=level % 2 == 0)
        with PassContext(opt_level=level):
            library = build(module, "llvm", params=params)
        library.export_library(tmp_path / f"{level}.so")
        executor = GraphModule(load_module(tmp_path / f"{level}.so")["default"](cpu(0)))
        executor.run(**inputs)
        for index, want in enumerate(wanted):
            np.testing.assert_allclose(executor.get_output(index).numpy(), want, rtol=1e-5, err_msg=f"level {level}")


@pytest.mark.parametrize("name", REFUSED)
def test_reported_bombs_are_refused_in_words(name: str) -> None:
    begin = time.process_time()
    with pytest.raises(ArmillaryError) as caught:
        build(from_onnx(MODELS[name])[0], "llvm")
    assert not isinstance(caught.value, InternalError) and REFUSED[name] in str(caught.value)
    assert time.process_time() - begin < SECONDS


def test_the_reported_long_lstm_compiles() -> None:
    begin = time.process_time()
    build(from_onnx(MODELS["rnn-LSTM-280"])[0], "llvm")
    assert time.process_time() - begin < SECONDS
