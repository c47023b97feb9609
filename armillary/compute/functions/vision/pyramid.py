"""Pyramids: an image in smaller and smaller sizes, smoothed; what smoothing takes away; and the way back.

In: an image of U8. Out: a `Pyramid`, level 0 as large as the image. Invariant: a level is half the one before (or
0.8409 of it, ORB), rounded up; halves are the Gaussian of 5x5 at every second pixel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from armillary.compute.core.compiled import Formula, Read
from armillary.compute.core.tensor_info import BorderMode, DataType, Format
from armillary.compute.functions.formulas.expressions import Options, saturated
from armillary.compute.functions.vision.arithmetic import NEArithmeticAddition, NEArithmeticSubtraction
from armillary.compute.functions.vision.base import (
    ConvertPolicy,
    InterpolationPolicy,
    Pipeline,
    Step,
    image,
    objection,
    refuse,
    size_of,
    wrong_size,
    wrong_type,
)
from armillary.compute.functions.vision.filters import NEGaussian5x5
from armillary.compute.functions.vision.geometry import NEScale
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import ExecutionError, TypeMismatch
from armillary.tir import build as T
from armillary.tir.expr import Expr

SCALE_PYRAMID_HALF, SCALE_PYRAMID_ORB = 0.5, 0.8408964
U8, S16 = DataType.U8, DataType.S16


class Pyramid:
    """`init(levels, scale, width, height, format)`; levels are images, the largest first."""

    def __init__(self) -> None:
        self._levels: tuple[Tensor, ...] = ()
        self.scale = SCALE_PYRAMID_HALF

    def init(self, num_levels: int, scale: float, width: int, height: int, format: Format = Format.U8) -> None:
        """Set the levels' sizes."""
        if num_levels < 1 or not 0 < scale < 1:
            raise TypeMismatch(f"a pyramid of {num_levels} levels by {scale}, wanted at least 1, between 0 and 1")
        levels, self.scale = [], scale
        for _ in range(num_levels):
            levels.append(image(width, height, format))
            width, height = math.ceil(width * scale), math.ceil(height * scale)
        self._levels = tuple(levels)

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


@cache
def _every(step: int) -> Formula:
    """Every first or second pixel; options: the input's size."""

    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        width, height = options
        at_y = T.minimum(T.mul(y, T.const(step)), T.const(height - 1))
        return [read(0, at_y, T.minimum(T.mul(x, T.const(step)), T.const(width - 1)))]

    return Formula(f"every_{step}", (U8,), (U8,), pixel, same_size=False)


@cache
def _converted(source: DataType, target: DataType) -> Formula:
    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        del options
        return [saturated(T.cast(read(0, y, x), "int32"), target.dtype)]

    return Formula(f"convert_{source.name}_{target.name}", (source,), (target,), pixel)


def _plain(formula: Formula, source: Tensor, target: Tensor, options: Options = ()) -> Step:
    step = Step(formula)
    step.configure([source], [target], options=options)
    return step


def _like(like: Tensor) -> Tensor:
    """A tensor of the same size for what lies between two steps, to be allocated once both are configured."""
    return image(*size_of(like.info()), U8)


