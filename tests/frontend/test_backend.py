"""ONNX's backend interface: shapes and shape-like values are specialised, refusals are UnsupportedErrors."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from armillary.backend import ArmillaryBackend, prepare, run_model, run_node, supports_device
from armillary.backend.score import case_data, counts, judge, load_cases, run_suite
from armillary.errors import ArmillaryError, ExecutionError, UnsupportedError

FLOOR = 1978  # of 2033
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


def test_a_quarter_of_the_suite_has_no_wrong_answer_by_the_references() -> None:
    """Drawn: the importer is seen by compiled code on every case below, the references by the operator matrix."""
    cases = load_cases()
    drawn = random.Random(20).sample(sorted(cases), len(cases) // 4)
    found = run_suite({name: cases[name] for name in drawn}, "reference", jobs=2, timeout=120)
    results = {r.case: r for r in found}
    wrong = [(r.case, r.reason) for r in results.values() if r.status not in ("passed", "unsupported")]
    assert not wrong, wrong
    assert counts(results)["all"]["passed"] >= len(drawn) * FLOOR // len(cases) - 10 and len(drawn) > 500


@pytest.mark.long
@pytest.mark.parametrize("engine", [pytest.param("reference", marks=pytest.mark.slow), "armillary"])
def test_the_suite_passes_the_floor_without_a_wrong_answer(engine: str) -> None:
    results = {r.case: r for r in run_suite(load_cases(), engine, jobs=2, timeout=120)}
    table = counts(results)["all"]
    wrong = [(r.case, r.reason) for r in results.values() if r.status not in ("passed", "unsupported")]
    assert not wrong, wrong
    assert table["passed"] >= FLOOR, table
    assert table["passed"] + table["unsupported"] == len(results) > 2000


def test_a_shorter_sequence_is_a_wrong_answer() -> None:
    (case,) = load_cases("node/test_sequence_insert_at_back$").values()
    inputs, outputs = case.data_sets[0]
    broken = type(case)(**{**vars(case), "data_sets": [(inputs, [outputs[0][:-1]])]})
    result = judge("node/test_sequence_insert_at_back", broken, "reference")
    assert result.status == "failed" and "sequences of" in result.reason
