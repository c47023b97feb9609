"""The benchmarks build what they say, measure real engines, and go on where they were interrupted."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import onnxruntime
import pytest
from networks import NETWORKS, build, inputs_file, network_file
from onnx import TensorProto, helper, numpy_helper
from plots import Panel, Series, svg
from processes import EngineFailed, Process, Results, difference, prepare, run_task

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
PARAMETERS = {"resnet18": 11_689_512, "resnet50": 25_557_032, "mobilenet_v1": 4_231_976, "squeezenet1_1": 1_235_496}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A convolution, a rectifier and a mean: small enough to compile in a second."""
    random = np.random.default_rng(0)
    weight = numpy_helper.from_array(random.standard_normal((16, 3, 3, 3)).astype(np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["input", "w"], ["c"], name="c", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], name="r"),
        helper.make_node("GlobalAveragePool", ["r"], ["g"], name="g"),
        helper.make_node("Flatten", ["g"], ["output"], name="f"),
    ]
    x = helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, 16, 16])
    y = helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 16])
    made = helper.make_model(helper.make_graph(nodes, "tiny", [x], [y], [weight]))
    made.opset_import[0].version, made.ir_version = 17, 8
    onnx.save(made, str(tmp_path / "tiny.onnx"))
    return tmp_path / "tiny.onnx"


