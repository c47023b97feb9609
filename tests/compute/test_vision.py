"""Vision functions against plain numpy, with every border, odd sizes, and any scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary import compute
from armillary.compute import BorderMode, Format, Image, Scheduler, Tensor, TensorInfo, TensorShape, Window
from armillary.errors import ArtifactError, ExecutionError, TypeMismatch

Array = np.ndarray[Any, Any]
SIZES = [(5, 4), (17, 3), (64, 48), (33, 21)]  # width, height
PAD = {BorderMode.CONSTANT: {"mode": "constant", "constant_values": 7}, BorderMode.REPLICATE: {"mode": "edge"}}


@pytest.fixture(autouse=True)
def _scheduler() -> Iterator[None]:
    before = Scheduler.get()
    yield
    Scheduler.set(before)


def _windows(image: Array, side: int, border: BorderMode) -> Array:
    reach = side // 2
    padded = image if border is BorderMode.UNDEFINED else np.pad(image, reach, **PAD[border])  # type: ignore[call-overload]
    return np.lib.stride_tricks.sliding_window_view(padded.astype(np.int64), (side, side))


def _weights(matrix: Any, divisor: int) -> Callable[[Array], Array]:
    return lambda windows: np.clip(np.einsum("yxij,ij->yx", windows, matrix), 0, None) // divisor


G3, ROW = np.outer([1, 2, 1], [1, 2, 1]), [1, 4, 6, 4, 1]
EDGE = [-1, 0, 1, -2, 0, 2, -1, 0, 1]
FILTERS: dict[str, tuple[int, tuple[Any, ...], Callable[[Array], Array]]] = {
    "NEGaussian3x3": (3, (), _weights(G3, 16)),
    "NEGaussian5x5": (5, (), _weights(np.outer(ROW, ROW), 256)),
    "NEBox3x3": (3, (), _weights(np.ones((3, 3), int), 9)),
    "NEErode": (3, (), lambda w: w.min((-1, -2))),
    "NEDilate": (3, (), lambda w: w.max((-1, -2))),
    "NEMedian3x3": (3, (), lambda w: np.median(w, (-1, -2))),
    "NEConvolution3x3": (3, (EDGE, 0), lambda w: np.minimum(_weights(np.reshape(EDGE, (3, 3)), 1)(w), 255)),
    "NEConvolution5x5": (5, (list(range(25)), 300), lambda w: _weights(np.arange(25).reshape(5, 5), 300)(w)),
}


def _image(pixels: Array, kind: Format = Format.U8) -> Image:
    image = Image()
    image.allocator().init(TensorInfo(pixels.shape[1], pixels.shape[0], kind))
    return image


def _valid(image: Tensor) -> tuple[slice, slice]:
    region = image.info().valid_region()
    return slice(region.start(1), region.end(1)), slice(region.start(0), region.end(0))


@pytest.mark.parametrize("border", list(BorderMode))
@pytest.mark.parametrize("name", FILTERS)
def test_filters_agree_with_numpy_in_their_valid_region(name: str, border: BorderMode) -> None:
    side, options, reference = FILTERS[name]
    for seed, (width, height) in enumerate(SIZES):
        if border is BorderMode.UNDEFINED and min(width, height) < side:
            continue
        pixels = np.random.default_rng(seed).integers(0, 256, (height, width), np.uint8)
        source, target = _image(pixels), _image(pixels)
        function = getattr(compute, name)()
        function.configure(source, target, *options, border, 7)
        source.allocator().allocate()
        target.allocator().allocate()
        source.array()[...] = pixels
        function.run()
        expected = reference(_windows(pixels, side, border)).astype(np.uint8)
        rows, columns = _valid(target)
        if border is BorderMode.UNDEFINED:
            assert (rows.start, columns.start) == (side // 2, side // 2)
        assert target.array()[rows, columns].shape == expected.shape
        np.testing.assert_array_equal(target.array()[rows, columns], expected)


def test_gradients_have_two_outputs_of_16_bits() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (20, 30), np.uint8)
    source, gx, gy = _image(pixels), _image(pixels, Format.S16), _image(pixels, Format.S16)
    sobel = compute.NESobel3x3()
    sobel.configure(source, gx, gy, BorderMode.REPLICATE)
    for image in (source, gx, gy):
        image.allocator().allocate()
    source.array()[...] = pixels
    sobel.run()
    windows, kernel = _windows(pixels, 3, BorderMode.REPLICATE), np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    np.testing.assert_array_equal(gx.array(), np.einsum("yxij,ij->yx", windows, kernel))
    np.testing.assert_array_equal(gy.array(), np.einsum("yxij,ji->yx", windows, kernel))


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("NEAbsoluteDifference", lambda a, b: np.abs(a.astype(int) - b)),
        ("NEBitwiseAnd", np.bitwise_and),
        ("NEBitwiseOr", np.bitwise_or),
        ("NEBitwiseXor", np.bitwise_xor),
    ],
)
def test_pairs_of_images(name: str, reference: Callable[[Array, Array], Array]) -> None:
    a, b = np.random.default_rng(2).integers(0, 256, (2, 9, 37), np.uint8)
    images = [_image(a), _image(b), _image(a)]
    function = getattr(compute, name)()
    function.configure(*images)
    for image in images:
        image.allocator().allocate()
    images[0].array()[...], images[1].array()[...] = a, b
    function.run()
    np.testing.assert_array_equal(images[2].array(), reference(a, b))


def test_threshold_and_scale() -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (48, 64), np.uint8)
    source, binary, half = _image(pixels), _image(pixels), _image(pixels[::2, ::2])
    threshold, scale = compute.NEThreshold(), compute.NEScale()
    threshold.configure(source, binary, 100, 1, 200)
    scale.configure(source, half, compute.InterpolationPolicy.NEAREST_NEIGHBOR, BorderMode.REPLICATE)
    for image in (source, binary, half):
        image.allocator().allocate()
    source.array()[...] = pixels
    threshold.run()
    scale.run()
    np.testing.assert_array_equal(binary.array(), np.where(pixels > 100, 200, 1))
    np.testing.assert_array_equal(half.array(), pixels[1::2, 1::2])


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_any_number_of_threads_gives_the_same_bytes(threads: int) -> None:
    pixels = np.random.default_rng(4).integers(0, 256, (50, 70), np.uint8)
    results = []
    for scheduler in ("ST", "CPP"):
        Scheduler.set(scheduler)
        assert Scheduler.get_type() == scheduler
        if scheduler == "CPP":
            Scheduler.get().set_num_threads(threads)
        source, target = _image(pixels), _image(pixels)
        function = compute.NEGaussian5x5()
        function.configure(source, target, BorderMode.REPLICATE)
        source.allocator().allocate()
        target.allocator().allocate()
        source.array()[...] = pixels
        function.run()
        results.append(target.buffer().copy())
    np.testing.assert_array_equal(*results)


def test_a_scheduler_of_the_users_own_runs_the_kernels() -> None:
    class Backwards:
        parts = 0

        def schedule(self, kernel: compute.IKernel, split_dimension: int) -> None:
            for part in reversed(range(4)):
                self.parts += 1
                kernel.run(kernel.window().split_window(split_dimension, part, 4))

        def set_num_threads(self, num_threads: int) -> None:
            del num_threads

        def num_threads(self) -> int:
            return 1

    mine = Backwards()
    Scheduler.set(mine)
    assert Scheduler.get_type() == "CUSTOM"
    pixels = np.random.default_rng(5).integers(0, 256, (8, 20), np.uint8)
    source, target = _image(pixels), _image(pixels)
    function = compute.NEBitwiseNot()
    function.configure(source, target)
    source.allocator().allocate()
    target.allocator().allocate()
    source.array()[...] = pixels
    function.run()
    assert mine.parts == 4
    np.testing.assert_array_equal(target.array(), ~pixels)


def test_a_tensor_allocated_before_its_function_shrinks_the_window() -> None:
    pixels = np.random.default_rng(6).integers(0, 256, (20, 40), np.uint8)
    source, target = _image(pixels), _image(pixels)
    source.allocator().allocate()
    target.allocator().allocate()
    source.array()[...] = pixels
    function = compute.NEGaussian3x3()
    function.configure(source, target, BorderMode.UNDEFINED)
    function.run()
    rows, columns = _valid(target)
    assert (columns.stop - columns.start, rows.stop - rows.start) == (32, 18), "two whole vectors of a row of 38 pixels"
    expected = FILTERS["NEGaussian3x3"][2](_windows(pixels, 3, BorderMode.UNDEFINED))
    np.testing.assert_array_equal(target.array()[rows, columns], expected[:, :32])


def test_automatic_padding_is_4_around_and_32_at_the_end_of_a_row() -> None:
    info = TensorInfo(8, 8, Format.U8)
    info.init_auto_padding(TensorShape(640, 480), Format.U8)
    assert info.padding == compute.PaddingSize(4, 36, 4, 4)
    assert info.strides_in_bytes()[:2] == (1, 680)
    assert info.offset_element_in_bytes(compute.Coordinates(2, 1)) == 4 * 680 + 4 + 680 + 2


def test_iterators_walk_a_window() -> None:
    tensor = Tensor()
    tensor.allocator().init(TensorInfo(TensorShape(4, 3, 2), 1, compute.DataType.F32))
    tensor.allocator().allocate()
    window = Window()
    window.use_tensor_dimensions(tensor.info().tensor_shape())
    iterator = compute.Iterator(tensor, window)

    def fill(place: compute.Coordinates) -> None:
        iterator.ptr()[:4].view(np.float32)[0] = 100 * place.z() + 10 * place.y() + place.x()

    compute.execute_window_loop(window, fill, iterator)
    z, y, x = np.mgrid[:2, :3, :4]
    np.testing.assert_array_equal(tensor.array(), 100 * z + 10 * y + x)


def test_files_in_and_out(tmp_path: Path) -> None:
    from armillary.compute.runtime.ppm import save_to_ppm

    (tmp_path / "a.ppm").write_bytes(b"P6 # colours\n2 1\n255\n" + bytes([255, 0, 0, 0, 255, 0]))
    loader, image = compute.PPMLoader(), Image()
    loader.open(tmp_path / "a.ppm")
    loader.init_image(image, Format.U8)
    image.allocator().allocate()
    loader.fill_image(image)
    assert image.array().tolist() == [[54, 182]]
    save_to_ppm(image, tmp_path / "b.pgm")
    assert (tmp_path / "b.pgm").read_bytes() == b"P5\n2 1\n255\n" + bytes([54, 182])
    (tmp_path / "c.ppm").write_bytes(b"P6 9000 9000 255\n")
    with pytest.raises(ArtifactError, match="do not fit"):
        loader.open(tmp_path / "c.ppm")


def test_misuse_is_refused_with_the_text_of_validate() -> None:
    wide, small, signed = TensorInfo(32, 8, Format.U8), TensorInfo(16, 8, Format.U8), TensorInfo(32, 8, Format.S16)
    assert compute.NEGaussian3x3.validate(wide, wide)
    status = compute.NEGaussian3x3.validate(wide, signed)
    assert not status
    assert "the output is S16, wanted U8" in status.error_description
    assert "the output is " in compute.NEBox3x3.validate(wide, small).error_description
    source, target = Image(), Image()
    source.allocator().init(wide)
    target.allocator().init(signed)
    with pytest.raises(TypeMismatch, match="the output is S16, wanted U8"):
        compute.NEGaussian3x3().configure(source, target)
    with pytest.raises(ExecutionError, match="not configured"):
        compute.NEGaussian3x3().run()
    with pytest.raises(ExecutionError, match="no memory"):
        source.buffer()
    source.allocator().allocate()
    with pytest.raises(ExecutionError, match="allocated already"):
        source.allocator().allocate()
