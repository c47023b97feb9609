"""The OpenCL side on a device: bytes of the CPU's functions, mapping, events, the tuner's files, the memory manager."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opencl_device import needs_opencl

from armillary import compute
from armillary.compute import (
    ActivationFunction,
    ActivationLayerInfo,
    BlobLifetimeManager,
    BorderMode,
    CLActivationLayer,
    CLBufferAllocator,
    CLImage,
    CLKernelLibrary,
    CLScheduler,
    CLTensor,
    CLTuner,
    DataLayout,
    DataType,
    Format,
    Image,
    InterpolationPolicy,
    MemoryManagerOnDemand,
    OffsetLifetimeManager,
    PaddingSize,
    PadStrideInfo,
    PoolingLayerInfo,
    PoolingType,
    PoolManager,
    Tensor,
    TensorInfo,
    TensorShape,
)
from armillary.compute.cl.kernels import Program
from armillary.compute.core.compiled import Formula
from armillary.compute.functions.formulas.arithmetic import THRESHOLD
from armillary.driver.te_build import build
from armillary.errors import ArtifactError, ConfigError, ExecutionError, TargetError, TypeMismatch
from armillary.runtime.native_library import native

Array = np.ndarray[Any, Any]
pytestmark = needs_opencl
FILTERS = ("Gaussian3x3", "Gaussian5x5", "Box3x3", "Median3x3", "Erode", "Dilate", "Convolution3x3", "Convolution5x5")
MATRICES = {"Convolution3x3": ([-1, 0, 1, -2, 3, 2, -1, 0, 1], 0), "Convolution5x5": (list(range(25)), 300)}


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
    CLScheduler.get().default_init()
    yield
    CLScheduler.get().set_tuner(None)


def _image(kind: type[Tensor], width: int, height: int, format: Format = Format.U8) -> Any:  # Any: of `kind`
    made = kind()
    made.allocator().init(TensorInfo(width, height, format))
    return made


def _filled(image: Any, values: Array) -> None:  # Any: an Image or a CLImage
    image.allocator().allocate()
    if isinstance(image, CLTensor):
        image.map()
    image.array()[...] = values
    if isinstance(image, CLTensor):
        image.unmap()


def _read(tensor: Any) -> Array:  # Any: an Image or a CLImage
    if isinstance(tensor, CLTensor):
        tensor.map()
    region = tensor.info().valid_region()
    found = tensor.array()[region.start(1) : region.end(1), region.start(0) : region.end(0)].copy()
    if isinstance(tensor, CLTensor):
        tensor.unmap()
    return np.asarray(found)


def _sample() -> Iterator[object]:
    """Every filter with one border and one size (a program each); all of them, with more sizes, are slow."""
    for n, name in enumerate(FILTERS):
        for k, border in enumerate(BorderMode):
            for size in ((37, 5), (64, 48), (16, 9)):
                is_slow = n % 3 != k or size != (37, 5)
                yield pytest.param(name, border, size, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize(("name", "border", "size"), list(_sample()))
def test_filters_give_the_bytes_of_the_cpu(name: str, border: BorderMode, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    width, height = size
    pixels = rng.integers(0, 256, (height, width))
    found = []
    for side, kind in (("NE", Image), ("CL", CLImage)):
        src, dst = _image(kind, width, height), _image(kind, width, height)
        function = getattr(compute, side + name)()
        function.configure(src, dst, *MATRICES.get(name, ()), border, 9)
        _filled(src, pixels)
        dst.allocator().allocate()
        function.run()
        found.append(_read(dst))
    assert np.array_equal(*found)


@pytest.mark.parametrize("name", ["AbsoluteDifference", "BitwiseAnd", "BitwiseOr", "BitwiseXor"])
def test_pairs_give_the_bytes_of_the_cpu(name: str) -> None:
    pixels = np.random.default_rng(6).integers(0, 256, (2, 13, 29))
    found = []
    for side, kind in (("NE", Image), ("CL", CLImage)):
        a, b, out = (_image(kind, 29, 13) for _ in range(3))
        function = getattr(compute, side + name)()
        function.configure(a, b, out)
        _filled(a, pixels[0])
        _filled(b, pixels[1])
        out.allocator().allocate()
        function.run()
        found.append(_read(out))
    assert np.array_equal(*found)


def test_scale_threshold_and_gradients_give_the_bytes_of_the_cpu() -> None:
    pixels = np.random.default_rng(7).integers(0, 256, (30, 44))
    found: dict[str, list[Array]] = {"NE": [], "CL": []}
    for side, kind in (("NE", Image), ("CL", CLImage)):
        src, half, bits = _image(kind, 44, 30), _image(kind, 22, 15), _image(kind, 22, 15)
        gx, gy = _image(kind, 44, 30, Format.S16), _image(kind, 44, 30, Format.S16)
        scale, threshold, sobel = (getattr(compute, side + n)() for n in ("Scale", "Threshold", "Sobel3x3"))
        scale.configure(src, half, InterpolationPolicy.NEAREST_NEIGHBOR, BorderMode.REPLICATE)
        threshold.configure(half, bits, 100)
        sobel.configure(src, gx, gy, BorderMode.REPLICATE)
        _filled(src, pixels)
        for image in (half, bits, gx, gy):
            image.allocator().allocate()
        for function in (scale, threshold, sobel):
            function.run()
        found[side] = [_read(image) for image in (half, bits, gx, gy)]
    assert all(np.array_equal(a, b) for a, b in zip(*found.values(), strict=True))


def _tensor(*sizes: int) -> CLTensor:
    made = CLTensor()
    made.allocator().init(TensorInfo(TensorShape(*sizes), 1, DataType.F32))
    return made


def _convolved(x: Array, w: Array, b: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (1, 1), (1, 1))), w.shape[2:], (1, 2))
    return np.asarray(np.einsum("chwyx,ocyx->ohw", windows, w) + b[:, None, None])


def _values(tensor: CLTensor) -> Array:
    tensor.map()
    found = tensor.array().astype("float64")
    tensor.unmap()
    return np.asarray(found)


def test_layers_in_nhwc_give_what_those_in_nchw_give() -> None:
    rng, found = np.random.default_rng(0), []
    values = [rng.standard_normal(shape).astype(np.float32) for shape in ((8, 10, 12), (4, 8, 3, 3), (4,))]
    for layout in DataLayout:
        given = [v if layout is DataLayout.NCHW or v.ndim < 2 else np.moveaxis(v, -3, -1) for v in values]
        tensors = [_tensor(*reversed(v.shape)) for v in given]
        for made in tensors[:2]:
            made.info().set_data_layout(layout)
        between, output = CLTensor(), CLTensor()
        convolution, pool = compute.CLConvolutionLayer(), compute.CLPoolingLayer()
        convolution.configure(*tensors, between, PadStrideInfo(2, 1, 1, 1))
        pool.configure(between, output, PoolingLayerInfo(PoolingType.MAX, 2, PadStrideInfo(2, 2)))
        for made in (*tensors, between, output):
            made.allocator().allocate()
        for made, value in zip(tensors, given, strict=True):
            made.map()
            made.array()[...] = value
            made.unmap()
        convolution.run()
        pool.run()
        result = _values(output)
        found.append(result if layout is DataLayout.NCHW else np.moveaxis(result, -1, -3))
    np.testing.assert_allclose(found[1].reshape(found[0].shape), found[0], rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("lifetimes", [BlobLifetimeManager, OffsetLifetimeManager])
def test_two_convolutions_share_the_devices_memory(lifetimes: type[BlobLifetimeManager]) -> None:
    manager = MemoryManagerOnDemand(lifetimes(), PoolManager())
    first, second = compute.CLConvolutionLayer(manager), compute.CLConvolutionLayer(manager)
    x, w, b, between = _tensor(12, 10, 8), _tensor(3, 3, 8, 12), _tensor(12), CLTensor()
    v, c, out = _tensor(3, 3, 12, 4), _tensor(4), CLTensor()
    first.configure(x, w, b, between, PadStrideInfo(1, 1, 1, 1))
    second.configure(between, v, c, out, PadStrideInfo(1, 1, 1, 1))
    manager.populate(CLBufferAllocator(), 1)
    rng = np.random.default_rng(0)
    for tensor in (x, w, b, between, v, c, out):
        tensor.allocator().allocate()
        tensor.map()
        tensor.array()[...] = rng.standard_normal(tensor.array().shape)
        tensor.unmap()
    for _ in range(2):
        first.run()
        second.run()
    np.testing.assert_allclose(_values(between), _convolved(_values(x), _values(w), _values(b)), atol=1e-4)
    np.testing.assert_allclose(_values(out), _convolved(_values(between), _values(v), _values(c)), atol=1e-3)


@pytest.mark.parametrize(
    ("name", "options", "sizes"),
    [
        ("SoftmaxLayer", (), (9, 4)),
        ("ActivationLayer", (compute.ActivationLayerInfo(compute.ActivationFunction.LOGISTIC),), (7, 5, 3)),
        ("PoolingLayer", (compute.PoolingLayerInfo(compute.PoolingType.AVG, 2, PadStrideInfo(2, 2)),), (8, 6, 3)),
        ("Permute", (compute.PermutationVector(2, 0, 1),), (5, 4, 3)),
    ],
)
def test_layers_agree_with_the_cpu(name: str, options: tuple[Any, ...], sizes: tuple[int, ...]) -> None:
    found = []
    values = np.random.default_rng(2).standard_normal(tuple(reversed(sizes))).astype("float32")
    for side, kind in (("NE", Tensor), ("CL", CLTensor)):
        source, target = kind(), kind()
        source.allocator().init(TensorInfo(TensorShape(*sizes), 1, DataType.F32))
        function = getattr(compute, side + name)()
        function.configure(source, target, *options)
        _filled(source, values)
        target.allocator().allocate()
        function.run()
        found.append(_values(target) if isinstance(target, CLTensor) else target.array())
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


def test_a_mapped_tensor_is_the_hosts_and_no_kernel_runs_on_it() -> None:
    src, dst, function = _image(CLImage, 16, 16), _image(CLImage, 16, 16), compute.CLErode()
    function.configure(src, dst, BorderMode.REPLICATE)
    with pytest.raises(ExecutionError, match="the tensor has no memory"):
        function.run()
    src.allocator().allocate()
    dst.allocator().allocate()
    with pytest.raises(ExecutionError, match=r"map\(\) it for the host"):
        src.array()
    src.map()
    with pytest.raises(ExecutionError, match="is mapped to the host"):
        function.run()
    with pytest.raises(ExecutionError, match="is mapped already"):
        src.map()
    src.unmap()
    with pytest.raises(ExecutionError, match="is not mapped"):
        src.unmap()
    function.run()
    event = CLScheduler.get().enqueue_sync_event()
    event.wait()
    assert _read(dst).max() == 0
    with pytest.raises(TypeMismatch, match="a Image is no CLTensor"):
        compute.CLErode().configure(_image(Image, 8, 8), _image(CLImage, 8, 8), BorderMode.REPLICATE)  # type: ignore[arg-type]


def test_a_device_stays_once_it_is_used() -> None:
    CLBufferAllocator().allocate(64)
    context = CLScheduler.get().context()
    CLScheduler.get().init(context)
    assert CLScheduler.get().target()
    with pytest.raises(TargetError, match="not available"):
        CLScheduler.get().init(compute.Context(type(context.device)(4, 7)))


def test_kernels_are_read_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`init` takes what is there, with the arguments of the host; the folder is all there is where it is to be."""
    monkeypatch.chdir(tmp_path)
    src, dst, kernel = _image(CLImage, 21, 11), _image(CLImage, 21, 11), compute.CLDilate()
    kernel.configure(src, dst, BorderMode.CONSTANT, 3)
    program = Program(kernel.kernel().formula, BorderMode.CONSTANT, (False, False), (False, False, True), (8, 4, 1))
    device, first, second = CLScheduler.get().use(), CLKernelLibrary(), CLKernelLibrary()
    assert first.get_kernel_path() == Path("cl_kernels")
    with pytest.raises(ConfigError, match="there is no folder cl_kernels"):
        first.init()
    first.create_kernel(device, program)
    first.create_kernel(device, program)
    first.save_kernels()
    (source,) = Path("cl_kernels").iterdir()
    text = source.read_text()
    assert "reqd_work_group_size(8, 4, 1)" in text and first.num_programs() == 1
    source.write_text(text.replace("void dilate_kernel0(", "void dilate_kernel0(const int more, "))
    second.init("cl_kernels")
    with pytest.raises(ConfigError, match=r"has the kernels .*more"):
        second.create_kernel(device, program)
    source.unlink()
    second.create_kernel(device, program)  # embedded ones are taken where the folder has none
    monkeypatch.setenv("ARMILLARY_EMBED_KERNELS", "0")
    with pytest.raises(ConfigError, match=r"cl_kernels has no kernel dilate_\w+\.cl"):
        CLKernelLibrary().create_kernel(device, program)
    (tmp_path / "file").write_text("")
    for refused in (CLKernelLibrary().init, CLKernelLibrary().save_kernels):
        with pytest.raises(ConfigError, match="is no folder"):
            refused(tmp_path / "file")


