"""Networks that PyTorch exported give, compiled at every level, what onnxruntime gives.

The files in models/ come from export.py, which needs torch; these tests do not. A name that ends in _dynamo comes from
the exporter built on torch.export, the others from the older one. Weights and inputs are drawn from seeds.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import e2e_models as models
import numpy as np
import onnx
import onnxruntime
import pytest

from armillary.frontend import from_onnx

FOLDER = Path(__file__).parent / "models"
NAMES = sorted(path.stem for path in FOLDER.glob("*.onnx"))
LEVELS = (0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), 3)
SEED = 321
TOLERANCE = 2e-6  # of the largest value; the largest error seen is 5.2e-7
Shapes = dict[str, tuple[int, ...]]


def bindings(model: Any) -> list[Shapes]:
    """The shapes to compile for: the model's own, or those its dynamic axes are to be bound to."""
    fixed = {i.name: tuple(d.dim_value for d in i.type.tensor_type.shape.dim) for i in model.graph.input}
    wanted = _notes(model).get("bind", {})
    count = max((len(shapes) for shapes in wanted.values()), default=1)
    return [fixed | {name: tuple(shapes[k]) for name, shapes in wanted.items()} for k in range(count)]


def _notes(model: Any) -> dict[str, Any]:
    notes: dict[str, Any] = json.loads(next(p.value for p in model.metadata_props if p.key == "inputs"))
    return notes


def draw(model: Any, shapes: Shapes) -> models.Arrays:
    """Inputs: normal floats, integers of the range the network can look up."""
    rng = np.random.default_rng(SEED)
    arrays = {}
    for item in model.graph.input:
        if item.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            arrays[item.name] = rng.standard_normal(shapes[item.name]).astype(np.float32)
        else:
            low, high = _notes(model)["ranges"][item.name]
            arrays[item.name] = rng.integers(low, high, shapes[item.name], endpoint=True)
    return arrays


@cache
def cases(name: str) -> list[tuple[Any, Shapes, models.Arrays, list[models.Array]]]:
    """(model, shapes, inputs, outputs of onnxruntime) for each binding of a network."""
    model = onnx.load(FOLDER / f"{name}.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = []
    for shapes in bindings(model):
        inputs = draw(model, shapes)
        found.append((model, shapes, inputs, [np.asarray(a) for a in session.run(None, inputs)]))
    return found


def outputs(library: Any, inputs: models.Arrays) -> list[models.Array]:
    """Every output of a fresh executor."""
    graph = library["default"]()
    for name, value in inputs.items():
        graph.set_input(name, value)
    graph.run()
    return [np.array(graph.get_output(k).numpy()) for k in range(graph.get_num_outputs())]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", NAMES)
def test_every_output_is_that_of_onnxruntime(name: str, level: int) -> None:
    for model, shapes, inputs, wanted in cases(name):
        module, params = from_onnx(model, shapes)
        got = outputs(models.compiled(module, params, level=level), inputs)
        assert len(got) == len(wanted)
        for k, (have, want) in enumerate(zip(got, wanted, strict=True)):
            assert (have.shape, have.dtype) == (want.shape, want.dtype)
            if want.dtype.kind != "f":
                np.testing.assert_array_equal(have, want)
                continue
            error = models.relative_error(have, want)
            print(f"{name} {shapes} output {k} level {level}: relative error {error:.1e} (seed {SEED})")
            assert error < TOLERANCE


def test_there_are_networks_of_every_kind_from_both_exporters() -> None:
    assert len(NAMES) >= 18
    assert sum(name.endswith("_dynamo") for name in NAMES) >= 5
    operators = {node.op_type for name in NAMES for node in onnx.load(FOLDER / f"{name}.onnx").graph.node}
    assert {"Conv", "ConvTranspose", "Resize", "LSTM", "GRU", "Gather", "GatherElements", "Where"} <= operators
    assert len(operators) > 50


def test_files_stay_small() -> None:
    sizes = [path.stat().st_size for path in FOLDER.glob("*.onnx")]
    assert max(sizes) < 150_000
    assert sum(sizes) < 1_000_000
