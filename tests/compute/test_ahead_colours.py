"""Pictures of several planes in C++, here, on an emulated board and (some) on OpenCL: bytes that Python gives.

Each call of the program converts a picture, takes a channel out of it, or puts planes together.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

import numpy as np
import pytest
from emulators import need
from opencl_device import needs_opencl
from test_ahead import MACHINES

from armillary import compute
from armillary.compute import Format, Image, MultiImage, TensorInfo
from armillary.compute.ahead.options import BuildOptions
from armillary.compute.core.types import Channel
from armillary.compute.functions.vision.colour import _PLACES, CONVERSIONS

# In the order of the enumeration in C++.
_NAMES = "U8, S16, F32, S32, U32, RGB888, RGBA8888, UV88, YUYV422, UYVY422, NV12, NV21, IYUV, YUV444"
FORMATS = [Format[name] for name in _NAMES.split(", ")]
CHANNELS = [None, *Channel]
Row = TypeVar("Row")
NAMES = ["NEColorConvert", "NEChannelExtract", "NEChannelCombine"]
PROGRAM = """
#include "armillary_compute.hpp"
using namespace arm_compute;
static long bytes_of(const Tensor &t) { return long(t.info()->dimension(0) * t.info()->element_size()); }
static void read(Tensor &t)
{
    t.map();
    for(size_t y = 0; y < t.info()->dimension(1); ++y)
        std::cin.read((char *)t.ptr_to_element(Coordinates(0, int(y))), bytes_of(t));
    t.unmap();
}
static void write(Tensor &t)
{
    t.map();
    for(size_t y = 0; y < t.info()->dimension(1); ++y)
        std::cout.write((char *)t.ptr_to_element(Coordinates(0, int(y))), bytes_of(t));
    t.unmap();
}
struct Either // an image, or one of several planes
{
    Either(int format, int width, int height) : is_multi(format >= int(Format::NV12))
    {
        if(is_multi) many.init(unsigned(width), unsigned(height), Format(format));
        else one.allocator()->init(TensorInfo(unsigned(width), unsigned(height), Format(format)));
    }
    void allocate() { if(is_multi) many.allocate(); else one.allocator()->allocate(); }
    std::vector<Tensor *> planes() { return is_multi ? many.planes() : std::vector<Tensor *>{&one}; }
    bool is_multi;
    Image one;
    MultiImage many;
};
int main(int, char **arguments)
{
    auto n = [&](int which) { return std::atoi(arguments[which]); };
    try
    {
        Either a(n(2), n(4), n(5)), b(n(3), n(7), n(8));
        NEColorConvert convert;
        NEChannelExtract extract;
        NEChannelCombine combine;
        Image planes[4];
        std::vector<Tensor *> inputs = a.planes();
        if(n(1) == 0)
        {
            if(a.is_multi && b.is_multi) convert.configure(&a.many, &b.many);
            else if(a.is_multi) convert.configure(&a.many, &b.one);
            else if(b.is_multi) convert.configure(&a.one, &b.many);
            else convert.configure(&a.one, &b.one);
        }
        else if(n(1) == 1)
        {
            if(a.is_multi) extract.configure(&a.many, Channel(n(6)), &b.one);
            else extract.configure(&a.one, Channel(n(6)), &b.one);
        }
        else
        {
            inputs.clear();
            for(int k = 0; k < n(6); ++k)
            {
                planes[k].allocator()->init(TensorInfo(unsigned(n(9 + 2 * k)), unsigned(n(10 + 2 * k)), Format::U8));
                inputs.push_back(&planes[k]);
            }
            if(b.is_multi) combine.configure(&planes[0], &planes[1], &planes[2], &b.many);
            else combine.configure(&planes[0], &planes[1], &planes[2], n(6) > 3 ? &planes[3] : nullptr, &b.one);
        }
        a.allocate(), b.allocate();
        if(n(1) == 2) for(Tensor *each : inputs) each->allocator()->allocate();
        for(Tensor *each : inputs) read(*each);
        if(n(1) == 0) convert.run();
        else if(n(1) == 1) extract.run();
        else combine.run();
        for(Tensor *each : b.planes()) write(*each);
    }
    catch(const std::exception &e) { std::cout << e.what(); }
}
"""


def _on_device(text: str) -> str:
    """The program over images and functions of OpenCL."""
    for name in ("ColorConvert", "ChannelExtract", "ChannelCombine"):
        text = text.replace(f"NE{name}", f"CL{name}")
    for declared in ("Image one;", "MultiImage many;", "Image planes[4];"):
        text = text.replace(f" {declared}", f" CL{declared}")
    return text.replace("    try\n    {\n", "    CLScheduler::get().default_init();\n    try\n    {\n")


@pytest.fixture(scope="module", params=[*MACHINES, pytest.param("OpenCL", marks=needs_opencl)])
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The program, as this machine runs it."""
    is_device = request.param == "OpenCL"
    target, compiler, emulator = MACHINES["x86_64" if is_device else request.param]
    need(compiler, *emulator[:1])
    folder = tmp_path_factory.mktemp(f"colours-{request.param}")
    out = compute.build(NAMES, target=target, out=folder / "out", options=BuildOptions(opencl=is_device))
    (folder / "p.cpp").write_text(_on_device(PROGRAM) if is_device else PROGRAM)
    flags = ["-std=c++11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{out}"]
    sources = [str(folder / "p.cpp"), str(out / "libarmillary_compute.a"), "-lpthread", "-ldl", "-o", str(folder / "p")]
    subprocess.run([compiler, *flags, *sources], check=True)
    return [*emulator, str(folder / "p")]