class _Gaussian(Pipeline):
    _scale: float

    def configure(
        self,
        input: Tensor,
        pyramid: Pyramid,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the image and the pyramid, whose level 0 becomes a copy of it."""
        first = pyramid.get_pyramid_level(0).info()
        refuse(
            objection(
                type(self).__name__,
                wrong_type("the image", input.info(), U8),
                wrong_type("the pyramid", first, U8),
                wrong_size("level 0", first, *size_of(input.info())),
                "" if pyramid.scale == self._scale else f"the pyramid's scale is {pyramid.scale}, wanted {self._scale}",
            )
        )
        self._steps = [_plain(_every(1), input, pyramid.get_pyramid_level(0), size_of(input.info()))]
        for n in range(1, pyramid.num_levels()):
            above, below = pyramid.get_pyramid_level(n - 1), pyramid.get_pyramid_level(n)
            smooth, between = NEGaussian5x5(), _like(above)
            smooth.configure(above, between, border_mode, constant_border_value)
            self._steps += [smooth, self._reduced(between, below)]
            between.allocator().allocate()

    def _reduced(self, source: Tensor, target: Tensor) -> Step | NEScale:
        return _plain(_every(2), source, target, size_of(source.info()))


class NEGaussianPyramidHalf(_Gaussian):
    """Each level half the one before."""

    _scale = SCALE_PYRAMID_HALF


class NEGaussianPyramidOrb(_Gaussian):
    """Each level 0.8409 of the one before."""

    _scale = SCALE_PYRAMID_ORB

    def _reduced(self, source: Tensor, target: Tensor) -> Step | NEScale:
        scale = NEScale()
        scale.configure(source, target, InterpolationPolicy.NEAREST_NEIGHBOR)
        return scale


class NELaplacianPyramid(Pipeline):
    """What smoothing takes away at each level, as S16; the output is the smoothed last level."""

    def configure(
        self,
        input: Tensor,
        pyramid: Pyramid,
        output: Tensor,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the image, the pyramid of S16, and the image of S16 that is left."""
        last = pyramid.get_pyramid_level(pyramid.num_levels() - 1).info()
        refuse(
            objection(
                "NELaplacianPyramid",
                wrong_type("the image", input.info(), U8),
                wrong_type("the pyramid", last, S16),
                wrong_type("the output", output.info(), S16),
                wrong_size("the output", output.info(), *size_of(last)),
                wrong_size("level 0", pyramid.get_pyramid_level(0).info(), *size_of(input.info())),
            )
        )
        levels = Pyramid()
        levels.init(pyramid.num_levels(), SCALE_PYRAMID_HALF, *size_of(input.info()))
        gauss = NEGaussianPyramidHalf()
        gauss.configure(input, levels, border_mode, constant_border_value)
        self._steps = [gauss]
        for n in range(pyramid.num_levels()):
            level = levels.get_pyramid_level(n)
            smooth, between, difference = NEGaussian5x5(), _like(level), NEArithmeticSubtraction()
            smooth.configure(level, between, border_mode, constant_border_value)
            difference.configure(level, between, pyramid.get_pyramid_level(n), ConvertPolicy.WRAP)
            self._steps += [smooth, difference]
            if n == pyramid.num_levels() - 1:
                self._steps.append(_plain(_converted(U8, S16), between, output))
            between.allocator().allocate()
        levels.allocate()


class NELaplacianReconstruct(Pipeline):
    """The image of a Laplacian pyramid: what is left, enlarged, plus each level."""

    def configure(self, pyramid: Pyramid, input: Tensor, output: Tensor) -> None:
        """Set the pyramid of S16, the smallest image of S16, and the image of U8."""
        count = pyramid.num_levels()
        last, first = pyramid.get_pyramid_level(count - 1).info(), pyramid.get_pyramid_level(0).info()
        refuse(
            objection(
                "NELaplacianReconstruct",
                wrong_type("the pyramid", last, S16),
                wrong_type("the input", input.info(), S16),
                wrong_type("the output", output.info(), U8),
                wrong_size("the input", input.info(), *size_of(last)),
                wrong_size("the output", output.info(), *size_of(first)),
            )
        )
        below, made = input, []
        for n in reversed(range(count)):
            level = pyramid.get_pyramid_level(n)
            total, add = image(*size_of(level.info()), S16), NEArithmeticAddition()
            if size_of(below.info()) != size_of(level.info()):
                wide, scale = image(*size_of(level.info()), S16), NEScale()
                scale.configure(below, wide, InterpolationPolicy.NEAREST_NEIGHBOR)
                self._steps.append(scale)
                made.append(wide)
                below = wide
            add.configure(below, level, total, ConvertPolicy.WRAP)
            self._steps.append(add)
            made.append(total)
            below = total
        self._steps.append(_plain(_converted(S16, U8), below, output))
        for tensor in made:
            tensor.allocator().allocate()
