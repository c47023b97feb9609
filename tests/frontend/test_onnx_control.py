"""Control flow and sequences are resolved at import: unrolled within a bound, refused beyond it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from armillary.backend import prepare
from armillary.budgets import ITERATIONS
from armillary.errors import BudgetError, ModelError, UnsupportedError
from armillary.frontend import from_onnx
from armillary.relay.evaluate import evaluate

node, value, F, I64 = helper.make_node, helper.make_tensor_value_info, TensorProto.FLOAT, TensorProto.INT64


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any] | None = None) -> Any:
    held = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in (weights or {}).items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def powers_of_two(limit: str, keep_going: str = "", stop_at: float = 1e9) -> list[Any]:
    """Loop nodes: x doubles while it is below `stop_at`; each value is collected."""
    constant = helper.make_tensor("c", F, [], [2.0])
    top = helper.make_tensor("t", F, [], [stop_at])
    body = helper.make_graph(
        [
            node("Constant", [], ["two"], value=constant),
            node("Constant", [], ["top"], value=top),
            node("Mul", ["v", "two"], ["w"]),
            node("Less", ["w", "top"], ["again"]),
            node("Identity", ["w"], ["seen"]),
        ],
        "body",
        [value("i", I64, []), value("go", TensorProto.BOOL, []), value("v", F, [])],
        [value("again", TensorProto.BOOL, []), value("w", F, []), value("seen", F, [])],
    )
    return [node("Loop", [limit, keep_going, "x"], ["last", "all"], body=body)]


OUTPUTS = [value("last", F, []), value("all", F, [None])]


def run(made: Any, *inputs: Any, static: dict[str, Any] | None = None) -> Any:
    module, _ = from_onnx(made, static_inputs=static)
    return evaluate(module["main"], list(inputs))


def test_loop_with_a_trip_count_is_unrolled() -> None:
    made = model(powers_of_two("n"), [value("x", F, [])], OUTPUTS, {"n": np.int64(5)})
    last, seen = run(made, np.float32(1))
    assert last == 32
    np.testing.assert_array_equal(seen, [2, 4, 8, 16, 32])


def test_loop_without_iterations_gives_an_empty_output() -> None:
    made = model(powers_of_two("n"), [value("x", F, [])], OUTPUTS, {"n": np.int64(0)})
    last, seen = run(made, np.float32(3))
    assert last == 3 and seen.shape == (0,)


def test_loop_stops_when_its_known_condition_fails() -> None:
    made = model(powers_of_two("", "go", 20.0), [], OUTPUTS, {"x": np.float32(1), "go": np.array(True)})
    last, seen = run(made)
    assert last == 32 and len(seen) == 5


def growing(steps: int, parts: tuple[str, str] = ("x", "v")) -> Any:
    """A loop that cannot run as it is: the state gets longer; where rows are put behind it, they are collected."""
    body = helper.make_graph(
        [node("Concat", parts, ["w"], axis=0), node("Identity", ["go"], ["on"])],
        "body",
        [value("i", I64, []), value("go", TensorProto.BOOL, []), value("v", F, [None])],
        [value("on", TensorProto.BOOL, []), value("w", F, [None])],
    )
    return model(
        [node("Loop", ["n", "", "x"], ["y"], body=body)],
        [value("x", F, [1])],
        [value("y", F, [None])],
        {"n": np.int64(steps)},
    )


def test_a_loop_that_cannot_run_is_unrolled_within_the_bound() -> None:
    assert len(run(growing(9), np.ones(1, np.float32))) == 10
    with pytest.raises(BudgetError, match="carried value 0 changes its type"):
        from_onnx(growing(ITERATIONS.default + 1))
    assert len(run(growing(ITERATIONS.default + 1, ("v", "x")), np.ones(1, np.float32))) == ITERATIONS.default + 2


def test_loop_whose_rows_have_no_bound_is_refused_and_the_backend_fixes_its_input() -> None:
    made = model(powers_of_two("", "go", 20.0), [value("x", F, [])], OUTPUTS, {"go": np.array(True)})
    with pytest.raises(UnsupportedError, match="its trip count is not known when compiling"):
        from_onnx(made)
    last, _ = prepare(made, engine="reference").run([np.float32(1)])
    assert last == 32


def scan_model(directions: list[int], steps: int = 4) -> Any:
    body = helper.make_graph(
        [node("Add", ["s", "r"], ["t"]), node("Identity", ["t"], ["u"])],
        "body",
        [value("s", F, [3]), value("r", F, [3])],
        [value("t", F, [3]), value("u", F, [3])],
    )
    attrs = {"num_scan_inputs": 1, "scan_input_directions": directions}
    nodes = [node("Scan", ["zero", "x"], ["total", "sums"], body=body, **attrs)]
    outputs = [value("total", F, [3]), value("sums", F, [steps, 3])]
    return model(nodes, [value("x", F, [steps, 3])], outputs, {"zero": np.zeros(3, np.float32)})


@pytest.mark.parametrize("backwards", [0, 1])
def test_scan_is_unrolled_in_its_direction(backwards: int) -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    total, sums = prepare(scan_model([backwards])).run([x])
    np.testing.assert_array_equal(total, x.sum(0))
    np.testing.assert_array_equal(sums, np.cumsum(x[::-1] if backwards else x, 0))


def test_a_scan_over_nothing_keeps_its_states_and_has_no_rows() -> None:
    total, sums = prepare(scan_model([0], steps=0)).run([np.zeros((0, 3), np.float32)])
    np.testing.assert_array_equal(total, np.zeros(3))
    assert sums.shape == (0, 3)


def test_scan_with_a_damaged_attribute_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="scan_input_directions has 2 values"):
        from_onnx(scan_model([0, 1]))


def test_sequences_live_at_import_only() -> None:
    nodes = [
        node("SplitToSequence", ["x", "sizes"], ["parts"], axis=1),
        node("SequenceAt", ["parts", "one"], ["b"]),
        node("SequenceInsert", ["parts", "b", "zero"], ["more"]),
        node("SequenceErase", ["more"], ["fewer"]),
        node("SequenceLength", ["fewer"], ["n"]),
        node("ConcatFromSequence", ["fewer"], ["y"], axis=1),
    ]
    weights = {"sizes": np.array([1, 2, 3]), "one": np.int64(1), "zero": np.int64(0)}
    made = model(nodes, [value("x", F, [2, 6])], [value("y", F, None), value("n", I64, [])], weights)
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    y, n = run(made, x)
    assert n == 3
    np.testing.assert_array_equal(y, np.concatenate([x[:, 1:3], x[:, :1], x[:, 1:3]], 1))


def test_a_sequence_input_takes_a_list_of_shapes() -> None:
    kind = helper.make_tensor_sequence_value_info("xs", F, None)
    made = model([node("ConcatFromSequence", ["xs"], ["y"], axis=0)], [kind], [value("y", F, None)])
    with pytest.raises(UnsupportedError, match="only tensors"):
        from_onnx(made)
    module, _ = from_onnx(made, {"xs": [(2,), (3,)]})
    assert [p.name_hint for p in module["main"].params] == ["xs.0", "xs.1"]
    (y,) = prepare(made).run([[np.array([1, 2], np.float32), np.array([3, 4, 5], np.float32)]])
    np.testing.assert_array_equal(y, [1, 2, 3, 4, 5])


def test_a_position_that_is_data_is_refused() -> None:
    nodes = [node("SequenceConstruct", ["x", "x"], ["s"]), node("SequenceAt", ["s", "k"], ["y"])]
    made = model(nodes, [value("x", F, [2]), value("k", I64, [])], [value("y", F, [2])])
    with pytest.raises(UnsupportedError, match="computed at run time"):
        from_onnx(made)
