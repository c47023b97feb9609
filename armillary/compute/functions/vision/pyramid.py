"""Pyramids: an image in smaller and smaller sizes, smoothed; what smoothing takes away; and the way back.

In: an image of U8. Out: a `Pyramid`, level 0 as large as the image. Invariant: a level is half the one before (or
0.8409 of it, ORB), rounded up; halves are the Gaussian of 5x5 at every second pixel: the odd ones of an even size, else
the even ones, as in the library. The arithmetic: `functions/formulas/pyramid.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from armillary.base.boundary import bounded_methods
from armillary.compute.core.borders import BorderKernel
from armillary.compute.core.compiled import STEP, FormulaKernel
from armillary.compute.core.kernel import IKernel
from armillary.compute.core.regions import region_of, sides_of, whole
from armillary.compute.core.tensor_info import DataType, Format, PaddingSize, TensorInfo, ValidRegion
from armillary.compute.core.types import ConvertPolicy, InterpolationPolicy
from armillary.compute.functions.arguments import wrong_shape, wrong_type
from armillary.compute.functions.configured import Border
from armillary.compute.functions.formulas import pyramid as formulas
from armillary.compute.functions.vision.base import VisionFunction, image, size_of
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import ExecutionError, InternalError, TypeMismatch

SCALE_PYRAMID_HALF, SCALE_PYRAMID_ORB = 0.5, 0.8408964
U8, S16 = DataType.U8, DataType.S16


@bounded_methods("init")
class Pyramid:
    """`init(levels, scale, width, height, format)`; levels are images, the largest first."""

    def __init__(self) -> None:
        self._levels: tuple[Tensor, ...] = ()
        self.scale = SCALE_PYRAMID_HALF

    def init(self, num_levels: int, scale: float, width: int, height: int, format: Format = Format.U8) -> None:
        """Set the levels' sizes."""
        if num_levels < 1 or not 0 < scale < 1:
            raise TypeMismatch(f"a pyramid of {num_levels} levels by {scale}, wanted at least 1, between 0 and 1")
        self.scale = scale
        sides = zip(_sides(width, num_levels, scale), _sides(height, num_levels, scale), strict=True)
        self._levels = tuple(self._image(wide, high, format) for wide, high in sides)

    def _image(self, width: int, height: int, format: Format) -> Tensor:
        return image(width, height, format)

    def num_levels(self) -> int:
        """How many there are."""
        return len(self._levels)

    def get_pyramid_level(self, index: int) -> Tensor:
        """One level."""
        if not self._levels:
            raise ExecutionError("the pyramid has no levels", hint="call init first")
        return self._levels[index]

    def allocate(self) -> None:
        """Give all levels their memory."""
        for level in self._levels:
            level.allocator().allocate()


def _sides(side: int, levels: int, scale: float) -> list[int]:
    """A side of each level, rounded up; ORB's are parts of every fourth level, which is half of the one before."""
    if not math.isclose(scale, SCALE_PYRAMID_ORB, rel_tol=1e-6):
        result = [side]
        while len(result) < levels:
            result.append(math.ceil(result[-1] * scale))
        return result
    factor = np.float32(scale)
    factors = [np.float32(1), factor, factor * factor, factor * factor * factor]
    result = []
    for n in range(levels):
        side = math.ceil(side / 2) if n and n % 4 == 0 else side
        result.append(math.ceil(np.float32(side) * factors[n % 4]))
    return result


class _Gaussian(VisionFunction):
    """Levels that are each made of the one before."""

    _scale: float

    @classmethod
    def _wrong(cls, input: TensorInfo, pyramid: Pyramid) -> Iterator[str]:
        first = pyramid.get_pyramid_level(0).info()
        yield wrong_type("the pyramid", first, [U8])
        yield wrong_shape("level 0", first, input.shape)
        if pyramid.scale != cls._scale:
            yield f"the pyramid's scale is {pyramid.scale}, wanted {cls._scale}"

    def _bind(self, input: Tensor, pyramid: Pyramid, border: Border) -> None:
        kernels = self._step(formulas.COPY, [input], [pyramid.get_pyramid_level(0)])
        for n in range(1, pyramid.num_levels()):
            kernels += self._reduced(pyramid.get_pyramid_level(n - 1), pyramid.get_pyramid_level(n), border)
        self._set_kernels(kernels)

    def _reduced(self, above: Tensor, below: Tensor, border: Border) -> list[IKernel]:
        raise InternalError(f"{type(self).__name__} reduces nothing")


