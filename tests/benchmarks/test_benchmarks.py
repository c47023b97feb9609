"""The benchmarks build what they say, measure real engines, and go on where they were interrupted."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import onnxruntime
import pytest
from gpu_race import Race
from gpu_tune import mobilenet_v2
from models import Model, fixed_file, inputs_file
from networks import NETWORKS, build, network_file
from onnx import TensorProto, helper, numpy_helper
from opencl_device import needs_opencl
from plots import Panel, Series, svg
from processes import EngineFailed, Process, Results, Task, difference, package_of, prepare, run_task

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
    outputs, tiny = [], Model("tiny", model, inputs_file(model, tmp_path))
    for engine in ("armillary", "onnxruntime"):
        with Process(run_task(engine, tiny, 1, tmp_path), 1) as process:
            outputs.append(process.outputs)
            assert all(ms > 0 for ms in process.turn(0.01))
            assert 10 < process.start["peak_mb"] < 1000 and process.start["process_s"] >= process.start["first_s"]
    assert difference(outputs[0], outputs[1]) < 1e-5
    assert not list(tmp_path.glob("outputs-*"))
    with pytest.raises(EngineFailed, match=r"onnxruntime: NoSuchFile: .*none\.onnx"):
        Process(["run", "onnxruntime", str(tmp_path / "none.onnx"), str(tiny.inputs), "1"], 1)
    with pytest.raises(EngineFailed, match=r"armillary: ModelError: .*none\.onnx"):
        prepare("armillary", tmp_path / "none.onnx", tmp_path)


def test_an_engine_that_dies_or_says_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "engine.py"
    monkeypatch.setattr("processes.SCRIPT", script)
    script.write_text("import os, sys\nprint('no such kernel', file=sys.stderr, flush=True)\nos.abort()")
    task = Task(["run", "mnn"], {})
    with pytest.raises(EngineFailed, match="mnn: the process ended with signal SIGABRT after saying no such kernel"):
        task.answer()
    task.close()
    script.write_text("import sys, time\nsys.stderr.write('x' * 1_000_000)\ntime.sleep(100)")
    task = Task(["run", "mnn"], {})
    with pytest.raises(EngineFailed, match="mnn: no answer within 1 seconds"):
        task.answer(patience=1.0)
    task.close()


def test_an_engine_that_is_not_installed_says_what_to_install() -> None:
    from engines import Engine

    engine = Engine(lambda model, folder: model, lambda *_: list, ("numpy", "no_such_engine"))
    assert engine.missing().startswith("not installed: pip install no_such_engine (for ")


def save_gather(path: Path, length: int | str = "S", inner: int = 4) -> Path:
    """A table look-up of integers times a mask: two inputs, two outputs, one open size."""
    table = numpy_helper.from_array(np.arange(8 * inner, dtype=np.float32).reshape(8, inner), "t")
    nodes = [
        helper.make_node("Gather", ["t", "ids"], ["e"]),
        helper.make_node("Mul", ["e", "mask"], ["y"]),
        helper.make_node("ReduceSum", ["y"], ["z"], keepdims=0),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, length])
    mask = helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1, length, 1])
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, length, inner]),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, []),
    ]
    made = helper.make_model(helper.make_graph(nodes, "g", [ids, mask], outputs, [table]))
    made.opset_import[0].version, made.ir_version = 17, 8
    path.parent.mkdir(exist_ok=True)
    onnx.save(made, str(path))
    return path


def test_open_sizes_are_fixed_in_a_copy_that_runs_everywhere(tmp_path: Path) -> None:
    path = save_gather(tmp_path / "gather.onnx")
    with pytest.raises(SystemExit, match=r"'ids' has the open shape \[1,S\]; .* --input-shapes \"ids:\[1,1\]\""):
        fixed_file(str(path), tmp_path)
    with pytest.raises(SystemExit, match=r"the size 'S' cannot be both 5 and 6"):
        fixed_file(str(path), tmp_path, {"ids": (1, 5), "mask": (1, 6, 1)})
    with pytest.raises(SystemExit, match=r"there is no input 'x'; the inputs are ids, mask"):
        fixed_file(str(path), tmp_path, {"x": (1, 5)})
    with pytest.raises(SystemExit, match=r"'ids' has the shape \[1,S\], got \[2, 5\]"):
        fixed_file(str(path), tmp_path, {"ids": (2, 5), "mask": (1, 5, 1)})
    fixed = fixed_file(str(path), tmp_path, {"ids": (1, 5), "mask": (1, 5, 1)})
    assert fixed_file(str(fixed), tmp_path) == fixed != path
    with np.load(inputs_file(fixed, tmp_path)) as inputs:
        assert inputs["ids"].dtype == np.int64 and set(inputs["ids"].ravel()) <= {0, 1}
        assert inputs["mask"].dtype == np.float32 and inputs["mask"].shape == (1, 5, 1)
    gather = Model("gather", fixed, inputs_file(fixed, tmp_path))
    tasks = [run_task(engine, gather, 1, tmp_path) for engine in ("armillary", "onnxruntime")]
    with Process(tasks[0], 1) as own, Process(tasks[1], 1) as other:
        assert [o.size for o in own.outputs] == [20, 1] and difference(own.outputs, other.outputs) < 1e-6


def test_given_inputs_are_checked_by_name_type_and_shape(tmp_path: Path) -> None:
    path = save_gather(tmp_path / "gather.onnx", 3)
    given = tmp_path / "given.npz"
    np.savez(given, ids=np.array([[7, 0, 3]]))
    with np.load(inputs_file(path, tmp_path, given)) as inputs:
        assert inputs["ids"].tolist() == [[7, 0, 3]] and inputs["mask"].shape == (1, 3, 1)
    np.savez(given, ids=np.array([7, 0, 3]))
    with pytest.raises(SystemExit, match=r"'ids' is int64 \[3\]; the model takes int64 \[1, 3\]"):
        inputs_file(path, tmp_path, given)
    np.savez(given, idx=np.array([[7, 0, 3]]))
    with pytest.raises(SystemExit, match=r"there is no input 'idx'"):
        inputs_file(path, tmp_path, given)
    given.write_bytes(b"x")
    with pytest.raises(SystemExit, match=r"given\.npz: cannot be read as \.npz"):
        inputs_file(path, tmp_path, given)


@pytest.mark.parametrize("script", ["compare.py", "resources.py", "compile_time.py"])
def test_a_broken_or_missing_model_is_refused_by_name(script: str, model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(model.read_bytes()[:300])
    for path, why in ((broken, "cannot be read as ONNX"), (tmp_path / "none.onnx", "there is no file")):
        done = subprocess.run(
            [sys.executable, str(BENCHMARKS / script), str(path)], capture_output=True, text=True, check=False
        )
        assert done.returncode and why in done.stderr and path.name in done.stderr and "Traceback" not in done.stderr


def test_two_models_of_one_name_have_packages_of_their_own(tmp_path: Path) -> None:
    paths = [save_gather(tmp_path / folder / "model.onnx", 3, inner) for folder, inner in (("a", 4), ("b", 6))]
    models = [Model("model", path, inputs_file(path, tmp_path)) for path in paths]
    assert len({m.inputs for m in models}) == len({package_of("armillary", m, tmp_path) for m in models}) == 2


def test_differences_are_relative_to_the_largest_value_of_each_output() -> None:
    assert difference([np.array([1.0, 4.0])], [np.array([1.0, 5.0])]) == 0.2
    assert difference([np.array([1.0]), np.array([3])], [np.array([1.0]), np.array([4])]) == 0.25
    assert difference([np.zeros(3)], [np.zeros(4)]) == difference([np.zeros(3)], []) == math.inf
    odd = np.array([np.nan, np.inf, 2.0])
    assert difference([odd], [odd]) == 0.0 and difference([np.array([True])], [np.array([True])]) == 0.0
    assert math.isnan(difference([odd], [np.array([1.0, np.inf, 2.0])]))


def test_a_row_older_than_what_it_ran_is_measured_again(model: Path, tmp_path: Path) -> None:
    tiny = Model("tiny", model, inputs_file(model, tmp_path))
    results = Results(tmp_path / "r.json", ("file", "engine"))
    results.add({"file": str(model.resolve()), "engine": "onnxruntime"})
    assert results.measured("onnxruntime", tiny) and not results.measured("openvino", tiny)
    os.utime(model, (time.time() + 10, time.time() + 10))
    assert not results.measured("onnxruntime", tiny)
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(SystemExit, match=r"other\.json: not a result file"):
        Results(tmp_path / "other.json", ("file",))


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
        "armillary",
        "onnxruntime",
    }


def test_speed_ups_are_of_turns_of_one_round() -> None:
    from compare import speed_ups

    def row(engine: str, threads: int, times: list[float]) -> dict[str, object]:
        return {"engine": engine, "threads": threads, "round_ms": times, "min_ms": min(times)}

    rows = [row("mnn", 1, [10.0, 30.0]), row("mnn", 2, [5.0, 20.0])]  # a slow second round
    rows += [row("armillary", 1, [10.0, 32.0]), row("armillary", 2, [5.0, 16.0])]
    failed = {"engine": "ncnn", "threads": 1, "failed": "not installed"}
    assert speed_ups([*rows, failed]) == [("armillary", [2.0, 2.0], 2.0), ("mnn", [1.5, 2.0], 2.0)]


def test_compare_prints_what_more_threads_give(model: Path, tmp_path: Path) -> None:
    out = run(
        "compare.py",
        str(model),
        "--engines",
        "armillary,onnxruntime",
        "--threads",
        "1,2",
        "--rounds",
        "2",
        "--seconds",
        "0.02",
        "--folder",
        str(tmp_path),
        "--json",
        str(tmp_path / "c.json"),
    )
    assert "tiny, 2 threads" in out and "tiny, 1 to 2 threads: times as fast" in out
    rows = json.loads((tmp_path / "c.json").read_text())["rows"]
    assert len(rows) == 4 and all(len(row["round_ms"]) == 2 for row in rows)


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


def test_scaling_takes_an_onnx_file_whose_batch_and_sides_are_open(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "H", "W"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    made = helper.make_model(helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "g", [x], [y], [weight]))
    made.opset_import[0].version, made.ir_version = 17, 8
    onnx.save(made, str(tmp_path / "open.onnx"))
    arguments = [
        str(tmp_path / "open.onnx"),
        "--axes",
        "side",
        "--sides",
        "32,33",
        "--rounds",
        "1",
        "--seconds",
        "0.01",
    ]
    assert "WRONG" not in run("scaling.py", *arguments, "--folder", str(tmp_path))
    rows = json.loads((tmp_path / "scaling.json").read_text())["rows"]
    assert {(row["side"], row["engine"]) for row in rows} == {(s, e) for s in (32, 33) for e in rows_engines(rows)}
    assert all(row["difference"] < 1e-5 for row in rows)


def rows_engines(rows: list[dict[str, str]]) -> set[str]:
    """The engines of a result file: both that were asked for."""
    engines = {row["engine"] for row in rows}
    assert engines == {"armillary", "onnxruntime"}
    return engines


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
    assert "n batch 8, 1 thread: 8.000 ms per image, onnxruntime 10.000" in line and "0.80, at batch 1 0.50" in line


def test_plots_are_well_formed_and_keep_points_inside() -> None:
    lines = [Series("a<b", 0, 0, [(1.0, 2.0), (64.0, 300.0)]), Series("flat", 1, 1, [(1.0, 7.0), (8.0, 7.0)])]
    text = svg(Panel("p", "batch", "ms", lines))
    root = ElementTree.fromstring(text)
    circles = [c for c in root.iter() if c.tag.endswith("circle")]
    assert len(circles) == 4
    assert all(0 < float(c.get("cx", 0)) < 520 and 0 < float(c.get("cy", 0)) < 320 for c in circles)
    assert svg(Panel("p", "batch", "ms", [])) == ""


def test_mobilenet_v2_has_the_published_number_of_parameters() -> None:
    _, params = mobilenet_v2()
    counted = [math.prod(a.shape) for name, a in params.items() if not name.endswith(("_mean", "_var"))]
    assert sum(counted) == 3_504_872


@pytest.mark.slow
@needs_opencl
def test_a_network_is_tuned_on_a_device_and_a_second_call_goes_on(model: Path, tmp_path: Path) -> None:
    options = ["--networks", str(model), "--folder", str(tmp_path / "records"), "--batch", "2", "--rounds", "2"]
    message = run("gpu_tune.py", *options, "--minutes", "0.02", "--repeat-ms", "0")
    made = re.search(r"\| (\d+) \| 0 \| \d+ \| [0-9.e-]+ \|$", message, re.MULTILINE)
    assert "0 trials at hand" in message and made is not None, message
    message = run("gpu_tune.py", *options, "--only-table")
    (table,) = (tmp_path / "records").glob("*/table.json")
    (row,) = json.loads(table.read_text())
    assert (row["trials"], row["failed"], row["tasks"]) == (int(made[1]), 0, 1) and row["error"] < 1e-4
    assert row["trials"] in range(2, 200, 2), "batches of two, as many as the time allows"


@pytest.mark.slow
@needs_opencl
def test_a_network_is_raced_tuned_and_raced_again(model: Path, tmp_path: Path) -> None:
    options = ["--networks", str(model), "--folder", str(tmp_path), "--rounds", "2", "--tune", "1", "--seconds", "280"]
    message = run("gpu_race.py", *options)
    rows = json.loads((tmp_path / "race.json").read_text())[str(model)]
    assert {"made", "default", "tuning", "tuned", "textures"} <= set(rows) and "nothing failed" in message
    assert all(rows[what]["error"] < 1e-4 for what in ("default", "tuned", "textures"))
    assert rows["default"]["programs"] > 1 and rows["tuning"]["trials"] >= 1 == rows["compiled tuned"]["tasks"]
    assert rows["tuned"]["to_default"] > 0 and (tmp_path / "tiny.log").exists()


def test_a_second_race_takes_over_what_is_measured_once_on_the_same_device(tmp_path: Path) -> None:
    rows = {"n": {"made": {"device": "A"}, "textures": {"ms": 2.0}, "tinygrad": {"failed": "no"}, "tuned": {"ms": 1.0}}}
    (tmp_path / "race.json").write_text(json.dumps(rows))
    race = Race(argparse.Namespace(networks="n,m", seconds=60.0), tmp_path, tmp_path)
    race.keep("n", "made", {"device": "B"})
    assert not race.done("n", "textures")  # another device's
    race.keep("n", "made", {"device": "A"})
    assert race.done("n", "textures") and race.rows["n"]["textures"] == {"ms": 2.0}
    assert not any(race.done(*what) for what in (("n", "tinygrad"), ("n", "tuned"), ("m", "textures")))