CHANGED = """
import sys
import numpy as np
from armillary.compute import *
CLScheduler.get().default_init()
if sys.argv[1] == "changed":
    CLKernelLibrary.get().init()
src, dst, function = CLImage(), CLImage(), CLDilate()
for image in (src, dst):
    image.allocator().init(TensorInfo(40, 30, Format.U8))
function.configure(src, dst, BorderMode.UNDEFINED)
for image in (src, dst):
    image.allocator().allocate()
src.write(np.arange(1200).reshape(30, 40).astype(np.uint8))
function.run()
print(dst.read()[5, 5])
CLKernelLibrary.get().save_kernels()
"""


def test_a_kernel_that_a_user_changed_runs(tmp_path: Path) -> None:
    """The greatest neighbour becomes the least one: 5 * 40 + 5 and 41 more or less."""
    printed, environment = list[str](), {**os.environ, "PYTHONPATH": str(Path(compute.__file__).parents[2])}
    for word in ("own", "changed"):
        command = [sys.executable, "-c", CHANGED, word]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
        printed.append(done.stdout.strip())
        for source in (tmp_path / "cl_kernels").iterdir():
            source.write_text(source.read_text().replace(" > ", " < "))
    assert printed == ["246", "164"]


def test_a_histogram_is_equalized_in_place() -> None:
    pixels = np.random.default_rng(3).integers(20, 120, (48, 64))
    image, source, target = _image(CLImage, 64, 48), _image(Image, 64, 48), _image(Image, 64, 48)
    on_device, here = compute.CLEqualizeHistogram(), compute.NEEqualizeHistogram()
    on_device.configure(image, image)
    here.configure(source, target)
    for each in (image, source, target):
        each.allocator().allocate()
    for each in (image, source):
        each.write(pixels.astype(np.uint8))
    on_device.run()
    here.run()
    assert (image.read() == target.read()).all() and len(np.unique(target.read())) > 50


