"""MXNet: single operators and a network of Gluon, against what MXNet 1.9.1 computed (mxnet/record.py)."""

from __future__ import annotations

import importlib.util
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.base.aliases import Array
from armillary.cli.main import main
from armillary.errors import ArmillaryError, ModelError, UnsupportedError
from armillary.frontend.mxnet.params import read_params
from armillary.relay.evaluate import evaluate

FOLDER = Path(__file__).parent / "mxnet"
SYMBOL = FOLDER / "tiny-symbol.json"
SHAPE = {"data": (2, 3, 16, 16)}
STORED = np.load(FOLDER / "operators.npz")
CASES: dict[str, dict[str, Any]] = {row["name"]: row for row in json.loads(zlib.decompress(STORED["cases"].tobytes()))}


def draws(name: str, shapes: dict[str, list[int]]) -> dict[str, Array]:
    spec = importlib.util.spec_from_file_location("mxnet_record", FOLDER / "record.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Array] = module.draws(name, shapes)
    return found


class Symbol:
    """What a Symbol of MXNet is asked for."""

    def __init__(self, graph: object) -> None:
        self.graph = graph

    def tojson(self) -> str:
        return json.dumps(self.graph)


def results(module: Any, params: dict[str, Array], inputs: dict[str, Array]) -> list[Array]:
    values = params | inputs
    found = evaluate(module["main"], [values[p.name_hint] for p in module["main"].params])
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("name", CASES)
def test_operators_give_what_mxnet_computed(name: str) -> None:
    case = CASES[name]
    values = draws(name, case["shapes"])
    arguments = {key: value for key, value in values.items() if key not in ("x", "softmax_label", "out_label")}
    shape = {"x": case["shapes"]["x"]} if "x" in values else {}
    module, params = relay.frontend.from_mxnet(Symbol(case["symbol"]), shape, arg_params=arguments)
    found = results(module, params, values)
    assert len(found) == case["outputs"]
    for k, got in enumerate(found):
        wanted = STORED[f"{name}:{k}"]
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


def test_a_network_of_gluon_is_compiled_and_run(tmp_path: Path) -> None:
    for name in ("tiny-symbol.json", "tiny-0000.params"):
        shutil.copy(FOLDER / name, tmp_path)
    package, inputs, outputs = (str(tmp_path / name) for name in ("m.tar", "in.npz", "out.npz"))
    with np.load(FOLDER / "tiny.npz") as stored:
        np.savez(inputs, data=stored["data"])
        wanted = stored["result"]
    model = str(tmp_path / "tiny-symbol.json")
    assert main(["compile", model, "--input-shapes", "data:[2,3,16,16]", "--target", "llvm", "-o", package]) == 0
    assert main(["run", package, "-i", inputs, "-o", outputs]) == 0
    with np.load(outputs) as found:
        np.testing.assert_allclose(found["output_0"], wanted, rtol=1e-4, atol=1e-5)


def test_a_softmax_is_put_behind_a_network_as_old_scripts_do() -> None:
    mod, params = relay.frontend.from_mxnet(SYMBOL, shape=SHAPE, dtype="float32")
    net = mod["main"]
    net = relay.Function(net.params, relay.nn.softmax(net.body), None, net.type_params, net.attrs)
    with np.load(FOLDER / "tiny.npz") as stored:
        (found,) = results({"main": net}, params, {"data": stored["data"]})
        wanted = np.exp(stored["result"])
    np.testing.assert_allclose(found, wanted / wanted.sum(-1, keepdims=True), rtol=1e-4)


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    from_mxnet = relay.frontend.from_mxnet
    with pytest.raises(ModelError, match="the shape of 'data' is not known"):
        from_mxnet(SYMBOL)
    with pytest.raises(ModelError, match="has no input 'image'"):
        from_mxnet(SYMBOL, shape={"image": (1, 3, 16, 16)})
    with pytest.raises(ModelError, match="takes a network of MXNet, got int"):
        from_mxnet(3)
    with pytest.raises(ModelError, match="no symbol of MXNet"):
        from_mxnet(FOLDER / "tiny-0000.params")
    graph = json.loads(SYMBOL.read_text("utf-8"))
    for node in graph["nodes"]:
        node["op"] = node["op"].replace("Pooling", "Plooing").replace("FullyConnected", "Foo")
    with pytest.raises(UnsupportedError, match="not known: Foo, Plooing"):
        from_mxnet(Symbol(graph), SHAPE)
    lone = tmp_path / "net-symbol.json"
    shutil.copy(SYMBOL, lone)
    with pytest.raises(ModelError, match=r"a parameter is looked for in the \.params file"):
        from_mxnet(lone, SHAPE)


def test_damaged_files_end_in_our_errors() -> None:
    whole, text = (FOLDER / "tiny-0000.params").read_bytes(), SYMBOL.read_text("utf-8")
    random = np.random.default_rng(5)
    with pytest.raises(ModelError, match="ends early"):
        read_params(whole[:-3], "x.params")
    for _ in range(200):
        damaged = bytearray(whole)
        for at in random.integers(0, 200, 3):
            damaged[at] = int(random.integers(256))
        try:
            read_params(bytes(damaged), "x.params")
        except ArmillaryError:
            continue
    graph = json.loads(text)
    for node in graph["nodes"]:
        for key, value in (node.get("attrs") or {}).items():
            node["attrs"][key], kept = "(1, what", value
            with pytest.raises(ArmillaryError):
                relay.frontend.from_mxnet(Symbol(graph), SHAPE)
            node["attrs"][key] = kept