def run(script: str, *arguments: str) -> str:
    """The output of a benchmark, which must succeed."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_networks_have_the_published_number_of_parameters(name: str) -> None:
    model = build(name, side=32)
    onnx.checker.check_model(model)
    statistics = {i for node in model.graph.node if node.op_type == "BatchNormalization" for i in node.input[3:]}
    bounds = {i for node in model.graph.node if node.op_type == "Clip" for i in node.input[1:]}
    trained = [w for w in model.graph.initializer if w.name not in statistics | bounds]
    assert sum(math.prod(w.dims) for w in trained) == PARAMETERS[name]


def test_a_network_keeps_the_scale_of_its_input(tmp_path: Path) -> None:
    path = network_file("mobilenet_v1", batch=2, side=64, folder=tmp_path)
    assert network_file("mobilenet_v1", batch=2, side=64, folder=tmp_path) == path
    with np.load(inputs_file(path, tmp_path)) as inputs:
        arrays = dict(inputs)
    (result,) = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, arrays)
    assert result.shape == (2, 1000) and 0.05 < np.std(result) < 50
    assert np.abs(result[0] - result[1]).max() > 0.05 * np.std(result)


def test_an_unknown_network_is_refused_by_name() -> None:
    with pytest.raises(SystemExit, match=r"there is no network 'alexnet': give an \.onnx file or one of resnet18"):
        network_file("alexnet")
    assert set(NETWORKS) >= set(PARAMETERS)


def test_processes_load_packages_answer_in_turns_and_agree(model: Path, tmp_path: Path) -> None:
    outputs = []
    for engine in ("armillary", "onnxruntime"):
        with Process(run_task(engine, model, 1, tmp_path), 1) as process:
            outputs.append(process.output)
            assert all(ms > 0 for ms in process.turn(0.01))
            assert 10 < process.start["peak_mb"] < 1000 and process.start["process_s"] >= process.start["first_s"]
    assert difference(outputs[0], outputs[1]) < 1e-5
    with pytest.raises(EngineFailed, match="onnxruntime ended with status 1"):
        Process(["run", "onnxruntime", str(tmp_path / "none.onnx"), str(inputs_file(model, tmp_path)), "1"], 1)
    with pytest.raises(EngineFailed, match=r"armillary cannot prepare none\.onnx"):
        prepare("armillary", tmp_path / "none.onnx", tmp_path)


def test_differences_are_relative_to_the_largest_value() -> None:
    assert difference(np.array([1.0, 4.0]), np.array([1.0, 5.0])) == 0.2
    assert difference(np.zeros(3), np.zeros(4)) == math.inf


def test_results_are_complete_at_every_moment(tmp_path: Path) -> None:
    results = Results(tmp_path / "r.json", ("a", "b"))
    results.add({"a": 1, "b": 1, "ms": 3.0})
    results.add({"a": 1, "b": 2, "ms": 4.0})
    results.add({"a": 1, "b": 1, "ms": 5.0})
    again = Results(tmp_path / "r.json", ("a", "b"))
    assert [row["ms"] for row in again.rows] == [4.0, 5.0]
    assert again.has(a=1, b=2) and not again.has(a=2)
    assert Results(tmp_path / "r.json", ("a", "b"), fresh=True).rows == []
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_compare_prints_ratios_and_does_not_measure_twice(model: Path, tmp_path: Path) -> None:
    arguments = [str(model), "--engines", "armillary,onnxruntime", "--threads", "1", "--rounds", "1"]
    arguments += ["--seconds", "0.02", "--folder", str(tmp_path), "--json", str(tmp_path / "c.json")]
    first = run("compare.py", *arguments)
    assert "tiny, 1 thread" in first and "armillary" in first and "WRONG" not in first
    assert run("compare.py", *arguments) == first
    assert {row["engine"] for row in json.loads((tmp_path / "c.json").read_text())["rows"]} == {
        "armillary", "onnxruntime",
    }  # fmt: skip


def test_resources_measure_start_compile_size_and_memory(model: Path, tmp_path: Path) -> None:
    arguments = [str(model), "--engines", "armillary,onnxruntime", "--threads", "1", "--repeat", "1"]
    out = run("resources.py", *arguments, "--folder", str(tmp_path))
    assert "cached s" in out and "floor" in out
    rows = {row["engine"]: row for row in json.loads((tmp_path / "resources.json").read_text())["rows"]}
    own = rows["armillary"]
    assert own["start_s"] >= own["load_s"] + own["first_s"] and own["direct_s"] > own["start_s"]
    assert own["bytes"] > 16 * 27 * 4 and rows["onnxruntime"]["bytes"] == model.stat().st_size
    assert run("resources.py", *arguments, "--folder", str(tmp_path)).count("armillary") == out.count("armillary")


def test_scaling_writes_a_page_and_names_what_grows_faster(tmp_path: Path) -> None:
    arguments = ["squeezenet1_1", "--axes", "side", "--sides", "32,64", "--rounds", "1", "--seconds", "0.02"]
    arguments += ["--engines", "onnxruntime", "--folder", str(tmp_path)]
    out = run("scaling.py", *arguments)
    assert "ms per image by side" in out and "Nothing scales worse." in out
    page = (tmp_path / "scaling.html").read_text("utf-8")
    assert page.count("<svg") == 1 and page.count("<circle") == 2
    assert "http" not in page.replace("http://www.w3.org", "")


def test_growth_is_judged_against_batch_1() -> None:
    from scaling import Case, notable

    def row(engine: str, batch: int, ms: float) -> dict[str, object]:
        facts = {"network": "n", "batch": batch, "side": 224, "threads": 1}
        return facts | {"engine": engine, "median_ms": ms}

    cases = [Case("n", 1, 224, 1), Case("n", 8, 224, 1)]
    rows = [row("armillary", 1, 5.0), row("onnxruntime", 1, 10.0), row("onnxruntime", 8, 80.0)]
    engines = ["armillary", "onnxruntime"]
    assert notable([*rows, row("armillary", 8, 42.0)], "batch", cases, engines, 0.1) == []
    (line,) = notable([*rows, row("armillary", 8, 64.0)], "batch", cases, engines, 0.1)
    assert "n batch 8, 1 threads: 8.000 ms per image, onnxruntime 10.000" in line and "0.80, at batch 1 0.50" in line


def test_plots_are_well_formed_and_keep_points_inside() -> None:
    lines = [Series("a<b", 0, 0, [(1.0, 2.0), (64.0, 300.0)]), Series("flat", 1, 1, [(1.0, 7.0), (8.0, 7.0)])]
    text = svg(Panel("p", "batch", "ms", lines))
    root = ElementTree.fromstring(text)
    circles = [c for c in root.iter() if c.tag.endswith("circle")]
    assert len(circles) == 4
    assert all(0 < float(c.get("cx", 0)) < 520 and 0 < float(c.get("cy", 0)) < 320 for c in circles)
    assert svg(Panel("p", "batch", "ms", [])) == ""
