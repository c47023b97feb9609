"""Filters: smoothing, ranks, gradients, matrices over the pixels around.

In: an image, what lies beside it. Out: one image, or the gradients along x and y. Invariant: names and argument orders
are the library's. The arithmetic: `functions/formulas/filters.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import ClassVar

from armillary.compute.core.kernel import Status
from armillary.compute.core.tensor_info import BorderMode, DataType, TensorInfo
from armillary.compute.functions.formulas import filters as formulas
from armillary.compute.functions.vision.base import VisionFunction, objection, size_of, wrong_size, wrong_type
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import TypeMismatch


class NonLinearFilterFunction(Enum):
    """Which of the pixels under a mask is taken."""

    MEDIAN, MIN, MAX = "median", "least", "greatest"


class MatrixPattern(Enum):
    """The shape of a mask: all, a disk, a cross, or one that is given."""

    BOX, CROSS, DISK, OTHER = "box", "cross", "disk", "other"


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


class _Gradient(VisionFunction):
    """Gradients along x and y; one of them may be left out."""

    @classmethod
    def validate(cls, input: TensorInfo, output_x: TensorInfo | None, output_y: TensorInfo | None) -> Status:  # type: ignore[override]  # named
        """Whether tensors of this information can be configured."""
        kind = cls.formula.outputs[0]
        outputs = [info for info in (output_x, output_y) if info is not None]
        return objection(
            cls.formula.name,
            wrong_type("tensor 0", input, DataType.U8),
            *(wrong_type(f"tensor {n}", info, kind) for n, info in enumerate(outputs, 1)),
            *("tensors of different sizes" for info in outputs if size_of(info) != size_of(input)),
            "" if outputs else "neither of both gradients is asked for",
        )

    def configure(
        self,
        input: Tensor,
        output_x: Tensor | None,
        output_y: Tensor | None,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the images and what lies beside the input."""
        targets = (output_x, output_y)
        outputs = []
        for tensor in targets:
            last = tensor
            if last is None:
                last = self._unused = Tensor()
                last.allocator().init(TensorInfo(input.info().shape, 1, self.formula.outputs[0]))
            outputs.append(last)
        self._configure([input], outputs, border_mode, constant_border_value)
        for tensor, last in zip(targets, outputs, strict=True):
            if tensor is None:
                last.allocator().allocate()


class NESobel3x3(_Gradient):
    """Gradients by 3x3 pixels, as S16."""

    formula = formulas.SOBEL_3X3


class NESobel5x5(_Gradient):
    """Gradients by 5x5 pixels, as S16."""

    formula = formulas.SOBEL_5X5


class NESobel7x7(_Gradient):
    """Gradients by 7x7 pixels, as S32."""

    formula = formulas.SOBEL_7X7


class NEScharr3x3(_Gradient):
    """Gradients by 3x3 pixels with the weights 3 10 3, as S16."""

    formula = formulas.SCHARR_3X3


class NEDerivative(_Gradient):
    """Differences of the pixels on both sides, as S16."""

    formula = formulas.DERIVATIVE


class _Matrix(VisionFunction):
    """A matrix of S16 values over the pixels around, divided by a scale, saturated to U8 or S16."""

    _sides: ClassVar[tuple[int, ...]]

    @classmethod
    def _objections(
        cls, input: TensorInfo, output: TensorInfo, conv: Sequence[int], columns: int, rows: int, scale: int
    ) -> Status:
        wanted = columns * rows
        is_short = any(not -(1 << 15) <= int(v) < 1 << 15 for v in conv)
        return objection(
            f"convolution{columns}x{rows}",
            wrong_type("tensor 0", input, DataType.U8),
            wrong_type("tensor 1", output, DataType.U8, DataType.S16),
            wrong_size("tensor 1", output, *size_of(input)),
            "" if {columns, rows} <= set(cls._sides) else f"sides are among {cls._sides}",
            f"the matrix is {wanted} values of 16 bits, got {len(conv)}" if len(conv) != wanted or is_short else "",
            f"the scale is {scale}, wanted 0 (computed) or more" if scale < 0 else "",
        )

    def _set(
        self,
        input: Tensor,
        output: Tensor,
        conv: Sequence[int],
        columns: int,
        rows: int,
        scale: int,
        border_mode: BorderMode,
        constant: int,
    ) -> None:
        matrix = tuple(int(v) for v in conv)
        divisor = scale or abs(sum(matrix)) or 1
        formula = formulas.convolution(columns, rows, output.info().data_type)
        self._configure([input], [output], border_mode, constant, (*matrix, 1 / divisor), formula)


class _Square(_Matrix):
    """A square matrix."""

    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, conv: Sequence[int], scale: int = 0) -> Status:  # type: ignore[override]  # named
        """Whether tensors of this information can be configured."""
        return cls._objections(input, output, conv, cls._sides[0], cls._sides[0], scale)

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
        side = self._sides[0]
        self._set(input, output, conv, side, side, scale, border_mode, constant_border_value)


