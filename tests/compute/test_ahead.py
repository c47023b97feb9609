"""Functions compiled ahead of time: C++ programs on this machine and, emulated, on a board give what Python gives."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from emulators import need, qemu_aarch64

from armillary import compute
from armillary.compute import BorderMode, Format, Image, TensorInfo
from armillary.compute.runtime.ppm import PPMLoader, read_image, save_to_ppm
from armillary.errors import ConfigError

MACHINES = {
    "x86_64": ("llvm", "g++", []),
    "aarch64": ("llvm -mtriple=aarch64-linux-gnu", "aarch64-linux-gnu-g++", qemu_aarch64()),
}
GAUSSIAN_3 = [1, 2, 1, 2, 4, 2, 1, 2, 1]
GAUSSIAN_5 = [a * b for a in (1, 4, 6, 4, 1) for b in (1, 4, 6, 4, 1)]
MODES = (BorderMode.UNDEFINED, BorderMode.CONSTANT, BorderMode.REPLICATE)
# The listing "exact padding" of the architecture text, with borders, sizes and threads as arguments.
PROGRAM = """
#include "armillary_compute.hpp"
#include <iostream>
using namespace arm_compute;
int main(int, char **arguments)
{
    auto number = [&](int n) { return std::atoi(arguments[n]); };
    const auto first = BorderMode(number(3)), second = BorderMode(number(4));
    Scheduler::get().set_num_threads(unsigned(number(5)));
    if(number(5) == 1) Scheduler::set(Scheduler::Type::ST);
    const int16_t gaussian3x3[] = {1, 2, 1, 2, 4, 2, 1, 2, 1};
    const int16_t gaussian5x5[] = {1, 4, 6, 4, 1, 4, 16, 24, 16, 4, 6, 24, 36, 24, 6, 4, 16, 24, 16, 4, 1, 4, 6, 4, 1};
    Image src, tmp, dst, last;
    NEConvolution3x3 conv3x3;
    NEConvolution5x5 conv5x5;
    NEGaussian3x3 gauss;
    src.allocator()->init(TensorInfo(number(1), number(2), Format::U8));
    // Initialize just the dimensions and format of the temporary and destination images:
    tmp.allocator()->init(*src.info());
    dst.allocator()->init(*src.info());
    last.allocator()->init(*src.info());
    // Apply a Gaussian 3x3 filter to the source image followed by a Gaussian 5x5:
    // The function will automatically update the padding information inside input and output to match its requirements
    conv3x3.configure(&src, &tmp, gaussian3x3, 0 /* Let arm_compute calculate the scale */, first, 77);
    conv5x5.configure(&tmp, &dst, gaussian5x5, 0 /* Let arm_compute calculate the scale */, second, 200);
    gauss.configure(&dst, &last, second);
    // Now that the padding requirements are known we can allocate the images:
    for(auto *image : {&src, &tmp, &dst, &last}) image->allocator()->allocate();
    Window window;
    window.use_tensor_dimensions(src.info()->tensor_shape());
    Iterator it(&src, window);
    execute_window_loop(window, [&](const Coordinates &) { *it.ptr() = uint8_t(std::cin.get()); }, it);
    conv3x3.run();
    conv5x5.run();
    gauss.run();
    for(auto *image : {&tmp, &dst, &last})
    {
        const ValidRegion region = image->info()->valid_region();
        const auto pad = image->info()->padding();
        for(int n : {region.start(0), region.start(1), region.end(0), region.end(1)}) std::cout << n << ' ';
        for(unsigned n : {pad.top, pad.right, pad.bottom, pad.left}) std::cout << n << ' ';
        for(int y = region.start(1); y < region.end(1); ++y)
            for(int x = region.start(0); x < region.end(0); ++x)
                std::cout << int(*image->ptr_to_element(Coordinates(x, y))) << ' ';
        std::cout << '\\n';
    }
}
"""


@pytest.fixture(scope="module", params=MACHINES)
def commands(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The program with the static and with the shared library, as this machine runs it."""
    target, compiler, emulator = MACHINES[request.param]
    need(compiler, *emulator[:1])
    folder = tmp_path_factory.mktemp("ahead")
    names = ["NEConvolution3x3", compute.NEConvolution5x5, "NEGaussian3x3"]
    out = compute.build(names, target=target, out=folder / "out")
    (folder / "program.cpp").write_text(PROGRAM)
    made = []
    for library in ("libarmillary_compute.a", "libarmillary_compute.so"):
        program = folder / f"program-{library[-2:]}"
        flags = ["-std=c++11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{out}", f"-Wl,-rpath,{out}"]
        sources = [str(folder / "program.cpp"), str(out / library), "-lpthread"]
        subprocess.run([compiler, *flags, *sources, "-o", str(program)], check=True)
        made.append([*emulator, str(program)])
    return made


def _by_python(pixels: np.ndarray, first: int, second: int) -> list[list[int]]:
    images = [Image() for _ in range(4)]
    for image in images:
        image.allocator().init(TensorInfo(pixels.shape[1], pixels.shape[0], Format.U8))
    functions = compute.NEConvolution3x3(), compute.NEConvolution5x5(), compute.NEGaussian3x3()
    functions[0].configure(images[0], images[1], GAUSSIAN_3, 0, MODES[first], 77)
    functions[1].configure(images[1], images[2], GAUSSIAN_5, 0, MODES[second], 200)
    functions[2].configure(images[2], images[3], MODES[second])
    for image in images:
        image.allocator().allocate()
    images[0].write(pixels)
    for function in functions:
        function.run()
    rows = []
    for image in images[1:]:
        region, pad = image.info().valid_region(), image.info().padding
        x, y, right, bottom = region.start(0), region.start(1), region.end(0), region.end(1)
        values = image.array()[y:bottom, x:right].ravel().tolist()
        rows.append([x, y, right, bottom, pad.top, pad.right, pad.bottom, pad.left, *values])
    return rows


