"""ONNX models in sessions: `InferenceSession("net.onnx").run(None, {"input": array})`.

In: an ONNX model (path, bytes or ModelProto) and numpy inputs by name. Out: the model's outputs. Invariant: as in ONNX
Runtime, inputs have the model's types and ranks, and any number of threads may run a session at a time. A model is
compiled by the constructor, once for all sizes that it leaves open. The session itself:
`runtime/session.py`. What runs a model: `backend/__init__.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

from onnx import ModelProto, ValueInfoProto

from armillary.backend import ArmillaryBackend, PreparedModel
from armillary.backend.labels import restored_outputs, unwarned
from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.errors import UnsupportedError
from armillary.frontend.onnx.load import load_model
from armillary.frontend.onnx.proto import ElementType
from armillary.frontend.onnx.tensor import elem_dtype
from armillary.runtime.executor_pool import Profile
from armillary.runtime.session import ModelMetadata, NodeArg, SessionOptions, type_name


class OnnxEngine:
    """Runs an ONNX model, compiled for this CPU."""

    def __init__(self, source: object, options: SessionOptions) -> None:
        model = load_model(source).proto
        self.profile: Profile | None = None
        prepared = ArmillaryBackend.prepare(model, profile=lambda: self.profile)
        if not isinstance(model, ModelProto) or not isinstance(prepared, PreparedModel):
            raise UnsupportedError("a session runs ONNX models")
        self._prepared = prepared
        if isinstance(source, str | os.PathLike):
            prepared.source = os.fspath(source)
        inputs = {value.name: value for value in model.graph.input}
        self.inputs = [_node_arg(inputs[name], options.free_dimensions) for name in prepared.input_names]
        self.outputs = [_node_arg(value, options.free_dimensions) for value in model.graph.output]
        self.metadata = _metadata(model)
        self._restored = restored_outputs(model)
        self._dtypes = {name: _dtype(inputs[name]) for name in prepared.input_names}
        shapes = {arg.name: tuple(d for d in arg.shape if isinstance(d, int)) for arg in self.inputs}
        if all(len(shapes[arg.name]) == len(arg.shape) and self._dtypes[arg.name] for arg in self.inputs):
            with unwarned():
                prepared.compile(shapes)
        else:
            named = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim}
            prepared.fixed = {name: n for name, n in options.free_dimensions.items() if name in named}
            with unwarned():
                prepared.compile_open()

    def dtype(self, name: str) -> DType | None:
        """The type of an input's elements."""
        return self._dtypes.get(name)

    def run(self, feed: Mapping[str, object]) -> list[Array]:
        """All outputs, in the model's order; strings and dictionaries of classifiers, too."""
        if not self._restored:
            return list(self._prepared.run(feed))
        with unwarned():
            computed = self._prepared.run(feed)
        results: list[Array] = []
        for arg, value in zip(self.outputs, computed, strict=True):
            restore = self._restored.get(arg.name)
            results.append(value if restore is None else cast("Array", restore(value)))
        return results


def _metadata(model: ModelProto) -> ModelMetadata:
    custom = {entry.key: entry.value for entry in model.metadata_props}
    graph, version = model.graph, model.model_version
    names = (model.producer_name, graph.name, model.domain, model.doc_string, graph.doc_string)
    return ModelMetadata(*names, version, custom)


def _dtype(value: ValueInfoProto) -> DType | None:
    if not value.type.HasField("tensor_type"):
        return None
    return elem_dtype(value.type.tensor_type.elem_type, f"input {value.name!r}")


def _node_arg(value: ValueInfoProto, sizes: Mapping[str, int]) -> NodeArg:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        return NodeArg(value.name, _other_type(value), [])
    if tensor.elem_type == ElementType.STRING:
        name = "string"
    else:
        name = str(elem_dtype(tensor.elem_type, value.name)) if tensor.elem_type else "undefined"
    dims = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim]
    return NodeArg(value.name, type_name(name), [sizes.get(d, d) if isinstance(d, str) else d for d in dims])


def _other_type(value: ValueInfoProto) -> str:
    kind = value.type.WhichOneof("value")
    if kind == "sequence_type" and value.type.sequence_type.elem_type.HasField("map_type"):
        key = value.type.sequence_type.elem_type.map_type.key_type
        return f"seq(map({'string' if key == ElementType.STRING else 'int64'},tensor(float)))"
    return str(kind).replace("_type", "")
