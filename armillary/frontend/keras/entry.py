"""A Keras model to a Relay module, without Keras.

In: the path of a `.keras` archive or an .h5 file that `model.save` wrote (Keras 2 or 3: Sequential or Functional), or
such a model in memory; shapes of inputs. Out: the module and its parameters, named by layer. Invariant: data is
channels last, as Keras has it, unless `layout="NCHW"` asks for images with channels first outside; a layer that there
is no rule for is an error with its name. The rules: layers.py, sequences.py; weights: weights.py; the file: hdf5.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.base.extent import AnyDim, Extent, size
from armillary.base.files import MOST_MODEL_BYTES, read_regular
from armillary.base.json_types import JsonObject
from armillary.base.names import identifier
from armillary.errors import ModelError, Span, TypeMismatch, UnsupportedError
from armillary.frontend.keras.calls import Call, calls_of, tensors_in
from armillary.frontend.keras.hdf5 import File
from armillary.frontend.keras.layers import Layer
from armillary.frontend.keras.rules import OPERATIONS, RULES, UNARY
from armillary.frontend.keras.weights import (
    MODELS,
    Tree,
    Weights,
    layers_of,
    name_of,
    read_archive,
    weights_of_file,
    weights_of_model,
)
from armillary.frontend.values import op
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function, Tuple, Var, const, var
from armillary.relay.infer import infer_type
from armillary.relay.transform.layout.use_layouts import use_layouts
from armillary.relay.types import TensorType

_ARCHIVE = b"PK\x03\x04"
_OPERATORS = ("keras.src.ops", "keras.ops")


@boundary("from_keras", arguments=True)
def from_keras(
    model: object,  # a path, or a model of Keras
    shape: Mapping[str, Sequence[object]] | None = None,
    layout: str = "NCHW",
    *,
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, Array]]:
    """Import a `.keras` archive, an .h5 file or a model in memory.

    `shape` has shapes by input name, where the model leaves a size open (the batch is 1 then); `relay.Any()` or a
    name in it (`("n", 224, 224, 3)`) keeps one open. `layout="NHWC"` leaves images as Keras has them. Raises
    UnsupportedError for a layer or an option that there is no rule for, ModelError for a damaged file.
    """
    if layout not in ("NCHW", "NHWC"):
        raise UnsupportedError(f"from_keras: layout {layout!r}", hint="NCHW or NHWC")
    name, config, weights = _model(model)
    if config.get("class_name") not in MODELS:
        hint = "Sequential or Functional; model.export('net.onnx', format='onnx') writes others"
        raise ModelError(f"the model is of the class {config.get('class_name')!r}", span=Span(name), hint=hint)
    try:
        return _Importer(name, dict(shape or {}), layout, dtype).run(config, weights)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        message = f"the configuration is not what Keras writes: {error!r:.120}"
        raise ModelError(message, span=Span(name)) from None


def _model(model: object) -> tuple[str, JsonObject, Tree]:
    if hasattr(model, "to_json") and hasattr(model, "layers"):
        return "the model", json.loads(model.to_json()), weights_of_model(model)
    if not isinstance(model, str | os.PathLike):
        message = f"from_keras takes a model of Keras or the path of its file, got {type(model).__name__}"
        raise UnsupportedError(message, hint="model.save('model.keras'), then from_keras('model.keras')")
    path = Path(model).expanduser()
    try:
        data = read_regular(path, MOST_MODEL_BYTES)
    except OSError as error:
        raise ModelError(f"cannot read the file: {error.strerror}", span=Span(str(path))) from None
    if data[:4] == _ARCHIVE:
        return str(path), *read_archive(data, str(path))
    file = File(data, str(path))
    text = file.root.attributes.get("model_config")
    if not isinstance(text, str):
        raise file.wrong("it holds no model, only weights", "model.save writes both")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        raise file.wrong("its configuration is no JSON") from None
    known = isinstance(config, dict) and config.get("class_name") in MODELS
    return str(path), config if isinstance(config, dict) else {}, weights_of_file(file, config) if known else {}


class _Importer:
    def __init__(self, name: str, shape: dict[str, Sequence[object]], layout: str, dtype: str) -> None:
        self.name, self.shape, self.layout, self.dtype = name, shape, layout, dtype
        self.params: dict[str, Array] = {}
        self.inputs: list[Var] = []
        self.variables: dict[str, Var] = {}

    def run(self, model: JsonObject, weights: Tree) -> tuple[IRModule, dict[str, Array]]:
        outputs = [self.first(e) for e in self.model(model, weights, None, "")]
        body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
        module = IRModule.from_expr(Function((*self.inputs, *self.variables.values()), body))
        others = sorted(set(self.shape) - {v.name_hint for v in self.inputs})
        if others:
            known = ", ".join(v.name_hint for v in self.inputs)
            raise self.wrong(f"shape: the model has no input {others[0]!r}", f"its inputs: {known}")
        if self.layout == "NCHW":
            module = use_layouts(module, desired_layouts={"nn.conv2d": ["NCHW", "default"]})
        return module, self.params

    def wrong(self, what: str, hint: str = "") -> ModelError:
        return ModelError(what, span=Span(self.name), hint=hint)

    def model(self, model: JsonObject, weights: Tree, inputs: list[Expr] | None, prefix: str) -> list[Expr]:
        """The results of a model; without `inputs` it is the outermost one, whose inputs are the module's."""
        if model["class_name"] == "Sequential":
            return self.sequence(layers_of(model), weights, inputs, prefix)
        return self.graph(model["config"], weights, inputs, prefix)

    def sequence(self, layers: list[JsonObject], weights: Tree, inputs: list[Expr] | None, prefix: str) -> list[Expr]:
        values = inputs
        for number, layer in enumerate(layers):
            config = layer["config"]
            if values is None and (layer["class_name"] == "InputLayer" or _declared(layer, number) is not None):
                values = [self.input(config, _declared(layer, number))]
            if layer["class_name"] != "InputLayer":
                if values is None:
                    raise self.wrong("the model does not say the shape of its input", "begin it with an Input layer")
                values = self.layer(layer, values, {}, weights, prefix)
        return values or []

    def graph(self, config: JsonObject, weights: Tree, inputs: list[Expr] | None, prefix: str) -> list[Expr]:
        layers: list[JsonObject] = config["layers"]
        values: dict[tuple[str, int], list[Expr]] = {}
        for place, tensor in enumerate(tensors_in(config["input_layers"])):
            layer = next(row for row in layers if name_of(row) == tensor.layer)
            sources = self.input(layer["config"], _declared(layer, 0)) if inputs is None else inputs[place]
            values[tensor.layer, 0] = [sources]
        waiting = [
            (layer, call)
            for layer in layers
            if layer["class_name"] != "InputLayer"
            for call in calls_of(layer.get("inbound_nodes"), name_of(layer))
        ]
        while waiting:  # a layer comes behind what it reads, but lists need not be in order
            later = [row for row in waiting if not self.call(*row, values, weights, prefix)]
            if len(later) == len(waiting):
                raise self.wrong(f"layer {name_of(later[0][0])!r} reads what no layer gives")
            waiting = later
        return [values[t.layer, t.node][t.index] for t in tensors_in(config["output_layers"])]

    def call(
        self,
        layer: JsonObject,
        call: Call,
        values: dict[tuple[str, int], list[Expr]],
        weights: Tree,
        prefix: str,
    ) -> bool:
        """Whether everything that a call reads is there: then it is made."""
        reads = [*call.reads, *(t for value in call.tensors.values() for t in value)]
        if any((t.layer, t.node) not in values for t in reads):
            return False
        inputs = [values[t.layer, t.node][t.index] for t in call.reads]
        if _is_operator(layer):
            values[name_of(layer), call.number] = [self.operator(layer, inputs, call)]
            return True
        keywords: dict[str, object] = dict(call.keywords)
        for name, value in call.tensors.items():
            keywords[name] = [values[t.layer, t.node][t.index] for t in value]
        values[name_of(layer), call.number] = self.layer(layer, inputs, keywords, weights, prefix)
        return True

    def operator(self, layer: JsonObject, inputs: list[Expr], call: Call) -> Expr:
        """A call of a function of keras.ops, whose class has the name of a layer at times."""
        kind, operands = layer["class_name"], list(inputs)
        for place, value in sorted(call.numbers.items()):
            operands.insert(place, const(np.array(value, np.float32)))
        name = OPERATIONS.get(kind)
        is_plain = name is not None and not call.tensors and not call.keywords
        if not is_plain or len(operands) != (1 if kind in UNARY else 2) or not inputs:
            hint = f"known, without options: {', '.join(sorted(OPERATIONS))}"
            raise UnsupportedError(f"{name_of(layer)!r} is keras.ops' {kind} of {len(operands)} operands", hint=hint)
        return self.typed(op(str(name), *operands))

    def input(self, config: JsonObject, declared: list[object] | None) -> Expr:
        name = str(config.get("name", "input"))
        if declared is None:
            raise self.wrong(f"the input {name!r} has no shape")
        sizes = [1 if n is None and k == 0 else n for k, n in enumerate(declared)]
        is_image = len(sizes) == 4 and self.layout == "NCHW"
        sizes = [sizes[0], sizes[3], *sizes[1:3]] if is_image else sizes
        sizes = [_size(n, name, k) for k, n in enumerate(self.shape.get(name, sizes))]
        if None in sizes:
            raise self.wrong(f"the input {name!r} has open sizes {sizes}", f'say them: shape={{"{name}": (1, …)}}')
        kind = config.get("dtype")
        kind = kind if isinstance(kind, str) and kind.startswith(("int", "uint", "bool")) else self.dtype
        result = var(name, shape=tuple(sizes), dtype=kind)
        self.inputs.append(result)
        return self.typed(op("transpose", result, axes=(0, 2, 3, 1)) if is_image else result)

    def first(self, value: Expr) -> Expr:
        """An output with channels first, where that was asked for."""
        is_image = len(value.checked_type.shape) == 4  # type: ignore[attr-defined]
        return op("transpose", value, axes=(0, 3, 1, 2)) if is_image and self.layout == "NCHW" else value

    def typed(self, value: Expr) -> Expr:
        infer_type(value)
        if not isinstance(value.checked_type, TensorType):
            raise self.wrong("a layer gives something else than a tensor")
        return value

    def layer(
        self, layer: JsonObject, inputs: list[Expr], keywords: Mapping[str, object], weights: Tree, prefix: str
    ) -> list[Expr]:
        kind, config, name = layer["class_name"], layer["config"], name_of(layer)
        own = weights.get(name, [])
        if kind in MODELS:
            inner = own if isinstance(own, Mapping) else {}
            return self.model(layer, inner, inputs, f"{prefix}{name}.")
        rule = RULES.get(kind)
        if rule is None:
            hint = f"known: {', '.join(sorted(RULES))}"
            raise UnsupportedError(f"layer {name!r} of Keras is a {kind}, which is not known", hint=hint)
        flat: Weights = own if isinstance(own, list) else []
        layer_row = Layer(f"{prefix}{name}", kind, config, inputs, flat, self.parameter, keywords)
        try:
            results = rule(layer_row)
        except (IndexError, ValueError, ArithmeticError) as error:
            raise TypeMismatch(f"layer {name!r}, a {kind}, does not fit what it reads: {error}") from None
        return [self.typed(value) for value in (results if isinstance(results, list) else [results])]

    def parameter(self, name: str, value: Array) -> Expr:
        """A parameter of the module."""
        if name not in self.params:
            self.params[name] = np.ascontiguousarray(value)
            self.variables[name] = var(name, shape=value.shape, dtype=str(value.dtype))
        return self.variables[name]


def _is_operator(layer: JsonObject) -> bool:
    """Whether a row is a function of keras.ops; .h5 files do not say its module, but layers have more than a name."""
    return str(layer.get("module", "")).startswith(_OPERATORS) or set(layer["config"]) == {"name"}


def _size(extent: object, name: str, axis: int) -> object:
    """A size of an input: a number, or the named one that stands for a text or for relay.Any()."""
    if isinstance(extent, str):
        return size(identifier(extent), 1)
    is_any = isinstance(extent, AnyDim) and not isinstance(extent, Extent)
    return size(identifier(f"{name}_{axis}"), 1) if is_any else extent


def _declared(layer: JsonObject, number: int) -> list[object] | None:  # sizes, or None
    """The shape that an input or the first layer of a sequence declares."""
    config = layer["config"]
    shape = config.get("batch_shape", config.get("batch_input_shape"))
    if shape is None and number == 0 and layer["class_name"] != "InputLayer":
        shape = (layer.get("build_config") or {}).get("input_shape")
    return None if shape is None else list(shape)
