"""Other sizes and places: scaling, remapping by two maps, affine and perspective warps.

In: an image, the numbers of a matrix or maps of places. Out: an image. Invariant: places and rounding are the
library's. The arithmetic: `functions/formulas/geometry.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from armillary.compute.core.compiled import STEP
from armillary.compute.core.regions import region_of, sides_of, whole
from armillary.compute.core.tensor_info import BorderMode, DataType, PaddingSize, TensorInfo, ValidRegion
from armillary.compute.core.types import InterpolationPolicy
from armillary.compute.functions.arguments import wrong_type
from armillary.compute.functions.configured import Border
from armillary.compute.functions.formulas import geometry as formulas
from armillary.compute.functions.vision.base import VisionFunction, size_of
from armillary.compute.runtime.tensor import Tensor

U8 = DataType.U8


def _beside(border: Border) -> str:
    return "constant" if border.mode is BorderMode.CONSTANT else "replicate"


class Scale(VisionFunction):
    """Another size."""

    @classmethod
    def _wrong(cls, input: TensorInfo, output: TensorInfo, policy: InterpolationPolicy) -> Iterator[str]:
        if policy is InterpolationPolicy.AREA:
            yield wrong_type("the input", input, [U8])
            if max(_ratios(input, output)) > formulas.MOST_BOX - 1:
                yield f"AREA takes ratios up to {formulas.MOST_BOX - 1}, got {max(_ratios(input, output)):g}"

    def _bind(self, input: Tensor, output: Tensor, policy: InterpolationPolicy, border: Border) -> None:
        info = input.info()
        ratios = _ratios(info, output.info())
        is_area = policy is InterpolationPolicy.AREA
        name = "bilinear" if policy is InterpolationPolicy.BILINEAR else "nearest"
        region = scaled_region(info, output.info(), policy, border.mode)
        is_half = ratios == (2, 2) and info.data_type is U8 and not is_area and info.valid_region() == whole(info)
        if is_half and info.extend_padding(PaddingSize(0, 2 * STEP, 0, 0)):  # whole vectors read it
            self._set(formulas.halved(name), [input], [output], region=region)
            return
        if is_area and max(ratios) > 1:
            boxes = [(math.floor(-ratio / 2), math.ceil(ratio / 2)) for ratio in ratios]
            times = int(ratios[0]) if float(ratios[0]).is_integer() else 0
            formula = formulas.scale_area(boxes[0], boxes[1], _beside(border), times)
        else:
            formula = formulas.scale(name, info.data_type, _beside(border))
        numbers = (border.constant, *sides_of(info.valid_region()), *ratios)
        self._set(formula, [input], [output], numbers=numbers, region=region)


def scaled_region(
    input: TensorInfo, output: TensorInfo, policy: InterpolationPolicy, border_mode: BorderMode
) -> ValidRegion:
    """What is valid of an image in another size: with a border what a valid pixel has a part in, else only in.

    The library's rule, in its float32: without a border the nearest pixel, or all of those between, are valid.
    """
    sides, is_undefined = sides_of(input.valid_region()), border_mode is BorderMode.UNDEFINED
    ends = []
    for n, (size, extent) in enumerate(zip(size_of(input), size_of(output), strict=True)):
        first, end = sides[n], sides[n + 2]
        ratio = np.float32(extent) / np.float32(size)
        half = np.float32(0.5)
        if not is_undefined or policy is InterpolationPolicy.AREA:
            low, high = math.floor(first * ratio), math.ceil(end * ratio)
        elif policy is InterpolationPolicy.NEAREST_NEIGHBOR:
            low, high = math.ceil(first * ratio - half), math.ceil(end * ratio - half)
        else:
            low = math.ceil((first + half) * ratio - half)
            high = math.floor((end - 1 + half) * ratio - half + 1)
        ends.append((max(0, low), min(extent, high)))
    (left, right), (top, bottom) = ends
    return region_of((left, top, right, bottom), output.shape)


def _ratios(input: TensorInfo, output: TensorInfo) -> tuple[float, float]:
    (width, height), (wide, high) = size_of(input), size_of(output)
    return width / wide, height / high


class Remap(VisionFunction):
    """The pixel at the place that two maps of F32 say."""

    def _bind(
        self,
        input: Tensor,
        map_x: Tensor,
        map_y: Tensor,
        output: Tensor,
        policy: InterpolationPolicy,
        border: Border,
    ) -> None:
        numbers = (border.constant, *sides_of(input.info().valid_region()))
        self._set(formulas.remap(policy.value, _beside(border)), [input, map_x, map_y], [output], numbers=numbers)


class Warp(VisionFunction):
    """Places by a matrix; its setting is how many numbers it has."""

    @classmethod
    def _wrong(cls, matrix: Sequence[float]) -> Iterator[str]:
        if len(matrix) < int(cls.setting):
            yield f"the matrix has {len(matrix)} numbers, wanted {cls.setting}"

    def _bind(
        self, input: Tensor, output: Tensor, matrix: Sequence[float], policy: InterpolationPolicy, border: Border
    ) -> None:
        count = int(self.setting)
        numbers = (border.constant, *sides_of(input.info().valid_region()), *matrix[:count])
        self._set(formulas.warp(policy.value, count == 9, _beside(border)), [input], [output], numbers=numbers)