def halved_region(above: TensorInfo, below: TensorInfo, border: Border) -> ValidRegion:
    """What is valid of a level: pixels whose middle above, and without a border all around it, are valid."""
    sides, around = sides_of(above.valid_region()), 2 if border.is_undefined() else 0
    odd = [1 - n % 2 for n in size_of(above)]
    first = [-((odd[n] - around - sides[n]) // 2) for n in (0, 1)]
    last = [(sides[n + 2] - 1 - around - odd[n]) // 2 for n in (0, 1)]
    return region_of((first[0], first[1], last[0] + 1, last[1] + 1), below.shape)


class GaussianPyramidHalf(_Gaussian):
    """Each level half the one before."""

    _scale = SCALE_PYRAMID_HALF

    def _reduced(self, above: Tensor, below: Tensor, border: Border) -> list[IKernel]:
        (width, height), columns = size_of(above.info()), below.info().dimension(0)
        behind = 2 * -(-columns // STEP) * STEP + formulas.OVERSHOOT - width
        kernels: list[IKernel] = []
        if not above.info().extend_padding(PaddingSize(2, behind, 2, 2)):  # allocated: a copy has the padding
            source, above = above, self._image(width, height, U8)
            kernels += self._step(formulas.COPY, [source], [above])
            above.info().extend_padding(PaddingSize(2, behind, 2, 2))
            above.allocator().allocate()
        kernel = FormulaKernel(formulas.HALVED)
        region = halved_region(above.info(), below.info(), border)
        fills = [] if border.is_undefined() else [BorderKernel(above, kernel.border_size(), *border)]
        kernel.configure([above], [below], (1 - width % 2, 1 - height % 2), region=whole(below.info()))
        below.info().set_valid_region(region)
        return [*kernels, *fills, kernel]


class GaussianPyramidOrb(_Gaussian):
    """Each level 0.8409 of the one before."""

    _scale = SCALE_PYRAMID_ORB

    def _reduced(self, above: Tensor, below: Tensor, border: Border) -> list[IKernel]:
        between = self._image(*size_of(above.info()), U8)
        smooth, scale = self._part("Gaussian5x5"), self._part("Scale")
        smooth.configure(above, between, *border)
        scale.configure(between, below, InterpolationPolicy.NEAREST_NEIGHBOR)
        between.allocator().allocate()
        return [*smooth.kernels(), *scale.kernels()]


class LaplacianPyramid(VisionFunction):
    """What smoothing takes away at each level, as S16; the output is the smoothed last level."""

    pyramid_type: ClassVar[type[Pyramid]] = Pyramid

    @classmethod
    def _wrong(cls, input: TensorInfo, pyramid: Pyramid, output: TensorInfo) -> Iterator[str]:
        last = pyramid.get_pyramid_level(pyramid.num_levels() - 1).info()
        yield wrong_type("the pyramid", last, [S16])
        yield wrong_shape("the output", output, last.shape)
        yield wrong_shape("level 0", pyramid.get_pyramid_level(0).info(), input.shape)

    def _bind(self, input: Tensor, pyramid: Pyramid, output: Tensor, border: Border) -> None:
        levels = self.pyramid_type()
        levels.init(pyramid.num_levels(), SCALE_PYRAMID_HALF, *size_of(input.info()))
        gauss = self._part("GaussianPyramidHalf")
        gauss.configure(input, levels, *border)
        kernels = [*gauss.kernels()]
        for n in range(pyramid.num_levels()):
            level = levels.get_pyramid_level(n)
            between = self._image(*size_of(level.info()), U8)
            smooth, difference = self._part("Gaussian5x5"), self._part("ArithmeticSubtraction")
            smooth.configure(level, between, *border)
            difference.configure(level, between, pyramid.get_pyramid_level(n), ConvertPolicy.WRAP)
            kernels += [*smooth.kernels(), *difference.kernels()]
            if n == pyramid.num_levels() - 1:
                kernels += self._step(formulas.converted(U8, S16), [between], [output])
            between.allocator().allocate()
        self._set_kernels(kernels)
        levels.allocate()


class LaplacianReconstruct(VisionFunction):
    """The image of a Laplacian pyramid: what is left, enlarged, plus each level."""

    @classmethod
    def _wrong(cls, pyramid: Pyramid, input: TensorInfo, output: TensorInfo) -> Iterator[str]:
        last, first = (pyramid.get_pyramid_level(n).info() for n in (pyramid.num_levels() - 1, 0))
        yield wrong_type("the pyramid", last, [S16])
        yield wrong_shape("the input", input, last.shape)
        yield wrong_shape("the output", output, first.shape)

    def _bind(self, pyramid: Pyramid, input: Tensor, output: Tensor) -> None:
        kernels: list[IKernel] = []
        below, levels = input, []
        for n in reversed(range(pyramid.num_levels())):
            level = pyramid.get_pyramid_level(n)
            total, add = self._image(*size_of(level.info()), S16), self._part("ArithmeticAddition")
            if size_of(below.info()) != size_of(level.info()):
                wide, scale = self._image(*size_of(level.info()), S16), self._part("Scale")
                scale.configure(below, wide, InterpolationPolicy.NEAREST_NEIGHBOR)
                kernels += scale.kernels()
                levels.append(wide)
                below = wide
            add.configure(below, level, total, ConvertPolicy.WRAP)
            kernels += add.kernels()
            levels.append(total)
            below = total
        self._set_kernels([*kernels, *self._step(formulas.converted(S16, U8), [below], [output])])
        for tensor in levels:
            tensor.allocator().allocate()
