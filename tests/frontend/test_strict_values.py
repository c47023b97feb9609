"""Positions out of range, divisors of 0 and impossible arguments are refused when importing, or when it runs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

from armillary.contrib.graph_executor import GraphModule
from armillary.driver.build import build
from armillary.errors import ArmillaryError, ExecutionError, TypeMismatch
from armillary.frontend import from_onnx
from armillary.runtime import cpu
from armillary.transform import PassContext

X = np.arange(12, dtype=np.float32).reshape(3, 4)
I64 = np.int64
# operator, attributes, inputs (the second is the one that is wrong), and what the error says of it
WRONG: dict[str, tuple[str, dict[str, Any], list[np.ndarray], str]] = {
    "gather beyond": ("Gather", {}, [X, np.array([0, 3], I64)], r"index 3 is not in \[-3, 2\]"),
    "gather below": ("Gather", {"axis": 1}, [X, np.array([0, -5], np.int32)], r"index -5 is not in \[-4, 3\]"),
    "gather elements": ("GatherElements", {"axis": 1}, [X, np.array([[4, 0]], I64)], r"index 4 is not in \[-4, 3\]"),
    "gather nd": ("GatherND", {}, [X, np.array([[0, 3], [2, 4]], I64)], r"index \(component 1\) 4 is not in \[-4, 3\]"),
    "gather nd, batches": (
        "GatherND",
        {"batch_dims": 1},
        [X, np.array([[0], [7], [1]], I64)],
        r"index 7 is not in \[-4, 3\]",
    ),
    "scatter elements": (
        "ScatterElements",
        {},
        [X, np.array([[9, 0]], I64), np.ones((1, 2), "float32")],
        r"index 9 is not in \[-3, 2\]",
    ),
    "scatter nd": (
        "ScatterND",
        {},
        [X, np.array([[1], [-4]], I64), np.ones((2, 4), np.float32)],
        r"index -4 is not in \[-3, 2\]",
    ),
    "reverse sequence": (
        "ReverseSequence",
        {"time_axis": 1, "batch_axis": 0},
        [X, np.array([1, 5, 2], I64)],
        r"length of a sequence 5 is not in \[0, 4\]",
    ),
    "roi align": (
        "RoiAlign",
        {"sampling_ratio": 2},
        [np.ones((2, 1, 4, 4), np.float32), np.ones((1, 4), np.float32), np.array([2], I64)],
        r"batch index 2 is not in \[0, 1\]",
    ),
    "division": ("Div", {}, [np.array([7, 8], np.int32), np.array([2, 0], np.int32)], "divisor 0 is not allowed"),
    "remainder": ("Mod", {}, [np.array([7, 8], I64), np.array([0, 3], I64)], "divisor 0 is not allowed"),
}
RIGHT: dict[str, tuple[str, dict[str, Any], list[np.ndarray]]] = {
    "gather": ("Gather", {}, [X, np.array([-3, 2], I64)]),
    "gather elements": ("GatherElements", {"axis": 1}, [X, np.array([[-4, 3]] * 3, I64)]),
    "gather nd": ("GatherND", {}, [X, np.array([[0, 3], [-3, -4]], I64)]),
    "scatter elements": ("ScatterElements", {}, [X, np.array([[2, -3]], I64), np.ones((1, 2), np.float32)]),
    "scatter nd": ("ScatterND", {}, [X, np.array([[1], [-3]], I64), np.ones((2, 4), np.float32)]),
    "reverse": ("ReverseSequence", {"time_axis": 1, "batch_axis": 0}, [X, np.array([1, 4, 2], I64)]),
    "division": ("Div", {}, [np.array([7, 8], np.int32), np.array([2, -1], np.int32)]),
}


def model(op: str, attributes: dict[str, Any], values: list[np.ndarray], given: tuple[int, ...]) -> ModelProto:
    """One node; inputs of the numbers in `given` are the graph's, the others are constants."""
    names = [f"i{k}" for k in range(len(values))]
    inputs = [
        helper.make_tensor_value_info(names[k], helper.np_dtype_to_tensor_dtype(values[k].dtype), values[k].shape)
        for k in given
    ]
    output = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(values[0].dtype), None)
    tensors = [numpy_helper.from_array(v, n) for k, (n, v) in enumerate(zip(names, values)) if k not in given]
    node = helper.make_node(op, names, ["y"], name="the_node", **attributes)
    graph = helper.make_graph([node], "g", inputs, [output], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(made: ModelProto, values: list[np.ndarray], level: int = 3, strict: str = "auto") -> np.ndarray:
    with PassContext(opt_level=level, config={"strict.values": strict}):
        graph = GraphModule(build(from_onnx(made)[0], "llvm")["default"](cpu(0)))
    for info in made.graph.input:
        graph.set_input(info.name, values[int(info.name[1:])])
    graph.run()
    result: np.ndarray = graph.get_output(0).numpy()
    return result


@pytest.mark.parametrize("name", WRONG)
def test_constants_out_of_range_are_refused_when_importing(name: str) -> None:
    op, attributes, values, told = WRONG[name]
    with pytest.raises(TypeMismatch, match=f"{op} node 'the_node': {told}"):
        from_onnx(model(op, attributes, values, (0,)))


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("name", WRONG)
def test_values_out_of_range_end_the_run(name: str, level: int) -> None:
    op, attributes, values, told = WRONG[name]
    with pytest.raises(ExecutionError, match=rf"(?s)node the_node.*{op}: {told}"):
        run(model(op, attributes, values, tuple(range(len(values)))), values, level)


@pytest.mark.parametrize("strict", ["auto", "always", "never"])
@pytest.mark.parametrize("name", RIGHT)
def test_values_in_range_are_as_the_reference_has_them(name: str, strict: str) -> None:
    from onnx.reference import ReferenceEvaluator  # imported late: it takes a second

    op, attributes, values = RIGHT[name]
    made = model(op, attributes, values, tuple(range(len(values))))
    wanted = ReferenceEvaluator(made).run(None, {f"i{k}": v for k, v in enumerate(values)})[0]
    np.testing.assert_array_equal(run(made, values, strict=strict), wanted)


def test_the_check_can_be_switched_off_and_costs_nothing_then() -> None:
    op, attributes, values, _ = WRONG["gather beyond"]
    made = model(op, attributes, values, (0, 1))
    assert run(made, values, strict="never").shape == (2, 4)
    with PassContext(opt_level=3, config={"strict.values": "never"}):
        kernels = build(from_onnx(made)[0], "llvm").kernels
    assert not any("check_values" in kernel for kernel in kernels)


def test_a_check_of_every_element_is_left_out_unless_it_is_asked_for() -> None:
    values = [np.zeros((60, 60), np.float32), np.full((60, 60), 99, I64)]
    made = model("GatherElements", {"axis": 1}, values, (0, 1))
    assert run(made, values).shape == (60, 60)
    with pytest.raises(ExecutionError, match="index 99 is not in"):
        run(made, values, strict="always")


@pytest.mark.parametrize(
    ("op", "attributes", "second", "told"),
    [
        ("TopK", {}, np.array([-1], I64), "k is -1, wanted 0 to 4"),
        ("TopK", {}, np.array([5], I64), "k is 5, wanted 0 to 4"),
        ("Pad", {}, np.array([-100, 0, 0, 0], I64), r"pads \(-100, 0\) cut more from axis 0 than its 3 elements"),
        ("Pad", {}, np.array([0, -2, 0, -3], I64), r"pads \(-2, -3\) cut more from axis 1 than its 4 elements"),
    ],
)
def test_impossible_arguments_are_refused(op: str, attributes: dict[str, Any], second: np.ndarray, told: str) -> None:
    made = model(op, attributes, [X, second], (0,))
    if op == "TopK":
        made.graph.node[0].output.append("z")
    with pytest.raises(ArmillaryError, match=f"{op} node 'the_node': {told}"):
        from_onnx(made)


EMBEDDED = [
    np.array([[0, 2], [1, 0]], np.int32),
    np.array([[0, 1], [1, 0]], np.int32),
    *(np.ones(shape, np.float32) for shape in ((3, 4), (2, 4), (2, 4), (4,), (4,))),
]
OTHER_DOMAINS = {
    "words": ("com.microsoft", "EmbedLayerNormalization", EMBEDDED, 0, r"word 3 is not in \[0, 2\]"),
    "segments": ("com.microsoft", "EmbedLayerNormalization", EMBEDDED, 1, r"segment -1 is not in \[0, 1\]"),
    "columns": ("ai.onnx.ml", "ArrayFeatureExtractor", [X, np.array([1], I64)], 1, r"column -2 is not in \[0, 3\]"),
}


@pytest.mark.parametrize("name", OTHER_DOMAINS)
def test_numbers_of_rows_in_other_domains_are_checked(name: str) -> None:
    """ONNX Runtime counts none of them from the end."""
    domain, op, right, place, told = OTHER_DOMAINS[name]
    wrong = list(right)
    wrong[place] = np.full_like(right[place], int(re.findall(r"-?\d+", told)[0]))
    for given in ((), (place,)):
        made = model(op, {}, wrong, given)
        made.graph.node[0].domain = domain
        made.opset_import.append(helper.make_opsetid(domain, 1))
        if not given:
            with pytest.raises(TypeMismatch, match=told):
                from_onnx(made)
            continue
        with pytest.raises(ExecutionError, match=told):
            run(made, wrong)
        run(made, right)
