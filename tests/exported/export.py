"""Write the networks of networks.py as ONNX files, by both exporters of PyTorch.

In: torch (and onnxscript for the exporter built on torch.export). Out: models/<name>.onnx and
models/<name>_dynamo.onnx, with batch statistics as if trained. What the tests must know about inputs - the range of
integers, the sizes that dynamic axes are bound to - is in the model's metadata. Invariant: the same versions of torch
give the same files.

    python tests/exported/export.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import onnx
import torch
from networks import DYNAMO, NETWORKS, Case
from torch import nn

FOLDER = Path(__file__).resolve().parent / "models"
SEED, LARGEST = 11, 150_000
OPSET = 17


def main() -> None:
    """Export every network."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in NETWORKS.items():
        write(f"{name}.onnx", seeded(make), dynamo=False)
        if name in DYNAMO:
            write(f"{name}_dynamo.onnx", seeded(make), dynamo=True)


def seeded(make: Any) -> Case:
    """A case with weights from the seed and statistics that are not 0 and 1."""
    torch.manual_seed(SEED)
    module, inputs, options = make()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d | nn.BatchNorm3d):
            for tensor, (low, high) in (
                (part.running_mean, (-0.2, 0.2)),
                (part.running_var, (0.5, 1.5)),
                (part.weight, (0.5, 1.5)),
                (part.bias, (-0.2, 0.2)),
            ):
                tensor.data.uniform_(low, high)
    return module.eval(), inputs, options


def write(file: str, case: Case, dynamo: bool) -> None:
    """Export one network and note what its inputs need."""
    module, inputs, options = case
    settings: dict[str, Any] = {"dynamo": dynamo, "input_names": options.get("input_names", ["x"])}
    if dynamo:
        axes = options.get("dynamic_axes", {})
        settings |= {"external_data": False, "verbose": False}
        if axes:
            shapes = [dict.fromkeys(axes.get(n, {}), torch.export.Dim.AUTO) for n in settings["input_names"]]
            settings["dynamic_shapes"] = tuple(shapes)
    else:
        settings |= {"opset_version": OPSET, "dynamic_axes": options.get("dynamic_axes")}
    path = FOLDER / file
    torch.onnx.export(module, inputs, str(path), **settings)
    model = onnx.load(path)
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    notes = {key: options[key] for key in ("ranges", "bind") if key in options}
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, {"inputs": json.dumps(notes)})
    onnx.checker.check_model(model)
    onnx.save(model, path)
    size = path.stat().st_size
    print(f"{file}: {size} bytes, {len(model.graph.node)} nodes")
    if size > LARGEST:
        sys.exit(f"{file} is larger than {LARGEST} bytes")


if __name__ == "__main__":
    main()
