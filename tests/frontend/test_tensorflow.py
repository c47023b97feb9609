"""TensorFlow: frozen graphs of single operators against what TensorFlow computed (tensorflow/record.py)."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest

from armillary import relay
from armillary.base.aliases import Array
from armillary.cli.main import main
from armillary.errors import ArmillaryError, ModelError, UnsupportedError
from armillary.relay.evaluate import evaluate

STORED = np.load(Path(__file__).parent / "tensorflow" / "operators.npz")
GRAPHS = {key.removesuffix(":graph"): STORED[key].tobytes() for key in STORED.files if key.endswith(":graph")}


def inputs_of(name: str) -> dict[str, Array]:
    return {key.split(":")[2]: STORED[key] for key in STORED.files if key.startswith(f"{name}:in")}


def outputs_of(name: str) -> list[Array]:
    return [STORED[key] for key in sorted(STORED.files) if key.startswith(f"{name}:out") and key[-1].isdecimal()]


@pytest.mark.parametrize("name", GRAPHS)
def test_operators_give_what_tensorflow_computed(name: str) -> None:
    names = [str(text) for text in STORED[f"{name}:outputs"]]
    module, params = relay.frontend.from_tensorflow(GRAPHS[name], outputs=names)
    values = {**params, **inputs_of(name)}
    found = evaluate(module["main"], [values[p.name_hint] for p in module["main"].params])
    rows, wanted = list(found) if isinstance(found, tuple) else [found], outputs_of(name)
    assert len(rows) == len(wanted)
    for got, want in zip(rows, wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_graph_is_compiled_and_run(tmp_path: Path) -> None:
    model, package, inputs, outputs = (str(tmp_path / name) for name in ("m.pb", "m.tar", "in.npz", "out.npz"))
    Path(model).write_bytes(GRAPHS["conv_relu"])
    np.savez(inputs, **inputs_of("conv_relu"))
    assert main(["compile", model, "--target", "llvm", "-o", package]) == 0
    assert main(["run", package, "-i", inputs, "-o", outputs]) == 0
    with np.load(outputs) as found:
        np.testing.assert_allclose(found["output_0"], outputs_of("conv_relu")[0], rtol=1e-5, atol=1e-5)


def test_an_object_and_other_layouts_and_shapes_are_taken() -> None:
    class GraphDef:
        def SerializeToString(self) -> bytes:  # noqa: N802  # TensorFlow's name
            return GRAPHS["conv_relu"]

    module, params = relay.frontend.from_tensorflow(GraphDef(), layout="NCHW", shape={"x": (2, 7, 6, 4)})
    values = {**params, "x": np.concatenate([inputs_of("conv_relu")["x"]] * 2)}
    found = evaluate(module["main"], [values[p.name_hint] for p in module["main"].params])
    np.testing.assert_allclose(found[1:], outputs_of("conv_relu")[0], rtol=1e-5, atol=1e-5)
    assert 'data_layout="NHWC"' not in str(module)


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    from_tensorflow, graph = relay.frontend.from_tensorflow, GRAPHS["relu"]
    with pytest.raises(ModelError, match=r"there is no input 'image'(.|\n)*its inputs: features"):
        from_tensorflow(graph, shape={"image": (1, 3)})
    with pytest.raises(ModelError, match="outputs: there is no node 'softmax'"):
        from_tensorflow(graph, outputs=["softmax"])
    with pytest.raises(UnsupportedError, match="not known: Rell"):
        from_tensorflow(graph.replace(b"\x04Relu", b"\x04Rell"))
    with pytest.raises(ModelError, match="it is no graph of TensorFlow"):
        from_tensorflow(b"PK" * 30)
    with pytest.raises(ModelError, match="takes a graph of TensorFlow, got int"):
        from_tensorflow(3)
    with pytest.raises(ModelError, match="cannot read the file"):
        from_tensorflow(tmp_path / "nowhere.pb")
    with pytest.raises(UnsupportedError, match="layout 'NCWH'"):
        from_tensorflow(graph, layout="NCWH")
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(ArmillaryError):
        from_tensorflow(tmp_path)


@pytest.mark.parametrize("name", ["conv_relu", "slice", "split_v", "layer_norm"])
def test_damaged_graphs_end_in_our_errors(name: str) -> None:
    whole, random = GRAPHS[name], np.random.default_rng(len(name))
    for turn in range(150):
        damaged = bytearray(whole)
        for at in random.integers(0, len(whole), 3):
            damaged[at] ^= 1 << int(random.integers(8))
        with contextlib.suppress(ArmillaryError):
            relay.frontend.from_tensorflow(bytes(damaged[: int(random.integers(len(whole)))] if turn % 3 else damaged))
