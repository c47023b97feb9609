"""A Keras model to a Relay module, without Keras.

In: the path of an .h5 file that `model.save` wrote (Keras 2 or 3: Sequential or Functional), shapes of inputs. Out: the
module and its parameters, which are named as Keras names them. Invariant: data is channels last, as Keras has it,
unless `layout="NCHW"` asks for inputs and outputs with channels first; a layer that there is no rule for is an error
with its name. The rules: layers.py; the file: hdf5.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.base.files import MOST_MODEL_BYTES, read_regular
from armillary.base.json_types import JsonObject
from armillary.base.record import record
from armillary.errors import ModelError, Span, UnsupportedError
from armillary.frontend.keras.hdf5 import File, Group
from armillary.frontend.keras.layers import RULES, Layer
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function, Tuple, Var, var
from armillary.relay.infer import infer_type
from armillary.relay.op import get_op
from armillary.relay.transform.layout.use_layouts import use_layouts
from armillary.relay.types import TensorType

Config = JsonObject  # Any: JSON of Keras
_MODELS = ("Functional", "Model", "Sequential")


@record
class Tensor:
    """What a layer reads: the call of a layer (by number), and which of its results."""

    layer: str
    node: int
    index: int


@boundary("from_keras", arguments=True)
def from_keras(
    model: str | os.PathLike[str],
    shape: Mapping[str, Sequence[int]] | None = None,
    layout: str = "NCHW",
    *,
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, Array]]:
    """Import an .h5 file; `shape` by input name, where the model leaves a size open (the batch is 1 then)."""
    if not isinstance(model, str | os.PathLike):
        message = f"from_keras takes the path of an .h5 file, got {type(model).__name__}"
        raise UnsupportedError(message, hint="model.save('model.h5'), then from_keras('model.h5')")
    if layout not in ("NCHW", "NHWC"):
        raise UnsupportedError(f"from_keras: layout {layout!r}", hint="NCHW or NHWC")
    path = Path(model).expanduser()
    try:
        file = File(read_regular(path, MOST_MODEL_BYTES), str(path))
    except OSError as error:
        raise ModelError(f"cannot read the file: {error.strerror}", span=Span(str(path))) from None
    return _Importer(file, dict(shape or {}), layout, dtype).run()


def _chunks(group: Group, name: str) -> list[str]:
    """A list of names, which Keras cuts into pieces where it is long."""
    attributes = group.attributes
    if name in attributes:
        return list(attributes[name])
    found, number = [], 0
    while f"{name}{number}" in attributes:
        found += list(attributes[f"{name}{number}"])
        number += 1
    return found


class _Importer:
    def __init__(self, file: File, shape: dict[str, Sequence[int]], layout: str, dtype: str) -> None:
        self.file, self.shape, self.layout, self.dtype = file, shape, layout, dtype
        self.params: dict[str, Array] = {}
        self.inputs: list[Var] = []
        self.variables: list[Var] = []
        self.values: dict[tuple[str, int], Expr] = {}

    def run(self) -> tuple[IRModule, dict[str, Array]]:
        text = self.file.root.attributes.get("model_config")
        if not isinstance(text, str):
            raise self.file.wrong("it holds no model, only weights", "model.save writes both")
        model = json.loads(text)
        if model.get("class_name") not in _MODELS:
            raise self.wrong(f"the model is of the class {model.get('class_name')!r}", "Sequential or Functional")
        config = model["config"]
        layers: list[Config] = config if isinstance(config, list) else config["layers"]
        outputs = self.sequence(layers) if model["class_name"] == "Sequential" else self.graph(config, layers)
        outputs = [self.first(e) for e in outputs]
        body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
        module = IRModule.from_expr(Function((*self.inputs, *self.variables), body))
        if self.layout == "NCHW":
            module = use_layouts(module, desired_layouts={"nn.conv2d": ["NCHW", "default"]})
        return module, self.params

    def wrong(self, what: str, hint: str = "") -> ModelError:
        return ModelError(what, span=Span(self.file.name), hint=hint)

    def sequence(self, layers: list[Config]) -> list[Expr]:
        value: Expr | None = None
        for number, layer in enumerate(layers):
            config = layer["config"]
            if layer["class_name"] == "InputLayer" or (number == 0 and _declared(config) is not None):
                value = self.input(config)
            if layer["class_name"] != "InputLayer":
                if value is None:
                    raise self.wrong("the model does not say the shape of its input", "begin it with an Input layer")
                value = self.layer(layer, [value])
        return [] if value is None else [value]

    def graph(self, config: Config, layers: list[Config]) -> list[Expr]:
        waiting = [(layer, node, k) for layer in layers for k, node in enumerate(layer.get("inbound_nodes") or [None])]
        for layer in layers:
            if layer["class_name"] == "InputLayer":
                self.values[layer["config"]["name"], 0] = self.input(layer["config"])
        waiting = [item for item in waiting if item[0]["class_name"] != "InputLayer"]
        while waiting:  # a layer comes behind what it reads, but lists need not be in order
            later = [item for item in waiting if not self.call(*item)]
            if len(later) == len(waiting):
                raise self.wrong(f"layer {later[0][0]['config']['name']!r} reads what no layer gives")
            waiting = later
        return [self.values[t.layer, t.node] for t in _tensors(config["output_layers"])]

    def call(self, layer: Config, node: object, number: int) -> bool:  # JSON of Keras
        reads = _tensors(node)
        if any((t.layer, t.node) not in self.values for t in reads):
            return False
        if any(t.index for t in reads):
            raise self.wrong(f"layer {layer['config']['name']!r} reads a second result of a layer")
        self.values[layer["config"]["name"], number] = self.layer(layer, [self.values[t.layer, t.node] for t in reads])
        return True

    def input(self, config: Config) -> Expr:
        name, declared = str(config.get("name", "input")), _declared(config)
        assert declared is not None, "an input has a shape"
        sizes = [1 if size is None and k == 0 else size for k, size in enumerate(declared)]
        is_image, first = len(sizes) == 4, self.layout == "NCHW"
        sizes = [sizes[0], sizes[3], *sizes[1:3]] if is_image and first else sizes
        sizes = list(self.shape.get(name, sizes))
        if None in sizes:
            raise self.wrong(f"the input {name!r} has open sizes {sizes}", f'say them: shape={{"{name}": (1, …)}}')
        made = var(name, shape=tuple(sizes), dtype=self.dtype)
        self.inputs.append(made)
        value: Expr = get_op("transpose")(made, axes=(0, 2, 3, 1)) if is_image and first else made
        return self.typed(value)

    def first(self, value: Expr) -> Expr:
        """An output with channels first, where that was asked for."""
        is_image = len(value.checked_type.shape) == 4  # type: ignore[attr-defined]
        return get_op("transpose")(value, axes=(0, 3, 1, 2)) if is_image and self.layout == "NCHW" else value

    def typed(self, value: Expr) -> Expr:
        infer_type(value)
        if not isinstance(value.checked_type, TensorType):
            raise self.wrong("a layer gives something else than a tensor")
        return value

    def layer(self, layer: Config, inputs: list[Expr]) -> Expr:
        kind, config = layer["class_name"], layer["config"]
        name = str(config.get("name", ""))
        rule = RULES.get(kind)
        if rule is None:
            hint = "a model inside a model has to be laid flat" if kind in _MODELS else f"known: {', '.join(RULES)}"
            raise UnsupportedError(f"layer {name!r} of Keras is a {kind}, which is not known", hint=hint)
        return self.typed(rule(Layer(name, kind, config, inputs, self.weights(name), self.parameter)))

    def weights(self, name: str) -> list[tuple[str, Array]]:
        """The weights of a layer, in Keras's order."""
        groups = self.file.root.group("model_weights")
        if name not in groups.members():
            return []
        group = groups.group(name)
        return [(text, group.array(text)) for text in _chunks(group, "weight_names")]

    def parameter(self, name: str, value: Array) -> Expr:
        """A parameter of the module."""
        if name not in self.params:
            self.params[name] = np.ascontiguousarray(value)
            self.variables.append(var(name, shape=value.shape, dtype=str(value.dtype)))
        return next(v for v in self.variables if v.name_hint == name)


def _declared(config: Config) -> list[object] | None:  # sizes, or None
    found = config.get("batch_shape", config.get("batch_input_shape"))
    return None if found is None else list(found)


def _tensors(node: object) -> list[Tensor]:  # JSON of Keras
    """What a call reads: [name, node, index, …] of Keras 2, keras_history of Keras 3, nested as it likes."""
    if isinstance(node, Mapping):
        history = node.get("config", {}).get("keras_history") if "config" in node else None
        if history is not None:
            return [Tensor(str(history[0]), int(history[1]), int(history[2]))]
        return _tensors(node.get("args", []))
    if not isinstance(node, list | tuple):
        return []
    if len(node) >= 3 and isinstance(node[0], str) and all(isinstance(n, int) for n in node[1:3]):
        return [Tensor(node[0], node[1], node[2])]
    return [tensor for part in node for tensor in _tensors(part)]
