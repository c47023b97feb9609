"""Parameters that are linked into a network's code: `Executor("graph", {"link-params": True})`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.relay.backend import Executor

X = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
W = np.linspace(-3, 3, 12, dtype="float32").reshape(3, 4)


def built(target: str = "llvm") -> object:
    call = relay.nn.dense(relay.var("x", shape=(2, 4)), relay.var("w", shape=(3, 4)))
    module = armillary.IRModule.from_expr(relay.Function(relay.analysis.free_vars(call), call))
    return relay.build(module, target, params={"w": W}, executor=Executor("graph", {"link-params": True}))


def ran(executor: graph_executor.GraphModule) -> np.ndarray:
    executor.set_input("x", X)
    executor.run()
    return executor.get_output(0).numpy()


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_nothing_is_left_to_be_set(target: str, tmp_path: Path) -> None:
    lib = built(target)
    assert not lib.params and len(lib.weights) > 0
    np.testing.assert_allclose(ran(graph_executor.GraphModule(lib["default"](armillary.cpu()))), X @ W.T, 1e-5)
    here = graph_executor.create(lib.graph_json, lib.lib, armillary.cpu())
    np.testing.assert_allclose(ran(here), X @ W.T, 1e-5)
    lib.lib.export_library(tmp_path / "code.so")  # without the graph: the parameters are part of the code
    code = armillary.runtime.load_module(tmp_path / "code.so")
    np.testing.assert_allclose(ran(graph_executor.create(lib.graph_json, code, armillary.cpu())), X @ W.T, 1e-5)
    linked = code.get_function("TVMSystemLibEntryPoint")()
    np.testing.assert_allclose(ran(graph_executor.create(lib.graph_json, linked, armillary.cpu())), X @ W.T, 1e-5)


@pytest.mark.parametrize("name", ["net.so", "net.tar"])
def test_an_exported_network_has_them(name: str, tmp_path: Path) -> None:
    built()["remove_params"]().export_library(tmp_path / name)
    loaded = armillary.runtime.load_module(tmp_path / name)
    np.testing.assert_allclose(ran(graph_executor.GraphModule(loaded["default"](armillary.cpu()))), X @ W.T, 1e-5)


def test_c_source_has_every_number_of_them() -> None:
    lib = built("c")
    text = lib.lib.get_source()
    sizes = [len(re.findall(r"0x[0-9a-f.]+p[+-]\d+f", part)) for part in text.split("static const float ")[1:]]
    assert sizes == [weight.size for weight in lib.weights.values()]
    assert "armillary_linked_params[]" in text


def test_a_target_may_ask_for_it() -> None:
    call = relay.nn.relu(relay.var("x", shape=(2, 4)) + relay.const(X))
    lib = relay.build(armillary.IRModule.from_expr(call), "llvm -link-params=1")
    assert not lib.params
    np.testing.assert_allclose(ran(graph_executor.GraphModule(lib["default"](armillary.cpu()))), np.maximum(2 * X, 0))
