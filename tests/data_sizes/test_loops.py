"""Loops with other sizes in each iteration, and loops whose states grow: one compile, ONNX Runtime's results."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import armillary
from armillary import relay
from armillary.base.extent import size
from armillary.contrib import graph_executor
from armillary.errors import ArmillaryError, UnsupportedError
from armillary.frontend import from_onnx

F, INT, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Shape = list[int | str]
node = helper.make_node
RNG = np.random.default_rng(7)


def _value(name: str, shape: Shape | None, kind: int = F) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _const(name: str, value: Any) -> NodeProto:
    return node("Constant", [], [name], value=helper.make_tensor(name, INT, np.shape(value), np.ravel(value)))


def _body(nodes: Sequence[NodeProto], states: Mapping[str, Shape], outputs: Sequence[str]) -> Any:
    ends = [node("Identity", ["going"], ["again"])]
    inputs = [_value("n", [], INT), _value("going", [], B), *(_value(s, shape) for s, shape in states.items())]
    results = [_value("again", [], B), *(_value(name, None) for name in outputs)]
    return helper.make_graph([*nodes, *ends], "body", inputs, results)


def _model(nodes: Sequence[NodeProto], inputs: Sequence[Any]) -> ModelProto:
    graph = helper.make_graph(nodes, "net", inputs, [helper.make_empty_tensor_value_info("z")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# As much of `x` as the iteration's length says.
_CUT = [
    node("Gather", ["lengths", "n"], ["length"]),
    _const("zero", [0]),
    _const("one", [1]),
    node("Reshape", ["length", "one"], ["end"]),
    node("Slice", ["x", "zero", "end", "zero"], ["part"]),
]
_COUNT = [_const("first", 0), node("Shape", ["lengths"], ["shape"]), node("Gather", ["shape", "first"], ["count"])]
_NONE = node("ConstantOfShape", ["none"], ["empty"])
INPUTS = [_value("x", ["a"]), _value("lengths", ["b"], INT)]


def _sums() -> ModelProto:
    inside = [*_CUT, node("ReduceSum", ["part"], ["sum"], keepdims=0), node("Add", ["s", "sum"], ["t"])]
    body = _body(inside, {"s": []}, ["t"])
    start = node("Constant", [], ["start"], value_float=0.0)
    return _model([*_COUNT, start, node("Loop", ["count", "", "start"], ["z"], body=body)], INPUTS)


def _padded_rows() -> ModelProto:
    """Parts as long as each iteration says, and zeros behind them, appended to a state: how exporters write lists."""
    inside = [
        *_CUT,
        node("Shape", ["x"], ["whole"]),
        node("Sub", ["whole", "end"], ["left"]),
        node("ConstantOfShape", ["left"], ["zeros"]),
        node("Concat", ["part", "zeros"], ["row"], axis=0),
        node("Unsqueeze", ["row", "zero"], ["rows"]),
        node("Concat", ["s", "rows"], ["t"], axis=0),
    ]
    body = _body(inside, {"s": ["r", "a"]}, ["t"])
    shape = [_const("no", [0]), node("Shape", ["x"], ["long"]), node("Concat", ["no", "long"], ["none"], axis=0)]
    return _model([*_COUNT, *shape, _NONE, node("Loop", ["count", "", "empty"], ["z"], body=body)], INPUTS)


def _resized() -> ModelProto:
    """A mask is resized to another size in each iteration, and pasted into an image: what Mask R-CNN does."""
    inside = [
        node("Gather", ["lengths", "n"], ["length"]),
        _const("zero", [0]),
        _const("one", [1]),
        node("Reshape", ["length", "one"], ["end"]),
        node("Gather", ["x", "n"], ["line"]),
        _const("three", [1, 1, -1]),
        node("Reshape", ["line", "three"], ["mask"]),
        node("Concat", ["one", "one", "end"], ["sizes"], axis=0),
        node("Resize", ["mask", "", "", "sizes"], ["large"], mode="linear"),
        _const("wide", [12]),
        node("Sub", ["wide", "end"], ["left"]),
        node("ConstantOfShape", ["left"], ["zeros"]),
        _const("flat", [-1]),
        node("Reshape", ["large", "flat"], ["part"]),
        node("Concat", ["part", "zeros"], ["row"], axis=0),
        node("Unsqueeze", ["row", "zero"], ["rows"]),
        node("Concat", ["s", "rows"], ["t"], axis=0),
    ]
    body = _body(inside, {"s": ["r", 12]}, ["t"])
    before = [_const("none", [0, 12]), _NONE]
    inputs = [_value("x", ["b", "a"]), _value("lengths", ["b"], INT)]
    return _model([*_COUNT, *before, node("Loop", ["count", "", "empty"], ["z"], body=body)], inputs)


def _behind_others() -> ModelProto:
    """The state has rows at first, and the number of iterations is one that the data says."""
    inside = [node("Gather", ["x", "n"], ["e"]), _const("two", [2, 1]), node("Expand", ["e", "two"], ["rows"])]
    body = _body([*inside, node("Concat", ["s", "rows"], ["t"], axis=0)], {"s": ["r", 1]}, ["t"])
    before = [
        node("NonZero", ["lengths"], ["places"]),
        node("Shape", ["places"], ["shape"]),
        _const("last", 1),
        node("Gather", ["shape", "last"], ["count"]),
        _const("column", [-1, 1]),
        node("Reshape", ["x", "column"], ["start"]),
    ]
    return _model([*before, node("Loop", ["count", "", "start"], ["z"], body=body)], INPUTS)


def _sequence(join: dict[str, int], empty: bool = True) -> ModelProto:
    """A list that grows by an element in each iteration, as exporters write it; joined, its length and one of it."""
    inside = [
        node("Gather", ["x", "n"], ["e"]),
        _const("pair", [2, 3]),
        node("Expand", ["e", "pair"], ["grid"]),
        node("SequenceInsert", ["s", "grid"], ["t"]),
    ]
    body = _body(inside, {"s": []}, ["t"])
    for value in (body.input[2], body.output[1]):
        value.CopyFrom(helper.make_tensor_sequence_value_info(value.name, F, None))
    blank = node("ConstantOfShape", ["six"], ["grid0"])
    start = node("SequenceEmpty", [], ["start"]) if empty else node("SequenceConstruct", ["grid0"], ["start"])
    after = [
        node("Loop", ["count", "", "start"], ["list"], body=body),
        node("ConcatFromSequence", ["list"], ["joined"], **join),
        node("SequenceLength", ["list"], ["long"]),
        node("SequenceAt", ["list", "first"], ["one"]),
        node("ReduceSum", ["one"], ["sum"], keepdims=0),
        node("Cast", ["long"], ["times"], to=F),
        node("Mul", ["sum", "times"], ["factor"]),
        node("Mul", ["joined", "factor"], ["z"]),
    ]
    before = [_const("six", [2, 3]), *([] if empty else [blank])]
    return _model([*_COUNT, *before, start, *after], [_value("x", ["b"]), _value("lengths", ["b"], INT)])


CASES = {"sums": _sums, "padded rows": _padded_rows, "resized": _resized, "behind others": _behind_others}
LISTS = {
    "list, stacked": lambda: _sequence({"axis": -1, "new_axis": 1}),
    "list, joined": lambda: _sequence({"axis": 1}),
    "list with an element": lambda: _sequence({"axis": 0}, empty=False),
}
CASES |= LISTS


@pytest.mark.parametrize("name", CASES)
def test_one_compile_gives_what_onnx_runtime_gives(name: str) -> None:
    model = CASES[name]().SerializeToString()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as where each shape is compiled
        session = armillary.InferenceSession(model)
    peer = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for rows, length in ((3, 5), (1, 4), (4, 9), (3, 5), (6, 12), (2, 4)):
        x = RNG.standard_normal((rows, length) if name == "resized" else length).astype(np.float32)
        given = {"x": x, "lengths": RNG.integers(1, min(length, 12) + 1, rows)}
        if name in LISTS:
            x = x[:rows]
            given["x"] = x
        if name == "behind others":
            given["lengths"] = RNG.integers(0, 2, min(rows, length))
        np.testing.assert_allclose(session.run(None, given)[0], peer.run(None, given)[0], rtol=1e-4, atol=1e-5)


def test_lengths_that_do_not_fit_are_named() -> None:
    session = armillary.InferenceSession(_padded_rows().SerializeToString())
    x = np.ones(5, np.float32)
    assert session.run(None, {"x": x, "lengths": np.array([5, 2])})[0].shape == (2, 5)
    with pytest.raises(ArmillaryError):
        session.run(None, {"x": x, "lengths": np.array([5, 2, -1])})


def test_rows_of_different_lengths_cannot_be_collected() -> None:
    body = _body(_CUT, {}, ["part"])
    with pytest.raises(UnsupportedError, match=r"another size .* in each iteration"):
        from_onnx(_model([*_COUNT, node("Loop", ["count", ""], ["z"], body=body)], INPUTS))


def test_views_whose_typical_sizes_do_not_fit_are_loaded() -> None:
    """x[seq, 6] in y's shape, which it does not fit at the sizes' hints: those that a graph is loaded with."""
    seq, b, c = size("seq", hint=4), size("b", hint=3), size("c", hint=8)
    x, y = relay.var("x", shape=(seq, 6)), relay.var("y", shape=(b, c))
    joined = relay.Tuple([relay.exp(relay.reshape(x, (b, c))), y])
    module = armillary.IRModule.from_expr(relay.Function([x, y], joined))
    network = graph_executor.GraphModule(relay.build(module, target="llvm")["default"](armillary.cpu()))
    for rows, high, wide in ((2, 3, 4), (4, 8, 3), (2, 3, 4)):
        data = RNG.standard_normal((rows, 6)).astype(np.float32)
        network.run(x=data, y=np.ones((high, wide), np.float32))
        np.testing.assert_allclose(network.get_output(0).numpy(), np.exp(data.reshape(high, wide)), rtol=1e-5)
    with pytest.raises(ArmillaryError, match="must be equal"):
        network.run(x=np.ones((2, 6), np.float32), y=np.ones((5, 5), np.float32))
