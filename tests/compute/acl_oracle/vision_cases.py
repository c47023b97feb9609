"""Random cases of the vision functions: shapes, borders, values, and the call that computes the same.

In: a generator of random numbers. Out: a `Case`. Invariant: a function's name is its key; every case is refused by
neither side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary import compute
from armillary.compute import (
    BorderMode,
    Channel,
    ConvertPolicy,
    Format,
    InterpolationPolicy,
    MagnitudeType,
    MatrixPattern,
    NonLinearFilterFunction,
    PhaseType,
    RoundingPolicy,
    ThresholdType,
)
from tests.compute.acl_oracle.wire import Case, Result, Tensor, dtype_of, shape_of

Rng = np.random.Generator
Function = Any  # Any: one of the library's functions
Images = list[Any]  # Any: tensors and images of several planes
Build = Callable[[Rng], Case]
BORDERS = (BorderMode.UNDEFINED, BorderMode.CONSTANT, BorderMode.REPLICATE)
POLICIES = (InterpolationPolicy.NEAREST_NEIGHBOR, InterpolationPolicy.BILINEAR, InterpolationPolicy.AREA)


def size(rng: Rng, least: int = 5, even: bool = False) -> tuple[int, int]:
    """Width and height."""
    width, height = int(rng.integers(least, 60)), int(rng.integers(least, 30))
    return (width & ~1, height & ~1) if even else (width, height)


def drawn(rng: Rng, kind: str, sizes: tuple[int, ...], low: float | None = None, high: float | None = None) -> Tensor:
    """A tensor of random values."""
    made = Tensor(kind, sizes, [])
    dtype = np.dtype(dtype_of(kind))
    for shape in shape_of(made):
        if dtype.kind == "f":
            values = rng.uniform(-4.0 if low is None else low, 4.0 if high is None else high, shape).astype(dtype)
        else:
            info = np.iinfo(dtype)
            bottom, top = info.min if low is None else int(low), info.max if high is None else int(high)
            values = rng.integers(bottom, top, shape, endpoint=True).astype(dtype)
        made.planes.append(values)
    return made


def like(side: str | Function, name: str) -> Any:  # Any: what the class makes
    """A new object of a class of this library, or of the class that takes its place on the side of a function."""
    prefix = side if isinstance(side, str) else type(side).__name__[:2]
    return getattr(compute, f"CL{name.removeprefix('NE').removeprefix('CPP')}" if prefix == "CL" else name)()


def image_of(tensor: Tensor, side: str = "NE") -> Any:  # Any: an image, or one of several planes
    """The tensor of this library, not allocated."""
    kind = Format[tensor.kind]
    if len(kind.planes) > 1:
        multi = like(side, "MultiImage")
        multi.init(*tensor.sizes, kind)
        return multi
    made = like(side, "Image")
    made.allocator().init(compute.TensorInfo(*tensor.sizes, kind))
    return made


def with_padding(case: Case, tensors: Sequence[Any]) -> None:  # Any: tensors of this library
    """Give tensors the padding that a case has for them: up to three elements on each side."""
    rng = np.random.default_rng(case.padding)
    for tensor in tensors if case.padding else ():
        tensor.info().extend_padding(compute.PaddingSize(*(int(n) for n in rng.integers(0, 4, 4))))


def parts(image: Any) -> list[Any]:  # Any: see image_of
    """The planes of an image."""
    return list(image.planes()) if isinstance(image, compute.MultiImage) else [image]


@dataclass
class Calling:
    """Configure, allocate, fill, run, read; `configure` may return what gives numbers."""

    configure: Callable[[Function, Images], Any]  # Any: None, or what gives the numbers

    def __call__(self, case: Case) -> Result:
        """What a case gives."""
        images = [image_of(t, case.side) for t in case.tensors]
        with_padding(case, [part for image in images for part in parts(image)])
        function = like(case.side, case.name)
        numbers = self.configure(function, images)
        for tensor, image in zip(case.tensors, images, strict=True):
            for part, values in zip(parts(image), tensor.planes, strict=True):
                part.allocator().allocate()
                part.write(values)
        function.run()
        outputs = [part.read().copy() for at in case.outputs for part in parts(images[at])]
        region = parts(images[-1])[0].info().valid_region()
        found = (region.anchor[0], region.anchor[1], region.shape[0], region.shape[1])
        return Result(list(numbers()) if numbers else [], found, outputs)


def border(rng: Rng, allowed: Sequence[BorderMode] = BORDERS) -> tuple[BorderMode, int, list[float]]:
    """A border mode, its constant, and both as the driver takes them."""
    mode, constant = allowed[int(rng.integers(len(allowed)))], int(rng.integers(256))
    return mode, constant, [BORDERS.index(mode), constant]


def _filter(name: str) -> Build:
    def case(rng: Rng) -> Case:
        sizes, (mode, constant, params) = size(rng), border(rng)
        tensors = [drawn(rng, "U8", sizes), drawn(rng, "U8", sizes)]
        return Case(name, tensors, params, Calling(lambda f, t: f.configure(*t, mode, constant)))

    return case


def _gradient(name: str, kind: str = "S16") -> Build:
    def case(rng: Rng) -> Case:
        sizes, (mode, constant, params) = size(rng, 8), border(rng)
        tensors = [drawn(rng, "U8", sizes), drawn(rng, kind, sizes), drawn(rng, kind, sizes)]
        return Case(name, tensors, params, Calling(lambda f, t: f.configure(*t, mode, constant)), outputs=(1, 2))

    return case


def _matrix(name: str, side: int) -> Build:
    def case(rng: Rng) -> Case:
        sizes, (mode, constant, params) = size(rng, 10), border(rng)
        values = [int(v) for v in rng.integers(-9, 10, side * side)]
        scale = int(rng.integers(1, 40))
        tensors = [drawn(rng, "U8", sizes), drawn(rng, ("U8", "S16")[int(rng.integers(2))], sizes)]
        rule = Calling(lambda f, t: f.configure(*t, values, scale, mode, constant))
        return Case(name, tensors, [*params, scale, *values], rule)

    return case


def _rectangle(rng: Rng) -> Case:
    sizes, (mode, constant, params) = size(rng, 10), border(rng)
    rows, columns = (int(v) for v in rng.choice((3, 5, 7, 9), 2))
    values = [int(v) for v in rng.integers(-9, 10, rows * columns)]
    scale = int(rng.integers(1, 40))
    tensors = [drawn(rng, "U8", sizes), drawn(rng, ("U8", "S16")[int(rng.integers(2))], sizes)]
    rule = Calling(lambda f, t: f.configure(*t, values, rows, columns, scale, mode, constant))
    return Case("NEConvolutionRectangle", tensors, [*params, scale, rows, columns, *values], rule)


def _plain(name: str, *kinds: str) -> Build:
    def case(rng: Rng) -> Case:
        sizes = size(rng)
        return Case(name, [drawn(rng, k, sizes) for k in kinds], [], Calling(lambda f, t: f.configure(*t)))

    return case


def _threshold(rng: Rng) -> Case:
    sizes = size(rng)
    lower, upper, no, yes = (int(v) for v in rng.integers(0, 256, 4))
    lower, upper = min(lower, upper), max(lower, upper)
    kind = list(ThresholdType)[int(rng.integers(2))]
    rule = Calling(lambda f, t: f.configure(*t, lower, no, yes, kind, upper))
    params = [lower, no, yes, list(ThresholdType).index(kind), upper]
    return Case("NEThreshold", [drawn(rng, "U8", sizes), drawn(rng, "U8", sizes)], params, rule)


def _accumulate_squared(rng: Rng) -> Case:
    sizes, shift = size(rng), int(rng.integers(16))
    tensors = [drawn(rng, "U8", sizes), drawn(rng, "S16", sizes, 0)]
    rule = Calling(lambda f, t: f.configure(t[0], shift, t[1]))
    return Case("NEAccumulateSquared", tensors, [shift], rule)


def _accumulate_weighted(rng: Rng) -> Case:
    sizes, alpha = size(rng), float(np.float32(rng.uniform(0, 1)))
    tensors = [drawn(rng, "U8", sizes), drawn(rng, "U8", sizes)]
    rule = Calling(lambda f, t: f.configure(t[0], alpha, t[1]))
    return Case("NEAccumulateWeighted", tensors, [alpha], rule, step=1)


TYPES = (("U8", "U8", "U8"), ("U8", "U8", "S16"), ("U8", "S16", "S16"), ("S16", "U8", "S16"), ("S16", "S16", "S16"))
WITH_REAL = (*TYPES, ("F32", "F32", "F32"))


def _sum(name: str) -> Build:
    def case(rng: Rng) -> Case:
        sizes, kinds = size(rng), WITH_REAL[int(rng.integers(len(WITH_REAL)))]
        saturates = int(rng.integers(2))
        policy = (ConvertPolicy.WRAP, ConvertPolicy.SATURATE)[saturates]
        rule = Calling(lambda f, t: f.configure(*t, policy))
        return Case(name, [drawn(rng, k, sizes) for k in kinds], [saturates], rule)

    return case


def _product(rng: Rng) -> Case:
    sizes, kinds = size(rng), TYPES[int(rng.integers(len(TYPES)))]
    saturates, shift = int(rng.integers(2)), int(rng.integers(-1, 16))
    # The library's code for 32 pixels of U8 leaves every second one as it was (1/2^n) or mixes them (1/255).
    sizes, shift = (sizes, max(0, shift)) if kinds != TYPES[0] else ((sizes[0] % 27 + 5, sizes[1]), -1)
    policy = (ConvertPolicy.WRAP, ConvertPolicy.SATURATE)[saturates]
    scale = 1 / 255 if shift < 0 else 2.0**-shift
    rounding = RoundingPolicy.TO_NEAREST_EVEN if shift < 0 else RoundingPolicy.TO_ZERO
    rule = Calling(lambda f, t: f.configure(*t, scale, policy, rounding))
    tensors = [drawn(rng, k, sizes) for k in kinds]
    return Case("NEPixelWiseMultiplication", tensors, [saturates, scale, int(shift < 0)], rule)


def _magnitude(rng: Rng) -> Case:
    sizes, is_sum = size(rng), int(rng.integers(2))
    kind = (MagnitudeType.L2NORM, MagnitudeType.L1NORM)[is_sum]
    tensors = [drawn(rng, "S16", sizes, -16000, 16000) for _ in range(3)]
    return Case("NEMagnitude", tensors, [is_sum], Calling(lambda f, t: f.configure(*t, kind)), step=0 if is_sum else 1)


def _phase(rng: Rng) -> Case:
    sizes, is_half = size(rng), int(rng.integers(2))
    kind = (PhaseType.SIGNED, PhaseType.UNSIGNED)[is_half]
    tensors = [drawn(rng, "S16", sizes), drawn(rng, "S16", sizes), drawn(rng, "U8", sizes)]
    return Case("NEPhase", tensors, [is_half], Calling(lambda f, t: f.configure(*t, kind)))


def _table(rng: Rng) -> Case:
    sizes, kind = size(rng), ("U8", "S16")[int(rng.integers(2))]
    count = 256 if kind == "U8" else 1024
    values = [int(v) for v in rng.integers(0, 256, count)]

    def configure(function: Function, images: Images) -> None:
        is_device = isinstance(images[0], compute.CLTensor)
        lut = (compute.CLLut if is_device else compute.Lut)(count, images[0].info().data_type)
        lut.fill(values)
        function.configure(images[0], lut, images[1])

    spread = (-512, 511) if kind == "S16" else (None, None)
    tensors = [drawn(rng, kind, sizes, *spread), drawn(rng, kind, sizes)]
    return Case("NETableLookup", tensors, list(map(float, values)), Calling(configure))


PATTERNS = (MatrixPattern.BOX, MatrixPattern.CROSS, MatrixPattern.DISK, MatrixPattern.OTHER)
CHOICES = (NonLinearFilterFunction.MEDIAN, NonLinearFilterFunction.MIN, NonLinearFilterFunction.MAX)


def _non_linear(rng: Rng) -> Case:
    sizes, (mode, constant, params) = size(rng), border(rng)
    which, at = CHOICES[int(rng.integers(3))], int(rng.integers(3))
    rule = Calling(lambda f, t: f.configure(*t, which, 5, PATTERNS[at], None, mode, constant))
    tensors = [drawn(rng, "U8", sizes), drawn(rng, "U8", sizes)]
    return Case("NENonLinearFilter", tensors, [*params, CHOICES.index(which), 5, at], rule)


def _non_maxima(rng: Rng) -> Case:
    sizes, kind = size(rng), ("U8", "F32")[int(rng.integers(2))]
    mode, _, params = border(rng, BORDERS[:2])
    tensors = [drawn(rng, kind, sizes, 0, 9), drawn(rng, kind, sizes)]
    rule = Calling(lambda f, t: f.configure(*t, mode))
    return Case("NENonMaximaSuppression3x3", tensors, params, rule)


def _scale(rng: Rng) -> Case:
    sizes, (mode, constant, params) = size(rng), border(rng, BORDERS[1:])
    at = int(rng.integers(3))
    least = 1 if at == 2 else 0.3  # the library's means read beside its border where an axis grows
    wide, high = (max(1, int(n / rng.uniform(least, 2.5))) for n in sizes)
    tensors = [drawn(rng, "U8", sizes), drawn(rng, "U8", (wide, high))]
    rule = Calling(lambda f, t: f.configure(*t, POLICIES[at], mode, constant))
    return Case("NEScale", tensors, [*params, at], rule, step=int(at == 1))


def _remap(rng: Rng) -> Case:
    sizes, (mode, constant, params) = size(rng), border(rng, BORDERS[1:])
    at, out = int(rng.integers(2)), size(rng)
    maps = [drawn(rng, "F32", out, -3, extent + 3) for extent in sizes]
    rule = Calling(lambda f, t: f.configure(*t, POLICIES[at], mode, constant))
    return Case("NERemap", [drawn(rng, "U8", sizes), *maps, drawn(rng, "U8", out)], [*params, at], rule, step=at)


def _warp(name: str, count: int) -> Build:
    def case(rng: Rng) -> Case:
        sizes, (mode, constant, params) = size(rng), border(rng, BORDERS[1:])
        at, out = int(rng.integers(2)), size(rng)
        angle, zoom = rng.uniform(-3, 3), rng.uniform(0.5, 2)
        c, s = zoom * np.cos(angle), zoom * np.sin(angle)
        numbers = [c, s, -s, c, rng.uniform(-5, 40), rng.uniform(-5, 20)]
        if count == 9:
            numbers = [c, s, rng.uniform(0, 0.02), -s, c, rng.uniform(0, 0.02), *numbers[4:], 1.0]
        given = [float(np.float32(v)) for v in numbers]
        rule = Calling(lambda f, t: f.configure(*t, given, POLICIES[at], mode, constant))
        return Case(name, [drawn(rng, "U8", sizes), drawn(rng, "U8", out)], [*params, at, *given], rule, step=at)

    return case


def _convert(rng: Rng) -> Case:
    from armillary.compute.functions.vision.colour import CONVERSIONS

    pairs = [(a.name, b.name) for a, targets in CONVERSIONS.items() for b in targets]
    pairs.remove(("RGBA8888", "U8"))  # the library has no such conversion
    source, target = pairs[int(rng.integers(len(pairs)))]
    width, height = size(rng, 6, even=True)
    sizes = (max(16, width & ~15), height) if "16" in target else (width, height)
    tensors = [drawn(rng, source, sizes), drawn(rng, target, sizes)]
    return Case("NEColorConvert", tensors, [], Calling(lambda f, t: f.configure(*t)), step=1, has_region=False)


CHANNELS = ("", "C0", "C1", "C2", "C3", "R", "G", "B", "A", "Y", "U", "V")


def _extract(rng: Rng) -> Case:
    from armillary.compute.functions.vision.colour import _PLACES

    pairs = [(f, c, place) for f, channels in _PLACES.items() for c, place in channels.items()]
    source, channel, (plane, _, spread) = pairs[int(rng.integers(len(pairs)))]
    width, height = size(rng, 6, even=True)
    divisor = source.planes[plane][1]
    out = (width // spread // divisor, height // divisor)
    tensors = [drawn(rng, source.name, (width, height)), drawn(rng, "U8", out)]
    rule = Calling(lambda f, t: f.configure(t[0], Channel[channel.name], t[1]))
    return Case("NEChannelExtract", tensors, [CHANNELS.index(channel.name)], rule, has_region=False)


def _combine(rng: Rng) -> Case:
    kinds = ("RGB888", "RGBA8888", "YUYV422", "UYVY422", "NV12", "NV21", "IYUV", "YUV444")
    target = kinds[int(rng.integers(len(kinds)))]
    width, height = size(rng, 6, even=True)
    wide = 2 if target in ("YUYV422", "UYVY422", "NV12", "NV21", "IYUV") else 1
    high = 2 if target in ("NV12", "NV21", "IYUV") else 1
    count = 4 if target == "RGBA8888" else 3
    planes = [drawn(rng, "U8", (width // wide, height // high) if n else (width, height)) for n in range(count)]
    fourth = (lambda t: t[3]) if count == 4 else (lambda t: None)
    rule = Calling(lambda f, t: f.configure(*t[:3], fourth(t), t[-1]))
    return Case("NEChannelCombine", [*planes, drawn(rng, target, (width, height))], [], rule, has_region=False)


def _histogram(rng: Rng) -> Case:
    sizes, bins, offset = size(rng), int(rng.integers(1, 100)), int(rng.integers(0, 100))
    extent = int(rng.integers(bins, 257 - offset))
    made = compute.Distribution1D(bins, offset, extent)

    def configure(function: Function, images: Images) -> Any:  # Any: what gives the numbers
        function.configure(images[0], made)
        return lambda: made.buffer().tolist()

    case = Case("NEHistogram", [drawn(rng, "U8", sizes)], [bins, offset, extent], Calling(configure), outputs=())
    case.has_region = False
    return case


def _extremes(rng: Rng) -> Case:
    sizes = size(rng)
    kind, spread = (("U8", (0, 40)), ("S16", (-20, 20)))[int(rng.integers(2))]

    def configure(function: Function, images: Images) -> Any:  # Any: what gives the numbers
        least, most, few, many = (compute.Scalar() for _ in range(4))
        low: list[tuple[int, int]] = []
        high: list[tuple[int, int]] = []
        function.configure(images[0], least, most, low, high, few, many)
        values = (least, most, few, many)
        return lambda: [*(v.value for v in values), *(n for place in (*low, *high) for n in place)]

    tensors = [drawn(rng, kind, sizes, *spread)]
    return Case("NEMinMaxLocation", tensors, [], Calling(configure), outputs=(), has_region=False)


BUILDERS: dict[str, Build] = {
    "NEHistogram": _histogram,
    "NEMinMaxLocation": _extremes,
    "NEEqualizeHistogram": _plain("NEEqualizeHistogram", "U8", "U8"),
    "NEIntegralImage": _plain("NEIntegralImage", "U8", "U32"),
    **{n: _filter(n) for n in ("NEGaussian3x3", "NEGaussian5x5", "NEBox3x3", "NEMedian3x3", "NEErode", "NEDilate")},
    **{n: _gradient(n) for n in ("NESobel3x3", "NESobel5x5", "NEDerivative", "NEScharr3x3")},
    "NESobel7x7": _gradient("NESobel7x7", "S32"),
    **{f"NEConvolution{n}x{n}": _matrix(f"NEConvolution{n}x{n}", n) for n in (3, 5, 7, 9)},
    "NEConvolutionRectangle": _rectangle,
    **{f"NEBitwise{n}": _plain(f"NEBitwise{n}", "U8", "U8", "U8") for n in ("And", "Or", "Xor")},
    "NEBitwiseNot": _plain("NEBitwiseNot", "U8", "U8"),
    "NEAbsoluteDifference": _plain("NEAbsoluteDifference", "U8", "U8", "U8"),
    "NEAccumulate": _plain("NEAccumulate", "U8", "S16"),
    "NEAccumulateSquared": _accumulate_squared,
    "NEAccumulateWeighted": _accumulate_weighted,
    "NEThreshold": _threshold,
    "NEArithmeticAddition": _sum("NEArithmeticAddition"),
    "NEArithmeticSubtraction": _sum("NEArithmeticSubtraction"),
    "NEPixelWiseMultiplication": _product,
    "NEMagnitude": _magnitude,
    "NEPhase": _phase,
    "NETableLookup": _table,
    "NENonLinearFilter": _non_linear,
    "NENonMaximaSuppression3x3": _non_maxima,
    "NEScale": _scale,
    "NERemap": _remap,
    "NEWarpAffine": _warp("NEWarpAffine", 6),
    "NEWarpPerspective": _warp("NEWarpPerspective", 9),
    "NEColorConvert": _convert,
    "NEChannelExtract": _extract,
    "NEChannelCombine": _combine,
}
