"""Libraries for machines without an operating system, and for 32 bits of x86: what the kernels and the headers need.

The freestanding program has no C library: it takes pixels from a formula, runs a kernel through the table of
`armillary_compute_kernels.hpp`, and hands its output to Linux, which the emulator is. The other one has the classes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from emulators import need, qemu_aarch64

from armillary import compute
from armillary.cli.main import main
from armillary.compute import BorderMode, Format, Image, TensorInfo

WIDTH, HEIGHT = 48, 20
FREESTANDING = """
#include "armillary_compute_kernels.hpp"
#if defined(__i386__)
static int call(int number, int a, const void *b, int c)
{
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}
enum { WRITE = 4, EXIT = 1 };
#elif defined(__arm__)
static int call(int number, int a, const void *b, int c)
{
    register int r7 __asm__("r7") = number, r0 __asm__("r0") = a, r2 __asm__("r2") = c;
    register const void *r1 __asm__("r1") = b;
    __asm__ volatile("svc 0" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2) : "memory");
    return r0;
}
enum { WRITE = 4, EXIT = 1 };
#endif
static const int width = 48, height = 20, pitch = 64;
static uint8_t source[height * pitch], result[height * pitch];
static bool is_same(const char *a, const char *b)
{
    while(*a && *a == *b) a++, b++;
    return *a == *b;
}
static int64_t value_of(const char *name)
{
    static const struct { const char *name; int64_t value; } values[] = {
        {"y0", 1}, {"rows", height - 2}, {"x0", 1}, {"steps", 3}, {"in0_rows", height}, {"in0_columns", pitch},
        {"out0_rows", height}, {"out0_columns", pitch}};
    for(const auto &each : values) if(is_same(each.name, name)) return each.value;
    return 0; // origins
}
extern "C" void start_here()
{
    using namespace armillary::compute::kernels;
    for(int y = 0; y < height; y++) for(int x = 0; x < pitch; x++) source[y * pitch + x] = uint8_t(x * x + 31 * y);
    int code = 9;
    for(const Kernel *k = all(); k->name; k++)
    {
        if(!is_same(k->name, "gaussian3x3")) continue;
        void *data[] = {source, result, nullptr, nullptr};
        int64_t values[16], count = 0;
        for(const char *const *name = k->values; *name; name++) values[count++] = value_of(*name);
        code = k->run(data, values, 0, height - 2, 0);
    }
    call(WRITE, 1, result, sizeof result);
    call(EXIT, code, nullptr, 0);
}
"""
_ENTRY = [
    "-ffreestanding",
    "-fno-exceptions",
    "-fno-rtti",
    "-nostdlib",
    "-static",
    "-e",
    "start_here",
    "-std=c++11",
    "-O1",
]
MACHINES = {
    "x86_32": (["arch=x86_32"], ["clang++", "-m32", "-msse2", "-fuse-ld=bfd", "-mstackrealign"], ["qemu-i386-static"]),
    "armv7a": (
        ["arch=armv7a", "os=bare_metal", "cppthreads=0"],
        ["arm-none-eabi-g++", "-march=armv7-a+simd", "-mfloat-abi=hard", "-marm"],
        ["qemu-arm-static"],
    ),
}


def _source() -> np.ndarray:
    y, x = np.mgrid[:HEIGHT, :64]
    return (x * x + 31 * y).astype(np.uint8)


def _by_python(pixels: np.ndarray) -> np.ndarray:
    images = [Image(), Image()]
    for image in images:
        image.allocator().init(TensorInfo(pixels.shape[1], pixels.shape[0], Format.U8))
    function = compute.NEGaussian3x3()
    function.configure(*images, BorderMode.UNDEFINED)
    for image in images:
        image.allocator().allocate()
    images[0].write(pixels)
    function.run()
    return images[1].array()[1:-1, 1:-1].copy()


@pytest.mark.parametrize("name", MACHINES)
def test_kernels_need_no_library(name: str, tmp_path: Path) -> None:
    words, compiler, emulator = MACHINES[name]
    need(compiler[0], *emulator[:1])
    out = tmp_path / "out"
    assert main(["compute", "build", *words, "NEGaussian3x3", "-o", str(out)]) == 0
    (tmp_path / "p.cpp").write_text(FREESTANDING)
    program, library = str(tmp_path / "p"), str(out / "libarmillary_compute.a")
    subprocess.run([*compiler, *_ENTRY, f"-I{out}", str(tmp_path / "p.cpp"), library, "-o", program], check=True)
    done = subprocess.run([*emulator, program], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    result = np.frombuffer(done.stdout, np.uint8).reshape(HEIGHT, 64)[1:-1, 1:49]
    assert (result[:, :46] == _by_python(_source()[:, :WIDTH])).all()
    assert (out / "libarmillary_compute.so").exists() == (name == "x86_32")


CLASSES = """
#include "armillary_compute.hpp"
using namespace arm_compute;
int main()
{
    Image source, result;
    for(Image *each : {&source, &result}) each->allocator()->init(TensorInfo(64, 20, Format::U8));
    NEGaussian3x3 gaussian;
    gaussian.configure(&source, &result, BorderMode::UNDEFINED);
    auto lifetimes = std::make_shared<BlobLifetimeManager>();
    auto manager = std::make_shared<MemoryManagerOnDemand>(lifetimes, std::make_shared<PoolManager>());
    Allocator allocator;
    manager->set_allocator(&allocator), manager->set_num_pools(1), manager->finalize();
    for(Image *each : {&source, &result}) each->allocator()->allocate();
    for(int y = 0; y < 20; y++)
        for(int x = 0; x < 64; x++) *source.ptr_to_element(Coordinates(x, y)) = uint8_t(x * x + 31 * y);
    gaussian.run();
    for(int y = 1; y < 19; y++)
        for(int x = 1; x < 63; x++) std::cout << int(*result.ptr_to_element(Coordinates(x, y))) << ' ';
    try { Scheduler::set(Scheduler::Type::CPP); }
    catch(const std::exception &e) { std::cerr << e.what(); }
}
"""


def test_classes_for_bare_metal_use_no_threads(tmp_path: Path) -> None:
    """The library of `aarch64-none-elf` in a program of Linux, whose C++ library stands for a board's."""
    compiler, emulator = "aarch64-linux-gnu-g++", qemu_aarch64()
    need(compiler, *emulator[:1])
    out, words = tmp_path / "out", ["arch=arm64-v8a", "os=bare_metal", "cppthreads=0"]
    assert main(["compute", "build", *words, "NEGaussian3x3", "-o", str(out)]) == 0
    assert not list(out.glob("*.so*"))
    (tmp_path / "p.cpp").write_text(CLASSES)
    flags = ["-std=c++11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{out}"]
    text = subprocess.run([compiler, *flags, "-E", str(tmp_path / "p.cpp")], capture_output=True, text=True, check=True)
    assert "std::thread" not in text.stdout and "std::mutex" not in text.stdout
    program = tmp_path / "p"
    inputs = [str(tmp_path / "p.cpp"), str(out / "libarmillary_compute.a"), "-o", str(program)]
    subprocess.run([compiler, *flags, *inputs], check=True)
    done = subprocess.run([*emulator, str(program)], capture_output=True, text=True, check=True, timeout=60)
    assert [int(word) for word in done.stdout.split()] == _by_python(_source()).ravel().tolist()
    assert done.stderr == "there are no threads: Type::ST"
