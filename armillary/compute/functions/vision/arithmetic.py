"""Pixel by pixel: differences, bits, sums, products, accumulation, thresholds, tables, length and angle of gradients.

In: images of one size. Out: an image, or the accumulated one. Invariant: a pixel follows
from those at its place alone. The arithmetic: `functions/formulas/arithmetic.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from armillary.base.boundary import bounded
from armillary.compute.core.tensor_info import DataType, TensorInfo
from armillary.compute.core.types import ConvertPolicy, MagnitudeType, PhaseType, RoundingPolicy, ThresholdType
from armillary.compute.functions.arguments import wrong_type
from armillary.compute.functions.formulas import arithmetic as formulas
from armillary.compute.functions.vision.base import VisionFunction, image
from armillary.compute.runtime.tensor import Array, Tensor
from armillary.errors import TypeMismatch

U8, S16, F32 = DataType.U8, DataType.S16, DataType.F32


class Pairwise(VisionFunction):
    """Two images in, one out."""

    def _bind(self, input1: Tensor, input2: Tensor, output: Tensor) -> None:
        self._set(self.formula, [input1, input2], [output])


class AbsoluteDifference(VisionFunction):
    """|a - b|, of U8 or S16."""

    def _bind(self, input1: Tensor, input2: Tensor, output: Tensor) -> None:
        is_short = input1.info().data_type is S16
        formula = formulas.ABSOLUTE_DIFFERENCE_S16 if is_short else formulas.ABSOLUTE_DIFFERENCE
        self._set(formula, [input1, input2], [output])


class BitwiseNot(VisionFunction):
    """Every bit the other way."""

    def _bind(self, input: Tensor, output: Tensor) -> None:
        self._set(formulas.BITWISE_NOT, [input], [output])


class Threshold(VisionFunction):
    """One value for pixels above a threshold (or between two), another one for the rest."""

    def _bind(
        self,
        input: Tensor,
        output: Tensor,
        threshold: int,
        false_value: int,
        true_value: int,
        type: ThresholdType,
        upper: int,
    ) -> None:
        if type is ThresholdType.BINARY:
            self._set(formulas.THRESHOLD, [input], [output], numbers=(threshold, false_value, true_value))
        else:
            numbers = (threshold, upper, false_value, true_value)
            self._set(formulas.THRESHOLD_RANGE, [input], [output], numbers=numbers)


# One image in; the other one is read and written.


class Accumulate(VisionFunction):
    """accum += input, saturated to S16."""

    def _bind(self, input: Tensor, accum: Tensor) -> None:
        self._set(formulas.ACCUMULATE, [input, accum], [accum])


class AccumulateSquared(VisionFunction):
    """accum += input * input >> shift, saturated to S16."""

    def _bind(self, input: Tensor, shift: int, accum: Tensor) -> None:
        self._set(formulas.ACCUMULATE_SQUARED, [input, accum], [accum], numbers=(shift,))


class AccumulateWeighted(VisionFunction):
    """accum = (1 - alpha) * accum + alpha * input, without its fraction."""

    def _bind(self, input: Tensor, alpha: float, accum: Tensor) -> None:
        self._set(formulas.ACCUMULATE_WEIGHTED, [input, accum], [accum], numbers=(alpha,))


_TYPES = {(U8, U8): (U8, S16), (U8, S16): (S16,), (S16, U8): (S16,), (S16, S16): (S16,), (F32, F32): (F32,)}


def _wrong_types(input1: TensorInfo, input2: TensorInfo, output: TensorInfo) -> Iterator[str]:
    kinds = (input1.data_type, input2.data_type)
    if kinds not in _TYPES:
        yield f"inputs are {kinds[0].name} and {kinds[1].name}, wanted U8, S16 or both F32"
    yield wrong_type("the output", output, _TYPES.get(kinds, ()))


class Sum(VisionFunction):
    """a + b or a - b; its setting is the sign of b."""

    _wrong = staticmethod(_wrong_types)

    def _bind(self, input1: Tensor, input2: Tensor, output: Tensor, policy: ConvertPolicy) -> None:
        kinds = (input1.info().data_type, input2.info().data_type)
        saturates = policy is ConvertPolicy.SATURATE
        formula = formulas.arithmetic(int(self.setting), kinds, output.info().data_type, saturates)
        self._set(formula, [input1, input2], [output])


class PixelWiseMultiplication(VisionFunction):
    """a * b * scale."""

    @classmethod
    def _wrong(
        cls,
        input1: TensorInfo,
        input2: TensorInfo,
        output: TensorInfo,
        scale: float,
        rounding_policy: RoundingPolicy,
    ) -> Iterator[str]:
        yield from _wrong_types(input1, input2, output)
        shift = _shift(scale)
        if shift is None:
            yield f"the scale is {scale}, wanted 1/2^n with n from 0 to 15, or 1/255"
        wanted = RoundingPolicy.TO_NEAREST_EVEN if shift == -1 else RoundingPolicy.TO_ZERO
        if input1.data_type is not F32 and rounding_policy is not wanted:
            yield f"a scale of {scale:g} is rounded {wanted.name}"

    def _bind(
        self, input1: Tensor, input2: Tensor, output: Tensor, scale: float, overflow_policy: ConvertPolicy
    ) -> None:
        kinds, shift = (input1.info().data_type, input2.info().data_type), _shift(scale)
        assert shift is not None, "other scales are refused"
        saturates = overflow_policy is ConvertPolicy.SATURATE
        formula = formulas.multiplication(kinds, output.info().data_type, saturates, shift < 0)
        numbers = (max(0, shift), (1 << max(0, shift)) - 1, 1 / 255 if shift < 0 else 2.0**-shift)
        self._set(formula, [input1, input2], [output], numbers=numbers)


def _shift(scale: float) -> int | None:
    """n of 1/2^n, -1 of 1/255, None of other scales."""
    if math.isclose(scale, 1 / 255, rel_tol=1e-4):
        return -1
    fraction, exponent = math.frexp(scale)
    return 1 - exponent if fraction == 0.5 and 0 <= 1 - exponent <= 15 else None


class Magnitude(VisionFunction):
    """How long a gradient is."""

    def _bind(self, input1: Tensor, input2: Tensor, output: Tensor, mag_type: MagnitudeType) -> None:
        formula = formulas.MAGNITUDE_L1 if mag_type is MagnitudeType.L1NORM else formulas.MAGNITUDE_L2
        self._set(formula, [input1, input2], [output])


class Phase(VisionFunction):
    """Where a gradient points."""

    def _bind(self, input1: Tensor, input2: Tensor, output: Tensor, phase_type: PhaseType) -> None:
        is_unsigned = phase_type is PhaseType.UNSIGNED
        formula = formulas.PHASE_UNSIGNED if is_unsigned else formulas.PHASE_SIGNED
        self._set(formula, [input1, input2], [output])


@bounded
class Lut:
    """A table for `TableLookup`: a value for each pixel value; of S16 the middle one is for 0."""

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


class TableLookup(VisionFunction):
    """Every pixel as a table says."""

    @classmethod
    def _wrong(cls, input: TensorInfo, lut: Lut) -> Iterator[str]:
        yield wrong_type("the input", input, [lut.type()])

    def _bind(self, input: Tensor, lut: Lut, output: Tensor) -> None:
        formula = formulas.table_lookup(lut.type(), lut.num_elements(), lut.index_offset())
        self._set(formula, [input, lut.tensor()], [output], region=input.info().valid_region())
