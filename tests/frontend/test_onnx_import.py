"""What the ONNX walk does with well-formed models: names, constants, shapes, functions, branches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

from armillary.errors import ConfigError, TypeMismatch, UnsupportedError
from armillary.frontend import from_onnx
from armillary.frontend.folding.fold import NeedsValue
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Constant, Var

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


def value(name: str, shape: Any, kind: int = F32) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: list[Any], inputs: list[Any], outputs: list[str], weights: dict[str, Any] | None = None, **extra: Any
) -> ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "net", inputs, [value(name, None) for name in outputs], tensors)
    opsets = extra.pop("opsets", [helper.make_opsetid("", 18)])
    return helper.make_model(graph, opset_imports=opsets, **extra)


def run(made: ModelProto, *arrays: Any, **options: Any) -> Any:
    module, _ = from_onnx(made, **options)
    return evaluate(module["main"], list(arrays))


def test_input_and_output_names_are_kept_in_order() -> None:
    made = model(
        [node("Relu", ["b:0"], ["y.1"]), node("Neg", ["a"], ["z"])], [value("a", [2]), value("b:0", [3])], ["z", "y.1"]
    )
    function = from_onnx(made)[0]["main"]
    assert [p.name_hint for p in function.params] == ["a", "b:0"]
    assert function.get_attr("output_names") == ("z", "y.1")


def test_every_call_carries_the_name_of_its_node() -> None:
    made = model([node("Add", ["x", "x"], ["y"], name="layer1/add")], [value("x", [2])], ["y"])
    body = from_onnx(made)[0]["main"].body
    assert isinstance(body, Call)
    assert body.span is not None and body.span.name == "layer1/add"


def test_shape_arithmetic_becomes_a_constant() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Mul", ["s", "two"], ["d"]),
        node("Sub", ["d", "one"], ["y"]),
    ]
    made = model(nodes, [value("x", [2, 5])], ["y"], {"one": np.array([1], np.int64), "two": np.array([2], np.int64)})
    body = from_onnx(made)[0]["main"].body
    assert isinstance(body, Constant)
    np.testing.assert_array_equal(body.data, [3, 9])


def test_shape_takes_start_and_end() -> None:
    made = model([node("Shape", ["x"], ["y"], start=-2, end=-1)], [value("x", [2, 5, 7])], ["y"])
    np.testing.assert_array_equal(run(made, np.zeros((2, 5, 7), np.float32)), [5])


def test_large_constants_are_not_folded_at_import() -> None:
    weights = {"w": np.ones((512, 512), np.float32)}
    made = model([node("Neg", ["w"], ["n"]), node("Add", ["x", "n"], ["y"])], [value("x", [512, 512])], ["y"], weights)
    body = from_onnx(made)[0]["main"].body
    assert isinstance(body, Call) and isinstance(body.args[1], Call)


def test_symbolic_dimension_is_bound_by_shape_in_every_input() -> None:
    made = model([node("Add", ["x", "w"], ["y"])], [value("x", ["N", 3]), value("w", ["N", 1])], ["y"])
    params = from_onnx(made, shape={"x": (4, 3)})[0]["main"].params
    assert [p.checked_type.shape for p in params] == [(4, 3), (4, 1)]


def test_open_dimensions_stay_names_with_bounds_and_hints() -> None:
    inputs = [value("x", ["batch", "past + 1", 3]), value("p", ["past", None])]
    made = model([node("Relu", ["x"], ["y"])], inputs, ["y"])
    module, _ = from_onnx(made, bounds={"batch": (1, 8)}, hint={"past": 7})
    x, p = (param.checked_type for param in module["main"].params)
    assert str(x) == "Tensor[(batch{1, 8, 1, 1}, past{0, 2147483647, 1, 7} + 1, 3), float32]"
    assert str(p.shape[1]) == "p_1" and x.shape[1] == p.shape[0] + 1
    with pytest.raises(TypeMismatch, match="bounds= names 'seq', which is no open dimension of the model"):
        from_onnx(made, bounds={"seq": (1, 2)})
    with pytest.raises(TypeMismatch, match="wanted the least and the largest"):
        from_onnx(made, bounds={"batch": 8})


def test_static_input_is_compiled_in_and_not_a_parameter() -> None:
    made = model([node("Add", ["x", "k"], ["y"])], [value("x", [2]), value("k", [2])], ["y"])
    module, _ = from_onnx(made, static_inputs={"k": np.array([1, 2], np.float32)})
    assert [p.name_hint for p in module["main"].params] == ["x"]
    np.testing.assert_array_equal(evaluate(module["main"], [np.zeros(2, np.float32)]), [1, 2])


def test_value_needed_when_compiling_names_the_inputs_behind_it() -> None:
    nodes = [node("Add", ["n", "one"], ["m"]), node("Unsqueeze", ["x", "m"], ["y"])]
    made = model(nodes, [value("x", [6]), value("n", [1], I64)], ["y"], {"one": np.array([1], np.int64)})
    with pytest.raises(NeedsValue) as caught:
        from_onnx(made)
    assert caught.value.inputs == {"n"}
    out = run(made, np.arange(6, dtype=np.float32), static_inputs={"n": np.array([0])})
    assert out.shape == (6, 1)


def test_weights_stay_parameters_on_request() -> None:
    made = model(
        [node("Add", ["x", "w"], ["y"])],
        [value("x", [2])],
        ["y"],
        {"w": np.array([3, 4], np.float32), "unused": np.ones(2)},
    )
    module, params = from_onnx(made, freeze_params=False)
    assert [p.name_hint for p in module["main"].params] == ["x", "w"]
    assert list(params) == ["w"]
    assert from_onnx(made)[1] == {}


def test_a_graph_in_any_order_is_sorted() -> None:
    made = model([node("Neg", ["a"], ["y"]), node("Relu", ["x"], ["a"])], [value("x", [2])], ["y"])
    np.testing.assert_array_equal(run(made, np.array([-1, 2], np.float32)), [0, -2])


def test_nodes_that_no_output_needs_are_dropped_even_if_unknown() -> None:
    made = model([node("NoSuchOp", ["x"], ["unused"]), node("Relu", ["x"], ["y"])], [value("x", [2])], ["y"])
    np.testing.assert_array_equal(run(made, np.array([-1, 2], np.float32)), [0, 2])


def test_an_output_may_be_an_input_or_a_constant() -> None:
    made = model(
        [node("Identity", ["x"], ["y"]), node("Constant", [], ["c"], value_floats=[1.0, 2.0])],
        [value("x", [2])],
        ["y", "c"],
    )
    body = from_onnx(made)[0]["main"].body
    assert isinstance(body.fields[0], Var) and isinstance(body.fields[1], Constant)


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({"value_float": 1.5}, np.float32(1.5)),
        ({"value_floats": [1.5, 2.0]}, np.array([1.5, 2.0], np.float32)),
        ({"value_int": 7}, np.int64(7)),
        ({"value_ints": [7, 8]}, np.array([7, 8])),
        ({"value": numpy_helper.from_array(np.array([[1, 2]], np.int8))}, np.array([[1, 2]], np.int8)),
    ],
)
def test_constant_nodes_in_each_form(attribute: dict[str, Any], expected: Any) -> None:
    out = run(model([node("Constant", [], ["y"], **attribute)], [], ["y"]))
    np.testing.assert_array_equal(out, expected)
    assert out.dtype == np.asarray(expected).dtype and out.shape == np.shape(expected)


def test_sparse_constant_is_made_dense() -> None:
    values = helper.make_tensor("v", F32, [2], [3.0, 4.0])
    indices = helper.make_tensor("i", I64, [2], [1, 4])
    made = model(
        [node("Constant", [], ["y"], sparse_value=helper.make_sparse_tensor(values, indices, [2, 3]))], [], ["y"]
    )
    np.testing.assert_array_equal(run(made), [[0, 3, 0], [0, 4, 0]])


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, ml_dtypes.uint4])
def test_small_dtypes_of_initialisers(dtype: Any) -> None:
    array = np.array([0, 1, 3, 2, 5], dtype)
    made = model([node("Identity", ["w"], ["y"])], [], ["y"], {"w": array})
    out = run(made)
    assert out.dtype == array.dtype
    np.testing.assert_array_equal(out.astype(np.float32), array.astype(np.float32))


def test_model_functions_are_expanded_with_their_attributes() -> None:
    scale = node("Constant", [], ["k"])
    scale.attribute.append(AttributeProto(name="value_float", ref_attr_name="alpha", type=AttributeProto.FLOAT))
    body = helper.make_function(
        "mine", "Scale", ["a"], ["b"], [scale, node("Mul", ["a", "k"], ["b"])], [helper.make_opsetid("", 18)], ["alpha"]
    )
    made = model(
        [node("Scale", ["x"], ["t"], domain="mine", alpha=3.0), node("Scale", ["t"], ["y"], domain="mine", alpha=2.0)],
        [value("x", [2])],
        ["y"],
        functions=[body],
        opsets=[helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)],
    )
    np.testing.assert_array_equal(run(made, np.array([1, 2], np.float32)), [6, 12])


def test_standard_functions_are_expanded_where_no_rule_exists() -> None:
    made = model([node("MeanVarianceNormalization", ["x"], ["y"], axes=[0, 1])], [value("x", [2, 4])], ["y"])
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_allclose(run(made, x), (x - x.mean()) / x.std(), rtol=1e-5)


@pytest.mark.parametrize(("condition", "expected"), [(True, [1, 2]), (False, [-1, -2])])
def test_if_with_a_known_condition_becomes_the_branch_taken(condition: bool, expected: list[int]) -> None:
    same = helper.make_graph([node("Identity", ["x"], ["o"])], "then", [], [value("o", [2])])
    negated = helper.make_graph([node("Neg", ["x"], ["o"])], "else", [], [value("o", [2])])
    made = model(
        [node("If", ["c"], ["y"], then_branch=same, else_branch=negated)],
        [value("x", [2])],
        ["y"],
        {"c": np.array(condition)},
    )
    np.testing.assert_array_equal(run(made, np.array([1, 2], np.float32)), expected)


def test_all_unknown_operators_are_listed_at_once() -> None:
    nodes = [
        node("Frob", ["x"], ["a"], name="n1"),
        node("Frob", ["a"], ["b"]),
        node("Quux", ["b"], ["y"], domain="com.acme"),
    ]
    with pytest.raises(UnsupportedError, match=r"2 operators .* Frob \(2 nodes, first: 'n1'\); com.acme.Quux \(1 node"):
        from_onnx(model(nodes, [value("x", [2])], ["y"]))


def test_an_attribute_that_no_rule_reads_is_refused() -> None:
    made = model(
        [node("SpaceToDepth", ["x"], ["y"], blocksize=2, mode="CRD")],
        [value("x", [1, 1, 4, 4])],
        ["y"],
        opsets=[helper.make_opsetid("", 27)],
    )
    try:
        run(made, np.zeros((1, 1, 4, 4), np.float32))
    except UnsupportedError as error:
        assert "mode" in str(error)  # noqa: PT017  (a rule that supports the mode is fine too)


def test_external_data_beside_the_model_is_read(tmp_path: Path) -> None:
    made = model([node("Add", ["x", "w"], ["y"])], [value("x", [2])], ["y"], {"w": np.array([5, 6], np.float32)})
    tensor = made.graph.initializer[0]
    (tmp_path / "weights.bin").write_bytes(b"skip" + tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", "weights.bin"), ("offset", "4"), ("length", "8")):
        tensor.external_data.add(key=key, value=text)
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    module, _ = from_onnx(tmp_path / "m.onnx")
    np.testing.assert_array_equal(evaluate(module["main"], [np.zeros(2, np.float32)]), [5, 6])


def test_renamed_model_is_written(tmp_path: Path) -> None:
    made = model([node("Relu", ["x"], ["y"])], [value("x", [2])], ["y"])
    from_onnx(made, export_node_renamed_model_path=tmp_path / "named.onnx")
    again = ModelProto.FromString((tmp_path / "named.onnx").read_bytes())
    assert again.graph.node[0].name == "Relu_0"


def test_unknown_convert_config_is_refused() -> None:
    made = model([node("Relu", ["x"], ["y"])], [value("x", [2])], ["y"])
    with pytest.raises(ConfigError, match="use_magic"):
        from_onnx(made, convert_config={"use_magic": True})


def test_a_chain_of_5000_nodes_is_imported() -> None:
    nodes = [node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(5000)]
    function = from_onnx(model(nodes, [value("t0", [2])], ["t5000"]))[0]["main"]
    assert function.body.checked_type.shape == (2,)


@pytest.mark.parametrize(
    ("begin", "end", "step", "want"),
    [(-9, -8, -1, [0.0]), (-4, -9, -2, [0.0]), (-9, -2, -1, []), (5, -9, -2, [2.0, 0.0]), (-9, 9, 2, [0.0, 2.0])],
)
def test_a_slice_that_walks_backwards_begins_at_the_first_element_at_least(
    begin: int, end: int, step: int, want: list[float]
) -> None:
    """ONNX's rule, unlike numpy's: starts are clamped to [0, size - 1] where the step is negative."""
    weights = {"s": np.array([begin]), "e": np.array([end]), "a": np.array([-1]), "t": np.array([step])}
    made = model([node("Slice", ["x", "s", "e", "a", "t"], ["y"])], [value("x", [1, 3])], ["y"], weights)
    np.testing.assert_array_equal(run(made, np.arange(3, dtype=np.float32)[None]), [want])
