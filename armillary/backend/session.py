"""A session with ONNX Runtime's interface: `InferenceSession(model).run(None, {"input": array})`.

In: an ONNX model (path, bytes or ModelProto) and numpy inputs by name. Out: numpy outputs in the order that was asked
for. Invariant: as with ONNX Runtime, inputs have the model's types and ranks, outputs belong to the caller, and any
number of threads may call `run` (one at a time computes). Models whose inputs have fixed shapes are compiled by the
constructor, others by the first run of new shapes. What runs a model: `backend/__init__.py`.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from onnx import ModelProto, ValueInfoProto

from armillary.backend import ArmillaryBackend, PreparedModel
from armillary.backend.labels import restored_outputs, unwarned
from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import ExecutionError, TypeMismatch, UnsupportedError
from armillary.frontend.onnx.load import load_model
from armillary.frontend.onnx.proto import ElementType
from armillary.frontend.onnx.tensor import elem_dtype
from armillary.runtime.threads import config_threadpool

PROVIDER = "CPUExecutionProvider"
_ONNX_NAMES = {"float32": "float", "float64": "double"}


@record(eq=False)
class NodeArg:
    """An input or output of a session: `shape` has numbers, names of symbolic dimensions, or None."""

    name: str
    type: str  # as ONNX Runtime writes it: "tensor(float)"
    shape: list[int | str | None]


class SessionOptions:
    """Options of a session, as scripts set them. What has an effect: `intra_op_num_threads`."""

    def __init__(self) -> None:
        self.intra_op_num_threads = 0  # of the process's pool; 0 leaves it as it is
        self.inter_op_num_threads = 0
        self.graph_optimization_level: object = None  # always all of them
        self.execution_mode: object = None
        self.log_severity_level = 2
        self.enable_profiling = False  # `armc profile` does it


class InferenceSession:
    """A model that is ready to run."""

    @boundary("InferenceSession", arguments=True)
    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str] | ModelProto,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Mapping[str, object]]] | None = None,
        provider_options: Sequence[Mapping[str, object]] | None = None,
        **_options: object,
    ) -> None:
        """Read and check the model. Raises ModelError if it is damaged, UnsupportedError naming unknown operators.

        `providers` other than the CPU's are ignored with a warning, as are further options of ONNX Runtime.
        """
        del provider_options
        self.set_providers(providers or [PROVIDER])
        if sess_options is not None and sess_options.intra_op_num_threads:
            config_threadpool(nthreads=sess_options.intra_op_num_threads)
        model = load_model(path_or_bytes).proto
        prepared = ArmillaryBackend.prepare(model)
        if not isinstance(model, ModelProto) or not isinstance(prepared, PreparedModel):
            raise UnsupportedError("a session runs ONNX models")
        self._prepared, self._lock = prepared, threading.Lock()
        if isinstance(path_or_bytes, str | os.PathLike):
            prepared.source = os.fspath(path_or_bytes)
        inputs = {value.name: value for value in model.graph.input}
        self._inputs = [_node_arg(inputs[name]) for name in prepared.input_names]
        self._outputs = [_node_arg(value) for value in model.graph.output]
        self._restored = restored_outputs(model)
        self._dtypes = {name: _dtype(inputs[name]) for name in prepared.input_names}
        shapes = {arg.name: tuple(d for d in arg.shape if isinstance(d, int)) for arg in self._inputs}
        if all(len(shapes[arg.name]) == len(arg.shape) and self._dtypes[arg.name] for arg in self._inputs):
            with unwarned():
                prepared.compile(shapes)

    def __repr__(self) -> str:
        return (
            f"InferenceSession({', '.join(a.name for a in self._inputs)} -> {', '.join(a.name for a in self._outputs)})"
        )

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that `run` wants."""
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs that `run` gives."""
        return list(self._outputs)

    def get_providers(self) -> list[str]:
        """Where it runs: this CPU."""
        return [PROVIDER]

    @boundary("set_providers", arguments=True, first=1)
    def set_providers(self, providers: Sequence[str | tuple[str, Mapping[str, object]]], *_options: object) -> None:
        """Accept a list of providers; those that are not this CPU are ignored with a warning."""
        names = [item if isinstance(item, str) else item[0] for item in providers]
        others = [name for name in names if name != PROVIDER]
        if others:
            warnings.warn(
                f"providers {', '.join(others)} are ignored: the model is compiled for this CPU", stacklevel=5
            )

    @boundary("InferenceSession.run", arguments=True)
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, object], run_options: object = None
    ) -> list[Array]:
        """The outputs of these names (None: all). Raises ExecutionError for wrong names, TypeMismatch for types."""
        del run_options
        if not isinstance(input_feed, Mapping):
            raise TypeMismatch(f"run wants a dict of inputs by name, got {type(input_feed).__name__}")
        known = [arg.name for arg in self._outputs]
        wanted = known if output_names is None else list(output_names)
        strangers = [name for name in wanted if name not in known]
        if strangers:
            raise ExecutionError(f"the model has no output {strangers[0]!r}", hint=f"outputs: {', '.join(known)}")
        feed = {name: self._checked(name, value) for name, value in input_feed.items()}
        with self._lock:
            outputs = dict(zip(known, self._computed(feed), strict=True))
        return [outputs[name] for name in wanted]

    def _computed(self, feed: dict[str, object]) -> list[Array]:
        if not self._restored:
            return list(self._prepared.run(feed))
        with unwarned():
            made = self._prepared.run(feed)
        found: list[Array] = []
        for arg, value in zip(self._outputs, made, strict=True):
            restore = self._restored.get(arg.name)
            found.append(value if restore is None else cast("Array", restore(value)))  # strings, or dictionaries
        return found

    def _checked(self, name: str, value: object) -> object:
        wanted = self._dtypes.get(name)
        if wanted is None or isinstance(value, list):  # an unknown name is told of by the model; a sequence
            return value
        array = np.asarray(value)
        if array.dtype != wanted.numpy:
            raise TypeMismatch(
                f"input {name!r} is {array.dtype}, wanted {wanted}", hint=f"array.astype({str(wanted)!r})"
            )
        self._check_shape(name, array.shape)
        return array

    def _check_shape(self, name: str, given: tuple[int, ...]) -> None:
        wanted = next(arg.shape for arg in self._inputs if arg.name == name)
        fits = len(wanted) == len(given) and all(w == g for w, g in zip(wanted, given) if isinstance(w, int))
        if wanted and not fits:
            raise TypeMismatch(f"input {name!r} has shape {list(given)}, wanted {wanted}")


def _dtype(value: ValueInfoProto) -> DType | None:
    if not value.type.HasField("tensor_type"):
        return None
    return elem_dtype(value.type.tensor_type.elem_type, f"input {value.name!r}")


def _node_arg(value: ValueInfoProto) -> NodeArg:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        return NodeArg(value.name, _other_type(value), [])
    if tensor.elem_type == ElementType.STRING:
        name = "string"
    else:
        name = str(elem_dtype(tensor.elem_type, value.name)) if tensor.elem_type else "undefined"
    dims = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim]
    return NodeArg(value.name, f"tensor({_ONNX_NAMES.get(name, name)})", dims)


def _other_type(value: ValueInfoProto) -> str:
    kind = value.type.WhichOneof("value")
    if kind == "sequence_type" and value.type.sequence_type.elem_type.HasField("map_type"):
        key = value.type.sequence_type.elem_type.map_type.key_type
        return f"seq(map({'string' if key == ElementType.STRING else 'int64'},tensor(float)))"
    return str(kind).replace("_type", "")


__all__ = ["InferenceSession", "NodeArg", "SessionOptions"]
