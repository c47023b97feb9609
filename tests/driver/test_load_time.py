"""Weights for Winograd, and constants too large to fold, are made when a network is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.driver.library import GraphLibrary
from armillary.errors import ExecutionError
from armillary.runtime import load_module

RNG = np.random.default_rng(20241)
X = RNG.standard_normal((1, 32, 16, 16)).astype(np.float32)
W, OTHER = ((RNG.standard_normal((32, 32, 3, 3)) / 17).astype(np.float32) for _ in range(2))


def network(weight: np.ndarray, tile: int = 4) -> GraphLibrary:
    x = relay.var("x", shape=X.shape)
    body = relay.nn.conv2d(x, relay.const(weight), padding=(1, 1), channels=32, kernel_size=(3, 3))
    module = armillary.IRModule.from_expr(relay.Function([x], body))
    with armillary.transform.PassContext(opt_level=3, config={"relay.WinogradConv2D.max_tile": tile}):
        made: GraphLibrary = relay.build(module, target="llvm")
    return made


def early(library: GraphLibrary) -> list[str]:
    """Names of the functions that run at load time."""
    nodes = json.loads(library.graph_json)["nodes"]
    return [n["attrs"]["func_name"] for n in nodes if n.get("attrs", {}).get("load_time") == "1"]


def run(executor: armillary.runtime.GraphExecutor) -> np.ndarray:
    executor.set_input("x", X)
    executor.run()
    return executor.get_output(0).numpy()


@pytest.fixture(scope="module")
def library() -> GraphLibrary:
    made = network(W)
    assert any("winograd_weight_transform" in name for name in early(made)), "the network must use Winograd"
    return made


def test_expanded_weights_stay_out_of_the_package(library: GraphLibrary, tmp_path: Path) -> None:
    assert sum(value.nbytes for value in library.get_params().values()) == W.nbytes
    library.export_library(tmp_path / "x.tar")
    direct = run(network(W, tile=0)["default"]())
    for executor in (library["default"](), load_module(tmp_path / "x.tar")["default"]()):
        np.testing.assert_allclose(run(executor), direct, atol=2e-5 * np.abs(direct).max())


def test_new_weights_are_expanded_before_the_next_run(library: GraphLibrary) -> None:
    executor = library["default"]()
    first = run(executor)
    (name,) = library.get_params()
    other = network(OTHER)
    executor.set_input(name, other.get_params()[name])
    assert run(executor).tobytes() == run(other["default"]()).tobytes() != first.tobytes()
    np.testing.assert_array_equal(executor.get_input(name).numpy(), other.get_params()[name])


def test_get_input_after_the_run_reads_the_library(library: GraphLibrary) -> None:
    executor = library["default"]()
    run(executor)
    (name, value) = next(iter(library.get_params().items()))
    np.testing.assert_array_equal(executor.get_input(name).numpy(), value)


def test_weights_that_went_with_the_library_are_an_error() -> None:
    made = network(OTHER)
    executor, (name,) = made["default"](), made.get_params()
    before = run(executor)
    del made
    assert run(executor).tobytes() == before.tobytes()
    with pytest.raises(ExecutionError, match="went with the library"):
        executor.get_input(name)


@pytest.mark.parametrize("level", [0, 3])
def test_constants_that_are_not_folded_are_computed_once(level: int) -> None:
    x = relay.var("x", shape=(4, 24))
    weight = relay.transpose(relay.const(RNG.standard_normal((24, 40)).astype(np.float32)), axes=[1, 0])
    module = armillary.IRModule.from_expr(relay.Function([x], relay.nn.dense(x, weight)))
    data = RNG.standard_normal((4, 24)).astype(np.float32)
    with armillary.transform.PassContext(opt_level=level, disabled_pass=["FoldConstant"]):
        made = relay.build(module, target="llvm")
    assert early(made), "the move of the weight depends on a constant alone"
    executor = made["default"]()
    for _ in range(2):
        executor.set_input("x", data)
        executor.run()
        np.testing.assert_allclose(executor.get_output(0).numpy(), data @ weight.args[0].data, rtol=1e-4, atol=1e-5)


def test_constant_expressions_in_a_branch_are_left_to_the_branch() -> None:
    x, flag = relay.var("x", shape=(3,)), relay.var("flag", shape=(), dtype="bool")
    body = relay.If(flag, relay.add(x, relay.exp(relay.const(np.ones(3, np.float32)))), x)
    module = armillary.IRModule.from_expr(relay.Function([x, flag], body))
    with armillary.transform.PassContext(opt_level=0, disabled_pass=["FoldConstant"]):
        executor = relay.build(module, target="llvm")["default"]()
    for value in (True, False):
        executor.set_input("x", np.zeros(3, np.float32))
        executor.set_input("flag", np.array(value))
        executor.run()
        np.testing.assert_allclose(executor.get_output(0).numpy(), np.full(3, np.e if value else 0), rtol=1e-6)
