"""Histograms of gradients and optical flow: whole detections, points against OpenCV, what is refused."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest

from armillary import compute
from armillary.compute import (
    HOG,
    BorderMode,
    DetectionWindow,
    Format,
    HOGInfo,
    Image,
    KeyPoint,
    MultiHOG,
    Pyramid,
    Size2D,
    Tensor,
    TensorInfo,
    Termination,
)
from armillary.errors import ExecutionError, TypeMismatch

Array = np.ndarray[Any, Any]
REPLICATE = BorderMode.REPLICATE
SMALL = HOGInfo(Size2D(8, 8), Size2D(16, 16), Size2D(24, 24), Size2D(8, 8), 9)


def _image(pixels: Array) -> Image:
    made = Image()
    made.allocator().init(TensorInfo(pixels.shape[1], pixels.shape[0], Format.U8))
    return made


def _square(place: tuple[int, int]) -> Array:
    """A bright square on noise."""
    pixels = np.random.default_rng(0).integers(90, 110, (80, 96)).astype(np.uint8)
    x, y = place
    pixels[y + 6 : y + 18, x + 6 : x + 18] = 250
    return pixels


def _descriptors(pixels: Array, hog: HOG) -> Array:
    source, output, function = _image(pixels), Tensor(), compute.NEHOGDescriptor()
    output.allocator().init(hog.info().tensor_info(pixels.shape[1], pixels.shape[0]))
    function.configure(source, output, hog, REPLICATE)
    source.allocator().allocate()
    output.allocator().allocate()
    source.array()[...] = pixels
    function.run()
    return output.array().copy()


@pytest.fixture
def model() -> HOG:
    """A classifier for the square: its own descriptor, less the mean of that of noise."""
    hog = HOG()
    hog.init(SMALL)
    blocks = _descriptors(_square((32, 24)), hog)
    own = blocks[3:5, 4:6].ravel()
    hog.descriptor()[:-1] = own - blocks[6:8, 8:10].ravel()
    hog.descriptor()[-1] = -0.5 * float(own @ hog.descriptor()[:-1])
    return hog


def test_a_square_is_found_where_it_is(model: HOG) -> None:
    pixels = _square((48, 40))
    descriptors, windows = Tensor(), list[DetectionWindow]()
    descriptors.allocator().init(SMALL.tensor_info(96, 80))
    descriptors.allocator().allocate()
    descriptors.array()[...] = _descriptors(pixels, model)
    detector = compute.NEHOGDetector()
    detector.configure(descriptors, model, windows, Size2D(8, 8))
    detector.run()
    best = max(windows, key=lambda w: w.score)
    assert (best.x, best.y, best.width, best.height) == (48, 40, 24, 24)

    models, found = MultiHOG(2), list[DetectionWindow]()
    for n in range(2):
        models.model(n).init(SMALL)
        models.model(n).descriptor()[...] = model.descriptor()
    models.model(1).descriptor()[-1] -= 1e6  # finds nothing
    source, both = _image(pixels), compute.NEHOGMultiDetection()
    both.configure(source, models, found, [Size2D(8, 8)] * 2, REPLICATE, 0, 0.0, True, 40.0)
    source.allocator().allocate()
    source.array()[...] = pixels
    for _ in range(2):
        both.run()
        assert [(w.x, w.y, w.idx_class) for w in found] == [(48, 40, 0)], "of close windows the best, each run anew"
    assert found[0].score == pytest.approx(best.score, rel=1e-5)


def test_points_move_as_in_opencv() -> None:
    rng = np.random.default_rng(1)
    scene = cv2.GaussianBlur(rng.integers(0, 256, (120, 160), np.uint8), (0, 0), 2)
    scene = cv2.normalize(scene, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)  # type: ignore[call-overload]
    moved = cv2.warpAffine(scene, np.array([[1, 0, 3.0], [0, 1, -2.0]]), (160, 120), borderMode=cv2.BORDER_REPLICATE)
    points = [KeyPoint(int(x), int(y)) for x, y in rng.integers((25, 25), (135, 95), (40, 2))]
    pyramids, makers, images = (Pyramid(), Pyramid()), [], [_image(scene), _image(moved)]
    for pyramid, image in zip(pyramids, images, strict=True):
        pyramid.init(3, 0.5, 160, 120)
        makers.append(compute.NEGaussianPyramidHalf())
        makers[-1].configure(image, pyramid, REPLICATE)
    flow, found = compute.NEOpticalFlow(), list[KeyPoint]()
    both = Termination.TERM_CRITERIA_BOTH
    flow.configure(*pyramids, points, [], found, both, 0.001, 20, 9, False, REPLICATE)
    for pyramid in pyramids:
        pyramid.allocate()
    for image, pixels in zip(images, (scene, moved), strict=True):
        image.allocator().allocate()
        image.array()[...] = pixels
    for maker in makers:
        maker.run()
    flow.run()
    tracked = [(new.x - old.x, new.y - old.y) for old, new in zip(points, found, strict=True) if new.tracking_status]
    assert len(tracked) > 30
    assert sum(step == (3, -2) for step in tracked) > 0.9 * len(tracked)
    given = np.array([(p.x, p.y) for p in points], np.float32)
    theirs, status, _ = cv2.calcOpticalFlowPyrLK(scene, moved, given, None, winSize=(9, 9), maxLevel=2)  # type: ignore[call-overload]
    near = np.abs(np.round(theirs) - [(p.x, p.y) for p in found]).max(1) <= 1
    assert (near | (status.ravel() == 0)).mean() > 0.9


def test_what_does_not_fit_is_refused(model: HOG) -> None:
    with pytest.raises(TypeMismatch, match="a block of 12x16 is no whole cells of 8x8"):
        HOGInfo(Size2D(8, 8), Size2D(12, 16), Size2D(24, 24), Size2D(8, 8), 9)
    with pytest.raises(TypeMismatch, match="0 bins; wanted at least 1"):
        HOGInfo(Size2D(8, 8), Size2D(16, 16), Size2D(24, 24), Size2D(8, 8), 0)
    with pytest.raises(TypeMismatch, match="9x9 pixels hold no block of 16x16"):
        SMALL.tensor_info(9, 9)
    with pytest.raises(ExecutionError, match="the HOG has no information"):
        HOG().info()
    wrong = TensorInfo(96, 80, Format.U8)
    status = compute.NEHOGDescriptor.validate(TensorInfo(96, 80, Format.U8), wrong, model)
    assert not status and "the output is U8, wanted F32" in status.error_description
    descriptors = Tensor()
    descriptors.allocator().init(SMALL.tensor_info(96, 80))
    with pytest.raises(TypeMismatch, match="the stride of windows is 12x8, wanted whole strides"):
        compute.NEHOGDetector().configure(descriptors, model, [], Size2D(12, 8))
    models = MultiHOG(2)
    for n in range(2):
        models.model(n).init(SMALL)
    with pytest.raises(TypeMismatch, match="1 strides, wanted 2"):
        compute.NEHOGMultiDetection().configure(_image(_square((0, 0))), models, [], [Size2D(8, 8)])
    a, b = Pyramid(), Pyramid()
    a.init(2, 0.5, 32, 32)
    b.init(3, 0.5, 32, 32)
    assert "pyramids of 2 and 3 levels" in compute.NEOpticalFlow.validate(a, b, 1, 5).error_description
