"""armc bench: figures of every lane, outputs compared, a trace that viewers read, and refusals by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from armillary.backend.bench.race import difference, race
from armillary.cli.main import main


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    weight = numpy_helper.from_array(np.random.default_rng(5).standard_normal((64, 32)).astype(np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 32])],
        [weight],
    )
    path = tmp_path_factory.mktemp("bench") / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_lanes_have_figures_and_the_trace_names_kernels(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, trace = tmp_path / "figures.json", tmp_path / "trace.json"
    options = ["--against", "onnxruntime", "--threads", "1", "--rounds", "2", "--seconds", "0.05"]
    assert main(["bench", str(model), *options, "--json", str(figures), "--trace", str(trace)]) == 0
    rows = json.loads(figures.read_text())
    assert [(row["engine"], row["threads"], row["streams"]) for row in rows] == [
        ("armillary", 1, 1),
        ("onnxruntime", 1, 1),
    ]
    assert all(0 < row["min_ms"] <= row["p50_ms"] <= row["p90_ms"] <= row["p99_ms"] for row in rows)
    events = json.loads(trace.read_text())["traceEvents"]
    assert any("dense" in event["name"] and event["dur"] > 0 for event in events if event["ph"] == "X")
    shown = capsys.readouterr().out
    assert "p99" in shown and "ours / it" in shown and "!" not in shown


def test_two_streams_do_more_than_nothing_and_outputs_agree(model: Path) -> None:
    x = np.ones((4, 64), np.float32)
    lanes = race({"onnxruntime": str(model)}, {"x": x}, [1], [2], 1, 0.05)
    weight = np.random.default_rng(5).standard_normal((64, 32)).astype(np.float32)
    assert len(lanes[0].times) >= 2 and lanes[0].per_second > 0
    assert difference(lanes[0].outputs, [np.maximum(x @ weight, 0)]) < 1e-5
    assert difference(lanes[0].outputs, [np.zeros((4, 32), np.float32)]) > 1


def test_a_lane_that_cannot_load_says_why(tmp_path: Path) -> None:
    (tmp_path / "no.onnx").write_bytes(b"no model")
    lanes = race({"onnxruntime": str(tmp_path / "no.onnx")}, {}, [1], [1], 1, 0.05)
    assert "no.onnx" in lanes[0].failed and not lanes[0].times


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--against", "foo"], "there is no engine 'foo'"),
        (["--threads", "0"], "--threads '0': wanted whole numbers"),
        (["--seconds", "0"], "--seconds 0.0: wanted more than 0"),
    ],
)
def test_wrong_options_are_refused(
    model: Path, options: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(model), *options]) != 0
    assert text in capsys.readouterr().err
