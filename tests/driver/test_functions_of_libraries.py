"""The functions that a library with a graph has beside its kernels, by the names of Relay-era scripts."""

from __future__ import annotations

import json

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.contrib import graph_executor


@pytest.mark.parametrize("name", ["net.so", "net.tar"])
def test_a_loaded_library_gives_graph_parameters_and_executors(tmp_path, name: str) -> None:
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 3))
    weight = np.arange(12, dtype=np.float32).reshape(4, 3)
    library = relay.build(armillary.IRModule.from_expr(relay.nn.dense(x, w)), "llvm", params={"w": weight})
    library.export_library(str(tmp_path / name))
    loaded = armillary.runtime.load_module(str(tmp_path / name))
    assert json.loads(loaded["get_graph_json"]()) == json.loads(library.get_graph_json())
    params = loaded["get_graph_params"]()
    assert set(params) == set(library["get_graph_params"]()) and all(hasattr(p, "numpy") for p in params.values())
    for made in (loaded["default"](armillary.cpu()), loaded["debug_create"]("default", armillary.cpu())):
        executor = graph_executor.GraphModule(made)
        executor.set_input(key="x", value=np.ones((2, 3), np.float32), **params)
        executor.run()
        np.testing.assert_allclose(executor.get_output(0).numpy(), np.ones((2, 3)) @ weight.T, rtol=1e-6)


def test_a_debug_executor_is_made_as_old_scripts_do() -> None:
    from armillary.contrib.debugger import debug_executor
    from armillary.contrib.debugger.debug_executor import GraphModuleDebug

    assert debug_executor.GraphModuleDebug is GraphModuleDebug
    x = relay.var("x", shape=(2, 3))
    library = relay.build(armillary.IRModule.from_expr(relay.nn.relu(x)), "llvm")
    made = library["debug_create"]("default", armillary.cpu())
    debugged = GraphModuleDebug(made, [armillary.cpu()], library.get_graph_json(), None)
    values = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
    debugged.set_input("x", values)
    debugged.run()
    np.testing.assert_array_equal(debugged.get_output(0).numpy(), np.maximum(values, 0))
