"""armc view: what is in a package as a table, a page, a picture and a graph that other tools open."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from armillary.artifact import GraphSpec
from armillary.cli.main import main
from armillary.runtime import load_module

MODEL = """
def @main(%x: Tensor[(1, 16, 20, 20), float32], %w: Tensor[(32, 16, 1, 1), float32]) {
  %0 = nn.conv2d(%x, %w);
  %1 = nn.relu(%0);
  nn.max_pool2d(%1, pool_size=[2, 2], strides=[2, 2])
}
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package whose name and input would be markup where they are not escaped."""
    folder = tmp_path_factory.mktemp("view")
    model, path = folder / "small.relay", folder / "a <b> & c.tar"
    model.write_text(MODEL)
    assert main(["compile", str(model), "-o", str(path)]) == 0
    return path


def test_every_step_is_a_row(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(package)]) == 0
    lines = capsys.readouterr().out.splitlines()
    spec = GraphSpec.from_json(load_module(package).graph_json or "")
    steps = [node for node in spec.nodes if node.op != "null"]
    assert len(lines) == 1 + len(steps) + 1
    assert any("max_pool2d" in line and "1x32x10x10 float32" in line for line in lines)
    assert lines[-1].startswith(f"{len(steps)} steps of ")
    assert " ms" not in lines[-1]


def test_page_picture_and_graph_say_the_same(package: Path, tmp_path: Path) -> None:
    html, svg, graph = tmp_path / "v.html", tmp_path / "v.svg", tmp_path / "v.json"
    command = ["view", str(package), "--html", str(html), "--svg", str(svg), "--json", str(graph)]
    assert main([*command, "--times", "--runs", "2"]) == 0
    spec = GraphSpec.from_json(graph.read_text("utf-8"))
    assert json.loads(graph.read_text("utf-8"))["nodes"][0]["name"] == "x"  # as Relay-era tools read it
    boxes = [g for g in ET.fromstring(svg.read_text("utf-8")).iter("{http://www.w3.org/2000/svg}g") if g.get("class")]
    assert len(boxes) == sum(node.op != "null" for node in spec.nodes) + 2 + 1  # x and w, and the output
    page = html.read_text("utf-8")
    assert "a &lt;b&gt; &amp; c.tar" in page
    assert "<b> & c" not in page
    assert "ms</b>" in page


def test_graph_alone_is_shown_and_does_not_run(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = tmp_path / "graph.json"
    graph.write_text(load_module(package).graph_json or "")
    assert main(["view", str(graph)]) == 0
    assert "conv2d" in capsys.readouterr().out
    assert main(["view", str(graph), "--times"]) == 4
    assert "a graph alone does not run" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{}", '{"nodes": [1]}', "[]"])
def test_what_is_no_graph_is_refused(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    assert main(["view", str(path)]) == 4
    assert "Traceback" not in capsys.readouterr().err
