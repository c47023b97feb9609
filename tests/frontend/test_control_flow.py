"""Branches and loops that run: compared with ONNX Runtime, through the reference, the executor and every opt level."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import armillary
from armillary import relay
from armillary.base.node import post_order
from armillary.contrib.graph_executor import GraphModule
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend import from_onnx
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import If, Loop
from armillary.relay.parser import parse
from armillary.transform import PassContext

node, value, F, I64, B = (
    helper.make_node,
    helper.make_tensor_value_info,
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.BOOL,
)
Array = np.ndarray[Any, Any]
Inputs = dict[str, Array]


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any] | None = None) -> Any:
    held = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in (weights or {}).items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compiled(module: IRModule, level: int) -> Any:
    with PassContext(opt_level=level):
        library = relay.build(module, "llvm -mcpu=native")
    return GraphModule(library["default"](armillary.cpu(0)))


def outputs_of(graph: Any, inputs: Inputs) -> list[Array]:
    for name, array in inputs.items():
        graph.set_input(name, array)
    graph.run()
    return [graph.get_output(k).numpy().copy() for k in range(graph.get_num_outputs())]


def check(
    made: Any, *cases: Inputs, kind: type = Loop, levels: tuple[int, ...] = (0, 3), atol: float = 1e-6
) -> IRModule:
    """The same as ONNX Runtime for each case, without compiling twice; the program really holds a node of `kind`."""
    module, _ = from_onnx(made)
    assert any(isinstance(e, kind) for e in post_order(module["main"])), f"no {kind.__name__} is left"
    again = parse(module.astext())
    assert again.astext() == module.astext()
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    graphs = [compiled(module, level) for level in levels]
    for inputs in cases:
        expected = session.run(None, inputs)
        result = evaluate(again["main"], inputs)
        many = list(result) if isinstance(result, tuple) else [result]
        for got in (many, *(outputs_of(graph, inputs) for graph in graphs)):
            assert len(got) == len(expected)
            for ours, theirs in zip(got, expected, strict=True):
                assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=atol)
    return module


def f32(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# --- If ---------------------------------------------------------------------------------------------------------------


def branch(name: str, nodes: list[Any], outputs: list[Any], weights: dict[str, Any] | None = None) -> Any:
    held = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in (weights or {}).items()]
    return helper.make_graph(nodes, name, [], outputs, held)


def test_if_runs_the_branch_that_its_data_choose() -> None:
    yes = branch("yes", [node("Relu", ["h"], ["a"]), node("Add", ["a", "x"], ["b"])], [value("b", F, [2, 3])])
    no = branch("no", [node("MatMul", ["h", "w"], ["c"])], [value("c", F, [2, 3])], {"w": f32(3, 3)})
    nodes = [
        node("Neg", ["x"], ["h"]),
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["positive"]),
        node("If", ["positive"], ["y"], then_branch=yes, else_branch=no),
        node("Mul", ["y", "h"], ["z"]),
    ]
    made = model(
        nodes, [value("x", F, [2, 3])], [value("z", F, [2, 3]), value("y", F, [2, 3])], {"zero": np.float32(0)}
    )
    x = np.abs(f32(2, 3))
    check(made, {"x": x}, {"x": -x}, {"x": x}, kind=If, levels=(0, 1, 2, 3))


def test_if_nests_and_shares_what_both_branches_read() -> None:
    inner = node(
        "If",
        ["q"],
        ["i"],
        then_branch=branch("a", [node("Exp", ["h"], ["e"])], [value("e", F, [4])]),
        else_branch=branch("b", [node("Identity", ["h"], ["k"])], [value("k", F, [4])]),
    )
    yes = branch("yes", [inner, node("Add", ["i", "g"], ["t"])], [value("t", F, [4]), value("i", F, [4])])
    no = branch(
        "no", [node("Sub", ["h", "g"], ["u"]), node("Neg", ["u"], ["w"])], [value("u", F, [4]), value("w", F, [4])]
    )
    nodes = [
        node("Tanh", ["x"], ["h"]),
        node("Sqrt", ["h"], ["g"]),
        node("If", ["p"], ["y", "v"], then_branch=yes, else_branch=no),
    ]
    inputs = [value("x", F, [4]), value("p", B, []), value("q", B, [1])]
    made = model(nodes, inputs, [value("y", F, [4]), value("v", F, [4])])
    x = np.abs(f32(4))
    cases = [{"x": x, "p": np.array(p), "q": np.array([q])} for p in (True, False) for q in (True, False)]
    check(made, *cases, kind=If)


def test_branches_of_different_shapes_give_that_of_the_one_that_runs() -> None:
    yes = branch("yes", [node("Identity", ["x"], ["a"])], [value("a", F, [2])])
    no = branch("no", [node("Concat", ["x", "x"], ["b"], axis=0)], [value("b", F, [4])])
    made = model(
        [node("If", ["p"], ["y"], then_branch=yes, else_branch=no)],
        [value("x", F, [2]), value("p", B, [])],
        [value("y", F, None)],
    )
    check(made, *({"x": f32(2), "p": np.array(p)} for p in (True, False, True)), kind=If)


def test_branches_of_different_ranks_are_refused_with_both() -> None:
    yes = branch("yes", [node("Identity", ["x"], ["a"])], [value("a", F, [2])])
    no = branch("no", [node("Unsqueeze", ["x", "axis"], ["b"])], [value("b", F, [1, 2])])
    made = model(
        [node("If", ["p"], ["y"], then_branch=yes, else_branch=no)],
        [value("x", F, [2]), value("p", B, [])],
        [value("y", F, None)],
        {"axis": np.array([0])},
    )
    with pytest.raises(UnsupportedError, match=r"branches give \(Tensor\[\(2,\).* and \(Tensor\[\(1, 2\)"):
        from_onnx(made)


# --- Loop -------------------------------------------------------------------------------------------------------------


def body(nodes: list[Any], states: list[Any], results: list[Any]) -> Any:
    return helper.make_graph(nodes, "body", [value("i", I64, []), value("go", B, []), *states], results)


def test_while_loop_ends_when_its_data_say_so() -> None:
    inside = body(
        [
            node("Add", ["v", "v"], ["w"]),
            node("ReduceMax", ["w"], ["m"], keepdims=0),
            node("Less", ["m", "top"], ["on"]),
        ],
        [value("v", F, [3])],
        [value("on", B, []), value("w", F, [3])],
    )
    made = model(
        [node("Loop", ["", "yes", "x"], ["y"], body=inside), node("Neg", ["y"], ["z"])],
        [value("x", F, [3]), value("top", F, [])],
        [value("z", F, [3])],
        {"yes": np.array(True)},
    )
    x = np.array([0.5, 1, 0.25], np.float32)
    check(made, *({"x": x, "top": np.array(top, np.float32)} for top in (100, 1, 2000)))


def test_trip_count_is_an_input_and_states_change_places() -> None:
    inside = body(
        [node("Add", ["a", "b"], ["c"]), node("Identity", ["go"], ["on"])],
        [value("a", F, [2]), value("b", F, [2])],
        [value("on", B, []), value("b", F, [2]), value("c", F, [2])],
    )
    made = model(
        [node("Loop", ["n", "yes", "x", "y"], ["p", "q"], body=inside)],
        [value("n", I64, []), value("x", F, [2]), value("y", F, [2])],
        [value("p", F, [2]), value("q", F, [2])],
        {"yes": np.array(True)},
    )
    cases = [{"n": np.array(n), "x": np.zeros(2, np.float32), "y": np.ones(2, np.float32)} for n in (0, 1, 10, 300)]
    check(made, *cases[:3])
    swap = body(
        [node("Identity", ["go"], ["on"])],
        [value("a", F, [2]), value("b", F, [2])],
        [value("on", B, []), value("b", F, [2]), value("a", F, [2])],
    )
    made = model(
        [node("Loop", ["n", "", "x", "y"], ["p", "q"], body=swap)],
        [value("n", I64, [1]), value("x", F, [2]), value("y", F, [2])],
        [value("p", F, [2]), value("q", F, [2])],
    )
    check(made, *({**case, "n": np.array([k])} for k, case in enumerate(cases)))


def counting(steps: int, **outer: Any) -> Any:
    """A loop over rows of x: the state is a running sum, each iteration gives a row."""
    inside = body(
        [
            node("Gather", ["x", "i"], ["row"], axis=0),
            node("MatMul", ["row", "w"], ["h"]),
            node("Add", ["s", "h"], ["t"]),
            node("Tanh", ["t"], ["u"]),
            node("Identity", ["go"], ["on"]),
        ],
        [value("s", F, [4])],
        [value("on", B, []), value("t", F, [4]), value("u", F, [4]), value("s", F, [4])],
    )
    nodes = [node("Loop", ["n", "", "zero"], ["last", "rows", "before"], body=inside), *outer.get("after", [])]
    outputs = [value("last", F, [4]), value("rows", F, [steps, 4]), value("before", F, [steps, 4])]
    return model(
        nodes,
        [value("x", F, [steps, 3])],
        outputs,
        {"n": np.int64(steps), "zero": np.zeros(4, np.float32), "w": f32(3, 4)},
    )


def test_loop_collects_rows() -> None:
    module = check(counting(20), {"x": f32(20, 3)}, {"x": f32(20, 3, seed=1)}, levels=(0, 1, 2, 3))
    (loop,) = [e for e in post_order(module["main"]) if isinstance(e, Loop)]
    assert (loop.states, loop.trips) == (1, 20)


def test_loop_in_a_loop_with_a_branch_inside() -> None:
    """Sums of x[i] for even i, of its square for odd ones, each repeated j times."""
    deep = helper.make_graph(
        [
            node(
                "If",
                ["odd"],
                ["d"],
                then_branch=branch("o", [node("Mul", ["row", "row"], ["o1"])], [value("o1", F, [3])]),
                else_branch=branch("e", [node("Identity", ["row"], ["e1"])], [value("e1", F, [3])]),
            ),
            node("Add", ["r", "d"], ["r1"]),
            node("Identity", ["go2"], ["on2"]),
        ],
        "deep",
        [value("j", I64, []), value("go2", B, []), value("r", F, [3])],
        [value("on2", B, []), value("r1", F, [3]), value("r", F, [3])],
    )
    inside = body(
        [
            node("Gather", ["x", "i"], ["row"], axis=0),
            node("Mod", ["i", "two"], ["rest"]),
            node("Equal", ["rest", "one"], ["odd"]),
            node("Loop", ["five", "", "s"], ["t", "seen"], body=deep),
            node("ReduceSum", ["seen", "axes"], ["total"], keepdims=0),
            node("Less", ["i", "stop"], ["on"]),
        ],
        [value("s", F, [3])],
        [value("on", B, []), value("t", F, [3]), value("total", F, [3])],
    )
    weights = {
        "two": np.int64(2),
        "one": np.int64(1),
        "five": np.int64(9),
        "axes": np.array([0]),
        "yes": np.array(True),
        "n": np.int64(12),
        "zero": np.zeros(3, np.float32),
        "stop": np.int64(100),
    }
    made = model(
        [node("Loop", ["n", "yes", "zero"], ["y", "rows"], body=inside)],
        [value("x", F, [12, 3])],
        [value("y", F, [3])],
        weights,
    )
    check(made, {"x": f32(12, 3)}, {"x": f32(12, 3, seed=5)})


def test_convolution_inside_a_loop_has_packed_weights() -> None:
    inside = body(
        [
            node("Conv", ["v", "w"], ["c"], pads=[1, 1, 1, 1]),
            node("Relu", ["c"], ["r"]),
            node("Add", ["r", "v"], ["u"]),
            node("Identity", ["go"], ["on"]),
        ],
        [value("v", F, [1, 16, 8, 8])],
        [value("on", B, []), value("u", F, [1, 16, 8, 8])],
    )
    made = model(
        [node("Loop", ["n", "", "x"], ["y"], body=inside)],
        [value("x", F, [1, 16, 8, 8]), value("n", I64, [])],
        [value("y", F, [1, 16, 8, 8])],
        {"w": 0.05 * f32(16, 16, 3, 3)},
    )
    check(made, *({"x": f32(1, 16, 8, 8), "n": np.array(n)} for n in (3, 1)), atol=1e-5)


def test_a_loop_that_may_stop_early_gives_as_many_rows() -> None:
    inside = body(
        [node("Add", ["v", "v"], ["w"]), node("Less", ["w", "top"], ["on"])],
        [value("v", F, [])],
        [value("on", B, []), value("w", F, []), value("w", F, [])],
    )
    weights = {"n": np.int64(10), "yes": np.array(True)}
    inputs = [value("x", F, []), value("top", F, [])]
    made = model(
        [node("Loop", ["n", "yes", "x"], ["y", "all"], body=inside)], inputs, [value("all", F, [None])], weights
    )
    module, _ = from_onnx(made)
    main = module["main"]
    assert main.get_attr("output_names") == ("all",)
    graph = compiled(module, 3)
    (rows,) = outputs_of(graph, {"x": np.float32(1), "top": np.float32(30)})
    np.testing.assert_array_equal(rows, [2, 4, 8, 16, 32])
    (cut,) = armillary.backend.prepare(made).run([np.float32(1), np.float32(30)])
    np.testing.assert_array_equal(cut, [2, 4, 8, 16, 32])


def test_rows_of_unknown_number_are_read_by_other_nodes() -> None:
    inside = body(
        [node("Add", ["v", "v"], ["w"]), node("Less", ["w", "top"], ["on"])],
        [value("v", F, [])],
        [value("on", B, []), value("w", F, []), value("w", F, [])],
    )
    weights = {"n": np.int64(500), "yes": np.array(True)}
    nodes = [node("Loop", ["n", "yes", "x"], ["y", "all"], body=inside), node("Neg", ["all"], ["z"])]
    made = model(nodes, [value("x", F, []), value("top", F, [])], [value("z", F, [None])], weights)
    check(made, *({"x": np.array(1, np.float32), "top": np.array(top, np.float32)} for top in (30, 1, 1e9)))


def test_a_state_that_grows_is_unrolled_or_refused() -> None:
    inside = body(
        [node("Concat", ["v", "x"], ["w"], axis=0), node("Identity", ["go"], ["on"])],
        [value("v", F, [None])],
        [value("on", B, []), value("w", F, [None])],
    )
    inputs, outputs = [value("x", F, [2]), value("n", I64, [])], [value("y", F, [None])]
    made = model([node("Loop", ["n", "", "x"], ["y"], body=inside)], inputs, outputs)
    with pytest.raises(UnsupportedError, match="its trip count is not known when compiling, nor a size"):
        from_onnx(made)
    known = model([node("Loop", ["n", "", "x"], ["y"], body=inside)], inputs[:1], outputs, {"n": np.int64(3)})
    assert evaluate(from_onnx(known)[0]["main"], [np.ones(2, np.float32)]).shape == (8,)


# --- Scan -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("directions", "axes", "out_axis", "out_direction"),
    [([0, 0], [0, 0], 0, 0), ([1, 0], [1, 0], 1, 1), ([0, 1], [-1, 0], -1, 0)],
)
def test_scan_runs(directions: list[int], axes: list[int], out_axis: int, out_direction: int) -> None:
    inside = helper.make_graph(
        [node("Mul", ["r", "f"], ["p"]), node("Add", ["s", "p"], ["t"]), node("Sub", ["t", "bias"], ["u"])],
        "body",
        [value("s", F, [3]), value("r", F, [3]), value("f", F, [])],
        [value("t", F, [3]), value("u", F, [3])],
    )
    attrs = {
        "num_scan_inputs": 2,
        "scan_input_directions": directions,
        "scan_input_axes": axes,
        "scan_output_axes": [out_axis],
        "scan_output_directions": [out_direction],
    }
    shape = [3, 3]
    shape.insert(axes[0] % 2, 9)
    shape.pop(axes[0] % 2 + 1 if axes[0] % 2 + 1 < 3 else 0)
    shape = [9, 3] if axes[0] == 0 else [3, 9]
    rows = [9, 3] if out_axis == 0 else [3, 9]
    made = model(
        [node("Scan", ["start", "x", "f"], ["total", "sums"], body=inside, **attrs)],
        [value("start", F, [3]), value("x", F, shape), value("f", F, [9]), value("bias", F, [3])],
        [value("total", F, [3]), value("sums", F, rows)],
    )
    check(made, {"start": f32(3), "x": f32(*shape), "f": f32(9), "bias": f32(3, seed=2)})


# --- the Relay construct ----------------------------------------------------------------------------------------------

LOOP = """def @main(%n: Tensor[(), int64], %x: Tensor[(3,), float32]) {
  %1 = fn (%i: Tensor[(), int64], %go: Tensor[(), bool], %s: Tensor[(3,), float32], %w: Tensor[(3,), float32]) {
    %0 = add(%s, %w);
    (%go, %0, %0)
  };
  loop(%1, %n, True, %x, %x, states=1, trips=4)
}
"""


def test_loop_prints_parses_and_gives_its_count() -> None:
    module = parse(LOOP)
    assert module.astext() == LOOP
    last, rows, count = evaluate(module, [np.int64(3), np.ones(3, np.float32)])
    assert count == 3 and rows.shape == (4, 3) and not rows[3].any()
    np.testing.assert_array_equal(last, [4, 4, 4])
    for level in (0, 3):
        got = outputs_of(compiled(module, level), {"n": np.int64(9), "x": np.ones(3, np.float32)})
        assert got[2] == 4 and (got[0] == 5).all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(%go, %0, %0)", "(%go, %0)", r"loop\(%1"),
        ("(%go, %0, %0)", "(%0, %0)", r"the body returns .* wanted \(Tensor\[\(\), bool\]"),
        ("trips=4", "trips=-1", r"collects rows of .*trips= says"),
        ("%n, True", "%n, %n", r"the condition is Tensor\[\(\), int64\], wanted Tensor\[\(\), bool\]"),
    ],
)
def test_loops_that_make_no_sense_are_type_errors(old: str, new: str, message: str) -> None:
    text = LOOP.replace(old, new)
    if new == "(%go, %0)":
        assert "Tensor[(4, 3)" not in str(parse(text)["main"].body.checked_type)
        return
    with pytest.raises(TypeMismatch, match=message):
        parse(text)["main"].checked_type  # noqa: B018


def test_two_loops_share_a_body_and_a_branch_uses_a_loop() -> None:
    module = parse("""def @main(%c: Tensor[(), bool], %x: Tensor[(2,), float32], %y: Tensor[(2,), float32]) {
  %1 = fn (%i: Tensor[(), int64], %go: Tensor[(), bool], %s: Tensor[(2,), float32]) {
    %0 = multiply(%s, 2f);
    (%go, %0)
  };
  %2 = loop(%1, 3i64, True, %x, states=1, trips=-1);
  %3 = loop(%1, 2i64, %c, %y, states=1, trips=-1);
  %4 = add(%2.0, %3.0);
  if (%c) {
    %5 = loop(%1, 1i64, True, %4, states=1, trips=-1);
    negative(%5.0)
  } else {
    %4
  }
}
""")
    x, y = f32(2), f32(2, seed=3)
    for level in (0, 3):
        graph = compiled(module, level)
        for c in (True, False):
            (got,) = outputs_of(graph, {"c": np.array(c), "x": x, "y": y})
            np.testing.assert_allclose(got, evaluate(module, [np.array(c), x, y]), rtol=1e-6)
            np.testing.assert_allclose(got, -2 * (8 * x + 4 * y) if c else 8 * x + y, rtol=1e-6)
