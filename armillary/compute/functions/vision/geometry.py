"""Other sizes and places: scaling, remapping by two maps, affine and perspective warps.

In: an image, the numbers of a matrix or maps of places. Out: an image. Invariant: places and rounding are the
library's. The arithmetic: `functions/formulas/geometry.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from armillary.compute.core.compiled import STEP
from armillary.compute.core.kernel import Status
from armillary.compute.core.regions import region_of, sides_of, whole
from armillary.compute.core.tensor_info import BorderMode, DataType, PaddingSize, TensorInfo, ValidRegion
from armillary.compute.functions.formulas import geometry as formulas
from armillary.compute.functions.vision.base import (
    InterpolationPolicy,
    VisionFunction,
    objection,
    size_of,
    wrong_size,
    wrong_type,
)
from armillary.compute.runtime.tensor import Tensor

U8, S16, F32 = DataType.U8, DataType.S16, DataType.F32
_SCALED = {InterpolationPolicy.AREA: (U8,)}


def _beside(border: BorderMode) -> str:
    return "constant" if border is BorderMode.CONSTANT else "replicate"


class NEScale(VisionFunction):
    """Another size: by the nearest pixel, between four, or the mean of a box."""

    @classmethod
    def validate(  # type: ignore[override]  # named
        cls,
        input: TensorInfo,
        output: TensorInfo,
        policy: InterpolationPolicy = InterpolationPolicy.NEAREST_NEIGHBOR,
        border_mode: BorderMode = BorderMode.UNDEFINED,
    ) -> Status:
        """Whether tensors of this information can be configured."""
        del border_mode
        ratios = _ratios(input, output)
        is_large = policy is InterpolationPolicy.AREA and max(ratios) > formulas.MOST_BOX - 1
        return objection(
            "NEScale",
            wrong_type("tensor 0", input, *_SCALED.get(policy, (U8, S16, F32))),
            wrong_type("tensor 1", output, input.data_type),
            f"AREA takes ratios up to {formulas.MOST_BOX - 1}, got {max(ratios):g}" if is_large else "",
        )

    def configure(
        self,
        input: Tensor,
        output: Tensor,
        policy: InterpolationPolicy,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the images; AREA to a larger size is NEAREST_NEIGHBOR."""
        ratios = _ratios(input.info(), output.info())
        kind, border, is_area = input.info().data_type, _beside(border_mode), policy is InterpolationPolicy.AREA
        name = "bilinear" if policy is InterpolationPolicy.BILINEAR else "nearest"
        region = scaled_region(input.info(), output.info(), policy, border_mode)
        is_half = ratios == (2, 2) and kind is U8 and not is_area and input.info().valid_region() == whole(input.info())
        if is_half and input.info().extend_padding(PaddingSize(0, 2 * STEP, 0, 0)):  # whole vectors read it
            self._configure([input], [output], formula=formulas.halved(name), region=region)
            return
        if is_area and max(ratios) > 1:
            boxes = [(math.floor(-ratio / 2), math.ceil(ratio / 2)) for ratio in ratios]
            times = int(ratios[0]) if float(ratios[0]).is_integer() else 0
            formula = formulas.scale_area(boxes[0], boxes[1], border, times)
        else:
            formula = formulas.scale(name, kind, border)
        numbers = (constant_border_value, *sides_of(input.info().valid_region()), *ratios)
        self._configure([input], [output], numbers=numbers, formula=formula, region=region)


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


def _is_known(policy: InterpolationPolicy) -> str:
    return "AREA is for NEScale alone" if policy is InterpolationPolicy.AREA else ""


class NERemap(VisionFunction):
    """The pixel at the place that two maps of F32 say."""

    @classmethod
    def validate(  # type: ignore[override]  # named
        cls,
        input: TensorInfo,
        map_x: TensorInfo,
        map_y: TensorInfo,
        output: TensorInfo,
        policy: InterpolationPolicy = InterpolationPolicy.NEAREST_NEIGHBOR,
    ) -> Status:
        """Whether tensors of this information can be configured."""
        return objection(
            "NERemap",
            wrong_type("tensor 0", input, U8),
            wrong_type("map x", map_x, F32),
            wrong_type("map y", map_y, F32),
            wrong_type("the output", output, U8),
            wrong_size("map x", map_x, *size_of(output)),
            wrong_size("map y", map_y, *size_of(output)),
            _is_known(policy),
        )

    def configure(
        self,
        input: Tensor,
        map_x: Tensor,
        map_y: Tensor,
        output: Tensor,
        policy: InterpolationPolicy,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the images and the maps."""
        formula, numbers = formulas.remap(policy.value, _beside(border_mode)), sides_of(input.info().valid_region())
        self._configure([input, map_x, map_y], [output], numbers=(constant_border_value, *numbers), formula=formula)


class _Warp(VisionFunction):
    _count: ClassVar[int]

    @classmethod
    def validate(  # type: ignore[override]  # named
        cls,
        input: TensorInfo,
        output: TensorInfo,
        matrix: Sequence[float],
        policy: InterpolationPolicy = InterpolationPolicy.NEAREST_NEIGHBOR,
    ) -> Status:
        """Whether tensors of this information can be configured."""
        few = len(matrix) < cls._count
        return objection(
            cls.__name__,
            wrong_type("tensor 0", input, U8),
            wrong_type("tensor 1", output, U8),
            f"the matrix has {len(matrix)} numbers, wanted {cls._count}" if few else "",
            _is_known(policy),
        )

    def configure(
        self,
        input: Tensor,
        output: Tensor,
        matrix: Sequence[float],
        policy: InterpolationPolicy,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the images and the matrix, by columns as in OpenVX: from places of the output to those of the input."""
        numbers = (constant_border_value, *sides_of(input.info().valid_region()), *matrix[: self._count])
        formula = formulas.warp(policy.value, self._count == 9, _beside(border_mode))
        self._configure([input], [output], numbers=numbers, formula=formula)


class NEWarpAffine(_Warp):
    """By six numbers."""

    _count = 6


class NEWarpPerspective(_Warp):
    """By nine numbers; places are divided by the third row's."""

    _count = 9
