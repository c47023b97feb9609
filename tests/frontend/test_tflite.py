"""TFLite: single operators, in real numbers and in affine integers, against what the interpreter computed
(tflite/record.py); damaged files; the command line.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.base.aliases import Array
from armillary.cli.main import main
from armillary.errors import ArmillaryError, ModelError, UnsupportedError
from armillary.frontend.tflite.flatbuffer import Flat
from armillary.frontend.tflite.schema import read_model
from armillary.relay.evaluate import evaluate

STORED = np.load(Path(__file__).parent / "tflite" / "operators.npz")
MODELS = {key.removesuffix(":model"): STORED[key].tobytes() for key in STORED.files if key.endswith(":model")}


def of(name: str, word: str) -> list[Array]:
    count = sum(key.startswith(f"{name}:{word}") for key in STORED.files)
    return [STORED[f"{name}:{word}{k}"] for k in range(count)]


def results(module: Any, params: dict[str, Array], inputs: list[Array]) -> list[Array]:
    waiting = iter(inputs)
    values = [params[p.name_hint] if p.name_hint in params else next(waiting) for p in module["main"].params]
    found = evaluate(module["main"], values)
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("name", MODELS)
def test_operators_give_what_the_interpreter_computed(name: str) -> None:
    module, params = relay.frontend.from_tflite(MODELS[name])
    found, wanted = results(module, params, of(name, "in")), of(name, "out")
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(got, want)


def test_a_file_is_compiled_and_run(tmp_path: Path) -> None:
    model, package, inputs, outputs = (str(tmp_path / name) for name in ("m.tflite", "m.tar", "in.npz", "out.npz"))
    Path(model).write_bytes(MODELS["conv_relu-real"])
    (data,) = of("conv_relu-real", "in")
    module, _ = relay.frontend.from_tflite(model)
    np.savez(inputs, **{module["main"].params[0].name_hint: data})
    assert main(["compile", model, "--target", "llvm", "-o", package]) == 0
    assert main(["run", package, "-i", inputs, "-o", outputs]) == 0
    with np.load(outputs) as found:
        np.testing.assert_allclose(found["output_0"], of("conv_relu-real", "out")[0], rtol=1e-5, atol=1e-5)


def test_an_object_of_the_flatbuffers_package_is_read() -> None:
    class Place:
        Bytes = bytearray(MODELS["relu-real"])
        Pos = int.from_bytes(Bytes[:4], "little")

    class Model:
        _tab = Place

    module, params = relay.frontend.from_tflite(Model(), op_converter={"RELU": lambda node: node.x})
    (got,) = results(module, params, of("relu-real", "in"))
    np.testing.assert_array_equal(got, of("relu-real", "in")[0])


def test_what_is_wrong_is_told() -> None:
    from_tflite, model = relay.frontend.from_tflite, MODELS["relu-real"]
    name = from_tflite(model)[0]["main"].params[0].name_hint
    with pytest.raises(ModelError, match=r"there is no input 'data'(.|\n)*its inputs: "):
        from_tflite(model, shape_dict={"data": (1, 3)})
    with pytest.raises(ModelError, match="is of float32, not int8"):
        from_tflite(model, dtype_dict={name: "int8"})
    with pytest.raises(ModelError, match="takes a TFLite model, got int"):
        from_tflite(3)
    with pytest.raises(ModelError, match="it is no TFLite file"):
        from_tflite(b"PK" * 30)
    with pytest.raises(ModelError, match="cannot read the file"):
        from_tflite("nowhere.tflite")
    changed = bytearray(model)
    code = Flat(memoryview(model), "x").root().tables(1)[0]
    for field in (0, 3):
        if code.has(field):
            changed[code.place_of(field)] = 15  # LSH_PROJECTION
    with pytest.raises(UnsupportedError, match="not known: LSH_PROJECTION"):
        from_tflite(bytes(changed))


def test_a_shape_of_the_callers_takes_the_place_of_the_files() -> None:
    model = MODELS["conv-real"]
    name = relay.frontend.from_tflite(model)[0]["main"].params[0].name_hint
    module, params = relay.frontend.from_tflite(model, shape_dict={name: (2, 7, 6, 4)})
    data = np.concatenate([of("conv-real", "in")[0]] * 2)
    (got,) = results(module, params, [data])
    np.testing.assert_allclose(got[1:], of("conv-real", "out")[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["conv_relu-real", "slice-real", "concat-int8", "split_v-real"])
def test_damaged_files_end_in_our_errors(name: str) -> None:
    whole, random = MODELS[name], np.random.default_rng(len(name))
    for cut in random.integers(0, len(whole), 40):
        with contextlib.suppress(ArmillaryError):  # what lies behind the tables may be missing
            relay.frontend.from_tflite(whole[:cut])
    for _ in range(200):
        damaged = bytearray(whole)
        for at in random.integers(0, len(whole), 3):
            damaged[at] ^= 1 << int(random.integers(8))
        with contextlib.suppress(ArmillaryError):
            relay.frontend.from_tflite(bytes(damaged))


def test_places_outside_of_a_file_are_errors() -> None:
    flat = Flat(memoryview(bytes([4, 0, 0, 0, 255, 255, 255, 127])), "x.tflite")
    with pytest.raises(ModelError, match=r"2 bytes at -2147483643 are read, and it has 8"):
        flat.root().whole(0)
    assert [operator.name for operator in read_model(MODELS["relu-real"], "x").graphs[0].operators] == ["RELU"]