def _picture(kind: Format, width: int, height: int) -> Image | MultiImage:
    if len(kind.planes) > 1:
        several = MultiImage()
        several.init(width, height, kind)
        return several
    one = Image()
    one.allocator().init(TensorInfo(width, height, kind))
    return one


def _planes(picture: Image | MultiImage) -> list[Image]:
    return list(picture.planes()) if isinstance(picture, MultiImage) else [picture]


class _Function(Protocol):
    def run(self) -> None:
        """Compute."""


def _run(
    command: list[str],
    function: _Function,
    numbers: list[int],
    inputs: list[Image],
    output: Image | MultiImage,
    rng: np.random.Generator,
) -> None:
    """One call of the program and the same in Python, whose function is configured."""
    for image in (*inputs, *_planes(output)):
        image.allocator().allocate()
    for image in inputs:
        image.write(rng.integers(0, 256, image.array().shape).astype(np.uint8))
    data = b"".join(image.read().tobytes() for image in inputs)
    function.run()
    done = subprocess.run([*command, *map(str, numbers)], input=data, capture_output=True, check=True, timeout=120)
    assert done.stdout == b"".join(image.read().tobytes() for image in _planes(output)), numbers


def _drawn(command: list[str], rows: Iterable[Row]) -> list[Row]:
    """All rows; on OpenCL, where each is compiled when it runs, every fifth."""
    return list(rows)[:: 5 if "OpenCL" in command[-1] else 1]


def _sizes() -> Iterator[tuple[int, int]]:
    rng = np.random.default_rng(8)
    while True:
        yield 2 * int(rng.integers(1, 40)), 2 * int(rng.integers(1, 12))


def test_conversions_are_those_of_python(command: list[str]) -> None:
    rng = np.random.default_rng(1)
    pairs = [(source, target) for source, targets in CONVERSIONS.items() for target in targets]
    for (source, target), (width, height) in zip(_drawn(command, pairs), _sizes(), strict=False):
        a, b, function = _picture(source, width, height), _picture(target, width, height), compute.NEColorConvert()
        function.configure(a, b)
        kinds = [FORMATS.index(source), FORMATS.index(target)]
        _run(command, function, [0, *kinds, width, height, 0, width, height], _planes(a), b, rng)


def test_channels_are_those_of_python(command: list[str]) -> None:
    rng = np.random.default_rng(2)
    rows = [(source, channel) for source, channels in _PLACES.items() for channel in channels]
    for (source, channel), (width, height) in zip(_drawn(command, rows), _sizes(), strict=False):
        plane, _, spread = _PLACES[source][channel]
        a = _picture(source, width, height)
        size = _planes(a)[plane].info().shape
        b = _picture(Format.U8, size[0] // spread, size[1])
        function = compute.NEChannelExtract()
        function.configure(a, channel, b)
        kinds = [FORMATS.index(source), 0, width, height, CHANNELS.index(channel)]
        _run(command, function, [1, *kinds, size[0] // spread, size[1]], _planes(a), b, rng)


def test_combined_planes_are_those_of_python(command: list[str]) -> None:
    rng = np.random.default_rng(3)
    for target, (width, height) in zip(_drawn(command, _PLACES), _sizes(), strict=False):
        count = 4 if target is Format.RGBA8888 else 3
        wide = 2 if target.name in ("YUYV422", "UYVY422", "NV12", "NV21", "IYUV") else 1
        high = 2 if target.name in ("NV12", "NV21", "IYUV") else 1
        sizes = [(width // (wide if n else 1), height // (high if n else 1)) for n in range(count)]
        planes = [_picture(Format.U8, *size) for size in sizes]
        b, function = _picture(target, width, height), compute.NEChannelCombine()
        function.configure(*planes, *([None] if count == 3 else []), b)
        more = [n for size in sizes for n in size]
        _run(command, function, [2, 0, FORMATS.index(target), 1, 1, count, width, height, *more], planes, b, rng)


def test_what_is_not_there_is_refused(command: list[str]) -> None:
    for numbers, message in (
        ([0, 5, 5, 8, 8, 0, 8, 8], "the kernel rgb888_to_rgb888 was not built"),
        ([0, 5, 6, 8, 8, 0, 8, 6], "pictures of different sizes"),
        ([0, 10, 5, 7, 8, 0, 7, 8], "planes of half of an odd size"),
        ([1, 5, 0, 8, 8, 9, 8, 8], "rgb888 has no such channel"),
        ([1, 8, 0, 8, 8, 10, 8, 8], "wanted U8 of 4x8"),
        ([2, 0, 5, 1, 1, 4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8], "how many planes"),
    ):
        done = subprocess.run([*command, *map(str, numbers)], input=b"", capture_output=True, check=True, timeout=60)
        assert message.encode() in done.stdout, numbers
