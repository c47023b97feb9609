"""Pixel by pixel: differences, bits, sums, products, accumulation, thresholds, tables, length and angle of gradients.

In: images of one size. Out: an image, or the accumulated one. Invariant: names and argument orders are the library's.
The arithmetic: `functions/formulas/arithmetic.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import ClassVar

import numpy as np

from armillary.base.boundary import bounded
from armillary.compute.core.compiled import Formula
from armillary.compute.core.kernel import Status
from armillary.compute.core.tensor_info import DataType, TensorInfo
from armillary.compute.functions.formulas import arithmetic as formulas
from armillary.compute.functions.vision.base import (
    ConvertPolicy,
    RoundingPolicy,
    VisionFunction,
    image,
    objection,
    size_of,
    wrong_size,
    wrong_type,
)
from armillary.compute.runtime.tensor import Array, Tensor
from armillary.errors import TypeMismatch

U8, S16, F32 = DataType.U8, DataType.S16, DataType.F32


class MagnitudeType(Enum):
    """How long a gradient is: the sum of both sizes, or the root of the sum of their squares."""

    L1NORM, L2NORM = "L1", "L2"


class PhaseType(Enum):
    """SIGNED: 0 to 255 for a whole turn. UNSIGNED: degrees of half a turn."""

    SIGNED, UNSIGNED = "signed", "unsigned"


class ThresholdType(Enum):
    """BINARY: above a threshold or not. RANGE: between two or not."""

    BINARY, RANGE = "binary", "range"


class _Pairwise(VisionFunction):
    """Two images in, one out."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None:
        """Set the images."""
        self._configure([input1, input2], [output])


class NEAbsoluteDifference(_Pairwise):
    """|a - b|, of U8 or S16."""

    formula = formulas.ABSOLUTE_DIFFERENCE

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None:
        """Set the images."""
        is_short = input1.info().data_type is S16
        formula = formulas.ABSOLUTE_DIFFERENCE_S16 if is_short else self.formula
        self._configure([input1, input2], [output], formula=formula)


class NEBitwiseAnd(_Pairwise):
    """a and b, bit by bit."""

    formula = formulas.BITWISE_AND


class NEBitwiseOr(_Pairwise):
    """a or b, bit by bit."""

    formula = formulas.BITWISE_OR


class NEBitwiseXor(_Pairwise):
    """a or b but not both, bit by bit."""

    formula = formulas.BITWISE_XOR


class NEBitwiseNot(VisionFunction):
    """Every bit the other way."""

    formula = formulas.BITWISE_NOT

    def configure(self, input: Tensor, output: Tensor) -> None:
        """Set the images."""
        self._configure([input], [output])


class NEThreshold(VisionFunction):
    """One value for pixels above a threshold (or between two), another one for the rest."""

    formula = formulas.THRESHOLD

    def configure(
        self,
        input: Tensor,
        output: Tensor,
        threshold: int,
        false_value: int = 0,
        true_value: int = 255,
        type: ThresholdType = ThresholdType.BINARY,
        upper: int = 0,
    ) -> None:
        """Set the images and the values, all from 0 to 255; RANGE is from `threshold` to `upper`, both included."""
        values = (threshold, false_value, true_value, upper)
        if any(not 0 <= v <= 255 for v in values):
            raise TypeMismatch(f"NEThreshold: threshold and values are 0 to 255, got {values}")
        if type is ThresholdType.BINARY:
            self._configure([input], [output], numbers=values[:3])
        else:
            numbers = (threshold, upper, false_value, true_value)
            self._configure([input], [output], numbers=numbers, formula=formulas.THRESHOLD_RANGE)


class _Accumulating(VisionFunction):
    """One image in; the other one is read and written."""

    @classmethod
    def validate(cls, input: TensorInfo, accum: TensorInfo) -> Status:  # type: ignore[override]  # named
        """Whether tensors of this information can be configured."""
        return super().validate(input, accum, accum)


class NEAccumulate(_Accumulating):
    """accum += input, saturated to S16."""

    formula = formulas.ACCUMULATE

    def configure(self, input: Tensor, accum: Tensor) -> None:
        """Set the images."""
        self._configure([input, accum], [accum])


