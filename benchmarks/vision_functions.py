"""Vision functions of `armillary.compute` against OpenCV, in turns in one process: least times and their ratios.

Run: `python benchmarks/vision_functions.py [threads]`. Out: a line for each function and size, then the geometric
mean. Ratios are of the least times of turns; below 1 this library is faster. Functions that differ in their definition
(borders, rounding) do the same amount of work.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable

import cv2
import numpy as np

from armillary import compute
from armillary.compute import BorderMode, Format, Image, InterpolationPolicy, Pyramid, TensorInfo

TURNS, ROUNDS = 12, 5
REPLICATE = BorderMode.REPLICATE
Pair = tuple[Callable[[], object], Callable[[], object]]


def _image(width: int, height: int, kind: Format = Format.U8) -> Image:
    made = Image()
    made.allocator().init(TensorInfo(width, height, kind))
    return made


def _pairs(pixels: np.ndarray) -> dict[str, Pair]:  # type: ignore[type-arg]
    height, width = pixels.shape
    source, images = _image(width, height), []

    def made(w: int = width, h: int = height, kind: Format = Format.U8) -> Image:
        images.append(_image(w, h, kind))
        return images[-1]

    def ours(name: str, *more: object) -> Callable[[], object]:
        function = getattr(compute, name)()
        function.configure(source, *more)
        return function.run  # type: ignore[no-any-return]

    border, half = cv2.BORDER_REPLICATE, (width // 2, height // 2)
    turn = np.array([[0.9, 0.1, 5.0], [-0.1, 0.9, 40.0]], np.float32)
    columns = [float(v) for v in turn.T.ravel()]
    bilinear, pyramid, table = InterpolationPolicy.BILINEAR, Pyramid(), list[compute.KeyPoint]()
    pyramid.init(4, 0.5, width, height)
    inverse = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    pairs: dict[str, Pair] = {
        "Gaussian 3x3": (
            ours("NEGaussian3x3", made(), REPLICATE),
            lambda: cv2.GaussianBlur(pixels, (3, 3), 0, borderType=border),
        ),
        "Gaussian 5x5": (
            ours("NEGaussian5x5", made(), REPLICATE),
            lambda: cv2.GaussianBlur(pixels, (5, 5), 0, borderType=border),
        ),
        "median 3x3": (ours("NEMedian3x3", made(), REPLICATE), lambda: cv2.medianBlur(pixels, 3)),
        "Sobel 3x3": (
            ours("NESobel3x3", made(kind=Format.S16), made(kind=Format.S16), REPLICATE),
            lambda: cv2.spatialGradient(pixels, borderType=border),
        ),
        "scale by half": (
            ours("NEScale", made(*half), bilinear, REPLICATE),
            lambda: cv2.resize(pixels, half, interpolation=cv2.INTER_LINEAR),
        ),
        "Canny": (ours("NECannyEdge", made(), 120, 60, 3, 1, REPLICATE), lambda: cv2.Canny(pixels, 60, 120)),
        "Harris": (
            ours("NEHarrisCorners", 1e-3, 10.0, 0.05, 3, 3, table, REPLICATE),
            lambda: cv2.goodFeaturesToTrack(pixels, 4096, 0.01, 10, useHarrisDetector=True, k=0.05),
        ),
        "histogram": (
            ours("NEHistogram", compute.Distribution1D(256, 0, 256)),
            lambda: cv2.calcHist([pixels], [0], None, [256], [0, 256]),
        ),
        "warp affine": (
            ours("NEWarpAffine", made(), columns, bilinear, REPLICATE),
            lambda: cv2.warpAffine(pixels, turn, (width, height), flags=inverse, borderMode=border),
        ),
        "pyramid": (
            ours("NEGaussianPyramidHalf", pyramid, REPLICATE),
            lambda: (
                cv2.buildPyramid(pixels, 3, borderType=cv2.BORDER_DEFAULT)
                if hasattr(cv2, "buildPyramid")
                else _levels(pixels)
            ),
        ),
    }
    for image in (source, *images):
        image.allocator().allocate()
    pyramid.allocate()
    source.array()[...] = pixels
    return pairs


def _levels(pixels: np.ndarray) -> None:  # type: ignore[type-arg]
    for _ in range(3):
        pixels = cv2.pyrDown(pixels)


def _least(call: Callable[[], object], before: float) -> float:
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        before = min(before, time.perf_counter() - start)
    return before


def main() -> None:
    """Measure in turns and print."""
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    cv2.setNumThreads(threads)
    compute.Scheduler.set("CPP")
    compute.Scheduler.get().set_num_threads(threads)
    scene = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (1080, 1920), np.uint8), (0, 0), 3)
    scene = cv2.normalize(scene, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)
    ratios = []
    print(f"{threads} threads; milliseconds, least of {TURNS * ROUNDS}")
    for width, height in ((640, 480), (1920, 1080)):
        for name, (ours, theirs) in _pairs(np.ascontiguousarray(scene[:height, :width])).items():
            mine = other = math.inf
            for _ in range(TURNS):
                mine, other = _least(ours, mine), _least(theirs, other)
            ratios.append(mine / other)
            print(
                f"{name:14} {width:4}x{height:<4} {1e3 * mine:8.3f} {1e3 * other:8.3f} {mine / other:6.2f}", flush=True
            )
    print(f"geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")


if __name__ == "__main__":
    main()
