"""Models of one node of com.microsoft, run by ONNX Runtime and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.frontend import from_onnx

MS = "com.microsoft"


def model(
    op: str, inputs: dict[str, np.ndarray | None], outputs: int, *, constants: tuple[str, ...] = (), **attrs: Any
) -> onnx.ModelProto:
    """One node; inputs that are None are omitted, those named in `constants` are initialisers."""
    present = {name: a for name, a in inputs.items() if a is not None}
    info = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in present.items()
        if n not in constants
    ]
    initial = [onnx.numpy_helper.from_array(present[n], n) for n in constants]
    names = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, [n if a is not None else "" for n, a in inputs.items()], names, domain=MS, **attrs)
    first = next(iter(present.values())).dtype
    results = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(first), None) for n in names]
    graph = helper.make_graph([node], "one", info, results, initial)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def by_onnxruntime(made: onnx.ModelProto, inputs: dict[str, np.ndarray | None]) -> list[np.ndarray]:
    """The outputs that ONNX Runtime gives."""
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    names = {i.name for i in session.get_inputs()}
    return list(session.run(None, {n: a for n, a in inputs.items() if n in names}))


def compiled(
    made: onnx.ModelProto, inputs: dict[str, np.ndarray | None], static: tuple[str, ...] = (), target: str = "llvm"
) -> list[np.ndarray]:
    """The outputs of the model compiled; inputs named in `static` are fixed when importing."""
    module, _ = from_onnx(made, static_inputs={n: inputs[n] for n in static})
    library = relay.build(module, target)
    executor = graph_executor.GraphModule(library["default"](armillary.cpu()))
    parameters = {p.name_hint for p in module["main"].params}
    for name, value in inputs.items():
        if name in parameters:
            executor.set_input(name, value)
    executor.run()
    return [executor.get_output(k).numpy() for k in range(executor.get_num_outputs())]
