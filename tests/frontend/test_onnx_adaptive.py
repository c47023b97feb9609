"""Sizes that regions, letters and sequences say: RoiAlign, Einsum, recurrent nodes; against ONNX Runtime and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, ValueInfoProto, helper, numpy_helper

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.errors import TypeMismatch

ort = pytest.importorskip("onnxruntime")
Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)


def model(node: NodeProto, feeds: dict[str, Array], constants: dict[str, Array]) -> Any:
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()
    ]
    held = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    graph = helper.make_graph([node], "g", inputs, [ValueInfoProto(name=n) for n in node.output], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(module: Any, feeds: dict[str, Array], params: dict[str, Any] | None = None) -> list[Array]:
    library = relay.build(module, target="llvm", params=params)
    return graph_executor.GraphModule(library["default"](armillary.cpu()))(feeds)


def run_both(node: NodeProto, feeds: dict[str, Array], constants: dict[str, Array] | None = None) -> None:
    made = model(node, feeds, constants or {})
    wanted = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    for got, want in zip(run(*_imported(made, feeds)), wanted, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def _imported(made: Any, feeds: dict[str, Array]) -> tuple[Any, dict[str, Array], Any]:
    module, params = relay.frontend.from_onnx(made)
    return module, feeds, params


BOXES = np.array([[1, 1, 9, 7], [0, 0, 3, 12], [-4, 2, 5, 30], [2, 2, 2, 2], [3, 1, 60, 8.5]], np.float32)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("half", ["half_pixel", "output_half_pixel"])
def test_regions_say_how_many_samples_they_take(mode: str, half: str) -> None:
    named = {"output_height": 3, "output_width": 2, "spatial_scale": 0.75, "coordinate_transformation_mode": half}
    node = helper.make_node("RoiAlign", ["x", "r", "b"], ["y"], sampling_ratio=0, mode=mode, **named)
    x = RNG.standard_normal((2, 3, 8, 10)).astype(np.float32)
    run_both(node, {"x": x, "r": BOXES, "b": np.array([0, 1, 1, 0, 1])})


def bilinear(image: Array, y: float, x: float) -> Array:
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros(len(image))
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    low, right = min(top + 1, height - 1), min(left + 1, width - 1)
    dy, dx = y - top, x - left
    upper = image[:, top, left] * (1 - dx) + image[:, top, right] * dx
    return upper * (1 - dy) + (image[:, low, left] * (1 - dx) + image[:, low, right] * dx) * dy


@pytest.mark.parametrize("ratio", [2, -1])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_relays_regions_take_the_largest_or_mean_of_interpolated_samples(mode: str, ratio: int) -> None:
    data = RNG.standard_normal((2, 3, 8, 10)).astype(np.float32)
    rois = np.column_stack([[0, 1, 1, 0, 1], BOXES]).astype(np.float32)
    wanted = np.empty((5, 3, 2, 2))
    for r, (image, x1, y1, x2, y2) in enumerate(rois):
        height, width = max(y2 - y1, 1) / 2, max(x2 - x1, 1) / 2
        n_y, n_x = (ratio, ratio) if ratio > 0 else (int(np.ceil(height)), int(np.ceil(width)))
        for i, j in np.ndindex(2, 2):
            ys = [y1 + height * (i + (k + 0.5) / n_y) for k in range(n_y)]
            xs = [x1 + width * (j + (k + 0.5) / n_x) for k in range(n_x)]
            samples = np.array([bilinear(data[int(image)].astype(float), y, x) for y in ys for x in xs])
            wanted[r, :, i, j] = samples.mean(0) if mode == "avg" else samples.max(0)
    x, boxes = relay.var("x", shape=data.shape), relay.var("r", shape=rois.shape)
    body = relay.vision.roi_align(x, boxes, pooled_size=(2, 2), spatial_scale=1.0, sample_ratio=ratio, mode=mode)
    module = armillary.IRModule.from_expr(relay.Function([x, boxes], body))
    np.testing.assert_allclose(run(module, {"x": data, "r": rois})[0], wanted, rtol=1e-4, atol=1e-5)


def test_a_mode_that_onnx_does_not_have_is_refused() -> None:
    node = helper.make_node("RoiAlign", ["x", "r", "b"], ["y"], mode="max_corners")
    feeds = {"x": np.ones((1, 1, 4, 4), np.float32), "r": BOXES, "b": np.zeros(5, np.int64)}
    with pytest.raises(TypeMismatch, match="mode '' is not known"):
        relay.frontend.from_onnx(model(node, feeds, {}))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", ((2, 1), (3, 4))),
        ("ij,jk->ik", ((2, 3), (1, 4))),
        ("bij,bjk->bik", ((1, 2, 3), (5, 3, 4))),
        ("ij,ij->", ((1, 3), (2, 3))),
        ("i,j,i->j", ((1,), (4,), (3,))),
        ("ij,jk,kl->il", ((2, 3), (1, 4), (4, 1))),
        ("abc,abd->cd", ((1, 2, 3), (4, 2, 5))),
        ("ij,j->i", ((0, 3), (1,))),
    ],
)
def test_a_letter_of_one_element_goes_with_any_number(equation: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    feeds = {f"x{k}": RNG.standard_normal(shape).astype(np.float32) for k, shape in enumerate(shapes)}
    run_both(helper.make_node("Einsum", list(feeds), ["y"], equation=equation), feeds)


def test_letters_of_two_sizes_are_refused() -> None:
    feeds = {"a": np.ones((2, 3), np.float32), "b": np.ones((2, 4), np.float32)}
    with pytest.raises(TypeMismatch, match="letter 'j' of 'ij,jk->ik' has sizes 3 and 2"):
        relay.frontend.from_onnx(model(helper.make_node("Einsum", ["a", "b"], ["y"], equation="ij,jk->ik"), feeds, {}))


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize(("kind", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_no_steps_leave_the_initial_states(kind: str, gates: int, direction: str) -> None:
    count = 2 if direction == "bidirectional" else 1
    shapes = {"w": (count, gates * 3, 2), "r": (count, gates * 3, 3)}
    weights = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    state = RNG.standard_normal((count, 2, 3)).astype(np.float32)
    feeds = {"x": np.zeros((0, 2, 2), np.float32), "n": np.zeros(2, np.int32), "h": state}
    names, outputs = ["x", "w", "r", "", "n", "h"], ["y", "yh"]
    if kind == "LSTM":
        feeds["c"], names, outputs = state + 1, [*names, "c"], [*outputs, "yc"]
    node = helper.make_node(kind, names, outputs, hidden_size=3, direction=direction)
    ys, hidden, *cells = run(*_imported(model(node, feeds, weights), feeds))
    assert ys.shape == (0, count, 2, 3)
    np.testing.assert_array_equal(hidden, state)
    for cell in cells:
        np.testing.assert_array_equal(cell, state + 1)