def test_programs_are_built_as_the_device_asks() -> None:
    """Mali's option for groups that do not divide the global size, and the release of its driver by what it reports."""
    options, release = native().arm_opencl_options, native().arm_opencl_mali_release
    options.restype, uneven = ctypes.c_char_p, b"cl_khr_fp16 cl_arm_non_uniform_work_group_size"
    flag = b"-cl-arm-non-uniform-work-group-size"
    assert flag in options(b"Mali-G76", uneven, b"") and flag not in options(b"Mali-T604", b"cl_khr_fp16", b"")
    assert flag not in options(b"QUALCOMM Adreno(TM)", uneven, b"") and b"CL1.2" in options(b"Mali-G76", uneven, b"")
    strict = options(b"Mali-G76", uneven, b"#pragma OPENCL FP_CONTRACT OFF")
    assert flag in strict and b"mad-enable" not in strict
    in_half = options(b"Mali-G76", uneven, b"#if defined(ARMILLARY_HALF)")
    assert flag in in_half and b"-DARMILLARY_HALF" in in_half and b"HALF" not in strict
    assert b"HALF" not in options(b"PoCL", b"cl_khr_fp64", b"#if defined(ARMILLARY_HALF)")
    assert release(b"OpenCL 1.2 v1.r8p0-02rel0.0fb0a2") == 8 and release(b"OpenCL 2.0 v1.r26p0-01eac0.abc") == 26
    assert release(b"OpenCL 3.0 PoCL HSTR: pthread-x86_64") == -1


