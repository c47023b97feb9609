"""Extents that operators take to be equal are compared before a kernel reads: no result where ONNX Runtime has none."""

import itertools
import re
import subprocess
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import armillary
from armillary import relay, rpc
from armillary.artifact import GraphSpec
from armillary.base.extent import size
from armillary.contrib import graph_executor
from armillary.contrib.cc import get_cc
from armillary.errors import ArmillaryError, ArtifactError, ExecutionError
from armillary.ops.shape.bind_size import EqualSizesAttrs, equal_sizes, run_after
from armillary.program.from_graph import program_of
from armillary.program.interpret import interpret
from armillary.program.text import parse_program, print_program
from armillary.program.verify import verify
from armillary.relay.expr import Call
from armillary.transform import PassContext

KINDS = {"c": TensorProto.BOOL, "n": TensorProto.INT64, "i": TensorProto.INT64}
Shape = list[int | str]
node = helper.make_node
TWICE = node("Concat", ["x", "x"], ["x2"], axis=0)
SUM = node("ReduceSum", ["t0"], ["t"], keepdims=0)


def _value(name: str, shape: Shape) -> Any:
    return helper.make_tensor_value_info(name, KINDS.get(name, TensorProto.FLOAT), shape)


def _model(nodes: list[NodeProto], shapes: Mapping[str, Shape]) -> ModelProto:
    inputs = [_value(name, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "net", inputs, [helper.make_empty_tensor_value_info("z")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _branch() -> NodeProto:
    yes = helper.make_graph([node("Add", ["x2", "y"], ["t0"]), SUM], "yes", [], [_value("t", [])])
    no = helper.make_graph([node("ReduceSum", ["x"], ["u"], keepdims=0)], "no", [], [_value("u", [])])
    return node("If", ["c"], ["z"], then_branch=yes, else_branch=no)


def _loop() -> NodeProto:
    nodes = [node("Add", ["x2", "y"], ["t0"]), SUM, node("Add", ["s", "t"], ["s2"]), node("Identity", ["c"], ["c2"])]
    body = helper.make_graph(
        nodes, "body", [_value("n", []), _value("c", []), _value("s", [])], [_value("c", []), _value("s", [])]
    )
    body.output[0].name, body.output[1].name = "c2", "s2"
    return node("Loop", ["n", "", "first"], ["z"], body=body)


CASES: dict[str, tuple[list[NodeProto], dict[str, Shape], str]] = {
    "joined": ([TWICE, node("Add", ["x2", "y"], ["z"])], {"x": ["a"], "y": ["b"]}, r"a: axis 0 of x\) is 2\*a"),
    "a number": ([TWICE, node("Add", ["x2", "y"], ["z"])], {"x": ["a"], "y": [10]}, r"\(5\) wanted"),
    "elements": (
        [node("Constant", [], ["s"], value_ints=[-1, 4]), node("Reshape", ["x", "s"], ["r"]), node("Add", "ry", "z")],
        {"x": ["seq", 6], "y": ["b", 4]},
        r"floordiv\(6\*seq, 4\)",
    ),
    "positions": ([node("GatherElements", "xi", "z", axis=0)], {"x": ["a", "b"], "i": ["c", "d"]}, r"d: axis 1 of i"),
    "expanded": (
        [node("Shape", "y", "s"), node("Expand", "xs", "z")],
        {"x": ["a", 1], "y": ["b", "d"]},
        "x and y disagree on the size",
    ),
    "counted": (
        [node("NonZero", "x", "k"), node("Cast", "k", "f", to=1), node("Add", "fy", "z")],
        {"x": ["a"], "y": ["b"]},
        "nonzero_1",
    ),
    "counted twice": (
        [node("NonZero", "x", "k"), node("NonZero", "y", "m"), node("Add", "km", "z")],
        {"x": ["a"], "y": ["b"]},
        "nonzero_2",
    ),
    "in a branch": ([TWICE, _branch()], {"x": ["a"], "y": ["b"], "c": []}, "they must be equal"),
    "in a loop": ([TWICE, _loop()], {"x": ["a"], "y": ["b"], "n": [], "first": []}, "they must be equal"),
}


def _inputs(shapes: Mapping[str, Shape], sizes: Mapping[str, int], flag: bool) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    result: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        fixed = [sizes[d] if isinstance(d, str) else d for d in shape]
        result[name] = (
            np.asarray(0.5 + rng.random(fixed, np.float32)) if name not in KINDS else np.zeros(fixed, np.int64)
        )
    if "c" in shapes:
        result["c"] = np.array(flag)
    if "n" in shapes:
        result["n"] = np.array(3 if flag else 0)
    return result


@pytest.mark.parametrize("name", CASES)
def test_there_is_a_result_where_onnx_runtime_has_one_and_else_an_error(name: str) -> None:
    nodes, shapes, message = CASES[name]
    model = _model(nodes, shapes).SerializeToString()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # which says that each shape is compiled
        session = armillary.InferenceSession(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    peer = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = sorted({d for shape in shapes.values() for d in shape if isinstance(d, str)})
    messages, agreed = [], 0
    for *numbers, flag in itertools.product(*[(2, 3, 5, 10)] * len(names), (True, False)):
        given = _inputs(shapes, dict(zip(names, numbers, strict=True)), flag)
        try:
            want = peer.run(None, given)[0]
        except Exception:
            with pytest.raises(ArmillaryError) as caught:
                session.run(None, given)
            messages.append(str(caught.value))
            continue
        agreed += 1
        np.testing.assert_allclose(session.run(None, given)[0], want, rtol=1e-4)
    assert agreed and messages
    assert re.search(message, "\n".join(messages)), messages


# --- everywhere -------------------------------------------------------------------------------------------------------

NODES, SHAPES, _ = CASES["counted"]
GOOD, BAD = ({"x": np.ones(a, np.float32), "y": np.ones(b, np.float32)} for a, b in ((5, 5), (400, 5)))
MESSAGE = r"axis 0 of .* is min\(a, nonzero_1\) = 400, but axis 0 of y is b = 5: they must be equal"


@pytest.fixture(scope="module")
def library() -> Any:
    nodes = [*NODES[:-1], TWICE, node("Add", "fy", "u"), node("ReduceSum", ["x2"], ["v"]), node("Add", "uv", "z")]
    module, params = relay.frontend.from_onnx(_model(nodes, SHAPES))
    return relay.build(module, target="llvm", params=params)


def test_in_the_native_runner_under_address_sanitizer(
    library: Any, built_runner: Callable[..., Path], tmp_path: Path
) -> None:
    runner, package = built_runner(get_cc(), sanitized=True), tmp_path / "net.tar"
    library.export_library(str(package))
    results = []
    for k, given in enumerate((GOOD, BAD)):
        np.savez(tmp_path / f"{k}.npz", **given)
        words = [runner, f"--model={package}", f"--input={tmp_path / f'{k}.npz'}"]
        results.append(subprocess.run([str(w) for w in words], timeout=60, capture_output=True, text=True, check=False))
    assert results[0].returncode == 0, results[0].stderr
    assert results[1].returncode == 1
    assert re.search(MESSAGE, results[1].stderr), results[1].stderr


def test_over_rpc(library: Any, tmp_path: Path) -> None:
    library.export_library(str(tmp_path / "net.tar"))
    server = rpc.Server("127.0.0.1", 0)
    try:
        session = rpc.connect("127.0.0.1", server.port)
        session.upload(str(tmp_path / "net.tar"))
        network = graph_executor.GraphModule(session.load_module("net.tar")["default"](session.cpu()))
        network.set_input(**GOOD)
        network.run()
        network.set_input(**BAD)
        with pytest.raises(ArmillaryError, match=MESSAGE):
            network.run()
    finally:
        server.terminate()


def test_the_first_run_compares_also_where_sizes_are_those_that_are_typical() -> None:
    nodes, shapes, _ = CASES["joined"]
    module, _ = relay.frontend.from_onnx(_model(nodes, shapes), hint={"a": 9, "b": 9})
    network = graph_executor.GraphModule(relay.build(module, target="llvm")["default"](armillary.cpu()))
    with pytest.raises(ExecutionError, match=r"2\*a = 18, but axis 0 of y is b = 9: they must be equal"):
        network.run(x=np.ones(9, np.float32), y=np.ones(9, np.float32))
    network.run(x=np.ones(9, np.float32), y=np.ones(18, np.float32))


def test_the_run_program_has_the_comparison_and_means_it(library: Any) -> None:
    program = program_of(GraphSpec.from_json(library.get_graph_json()), library.get_params())
    text = print_program(program)
    line = next(line for line in text.splitlines() if line.strip().startswith("equal "))
    assert line.strip().startswith("equal min(a, nonzero_1) = b of ")
    assert parse_program(text) == program
    verify(program)
    moved = text.replace(line + "\n", "")
    begin = next(k for k, each in enumerate(moved.splitlines()) if each.startswith("  call "))
    lines = moved.splitlines()
    with pytest.raises(ArtifactError, match="an equal compares the size nonzero_1, not bound yet"):
        verify(parse_program("\n".join([*lines[:begin], line, *lines[begin:]])))
    simple = parse_program(
        "program (a in 1..9, b in 1..9) { %x: float32[a] input slot 0  %y: float32[b] input slot 1 "
        'equal 2*a = b of "x" "y" "add" return %x }'
    )
    verify(simple)
    arrays = {"x": np.zeros(2, np.float32), "y": np.zeros(4, np.float32)}
    interpret(simple, arrays, {})
    with pytest.raises(ExecutionError, match=r"add: x is 2\*a = 4, but y is b = 3: they must be equal"):
        interpret(simple, {**arrays, "y": np.zeros(3, np.float32)}, {})


def test_networks_of_fixed_shapes_have_no_comparison() -> None:
    nodes, _, _ = CASES["joined"]
    module, _ = relay.frontend.from_onnx(_model(nodes, {"x": [3], "y": [6]}))
    assert "__equal" not in relay.build(module, target="llvm").get_graph_json()


@pytest.mark.parametrize("level", [0, 3])
def test_a_constant_result_stands_behind_a_comparison(level: int) -> None:
    n, m = size("n"), size("m")
    x, y = relay.var("x", shape=(n,)), relay.var("y", shape=(m,))
    comparison = Call(equal_sizes, (), EqualSizesAttrs(2 * n, 3 * m, "twice x", "three times y"))
    function = relay.Function([x, y], run_after(comparison, relay.const(np.float32(2))))
    with PassContext(opt_level=level):
        library = relay.build(armillary.IRModule.from_expr(function), "llvm")
    network = graph_executor.GraphModule(library["default"](armillary.cpu()))
    network.run(x=np.zeros(3, "float32"), y=np.zeros(2, "float32"))
    assert network.get_output(0).numpy() == 2
    with pytest.raises(ArmillaryError, match="twice x"):
        network.run(x=np.zeros(3, "float32"), y=np.zeros(3, "float32"))
