"""Corners of FAST on pictures with edges, plateaus and slopes: Arm Compute Library 20.08's, in order, with strengths.

Random pixels have hardly two neighbours of one strength; these have many, so they tell how suppression decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary import compute
from tests.compute.acl_oracle.vision_cases import BORDERS, Calling, Function, Images
from tests.compute.acl_oracle.wire import Array, Case, Tensor, run

COUNT = 50


def _pictures(rng: np.random.Generator) -> Iterator[Array]:
    for number in range(COUNT):
        width, height = int(rng.integers(40, 160)), int(rng.integers(30, 120))
        shape, picture = (height, width), np.zeros((height, width))
        blocks = np.kron(rng.integers(0, 200, (-(-height // 7), -(-width // 9))), np.ones((7, 9)))[:height, :width]
        if number % 5 == 0:
            picture = blocks
        elif number % 5 == 1:
            picture = blocks + rng.integers(0, 50, shape)
        elif number % 5 == 2:
            y, x = np.mgrid[:height, :width]
            waves = rng.uniform(-1, 1, (6, 3)) * [40, 0.6, 0.6]
            picture = 127 + sum(a * np.sin(x * b + y * c) for a, b, c in waves)
        elif number % 5 == 3:
            for _ in range(25):
                top, left = int(rng.integers(0, height)), int(rng.integers(0, width))
                down, across = rng.integers(1, 14, 2)
                picture[top : top + down, left : left + across] = rng.choice([0, 90, 200, 255])
        else:
            picture = rng.integers(0, 4, shape) * 80
        yield np.clip(picture, 0, 255).astype(np.uint8)


def _case(picture: Array, params: list[float]) -> Case:
    mode, constant, threshold, keeps_largest = (int(v) for v in params)

    def configure(function: Function, images: Images) -> Any:  # Any: what gives the numbers
        found: list[compute.KeyPoint] = []
        function.configure(images[0], threshold, bool(keeps_largest), found, BORDERS[mode], constant)
        return lambda: [float(n) for k in found for n in (k.x, k.y, k.strength)]

    tensors = [Tensor("U8", (picture.shape[1], picture.shape[0]), [picture])]
    return Case("NEFastCorners", tensors, params, Calling(configure), outputs=(), has_region=False)


@pytest.mark.slow
def test_corners_are_the_library_s(program: Path) -> None:
    rng = np.random.default_rng(0)
    cases = [
        _case(picture, [*map(int, rng.integers([3, 256])), int(rng.integers(5, 100)), int(number % 4 != 0)])
        for number, picture in enumerate(_pictures(rng))
    ]
    for number, (case, wanted) in enumerate(zip(cases, run(program, cases), strict=True)):
        assert case.ours(case).numbers == wanted.numbers, (number, case.tensors[0].sizes, case.params)
    assert sum(len(case.ours(case).numbers) for case in cases) > 3 * 1000
