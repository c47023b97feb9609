"""What images hold and what is found in them: counts, sums, pyramids, corners, edges; against numpy and OpenCV."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from armillary import compute
from armillary.compute import BorderMode, Distribution1D, Format, Image, KeyPoint, Pyramid, Scalar, TensorInfo
from armillary.compute.functions.vision.sorting import descending_order
from armillary.errors import TypeMismatch

Array = npt.NDArray[Any]  # Any: of an image's type
REPLICATE, UNDEFINED = BorderMode.REPLICATE, BorderMode.UNDEFINED


def _image(width: int, height: int, kind: Format = Format.U8) -> Image:
    made = Image()
    made.allocator().init(TensorInfo(width, height, kind))
    return made


def _scene(width: int, height: int, seed: int = 0) -> Array:
    """Rectangles, a slope, some noise."""
    rng = np.random.default_rng(seed)
    scene = np.add.outer(np.arange(height), np.arange(width)) % 64 + 60
    for _ in range(12):
        x, y = int(rng.integers(width - 8)), int(rng.integers(height - 8))
        scene[y : y + int(rng.integers(4, 20)), x : x + int(rng.integers(4, 20))] = rng.integers(256)
    return np.clip(scene + rng.integers(-3, 4, scene.shape), 0, 255).astype(np.uint8)


SCENE = _scene(83, 61)


def _run(function: Any, source: Image, values: Array, *outputs: Image) -> None:  # Any: one of the functions
    for image in (source, *outputs):
        image.allocator().allocate()
    source.array()[...] = values
    function.run()


@pytest.mark.parametrize("threads", [1, 3])
def test_counts_and_sums_for_any_number_of_threads(threads: int) -> None:
    before = compute.Scheduler.get()
    mine = compute.CPPScheduler()
    mine.set_num_threads(threads)
    compute.Scheduler.set(mine)
    try:
        source, equal, total = _image(83, 61), _image(83, 61), _image(83, 61, Format.U32)
        bins, mean, deviation = Distribution1D(10, 30, 200), Scalar(), Scalar()
        least, most, count, places = Scalar(), Scalar(), Scalar(), list[tuple[int, int]]()
        functions = [
            compute.NEHistogram(),
            compute.NEEqualizeHistogram(),
            compute.NEMeanStdDev(),
            compute.NEMinMaxLocation(),
            compute.NEIntegralImage(),
        ]
        functions[0].configure(source, bins)
        functions[1].configure(source, equal)
        functions[2].configure(source, mean, deviation)
        functions[3].configure(source, least, most, None, places, None, count)
        functions[4].configure(source, total)
        _run(functions[0], source, SCENE, equal, total)
        for function in functions[1:]:
            function.run()
    finally:
        compute.Scheduler.set(before)
    inside = SCENE[(SCENE >= 30) & (SCENE < 230)]
    np.testing.assert_array_equal(bins.buffer(), np.bincount((inside.astype(int) - 30) * 10 // 200, minlength=10))
    np.testing.assert_array_equal(equal.array(), cv2.equalizeHist(SCENE))
    assert (mean.value, deviation.value) == pytest.approx((SCENE.mean(), SCENE.std()))
    assert (least.value, most.value, count.value) == (SCENE.min(), SCENE.max(), (SCENE.max() == SCENE).sum())
    assert places == [(int(x), int(y)) for y, x in np.argwhere(SCENE.max() == SCENE)]
    np.testing.assert_array_equal(total.array(), cv2.integral(SCENE)[1:, 1:])


def test_an_image_of_one_value_is_equal_already() -> None:
    source, equal = _image(20, 9), _image(20, 9)
    function = compute.NEEqualizeHistogram()
    function.configure(source, equal)
    _run(function, source, np.full((9, 20), 77, np.uint8), equal)
    assert (equal.array() == 77).all()


def _smoothed(values: Array) -> Array:
    padded = np.pad(values.astype(int), 2, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5))
    row = np.array([1, 4, 6, 4, 1])
    return np.einsum("yxij,i,j->yx", windows, row, row) // 256


def _halved(values: Array) -> Array:
    """The odd rows and columns of an even size, the even ones of an odd size."""
    height, width = values.shape
    return _smoothed(values)[1 - height % 2 :: 2, 1 - width % 2 :: 2]


@pytest.mark.parametrize(("kind", "scale"), [("Half", 0.5), ("Orb", 0.8408964)])
def test_levels_of_a_pyramid(kind: str, scale: float) -> None:
    source, pyramid = _image(83, 61), Pyramid()
    pyramid.init(3, scale, 83, 61)
    function = getattr(compute, f"NEGaussianPyramid{kind}")()
    function.configure(source, pyramid, REPLICATE)
    pyramid.allocate()
    _run(function, source, SCENE)
    wanted = SCENE
    for n in range(3):
        level = pyramid.get_pyramid_level(n).array()
        if n:
            height, width = level.shape
            rows = np.floor((np.arange(height) + 0.5) * np.float32(wanted.shape[0] / height)).astype(int)
            columns = np.floor((np.arange(width) + 0.5) * np.float32(wanted.shape[1] / width)).astype(int)
            smooth = _smoothed(wanted)
            wanted = _halved(wanted) if kind == "Half" else smooth[np.ix_(rows, columns)]
        np.testing.assert_array_equal(level, wanted, f"level {n}")
    other = compute.NEGaussianPyramidOrb() if kind == "Half" else compute.NEGaussianPyramidHalf()
    with pytest.raises(TypeMismatch, match="the pyramid's scale is 0"):
        other.configure(_image(83, 61), pyramid)


def test_what_smoothing_takes_away_and_the_way_back() -> None:
    source, pyramid, rest, again = _image(64, 48), Pyramid(), _image(16, 12, Format.S16), _image(64, 48)
    pyramid.init(3, 0.5, 64, 48, Format.S16)
    apart, together = compute.NELaplacianPyramid(), compute.NELaplacianReconstruct()
    apart.configure(source, pyramid, rest, REPLICATE)
    together.configure(pyramid, rest, again)
    pyramid.allocate()
    scene = _scene(64, 48, 1)
    _run(apart, source, scene, rest, again)
    together.run()
    np.testing.assert_array_equal(pyramid.get_pyramid_level(0).array(), scene - _smoothed(scene))
    half = _halved(scene)
    np.testing.assert_array_equal(pyramid.get_pyramid_level(1).array(), half - _smoothed(half))
    assert np.abs(again.array().astype(int) - scene).mean() < 15, "levels by the nearest pixel, as the library has them"


def _fast_of_opencv(threshold: int, keeps_largest: bool) -> dict[tuple[int, int], float]:
    detector = cv2.FastFeatureDetector_create(threshold, keeps_largest, cv2.FAST_FEATURE_DETECTOR_TYPE_9_16)
    return {(int(p.pt[0]), int(p.pt[1])): p.response for p in detector.detect(SCENE)}


def test_corners_of_fast_are_those_of_opencv() -> None:
    for keeps_largest in (False, True):
        source, found = _image(83, 61), list[KeyPoint]()
        function = compute.NEFastCorners()
        function.configure(source, 20, keeps_largest, found, UNDEFINED)
        _run(function, source, SCENE)
        wanted = _fast_of_opencv(20, keeps_largest)
        mine = {(p.x, p.y): p.strength for p in found}
        assert len(wanted) > 10
        if not keeps_largest:
            assert set(mine) == set(wanted)
            assert set(mine.values()) == {1.0}, "strengths are computed to be compared"
            continue
        inside = {(x, y) for x, y in wanted if 3 < x < 79 and 3 < y < 57}  # pixels whose neighbours are known
        assert {place: mine[place] for place in inside} == {place: wanted[place] for place in inside}
        for x, y in set(mine) - inside:  # of equal neighbours one is kept, OpenCV keeps none
            around = {(x + dx, y + dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if (dx, dy) != (0, 0)}
            assert around & set(_fast_of_opencv(int(mine[x, y]), False))
    with pytest.raises(TypeMismatch, match="threshold is 0"):
        compute.NEFastCorners().configure(source, 0, True, found)


def test_corners_of_harris_are_strong_and_apart() -> None:
    source, found = _image(83, 61), list[KeyPoint]()
    function = compute.NEHarrisCorners()
    function.configure(source, 1e-4, 5.0, 0.05, 3, 3, found, REPLICATE)
    _run(function, source, SCENE)
    padded = np.pad(SCENE, 4, mode="edge")
    strengths = cv2.cornerHarris(padded.astype(np.float32) / 255, 3, 3, 0.05)[4:-4, 4:-4]
    assert len(found) > 5
    for point in found:
        inner = 1 < point.x < 81 and 1 < point.y < 59
        assert not inner or point.strength == pytest.approx(strengths[point.y, point.x], rel=1e-3)
    assert [p.strength for p in found] == sorted((p.strength for p in found), reverse=True)
    places = np.array([(p.x, p.y) for p in found], float)
    distances = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)) + 99 * np.eye(len(found))
    assert distances.min() >= 5
    with pytest.raises(TypeMismatch, match="gradient_size is 4"):
        compute.NEHarrisCorners().configure(source, 1.0, 5.0, 0.05, 4, 3, found)


def test_edges_are_those_of_opencv_on_random_images() -> None:
    rng = np.random.default_rng(11)
    for number in range(50):
        width, height, side, norm = (int(rng.integers(a, b)) for a, b in ((17, 200), (4, 120), (1, 3), (1, 3)))
        scene: Array = rng.integers(0, 256, (height, width), np.uint8)
        if number % 3:
            scene = cv2.GaussianBlur(scene, (0, 0), float(rng.uniform(0.5, 3)))
        if number % 3 == 2:
            scene = (scene.astype(int) - scene.min()) * 255 // max(1, int(np.ptp(scene)))
            scene = scene.astype(np.uint8)
        side = 2 * side + 1
        upper = int(rng.integers(1, 600 if side == 3 else 6000))
        lower = int(rng.integers(upper + 1))
        source, edges, function = _image(width, height), _image(width, height), compute.NECannyEdge()
        function.configure(source, edges, upper, lower, side, norm, REPLICATE)
        _run(function, source, scene, edges)
        wanted = cv2.Canny(scene, lower, upper, apertureSize=side, L2gradient=norm == 2)
        assert np.array_equal(edges.array(), wanted), (number, width, height, side, norm, lower, upper)


def test_edges_beside_an_undefined_border_are_those_away_from_it() -> None:
    source, edges, function = _image(83, 61), _image(83, 61), compute.NECannyEdge()
    function.configure(source, edges, 120, 60, 3, 1, UNDEFINED)
    _run(function, source, SCENE, edges)
    region = edges.info().valid_region()
    assert (region.anchor[:2], region.shape[:2]) == ((2, 2), (79, 57))
    inside = np.zeros((61, 83), bool)
    inside[2:-2, 2:-2] = True
    found, wanted = edges.array(), cv2.Canny(SCENE, 60, 120)
    assert not found[~inside].any() and found.any()
    assert not found[wanted == 0].any(), "what hangs on to a strong pixel at the border alone is left out"
    assert (found == wanted)[inside].mean() > 0.99
    with pytest.raises(TypeMismatch, match="norm_type is 3"):
        compute.NECannyEdge().configure(_image(83, 61), _image(83, 61), 9, 3, 3, 3)


def test_a_long_chain_of_weak_pixels_hangs_on_to_one_strong_one() -> None:
    scene = np.zeros((1500, 24), np.uint8)  # one step along all rows, high at the top, low further down
    scene[:, 12:] = np.maximum(20, 200 - 4 * np.arange(1500))[:, None]
    source, edges, function = _image(24, 1500), _image(24, 1500), compute.NECannyEdge()
    function.configure(source, edges, 300, 30, 3, 1, REPLICATE)
    _run(function, source, scene, edges)
    assert np.array_equal(edges.array(), cv2.Canny(scene, 30, 300))
    assert edges.array()[-2].any(), "the chain's end"
    scene[:60] = 20  # nothing is strong
    scene[:60, :12] = 0
    source.array()[...] = scene
    function.run()
    assert not edges.array().any()


def test_of_close_windows_the_best_is_kept() -> None:
    rng = np.random.default_rng(3)
    places, scores = rng.integers(0, 60, (80, 2)), rng.random(80)
    windows = [
        compute.DetectionWindow(int(x), int(y), 8, 16, n % 2, float(scores[n])) for n, (x, y) in enumerate(places)
    ]
    given, kernel = list(windows), compute.CPPDetectionWindowNonMaximaSuppressionKernel()
    kernel.configure(windows, 10.0)
    kernel.run()
    assert windows == sorted(windows, key=lambda w: (w.idx_class, -w.score))
    for window in given:
        close = [
            w for w in windows if w.idx_class == window.idx_class and np.hypot(w.x - window.x, w.y - window.y) < 10
        ]
        assert close == [window] if window in windows else any(w.score >= window.score for w in close)
    with pytest.raises(TypeMismatch, match="windows are at least -1"):
        kernel.configure(windows, -1.0)


_SORT = """
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>
extern "C" void sort_values(const float *values, int32_t *order, int32_t count)
{
    std::vector<std::pair<int32_t, float>> all;
    for(int32_t n = 0; n < count; n++) all.emplace_back(n, values[n]);
    std::sort(all.begin(), all.end(), [](const auto &a, const auto &b) { return a.second > b.second; });
    for(int32_t n = 0; n < count; n++) order[n] = all[size_t(n)].first;
}
"""


def _worst_for_medians(count: int) -> list[int]:
    """Values of which medians of three cut off two at a time, so that the sort falls back to a heap."""
    half = count // 2
    values = [0] * count
    for n in range(1, half + 1):
        if n % 2:
            values[n - 1], values[n] = n, half + n
        values[half + n - 1] = 2 * n
    return values


def test_equal_values_are_in_the_order_of_the_c_plus_plus_library(tmp_path: Path) -> None:
    """Which of equally strong corners comes first decides which of them hides the others."""
    (tmp_path / "s.cpp").write_text(_SORT)
    command = ["g++", "-std=c++14", "-O1", "-shared", "-fPIC", str(tmp_path / "s.cpp"), "-o", str(tmp_path / "s.so")]
    subprocess.run(command, check=True)
    library, rng = ctypes.CDLL(str(tmp_path / "s.so")), np.random.default_rng(4)
    drawn = [rng.integers(0, int(rng.integers(1, 60)), int(rng.integers(1, 400))) for _ in range(500)]
    worst = [sign * np.array(_worst_for_medians(n) + [1] * 50) for n in (200, 1000) for sign in (1, -1)]
    for values in [v.astype(np.float32) for v in (*drawn, *worst)]:
        wanted = np.empty(len(values), np.int32)
        library.sort_values(ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(wanted.ctypes.data), len(values))
        assert descending_order(values) == wanted.tolist()
