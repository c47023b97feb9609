"""Detectors written by hand, as exporters write them: boxes that are found, suppressed, ranked and cut to few."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import armillary
from armillary import relay
from armillary.contrib import graph_executor

F, I64 = TensorProto.FLOAT, TensorProto.INT64


class _File:
    """Nodes and initialisers, in the order they are added."""

    def __init__(self, **held: Any) -> None:
        self.nodes: list[Any] = []
        self.held = {name: np.asarray(array) for name, array in held.items()}

    def add(self, op: str, inputs: str, output: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(op, inputs.split(), output.split(), **attributes))

    def model(self, inputs: dict[str, list[Any]], outputs: str) -> onnx.ModelProto:
        held = [numpy_helper.from_array(array, name) for name, array in self.held.items()]
        given = [helper.make_tensor_value_info(name, F, shape) for name, shape in inputs.items()]
        results = [helper.make_empty_tensor_value_info(name) for name in outputs.split()]
        graph = helper.make_graph(self.nodes, "net", given, results, held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _check(model: onnx.ModelProto, *cases: dict[str, Any]) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    module, params = relay.frontend.from_onnx(model)
    with armillary.transform.PassContext(opt_level=3):
        library = relay.build(module, target="llvm", params=params)
    network = graph_executor.GraphModule(library["default"](armillary.cpu()))
    for case in [*cases, *reversed(cases)]:
        network.run(**case)
        for k, wanted in enumerate(session.run(None, case)):
            got = network.get_output(k).numpy()
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def _boxes(count: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 1, (1, count, 2))
    return np.concatenate([low, low + rng.uniform(0.02, 0.4, (1, count, 2))], 2).astype(np.float32)


def _scores(classes: int, count: int, seed: int, most: float = 1) -> Any:
    return np.random.default_rng(seed).uniform(0, most, (1, classes, count)).astype(np.float32)


def test_boxes_left_by_suppression_are_gathered_with_their_scores_and_classes() -> None:
    file = _File(most=np.array([5]), iou=np.float32([0.4]), least=np.float32([0.3]), zero=np.array([0]))
    file.held |= {"one": np.array(1), "two": np.array(2), "back": np.array([-1]), "pair": np.array([1, 2])}
    file.add("NonMaxSuppression", "boxes scores most iou least", "left")
    file.add("Gather", "left two", "box", axis=1)
    file.add("Gather", "left one", "label", axis=1)
    file.add("Squeeze", "boxes zero", "all")
    file.add("Gather", "all box", "found")
    file.add("Squeeze", "scores zero", "table")
    file.add("Gather", "left pair", "where", axis=1)
    file.add("GatherND", "table where", "score")
    model = file.model({"boxes": [1, "n", 4], "scores": [1, 3, "n"]}, "found score label")
    cases = ((30, 0, 1.0), (300, 1, 1.0), (7, 2, 0.1), (2000, 3, 1.0))
    _check(model, *({"boxes": _boxes(n, s), "scores": _scores(3, n, s + 9, m)} for n, s, m in cases))


def _ranked() -> onnx.ModelProto:
    """As torchvision's: scores above a threshold, the best few of them, suppressed unless there are none."""
    file = _File(least=np.float32(0.5), few=np.array([20]), zero=np.array(0), axis=np.array([0]), last=np.array([1]))
    file.held |= {
        "none": np.zeros((0,), np.int64),
        "most": np.array([100]),
        "iou": np.float32([0.3]),
        "two": np.array([2]),
    }
    file.add("Greater", "scores least", "is_high")
    file.add("NonZero", "is_high", "n")
    file.add("Transpose", "n", "places")
    file.add("GatherND", "scores places", "high")
    file.add("GatherND", "boxes places", "own")
    file.add("Shape", "high", "shape")
    file.add("Min", "shape few", "k")
    file.add("TopK", "high k", "best order")
    file.add("Gather", "own order", "chosen")
    file.add("ReduceProd", "shape", "count", keepdims=0)
    file.add("Equal", "count zero", "is_empty")
    inner = _File()
    inner.add("Unsqueeze", "chosen axis", "b")
    inner.add("Unsqueeze", "best axis", "s0")
    inner.add("Unsqueeze", "s0 axis", "s")
    inner.add("NonMaxSuppression", "b s most iou", "left")
    inner.add("Slice", "left two three last", "column")
    inner.add("Squeeze", "column last", "kept")
    file.held["three"] = np.array([3])
    other = helper.make_graph(inner.nodes, "else", [], [helper.make_tensor_value_info("kept", I64, None)])
    empty = helper.make_node("Identity", ["none"], ["nothing"])
    first = helper.make_graph([empty], "then", [], [helper.make_tensor_value_info("nothing", I64, None)])
    file.nodes.append(helper.make_node("If", ["is_empty"], ["keep"], then_branch=first, else_branch=other))
    file.add("Gather", "chosen keep", "result")
    file.add("Gather", "best keep", "score")
    return file.model({"boxes": ["n", 4], "scores": ["n"]}, "result score")