class NEConvolution3x3(_Square):
    """A matrix of 3x3."""

    formula, _sides = formulas.convolution(3, 3, DataType.U8), (3,)


class NEConvolution5x5(_Square):
    """A matrix of 5x5."""

    formula, _sides = formulas.convolution(5, 5, DataType.U8), (5,)


class NEConvolution7x7(_Square):
    """A matrix of 7x7."""

    formula, _sides = formulas.convolution(7, 7, DataType.U8), (7,)


class NEConvolution9x9(_Square):
    """A matrix of 9x9."""

    formula, _sides = formulas.convolution(9, 9, DataType.U8), (9,)


class NEConvolutionRectangle(_Matrix):
    """A matrix whose sides are 3, 5, 7 or 9."""

    _sides = (3, 5, 7, 9)

    @classmethod
    def validate(  # type: ignore[override]  # named
        cls, input: TensorInfo, output: TensorInfo, conv: Sequence[int], rows: int, cols: int, scale: int = 0
    ) -> Status:
        """Whether tensors of this information can be configured."""
        return cls._objections(input, output, conv, cols, rows, scale)

    def configure(
        self,
        input: Tensor,
        output: Tensor,
        conv: Sequence[int],
        rows: int,
        cols: int,
        scale: int = 0,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """`conv`: the matrix by rows; `scale` 0 is the sum of its values (1 where that is 0)."""
        self._set(input, output, conv, cols, rows, scale, border_mode, constant_border_value)


class NENonLinearFilter(VisionFunction):
    """The least, greatest or middle pixel under a mask of 3x3 or 5x5."""

    @classmethod
    def validate(  # type: ignore[override]  # named
        cls,
        input: TensorInfo,
        output: TensorInfo,
        func: NonLinearFilterFunction,
        mask_size: int = 3,
        pattern: MatrixPattern = MatrixPattern.BOX,
        mask: Sequence[int] | None = None,
    ) -> Status:
        """Whether tensors of this information can be configured."""
        length = len(mask) if mask is not None else 0
        is_wrong = pattern is MatrixPattern.OTHER and (length != mask_size**2 or not any(mask or ()))
        return objection(
            "non_linear_filter",
            wrong_type("tensor 0", input, DataType.U8),
            wrong_type("tensor 1", output, DataType.U8),
            wrong_size("tensor 1", output, *size_of(input)),
            "" if mask_size in (3, 5) else f"the mask is of side {mask_size}, wanted 3 or 5",
            f"a mask has {mask_size**2} values, some of them not 0, got {length}" if is_wrong else "",
        )

    def configure(
        self,
        input: Tensor,
        output: Tensor,
        func: NonLinearFilterFunction,
        mask_size: int = 3,
        pattern: MatrixPattern = MatrixPattern.BOX,
        mask: Sequence[int] | None = None,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the images, which pixel is taken, and of which ones."""
        formula = formulas.non_linear(func.value, mask_offsets(mask_size, pattern, mask))
        self._configure([input], [output], border_mode, constant_border_value, (), formula)


def mask_offsets(size: int, pattern: MatrixPattern, mask: Sequence[int] | None = None) -> tuple[tuple[int, int], ...]:
    """The places under a mask, rows first."""
    half = size // 2

    def has(dy: int, dx: int) -> bool:
        if pattern is MatrixPattern.CROSS:
            return dy == 0 or dx == 0
        if pattern is MatrixPattern.DISK:
            return abs(dy) + abs(dx) < size - 1 or (size == 3 and 0 in (dy, dx))
        return mask is None or pattern is MatrixPattern.BOX or bool(mask[(dy + half) * size + dx + half])

    around = range(-half, half + 1)
    return tuple((dy, dx) for dy in around for dx in around if has(dy, dx))


class NENonMaximaSuppression3x3(VisionFunction):
    """Pixels that are larger than all around; others become 0."""

    formula = formulas.non_maxima_suppression(DataType.U8)

    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo) -> Status:  # type: ignore[override]  # named
        """Whether tensors of this information can be configured."""
        return objection(
            "non_maxima_suppression3x3",
            wrong_type("tensor 0", input, DataType.U8, DataType.F32),
            wrong_type("tensor 1", output, input.data_type),
            wrong_size("tensor 1", output, *size_of(input)),
        )

    def configure(self, input: Tensor, output: Tensor, border_mode: BorderMode = BorderMode.UNDEFINED) -> None:
        """Set the images; beside a CONSTANT border are zeros."""
        if border_mode is BorderMode.REPLICATE:
            raise TypeMismatch("non_maxima_suppression3x3: the border is UNDEFINED or CONSTANT, got REPLICATE")
        formula = formulas.non_maxima_suppression(input.info().data_type)
        self._configure([input], [output], border_mode, 0, (), formula)
