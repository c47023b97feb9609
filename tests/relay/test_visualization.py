"""relay.visualize: the picture holds what the graph holds, and the layout keeps its promises."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from armillary import relay
from armillary.cli.main import main
from armillary.errors import TypeMismatch
from armillary.ir import IRModule
from armillary.relay.expr import Call, Function, If, Let, Tuple, const, var
from armillary.relay.testing import resnet, squeezenet
from armillary.relay.visualization.layout import Layout, arrange
from armillary.relay.visualization.picture import Picture, visualize
from armillary.transform import PassContext

_SVG = "{http://www.w3.org/2000/svg}"


def boxes(picture: Picture) -> list[list[str]]:
    """The lines of text of each box, in drawing order; parsing shows that the SVG is well formed."""
    root = ElementTree.fromstring(picture.svg)
    groups = [g for g in root.iter(f"{_SVG}g") if g.get("class") == "b"]
    return [["".join(t.itertext()) for t in g.iter(f"{_SVG}text")] for g in groups]


def test_a_call_shows_attributes_and_folded_weights() -> None:
    x, w = var("x", shape=(1, 3, 8, 8)), const(np.ones((4, 3, 3, 3), "float32"))
    f = Function((x,), relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1), strides=(2, 2))) * const(2.0))
    assert boxes(visualize(f)) == [
        ["%x 1×3×8×8"],
        ["nn.conv2d", "strides=2, padding=1", "weight 4×3×3×3"],
        ["nn.relu"],
        ["multiply", "rhs 2.0"],
        ["output"],
    ]
    labels = visualize(f).svg
    assert "1×4×4×4" in labels and "Tensor[(1, 4, 4, 4), float32]" in labels


def test_a_kernel_is_one_box_with_its_operators() -> None:
    x = var("x", shape=(4, 8))
    function = Function((x,), relay.nn.softmax(relay.nn.relu(x + const(1.0) + const(2.0)), axis=1))
    with PassContext(opt_level=0):
        apart, _ = relay.optimize(function, "llvm")
    with PassContext(opt_level=3):
        fused, _ = relay.optimize(function, "llvm")
    assert len(boxes(visualize(apart))) > len(boxes(visualize(fused)))
    assert any(len(rows) > 1 and "nn.relu" in rows for rows in boxes(visualize(fused)))


def test_before_and_after_stand_side_by_side() -> None:
    module, params = squeezenet.get_workload(image_shape=(3, 64, 64), num_classes=10)
    with PassContext(opt_level=2):
        after, _ = relay.optimize(module, "llvm", params)
    picture = visualize(module, after=after)
    assert "before: " in picture.svg and "after: " in picture.svg
    assert len(boxes(picture)) == len(boxes(visualize(module))) + len(boxes(visualize(after)))


def test_many_parameters_are_written_into_the_boxes_that_read_them() -> None:
    module, _ = resnet.get_workload(num_layers=50)
    drawn = boxes(visualize(module))
    assert [rows for rows in drawn if rows[0].startswith("%")] == [["%data 1×3×224×224"]]
    assert ["nn.conv2d", "padding=1", "%stage1_unit1_conv2_weight 64×64×3×3"] in drawn
    assert sum(rows[0] == "nn.conv2d" for rows in drawn) == 53


def test_tuples_lets_and_branches_lead_to_what_they_hold() -> None:
    c, x, y = var("c", shape=(), dtype="bool"), var("x", shape=(4, 6)), var("y", shape=(4, 3))
    parts = relay.split(x, 2, axis=1)
    body = Let(y, relay.exp(parts[0]), If(c, relay.nn.relu(y), y + parts[1]))
    drawn = boxes(visualize(Function((c, x), Tuple((body, parts[1])))))
    names = [rows[0] for rows in drawn]
    assert names == ["%c scalar bool", "%x 4×6", "split", "exp", "nn.relu", "add", "if", "output 0", "output 1"]


def test_names_from_outside_are_escaped() -> None:
    x = var('<script>"&', shape=(2,))
    picture = visualize(Function((x,), relay.nn.relu(x)))
    assert boxes(picture)[0] == ['%<script>"& 2']
    assert "<script>" not in picture.svg


def test_pictures_are_saved_as_svg_or_html(tmp_path: Path) -> None:
    x = var("x", shape=(2,))
    picture = visualize(Function((x,), relay.nn.relu(x)), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text("utf-8") == picture.svg == picture._repr_svg_()
    picture.save(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text("utf-8").startswith("<!doctype html>")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.html", "a.svg"]
    with pytest.raises(TypeMismatch, match=r"as .svg or .html, not '.png'"):
        picture.save(tmp_path / "a.png")
    with pytest.raises(TypeMismatch, match="visualize draws relay functions, got int"):
        visualize(3)  # type: ignore[arg-type]


def test_opt_draws_the_graph_before_and_after_its_passes(tmp_path: Path) -> None:
    (tmp_path / "m.relay").write_text("def @main(%x: Tensor[(2, 3), float32]) {\n  nn.relu(add(%x, add(1f, 2f)))\n}\n")
    assert main(["opt", str(tmp_path / "m.relay"), "-p", "fold-constant", "--svg", str(tmp_path / "m.svg")]) == 0
    assert "after: 2 boxes" in (tmp_path / "m.svg").read_text("utf-8")


# --- layout ---------------------------------------------------------------------------------------------------------


def checked(sizes: list[tuple[float, float]], edges: list[tuple[int, int]]) -> Layout:
    """The layout, after checking that boxes keep apart and edges lead down from box to box."""
    layout = arrange(sizes, edges)
    spans = [(x - w / 2, x + w / 2, y - h / 2, y + h / 2) for (x, y), (w, h) in zip(layout.centres, sizes, strict=True)]
    for k, a in enumerate(spans):
        assert a[0] >= -1e-6 and a[1] <= layout.width + 1e-6 and a[2] >= -1e-6 and a[3] <= layout.height + 1e-6
        for b in spans[k + 1 :]:
            assert a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2]
    for (source, target), route in zip(edges, layout.routes, strict=True):
        assert route[0][1] == pytest.approx(spans[source][3]) and route[-1][1] == pytest.approx(spans[target][2])
        assert spans[source][0] <= route[0][0] <= spans[source][1]
        assert spans[target][0] <= route[-1][0] <= spans[target][1]
        assert all(p[1] <= q[1] for p, q in pairwise(route))
    return layout


def test_random_graphs_are_laid_out_without_overlap() -> None:
    seed = 5
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(30):
        count = rng.randrange(1, 40)
        sizes = [(rng.uniform(20, 200), rng.uniform(15, 90)) for _ in range(count)]
        edges = [(rng.randrange(k), k) for k in range(1, count) for _ in range(rng.randrange(3))]
        layout = checked(sizes, edges)
        assert arrange(sizes, edges) == layout


def test_edges_that_need_not_cross_do_not() -> None:
    layout = checked([(40.0, 20.0)] * 6, [(0, 5), (1, 4), (2, 3)])
    x = [centre[0] for centre in layout.centres]
    assert sorted(range(3), key=lambda k: x[k]) == sorted(range(3), key=lambda k: x[5 - k])


def test_a_chain_stands_on_one_line_and_a_skipping_edge_is_straight() -> None:
    layout = checked([(60.0, 20.0), (120.0, 20.0), (40.0, 20.0), (90.0, 20.0)], [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert len({round(x, 6) for x, _ in layout.centres[1:3]}) == 1
    assert len({round(x, 6) for x, _ in layout.routes[3][1:-1]}) == 1


def test_nothing_is_drawn_for_nothing_and_calls_of_globals_have_names() -> None:
    assert arrange([], []) == Layout([], [], 0.0, 0.0)
    x = var("x", shape=(2,))
    module = IRModule({"twice": Function((x,), x + x)})
    y = var("y", shape=(2,))
    module["main"] = Function((y,), Call(module.get_global_var("twice"), (y,)))
    assert boxes(visualize(module))[1] == ["@twice"]
