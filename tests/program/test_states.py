"""States: inputs whose next value an output is, kept from run to run, in every runtime and in the program's text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay, rpc
from armillary.artifact import GraphSpec
from armillary.contrib import graph_executor
from armillary.errors import ArtifactError, ExecutionError, TypeMismatch, UnsupportedError
from armillary.program.from_graph import program_of
from armillary.program.interpret import interpret
from armillary.program.text import parse_program, print_program
from armillary.program.verify import verify

W = (np.random.default_rng(2).standard_normal((4, 4)) * 0.5).astype(np.float32)
X = np.random.default_rng(3).standard_normal((6, 1, 4)).astype(np.float32)


def _recurrent() -> armillary.IRModule:
    """h' = tanh(x + W h); the last two inputs are kept in a line: second' = first, first' = x."""
    x, h = relay.var("x", shape=(1, 4)), relay.var("h", shape=(1, 4))
    first, second = relay.var("first", shape=(1, 4)), relay.var("second", shape=(1, 4))
    new = relay.tanh(x + relay.nn.dense(h, relay.const(W)))
    y = new + first - second + h * relay.const(0.5)
    return armillary.IRModule.from_expr(relay.Function([x, h, first, second], relay.Tuple([y, new, x, first])))


STATES = {"h": 1, "first": 2, "second": 3}


def _expected(count: int) -> list[Any]:
    h = first = second = np.zeros((1, 4), np.float32)
    results = []
    for x in X[:count]:
        new = np.tanh(x + h @ W.T)
        results.append(new + first - second + h * 0.5)
        h, second, first = new, first, x
    return [*results, h, first, second]


def _library(target: str = "llvm") -> Any:
    return relay.build(_recurrent(), target, states=STATES)


@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_states_survive_runs_and_are_read_set_and_reset(target: str) -> None:
    device = armillary.cpu() if target == "llvm" else armillary.opencl()
    if not device.exist:
        pytest.skip("no OpenCL device")
    network = graph_executor.GraphModule(_library(target)["default"](device))
    assert network.module.free_inputs == ("x",) and network.get_num_outputs() == 1
    *results, h, first, second = _expected(6)
    for again in range(2):
        for x, expected in zip(X, results):
            np.testing.assert_allclose(network(x=x)[0], expected, rtol=1e-5, atol=1e-6)
        for name, value in (("h", h), ("first", first), ("second", second)):
            np.testing.assert_allclose(network.get_state(name).numpy(), value, rtol=1e-5, atol=1e-6)
        network.reset_states()
        assert not network.get_state("h").numpy().any(), again
    network.set_input("h", np.ones((1, 4), np.float32))
    np.testing.assert_allclose(network(x=X[0])[0], np.tanh(X[0] + W.sum(1)) + 0.5, rtol=1e-5)


def test_two_states_may_change_places() -> None:
    a, b = relay.var("a", shape=(3,)), relay.var("b", shape=(3,))
    module = armillary.IRModule.from_expr(relay.Function([a, b], relay.Tuple([a + b, b, relay.reshape(a, (3,))])))
    network = graph_executor.GraphModule(
        relay.build(module, "llvm", states={"a": 1, "b": 2})["default"](armillary.cpu())
    )
    network.set_input("a", np.array([1, 2, 3], np.float32))
    network.run()
    np.testing.assert_array_equal(network.get_state("b").numpy(), [1, 2, 3])
    np.testing.assert_array_equal(network.get_state("a").numpy(), [0, 0, 0])


def test_a_state_that_becomes_a_constant_is_written_in_every_run() -> None:
    a = relay.var("a", shape=(2,))
    two = relay.add(relay.const(np.ones(2, np.float32)), relay.const(np.ones(2, np.float32)))
    module = armillary.IRModule.from_expr(relay.Function([a], relay.Tuple([a * relay.const(2.0), two])))
    network = graph_executor.GraphModule(relay.build(module, "llvm", states={"a": 1})["default"](armillary.cpu()))
    np.testing.assert_array_equal([network()[0], network()[0]], [[0, 0], [4, 4]])


def test_the_program_says_what_is_written_and_the_interpreter_agrees() -> None:
    library = _library()
    program = program_of(GraphSpec.from_json(library.get_graph_json()), library.get_params())
    text = print_program(program)
    assert "%h: float32[1, 4] state" in text and text.count("write ") == 3
    assert parse_program(text) == program
    verify(program)
    lines = text.splitlines()
    write = next(n for n, line in enumerate(lines) if line.strip().startswith("write") and "-> %h as" in line)
    call = next(n for n, line in enumerate(lines) if "%h" in line and "call" in line)
    lines.insert(call, lines.pop(write))
    with pytest.raises(ArtifactError, match=r"reads %|uses the state %h"):
        verify(parse_program("\n".join(lines)))

    def kernel(_sizes: Any, *arrays: Any) -> list[Any]:
        return [sum(arrays)]

    small = parse_program(
        "program () { %x: float32[2] input slot 0 %s: float32[2] state slot 1 %t: float32[2] output slot 2 "
        "call add(%x, %s) -> %t write %t -> %s return %t }"
    )
    verify(small)
    states: dict[str, Any] = {}
    for total in (1.0, 2.0, 3.0):
        (got,) = interpret(small, {"x": np.ones(2, np.float32)}, {"add": kernel}, states)
        np.testing.assert_array_equal(got, [total, total])
    np.testing.assert_array_equal(states["s"], [3, 3])


def test_states_live_in_packages_over_rpc_and_in_c(tmp_path: Path) -> None:
    package = tmp_path / "net.tar"
    _library().export_library(package)
    loaded = graph_executor.GraphModule(armillary.runtime.load_module(str(package))["default"](armillary.cpu()))
    loaded.run(x=X[0])
    loaded.run(x=X[1])
    results = _expected(2)
    np.testing.assert_allclose(loaded.get_output(0).numpy(), results[1], rtol=1e-5, atol=1e-6)
    session = rpc.LocalSession()
    session.upload(str(package))
    remote = graph_executor.GraphModule(session.load_module("net.tar")["default"](session.cpu()))
    for x, expected in zip(X[:2], results):
        remote.run(x=x)
        np.testing.assert_allclose(remote.get_output(0).numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(remote.get_state("h").numpy(), results[2], rtol=1e-5, atol=1e-6)
    remote.reset_states()
    assert not remote.get_state("h").numpy().any()
    with pytest.raises(ExecutionError, match="no state"):
        remote.get_state("x")


def test_wrong_states_are_refused() -> None:
    with pytest.raises(TypeMismatch, match="no output 4"):
        relay.build(_recurrent(), "llvm", states={"h": 4})
    with pytest.raises(TypeMismatch, match="it is no input"):
        relay.build(_recurrent(), "llvm", states={"g": 1})
    with pytest.raises(UnsupportedError, match="two states take one output"):
        relay.build(_recurrent(), "llvm", states={"h": 1, "first": 1})
    x, h = relay.var("x", shape=(2,)), relay.var("h", shape=(3,))
    module = armillary.IRModule.from_expr(relay.Function([x, h], relay.Tuple([x, x + relay.sum(h)])))
    with pytest.raises(TypeMismatch, match="its type is"):
        relay.build(module, "llvm", states={"h": 1})
    network = graph_executor.GraphModule(_library()["default"](armillary.cpu()))
    with pytest.raises(ExecutionError, match="states are h, first, second"):
        network.get_state("x")
