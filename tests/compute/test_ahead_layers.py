"""Layers compiled ahead of time: listings of the text and layers in C++, here and emulated, against numpy."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from emulators import need, qemu_aarch64

from armillary import compute
from armillary.base.aliases import Array
from armillary.cli.main import main
from armillary.compute import PadStrideInfo, Size2D
from armillary.compute.ahead.options import BuildOptions
from armillary.errors import ConfigError
from tests.compute.nn_oracles import convolved, pooled

MACHINES = {"x86_64": ("g++", []), "arm64-v8a": ("aarch64-linux-gnu-g++", qemu_aarch64())}
FLAGS = ["-std=c++11", "-O1", "-Wall", "-Wextra", "-Werror"]
# The text's listing of iterators, from its first line to its last.
ITERATORS = """
#include "armillary_compute.hpp"
#include <iostream>
using namespace arm_compute;
int main()
{
        float *src_data, *dst_data;
        Tensor input, output;
        NESoftmaxLayer softmax;
        constexpr unsigned int width  = 4;
        constexpr unsigned int height = 3;
        constexpr unsigned int batch  = 2;
        src_data = new float[width * height * batch];
        dst_data = new float[width * height * batch];
        // Fill src_data with dummy values:
        for(unsigned int b = 0; b < batch; b++)
        {
            for(unsigned int h = 0; h < height; h++)
            {
                for(unsigned int w = 0; w < width; w++)
                {
                    src_data[b * (width * height) + h * width + w] = static_cast<float>(100 * b + 10 * h + w);
                }
            }
        }
        // Initialize the tensors dimensions and type:
        const TensorShape shape(width, height, batch);
        input.allocator()->init(TensorInfo(shape, 1, DataType::F32));
        output.allocator()->init(TensorInfo(shape, 1, DataType::F32));
        // Configure softmax:
        softmax.configure(&input, &output);
        // Allocate the input / output tensors:
        input.allocator()->allocate();
        output.allocator()->allocate();
        // Fill the input tensor:
        // Simplest way: create an iterator to iterate through each element of the input tensor:
        Window input_window;
        input_window.use_tensor_dimensions(input.info()->tensor_shape());
        std::cout << " Dimensions of the input's iterator:\\n";
        std::cout << " X = [start=" << input_window.x().start() << ", end=" << input_window.x().end() << ", step=" << input_window.x().step() << "]\\n";
        std::cout << " Y = [start=" << input_window.y().start() << ", end=" << input_window.y().end() << ", step=" << input_window.y().step() << "]\\n";
        std::cout << " Z = [start=" << input_window.z().start() << ", end=" << input_window.z().end() << ", step=" << input_window.z().step() << "]\\n";
        // Create an iterator:
        Iterator input_it(&input, input_window);
        execute_window_loop(input_window, [&](const Coordinates & id)
        {
            std::cout << "Setting item [" << id.x() << "," << id.y() << "," << id.z() << "]\\n";
            *reinterpret_cast<float *>(input_it.ptr()) = src_data[id.z() * (width * height) + id.y() * width + id.x()];
        },
        input_it);
        softmax.run();
        // More efficient way: create an iterator to iterate through each row (instead of each element) of the output tensor:
        Window output_window;
        output_window.use_tensor_dimensions(output.info()->tensor_shape(), /* first_dimension =*/Window::DimY); // Iterate through the rows (not each element)
        Iterator output_it(&output, output_window);
        execute_window_loop(output_window, [&](const Coordinates & id)
        {
            std::cout << "Copying one row starting from [" << id.x() << "," << id.y() << "," << id.z() << "]\\n";
            // Copy one whole row:
            memcpy(dst_data + id.z() * (width * height) + id.y() * width, output_it.ptr(), width * sizeof(float));
        },
        output_it);
        for(unsigned int n = 0; n < width * height * batch; n++) std::cout << dst_data[n] << ' ';
        delete[] src_data;
        delete[] dst_data;
}
"""  # noqa: E501  # as the text has it
# Two layers that share memory, as the text's listing of a memory manager has them, then others; bytes in and out.
LAYERS = """
#include "armillary_compute.hpp"
#include <iostream>
using namespace arm_compute;
static void fill(Tensor &t)
{
    t.allocator()->allocate();
    Window w;
    w.use_tensor_dimensions(t.info()->tensor_shape(), Window::DimY);
    Iterator it(&t, w);
    execute_window_loop(w, [&](const Coordinates &) { std::cin.read(reinterpret_cast<char *>(it.ptr()), long(4 * t.info()->dimension(0))); }, it);
}
static void show(Tensor &t)
{
    Window w;
    w.use_tensor_dimensions(t.info()->tensor_shape(), Window::DimY);
    Iterator it(&t, w);
    execute_window_loop(w, [&](const Coordinates &) { std::cout.write(reinterpret_cast<char *>(it.ptr()), long(4 * t.info()->dimension(0))); }, it);
}
static void floats(Tensor &t, TensorShape shape) { t.allocator()->init(TensorInfo(shape, 1, DataType::F32)); }
int main(int, char **arguments)
{
    if(std::atoi(arguments[1]) == 1) Scheduler::set(Scheduler::Type::ST);
    Scheduler::get().set_num_threads(unsigned(std::atoi(arguments[1])));
    Tensor src, w1, b1, mid, w2, b2, direct_out, dst, pooled, mean, active, row, fw, fb, scores, w3, far, narrow, little;
    Tensor w4, b4, thin, wide, var, gamma, normal, plain, local, both, w5, dilated, grouped, strided_groups;
    floats(src, TensorShape(13, 11, 5));
    src.info()->extend_padding(PaddingSize{1, 2, 0, 3});
    floats(w1, TensorShape(3, 3, 5, 7)), floats(b1, TensorShape(7));
    floats(w2, TensorShape(5, 5, 7, 18)), floats(b2, TensorShape(18));
    floats(w3, TensorShape(9, 7, 7, 6)), floats(narrow, TensorShape(3, 11, 5));
    floats(w4, TensorShape(3, 5, 14)), floats(b4, TensorShape(14)), floats(var, TensorShape(7)), floats(gamma, TensorShape(7));
    floats(w5, TensorShape(3, 3, 7, 12));
    floats(row, TensorShape(50)), floats(fw, TensorShape(50, 10)), floats(fb, TensorShape(10));
    // Setup Memory Manager
    Allocator allocator{};                                                               // Create an allocator to use for the backing memory allocation
    auto lifetime_mgr  = std::make_shared<BlobLifetimeManager>();                         // Create Lifetime Manager
    auto pool_mgr      = std::make_shared<PoolManager>();                                 // Create Pool Manager
    auto mm            = std::make_shared<MemoryManagerOnDemand>(lifetime_mgr, pool_mgr); // Create Memory Manager
    NEConvolutionLayer conv1(mm), conv2(mm);
    NEDirectConvolutionLayer direct;
    NEFFTConvolutionLayer fft(mm);
    NEPoolingLayer pool, average;
    NEActivationLayer activation;
    NEFullyConnectedLayer connected;
    // Configure layers
    conv1.configure(&src, &w1, &b1, &mid, PadStrideInfo(1, 1, 1, 1));
    conv2.configure(&mid, &w2, nullptr, &dst, PadStrideInfo(2, 2, 2, 1), WeightsInfo(), Size2D(1, 1), ActivationLayerInfo(ActivationLayerInfo::ActivationFunction::RELU));
    direct.configure(&mid, &w2, &b2, &direct_out, PadStrideInfo(1, 1, 2, 2));
    fft.configure(&mid, &w3, nullptr, &far, PadStrideInfo(1, 1, 4, 3), ActivationLayerInfo(ActivationLayerInfo::ActivationFunction::RELU));
    NEWinogradConvolutionLayer small;
    NEDepthwiseConvolutionLayer depthwise, strided;
    NEBatchNormalizationLayer scaled, unscaled;
    NENormalizationLayer neighbours;
    NEDepthConcatenateLayer joined;
    depthwise.configure(&mid, &w4, &b4, &thin, PadStrideInfo(1, 1, 1, 2), 2);
    strided.configure(&mid, &w4, nullptr, &wide, PadStrideInfo(2, 3, 0, 1), 2, ActivationLayerInfo(ActivationLayerInfo::ActivationFunction::RELU));
    scaled.configure(&mid, &normal, &b1, &var, &b1, &gamma, 0.5f, ActivationLayerInfo(ActivationLayerInfo::ActivationFunction::BOUNDED_RELU, 1.0f));
    unscaled.configure(&mid, &plain, &b1, &var);
    neighbours.configure(&mid, &local, NormalizationLayerInfo(NormType::CROSS_MAP, 5, 0.5f, 0.75f, 2.0f));
    joined.configure({&mid, &thin}, &both);
    NEGEMMConvolutionLayer holes;
    NEConvolutionLayer groups, other_groups;
    holes.configure(&src, &w1, &b1, &dilated, PadStrideInfo(1, 1, 2, 1), WeightsInfo(), Size2D(2, 1));
    groups.configure(&both, &w5, nullptr, &grouped, PadStrideInfo(1, 1, 1, 1), WeightsInfo(), Size2D(1, 1), ActivationLayerInfo(), false, 3);
    other_groups.configure(&both, &w5, nullptr, &strided_groups, PadStrideInfo(2, 1, 2, 3), WeightsInfo(), Size2D(3, 2), ActivationLayerInfo(ActivationLayerInfo::ActivationFunction::RELU), false, 3);
    small.configure(&narrow, &w1, &b1, &little, PadStrideInfo(1, 1, 1, 1));
    pool.configure(&mid, &pooled, PoolingLayerInfo(PoolingType::MAX, 3, PadStrideInfo(2, 2, 1, 1)));
    average.configure(&mid, &mean, PoolingLayerInfo(PoolingType::AVG, 3, PadStrideInfo(2, 2)));
    activation.configure(&mid, &active, ActivationLayerInfo(ActivationLayerInfo::ActivationFunction::TANH, 1.5f, 0.5f));
    connected.configure(&row, &fw, &fb, &scores);
    // Finalize memory manager
    mm->set_allocator(&allocator); // Set allocator to use
    mm->set_set_num_pools(1);      // Set number of pools to create in case parallel operations can be run
    mm->finalize();                // Finalize memory manager (Object lifetime check, Memory pool creation etc)
    for(auto *t : {&src, &w1, &b1, &w2, &b2, &row, &fw, &fb, &w3, &narrow, &w4, &b4, &var, &gamma, &w5}) fill(*t);
    for(auto *t : {&mid, &dst, &direct_out, &pooled, &mean, &active, &scores, &far, &little, &thin, &wide, &normal, &plain, &local, &both, &dilated, &grouped, &strided_groups}) t->allocator()->allocate();
    // Run layers (Memory will be recycled for internal buffers for conv1 and conv2
    for(int twice = 0; twice < 2; ++twice)
    {
        conv1.run();
        conv2.run();
        fft.run();
    }
    depthwise.run(), strided.run(), scaled.run(), unscaled.run(), neighbours.run(), joined.run();
    holes.run(), groups.run(), other_groups.run();
    small.run(), direct.run(), pool.run(), average.run(), activation.run(), connected.run();
    for(auto *t : {&mid, &dst, &direct_out, &pooled, &mean, &active, &scores, &far, &little, &thin, &wide, &normal, &plain, &local, &both, &dilated, &grouped, &strided_groups}) show(*t);
}
"""  # noqa: E501  # as above


@pytest.fixture(scope="module", params=MACHINES)
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, list[str]]:
    """The folder that `armc compute build` wrote for a machine, its compiler and its emulator."""
    compiler, emulator = MACHINES[request.param]
    need(compiler, *emulator[:1])
    out = tmp_path_factory.mktemp("layers") / "out"
    words = [f"arch={request.param}", "os=linux", "set_soname=0"]
    names = [f"NE{name}" for name in ("ConvolutionLayer", "DirectConvolutionLayer", "PoolingLayer", "ActivationLayer")]
    names += [f"NE{name}" for name in ("FFTConvolutionLayer", "DepthwiseConvolutionLayer", "BatchNormalizationLayer")]
    names += ["NENormalizationLayer", "NEDepthConcatenateLayer"]
    assert main(["compute", "build", *words, *names, "NEFullyConnectedLayer", "NESoftmaxLayer", "-o", str(out)]) == 0
    return out, compiler, emulator


def _program(machine: tuple[Path, str, list[str]], text: str, folder: Path) -> list[str]:
    out, compiler, emulator = machine
    (folder / "program.cpp").write_text(text)
    sources = [str(folder / "program.cpp"), str(out / "libarmillary_compute.a"), "-lpthread", "-lm"]
    subprocess.run([compiler, *FLAGS, f"-I{out}", *sources, "-o", str(folder / "program")], check=True)
    return [*emulator, str(folder / "program")]


def test_the_listing_of_iterators_prints_what_it_says(machine: tuple[Path, str, list[str]], tmp_path: Path) -> None:
    done = subprocess.run(_program(machine, ITERATORS, tmp_path), capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[1:4] == [
        " X = [start=0, end=4, step=1]",
        " Y = [start=0, end=3, step=1]",
        " Z = [start=0, end=2, step=1]",
    ]
    assert lines[4:6] == ["Setting item [0,0,0]", "Setting item [1,0,0]"] and lines[27] == "Setting item [3,2,1]"
    assert lines[28:30] == ["Copying one row starting from [0,0,0]", "Copying one row starting from [0,1,0]"]
    powers = np.exp(np.arange(4.0))
    np.testing.assert_allclose([float(v) for v in lines[34].split()], np.tile(powers / powers.sum(), 6), rtol=1e-5)


def _of_channels(mid: Array, kernels: tuple[Array, Array], numbers: tuple[Array, Array, Array]) -> list[Array]:
    """Depthwise convolutions, normalisations, and channels one after another."""
    (w, b), (mean, var, gamma) = kernels, (each[:, None, None] for each in numbers)
    thin = convolved(mid, w, PadStrideInfo(1, 1, 1, 2), Size2D(), 7) + b[:, None, None]
    wide = np.maximum(convolved(mid, w, PadStrideInfo(2, 3, 0, 1), Size2D(), 7), 0)
    normal = np.clip((mid - mean) / np.sqrt(var + 0.5) * gamma + mean, 0, 1)
    squares = np.pad(mid**2, ((0, 0), (2, 2), (0, 0), (0, 0)))
    sums = sum(squares[:, k : k + 7] for k in range(5))
    local = mid / (2 + 0.5 / 5 * sums) ** 0.75
    return [thin, wide, normal, (mid - mean) / np.sqrt(var + 0.001), local, np.concatenate([mid, thin], 1)]


@pytest.mark.parametrize("threads", [1, 2])
def test_layers_give_what_numpy_gives(machine: tuple[Path, str, list[str]], tmp_path: Path, threads: int) -> None:
    rng = np.random.default_rng(threads)
    shapes = [(1, 5, 11, 13), (7, 5, 3, 3), (7,), (18, 7, 5, 5), (18,), (50,), (10, 50), (10,)]
    shapes += [(6, 7, 7, 9), (1, 5, 11, 3), (14, 1, 5, 3), (14,), (7,), (7,), (12, 7, 3, 3)]
    given = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    given[-3] = np.abs(given[-3]) + 0.5
    src, w1, b1, w2, b2, row, fw, fb, w3, narrow, w4, b4, var, gamma, w5 = given
    command = [*_program(machine, LAYERS, tmp_path), str(threads)]
    done = subprocess.run(command, input=b"".join(v.tobytes() for v in given), capture_output=True, check=True)
    same, one = PadStrideInfo(1, 1, 1, 1), Size2D()
    mid = convolved(src.astype(float), w1, same, one, 1) + b1[:, None, None]
    dst = np.maximum(convolved(mid, w2, PadStrideInfo(2, 2, 2, 1), one, 1), 0)
    direct = convolved(mid, w2, PadStrideInfo(1, 1, 2, 2), one, 1) + b2[:, None, None]
    kinds = compute.PoolingType
    most = pooled(mid, compute.PoolingLayerInfo(kinds.MAX, 3, PadStrideInfo(2, 2, 1, 1)))
    mean = pooled(mid, compute.PoolingLayerInfo(kinds.AVG, 3, PadStrideInfo(2, 2)))
    far = np.maximum(convolved(mid, w3, PadStrideInfo(1, 1, 4, 3), one, 1), 0)
    little = convolved(narrow.astype(float), w1, same, one, 1) + b1[:, None, None]
    wanted = [mid, dst, direct, most, mean, 1.5 * np.tanh(0.5 * mid), fw.astype(float) @ row + fb, far, little]
    wanted += _of_channels(mid, (w4, b4), (b1, var, gamma))
    both, wide = wanted[-1], PadStrideInfo(1, 1, 2, 1)
    wanted.append(convolved(src.astype(float), w1, wide, Size2D(2, 1), 1) + b1[:, None, None])
    wanted.append(convolved(both, w5, same, one, 3))
    wanted.append(np.maximum(convolved(both, w5, PadStrideInfo(2, 1, 2, 3), Size2D(3, 2), 3), 0))
    values = np.frombuffer(done.stdout, np.float32)
    assert len(values) == sum(w.size for w in wanted)
    for want in wanted:
        np.testing.assert_allclose(values[: want.size], want.ravel(), rtol=1e-4, atol=2e-4)
        values = values[want.size :]


@pytest.mark.parametrize("arch", ["armv7a", "arm64-v8.2-a"])
def test_other_machines_get_a_library(arch: str, tmp_path: Path) -> None:
    words = [f"arch={arch}", "NEGEMM", "NESoftmaxLayer", "NEMedian3x3", "-o", str(tmp_path)]
    assert main(["compute", "build", *words]) == 0
    read = subprocess.run(["readelf", "-h", tmp_path / "libarmillary_compute.a"], capture_output=True, text=True)
    assert ("AArch64" if arch != "armv7a" else "ARM") in read.stdout


def test_sources_alone(tmp_path: Path) -> None:
    assert main(["compute", "build", "build=embed_only", "NEErode", "-o", str(tmp_path)]) == 0
    (header,) = tmp_path.iterdir()
    assert header.name == "armillary_compute_cl_kernels.hpp" and header.read_text().count("__kernel") == 3


def test_build_options_say_what_they_cannot_do() -> None:
    for word, message in (
        ("gles_compute=1", "no compute shaders"),
        ("arch=sparc", "there is no target for arch=sparc"),
        ("debug=yes", "is no flag"),
        ("speed=1", "there is no build option 'speed'"),
        ("os=bare_metal", "has no threads"),
        ("os=android", "arch is not said"),
        ("neon=0", "leave nothing to build"),
        ("build_dir=../x", "no sub-folder"),
    ):
        with pytest.raises(ConfigError, match=message):
            BuildOptions.parse([word])


def test_options_of_the_library(tmp_path: Path) -> None:
    """A soname, a log, checks of addresses, OpenCL sources in a folder; an example that is compiled with flags."""
    words = ["set_soname=1", "debug=1", "opencl=1", "embed_kernels=0", "cppthreads=0"]
    more = ["examples=1", "build_dir=here", "standalone=1", "extra_cxx_flags=-DWIDTH=64"]
    assert main(["compute", "build", *words, *more, "NEGaussian3x3", "NEConvolution3x3", "-o", str(tmp_path)]) == 0
    read = subprocess.run(["readelf", "-d", tmp_path / "libarmillary_compute.so"], capture_output=True, text=True)
    assert "libarmillary_compute.so.1" in read.stdout
    assert any(f.name.startswith("gaussian3x3_") for f in (tmp_path / "cl_kernels").iterdir())
    program = tmp_path / "here" / "neon_gaussian"
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout == "1,1 to 63,47\n" and "on 1 threads" in done.stderr
    dynamic = subprocess.run(["readelf", "-d", program], capture_output=True, text=True).stdout
    assert "NEEDED" not in dynamic and os.access(program, os.X_OK)
