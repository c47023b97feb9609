"""Vision functions of the CPU: `configure` once, `run` often.

In: images with information, before or after they are allocated. Out: images. Invariant: `configure` refuses what
`validate` refuses, with the same text; borders are filled before each run as their mode says; the scheduler in place
does the work. Names and argument orders are the library's. The arithmetic: `formulas.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from armillary.compute.core.compiled import Formula, FormulaKernel, fill_border
from armillary.compute.core.kernel import Status
from armillary.compute.core.tensor_info import BorderMode, TensorInfo
from armillary.compute.core.window import Window
from armillary.compute.functions import formulas
from armillary.compute.runtime.scheduler import Scheduler
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import ExecutionError, TypeMismatch, UnsupportedError


class InterpolationPolicy(Enum):
    """How `NEScale` finds a pixel between pixels."""

    NEAREST_NEIGHBOR, BILINEAR, AREA = "nearest", "bilinear", "area"


class VisionFunction:
    """One formula over images."""

    formula: Formula

    def __init__(self) -> None:
        self._kernel: FormulaKernel | None = None
        self._inputs: Sequence[Tensor] = ()
        self._border = BorderMode.UNDEFINED
        self._constant = 0

    @classmethod
    def validate(cls, *infos: TensorInfo) -> Status:
        """Whether tensors of this information can be configured: inputs, then outputs."""
        count = len(cls.formula.inputs)
        return FormulaKernel(cls.formula).validate(infos[:count], infos[count:])

    def _configure(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        border: BorderMode = BorderMode.UNDEFINED,
        constant: int = 0,
        options: tuple[Any, ...] = (),
    ) -> None:
        kernel = FormulaKernel(self.formula)
        kernel.configure(inputs, outputs, options, border is BorderMode.UNDEFINED and self.formula.reach > 0)
        self._kernel, self._inputs, self._border, self._constant = kernel, inputs, border, constant

    def run(self) -> None:
        """Compute the outputs."""
        if self._kernel is None:
            raise ExecutionError(f"{type(self).__name__} is not configured", hint="call configure first")
        if self._border is not BorderMode.UNDEFINED and self.formula.reach:
            value = self._constant if self._border is BorderMode.CONSTANT else None
            for tensor in self._inputs:
                fill_border(tensor, self._kernel.border_size(), value)
        Scheduler.get().schedule(self._kernel, Window.DimY)


class _Filter(VisionFunction):
    """One image in, one out, with a border."""

    def configure(
        self,
        input: Tensor,
        output: Tensor,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the images and what lies beside the input."""
        self._configure([input], [output], border_mode, constant_border_value)


class NEGaussian3x3(_Filter):
    """Smooths with 1 2 1 / 2 4 2 / 1 2 1, divided by 16."""

    formula = formulas.GAUSSIAN_3X3


class NEGaussian5x5(_Filter):
    """Smooths with the product of 1 4 6 4 1 with itself, divided by 256."""

    formula = formulas.GAUSSIAN_5X5


class NEBox3x3(_Filter):
    """The mean of 3x3 pixels."""

    formula = formulas.BOX_3X3


class NEMedian3x3(_Filter):
    """The median of 3x3 pixels."""

    formula = formulas.MEDIAN_3X3


class NEErode(_Filter):
    """The least of 3x3 pixels."""

    formula = formulas.ERODE


class NEDilate(_Filter):
    """The greatest of 3x3 pixels."""

    formula = formulas.DILATE


class NESobel3x3(VisionFunction):
    """Gradients along x and y, as S16."""

    formula = formulas.SOBEL_3X3

    def configure(
        self,
        input: Tensor,
        output_x: Tensor,
        output_y: Tensor,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the images and what lies beside the input."""
        self._configure([input], [output_x, output_y], border_mode, constant_border_value)


class _Convolution(VisionFunction):
    """A square matrix of S16 values over the pixels around, divided by a scale, saturated to U8."""

    side: int

    def configure(
        self,
        input: Tensor,
        output: Tensor,
        conv: Sequence[int],
        scale: int = 0,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """`conv`: the matrix by rows; `scale` 0 is the sum of its values (1 where that is 0)."""
        n = self.side
        if len(conv) != n * n or any(not -(1 << 15) <= int(v) < 1 << 15 for v in conv):
            raise TypeMismatch(f"{type(self).__name__}: the matrix is {n * n} values of 16 bits, got {len(conv)}")
        if scale < 0:
            raise TypeMismatch(f"{type(self).__name__}: the scale is {scale}, wanted 0 (computed) or more")
        matrix = tuple(tuple(int(v) for v in conv[i * n : (i + 1) * n]) for i in range(n))
        divisor = scale or abs(sum(int(v) for v in conv)) or 1
        self._configure([input], [output], border_mode, constant_border_value, (matrix, divisor))


class NEConvolution3x3(_Convolution):
    """A matrix of 3x3."""

    formula, side = formulas.CONVOLUTION_3X3, 3


class NEConvolution5x5(_Convolution):
    """A matrix of 5x5."""

    formula, side = formulas.CONVOLUTION_5X5, 5


class _Pairwise(VisionFunction):
    """Two images in, one out."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None:
        """Set the images."""
        self._configure([input1, input2], [output])


class NEAbsoluteDifference(_Pairwise):
    """|a - b|."""

    formula = formulas.ABSOLUTE_DIFFERENCE


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
    """One value for pixels above a threshold, another one for the rest."""

    formula = formulas.THRESHOLD

    def configure(
        self, input: Tensor, output: Tensor, threshold: int, false_value: int = 0, true_value: int = 255
    ) -> None:
        """Set the images and the values, all from 0 to 255."""
        values = (threshold, false_value, true_value)
        if any(not 0 <= v <= 255 for v in values):
            raise TypeMismatch(f"NEThreshold: threshold and values are 0 to 255, got {values}")
        self._configure([input], [output], options=values)


class NEScale(VisionFunction):
    """Another size, by the nearest pixel."""

    formula = formulas.SCALE_NEAREST

    def configure(
        self,
        input: Tensor,
        output: Tensor,
        policy: InterpolationPolicy,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the images; no pixel beside the input is read."""
        if policy is not InterpolationPolicy.NEAREST_NEIGHBOR:
            raise UnsupportedError(f"NEScale: {policy.name} is not there yet", hint="NEAREST_NEIGHBOR is")
        source, target = input.info(), output.info()
        sizes = [source.dimension(n) / target.dimension(n) for n in (0, 1)]
        options = (*sizes, source.dimension(0), source.dimension(1))
        self._configure([input], [output], border_mode, constant_border_value, options)
