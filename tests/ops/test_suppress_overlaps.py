"""vision.suppress_overlaps agrees with its reference for few and many boxes, with thresholds and without."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import IRModule, cpu, relay
from armillary.contrib.graph_executor import GraphModule
from armillary.ops.vision.nms import SuppressAttrs, reference
from armillary.relay.op import get_op


def _check(boxes: np.ndarray, scores: np.ndarray, iou: float, least: float, attrs: SuppressAttrs) -> np.ndarray:
    arrays = {"boxes": boxes, "scores": scores, "iou": np.float32(iou), "least": np.float32(least)}
    inputs = [relay.var(name, shape=np.shape(value)) for name, value in arrays.items()]
    made = get_op("vision.suppress_overlaps")(
        *inputs, most=attrs.most, centred=attrs.centred, has_least=attrs.has_least
    )
    net = GraphModule(relay.build(IRModule.from_expr(relay.Function(inputs, made)), target="llvm")["default"](cpu()))
    net.run(**{name: np.asarray(value) for name, value in arrays.items()})
    got: np.ndarray = net.get_output(0).numpy()
    np.testing.assert_array_equal(got, reference(attrs, boxes, scores, arrays["iou"], arrays["least"]))
    return got


def _random(count: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(count)
    low = rng.random((2, count, 2)) * 9
    boxes = np.concatenate([low, low + rng.random((2, count, 2)) * 3], 2).astype(np.float32)
    return boxes, rng.random((2, classes, count)).astype(np.float32)


@pytest.mark.parametrize("has_least", [False, True])
@pytest.mark.parametrize("count", [1, 15, 16, 130, 700, 1300])
def test_few_and_many_boxes(count: int, has_least: bool) -> None:
    boxes, scores = _random(count, 2)
    for most in (1, 20):
        _check(boxes, scores, 0.4, 0.5, SuppressAttrs(most, has_least=has_least))


@pytest.mark.parametrize("least", [0.0, 0.97, 0.9, 0.3, 2.0])
def test_as_many_as_exceed_the_least_score(least: float) -> None:
    boxes, scores = _random(1300, 1)
    got = _check(boxes, scores, 0.5, least, SuppressAttrs(40))
    assert ((got >= 0).any() and least < 2) or (got == -1).all()


def test_of_equal_scores_the_first_box_stays() -> None:
    boxes, scores = _random(300, 1)
    _check(boxes, np.round(scores * 4), 0.3, 1.0, SuppressAttrs(300))
    _check(np.zeros_like(boxes), scores * 0 + 1, 0.0, 0.5, SuppressAttrs(300))  # boxes without area cover nothing


def test_scores_that_are_no_numbers_or_infinite() -> None:
    boxes, scores = _random(150, 1)
    scores[0, 0, ::7], scores[1, 0, ::5], scores[1, 0, 3] = np.nan, -np.inf, np.inf
    for has_least in (False, True):
        _check(boxes, scores, 0.3, 0.1, SuppressAttrs(50, has_least=has_least))


def test_a_box_that_covers_itself_exactly_as_much_as_the_threshold_stays() -> None:
    boxes = np.array([[[0, 0, 2, 2], [0, 0, 2, 1], [0, 0, 2, 1.01]]], np.float32)
    got = _check(boxes, np.array([[[3, 2, 1]]], np.float32), 0.5, 0.0, SuppressAttrs(3))
    assert got.tolist() == [[[0, 1, -1]]]