def test_programs_give_what_python_gives(commands: list[list[str]]) -> None:
    rng = np.random.default_rng(5)
    for number in range(10):
        width, height = int(rng.integers(16, 90)), int(rng.integers(12, 40))
        modes = (int(rng.integers(3)), int(rng.integers(3)))
        pixels = rng.integers(0, 256, (height, width)).astype(np.uint8)
        arguments = [str(n) for n in (width, height, *modes, 1 + number % 3)]
        command = [*commands[number % 2], *arguments]
        done = subprocess.run(command, input=pixels.tobytes(), capture_output=True, check=True, timeout=120)
        printed = [[int(word) for word in line.split()] for line in done.stdout.decode().splitlines()]
        assert printed == _by_python(pixels, *modes), (width, height, modes)


def test_a_class_whose_kernel_was_not_built_says_so(tmp_path: Path) -> None:
    out = compute.build(["NEErode"], out=tmp_path / "out")
    source = """#include "armillary_compute.hpp"
        #include <iostream>
        int main() { arm_compute::Image a, b; arm_compute::NEDilate f;
            for(auto *t : {&a, &b}) t->allocator()->init(arm_compute::TensorInfo(40, 40, arm_compute::Format::U8));
            try { f.configure(&a, &b, arm_compute::BorderMode::UNDEFINED); }
            catch(const std::exception &e) { std::cout << e.what(); } }"""
    (tmp_path / "p.cpp").write_text(source)
    command = ["g++", "-std=c++11", f"-I{out}", str(tmp_path / "p.cpp"), str(out / "libarmillary_compute.a")]
    subprocess.run([*command, "-lpthread", "-o", str(tmp_path / "p")], check=True)
    printed = subprocess.run([tmp_path / "p"], capture_output=True, text=True, check=True).stdout
    assert printed == "the kernel dilate was not built: name its function to armillary.compute.build"


def test_functions_that_cannot_be_built_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'NEPermute' cannot be built ahead of time") as error:
        compute.build(["NEErode", "NEPermute"], out=tmp_path)
    assert "NEGaussian5x5" in str(error.value)
    with pytest.raises(ConfigError, match="no function is named"):
        compute.build([], out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_equal_builds_are_equal_bytes_and_small(tmp_path: Path) -> None:
    folders = [compute.build(["NEGaussian5x5"], out=tmp_path / name) for name in "ab"]
    for file in ("libarmillary_compute.a", "libarmillary_compute.so", "armillary_compute_kernels.hpp"):
        contents = [(folder / file).read_bytes() for folder in folders]
        assert contents[0] == contents[1] and len(contents[0]) < 100_000


PICTURES = """#include "armillary_compute.hpp"
#include <iostream>
using namespace arm_compute;
using namespace utils;
int main(int, char **argv)
{
    try
    {
        PPMLoader ppm;
        Image src, dst;
        NEGaussian5x5 gauss;
        ppm.open(argv[1]);
        ppm.init_image(src, Format::U8);
        dst.allocator()->init(*src.info());
        gauss.configure(&src, &dst, BorderMode::REPLICATE);
        src.allocator()->allocate();
        dst.allocator()->allocate();
        if(ppm.is_open()) ppm.fill_image(src);
        gauss.run();
        save_to_ppm(dst, argv[2]);
    }
    catch(const std::exception &e) { std::cout << e.what(); }
}
"""


def test_pictures_are_read_and_written_as_python_does(tmp_path: Path) -> None:
    out = compute.build(["NEGaussian5x5"], out=tmp_path / "out")
    (tmp_path / "p.cpp").write_text(PICTURES)
    command = ["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", f"-I{out}", str(tmp_path / "p.cpp")]
    subprocess.run([*command, str(out / "libarmillary_compute.a"), "-lpthread", "-o", str(tmp_path / "p")], check=True)
    pixels = np.random.default_rng(3).integers(0, 256, (21, 34, 3)).astype(np.uint8)
    given, theirs, ours = (tmp_path / name for name in ("in.ppm", "theirs.ppm", "ours.ppm"))
    given.write_bytes(b"P6\n# a comment\n34 21\n255\n" + pixels.tobytes())
    assert subprocess.run([tmp_path / "p", given, theirs], capture_output=True, check=True).stdout == b""
    source, result, loader, gauss = Image(), Image(), PPMLoader(), compute.NEGaussian5x5()
    loader.open(given)
    loader.init_image(source, Format.U8)
    result.allocator().init(source.info())
    gauss.configure(source, result, BorderMode.REPLICATE)
    for image in (source, result):
        image.allocator().allocate()
    loader.fill_image(source)
    gauss.run()
    save_to_ppm(result, ours)
    assert np.array_equal(read_image(theirs), read_image(ours))
    given.write_bytes(b"P6\n34 21\n255\n" + pixels.tobytes()[:-1])
    assert (
        b"in.ppm ends early" in subprocess.run([tmp_path / "p", given, theirs], capture_output=True, check=True).stdout
    )
