"""ONNX's backend interface over the compiler: `prepare(model).run(inputs)`.

In: a ModelProto or NodeProto and numpy inputs. Out: numpy outputs, computed by compiled code ("armillary") or by the
operators' references ("reference"). Open dimensions stay named sizes: one compile for all shapes. Where the network has
no form over them (a warning says why), or the *values* of inputs shape it (a Reshape target, a TopK count), each
combination of shapes and values is compiled once. Invariant: what is not supported raises UnsupportedError; nothing is
approximated. The whole suite is run by score.py.
"""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import numpy as np
import onnx
from onnx import ModelProto, NodeProto
from onnx.backend.base import Backend, BackendRep, namedtupledict

from armillary.base.aliases import Array
from armillary.base.dtype import dtype_of
from armillary.errors import ArmillaryError, ConfigError, ExecutionError, UnsupportedError
from armillary.frontend import from_onnx
from armillary.frontend.folding.fold import NeedsValue
from armillary.frontend.onnx.inputs import part_names
from armillary.frontend.onnx.tensor import DTYPES, ELEM_TYPES
from armillary.frontend.onnx.walk import check_operators

Runner = Callable[[dict[str, Array]], list[Array]]
Value = Array | list[Array] | None  # a tensor, a sequence, an optional that holds nothing
Compiled = tuple[Runner, frozenset[str], Any]  # Any: main, whose attributes say what the outputs are
_MAX_COMPILED = 64


ENGINES = ("armillary", "reference")
_MODULES = {"armillary": "armillary.backend.compiled", "reference": "armillary.backend.reference"}


def _engine(name: str) -> Callable[..., Runner]:
    """The engine's constructor; loaded by name, so that the references need no code generator."""
    result: Callable[..., Runner] = importlib.import_module(_MODULES[name]).Engine
    return result


class PreparedModel(BackendRep):  # type: ignore[misc, unused-ignore]
    """A model ready to run: compiled once, or again for other shapes or shape-like values where it has to be."""

    def __init__(self, model: ModelProto, engine: str, options: dict[str, object]) -> None:
        self.model, self.engine, self.options = model, engine, options
        self.source: ModelProto | str = model  # or the file that it was read from, beside which large weights may lie
        held = {t.name for t in model.graph.initializer} | {t.values.name for t in model.graph.sparse_initializer}
        self.input_names = [value.name for value in model.graph.input if value.name not in held]
        self.output_names = [value.name for value in model.graph.output]
        self.static: set[str] = set()  # inputs whose values are compiled in
        self._compiled: dict[object, Compiled] = {}
        self._lock = threading.Lock()  # of all that compiling changes: one thread compiles, others wait
        self._is_open = engine == "armillary" and _has_open_dimensions(model, self.input_names)
        self._for_all: Compiled | None = None  # for every shape
        self.fixed: dict[str, int] = {}  # numbers for open dimensions
        self._outputs = namedtupledict("Outputs", self.output_names)
        self.kinds = {value.name: value.type.WhichOneof("value") or "tensor_type" for value in model.graph.input}

    def run(self, inputs: object, **_options: object) -> tuple[Any, ...]:  # Any: fields differ
        """Outputs for these inputs, as a named tuple in the graph's order."""
        arrays = self._named(inputs)
        with self._lock:
            runner, static, main = self._runner(arrays)
        outputs = runner(_flat({name: value for name, value in arrays.items() if name not in static}))
        result = self._outputs(*_grouped(outputs, main))
        return result

    def compile_open(self) -> bool:
        """Compile once for every shape, if inputs have open dimensions and the network has a form over them."""
        if self._is_open:
            self._is_open = False  # tried once
            try:
                module, _ = from_onnx(self.source, bounds={name: (n, n) for name, n in self.fixed.items()})
                self._for_all = _engine(self.engine)(module, **self.options), frozenset(), module["main"]
            except NeedsValue as error:
                self.static |= error.inputs
            except ArmillaryError as error:  # what is wrong with the model itself is said for its shapes, too
                what = f"the model is compiled for each shape that it meets: {error.message}"
                warnings.warn(what, RuntimeWarning, stacklevel=4)
        return self._for_all is not None

    def compile(self, shapes: dict[str, tuple[int, ...]]) -> None:
        """Compile for these shapes now, unless the values of some inputs are needed for it."""
        try:
            module, _ = from_onnx(self.source, shapes)
        except NeedsValue as error:
            self.static |= error.inputs
            return
        types = {value.name: DTYPES[value.type.tensor_type.elem_type] for value in self.model.graph.input}
        key = tuple((name, repr((*shape, types[name]))) for name, shape in shapes.items()), ()
        self._compiled[key] = _engine(self.engine)(module, **self.options), frozenset(), module["main"]

    def _named(self, inputs: Any) -> dict[str, Value]:
        if isinstance(inputs, dict):
            named = dict(inputs)
        else:
            values = [inputs] if isinstance(inputs, np.ndarray | np.generic) else list(inputs)
            named = dict(zip(self.input_names, values, strict=False))
            if len(values) != len(self.input_names):
                raise ExecutionError(f"the model takes {len(self.input_names)} inputs, got {len(values)}")
        if set(named) != set(self.input_names):
            raise ExecutionError(f"the model's inputs are {self.input_names}, got {sorted(named)}")
        return {name: self._value(name, value) for name, value in named.items()}

    def _value(self, name: str, value: object) -> Value:  # whatever a caller passes
        kind = self.kinds[name]
        if kind != "tensor_type" and value is None:
            return None
        if kind != "tensor_type" and isinstance(value, list) and not any(isinstance(v, list | str) for v in value):
            return [np.asarray(v) for v in value]
        if value is None or isinstance(value, list | tuple | dict | str):
            raise UnsupportedError(f"input {name!r} is {type(value).__name__}; only tensors are supported")
        return np.asarray(value)

    def _runner(self, arrays: dict[str, Value]) -> Compiled:
        if self.compile_open() and self._for_all is not None:
            return self._for_all
        shapes = tuple((name, repr(_shapes(value, True))) for name, value in arrays.items())
        while True:
            values = {name: value for name, value in arrays.items() if name in self.static and is_array(value)}
            key = (shapes, tuple((name, value.tobytes()) for name, value in sorted(values.items())))
            if key in self._compiled:
                return self._compiled[key]
            try:
                input_shapes = {name: _shapes(value, False) for name, value in arrays.items()}
                module, _ = from_onnx(self.source, input_shapes, static_inputs=values)
            except NeedsValue as error:
                if error.inputs <= self.static or not all(is_array(arrays.get(name)) for name in error.inputs):
                    raise
                self.static |= error.inputs
                continue
            if len(self._compiled) >= _MAX_COMPILED:
                self._compiled.clear()
            self._compiled[key] = _engine(self.engine)(module, **self.options), frozenset(self.static), module["main"]
            return self._compiled[key]


