"""Filters: smoothing, ranks, gradients, matrices over the pixels around.

In: an image, what lies beside it. Out: one image, or the gradients along x and y. Invariant: a pixel follows from
those under its mask alone. The arithmetic:
`functions/formulas/filters.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from armillary.compute.core.tensor_info import BorderMode, TensorInfo
from armillary.compute.core.types import MatrixPattern, NonLinearFilterFunction
from armillary.compute.functions.configured import Border
from armillary.compute.functions.formulas import filters as formulas
from armillary.compute.functions.vision.base import VisionFunction
from armillary.compute.runtime.tensor import Tensor


class Filter(VisionFunction):
    """One image in, one out, with a border."""

    def _bind(self, input: Tensor, output: Tensor, border: Border) -> None:
        self._set(self.formula, [input], [output], border)


class Gradient(VisionFunction):
    """Gradients along x and y; one of them may be left out."""

    @classmethod
    def _wrong(cls, output_x: TensorInfo | None, output_y: TensorInfo | None) -> Iterator[str]:
        if output_x is None and output_y is None:
            yield "neither of both gradients is asked for"

    def _bind(self, input: Tensor, output_x: Tensor | None, output_y: Tensor | None, border: Border) -> None:
        targets, outputs = (output_x, output_y), []
        for tensor in targets:
            last = tensor
            if last is None:
                last = self._unused = Tensor()
                last.allocator().init(TensorInfo(input.info().shape, 1, self.formula.outputs[0]))
            outputs.append(last)
        self._set(self.formula, [input], outputs, border)
        for tensor, last in zip(targets, outputs, strict=True):
            if tensor is None:
                last.allocator().allocate()


class ConvolutionRectangle(VisionFunction):
    """A matrix of S16 values over the pixels around, divided by a scale, saturated to U8 or S16."""

    @classmethod
    def _wrong(cls, conv: Sequence[int], rows: int, cols: int) -> Iterator[str]:
        is_short = any(not -(1 << 15) <= int(v) < 1 << 15 for v in conv)
        if len(conv) != rows * cols or is_short:
            yield f"conv has {rows * cols} values of 16 bits, got {len(conv)}"

    def _bind(
        self, input: Tensor, output: Tensor, conv: Sequence[int], rows: int, cols: int, scale: int, border: Border
    ) -> None:
        matrix = tuple(int(v) for v in conv)
        divisor = scale or abs(sum(matrix)) or 1
        formula = formulas.convolution(cols, rows, output.info().data_type)
        self._set(formula, [input], [output], border, (*matrix, 1 / divisor))


class Matrix(VisionFunction):
    """A square matrix; its setting is its side."""

    @classmethod
    def _wrong(cls, conv: Sequence[int]) -> Iterator[str]:
        yield from ConvolutionRectangle._wrong(conv, int(cls.setting), int(cls.setting))

    def _bind(self, input: Tensor, output: Tensor, conv: Sequence[int], scale: int, border: Border) -> None:
        side = int(self.setting)
        ConvolutionRectangle._bind(self, input, output, conv, side, side, scale, border)  # type: ignore[arg-type]  # of either


class NonLinearFilter(VisionFunction):
    """The least, greatest or middle pixel under a mask of 3x3 or 5x5."""

    @classmethod
    def _wrong(cls, mask_size: int, pattern: MatrixPattern, mask: Sequence[int] | None) -> Iterator[str]:
        length = len(mask) if mask is not None else 0
        if pattern is MatrixPattern.OTHER and (length != mask_size**2 or not any(mask or ())):
            yield f"a mask has {mask_size**2} values, some of them not 0, got {length}"

    def _bind(
        self,
        input: Tensor,
        output: Tensor,
        func: NonLinearFilterFunction,
        mask_size: int,
        pattern: MatrixPattern,
        mask: Sequence[int] | None,
        border: Border,
    ) -> None:
        formula = formulas.non_linear(func.value, mask_offsets(mask_size, pattern, mask))
        self._set(formula, [input], [output], border)


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


class NonMaximaSuppression3x3(VisionFunction):
    """Pixels that are larger than all around; others become 0."""

    def _bind(self, input: Tensor, output: Tensor, border_mode: BorderMode) -> None:
        formula = formulas.non_maxima_suppression(input.info().data_type)
        self._set(formula, [input], [output], Border(border_mode))
