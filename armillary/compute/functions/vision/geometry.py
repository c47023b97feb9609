"""Other sizes and places: scaling, remapping by two maps, affine and perspective warps.

In: an image, the numbers of a matrix or maps of places. Out: an image. Places and rounding are the library's. The
arithmetic: `functions/formulas/geometry.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from armillary.compute.core.compiled import Formula
from armillary.compute.core.kernel import Status
from armillary.compute.core.tensor_info import BorderMode, DataType, TensorInfo
from armillary.compute.functions.formulas import geometry as formulas
from armillary.compute.functions.vision.base import (
    InterpolationPolicy,
    VisionFunction,
    objection,
    refuse,
    row_of,
    size_of,
    wrong_size,
    wrong_type,
)
from armillary.compute.runtime.tensor import Tensor

U8, S16, F32 = DataType.U8, DataType.S16, DataType.F32
_SCALED = {InterpolationPolicy.AREA: (U8,)}


def _beside(border: BorderMode, constant: int) -> tuple[str, int]:
    return border.value, constant if border is BorderMode.CONSTANT else 0


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
        refuse(self.validate(input.info(), output.info(), policy, border_mode))
        ratios = _ratios(input.info(), output.info())
        kind, formula = input.info().data_type, None
        if policy is InterpolationPolicy.AREA and max(ratios) > 1:
            boxes = [(math.floor(-ratio / 2), math.ceil(ratio / 2)) for ratio in ratios]
            formula = formulas.scale_area(boxes[0], boxes[1])
        elif policy is InterpolationPolicy.BILINEAR:
            formula = formulas.scale("bilinear", kind)
        numbers = row_of((*size_of(input.info()), *ratios))
        options = _beside(border_mode, constant_border_value)
        chosen = formula or formulas.scale("nearest", kind)
        self._configure([input, numbers], [output], options=options, formula=chosen)


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
        refuse(self.validate(input.info(), map_x.info(), map_y.info(), output.info(), policy))
        inputs = [input, row_of(size_of(input.info())), map_x, map_y]
        options = _beside(border_mode, constant_border_value)
        self._configure(inputs, [output], options=options, formula=formulas.remap(policy.value))


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
        refuse(self.validate(input.info(), output.info(), matrix, policy))
        numbers = row_of((*size_of(input.info()), *matrix[: self._count]))
        formula: Formula = formulas.warp(policy.value, self._count == 9)
        options = _beside(border_mode, constant_border_value)
        self._configure([input, numbers], [output], options=options, formula=formula)


class NEWarpAffine(_Warp):
    """By six numbers."""

    _count = 6


class NEWarpPerspective(_Warp):
    """By nine numbers; places are divided by the third row's."""

    _count = 9
