"""Optical flow and Laplacian pyramids in C++, here and on an emulated board: points and pixels that Python gives."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from emulators import need
from test_ahead import MACHINES

from armillary import compute
from armillary.compute import BorderMode, Format, Image, KeyPoint, Pyramid, TensorInfo, Termination

MODES = (BorderMode.UNDEFINED, BorderMode.CONSTANT, BorderMode.REPLICATE)
NAMES = ["NEGaussianPyramidHalf", "NEGaussianPyramidOrb", "NEOpticalFlow"]
LAPLACE = ["NELaplacianPyramid", "NELaplacianReconstruct"]
PROGRAM = """
#include "armillary_compute.hpp"
using namespace arm_compute;
int main(int, char **arguments)
{
    auto n = [&](int which) { return std::atoi(arguments[which]); };
    const size_t width = size_t(n(1)), height = size_t(n(2)), levels = size_t(n(3)), points = size_t(n(8));
    const auto border = BorderMode(n(5));
    const float scale = n(4) ? SCALE_PYRAMID_ORB : SCALE_PYRAMID_HALF;
    Scheduler::get().set_num_threads(unsigned(n(9)));
    Image images[2];
    Pyramid pyramids[2];
    NEGaussianPyramidHalf half[2];
    NEGaussianPyramidOrb orb[2];
    for(int k = 0; k < 2; ++k)
    {
        images[k].allocator()->init(TensorInfo(unsigned(width), unsigned(height), Format::U8));
        pyramids[k].init(levels, scale, width, height, Format::U8);
        if(n(4)) orb[k].configure(&images[k], &pyramids[k], border, 70);
        else half[k].configure(&images[k], &pyramids[k], border, 70);
    }
    KeyPointArray before(points), guesses(points), after(points);
    NEOpticalFlow flow;
    const auto ends = Termination(n(6));
    const bool is_guessed = n(10) != 0;
    const size_t side = size_t(n(7));
    auto *first = &pyramids[0], *second = &pyramids[1];
    flow.configure(first, second, &before, &guesses, &after, ends, 0.01f, 12, side, is_guessed, border, 70);
    for(int k = 0; k < 2; ++k)
    {
        images[k].allocator()->allocate();
        pyramids[k].allocate();
        for(size_t y = 0; y < height; ++y)
            std::cin.read((char *)images[k].ptr_to_element(Coordinates(0, int(y))), long(width));
        if(n(4)) orb[k].run();
        else half[k].run();
    }
    for(size_t k = 0; k < points; ++k) // more than there were when it was configured
    {
        before.push_back({n(11 + 2 * int(k)), n(12 + 2 * int(k)), 0, 1});
        guesses.push_back({n(11 + 2 * int(k)) + 2, n(12 + 2 * int(k)) + 1, 0, int(k % 3 != 0)});
    }
    for(int turn = 0; turn < 2; ++turn) flow.run();
    for(size_t k = 0; k < after.num_values(); ++k)
        std::cout << after.at(k).x << ' ' << after.at(k).y << ' ' << after.at(k).tracking_status << ' ';
}
"""


def _built(machine: str, names: list[str], text: str, folder: Path) -> list[str]:
    """A program with functions, as this machine runs it."""
    target, compiler, emulator = MACHINES[machine]
    need(compiler, *emulator[:1])
    out = compute.build(names, target=target, out=folder / "out")
    (folder / "p.cpp").write_text(text)
    flags = ["-std=c++11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{out}"]
    sources = [str(folder / "p.cpp"), str(out / "libarmillary_compute.a"), "-lpthread", "-o", str(folder / "p")]
    subprocess.run([compiler, *flags, *sources], check=True)
    return [*emulator, str(folder / "p")]


@pytest.fixture(scope="module", params=MACHINES)
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The program of optical flow, as this machine runs it."""
    return _built(request.param, NAMES, PROGRAM, tmp_path_factory.mktemp("tracking"))


def _by_python(
    pictures: list[np.ndarray],
    numbers: tuple[int, int, int, int, int, int, int],
    points: np.ndarray,
) -> list[int]:
    levels, is_orb, mode, termination, side, uses_estimates, _ = numbers
    height, width = pictures[0].shape
    scale = compute.SCALE_PYRAMID_ORB if is_orb else compute.SCALE_PYRAMID_HALF
    images, pyramids = [Image(), Image()], [Pyramid(), Pyramid()]
    makers = [compute.NEGaussianPyramidOrb() if is_orb else compute.NEGaussianPyramidHalf() for _ in images]
    for image, pyramid, maker in zip(images, pyramids, makers, strict=True):
        image.allocator().init(TensorInfo(width, height, Format.U8))
        pyramid.init(levels, scale, width, height, Format.U8)
        maker.configure(image, pyramid, MODES[mode], 70)
    before = [KeyPoint(int(x), int(y)) for x, y in points]
    guesses = [KeyPoint(int(x) + 2, int(y) + 1, 0.0, int(k % 3 != 0)) for k, (x, y) in enumerate(points)]
    after: list[KeyPoint] = []
    flow = compute.NEOpticalFlow()
    criterion = list(Termination)[termination]
    flow.configure(*pyramids, before, guesses, after, criterion, 0.01, 12, side, bool(uses_estimates), MODES[mode], 70)
    for image, pyramid, maker, picture in zip(images, pyramids, makers, pictures, strict=True):
        image.allocator().allocate()
        pyramid.allocate()
        image.write(picture)
        maker.run()
    flow.run()
    return [int(n) for k in after for n in (k.x, k.y, k.tracking_status)]