class NEAccumulateSquared(_Accumulating):
    """accum += input * input >> shift, saturated to S16."""

    formula = formulas.ACCUMULATE_SQUARED

    def configure(self, input: Tensor, shift: int, accum: Tensor) -> None:
        """Set the images and the shift, 0 to 15."""
        if not 0 <= shift <= 15:
            raise TypeMismatch(f"NEAccumulateSquared: the shift is {shift}, wanted 0 to 15")
        self._configure([input, accum], [accum], numbers=(shift,))


class NEAccumulateWeighted(_Accumulating):
    """accum = (1 - alpha) * accum + alpha * input, without its fraction."""

    formula = formulas.ACCUMULATE_WEIGHTED

    def configure(self, input: Tensor, alpha: float, accum: Tensor, use_fp16: bool = False) -> None:
        """Set the images and the weight, 0 to 1."""
        del use_fp16
        if not 0.0 <= alpha <= 1.0:
            raise TypeMismatch(f"NEAccumulateWeighted: alpha is {alpha}, wanted 0 to 1")
        self._configure([input, accum], [accum], numbers=(alpha,))


_TYPES = {(U8, U8): (U8, S16), (U8, S16): (S16,), (S16, U8): (S16,), (S16, S16): (S16,), (F32, F32): (F32,)}


def _types(name: str, input1: TensorInfo, input2: TensorInfo, output: TensorInfo) -> Status:
    kinds = (input1.data_type, input2.data_type)
    message = f"inputs are {kinds[0].name} and {kinds[1].name}, wanted U8, S16 or both F32"
    return objection(
        name,
        "" if kinds in _TYPES else message,
        wrong_type("the output", output, *_TYPES.get(kinds, (output.data_type,))),
        wrong_size("input 2", input2, *size_of(input1)),
        wrong_size("the output", output, *size_of(input1)),
    )


class _Sum(VisionFunction):
    _sign: ClassVar[int]

    @classmethod
    def validate(  # type: ignore[override]  # named
        cls,
        input1: TensorInfo,
        input2: TensorInfo,
        output: TensorInfo,
        policy: ConvertPolicy = ConvertPolicy.SATURATE,
    ) -> Status:
        """Whether tensors of this information can be configured."""
        del policy
        return _types(cls.__name__, input1, input2, output)

    def configure(
        self, input1: Tensor, input2: Tensor, output: Tensor, policy: ConvertPolicy = ConvertPolicy.SATURATE
    ) -> None:
        """Set the images and what becomes of results that do not fit."""
        kinds = (input1.info().data_type, input2.info().data_type)
        saturates = policy is ConvertPolicy.SATURATE
        formula = formulas.arithmetic(self._sign, kinds, output.info().data_type, saturates)
        self._configure([input1, input2], [output], formula=formula)


class NEArithmeticAddition(_Sum):
    """a + b."""

    _sign = 1


class NEArithmeticSubtraction(_Sum):
    """a - b."""

    _sign = -1


class NEPixelWiseMultiplication(VisionFunction):
    """a * b * scale; scales are 1/2^n (n up to 15, rounded to zero) and 1/255 (rounded to nearest, even)."""

    @classmethod
    def validate(  # type: ignore[override]  # named
        cls,
        input1: TensorInfo,
        input2: TensorInfo,
        output: TensorInfo,
        scale: float = 1.0,
        overflow_policy: ConvertPolicy = ConvertPolicy.SATURATE,
        rounding_policy: RoundingPolicy = RoundingPolicy.TO_ZERO,
    ) -> Status:
        """Whether tensors of this information can be configured."""
        del overflow_policy
        shift = _shift(scale)
        wanted = RoundingPolicy.TO_NEAREST_EVEN if shift == -1 else RoundingPolicy.TO_ZERO
        is_real = input1.data_type is F32
        status = _types(cls.__name__, input1, input2, output)
        return (
            status
            if not status
            else objection(
                cls.__name__,
                f"the scale is {scale}, wanted 1/2^n with n from 0 to 15, or 1/255" if shift is None else "",
                "" if is_real or rounding_policy is wanted else f"a scale of {scale:g} is rounded {wanted.name}",
            )
        )

    def configure(
        self,
        input1: Tensor,
        input2: Tensor,
        output: Tensor,
        scale: float = 1.0,
        overflow_policy: ConvertPolicy = ConvertPolicy.SATURATE,
        rounding_policy: RoundingPolicy = RoundingPolicy.TO_ZERO,
    ) -> None:
        """Set the images, the scale, and what becomes of results that do not fit."""
        infos = (input1.info(), input2.info(), output.info())
        kinds = (infos[0].data_type, infos[1].data_type)
        saturates = overflow_policy is ConvertPolicy.SATURATE
        shift = _shift(scale)
        assert shift is not None, "validate refuses other scales"
        formula = formulas.multiplication(kinds, infos[2].data_type, saturates, shift < 0)
        numbers = (max(0, shift), (1 << max(0, shift)) - 1, 1 / 255 if shift < 0 else 2.0**-shift)
        self._configure([input1, input2], [output], numbers=numbers, formula=formula)


