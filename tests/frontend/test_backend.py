"""ONNX's backend interface: shapes and shape-like values are specialised, refusals are UnsupportedErrors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from armillary.backend import ArmillaryBackend, prepare, run_model, run_node, supports_device
from armillary.backend.score import case_data, judge, load_cases, run_suite
from armillary.errors import ArmillaryError, ExecutionError, UnsupportedError

PARTS = 32  # in which the suite runs, each some seconds: a share of them is drawn (tests/draws.py)
REFUSED = Path(__file__).with_name("onnx_refused.txt")
node, value = helper.make_node, helper.make_tensor_value_info


def model(nodes: list[Any], inputs: list[Any]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "net", inputs, [value("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def reshape_model() -> onnx.ModelProto:
    inputs = [value("x", TensorProto.FLOAT, ["n"]), value("s", TensorProto.INT64, [2])]
    return model([node("Reshape", ["x", "s"], ["y"])], inputs)


def test_shape_like_inputs_are_compiled_in_per_value() -> None:
    prepared = prepare(reshape_model(), engine="reference")
    x = np.arange(6, dtype=np.float32)
    assert prepared.run([x, np.array([2, 3])])[0].shape == (2, 3)
    assert prepared.run([x, np.array([3, 2])])[0].shape == (3, 2)
    assert prepared.run({"x": x[:4], "s": np.array([2, 2])}).y.shape == (2, 2)
    assert prepared.static == {"s"}


def test_run_node_runs_one_operator() -> None:
    x = np.array([-1, 2], np.float32)
    (out,) = run_node(node("Relu", ["x"], ["y"]), [x], engine="reference", opset_version=14)
    np.testing.assert_array_equal(out, [0, 2])


def test_unknown_operators_are_refused_before_running() -> None:
    made = model([node("Frobnicate", ["x"], ["y"])], [value("x", TensorProto.FLOAT, [2])])
    with pytest.raises(UnsupportedError, match="Frobnicate"):
        prepare(made)
    assert not ArmillaryBackend.is_compatible(made)


def test_devices_other_than_the_cpu_are_refused() -> None:
    assert supports_device("CPU") and supports_device("CPU:0") and not supports_device("CUDA")
    with pytest.raises(UnsupportedError, match="CUDA"):
        prepare(reshape_model(), "CUDA")


@pytest.mark.parametrize("inputs", [[np.zeros(2, np.float32)], {"x": np.zeros(2, np.float32), "q": np.zeros(2)}])
def test_wrong_inputs_are_refused(inputs: Any) -> None:
    with pytest.raises(ExecutionError):
        run_model(reshape_model(), inputs, engine="reference")


def test_a_sequence_as_input_is_refused() -> None:
    with pytest.raises(ArmillaryError, match="only tensors"):
        run_model(reshape_model(), [[np.zeros(2)], np.array([1, 2])], engine="reference")


def test_a_wrong_answer_counts_as_failed() -> None:
    (case,) = load_cases("node/test_relu$").values()
    broken = type(case)(**{**vars(case), "data_sets": [([case.data_sets[0][0][0]], [case.data_sets[0][0][0]])]})
    result = judge("node/test_relu", broken, "reference")
    assert result.status == "failed" and "Mismatched elements" in result.reason


@pytest.mark.parametrize("outputs", [[], [[]]])
def test_a_case_that_compares_nothing_has_failed(outputs: list[Any]) -> None:
    (case,) = load_cases("node/test_relu$").values()
    data_sets = [(case.data_sets[0][0], [])] if outputs else []
    result = judge("node/test_relu", type(case)(**{**vars(case), "data_sets": data_sets}), "reference")
    assert result.status == "failed" and "nothing to compare" in result.reason


def test_almost_every_case_of_the_suite_compares_elements() -> None:
    """Empty sequences, absent optionals and tensors of size 0 are all there is to compare in a few."""
    empty = [name for name, case in load_cases("", ("node", "simple")).items() if not _elements(case)]
    assert len(empty) <= 20, empty


def _elements(case: Any) -> int:
    if case.model is None:
        return 1
    values = [value for _, outputs in case_data(case)[1] for value in outputs]
    return sum(
        np.size(part)
        for value in values
        for part in (value if isinstance(value, list) else [value])
        if part is not None
    )


def test_a_worker_that_hangs_is_replaced() -> None:
    cases = load_cases("node/test_(relu|abs|add)$")
    results = list(run_suite(cases, "reference", jobs=1, timeout=-1.0))
    assert {r.status for r in results} <= {"timeout", "passed"} and len(results) == 3


def refused_cases() -> dict[str, str]:
    """The cases that are refused, with a word of the reason."""
    refused, word = dict[str, str](), ""
    for line in REFUSED.read_text().splitlines():
        if line.startswith("["):
            word = line[1:-1]
        elif line and not line.startswith("#"):
            refused[line] = word
    return refused


def check_part(part: int, engine: str) -> None:
    """One case in PARTS passes, or is refused in the words that it is listed with."""
    cases, refused = load_cases(), refused_cases()
    names = sorted(cases)[part::PARTS]
    results = [judge(name, cases[name], engine) for name in names]
    found = {r.case: f"{r.status}: {r.reason}" for r in results if r.status != "passed"}
    listed = {name: refused[name] for name in names if name in refused}
    assert found.keys() == listed.keys(), {name: found.get(name, "passes") for name in found.keys() ^ listed.keys()}
    for name, word in listed.items():
        assert found[name].startswith("unsupported: ") and word in found[name], (name, word, found[name])


@pytest.mark.parametrize("part", range(PARTS))
def test_compiled_cases_of_the_suite_pass_but_those_that_are_listed(part: int) -> None:
    check_part(part, "armillary")


@pytest.mark.parametrize("part", range(PARTS))
def test_cases_of_the_suite_pass_by_the_references_but_those_that_are_listed(part: int) -> None:
    check_part(part, "reference")


def test_the_suite_is_as_large_as_it_was_and_holds_what_is_listed() -> None:
    cases, refused = load_cases(), refused_cases()
    assert len(cases) >= 2033 and len(refused) == 53
    assert set(refused) <= set(cases), sorted(set(refused) - set(cases))


def test_a_shorter_sequence_is_a_wrong_answer() -> None:
    (case,) = load_cases("node/test_sequence_insert_at_back$").values()
    inputs, outputs = case.data_sets[0]
    broken = type(case)(**{**vars(case), "data_sets": [(inputs, [outputs[0][:-1]])]})
    result = judge("node/test_sequence_insert_at_back", broken, "reference")
    assert result.status == "failed" and "sequences of" in result.reason
