"""Pyramids: an image in smaller and smaller sizes, smoothed; what smoothing takes away; and the way back.

In: an image of U8. Out: a `Pyramid`, level 0 as large as the image. Invariant: a level is half the one before (or
0.8409 of it, ORB), rounded up; halves are the Gaussian of 5x5 at every second pixel: the odd ones of an even size, else
the even ones, as in the library. The arithmetic: `functions/formulas/pyramid.py`.
"""

from __future__ import annotations

import math

import numpy as np

from armillary.base.boundary import bounded_methods
from armillary.compute.core.borders import BorderKernel
from armillary.compute.core.compiled import STEP, FormulaKernel
from armillary.compute.core.kernel import IKernel, Status
from armillary.compute.core.regions import region_of, sides_of, whole
from armillary.compute.core.tensor_info import BorderMode, DataType, Format, PaddingSize, TensorInfo, ValidRegion
from armillary.compute.functions.formulas import pyramid as formulas
from armillary.compute.functions.vision.arithmetic import NEArithmeticAddition, NEArithmeticSubtraction
from armillary.compute.functions.vision.base import (
    ConvertPolicy,
    InterpolationPolicy,
    VisionFunction,
    image,
    objection,
    size_of,
    wrong_size,
    wrong_type,
)
from armillary.compute.functions.vision.filters import NEGaussian5x5
from armillary.compute.functions.vision.geometry import NEScale
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
    def validate(cls, input: TensorInfo, pyramid: Pyramid) -> Status:  # type: ignore[override]  # named
        """Whether an image of this information and a pyramid can be configured."""
        first = pyramid.get_pyramid_level(0).info()
        return objection(
            cls.__name__,
            wrong_type("the image", input, U8),
            wrong_type("the pyramid", first, U8),
            wrong_size("level 0", first, *size_of(input)),
            "" if pyramid.scale == cls._scale else f"the pyramid's scale is {pyramid.scale}, wanted {cls._scale}",
        )

    def configure(
        self,
        input: Tensor,
        pyramid: Pyramid,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the image and the pyramid, whose level 0 becomes a copy of it."""
        kernels = self._step(formulas.COPY, [input], [pyramid.get_pyramid_level(0)])
        for n in range(1, pyramid.num_levels()):
            above, below = pyramid.get_pyramid_level(n - 1), pyramid.get_pyramid_level(n)
            kernels += self._reduced(above, below, border_mode, constant_border_value)
        self._set_kernels(kernels)

    def _reduced(self, above: Tensor, below: Tensor, border: BorderMode, constant: int) -> list[IKernel]:
        raise InternalError(f"{type(self).__name__} reduces nothing")


def halved_region(above: TensorInfo, below: TensorInfo, border: BorderMode) -> ValidRegion:
    """What is valid of a level: pixels whose middle above, and without a border all around it, are valid."""
    sides, around = sides_of(above.valid_region()), 2 if border is BorderMode.UNDEFINED else 0
    odd = [1 - n % 2 for n in size_of(above)]
    first = [-((odd[n] - around - sides[n]) // 2) for n in (0, 1)]
    last = [(sides[n + 2] - 1 - around - odd[n]) // 2 for n in (0, 1)]
    return region_of((first[0], first[1], last[0] + 1, last[1] + 1), below.shape)


class NEGaussianPyramidHalf(_Gaussian):
    """Each level half the one before."""

    _scale = SCALE_PYRAMID_HALF

    def _reduced(self, above: Tensor, below: Tensor, border: BorderMode, constant: int) -> list[IKernel]:
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
        fills = [] if border is BorderMode.UNDEFINED else [BorderKernel(above, kernel.border_size(), border, constant)]
        kernel.configure([above], [below], (1 - width % 2, 1 - height % 2), region=whole(below.info()))
        below.info().set_valid_region(region)
        return [*kernels, *fills, kernel]


class NEGaussianPyramidOrb(_Gaussian):
    """Each level 0.8409 of the one before."""

    _scale = SCALE_PYRAMID_ORB

    def _reduced(self, above: Tensor, below: Tensor, border: BorderMode, constant: int) -> list[IKernel]:
        smooth, between, scale = self._part(NEGaussian5x5), self._image(*size_of(above.info()), U8), self._part(NEScale)
        smooth.configure(above, between, border, constant)
        scale.configure(between, below, InterpolationPolicy.NEAREST_NEIGHBOR)
        between.allocator().allocate()
        return [*smooth.kernels(), *scale.kernels()]


class NELaplacianPyramid(VisionFunction):
    """What smoothing takes away at each level, as S16; the output is the smoothed last level."""

    @classmethod
    def validate(cls, input: TensorInfo, pyramid: Pyramid, output: TensorInfo) -> Status:  # type: ignore[override]  # named
        """Whether images of this information and a pyramid can be configured."""
        last = pyramid.get_pyramid_level(pyramid.num_levels() - 1).info()
        return objection(
            cls.__name__,
            wrong_type("the image", input, U8),
            wrong_type("the pyramid", last, S16),
            wrong_type("the output", output, S16),
            wrong_size("the output", output, *size_of(last)),
            wrong_size("level 0", pyramid.get_pyramid_level(0).info(), *size_of(input)),
        )

    def configure(
        self,
        input: Tensor,
        pyramid: Pyramid,
        output: Tensor,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the image, the pyramid of S16, and the image of S16 that is left."""
        levels = self._part(Pyramid)
        levels.init(pyramid.num_levels(), SCALE_PYRAMID_HALF, *size_of(input.info()))
        gauss = self._part(NEGaussianPyramidHalf)
        gauss.configure(input, levels, border_mode, constant_border_value)
        kernels = [*gauss.kernels()]
        for n in range(pyramid.num_levels()):
            level = levels.get_pyramid_level(n)
            smooth, between, difference = (
                self._part(NEGaussian5x5),
                self._image(*size_of(level.info()), U8),
                self._part(NEArithmeticSubtraction),
            )
            smooth.configure(level, between, border_mode, constant_border_value)
            difference.configure(level, between, pyramid.get_pyramid_level(n), ConvertPolicy.WRAP)
            kernels += [*smooth.kernels(), *difference.kernels()]
            if n == pyramid.num_levels() - 1:
                kernels += self._step(formulas.converted(U8, S16), [between], [output])
            between.allocator().allocate()
        self._set_kernels(kernels)
        levels.allocate()


class NELaplacianReconstruct(VisionFunction):
    """The image of a Laplacian pyramid: what is left, enlarged, plus each level."""

    @classmethod
    def validate(cls, pyramid: Pyramid, input: TensorInfo, output: TensorInfo) -> Status:  # type: ignore[override]  # named
        """Whether a pyramid and images of this information can be configured."""
        count = pyramid.num_levels()
        last, first = pyramid.get_pyramid_level(count - 1).info(), pyramid.get_pyramid_level(0).info()
        return objection(
            cls.__name__,
            wrong_type("the pyramid", last, S16),
            wrong_type("the input", input, S16),
            wrong_type("the output", output, U8),
            wrong_size("the input", input, *size_of(last)),
            wrong_size("the output", output, *size_of(first)),
        )

    def configure(
        self,
        pyramid: Pyramid,
        input: Tensor,
        output: Tensor,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the pyramid of S16, the smallest image of S16, and the image of U8; nothing beside an image is read."""
        del border_mode, constant_border_value
        kernels: list[IKernel] = []
        below, levels = input, []
        for n in reversed(range(pyramid.num_levels())):
            level = pyramid.get_pyramid_level(n)
            total, add = self._image(*size_of(level.info()), S16), self._part(NEArithmeticAddition)
            if size_of(below.info()) != size_of(level.info()):
                wide, scale = self._image(*size_of(level.info()), S16), self._part(NEScale)
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
