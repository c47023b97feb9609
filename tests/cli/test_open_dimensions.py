"""Models whose shapes are open are compiled once; commands take sizes, and say which they take by themselves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import armillary
from armillary.cli.main import main
from armillary.contrib.graph_executor import GraphModule
from armillary.frontend.onnx.dimensions import assumed_shapes

value = helper.make_tensor_value_info


def saved(path: Path, *shapes: list[int | str | None]) -> str:
    inputs = [value(f"x{k}", TensorProto.FLOAT, shape) for k, shape in enumerate(shapes)]
    nodes = [helper.make_node("Relu", ["x0"], ["y"])]
    graph = helper.make_graph(nodes, "net", inputs, [value("y", TensorProto.FLOAT, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("open")
    path = folder / "net.tar"
    assert main(["compile", saved(folder / "net.onnx", ["batch", "seq", 4]), "-o", str(path)]) == 0
    return str(path)


def test_a_package_takes_every_size_and_tells_its_shapes(package: str) -> None:
    network = GraphModule(armillary.runtime.load_module(package)["default"](armillary.cpu()))
    for batch, length in ((1, 128), (3, 7)):
        network.run(x0=-np.ones((batch, length, 4), np.float32))
        assert network.get_output(0).shape == (batch, length, 4) and not network.get_output(0).numpy().any()
    assert network.get_input_info()[0] == {"x0": ("batch", "seq", 4)}
    assert network.get_output_info()[0] == {0: ("batch", "seq", 4)}


def test_sessions_over_packages_take_every_size(package: str) -> None:
    session = armillary.InferenceSession(package)
    assert [arg.shape for arg in (*session.get_inputs(), *session.get_outputs())] == [["batch", "seq", 4]] * 2
    for n in (2, 5):
        assert session.run(None, {"x0": np.ones((n, 3, 4), np.float32)})[0].shape == (n, 3, 4)


def test_run_says_which_sizes_it_takes(package: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.npz"
    assert main(["run", package, "--sizes", "seq=9", "-o", str(out)]) == 0
    assert "sizes are taken to be batch=1: --sizes chooses others" in capsys.readouterr().err
    with np.load(out) as outputs:
        assert outputs["output_0"].shape == (1, 9, 4)
    np.savez(tmp_path / "in.npz", x0=np.ones((2, 5, 4), np.float32))
    assert main(["run", package, "-i", str(tmp_path / "in.npz")]) == 0
    assert "taken to be" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sizes", "message"),
    [("past=3", "has no size 'past'"), ("seq", "cannot read 'seq'"), ("seq=4000000000", "lies outside its bounds")],
)
def test_sizes_that_make_no_sense_are_refused(
    package: str, sizes: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", package, "--sizes", sizes]) != 0
    assert message in capsys.readouterr().err


def test_bench_has_a_table_for_each_size(package: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures, quick = tmp_path / "figures.json", ["--rounds", "1", "--seconds", "0.05", "--threads", "1"]
    assert main(["bench", package, "--sizes", "seq=8,16,batch=1", *quick, "--json", str(figures)]) == 0
    rows = json.loads(figures.read_text())
    assert [row["sizes"] for row in rows] == [{"seq": 8, "batch": 1}, {"seq": 16, "batch": 1}]
    assert "seq = 16, batch = 1" in capsys.readouterr().out


def test_devices_take_usual_numbers_which_a_note_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "net.onnx", ["batch", 3, 8, 8])
    assert main(["compile", path, "--target", "c", "-o", str(tmp_path / "net.tar")]) == 0
    assert "batch is taken to be 1: --input-shapes or --variants choose other numbers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ([None, 3, None, None], [(1, 3, 224, 224)]),
        (["batch_size", "seq_len", 768], [(1, 128, 768), (1, 32, 768)]),
        (["n", 3, "height", "width"], [(1, 3, 224, 224)]),
        (["tokens"], [(128,), (32,)]),
        ([4, 5], []),
    ],
)
def test_names_and_places_say_what_a_dimension_is(shape: list[int | str | None], wanted: list[tuple[int, ...]]) -> None:
    message: list[str] = []
    made = assumed_shapes([value("x", TensorProto.FLOAT, shape)], {}, message.append)
    assert [row["x"] for row in made if "x" in row] == wanted
    assert bool(message) == bool(wanted)