def _has_open_dimensions(model: ModelProto, names: Sequence[str]) -> bool:
    """Whether all inputs are tensors of known rank, and the size of some axis is open."""
    inputs = [value.type for value in model.graph.input if value.name in names]
    if not all(kind.HasField("tensor_type") and kind.tensor_type.HasField("shape") for kind in inputs):
        return False
    return any(not dim.HasField("dim_value") for kind in inputs for dim in kind.tensor_type.shape.dim)


def is_array(value: object) -> TypeGuard[Array]:
    """Whether an input is one tensor."""
    return isinstance(value, np.ndarray)


def _shapes(value: Value, with_dtype: bool) -> Any:  # Any: a shape, a list of shapes, or None
    if isinstance(value, list):
        return [_shapes(v, with_dtype) for v in value]
    return None if value is None else (*value.shape, value.dtype.name) if with_dtype else value.shape


def _flat(arrays: dict[str, Value]) -> dict[str, Array]:
    """Tensors by the names that the import gives them."""
    flat: dict[str, Array] = {}
    for name, value in arrays.items():
        if value is None:
            continue
        many = isinstance(value, list)
        parts = value if isinstance(value, list) else [value]
        flat.update(zip(part_names(name, len(parts), many), parts, strict=True))
    return flat


def _grouped(outputs: list[Array], main: Any) -> list[Any]:  # Any: a relay function
    """Outputs as the model declares them: the elements of a sequence in one list."""
    counts = main.get_attr("output_counts", None)
    if counts is None:
        return outputs
    rest = iter(outputs)
    return [next(rest) if count < 0 else [next(rest) for _ in range(count)] for count in counts]


class ArmillaryBackend(Backend):  # type: ignore[misc, unused-ignore]
    """The backend ONNX's own test-suite talks to."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the model imports, as far as can be said without inputs."""
        try:
            cls.prepare(model, device, **kwargs)
        except UnsupportedError:
            return False
        return True

    @classmethod
    def prepare(
        cls, model: ModelProto, device: str = "CPU", engine: str = "armillary", **options: object
    ) -> PreparedModel:
        """Check the model and get ready to compile it. Raises UnsupportedError where it cannot be supported at all."""
        if not cls.supports_device(device):
            raise UnsupportedError(f"device {device!r} is not supported", hint="use CPU")
        if engine not in ENGINES:
            raise ConfigError(f"unknown engine {engine!r}", hint=f"one of {', '.join(ENGINES)}")
        check_operators(model)
        return PreparedModel(model, engine, options)

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Prepare and run once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run one node as a model of its own; `opset_version=` picks the operator set."""
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        names = [name for name in node.input if name]
        arrays = [np.asarray(value) for value in (inputs.values() if isinstance(inputs, dict) else inputs)]
        graph = onnx.GraphProto(name=node.op_type, node=[node], input=_value_infos(names, arrays))
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
        imports = [onnx.helper.make_opsetid(node.domain, opset)]
        return cls.run_model(onnx.helper.make_model(graph, opset_imports=imports), arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Only the CPU."""
        return device.split(":")[0].upper() == "CPU"


def _value_infos(names: Sequence[str], arrays: Sequence[Array]) -> list[onnx.ValueInfoProto]:
    if len(names) != len(arrays):
        raise ExecutionError(f"the node takes {len(names)} inputs, got {len(arrays)}")
    make = onnx.helper.make_tensor_value_info
    return [make(n, ELEM_TYPES[str(dtype_of(a))], a.shape) for n, a in zip(names, arrays, strict=True)]


prepare = ArmillaryBackend.prepare
run_model = ArmillaryBackend.run_model
run_node = ArmillaryBackend.run_node
supports_device = ArmillaryBackend.supports_device
is_compatible = ArmillaryBackend.is_compatible
