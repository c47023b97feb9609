"""Keras models: small files that Keras 3.15 saved, with what it predicted beside them."""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.base.aliases import Array
from armillary.cli.main import main
from armillary.errors import ArmillaryError, ModelError, UnsupportedError
from armillary.frontend.keras.hdf5 import File
from armillary.frontend.keras.weights import Tree, read_archive
from armillary.relay.binding import bind_params_by_name
from armillary.relay.evaluate import evaluate

FOLDER = Path(__file__).parent / "keras"
STORED = np.load(FOLDER / "layers.npz")
CASES = sorted({key.partition(":")[0] for key in STORED.files})


def case(name: str, word: str) -> dict[str, Array]:
    """The inputs ("in", by name) or outputs ("out") of a case of layers.npz."""
    keys = [key for key in STORED.files if key.startswith(f"{name}:{word}")]
    return {key.split(":")[-1]: STORED[key] for key in sorted(keys)}


def check(name: str, model: object) -> None:
    inputs = case(name, "in")
    shapes = {key: value.shape for key, value in inputs.items()}
    module, params = relay.frontend.from_keras(model, shapes, "NHWC")
    values = {**params, **inputs}
    found = evaluate(module["main"], [values[p.name_hint] for p in module["main"].params])
    wanted = list(case(name, "out").values())
    rows = list(found) if isinstance(found, tuple) else [found]
    assert len(rows) == len(wanted)
    for got, want in zip(rows, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


class InMemory:
    """What from_keras asks a model of Keras for, as far as it goes for one in an archive."""

    def __init__(self, tree: Tree, config: dict[str, Any], name: str = "") -> None:
        self.name, self.config = name, config
        layers = config["config"]["layers"]
        rows = [(layer, tree[layer["config"]["name"]]) for layer in layers]
        self.layers = [self.layer(layer, weights) for layer, weights in rows]

    def layer(self, config: dict[str, Any], weights: Any) -> object:
        name = config["config"]["name"]
        if isinstance(weights, dict):
            kind = type(config["class_name"], (InMemory,), {})
            made: object = kind(weights, config, name)
            return made
        variables = [type("Variable", (), {"path": path})() for path, _ in weights]
        values = [value for _, value in weights]
        return type("Layer", (), {"name": name, "weights": variables, "get_weights": lambda self: values})()

    def to_json(self) -> str:
        return json.dumps(self.config)


@pytest.mark.parametrize("suffix", ["keras", "h5"])
@pytest.mark.parametrize("name", CASES)
def test_layers_give_what_keras_predicted(name: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"m.{suffix}"
    path.write_bytes(STORED[f"{name}:{suffix}"].tobytes())
    check(name, path)


@pytest.mark.parametrize("name", ["nested", "both", "attention"])
def test_models_in_memory_are_read(name: str) -> None:
    config, tree = read_archive(STORED[f"{name}:keras"].tobytes(), "x")
    check(name, InMemory(tree, config))


def test_a_batch_stays_open_that_the_caller_leaves_open(tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    path.write_bytes(STORED["conv:keras"].tobytes())
    module, params = relay.frontend.from_keras(path, {"x": (relay.Any(), 7, 6, 4)}, "NHWC")
    data = np.concatenate([case("conv", "in")["x"]] * 2)
    found = relay.create_executor("vm", mod=module).evaluate()(data, **params).numpy()
    np.testing.assert_allclose(found[2:], case("conv", "out")["out0"], rtol=1e-4, atol=1e-5)


def test_archives_are_damaged_in_every_way(tmp_path: Path) -> None:
    path, whole, random = tmp_path / "m.keras", STORED["both:keras"].tobytes(), np.random.default_rng(3)
    for turn in range(150):
        damaged = bytearray(whole)
        for at in random.integers(4, len(whole), 3):
            damaged[at] = int(random.integers(256))
        path.write_bytes(bytes(damaged[: int(random.integers(4, len(whole)))] if turn % 3 == 0 else damaged))
        with contextlib.suppress(ArmillaryError):
            relay.frontend.from_keras(path)


def changed(name: str, old: str, new: str) -> bytes:
    """A stored archive with another configuration."""
    before, after = zipfile.ZipFile(io.BytesIO(STORED[f"{name}:keras"].tobytes())), io.BytesIO()
    with zipfile.ZipFile(after, "w") as archive:
        for row in before.namelist():
            data = before.read(row)
            archive.writestr(row, data.replace(old.encode(), new.encode()) if row == "config.json" else data)
    return after.getvalue()


def test_what_cannot_be_imported_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    for data, message in (
        (changed("embedding", '"mask_zero": false', '"mask_zero": true'), "a Embedding: mask_zero"),
        (changed("conv", '"class_name": "Conv2D"', '"class_name": "Lambda"'), "is a Lambda, which is not known"),
        (changed("lstm", '"activation": "tanh"', '"activation": "mine"'), "the activation 'mine'"),
        (changed("scaled", '"axis": [-1]', '"axis": [1]'), "the last axis is supported"),
        (changed("augmented", '"dtype": "float32"', '"dtype": "int32"'), "images of integers"),
        (changed("conv", '"class_name": "Functional"', '"class_name": "Mine"'), "the model is of the class 'Mine'"),
    ):
        path.write_bytes(data)
        with pytest.raises((UnsupportedError, ModelError), match=message):
            relay.frontend.from_keras(path)
    path.write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(ModelError, match=r"it is no archive of Keras(.|\n)*model.save"):
        relay.frontend.from_keras(path)
    with pytest.raises(UnsupportedError, match="takes a model of Keras or the path of its file, got int"):
        relay.frontend.from_keras(3)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("name", ["small_functional", "small_sequential"])
def test_models_give_what_keras_predicted(name: str, layout: str) -> None:
    module, params = relay.frontend.from_keras(FOLDER / f"{name}.h5", layout=layout)
    main_function = bind_params_by_name(module["main"], params)
    with np.load(FOLDER / f"{name}.npz") as stored:
        given, *names = stored.files
        image = stored[given] if layout == "NHWC" else stored[given].transpose(0, 3, 1, 2)
        found = evaluate(main_function, [image])
        for got, wanted in zip(found if isinstance(found, tuple) else [found], names, strict=True):
            last = got.transpose(0, 2, 3, 1) if got.ndim == 4 and layout == "NCHW" else got
            np.testing.assert_allclose(last, stored[wanted], rtol=1e-4, atol=1e-5)
    assert main_function.params[0].name_hint == given


def test_armc_compiles_and_runs_a_keras_file(tmp_path: Path) -> None:
    package, outputs = tmp_path / "m.tar", tmp_path / "out.npz"
    assert main(["compile", str(FOLDER / "small_sequential.h5"), "--target", "llvm", "-o", str(package)]) == 0
    stored = FOLDER / "small_sequential.npz"
    inputs = tmp_path / "in.npz"
    with np.load(stored) as arrays:
        np.savez(inputs, digit=arrays["digit"])
        assert main(["run", str(package), "-i", str(inputs), "-o", str(outputs)]) == 0
        with np.load(outputs) as found:
            np.testing.assert_allclose(found["output_0"], arrays["output_0"], rtol=1e-4, atol=1e-5)


def test_damaged_files_are_told(tmp_path: Path) -> None:
    whole = (FOLDER / "small_sequential.h5").read_bytes()
    for data, message in ((b"PK" + whole[2:], "it is no HDF5 file"), (whole[:700], "it is damaged")):
        path = tmp_path / "x.h5"
        path.write_bytes(data)
        with pytest.raises(ModelError, match=message):
            relay.frontend.from_keras(path)
    random = np.random.default_rng(1)
    for _ in range(200):  # whatever lies in the file, the error is ours
        damaged = bytearray(whole)
        for at in random.integers(8, 4000, 8):
            damaged[at] = int(random.integers(256))
        path.write_bytes(bytes(damaged))
        with contextlib.suppress(ArmillaryError):
            relay.frontend.from_keras(path)


def test_the_file_lists_what_keras_wrote() -> None:
    root = File((FOLDER / "small_sequential.h5").read_bytes(), "x").root
    assert set(root.members()) >= {"model_weights"}
    assert root.attributes["keras_version"].startswith("3.")