def test_points_are_those_of_python(command: list[str]) -> None:
    found = 0
    for number in range(18):
        rng = np.random.default_rng([6, number])
        width, height = int(rng.integers(64, 120)), int(rng.integers(56, 90))
        waves = np.add.outer(np.sin(np.arange(height + 4) / 5), np.cos(np.arange(width + 4) / 7)) * 60 + 120
        scene = np.clip(waves + rng.normal(0, 8, waves.shape), 0, 255).astype(np.uint8)
        pictures = [scene[2 : 2 + height, 2 : 2 + width], scene[1 : 1 + height, :width]]  # moved by (2, 1)
        numbers = (3, number % 2, number % 3, number // 3 % 3, 5 + 2 * (number % 2), number // 2 % 2, 1 + number % 3)
        points = np.stack([rng.integers(0, width, 14), rng.integers(0, height, 14)], axis=1)
        levels, is_orb, mode, termination, side, uses_estimates, threads = numbers
        words = [width, height, levels, is_orb, mode, termination, side, len(points), threads, uses_estimates]
        data = b"".join(np.ascontiguousarray(p).tobytes() for p in pictures)
        line = [*command, *map(str, words), *map(str, points.ravel())]
        done = subprocess.run(line, input=data, capture_output=True, check=True, timeout=120)
        printed = [int(word) for word in done.stdout.split()]
        assert printed == _by_python(pictures, numbers, points), (number, numbers)
        found += sum(printed[2::3])
    assert found > 60  # points are found, not only lost


PYRAMIDS = """
#include "armillary_compute.hpp"
using namespace arm_compute;
template <class T> void show(const Tensor &t)
{
    const ValidRegion region = t.info()->valid_region();
    for(int n : {region.start(0), region.start(1), region.end(0), region.end(1)}) std::cout << n << ' ';
    for(int y = region.start(1); y < region.end(1); ++y)
        for(int x = region.start(0); x < region.end(0); ++x)
            std::cout << +*reinterpret_cast<T *>(t.ptr_to_element(Coordinates(x, y))) << ' ';
    std::cout << '\\n';
}
int main(int, char **arguments)
{
    auto n = [&](int which) { return std::atoi(arguments[which]); };
    const size_t width = size_t(n(1)), height = size_t(n(2)), levels = 3;
    const auto border = BorderMode(n(3));
    Image image, rest, again;
    Pyramid pyramid;
    image.allocator()->init(TensorInfo(unsigned(width), unsigned(height), Format::U8));
    again.allocator()->init(*image.info());
    pyramid.init(levels, SCALE_PYRAMID_HALF, width, height, Format::S16);
    rest.allocator()->init(*pyramid.get_pyramid_level(levels - 1)->info());
    NELaplacianPyramid take;
    NELaplacianReconstruct give;
    take.configure(&image, &pyramid, &rest, border, 70);
    give.configure(&pyramid, &rest, &again);
    for(Image *each : {&image, &rest, &again}) each->allocator()->allocate();
    pyramid.allocate();
    for(size_t y = 0; y < height; ++y)
        std::cin.read((char *)image.ptr_to_element(Coordinates(0, int(y))), long(width));
    for(int turn = 0; turn < 2; ++turn) take.run(), give.run();
    for(size_t k = 0; k < levels; ++k) show<int16_t>(*pyramid.get_pyramid_level(k));
    show<int16_t>(rest), show<uint8_t>(again);
}
"""


@pytest.mark.parametrize("machine", MACHINES)
def test_laplacian_pyramids_are_those_of_python(machine: str, tmp_path: Path) -> None:
    command = _built(machine, LAPLACE, PYRAMIDS, tmp_path)
    for number, mode in enumerate(MODES):
        rng = np.random.default_rng([7, number])
        width, height = int(rng.integers(60, 90)), int(rng.integers(60, 80))
        pixels = rng.integers(0, 256, (height, width)).astype(np.uint8)
        words = [*command, str(width), str(height), str(number)]
        done = subprocess.run(words, input=pixels.tobytes(), capture_output=True, check=True, timeout=120)
        image, rest, again, pyramid = Image(), Image(), Image(), Pyramid()
        pyramid.init(3, compute.SCALE_PYRAMID_HALF, width, height, Format.S16)
        image.allocator().init(TensorInfo(width, height, Format.U8))
        again.allocator().init(image.info())
        rest.allocator().init(pyramid.get_pyramid_level(2).info())
        take, give = compute.NELaplacianPyramid(), compute.NELaplacianReconstruct()
        take.configure(image, pyramid, rest, mode, 70)
        give.configure(pyramid, rest, again)
        for each in (image, rest, again):
            each.allocator().allocate()
        pyramid.allocate()
        image.write(pixels)
        take.run()
        give.run()
        levels = [pyramid.get_pyramid_level(k) for k in range(3)]
        for line, tensor in zip(done.stdout.decode().splitlines(), (*levels, rest, again), strict=True):
            region = tensor.info().valid_region()
            x, y, right, bottom = region.start(0), region.start(1), region.end(0), region.end(1)
            wanted = [x, y, right, bottom, *tensor.read()[y:bottom, x:right].ravel().tolist()]
            assert [int(word) for word in line.split()] == wanted, (mode, tensor.info())