def _shift(scale: float) -> int | None:
    """n of 1/2^n, -1 of 1/255, None of other scales."""
    if math.isclose(scale, 1 / 255, rel_tol=1e-4):
        return -1
    fraction, exponent = math.frexp(scale)
    return 1 - exponent if fraction == 0.5 and 0 <= 1 - exponent <= 15 else None


class NEMagnitude(VisionFunction):
    """How long a gradient is."""

    formula = formulas.MAGNITUDE_L2

    def configure(
        self, input1: Tensor, input2: Tensor, output: Tensor, mag_type: MagnitudeType = MagnitudeType.L2NORM
    ) -> None:
        """Set the gradients along x and y, and the norm."""
        formula = formulas.MAGNITUDE_L1 if mag_type is MagnitudeType.L1NORM else self.formula
        self._configure([input1, input2], [output], formula=formula)


class NEPhase(VisionFunction):
    """Where a gradient points."""

    formula = formulas.PHASE_SIGNED

    def configure(
        self, input1: Tensor, input2: Tensor, output: Tensor, phase_type: PhaseType = PhaseType.SIGNED
    ) -> None:
        """Set the gradients along x and y, and the unit of the angle."""
        formula: Formula = formulas.PHASE_UNSIGNED if phase_type is PhaseType.UNSIGNED else self.formula
        self._configure([input1, input2], [output], formula=formula)


@bounded
class Lut:
    """A table for `NETableLookup`: a value for each pixel value; of S16 the middle one is for 0."""

    def __init__(self, num_elements: int, data_type: DataType) -> None:
        most = {U8: 256, S16: 65536}.get(data_type, 0)
        if not 1 <= num_elements <= most:
            raise TypeMismatch(f"a table of {num_elements} {data_type.name}, wanted at most 256 U8 or 65536 S16")
        self._values = self._image(num_elements, data_type)
        self._values.allocator().allocate()

    def _image(self, width: int, kind: DataType) -> Tensor:
        return image(width, 1, kind)

    def num_elements(self) -> int:
        """How many values there are."""
        return self._values.info().dimension(0)

    def index_offset(self) -> int:
        """Where the value for 0 is."""
        return self.num_elements() // 2 if self.type() is S16 else 0

    def type(self) -> DataType:
        """Of pixels and values."""
        return self._values.info().data_type

    def tensor(self) -> Tensor:
        """The values, as a tensor of one row."""
        return self._values

    def fill(self, values: Sequence[int] | Array) -> None:
        """Set all values."""
        self._values.write(np.asarray(values).reshape(1, -1))


class NETableLookup(VisionFunction):
    """Every pixel as a table says; a pixel without an entry stays."""

    @classmethod
    def validate(cls, input: TensorInfo, lut: Lut, output: TensorInfo) -> Status:  # type: ignore[override]  # named
        """Whether images of this information and a table can be configured."""
        return objection(
            cls.__name__,
            wrong_type("tensor 0", input, lut.type()),
            wrong_type("tensor 1", output, lut.type()),
            wrong_size("tensor 1", output, *size_of(input)),
        )

    def configure(self, input: Tensor, lut: Lut, output: Tensor) -> None:
        """Set the images and the table, whose values may change between runs."""
        formula = formulas.table_lookup(lut.type(), lut.num_elements(), lut.index_offset())
        self._configure([input, lut.tensor()], [output], formula=formula, region=input.info().valid_region())