def test_the_best_of_what_exceeds_a_threshold_is_suppressed_in_a_branch() -> None:
    cases = ((40, 0, 1.0), (500, 1, 1.0), (12, 2, 0.4), (1, 3, 1.0))
    _check(_ranked(), *({"boxes": _boxes(n, s)[0], "scores": _scores(1, n, s + 5, m)[0, 0]} for n, s, m in cases))


def test_an_image_is_resized_and_padded_to_sizes_that_arithmetic_on_floats_gives() -> None:
    file = _File(side=np.float32(20), step=np.float32(8), zero=np.array([0]), two=np.array([2]), four=np.array([4]))
    file.held |= {"roi": np.zeros(0, np.float32), "none": np.array([0, 0]), "head": np.array([1, 2])}
    file.held |= {"boxes": np.float32([[1, 1, 12, 9], [0, 3, 20, 30]]), "image": np.array([0, 0])}
    file.add("Shape", "x", "shape")
    file.add("Slice", "shape two four", "sides")
    file.add("Cast", "sides", "wide", to=F)
    file.add("ReduceMin", "wide", "least", keepdims=0)
    file.add("Div", "side least", "scale")
    file.add("Mul", "wide scale", "scaled")
    file.add("Floor", "scaled", "floored")
    file.add("Cast", "floored", "new", to=I64)
    file.add("Slice", "shape zero two", "front")
    file.add("Concat", "front new", "sizes", axis=0)
    file.add("Resize", "x roi roi sizes", "resized", mode="linear", coordinate_transformation_mode="half_pixel")
    file.add("Cast", "new", "now", to=F)
    file.add("Div", "now step", "parts")
    file.add("Ceil", "parts", "up")
    file.add("Mul", "up step", "room")
    file.add("Cast", "room", "whole", to=I64)
    file.add("Sub", "whole new", "missing")
    file.add("Concat", "none none none missing", "pads", axis=0)  # of (before, behind) of four axes
    file.held["none"] = np.array([0, 0])
    file.add("Pad", "resized pads", "y")
    file.add("RoiAlign", "y boxes image", "cells", output_height=3, output_width=3, sampling_ratio=2)
    model = file.model({"x": [1, 2, "h", "w"]}, "y cells")
    rng = np.random.default_rng(0)
    _check(model, *({"x": rng.random((1, 2, *sides)).astype(np.float32)} for sides in ((24, 31), (40, 25), (13, 50))))


def test_pads_that_are_negative_at_some_sizes_cut() -> None:
    file = _File(want=[2, 8], last=[0, 1], zero=[0, 0], value=np.float32(3.5))
    file.add("Shape", "x", "shape")
    file.add("Sub", "want shape", "missing")
    file.add("Mul", "missing last", "behind")
    file.add("Concat", "zero behind", "pads", axis=0)
    file.add("Pad", "x pads value", "y")
    rows = [np.arange(2 * n, dtype=np.float32).reshape(2, n) for n in (3, 8, 20)]
    _check(file.model({"x": [2, "n"]}, "y"), *({"x": x} for x in rows))


def test_boxes_that_are_constants_have_a_size_that_is_known_when_compiling() -> None:
    file = _File(
        boxes=_boxes(12, 3),
        scores=_scores(2, 12, 4),
        most=np.array([5]),
        iou=np.float32([0.4]),
        least=np.float32([0.3]),
    )
    file.add("NonMaxSuppression", "boxes scores most iou least", "chosen")
    file.add("Slice", "chosen start end axis", "places")
    file.held |= {"start": np.array([2]), "end": np.array([3]), "axis": np.array([1]), "least": np.float32([0.3])}
    file.add("Cast", "places", "floats", to=F)
    file.add("Add", "floats image", "moved")
    _check(file.model({"image": [1, 1]}, "moved"), {"image": np.float32([[0.5]])})
