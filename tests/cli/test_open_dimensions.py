"""Models whose shapes are open are compiled for usual numbers, which a note tells; what cannot be told stays open."""

from __future__ import annotations

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


def test_a_batch_is_one_image_and_the_note_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = tmp_path / "net.tar"
    assert main(["compile", saved(tmp_path / "net.onnx", ["batch", 3, 8, 8]), "-o", str(package)]) == 0
    assert "batch is taken to be 1: --input-shapes or --variants choose other numbers" in capsys.readouterr().err
    network = GraphModule(armillary.runtime.load_module(str(package))["default"](armillary.cpu()))
    network.run(x0=-np.ones((1, 3, 8, 8), np.float32))
    assert not network.get_output(0).numpy().any()


def test_sequences_come_in_two_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = tmp_path / "net.tar"
    assert main(["compile", saved(tmp_path / "net.onnx", ["N", "sequence"]), "-o", str(package)]) == 0
    assert "sequence is taken to be 128 or 32" in capsys.readouterr().err
    network = GraphModule(armillary.runtime.load_module(str(package))["default"](armillary.cpu()))
    for length in (128, 32):
        network.run(x0=np.ones((1, length), np.float32))
        assert network.get_output(0).shape == (1, length)


def test_numbers_that_are_given_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "net.onnx", ["batch", 3])
    assert main(["compile", path, "--input-shapes", "x0:[5,3]", "-o", str(tmp_path / "net.tar")]) == 0
    assert "taken to be" not in capsys.readouterr().err


def test_a_dimension_without_a_plain_meaning_stays_open(tmp_path: Path) -> None:
    path, package = saved(tmp_path / "net.onnx", ["batch", 12, "past_sequence_length", 64]), tmp_path / "net.tar"
    assert main(["compile", path, "-o", str(package)]) == 0
    network = GraphModule(armillary.runtime.load_module(str(package))["default"](armillary.cpu()))
    for past in (3, 7):
        network.run(x0=np.full((1, 12, past, 64), -1, np.float32))
        assert network.get_output(0).shape == (1, 12, past, 64) and not network.get_output(0).numpy().any()


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
    told: list[str] = []
    made = assumed_shapes([value("x", TensorProto.FLOAT, shape)], {}, told.append)
    assert [row["x"] for row in made if "x" in row] == wanted
    assert bool(told) == bool(wanted)