def test_a_program_serves_all_sizes_paddings_numbers_and_constants() -> None:
    """Sizes, padding, a matrix, the border's constant: all of them are arguments."""
    rng, library, found = np.random.default_rng(8), CLKernelLibrary.get(), list[int]()
    for width, height, padding in ((37, 5, 0), (65, 48, 3), (16, 9, 1)):
        matrix, constant = rng.integers(-5, 5, 9).tolist(), int(rng.integers(256))
        pixels, results = rng.integers(0, 256, (height, width)), []
        for side, kind in (("NE", Image), ("CL", CLImage)):
            src, dst, function = (
                _image(kind, width, height),
                _image(kind, width, height),
                getattr(compute, f"{side}Convolution3x3")(),
            )
            if kind is CLImage:
                src.info().extend_padding(compute.PaddingSize(padding))
            function.configure(src, dst, matrix, 0, BorderMode.CONSTANT, constant)
            _filled(src, pixels)
            dst.allocator().allocate()
            function.run()
            results.append(_read(dst))
        assert np.array_equal(*results)
        found.append(library.num_programs())
    assert len(set(found)) == 1


def test_numbers_and_constants_of_a_kernel_are_checked_and_may_be_real() -> None:
    kernel, images = compute.CLFormulaKernel(THRESHOLD), [_image(CLImage, 8, 8) for _ in range(2)]
    with pytest.raises(TypeMismatch, match="threshold: 1 numbers are given, wanted 3"):
        kernel.configure(images[:1], images[1:], (1,))
    with pytest.raises(TypeMismatch, match="threshold: number 2 is 'x', which int32 does not hold"):
        kernel.configure(images[:1], images[1:], (1, 2, "x"))
    largest = Formula("largest", (DataType.F32,), (DataType.F32,), lambda read, y, x, _: [read(0, y, x + 1)], 1)
    shifted, (source, target) = compute.CLFormulaKernel(largest), (_tensor(3, 2) for _ in range(2))
    shifted.configure([source], [target], (), BorderMode.CONSTANT, 0.25)
    for tensor in (source, target):
        tensor.allocator().allocate()
    source.write(np.arange(6, dtype="float32").reshape(2, 3))
    shifted.run()
    assert target.read().tolist() == [[1, 2, 0.25], [4, 5, 0.25]]


