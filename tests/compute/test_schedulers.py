"""Schedulers: any split over any of them gives the same bytes; errors and sizes of manual padding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from armillary import compute
from armillary.compute import (
    BorderMode,
    CPPScheduler,
    DataType,
    Format,
    IKernel,
    Image,
    OMPScheduler,
    Scheduler,
    Tensor,
    TensorInfo,
    TensorShape,
    ThreadInfo,
    Window,
)
from armillary.errors import ConfigError, ExecutionError, TypeMismatch

needs_openmp = pytest.mark.skipif(not OMPScheduler.is_available(), reason="this system has no libgomp")


@pytest.fixture(autouse=True)
def _scheduler() -> Iterator[None]:
    before = Scheduler.get()
    yield
    Scheduler.set(before)


_TURN = (0.9, -0.2, 0.2, 0.9, 3.0, 9.0)
_OPTIONS = {
    "NEGaussian5x5": (),
    "NECannyEdge": (90, 40, 3, 1),
    "NEWarpAffine": (_TURN, compute.InterpolationPolicy.BILINEAR),
}


def _seen(name: str, width: int, height: int) -> bytes:
    src, dst, function = Image(), Image(), getattr(compute, name)()
    for image in (src, dst):
        image.allocator().init(TensorInfo(width, height, Format.U8))
    function.configure(src, dst, *_OPTIONS[name], BorderMode.REPLICATE)
    src.allocator().allocate()
    dst.allocator().allocate()
    src.array()[...] = np.random.default_rng(width).integers(0, 256, (height, width))
    function.run()
    return dst.array().tobytes()


def _multiplied() -> bytes:
    a, b, out, gemm = Tensor(), Tensor(), Tensor(), compute.NEGEMM()
    for tensor, sizes in ((a, (48, 37)), (b, (29, 48)), (out, (29, 37))):
        tensor.allocator().init(TensorInfo(TensorShape(*sizes), 1, DataType.F32))
    gemm.configure(a, b, None, out, 1.0, 0.0)
    rng = np.random.default_rng(3)
    for tensor in (a, b, out):
        tensor.allocator().allocate()
        tensor.array()[...] = rng.standard_normal(tensor.array().shape)
    gemm.run()
    return out.array().tobytes()


@needs_openmp
@pytest.mark.parametrize("threads", [1, 2, 3, 5, 8])
def test_openmp_gives_the_bytes_of_one_thread(threads: int) -> None:
    made = {}
    for kind in (Scheduler.Type.ST, Scheduler.Type.OMP, Scheduler.Type.CPP):
        Scheduler.set(kind)
        if kind is not Scheduler.Type.ST:
            Scheduler.get().set_num_threads(threads)
        sizes = ((67, 41), (16, 4), (600, 9))
        made[kind] = (*(_seen(name, *size) for name in _OPTIONS for size in sizes), _multiplied())
    for kind in (Scheduler.Type.OMP, Scheduler.Type.CPP):
        Scheduler.get_type()
        assert made[kind] == made[Scheduler.Type.ST]
    Scheduler.get().set_num_threads(0)


class _Failing(IKernel):
    def __init__(self) -> None:
        super().__init__()
        self.configure_window(Window(compute.Dimension(0, 7)))
        self.seen: list[int] = []

    def _run(self, window: Window, info: ThreadInfo) -> None:
        self.seen.append(info.thread_id)
        assert info.cpu_info.get_cpu_num() >= 1 and info.cpu_info.get_cpu_model()
        if info.thread_id == 1:
            raise ExecutionError("part 1 fails")


@pytest.mark.parametrize("kind", [CPPScheduler, pytest.param(OMPScheduler, marks=needs_openmp)])
def test_an_error_of_one_part_comes_after_all_parts(kind: type[CPPScheduler]) -> None:
    scheduler, kernel = kind(), _Failing()
    scheduler.set_num_threads(3)
    with pytest.raises(ExecutionError, match="part 1 fails"):
        scheduler.schedule(kernel, 0)
    assert sorted(kernel.seen) == [0, 1, 2]


def test_types_name_singletons_and_others_are_refused() -> None:
    Scheduler.set(Scheduler.Type.CPP)
    assert Scheduler.get() is CPPScheduler.get() and Scheduler.get_type() is Scheduler.Type.CPP
    for wrong in ("CUSTOM", "GPU"):
        with pytest.raises(ConfigError, match="there is no scheduler") as caught:
            Scheduler.set(wrong)
        assert "ST" in str(caught.value)


@pytest.mark.parametrize(
    ("strides", "offset", "total", "pads"),
    [
        ((1, 70), 142, 70 * 52, (2, 4, 0, 2)),
        ((1, 64), 0, 64 * 50, (0, 0, 0, 0)),
        ((1, 80, 4080), 81, 4080, (1, 15, 0, 1)),
    ],
)
def test_strides_of_ones_own_become_padding(
    strides: tuple[int, ...], offset: int, total: int, pads: tuple[int, ...]
) -> None:
    image = Image()
    image.info().init(TensorShape(64, 50), Format.U8, strides, offset, total)
    pad = image.info().padding
    assert (pad.top, pad.right, pad.bottom, pad.left) == pads
    assert (image.info().offset_first_element_in_bytes(), image.info().total_size()) == (offset, total)
    image.allocator().allocate()
    assert image.array().shape == (50, 64)


@pytest.mark.parametrize(
    ("strides", "offset", "total"),
    [
        ((1, 63), 0, 63 * 50),
        ((2, 64), 0, 64 * 50),
        ((1, 64), 64, 3200),
        ((1, 70), 0, 3501),
        ((1, 0), 0, 0),
    ],
)
def test_strides_that_hold_no_image_are_refused(strides: tuple[int, ...], offset: int, total: int) -> None:
    with pytest.raises(TypeMismatch, match="do not hold 64x50 U8"):
        Image().info().init(TensorShape(64, 50), Format.U8, strides, offset, total)


def test_information_is_a_copy_and_fixed_once_allocated() -> None:
    first, second = Image(), Image()
    with pytest.raises(ExecutionError, match="the tensor has no information"):
        first.info().dimension(0)
    first.info().init(TensorShape(8, 4), Format.U8)
    second.allocator().init(first.info())
    first.info().extend_padding(compute.PaddingSize(1, 1, 1, 1))
    assert second.info().padding == compute.PaddingSize() and first.info() is not second.info()
    first.allocator().allocate()
    with pytest.raises(ExecutionError, match="the tensor is allocated"):
        first.info().init(TensorShape(9, 4), Format.U8)
    second.allocator().init(first.info())
    second.allocator().allocate()
    assert second.buffer().size == first.buffer().size


def test_a_vector_is_one_dimension() -> None:
    tensor = Tensor()
    tensor.allocator().init(TensorInfo(TensorShape(5), 1, DataType.F32))
    tensor.info().extend_padding(compute.PaddingSize(1, 2, 0, 3))
    tensor.allocator().allocate()
    tensor.array()[...] = np.arange(5)
    assert tensor.array().tolist() == [0, 1, 2, 3, 4]


def test_parts_of_rows_of_a_warp_are_those_of_whole_rows() -> None:
    """Parts of a row whose places are inside the image take another way than the others."""
    rng = np.random.default_rng(0)
    for number in range(16):
        width, height = int(rng.integers(20, 700)), int(rng.integers(4, 40))
        matrix = np.array([1, 0, 0, 1, 0, 0]) + rng.normal(0, 0.1, 6) * (1, 1, 1, 1, 60, 30)
        source, whole, parts = Image(), Image(), Image()
        border = (BorderMode.CONSTANT, BorderMode.REPLICATE)[number % 2]
        functions = [compute.NEWarpAffine(), compute.NEWarpAffine()]
        for image in (source, whole, parts):
            image.allocator().init(TensorInfo(width, height, Format.U8))
        for function, output in zip(functions, (whole, parts), strict=True):
            function.configure(source, output, matrix.tolist(), compute.InterpolationPolicy.BILINEAR, border, 7)
        for image in (source, whole, parts):
            image.allocator().allocate()
        source.array()[...] = rng.integers(0, 256, (height, width))
        functions[0].run()
        kernel = functions[1].kernels()[-1]
        window = kernel.window()
        for x in range(window.x().start(), window.x().end(), window.x().step()):
            step = compute.Dimension(x, x + window.x().step(), window.x().step())
            kernel.run(Window(step, window.y(), window.z()))
        assert np.array_equal(whole.array(), parts.array()), number
