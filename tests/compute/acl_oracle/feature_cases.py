"""Random cases of corners, pyramids, histograms of gradients and optical flow.

In: a generator of random numbers. Out: a `Case`, whose results are numbers: places, strengths, values of all levels.
Invariant: as for `vision_cases.py`. Of some cases numbers may differ (`bound`, `share`).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from armillary import compute
from armillary.compute import Format, HOGInfo, HOGNormType, PhaseType, Size2D, Termination
from tests.compute.acl_oracle.vision_cases import (
    BORDERS,
    Build,
    Calling,
    Function,
    Images,
    Rng,
    border,
    drawn,
    like,
    size,
)
from tests.compute.acl_oracle.wire import Case, Tensor


def _fast(rng: Rng) -> Case:
    sizes, (mode, constant, params) = size(rng, 10), border(rng)
    threshold, keeps_largest = int(rng.integers(10, 120)), int(rng.integers(2))

    def configure(function: Function, images: Images) -> Any:  # Any: what gives the numbers
        found: list[compute.KeyPoint] = []
        function.configure(images[0], threshold, bool(keeps_largest), found, mode, constant)
        return lambda: [float(n) for k in found for n in (k.x, k.y, k.strength)]

    tensors = [drawn(rng, "U8", sizes)]
    return Case(
        "NEFastCorners", tensors, [*params, threshold, keeps_largest], Calling(configure), outputs=(), has_region=False
    )


def _pyramid(name: str, scale: float, kind: str = "U8") -> Build:
    """Sizes and values of all levels; with a border, as what lies beside the valid region is not defined."""

    def case(rng: Rng) -> Case:
        sizes, (mode, constant, params) = size(rng, 12), border(rng, BORDERS[1:])
        levels = int(rng.integers(1, 6 if "Orb" in name else 4))

        def configure(function: Function, images: Images) -> Any:  # Any: what gives the numbers
            pyramid = like(function, "Pyramid")
            pyramid.init(levels, scale, *sizes, Format[kind])
            function.configure(images[0], pyramid, *images[1:], mode, constant)
            pyramid.allocate()
            made = [pyramid.get_pyramid_level(n) for n in range(levels)]
            return lambda: [float(v) for t in made for v in (*t.info().shape, *t.read().ravel())]

        tensors = [drawn(rng, "U8", sizes)]
        if kind == "S16":
            last = [functools.reduce(lambda n, _: math.ceil(n * scale), range(levels - 1), side) for side in sizes]
            tensors.append(drawn(rng, kind, (last[0], last[1])))
        outputs = (-1,) if kind == "S16" else ()
        return Case(name, tensors, [*params, levels], Calling(configure), outputs=outputs, has_region=False)

    return case


def _reconstruct(rng: Rng) -> Case:
    """A Laplacian pyramid, then the image made of it."""
    sizes, (mode, constant, params) = size(rng, 12), border(rng, BORDERS[1:])
    levels = int(rng.integers(1, 4))

    def configure(function: Function, images: Images) -> Any:  # Any: what gives the numbers
        pyramid, apart = like(function, "Pyramid"), like(function, "NELaplacianPyramid")
        pyramid.init(levels, compute.SCALE_PYRAMID_HALF, *sizes, Format.S16)
        apart.configure(images[0], pyramid, images[1], mode, constant)
        function.configure(pyramid, images[1], images[2], mode, constant)
        pyramid.allocate()
        whole = function.run
        function.run = lambda: (apart.run(), whole())

    half = compute.SCALE_PYRAMID_HALF
    last = [functools.reduce(lambda n, _: math.ceil(n * half), range(levels - 1), side) for side in sizes]
    tensors = [drawn(rng, "U8", sizes), drawn(rng, "S16", (last[0], last[1])), drawn(rng, "U8", sizes)]
    return Case("NELaplacianReconstruct", tensors, [*params, levels], Calling(configure), has_region=False)


NORMS, PHASES = list(HOGNormType), list(PhaseType)


def hog_info(rng: Rng) -> tuple[HOGInfo, list[float]]:
    """Sizes, and what the driver takes for them."""
    cell = Size2D(int(rng.integers(4, 10)), int(rng.integers(4, 10)))
    block = Size2D(cell.width * int(rng.integers(1, 3)), cell.height * int(rng.integers(1, 3)))
    window = Size2D(block.width + cell.width, block.height + cell.height)
    bins, norm, phase = int(rng.integers(3, 12)), int(rng.integers(3)), int(rng.integers(2))
    info = HOGInfo(cell, block, window, cell, bins, NORMS[norm], 0.25, PHASES[phase])
    sizes = [n for pair in (cell, block, window, cell) for n in (pair.width, pair.height)]
    return info, [*map(float, sizes), bins, norm + 1, 0.25, phase]


def _hog_descriptor(rng: Rng) -> Case:
    sizes, (mode, constant, params) = (int(rng.integers(24, 60)), int(rng.integers(24, 40))), border(rng, BORDERS[1:])
    info, more = hog_info(rng)

    def configure(function: Function, images: Images) -> Any:  # Any: what gives the numbers
        hog, output = compute.HOG(), like(function, "Tensor")
        hog.init(info)
        output.allocator().init(info.tensor_info(*sizes))
        function.configure(images[0], output, hog, mode, constant)
        output.allocator().allocate()
        blocks = info.num_block_positions_per_image(Size2D(*sizes))
        head = [blocks.width, blocks.height, info.num_bins_per_block()]
        return lambda: [*map(float, head), *output.read().ravel().tolist()]

    tensors = [drawn(rng, "U8", sizes)]
    return Case(
        "NEHOGDescriptor", tensors, [*params, *more], Calling(configure), bound=4e-6, outputs=(), has_region=False
    )


def _classifier(rng: Rng, info: HOGInfo) -> list[float]:
    """Factors and a bias, by which about half of the windows are found."""
    factors = np.float32(rng.standard_normal(info.descriptor_size()))
    factors[-1] = 0
    return [float(v) for v in factors]


def _found(windows: list[compute.DetectionWindow]) -> list[float]:
    return [float(n) for w in windows for n in (w.x, w.y, w.width, w.height, w.idx_class, w.score)]


def _hog_detector(rng: Rng) -> Case:
    sizes, (mode, constant, params) = (int(rng.integers(40, 90)), int(rng.integers(40, 60))), border(rng, BORDERS[1:])
    info, more = hog_info(rng)
    classifier, threshold = _classifier(rng, info), float(np.float32(rng.uniform(-0.3, 0.3)))
    stride = Size2D(*(side * int(rng.integers(1, 3)) for side in (info.block_stride.width, info.block_stride.height)))

    def configure(function: Function, images: Images) -> Any:  # Any: what gives the numbers
        hog, found = compute.HOG(), list[compute.DetectionWindow]()
        blocks, describe = like(function, "Tensor"), like(function, "NEHOGDescriptor")
        hog.init(info)
        hog.descriptor()[...] = classifier
        blocks.allocator().init(info.tensor_info(*sizes))
        describe.configure(images[0], blocks, hog, mode, constant)
        blocks.allocator().allocate()
        function.configure(blocks, hog, found, stride, threshold, 3)

        def numbers() -> list[float]:
            describe.run()
            found.clear()
            function.run()
            return _found(found)

        return numbers

    params += [*more, stride.width, stride.height, threshold, *classifier]
    return Case(
        "NEHOGDetector", [drawn(rng, "U8", sizes)], params, Calling(configure), bound=4e-6, outputs=(), has_region=False
    )


def _hog_multi_detection(rng: Rng) -> Case:
    """Two models, which in half of the cases share cells and blocks."""
    sizes, (mode, constant, params) = (int(rng.integers(40, 90)), int(rng.integers(40, 60))), border(rng, BORDERS[1:])
    first, suppresses, distance = hog_info(rng), int(rng.integers(2)), float(rng.integers(5, 40))
    second = first if rng.integers(2) else hog_info(rng)
    if second[0].phase_type is not first[0].phase_type:
        second = first
    threshold = float(np.float32(rng.uniform(-0.2, 0.2)))
    params += [threshold, suppresses, distance]
    made = []
    for info, more in (first, second):
        stride, classifier = (info.block_stride.width, info.block_stride.height), _classifier(rng, info)
        params += [*more, *stride, *classifier]
        made.append((info, Size2D(*stride), classifier))

    def configure(function: Function, images: Images) -> Any:  # Any: what gives the numbers
        models, found = compute.MultiHOG(2), list[compute.DetectionWindow]()
        for n, (info, _, classifier) in enumerate(made):
            models.model(n).init(info)
            models.model(n).descriptor()[...] = classifier
        strides = [stride for _, stride, _ in made]
        function.configure(images[0], models, found, strides, mode, constant, threshold, bool(suppresses), distance)
        return lambda: _found(found)

    return Case(
        "NEHOGMultiDetection",
        [drawn(rng, "U8", sizes)],
        params,
        Calling(configure),
        bound=4e-6,
        row=6,
        outputs=(),
        has_region=False,
    )


def _moving(rng: Rng, sizes: tuple[int, int]) -> list[Tensor]:
    """Two smooth images, the second one moved by some pixels."""
    width, height = sizes
    waves, phase = rng.uniform(0.1, 0.4, (4, 2)), rng.uniform(0, 6, 4)
    shift = rng.uniform(-1, 1, 2)
    planes = []
    for dx, dy in ((0.0, 0.0), shift):
        y, x = np.mgrid[:height, :width]
        total = sum(np.sin(a * (x - dx) + b * (y - dy) + c) for (a, b), c in zip(waves, phase, strict=True))
        planes.append(np.asarray(127 + 30 * total, np.uint8))
    return [Tensor("U8", sizes, [plane]) for plane in planes]


def _flow(rng: Rng) -> Case:
    sizes, (mode, constant, params) = (int(rng.integers(40, 64)), int(rng.integers(32, 48))), border(rng, BORDERS[2:])
    levels, count, side = int(rng.integers(1, 4)), int(rng.integers(1, 12)), int(rng.integers(3, 12))
    points = [(int(rng.integers(sizes[0])), int(rng.integers(sizes[1]))) for _ in range(count)]

    def configure(function: Function, images: Images) -> Any:  # Any: what gives the numbers
        found: list[compute.KeyPoint] = []
        pyramids, makers = [like(function, "Pyramid"), like(function, "Pyramid")], []
        for pyramid, image in zip(pyramids, images, strict=True):
            pyramid.init(levels, compute.SCALE_PYRAMID_HALF, *sizes)
            makers.append(like(function, "NEGaussianPyramidHalf"))
            makers[-1].configure(image, pyramid, mode, constant)
        given = [compute.KeyPoint(*place) for place in points]
        both = Termination.TERM_CRITERIA_BOTH
        function.configure(*pyramids, given, given, found, both, 0.01, 12, side, False, mode, constant)
        for pyramid in pyramids:
            pyramid.allocate()

        def numbers() -> list[float]:
            for maker in makers:
                maker.run()
            function.run()
            return [float(n) for k in found for n in (k.x, k.y, k.tracking_status)]

        return numbers

    params += [levels, 0.01, 12, side, count, *(n for place in points for n in place)]
    images = _moving(rng, sizes)
    return Case("NEOpticalFlow", images, params, Calling(configure), outputs=(), has_region=False)


def _mean(rng: Rng) -> Case:
    def configure(function: Function, images: Images) -> Any:  # Any: what gives the numbers
        mean, deviation = compute.Scalar(), compute.Scalar()
        function.configure(images[0], mean, deviation)
        return lambda: [mean.value, deviation.value]

    tensors = [drawn(rng, "U8", size(rng), int(rng.integers(100)), int(rng.integers(100, 256)))]
    return Case("NEMeanStdDev", tensors, [], Calling(configure), bound=1e-3, outputs=(), has_region=False)


def _harris(rng: Rng) -> Case:
    sizes, (mode, constant, params) = (int(rng.integers(24, 64)), int(rng.integers(24, 48))), border(rng)
    gradient, block = (int(n) for n in rng.choice([3, 5, 7], 2))
    threshold, distance = float(np.float32(rng.uniform(1e-5, 1e-3))), float(rng.integers(1, 8))

    def configure(function: Function, images: Images) -> Any:  # Any: what gives the numbers
        found: list[compute.KeyPoint] = []
        function.configure(images[0], threshold, distance, 0.05, gradient, block, found, mode, constant)
        return lambda: [float(n) for k in found for n in (k.x, k.y, k.strength)]

    more = [threshold, distance, 0.05, gradient, block]
    tensors = [drawn(rng, "U8", sizes)]
    if rng.integers(2):  # corners that are equally strong
        squares = np.kron(rng.integers(0, 2, (6, 8)) * 200, np.ones((8, 8)))
        tensors[0].planes[0] = squares.astype(np.uint8)[: sizes[1], : sizes[0]].copy()
    return Case("NEHarrisCorners", tensors, [*params, *more], Calling(configure), outputs=(), has_region=False)


FEATURES: dict[str, Build] = {
    "NEMeanStdDev": _mean,
    "NEHarrisCorners": _harris,
    "NEFastCorners": _fast,
    "NEGaussianPyramidHalf": _pyramid("NEGaussianPyramidHalf", compute.SCALE_PYRAMID_HALF),
    "NEGaussianPyramidOrb": _pyramid("NEGaussianPyramidOrb", compute.SCALE_PYRAMID_ORB),
    "NELaplacianPyramid": _pyramid("NELaplacianPyramid", compute.SCALE_PYRAMID_HALF, "S16"),
    "NELaplacianReconstruct": _reconstruct,
    "NEHOGDescriptor": _hog_descriptor,
    "NEHOGDetector": _hog_detector,
    "NEHOGMultiDetection": _hog_multi_detection,
    "NEOpticalFlow": _flow,
}