def test_counts_over_any_size_are_one_program() -> None:
    found = []
    for width, height in ((20, 3), (33, 70), (128, 128)):
        pixels = np.random.default_rng(width).integers(0, 256, (height, width))
        total, spread = (compute.Scalar() for _ in range(2))
        src, function = _image(CLImage, width, height), compute.CLMeanStdDev()
        function.configure(src, total, spread)
        _filled(src, pixels)
        function.run()
        np.testing.assert_allclose([total.value, spread.value], [pixels.mean(), pixels.std()], rtol=1e-5)
        found.append(CLKernelLibrary.get().num_programs())
    assert len(set(found)) == 1


def test_places_beyond_32_bits_are_counted_in_64() -> None:
    program = Program(
        compute.CLErode.formula, BorderMode.REPLICATE, (True, True), (False, False, True), (64, 1, 1), "int64"
    )
    source = build(program.function(), target="opencl").imported_modules[0].get_source()
    assert "const long rows0" in source and "const int rows0" not in source


def test_the_tuner_measures_once_saves_and_loads(tmp_path: Path) -> None:
    tuner = CLTuner()
    tuner.set_tuner_mode(compute.CLTunerMode.RAPID)
    CLScheduler.get().default_init(tuner)
    pixels = np.random.default_rng(3).integers(0, 256, (60, 80))
    src, dst, function = _image(CLImage, 80, 60), _image(CLImage, 80, 60), compute.CLMedian3x3()
    function.configure(src, dst, BorderMode.REPLICATE)
    _filled(src, pixels)
    dst.allocator().allocate()
    CLScheduler.get().set_tuner(None)
    function.run()
    plain = _read(dst)
    CLScheduler.get().set_tuner(tuner)
    function.run()
    key = function.kernel().config_id()
    seconds = tuner.measured(key)
    best = tuner.lws_table()[key]
    assert len(seconds) == 6 and seconds[best] == min(seconds.values()) <= seconds[64, 1, 1]
    assert np.array_equal(_read(dst), plain)
    tuner.save_to_file(tmp_path / "acl_tuner.csv")
    loaded = CLTuner(tune_new_kernels=False)
    loaded.load_from_file(tmp_path / "acl_tuner.csv")
    assert loaded.lws_table() == tuner.lws_table() and not loaded.measured(key)
    CLScheduler.get().set_tuner(loaded)
    function.run()
    assert np.array_equal(_read(dst), plain)
    (tmp_path / "damaged").write_text("median;8;0;1\n")
    with pytest.raises(ArtifactError, match=r"damaged:1: 'median;8;0;1' is no line"):
        loaded.load_from_file(tmp_path / "damaged")


