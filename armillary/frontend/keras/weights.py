"""Where a Keras model's weights are: in an .h5 file, in a `.keras` archive, or in a model in memory.

In: one of these, and the model's configuration. Out: a tree: by the name of a layer its weights as (name, value) in
Keras's order, or the tree of a model inside the model. Invariant: nothing of Keras is imported; archives are read
with limits. The order of a layer that holds layers (Bidirectional, MultiHeadAttention) is that of `layer.weights`.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol, Union

import numpy as np

from armillary.base.aliases import Array
from armillary.base.files import MOST_BYTES, MOST_MODEL_BYTES
from armillary.base.json_types import JsonObject
from armillary.errors import ModelError, Span
from armillary.frontend.keras.hdf5 import File, Group

Weights = list[tuple[str, Array]]
Tree = Mapping[str, Union[Weights, "Tree"]]
MODELS = ("Functional", "Model", "Sequential")
_INNER = (  # groups of an archive in a layer's group, in the order of `layer.weights`
    "vars",
    "cell",
    "forward_layer",
    "backward_layer",
    "layer",
    "query_dense",
    "key_dense",
    "value_dense",
    "output_dense",
)


class HasWeights(Protocol):
    """A layer of Keras in memory; a model has `layers`, too."""

    name: str

    def get_weights(self) -> Sequence[Array]: ...


def layers_of(model: JsonObject) -> list[JsonObject]:
    """The configurations of a model's layers."""
    config = model["config"]
    result: list[JsonObject] = config if isinstance(config, list) else config["layers"]
    return result


def name_of(layer: JsonObject) -> str:
    """The name of a layer by its configuration."""
    return str(layer["config"].get("name", layer.get("name", "")))


# --- .h5 --------------------------------------------------------------------------------------------------------------


def weights_of_file(file: File, model: JsonObject) -> Tree:
    """The weights of an .h5 file that holds a model."""
    groups = file.root.group("model_weights")
    members, tree = set(groups.members()), {}
    for layer in layers_of(model):
        name = name_of(layer)
        group = groups.group(name) if name in members else None
        flat = [] if group is None else [(text, group.array(text)) for text in _chunks(group, "weight_names")]
        tree[name] = _split(layer, flat) if layer["class_name"] in MODELS else flat
    return tree


def _chunks(group: Group, name: str) -> list[str]:
    """A list of names, which Keras cuts into pieces where it is long."""
    attributes = group.attributes
    if name in attributes:
        return list(attributes[name])
    result, number = [], 0
    while f"{name}{number}" in attributes:
        result += list(attributes[f"{name}{number}"])
        number += 1
    return result


def _split(model: JsonObject, flat: Weights) -> Tree:
    """The weights of a model inside a model, whose names have the names of its layers in their path."""
    tree: dict[str, Weights | Tree] = {}
    for layer in layers_of(model):
        name = name_of(layer)
        own = [row for row in flat if f"/{name}/" in f"/{row[0]}"]
        tree[name] = _split(layer, own) if layer["class_name"] in MODELS else own
    return tree


# --- .keras -----------------------------------------------------------------------------------------------------------


def read_archive(data: bytes, name: str) -> tuple[JsonObject, Tree]:
    """The configuration and the weights of a `.keras` archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            text = _member(archive, "config.json", MOST_BYTES)
            stored = _member(archive, "model.weights.h5", MOST_MODEL_BYTES)
        model = json.loads(text)
    except (zipfile.BadZipFile, KeyError, ValueError, NotImplementedError, RecursionError, EOFError, OSError) as error:
        hint = "model.save('net.keras') writes it"
        raise ModelError(f"it is no archive of Keras: {error!s:.120}", span=Span(name), hint=hint) from None
    if not isinstance(model, dict) or model.get("class_name") not in MODELS:
        return model if isinstance(model, dict) else {}, {}
    return model, _archived(File(stored, name).root, model)


def _member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    size = archive.getinfo(name).file_size
    if size > most or size > 1100 * archive.getinfo(name).compress_size + 4096:  # what deflate can do at most
        raise ValueError(f"{name} says that it has {size} bytes")
    with archive.open(name) as file:
        return file.read(size)


def _archived(group: Group, model: JsonObject) -> Tree:
    """Layers lie under the names of their classes, counted."""
    seen: Counter[str] = Counter()
    members = set(group.members())
    inside = group.group("layers") if "layers" in members else None
    tree: dict[str, Weights | Tree] = {}
    for layer in layers_of(model):
        kind = _snake(layer["class_name"])
        place = f"{kind}_{seen[kind]}" if seen[kind] else kind
        seen[kind] += 1
        member = inside.group(place) if inside is not None and place in inside.members() else None
        if layer["class_name"] in MODELS:
            tree[name_of(layer)] = {} if member is None else _archived(member, layer)
        else:
            tree[name_of(layer)] = [] if member is None else _inner(member, "")
    return tree


def _snake(name: str) -> str:
    """BatchNormalization  ->  batch_normalization"""
    parted = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub("([a-z])([A-Z])", r"\1_\2", parted).lower()


def _inner(group: Group, path: str) -> Weights:
    rows, members = [], set(group.members())
    for name in _INNER:
        if name == "vars" and name in members:
            values = group.group(name)
            rows += [(f"{path}{k}", values.array(k)) for k in sorted(values.members(), key=_number)]
        elif name in members:
            rows += _inner(group.group(name), f"{path}{name}/")
    return rows


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 1 << 30


# --- in memory --------------------------------------------------------------------------------------------------------


def weights_of_model(model: object) -> Tree:
    """The weights of a model in memory, of Keras 2 or 3."""
    tree: dict[str, Weights | Tree] = {}
    for layer in model.layers:  # type: ignore[attr-defined]  # whoever calls has looked
        if hasattr(layer, "layers") and type(layer).__name__ in MODELS:
            tree[layer.name] = weights_of_model(layer)
        else:
            names = [getattr(w, "path", getattr(w, "name", str(k))) for k, w in enumerate(layer.weights)]
            values = [np.asarray(value) for value in layer.get_weights()]
            tree[layer.name] = list(zip(names, values, strict=False))
    return tree
