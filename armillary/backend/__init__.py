"""ONNX's backend interface over the compiler: `prepare(model).run(inputs)`.

In: a ModelProto or NodeProto and numpy inputs. Out: numpy outputs, computed by compiled code ("armillary") or by the
operators' references ("reference"). Shapes are taken from the inputs of the first run; inputs whose *values* shape the
network (a Reshape target, a TopK count) are found and fixed, and each combination is compiled once. Invariant: what is
not supported raises UnsupportedError; nothing is approximated. The whole suite is run by score.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto
from onnx.backend.base import Backend, BackendRep, namedtupledict

from armillary.dtype import dtype_of
from armillary.errors import ConfigError, ExecutionError, UnsupportedError
from armillary.frontend.onnx import check_operators, from_onnx
from armillary.frontend.onnx_fold import NeedsValue
from armillary.frontend.onnx_tensor import ELEM_TYPES

Array = np.ndarray[Any, Any]
Runner = Callable[[dict[str, Array]], list[Array]]
_MAX_COMPILED = 64


ENGINES = ("armillary", "reference")
_MODULES = {"armillary": "armillary.backend.compiled", "reference": "armillary.backend.reference"}


def _engine(name: str) -> Callable[..., Runner]:
    """The engine's constructor; loaded by name, so that the references need no code generator."""
    made: Callable[..., Runner] = importlib.import_module(_MODULES[name]).Engine
    return made


class PreparedModel(BackendRep):  # type: ignore[misc, unused-ignore]
    """A model ready to run: compiles on the first inputs, and again for other shapes or shape-like values."""

    def __init__(self, model: ModelProto, engine: str, options: dict[str, Any]) -> None:
        self.model, self.engine, self.options = model, engine, options
        held = {t.name for t in model.graph.initializer} | {t.values.name for t in model.graph.sparse_initializer}
        self.input_names = [value.name for value in model.graph.input if value.name not in held]
        self.output_names = [value.name for value in model.graph.output]
        self.static: set[str] = set()  # inputs whose values are compiled in
        self._compiled: dict[Any, tuple[Runner, frozenset[str]]] = {}

    def run(self, inputs: Any, **_options: Any) -> tuple[Any, ...]:  # Any: an array, a sequence or a mapping of them
        """Outputs for these inputs, as a named tuple in the graph's order."""
        arrays = self._named(inputs)
        runner, static = self._runner(arrays)
        outputs = runner({name: value for name, value in arrays.items() if name not in static})
        result: tuple[Any, ...] = namedtupledict("Outputs", self.output_names)(*outputs)
        return result

    def _named(self, inputs: Any) -> dict[str, Array]:
        if isinstance(inputs, dict):
            given = dict(inputs)
        else:
            values = [inputs] if isinstance(inputs, np.ndarray | np.generic) else list(inputs)
            given = dict(zip(self.input_names, values, strict=False))
            if len(values) != len(self.input_names):
                raise ExecutionError(f"the model takes {len(self.input_names)} inputs, got {len(values)}")
        if set(given) != set(self.input_names):
            raise ExecutionError(f"the model's inputs are {self.input_names}, got {sorted(given)}")
        strange = [n for n, v in given.items() if v is None or isinstance(v, list | tuple | dict | str)]
        if strange:
            kind = type(given[strange[0]]).__name__
            raise UnsupportedError(f"input {strange[0]!r} is {kind}; only tensors are supported")
        return {name: np.asarray(value) for name, value in given.items()}

    def _runner(self, arrays: dict[str, Array]) -> tuple[Runner, frozenset[str]]:
        shapes = tuple((name, value.shape, value.dtype.name) for name, value in arrays.items())
        while True:
            values = {name: arrays[name] for name in self.static}
            key = (shapes, tuple((name, value.tobytes()) for name, value in sorted(values.items())))
            if key in self._compiled:
                return self._compiled[key]
            try:
                module, _ = from_onnx(self.model, {n: v.shape for n, v in arrays.items()}, static_inputs=values)
            except NeedsValue as error:
                if error.inputs <= self.static:
                    raise
                self.static |= error.inputs
                continue
            if len(self._compiled) >= _MAX_COMPILED:
                self._compiled.clear()
            self._compiled[key] = _engine(self.engine)(module, **self.options), frozenset(self.static)
            return self._compiled[key]


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
        cls, model: ModelProto, device: str = "CPU", engine: str = "armillary", **options: Any
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