def _on_both(name: str, kinds: list[Format], values: list[Array], *more: object) -> None:
    """A function of OpenCL gives the bytes of the CPU's where they are valid; the last tensor is the output."""
    found = []
    for prefix in ("NE", "CL"):
        images = [(CLImage if prefix == "CL" else Image)() for _ in kinds]
        for image, kind, value in zip(images, kinds, values, strict=True):
            image.allocator().init(TensorInfo(value.shape[1], value.shape[0], kind))
        function = getattr(compute, prefix + name)()
        function.configure(*images, *more)
        for image, value in zip(images, values, strict=True):
            image.allocator().allocate()
            if prefix == "CL":
                image.map()  # type: ignore[attr-defined]  # a CLImage
            image.array()[...] = value
            if prefix == "CL":
                image.unmap()  # type: ignore[attr-defined]
        function.run()
        if prefix == "CL":
            images[-1].map()  # type: ignore[attr-defined]
        valid = images[-1].info().valid_region()  # vectors of a kernel may write beyond it
        found.append(images[-1].array()[valid.start(1) : valid.end(1), valid.start(0) : valid.end(0)].copy())
    np.testing.assert_allclose(found[1].astype(float), found[0], atol=1 if "Warp" in name else 0)


@needs_opencl
def test_more_vision_functions_give_the_bytes_of_the_cpu() -> None:
    CLScheduler.get().default_init()
    rng = np.random.default_rng(12)
    pixels, other = rng.integers(0, 256, (2, 21, 43), np.uint8)
    short = rng.integers(-500, 500, (2, 21, 43)).astype(np.int16)
    border, bilinear = compute.BorderMode.REPLICATE, compute.InterpolationPolicy.BILINEAR
    u8, s16 = Format.U8, Format.S16
    matrix = [int(v) for v in rng.integers(-4, 5, 49)]
    _on_both("Convolution7x7", [u8, s16], [pixels, short[0]], matrix, 3, border)
    _on_both("NonLinearFilter", [u8, u8], [pixels, other], compute.NonLinearFilterFunction.MEDIAN, 3)
    _on_both("Accumulate", [u8, s16], [pixels, short[0]])
    _on_both("ArithmeticSubtraction", [u8, s16, s16], [pixels, short[0], short[1]])
    _on_both("PixelWiseMultiplication", [s16, s16, s16], [short[0], short[1], short[0]], 0.25)
    _on_both("Magnitude", [s16, s16, s16], [short[0], short[1], short[0]], compute.MagnitudeType.L1NORM)
    _on_both("WarpAffine", [u8, u8], [pixels, other[:9, :17]], [0.9, 0.2, -0.2, 0.9, 3.0, 1.0], bilinear, border)


@pytest.mark.parametrize("name", ["Threshold", "BitwiseNot"])
def test_an_image_may_be_input_and_output(name: str) -> None:
    pixels = np.random.default_rng(31).integers(0, 256, (10, 20), np.uint8)
    found = []
    for prefix, kind in (("NE", Image), ("CL", CLImage)):
        image, function = _image(kind, 20, 10), getattr(compute, prefix + name)()
        function.configure(image, image, *((100,) if name == "Threshold" else ()))
        _filled(image, pixels)
        function.run()
        found.append(_read(image))
    assert np.array_equal(found[1], found[0]) and not np.array_equal(found[0], pixels)


@pytest.mark.parametrize("padding", [0, 3])
def test_a_layer_may_write_its_input(padding: int) -> None:
    x, tensor, layer = np.random.default_rng(32).standard_normal((4, 6), np.float32), _tensor(6, 4), CLActivationLayer()
    tensor.info().extend_padding(PaddingSize(padding, padding, padding, padding))
    layer.configure(tensor, None, ActivationLayerInfo(ActivationFunction.RELU))
    _filled(tensor, x)
    layer.run()
    assert np.array_equal(_read(tensor), np.maximum(x, 0))
