"""Colours: other formats, one channel of an image, channels put together.

In: images and `MultiImage`s of the formats of OpenVX. Out: images of another format. Invariant: a conversion that is
not there is refused with the formats that are; a format with several planes has a step for each size of plane. The
arithmetic: `functions/formulas/colour.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from armillary.base.once import once
from armillary.compute.core.compiled import Formula, Read
from armillary.compute.core.tensor_info import DataType, Format, TensorInfo
from armillary.compute.core.types import Channel
from armillary.compute.functions.formulas import colour
from armillary.compute.functions.formulas.expressions import Options, truncated
from armillary.compute.functions.vision.base import VisionFunction, size_of
from armillary.compute.runtime.tensor import MultiImage, Tensor
from armillary.errors import TypeMismatch
from armillary.tir import build as T
from armillary.tir.expr import Expr

U8 = DataType.U8
Picture = Tensor | MultiImage
PictureInfo = TensorInfo | MultiImage  # what is known of a picture; one of several planes says it itself
F = Format
_RGB = {F.RGB888: colour.packed_rgb(3), F.RGBA8888: colour.packed_rgb(4)}
_YUV: dict[Format, colour.Reader] = {
    F.YUYV422: colour.packed_yuv(True),
    F.UYVY422: colour.packed_yuv(False),
    F.NV12: colour.two_planes(True),
    F.NV21: colour.two_planes(False),
    F.IYUV: colour.three_planes,
}
# What the library converts to what.
CONVERSIONS: dict[Format, tuple[Format, ...]] = {
    F.RGB888: (F.RGBA8888, F.U8, F.NV12, F.IYUV, F.YUV444),
    F.RGBA8888: (F.RGB888, F.U8, F.NV12, F.IYUV, F.YUV444),
    F.YUYV422: (F.RGB888, F.RGBA8888, F.NV12, F.IYUV),
    F.UYVY422: (F.RGB888, F.RGBA8888, F.NV12, F.IYUV),
    F.NV12: (F.RGB888, F.RGBA8888, F.IYUV, F.YUV444),
    F.NV21: (F.RGB888, F.RGBA8888, F.IYUV, F.YUV444),
    F.IYUV: (F.RGB888, F.RGBA8888, F.NV12, F.YUV444),
}


def _planes(picture: Picture) -> list[Tensor]:
    return list(picture.planes()) if isinstance(picture, MultiImage) else [picture]


def _info(picture: Picture) -> PictureInfo:
    return picture if isinstance(picture, MultiImage) else picture.info()


def _format(info: PictureInfo) -> Format:
    if isinstance(info, MultiImage):
        return info.format()
    if info.format is None:
        raise TypeMismatch(f"the tensor {info!r} has no format", hint="TensorInfo(width, height, Format.…)")
    return info.format


def _size(info: PictureInfo) -> tuple[int, int]:
    return info.size() if isinstance(info, MultiImage) else size_of(info)


def _no_image(what: str, info: PictureInfo, size: tuple[int, int]) -> str:
    """An objection to what is no image of U8 and a size."""
    is_right = isinstance(info, TensorInfo) and info.data_type is U8 and info.num_channels() == 1
    return "" if is_right and _size(info) == size else f"{what} is {info!r}, wanted {size[0]}x{size[1]} U8"


Values = Callable[[Read, Expr, Expr], Sequence[Expr]]


def _formula(name: str, inputs: int, channels: tuple[int, ...], values: Values) -> Formula:
    def pixel(read: Read, y: Expr, x: Expr, options: Options) -> Sequence[Expr]:
        del options
        return values(read, y, x)

    outputs = (U8,) * len(channels)
    return Formula(name, (U8,) * inputs, outputs, pixel, same_size=False, channels=channels)


def _twice(at: Expr, more: int) -> Expr:
    return T.add(T.mul(at, T.const(2)), T.const(more))


def _full(source: Format, target: Format) -> Values:
    """The values of a pixel in planes of full size: all channels, or Y."""
    alpha = T.const(255, "uint8")

    def values(read: Read, y: Expr, x: Expr) -> Sequence[Expr]:
        if source in _RGB and target in (F.RGB888, F.RGBA8888):
            return [*_RGB[source](read, y, x), *([alpha] if target is F.RGBA8888 else [])]
        if source in _RGB:
            yuv = [truncated(v, "uint8") for v in colour.to_yuv(_RGB[source](read, y, x))]
            return yuv if target is F.YUV444 else yuv[:1]
        found = _YUV[source](read, y, x)
        if target in (F.RGB888, F.RGBA8888):
            return [*colour.to_rgb(found), *([alpha] if target is F.RGBA8888 else [])]
        return list(found) if target is F.YUV444 else [found[0]]

    return values


def _half(source: Format) -> Values:
    """U and V for four pixels."""

    def values(read: Read, y: Expr, x: Expr) -> Sequence[Expr]:
        places = [(_twice(y, dy), _twice(x, dx)) for dy in (0, 1) for dx in (0, 1)]
        if source in _RGB:
            each = [colour.to_yuv(_RGB[source](read, *place)) for place in places]
            return [colour.mean_of_four([yuv[n] for yuv in each]) for n in (1, 2)]
        if source in (F.YUYV422, F.UYVY422):  # two rows
            rows = [_YUV[source](read, *places[n]) for n in (0, 2)]
            wide = [[T.cast(yuv[n], "uint16") for yuv in rows] for n in (1, 2)]
            return [T.cast(T.shift_right(T.add(a, b), T.const(1, "uint16")), "uint8") for a, b in wide]
        return _YUV[source](read, *places[0])[1:]

    return values


@once
def _conversion(source: Format, target: Format) -> tuple[tuple[Formula, tuple[int, ...]], ...]:
    """Formulas with the planes that they write."""
    inputs, name = len(source.planes), f"{source.name}_to_{target.name}".lower()
    full, half = _full(source, target), _half(source)
    if target is F.NV12:
        uv = _formula(f"{name}_uv", inputs, (2,), half)
        return ((_formula(f"{name}_y", inputs, (1,), full), (0,)), (uv, (1,)))
    if target is F.IYUV:
        uv = _formula(f"{name}_uv", inputs, (1, 1), half)
        return ((_formula(f"{name}_y", inputs, (1,), full), (0,)), (uv, (1, 2)))
    if target is F.YUV444:
        return ((_formula(name, inputs, (1, 1, 1), full), (0, 1, 2)),)
    return ((_formula(name, inputs, (target.num_channels,), full), (0,)),)


def conversion_formulas() -> tuple[Formula, ...]:
    """What all conversions need."""
    pairs = [(source, target) for source, targets in CONVERSIONS.items() for target in targets]
    return tuple(formula for pair in pairs for formula, _ in _conversion(*pair))


class ColorConvert(VisionFunction):
    """The same image in another format."""

    @classmethod
    def _wrong(cls, input: PictureInfo, output: PictureInfo) -> Iterator[str]:
        source, target = _format(input), _format(output)
        if target not in CONVERSIONS.get(source, ()):
            known = ", ".join(f.name for f in CONVERSIONS.get(source, ())) or "nothing"
            yield f"{source.name} to {target.name}, there is from {source.name}: {known}"
        if _size(input) != _size(output):
            yield f"the images are {_size(input)} and {_size(output)}"

    def _bind(self, input: Picture, output: Picture) -> None:
        source, target = _format(_info(input)), _format(_info(output))
        planes = _planes(output)
        work = [(formula, [planes[n] for n in places]) for formula, places in _conversion(source, target)]
        self._set_kernels(
            [kernel for formula, outputs in work for kernel in self._step(formula, _planes(input), outputs)]
        )


# Where channels are: plane, place in a pixel; of Y, U and V in the formats that have them.
_PLACES: dict[Format, dict[Channel, tuple[int, int, int]]] = {
    F.RGB888: {Channel.R: (0, 0, 1), Channel.G: (0, 1, 1), Channel.B: (0, 2, 1)},
    F.RGBA8888: {Channel.R: (0, 0, 1), Channel.G: (0, 1, 1), Channel.B: (0, 2, 1), Channel.A: (0, 3, 1)},
    F.YUYV422: {Channel.Y: (0, 0, 1), Channel.U: (0, 1, 2), Channel.V: (0, 3, 2)},
    F.UYVY422: {Channel.Y: (0, 1, 1), Channel.U: (0, 0, 2), Channel.V: (0, 2, 2)},
    F.NV12: {Channel.Y: (0, 0, 1), Channel.U: (1, 0, 1), Channel.V: (1, 1, 1)},
    F.NV21: {Channel.Y: (0, 0, 1), Channel.V: (1, 0, 1), Channel.U: (1, 1, 1)},
    F.IYUV: {Channel.Y: (0, 0, 1), Channel.U: (1, 0, 1), Channel.V: (2, 0, 1)},
    F.YUV444: {Channel.Y: (0, 0, 1), Channel.U: (1, 0, 1), Channel.V: (2, 0, 1)},
}


@once
def _extraction(stride: int, at: int) -> Formula:
    def values(read: Read, y: Expr, x: Expr) -> Sequence[Expr]:
        return [read(0, y, T.add(T.mul(x, T.const(stride)), T.const(at)))]

    return _formula(f"extract_{stride}_{at}", 1, (1,), values)


def extraction_formulas() -> tuple[Formula, ...]:
    """What all channels of all formats need."""
    rows = [(source.planes[plane][0], at, spread) for source, c in _PLACES.items() for plane, at, spread in c.values()]
    kinds = dict.fromkeys((kind.num_channels * spread, at) for kind, at, spread in rows)
    return tuple(_extraction(*each) for each in kinds)


class ChannelExtract(VisionFunction):
    """One channel of an image."""

    @classmethod
    def _wrong(cls, input: PictureInfo, channel: Channel, output: TensorInfo) -> Iterator[str]:
        source = _format(input)
        place = _PLACES.get(source, {}).get(channel)
        if place is None:
            known = ", ".join(c.name for c in _PLACES.get(source, {})) or "none"
            yield f"{source.name} has no {channel.name}, it has {known}"
            return
        plane, _, spread = place
        info = input.plane(plane).info() if isinstance(input, MultiImage) else input
        yield _no_image("the output", output, (info.shape[0] // spread, info.shape[1]))

    def _bind(self, input: Picture, channel: Channel, output: Tensor) -> None:
        plane, at, spread = _PLACES[_format(_info(input))][channel]
        source = _planes(input)[plane]
        self._set(_extraction(source.info().num_channels() * spread, at), [source], [output])


@once
def _combination(target: Format) -> Formula:
    """A packed pixel from planes of one channel; chroma of YUYV and UYVY is of half width."""
    if target not in (F.YUYV422, F.UYVY422):
        return _copy(target.num_channels)

    def values(read: Read, y: Expr, x: Expr) -> Sequence[Expr]:
        half = T.floordiv(x, T.const(2))
        is_first = T.equal(T.floormod(x, T.const(2)), T.const(0))
        chroma = T.select(is_first, read(1, y, half), read(2, y, half))
        return [read(0, y, x), chroma] if target is F.YUYV422 else [chroma, read(0, y, x)]

    return _formula(f"combine_{target.name}", 3, (2,), values)


@once
def _copy(inputs: int) -> Formula:
    """Planes side by side in one: 1 to 1, or U and V together."""

    def values(read: Read, y: Expr, x: Expr) -> Sequence[Expr]:
        return [read(n, y, x) for n in range(inputs)]

    return _formula(f"combine_{inputs}", inputs, (inputs,), values)


def combination_formulas() -> tuple[Formula, ...]:
    """What pictures of all formats need."""
    return (*(_combination(kind) for kind in (F.YUYV422, F.UYVY422)), *(_copy(n) for n in (1, 2, 3, 4)))


class ChannelCombine(VisionFunction):
    """Planes of one channel as one image."""

    @classmethod
    def _wrong(
        cls,
        plane0: TensorInfo,
        plane1: TensorInfo,
        plane2: TensorInfo,
        plane3: TensorInfo | None,
        output: PictureInfo,
    ) -> Iterator[str]:
        target, (width, height) = _format(output), _size(output)
        planes = [plane0, plane1, plane2, *([plane3] if plane3 is not None else [])]
        if target not in _PLACES or len(planes) != (4 if target is F.RGBA8888 else 3):
            yield f"{target.name} from {len(planes)} planes, there are {', '.join(f.name for f in _PLACES)}"
        wide = 2 if target in (F.YUYV422, F.UYVY422, F.NV12, F.NV21, F.IYUV) else 1
        high = 2 if target in (F.NV12, F.NV21, F.IYUV) else 1
        for n, plane in enumerate(planes):
            yield _no_image(f"plane {n}", plane, (width // wide, height // high) if n else (width, height))

    def _bind(self, plane0: Tensor, plane1: Tensor, plane2: Tensor, plane3: Tensor | None, output: Picture) -> None:
        target, planes = _format(_info(output)), _planes(output)
        channels = [plane0, plane1, plane2, *([plane3] if plane3 is not None else [])]
        if target in (F.NV12, F.NV21):
            pair = channels[1:] if target is F.NV12 else channels[:0:-1]
            work = [(_copy(1), channels[:1], planes[:1]), (_copy(2), pair, planes[1:])]
        elif len(planes) > 1:
            work = [(_copy(1), [a], [b]) for a, b in zip(channels, planes, strict=True)]
        else:
            work = [(_combination(target), channels, planes)]
        self._set_kernels(
            [kernel for formula, inputs, outputs in work for kernel in self._step(formula, inputs, outputs)]
        )
