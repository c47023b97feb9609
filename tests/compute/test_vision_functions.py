"""Vision functions of OpenVX against plain numpy: filters, sums, tables, gradients, colours, other sizes and places."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from armillary import compute
from armillary.compute import (
    BorderMode,
    Channel,
    ConvertPolicy,
    DataType,
    Format,
    Image,
    InterpolationPolicy,
    MagnitudeType,
    MatrixPattern,
    MultiImage,
    NonLinearFilterFunction,
    PhaseType,
    RoundingPolicy,
    TensorInfo,
    ThresholdType,
)
from armillary.compute.core.compiled import FormulaKernel
from armillary.compute.functions.formulas.geometry import scale_boxes
from armillary.errors import TypeMismatch

Array = npt.NDArray[Any]  # Any: of an image's type
KINDS = {"uint8": Format.U8, "int16": Format.S16, "int32": Format.S32, "uint32": Format.U32, "float32": Format.F32}
REPLICATE, CONSTANT, UNDEFINED = BorderMode.REPLICATE, BorderMode.CONSTANT, BorderMode.UNDEFINED
NEAREST, BILINEAR, AREA = InterpolationPolicy.NEAREST_NEIGHBOR, InterpolationPolicy.BILINEAR, InterpolationPolicy.AREA


def _image(values: Array, kind: Format | None = None) -> Image:
    made = Image()
    made.allocator().init(TensorInfo(values.shape[1], values.shape[0], kind or KINDS[str(values.dtype)]))
    return made


def _ran(function: Any, given: list[Array], outputs: list[Array], *more: object) -> list[Array]:  # Any: a function
    """Configure with images of these values and more arguments (or by a call), allocate, fill, run: the outputs."""
    images = [_image(v) if v.ndim == 2 else _image(v, Format.RGB888) for v in (*given, *outputs)]
    if more and callable(more[0]):
        more[0](function, *images)
    else:
        function.configure(*images, *more)
    for image, values in zip(images, (*given, *outputs), strict=True):
        image.allocator().allocate()
        image.array()[...] = values
    function.run()
    return [image.array().copy() for image in images[len(given) :]]


def _drawn(seed: int, dtype: str, *shape: int) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


def _windows(image: Array, rows: int, columns: int) -> Array:
    padded = np.pad(image.astype(np.int64), ((rows // 2, rows // 2), (columns // 2, columns // 2)), mode="edge")
    return np.lib.stride_tricks.sliding_window_view(padded, (rows, columns))


PIXELS = _drawn(0, "uint8", 19, 37)
SMOOTH = {5: [1, 4, 6, 4, 1], 7: [1, 6, 15, 20, 15, 6, 1]}
SLOPE = {5: [-1, -2, 0, 2, 1], 7: [-1, -4, -5, 0, 5, 4, 1]}


@pytest.mark.parametrize("side", [5, 7])
def test_larger_gradients(side: int) -> None:
    dtype = "int16" if side == 5 else "int32"
    empty = np.zeros(PIXELS.shape, dtype)
    found = _ran(getattr(compute, f"NESobel{side}x{side}")(), [PIXELS], [empty, empty], REPLICATE)
    matrix = np.outer(SMOOTH[side], SLOPE[side])
    windows = _windows(PIXELS, side, side)
    np.testing.assert_array_equal(found[0], np.einsum("yxij,ij->yx", windows, matrix))
    np.testing.assert_array_equal(found[1], np.einsum("yxij,ji->yx", windows, matrix))


def test_derivatives_and_one_gradient_alone() -> None:
    empty = np.zeros(PIXELS.shape, np.int16)
    both = _ran(compute.NEDerivative(), [PIXELS], [empty, empty], REPLICATE)
    wide = np.pad(PIXELS.astype(int), 1, mode="edge")
    np.testing.assert_array_equal(both[0], wide[1:-1, 2:] - wide[1:-1, :-2])
    np.testing.assert_array_equal(both[1], wide[2:, 1:-1] - wide[:-2, 1:-1])
    (alone,) = _ran(compute.NEDerivative(), [PIXELS], [empty], lambda f, a, y: f.configure(a, None, y, REPLICATE))
    np.testing.assert_array_equal(alone, both[1])
    with pytest.raises(TypeMismatch, match="neither of both gradients is asked for"):
        compute.NEDerivative().configure(_image(PIXELS), None, None)


@pytest.mark.parametrize(("rows", "columns"), [(7, 7), (9, 9), (3, 9), (7, 5)])
@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_matrices(rows: int, columns: int, dtype: str) -> None:
    matrix = np.random.default_rng(rows).integers(-9, 10, (rows, columns))
    values, empty = [int(v) for v in matrix.ravel()], np.zeros(PIXELS.shape, dtype)
    is_square = rows == columns
    function = getattr(compute, f"NEConvolution{rows}x{columns}" if is_square else "NEConvolutionRectangle")()
    sides = () if is_square else (rows, columns)
    (found,) = _ran(function, [PIXELS], [empty], values, *sides, 7, REPLICATE)
    sums = np.einsum("yxij,ij->yx", _windows(PIXELS, rows, columns), matrix)
    quotients = np.sign(sums) * (np.abs(sums) // 7)
    limits = np.iinfo(dtype)
    np.testing.assert_array_equal(found, np.clip(quotients, limits.min, limits.max))
    with pytest.raises(TypeMismatch, match="rows is 4, wanted 3 or 5"):
        compute.NEConvolutionRectangle().configure(_image(PIXELS), _image(PIXELS), [0] * 16, 4, 4)


CROSS5 = np.array([[0, 0, 1, 0, 0]] * 2 + [[1] * 5] + [[0, 0, 1, 0, 0]] * 2, bool)
DISK5 = np.array([[0, 1, 1, 1, 0], [1] * 5, [1] * 5, [1] * 5, [0, 1, 1, 1, 0]], bool)


@pytest.mark.parametrize(
    ("pattern", "mask"),
    [(MatrixPattern.BOX, np.ones((5, 5), bool)), (MatrixPattern.CROSS, CROSS5), (MatrixPattern.DISK, DISK5)],
)
def test_ranks_under_a_mask(pattern: MatrixPattern, mask: Array) -> None:
    rules = {NonLinearFilterFunction.MIN: np.min, NonLinearFilterFunction.MAX: np.max}
    under = _windows(PIXELS, 5, 5)[..., mask]
    for which in NonLinearFilterFunction:
        (found,) = _ran(
            compute.NENonLinearFilter(),
            [PIXELS],
            [PIXELS],
            which,
            5,
            pattern,
            None,
            REPLICATE,
        )
        wanted = np.median(under, -1) if which is NonLinearFilterFunction.MEDIAN else rules[which](under, -1)
        np.testing.assert_array_equal(found, wanted, str(which))


def test_only_the_largest_of_neighbours_are_kept() -> None:
    few = PIXELS % 8
    (found,) = _ran(compute.NENonMaximaSuppression3x3(), [few], [few], CONSTANT)
    around = np.lib.stride_tricks.sliding_window_view(np.pad(few, 1), (3, 3)).reshape(*few.shape, 9)
    before, after = around[..., :4].max(-1), around[..., 5:].max(-1)
    np.testing.assert_array_equal(found, np.where((few >= before) & (few > after), few, 0))


def test_accumulation() -> None:
    total = _drawn(1, "int16", *PIXELS.shape)
    (found,) = _ran(compute.NEAccumulate(), [PIXELS], [total])
    np.testing.assert_array_equal(found, np.minimum(total.astype(int) + PIXELS, 32767))
    (found,) = _ran(compute.NEAccumulateSquared(), [PIXELS], [total], lambda f, a, b: f.configure(a, 3, b))
    np.testing.assert_array_equal(found, np.minimum(total.astype(int) + (PIXELS.astype(int) ** 2 >> 3), 32767))
    other = _drawn(2, "uint8", *PIXELS.shape)
    (found,) = _ran(compute.NEAccumulateWeighted(), [PIXELS], [other], lambda f, a, b: f.configure(a, 0.25, b))
    np.testing.assert_array_equal(found, (0.75 * other + 0.25 * PIXELS).astype(np.uint8))
    calls: tuple[tuple[Callable[[], None], str], ...] = (
        (lambda: compute.NEAccumulateSquared().configure(_image(PIXELS), 16, _image(total)), "shift is 16"),
        (lambda: compute.NEAccumulateWeighted().configure(_image(PIXELS), 1.5, _image(other)), "alpha is 1.5"),
    )
    for call, message in calls:
        with pytest.raises(TypeMismatch, match=message):
            call()


@pytest.mark.parametrize(
    "kinds", [("uint8", "uint8", "uint8"), ("uint8", "int16", "int16"), ("int16", "int16", "int16")]
)
@pytest.mark.parametrize("policy", list(ConvertPolicy))
def test_sums_and_products(kinds: tuple[str, str, str], policy: ConvertPolicy) -> None:
    a, b, empty = _drawn(3, kinds[0], 9, 40), _drawn(4, kinds[1], 9, 40), np.zeros((9, 40), kinds[2])
    limits = np.iinfo(kinds[2])

    def fitted(values: Array) -> Array:
        return np.clip(values, limits.min, limits.max) if policy is ConvertPolicy.SATURATE else values.astype(kinds[2])

    wide = a.astype(np.int64), b.astype(np.int64)
    (found,) = _ran(compute.NEArithmeticAddition(), [a, b], [empty], policy)
    np.testing.assert_array_equal(found, fitted(wide[0] + wide[1]))
    (found,) = _ran(compute.NEArithmeticSubtraction(), [a, b], [empty], policy)
    np.testing.assert_array_equal(found, fitted(wide[0] - wide[1]))
    product = wide[0] * wide[1]
    (found,) = _ran(compute.NEPixelWiseMultiplication(), [a, b], [empty], 2.0**-6, policy)
    np.testing.assert_array_equal(found, fitted(np.sign(product) * (np.abs(product) >> 6)))
    even = RoundingPolicy.TO_NEAREST_EVEN
    (found,) = _ran(compute.NEPixelWiseMultiplication(), [a, b], [empty], 1 / 255, policy, even)
    exact = product / 255
    assert (np.abs(found.astype(np.int64) - fitted(np.rint(exact).astype(np.int64))) <= 1).all()
    with pytest.raises(TypeMismatch, match=r"the scale is 0\.3"):
        compute.NEPixelWiseMultiplication().configure(_image(a), _image(b), _image(empty), 0.3)


def test_thresholds_and_tables() -> None:
    kind = ThresholdType.RANGE
    (found,) = _ran(compute.NEThreshold(), [PIXELS], [PIXELS], 50, 9, 200, kind, 90)
    np.testing.assert_array_equal(found, np.where((PIXELS >= 50) & (PIXELS <= 90), 200, 9))
    table = np.random.default_rng(5).integers(0, 256, 256)
    lut = compute.Lut(256, DataType.U8)
    lut.fill([int(v) for v in table])
    (found,) = _ran(compute.NETableLookup(), [PIXELS], [PIXELS], lambda f, a, b: f.configure(a, lut, b))
    np.testing.assert_array_equal(found, table[PIXELS])
    short = compute.Lut(64, DataType.S16)
    short.fill(list(range(100, 164)))
    values = np.arange(-40, 40, dtype=np.int16).reshape(2, 40)
    (found,) = _ran(compute.NETableLookup(), [values], [values], lambda f, a, b: f.configure(a, short, b))
    np.testing.assert_array_equal(found, np.where(np.abs(values + 0.5) < 32, values + 132, values))


def test_length_and_angle_of_gradients() -> None:
    gx, gy = np.random.default_rng(6).integers(-2000, 2000, (2, 11, 50)).astype(np.int16)
    l1, l2 = MagnitudeType.L1NORM, MagnitudeType.L2NORM
    (found,) = _ran(compute.NEMagnitude(), [gx, gy], [gx], l1)
    np.testing.assert_array_equal(found, np.abs(gx.astype(int)) + np.abs(gy.astype(int)))
    (found,) = _ran(compute.NEMagnitude(), [gx, gy], [gx], l2)
    np.testing.assert_array_equal(found, np.floor(np.hypot(gx.astype(float), gy) + 0.5))
    empty = np.zeros(gx.shape, np.uint8)
    degrees = np.degrees(np.arctan2(gy.astype(float), gx)) % 360
    (found,) = _ran(compute.NEPhase(), [gx, gy], [empty], PhaseType.SIGNED)
    off = (found - degrees * 256 / 360 + 128) % 256 - 128
    assert np.abs(off).max() <= 1
    (found,) = _ran(compute.NEPhase(), [gx, gy], [empty], PhaseType.UNSIGNED)
    assert np.abs((found - degrees + 90) % 180 - 90).max() <= 1


@pytest.mark.parametrize("border", [REPLICATE, CONSTANT])
def test_maps_and_warps(border: BorderMode) -> None:
    rng, mode = np.random.default_rng(7), cv2.BORDER_REPLICATE if border is REPLICATE else cv2.BORDER_CONSTANT
    map_x = rng.uniform(-3, 40, (15, 33)).astype(np.float32)
    map_y = rng.uniform(-3, 22, (15, 33)).astype(np.float32)
    empty = np.zeros((15, 33), np.uint8)
    (found,) = _ran(compute.NERemap(), [PIXELS, map_x, map_y], [empty], BILINEAR, border, 7)
    wanted = cv2.remap(PIXELS.astype(np.float32), map_x, map_y, cv2.INTER_LINEAR, borderMode=mode, borderValue=7)
    inside = (map_x > 0) & (map_x < 36) & (map_y > 0) & (map_y < 18)
    assert np.abs(found - wanted)[inside].max() < 6, "cv2 rounds places to 1/32"
    (found,) = _ran(compute.NERemap(), [PIXELS, map_x, map_y], [empty], NEAREST, border, 7)
    at_x, at_y = map_x.astype(int), map_y.astype(int)
    near = PIXELS[np.clip(at_y, 0, 18), np.clip(at_x, 0, 36)]
    within = (at_x >= 0) & (at_x < 37) & (at_y >= 0) & (at_y < 19)
    np.testing.assert_array_equal(found, near if border is REPLICATE else np.where(within, near, 7))
    matrix = [0.8, 0.3, -0.2, 1.1, 2.5, -1.5]  # by columns
    y, x = np.mgrid[:15, :33]
    (found,) = _ran(compute.NEWarpAffine(), [PIXELS], [empty], matrix, NEAREST, border, 7)
    at_x = np.floor(0.8 * x - 0.2 * y + 2.5 + 1e-6).astype(int)
    at_y = np.floor(0.3 * x + 1.1 * y - 1.5 + 1e-6).astype(int)
    near = PIXELS[np.clip(at_y, 0, 18), np.clip(at_x, 0, 36)]
    within = (at_x >= 0) & (at_x < 37) & (at_y >= 0) & (at_y < 19)
    agreed = found == (near if border is REPLICATE else np.where(within, near, 7))
    assert agreed.mean() > 0.98, "but for places on the line between pixels"
    nine = [0.8, 0.3, 0.0, -0.2, 1.1, 0.0, 2.5, -1.5, 1.0]
    (same,) = _ran(compute.NEWarpPerspective(), [PIXELS], [empty], nine, NEAREST, border, 7)
    np.testing.assert_array_equal(same, found)


def test_other_sizes() -> None:
    halves = np.zeros((9, 18), np.uint8)
    (found,) = _ran(compute.NEScale(), [PIXELS[:18, :36]], [halves], BILINEAR, REPLICATE)
    blocks = PIXELS[:18, :36].astype(int).reshape(9, 2, 18, 2).sum((1, 3))
    np.testing.assert_array_equal(found, blocks // 4)
    (found,) = _ran(compute.NEScale(), [PIXELS[:18, :36]], [halves], AREA, REPLICATE)
    box = _windows(PIXELS[:18, :36], 3, 3)[::2, ::2].sum((2, 3)) // 9
    np.testing.assert_array_equal(found, box)
    real = np.random.default_rng(8).random((6, 10)).astype(np.float32)
    large = np.zeros((9, 25), np.float32)
    (found,) = _ran(compute.NEScale(), [real], [large], BILINEAR, REPLICATE)
    np.testing.assert_allclose(found, cv2.resize(real, (25, 9), interpolation=cv2.INTER_LINEAR), atol=1e-5)
    with pytest.raises(TypeMismatch, match="AREA takes ratios up to 8"):
        compute.NEScale().configure(_image(PIXELS), _image(PIXELS[:2, :2]), AREA)


def _filled(kind: Format, width: int, height: int, seed: int) -> MultiImage:
    made = MultiImage()
    made.init(width, height, kind)
    made.allocate()
    for n, plane in enumerate(made.planes()):
        plane.array()[...] = _drawn(seed + n, "uint8", *plane.array().shape)
    return made


def _to_rgb(y: Array, u: Array, v: Array) -> Array:
    y, u, v = (a.astype(float) for a in (y, u, v))
    parts = (y + 1.5748 * (v - 128), y - 0.1873 * (u - 128) - 0.4681 * (v - 128), y + 1.8556 * (u - 128))
    return np.clip(np.stack(parts, -1), 0, 255).astype(np.uint8)


def test_colours_to_rgb_and_back() -> None:
    for kind, order in ((Format.NV12, (0, 1)), (Format.NV21, (1, 0))):
        source, target = _filled(kind, 34, 10, 9), _image(np.zeros((10, 34)), Format.RGB888)
        function = compute.NEColorConvert()
        function.configure(source, target)
        target.allocator().allocate()
        function.run()
        chroma = source.plane(1).array().repeat(2, 0).repeat(2, 1)
        wanted = _to_rgb(source.plane(0).array(), chroma[..., order[0]], chroma[..., order[1]])
        assert np.abs(target.array().astype(int) - wanted).max() <= 1
    rgb = _drawn(11, "uint8", 10, 34, 3)
    picture, planes = _image(rgb, Format.RGB888), MultiImage()
    planes.init(34, 10, Format.IYUV)
    function = compute.NEColorConvert()
    function.configure(picture, planes)
    picture.allocator().allocate()
    planes.allocate()
    picture.array()[...] = rgb
    function.run()
    luma = rgb @ np.array([0.2126, 0.7152, 0.0722])
    assert np.abs(planes.plane(0).array() - luma).max() <= 1
    u = ((rgb[..., 2] - luma) * 0.5389 + 128).reshape(5, 2, 17, 2).mean((1, 3))
    assert np.abs(planes.plane(1).array() - u).max() <= 1
    with pytest.raises(TypeMismatch, match="RGB888 to UYVY422, there is from RGB888: RGBA8888"):
        compute.NEColorConvert().configure(picture, _image(np.zeros((10, 34)), Format.UYVY422))


def test_channels_apart_and_together() -> None:
    planes = [_image(PIXELS[:10, :34]), _image(PIXELS[:10, :17]), _image(PIXELS[:10, :17])]
    packed, found = _image(np.zeros((10, 34)), Format.YUYV422), _image(PIXELS[:10, :17])
    combine, extract = compute.NEChannelCombine(), compute.NEChannelExtract()
    combine.configure(planes[0], planes[1], planes[2], None, packed)
    extract.configure(packed, Channel.V, found)
    values = [_drawn(20 + n, "uint8", *p.info().shape[::-1]) for n, p in enumerate(planes)]
    for image in (*planes, packed, found):
        image.allocator().allocate()
    for image, value in zip(planes, values, strict=True):
        image.array()[...] = value
    combine.run()
    extract.run()
    np.testing.assert_array_equal(packed.array()[..., 0], values[0])
    np.testing.assert_array_equal(packed.array()[:, ::2, 1], values[1])
    np.testing.assert_array_equal(found.array(), values[2])
    with pytest.raises(TypeMismatch, match="YUYV422 has no R, it has Y, U, V"):
        compute.NEChannelExtract().configure(packed, Channel.R, found)
    with pytest.raises(TypeMismatch, match="planes of half the size, 33x10 is odd"):
        MultiImage().init(33, 10, Format.NV12)
    with pytest.raises(TypeMismatch, match="NV12 has 2 planes"):
        TensorInfo(32, 10, Format.NV12)


@pytest.mark.parametrize(
    ("width", "height", "wide", "high"), [(640, 48, 320, 24), (701, 60, 470, 19), (600, 40, 75, 5)]
)
def test_means_of_boxes_inside_an_image(width: int, height: int, wide: int, high: int) -> None:
    pixels = np.random.default_rng(width).integers(0, 256, (height, width), np.uint8)
    (found,) = _ran(compute.NEScale(), [pixels], [np.zeros((high, wide), np.uint8)], AREA, REPLICATE)
    boxes = []
    for size, count in ((height, high), (width, wide)):
        ratio = np.float32(size / count)
        places = np.floor((np.arange(count, dtype=np.float32) + np.float32(0.5)) * ratio - np.float32(0.5)).astype(int)
        boxes.append((places, int(np.floor(-size / count / 2)), int(np.ceil(size / count / 2))))
    (rows, up, down), (columns, left, right) = boxes
    inner_y = (rows + up >= 0) & (rows + down < height)
    inner_x = (columns + left >= 0) & (columns + right < width)
    total = sum(
        pixels[np.ix_(rows[inner_y] + dy, columns[inner_x] + dx)].astype(int)
        for dy in range(up, down + 1)
        for dx in range(left, right + 1)
    )
    assert inner_x.sum() > wide - 6 and inner_y.any()
    np.testing.assert_array_equal(found[np.ix_(inner_y, inner_x)], total // ((down - up + 1) * (right - left + 1)))


@pytest.mark.parametrize("border", [CONSTANT, REPLICATE])
def test_means_of_boxes_whose_size_is_a_number_are_those_of_boxes_that_are_known(border: BorderMode) -> None:
    """The kernel of C++, which is built before sizes are known, beside those that Python makes for a ratio."""
    rng, kind = np.random.default_rng(border is CONSTANT), "constant" if border is CONSTANT else "replicate"
    for _ in range(8):
        width, height = int(rng.integers(30, 90)), int(rng.integers(20, 60))
        wide, high = (max(1, int(side / rng.uniform(1.05, 7.5))) for side in (width, height))
        pixels, targets = rng.integers(0, 256, (height, width), np.uint8), [np.zeros((high, wide), np.uint8)] * 2
        source, known, boxes = _image(pixels), _image(targets[0]), _image(targets[1])
        function, kernel = compute.NEScale(), FormulaKernel(scale_boxes(kind))
        function.configure(source, known, AREA, border, 77)
        ratios = (width / wide, height / high)
        if max(ratios) > 8:
            continue
        numbers = (77, 0, 0, width, height, *ratios, *(math.ceil(ratio / 2) for ratio in ratios))
        kernel.configure([source], [boxes], numbers)
        for image in (source, known, boxes):
            image.allocator().allocate()
        source.array()[...] = pixels
        function.run()
        kernel.run(kernel.window())
        np.testing.assert_array_equal(boxes.array(), known.array())


def test_what_validate_says_configure_says() -> None:
    u8, s16 = TensorInfo(32, 16, Format.U8), TensorInfo(32, 16, Format.S16)
    rgb, small = TensorInfo(32, 16, Format.RGB888), TensorInfo(8, 8, Format.U8)
    scalar, found = compute.Scalar(), list[compute.KeyPoint]()
    pyramid = compute.Pyramid()
    pyramid.init(2, 0.5, 8, 8)
    cell = compute.Size2D(4, 4)
    models = compute.MultiHOG(1)
    models.model(0).init(compute.HOGInfo(cell, cell, cell, cell, 4))
    cases: list[tuple[str, tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]] = [
        ("NEColorConvert", (rgb, small), (), ()),
        ("NEChannelExtract", (rgb,), (Channel.R, small), (Channel.R, small)),
        ("NEChannelCombine", (u8, small, u8), (None, rgb), (None, rgb)),
        ("NEHistogram", (s16,), (), (compute.Distribution1D(4, 0, 256),)),
        ("NEEqualizeHistogram", (u8, s16), (), ()),
        ("NEMeanStdDev", (s16,), (), (scalar, scalar)),
        ("NEMinMaxLocation", (rgb.__class__(4, 4, Format.U32),), (), (scalar, scalar)),
        ("NEIntegralImage", (u8, u8), (), ()),
        ("NEGaussianPyramidHalf", (u8,), (pyramid,), (pyramid,)),
        ("NEFastCorners", (u8,), (0,), (0, True, found)),
        ("NEHarrisCorners", (u8,), (0.1, 1.0, 4, 3), (0.1, 1.0, 0.05, 4, 3, found)),
        ("NECannyEdge", (u8, u8), (10, 20, 3, 1), (10, 20, 3, 1)),
        ("NETableLookup", (u8,), (compute.Lut(256, compute.DataType.U8), s16), ()),
        ("NEHOGMultiDetection", (s16,), (models, ()), (models, found, ())),
    ]

    def image_of(info: Any) -> Any:  # Any: information becomes an image, other arguments stay
        if not isinstance(info, TensorInfo):
            return info
        made = Image()
        made.allocator().init(info)
        return made

    for name, infos, more, given in cases:
        status = getattr(compute, name).validate(*infos, *more)
        assert not status and status.error_code is compute.ErrorCode.RUNTIME_ERROR, name
        arguments = (*infos, *(given or more))
        with pytest.raises(TypeMismatch) as error:
            getattr(compute, name)().configure(*map(image_of, arguments))
        assert error.value.message == status.error_description
    assert compute.NEFastCorners.validate(u8, 20).error_code is compute.ErrorCode.OK


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Dilate", (CONSTANT, "x"), "Dilate.configure: constant_border_value is a number, got 'x'"),
        ("Erode", (CONSTANT, None), "Erode.configure: constant_border_value is a number, got None"),
        ("Threshold", ("x",), "Threshold.configure: threshold is 'x', wanted a number"),
        ("Convolution3x3", ([1] * 8 + ["a"], 0), "Convolution3x3.configure: invalid literal"),
    ],
)
@pytest.mark.parametrize("side", ["NE", "CL"])
def test_arguments_that_are_no_numbers_are_refused_by_the_functions_name(
    side: str, name: str, options: tuple[Any, ...], message: str
) -> None:
    images = [(compute.CLImage if side == "CL" else Image)() for _ in range(2)]
    for image in images:
        image.allocator().init(TensorInfo(20, 10, Format.U8))
    with pytest.raises(TypeMismatch, match=side + message):
        getattr(compute, side + name)().configure(*images, *options)


def test_layers_windows_and_schedulers_refuse_what_is_none_of_theirs() -> None:
    source, target = compute.Tensor(), compute.Tensor()
    with pytest.raises(TypeMismatch, match=r"NESoftmaxLayer.configure: "):
        compute.NESoftmaxLayer().configure(3, target)  # type: ignore[arg-type]  # on purpose
    source.allocator().init(TensorInfo(8, 8, Format.F32))
    with pytest.raises(TypeMismatch, match=r"NEActivationLayer.configure: "):
        compute.NEActivationLayer().configure(source, target, "relu")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeMismatch, match="a window is made of at most 6 Dimensions"):
        compute.Window(3)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeMismatch, match="a tuner is a CLTuner or None, got str"):
        compute.CLScheduler.get().set_tuner("best")  # type: ignore[arg-type]  # on purpose
