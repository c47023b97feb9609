"""Chains of functions: what is valid behind each follows from what was valid before it, on the CPU and on a device."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opencl_device import needs_opencl

from armillary.compute import BorderMode, CLScheduler, Format, TensorInfo
from armillary.errors import TypeMismatch
from tests.compute.acl_oracle.chain_cases import ENDS, LINKS, ChainCase, chain, differences
from tests.compute.acl_oracle.vision_cases import BORDERS, BUILDERS, Calling, image_of, like
from tests.compute.acl_oracle.wire import Array, Case, Tensor, run

FRESH = 16  # chains that each run draws
BATCH = 50  # of which a process of the library does so many
SIDES = ["NE", pytest.param("CL", marks=needs_opencl)]
GAUSSIAN_3 = [1, 2, 1, 2, 4, 2, 1, 2, 1]
GAUSSIAN_5 = [a * b for a in (1, 4, 6, 4, 1) for b in (1, 4, 6, 4, 1)]
BORDERED = [
    n for n in BUILDERS if any(w in n for w in ("Gaussian", "Box", "Median", "Erode", "Sobel3", "Convolution5"))
]


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest) -> str:
    if request.param == "CL":
        CLScheduler.get().default_init()
    kind: str = request.param
    return kind


def _images(side: str, count: int, width: int = 100, height: int = 50) -> list[Any]:  # Any: images of a side
    images = [like(side, "Image") for _ in range(count)]
    for image in images:
        image.allocator().init(TensorInfo(width, height, Format.U8))
    return images


def _region(image: Any) -> tuple[int, ...]:  # Any: see _images
    region = image.info().valid_region()
    return (region.anchor[0], region.anchor[1], *region.shape)


def test_borders_that_are_undefined_add_up(side: str) -> None:
    source, between, target = _images(side, 3)
    first, second = like(side, "NEConvolution3x3"), like(side, "NEConvolution5x5")
    first.configure(source, between, GAUSSIAN_3, 0, BorderMode.UNDEFINED)
    second.configure(between, target, GAUSSIAN_5, 0, BorderMode.UNDEFINED)
    assert (_region(between), _region(target)) == ((1, 1, 98, 48), (3, 3, 94, 44))
    assert _region(source) == (0, 0, 100, 50)


def test_a_sum_is_valid_where_both_are(side: str) -> None:
    source, small, smaller, total = _images(side, 4)
    for name, target in (("NEMedian3x3", small), ("NEGaussian5x5", smaller)):
        like(side, name).configure(source, target, BorderMode.UNDEFINED)
    like(side, "NEAbsoluteDifference").configure(small, smaller, total)
    assert _region(total) == (2, 2, 96, 46)


def test_an_image_with_too_few_valid_pixels_is_refused(side: str) -> None:
    source, between, target = _images(side, 3, 30, 8)
    like(side, "NEConvolution7x7").configure(source, between, [1] * 49, 0, BorderMode.UNDEFINED)
    with pytest.raises(TypeMismatch, match="leave no window"):
        like(side, "NEGaussian3x3").configure(between, target, BorderMode.UNDEFINED)


def _behind(side: str, case: Case, undefined: int) -> tuple[list[Array], tuple[int, ...]]:
    """A function with a border behind one without; and the pixels that were valid between them."""
    source, *images = [image_of(t, side) for t in (case.tensors[0], *case.tensors)]
    first, second = like(side, "NEGaussian5x5"), like(side, case.name)
    first.configure(source, images[0], BorderMode.UNDEFINED)
    calling = case.ours
    assert isinstance(calling, Calling)
    calling.configure(second, images)
    for image in (source, *images):
        image.allocator().allocate()
        image.write(np.full_like(image.read(), undefined))
    source.write(case.tensors[0].planes[0])
    first.run()
    between = images[0].read().copy()
    second.run()
    return [between, *(images[n].read().copy() for n in case.outputs)], _region(images[-1])


@pytest.mark.parametrize("border", [BorderMode.CONSTANT, BorderMode.REPLICATE])
@pytest.mark.parametrize("name", BORDERED)
def test_a_border_lies_around_the_valid_pixels(name: str, border: BorderMode, side: str) -> None:
    """A function gives of an image that is valid in part what it gives of that part alone."""
    cases = (BUILDERS[name](np.random.default_rng([1, number])) for number in range(1000))
    mode = BORDERS.index(border)
    case = next(c for c in cases if c.params[0] == mode and min(c.tensors[0].sizes) > 14)
    (between, *outputs), region = _behind(side, case, 11)
    again, _ = _behind(side, case, 222)
    x, y, width, height = region
    assert region == (2, 2, case.tensors[0].sizes[0] - 4, case.tensors[0].sizes[1] - 4)
    tensors = [Tensor(t.kind, (width, height), [t.planes[0][:height, :width]]) for t in case.tensors]
    tensors[0].planes[0] = between[y : y + height, x : x + width]
    alone = Case(name, tensors, case.params, case.ours, outputs=case.outputs, side=side)
    for output, other, wanted in zip(outputs, again[1:], case.ours(alone).outputs, strict=True):
        assert (output[y : y + height, x : x + width] == wanted).all()
        assert (other[y : y + height, x : x + width] == wanted).all()  # whatever the pixels that are not valid hold


def _drawn(first: int, count: int) -> Iterator[tuple[int, ChainCase]]:
    """Chains by their numbers."""
    for number in range(first, first + count * 4):
        rng = np.random.default_rng(number)
        names = [LINKS[int(k)] for k in rng.integers(len(LINKS), size=2 + number % 2)]
        if number % 5 == 0:
            names[-1] = ENDS[int(rng.integers(len(ENDS)))]
        if any(name.startswith("NEWarp") for name in names[:-1]):
            continue  # a warp may round a pixel to the other neighbour, which what follows magnifies
        case = chain(rng, names)
        if case is not None:
            yield number, case


def _compare(program: Path, first: int, count: int) -> None:
    drawn = list(islice(_drawn(first, count), count))
    for start in range(0, count, BATCH):
        part = drawn[start : start + BATCH]
        for (number, case), theirs in zip(part, run(program, [case for _, case in part]), strict=True):
            assert differences(case, case.ours(case), theirs) == [], f"{case.name}, from number {number}"


def test_fresh_chains_are_the_librarys(program: Path) -> None:
    _compare(program, int(np.random.default_rng().integers(1 << 30)), FRESH)


def test_a_place_at_the_edge_of_a_pixel_is_rounded_once(program: Path) -> None:
    """Row 27 of 33 lies at 32 - 1.5e-6 of 39: the product rounded by itself makes it 32."""
    _compare(program, 926770862, 1)


@pytest.mark.slow
def test_many_chains_are_the_librarys(program: Path) -> None:
    _compare(program, 0, 2000)
