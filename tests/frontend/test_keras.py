"""Keras models: small files that Keras 3.15 saved, with what it predicted beside them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest

from armillary import relay
from armillary.cli.main import main
from armillary.errors import ArmillaryError, ModelError
from armillary.frontend.keras.hdf5 import File
from armillary.relay.binding import bind_params_by_name
from armillary.relay.evaluate import evaluate

FOLDER = Path(__file__).parent / "keras"


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
