"""A network whose sizes the data says runs the same everywhere: in Python, armrun, RPC, and as the run program."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import armillary
from armillary import relay, rpc
from armillary.artifact import GraphSpec
from armillary.contrib import graph_executor
from armillary.contrib.cc import get_cc
from armillary.driver.build import optimized
from armillary.driver.program_codegen import plan_network
from armillary.errors import ArtifactError, TypeMismatch
from armillary.program.from_graph import program_of
from armillary.program.interpret import interpret
from armillary.program.text import parse_program, print_program
from armillary.program.verify import verify
from armillary.relay.evaluate import evaluate
from armillary.relay.types import tensor_fields
from armillary.target import Target

X = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
DATA = [X, -X, np.zeros_like(X), np.ones_like(X), np.where(X > 1, X, 0), X]


def _network() -> Any:
    """What is positive, by NonZero and GatherND, plus one; and how many there are, as an exporter writes it."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("NonZero", ["r"], ["n"]),
        helper.make_node("Transpose", ["n"], ["places"]),
        helper.make_node("GatherND", ["x", "places"], ["found"]),
        helper.make_node("Add", ["found", "one"], ["y"]),
        helper.make_node("Shape", ["n"], ["shape"]),
        helper.make_node("Gather", ["shape", "last"], ["count"]),
    ]
    held = [onnx.numpy_helper.from_array(np.float32(1), "one"), onnx.numpy_helper.from_array(np.array(1), "last")]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 8])]
    outputs = [helper.make_empty_tensor_value_info(name) for name in ("y", "count")]
    graph = helper.make_graph(nodes, "net", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def library() -> Any:
    module, params = relay.frontend.from_onnx(_network())
    with armillary.transform.PassContext(opt_level=3):
        return relay.build(module, target="llvm", params=params)


def _check(got: Sequence[Any], x: Any) -> None:
    session = onnxruntime.InferenceSession(_network().SerializeToString(), providers=["CPUExecutionProvider"])
    for ours, theirs in zip(got, session.run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), theirs)


def test_in_python_outputs_have_their_true_sizes(library: Any) -> None:
    network = graph_executor.GraphModule(library["default"](armillary.cpu()))
    for x in DATA:
        network.run(x=x)
        _check([network.get_output(k).numpy() for k in range(network.get_num_outputs())], x)
    with pytest.raises(TypeMismatch, match="output 0: its shape is known only after a run: copy it"):
        network.set_output_zero_copy(0, armillary.nd.array(np.zeros(3, np.float32)))


def test_in_the_native_runner(library: Any, built_runner: Callable[..., Path], tmp_path: Path) -> None:
    runner, package = built_runner(get_cc(), sanitized=True), tmp_path / "net.tar"
    library.export_library(str(package))
    for k, x in enumerate(DATA):
        np.savez(tmp_path / f"{k}.npz", x=x)
        words = [runner, f"--model={package}", f"--input={tmp_path / f'{k}.npz'}", f"--output={tmp_path / 'out.npz'}"]
        subprocess.run([str(w) for w in words], check=True, timeout=60, capture_output=True)
        with np.load(tmp_path / "out.npz") as out:
            _check(list(out.values()), x)


def test_over_rpc(library: Any, tmp_path: Path) -> None:
    library.export_library(str(tmp_path / "net.tar"))
    server = rpc.Server("127.0.0.1", 0)
    try:
        session = rpc.connect("127.0.0.1", server.port)
        session.upload(str(tmp_path / "net.tar"))
        network = graph_executor.GraphModule(session.load_module("net.tar")["default"](session.cpu()))
        for x in DATA[:3]:
            network.set_input("x", x)
            network.run()
            _check([network.get_output(k).numpy() for k in range(2)], x)
    finally:
        server.terminate()


def test_the_run_program_says_when_a_size_is_bound_and_means_the_same(library: Any) -> None:
    module, _ = relay.frontend.from_onnx(_network())
    with armillary.transform.PassContext(opt_level=3):
        kernels = plan_network(optimized(module, Target("llvm"))["main"]).kernels

    def computed(kernel: Any) -> Callable[..., list[Any]]:
        def run(sizes: Any, *arrays: Any) -> list[Any]:
            rest, given = list(arrays), []
            for parameter in kernel.function.params:  # a tuple's fields come one after another
                fields = [rest.pop(0) for _ in tensor_fields(parameter.checked_type)]
                given.append(fields[0] if len(fields) == 1 else tuple(fields))
            result = evaluate(kernel.function, given, sizes=sizes)
            return list(result) if isinstance(result, tuple) else [np.asarray(result)]

        return run

    program = program_of(GraphSpec.from_json(library.get_graph_json()), library.get_params())
    text = print_program(program)
    assert "nonzero_1 in 0..24" in text and "bind nonzero_1 = %" in text
    assert parse_program(text) == program
    verify(program)
    given = {name: np.asarray(array) for name, array in library.get_params().items()}
    for x in DATA:
        _check(interpret(program, {**given, "x": x}, {n: computed(k) for n, k in kernels.items()}), x)
    lines = text.splitlines()
    bind = next(n for n, line in enumerate(lines) if " bind " in line)
    with pytest.raises(ArtifactError, match="has the size nonzero_1, not bound yet"):
        verify(parse_program("\n".join([*lines[:bind], *lines[bind + 1 : -2], lines[bind], *lines[-2:]])))
    with pytest.raises(ArtifactError, match="nothing binds it"):
        verify(parse_program("\n".join(line for line in lines if " bind " not in line)))
