"""Listings of the text that no other program of the tests has: kernels, threads, schedulers, elements, a layer's run.

In: a library with one function. Out: what a program with the text's lines, as they are printed, says here and emulated.
Invariant: lines between `// as printed` and `// to here` are the text's own.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from emulators import need, qemu_aarch64

from armillary.cli.main import main

MACHINES = {"x86_64": ("g++", []), "arm64-v8a": ("aarch64-linux-gnu-g++", qemu_aarch64())}
FLAGS = ["-std=c++11", "-O1", "-Wall", "-Wextra", "-Werror"]
PROGRAM = """
#include "armillary_compute.hpp"
#include <iostream>
#include <system_error>
using namespace arm_compute;
struct Thread
{
    void start(IKernel *kernel, const Window &win, const ThreadInfo &info)
    {
        _thread = std::thread([=] { kernel->run(win, info); });
    }
    void wait() { _thread.join(); }
    std::thread _thread;
};
class MyScheduler : public IScheduler
{
public:
    void set_num_threads(unsigned int num_threads) override { _num_threads = num_threads, _threads.resize(num_threads - 1); }
    unsigned int num_threads() const override { return _num_threads; }
    void schedule(IKernel *kernel, unsigned int split_dimension) override
    {
// as printed
    ThreadInfo info;
    info.cpu_info = _info;
    const Window      &max_window     = kernel->window();
    const unsigned int num_iterations = max_window.num_iterations(split_dimension);
    info.num_threads                  = std::min(num_iterations, _num_threads);
    if(num_iterations == 0)
    {
        return;
    }
    if(!kernel->is_parallelisable() || info.num_threads == 1)
    {
        kernel->run(max_window, info);
    }
    else
    {
        int  t         = 0;
        auto thread_it = _threads.begin();
        for(; t < info.num_threads - 1; ++t, ++thread_it)
        {
            Window win     = max_window.split_window(split_dimension, t, info.num_threads);
            info.thread_id = t;
            thread_it->start(kernel, win, info);
        }
        // Run last part on main thread
        Window win     = max_window.split_window(split_dimension, t, info.num_threads);
        info.thread_id = t;
        kernel->run(win, info);
        try
        {
            for(auto &thread : _threads)
            {
                thread.wait();
            }
        }
        catch(const std::system_error &e)
        {
            std::cerr << "Caught system_error with code " << e.code() << " meaning " << e.what() << '\\n';
        }
    }
// to here
    }

private:
    CPUInfo _info{};
    unsigned int _num_threads{ 1 };
    std::vector<Thread> _threads{};
};
struct Rule
{
    static ConvolutionMethod get_convolution_method(const ITensorInfo *input, const ITensorInfo *weights, const ITensorInfo *biases, const ITensorInfo *output, const PadStrideInfo &conv_info, const WeightsInfo &weights_info);
};
// as printed, but for the class
ConvolutionMethod Rule::get_convolution_method(const ITensorInfo *input, const ITensorInfo *weights, const ITensorInfo *biases, const ITensorInfo *output, const PadStrideInfo &conv_info,
                                                             const WeightsInfo &weights_info)
{
    ARM_COMPUTE_UNUSED(output);
    ARM_COMPUTE_UNUSED(weights_info);
    if((input->data_type() == DataType::F32) && (weights->dimension(0) == 3) && (weights->dimension(1) == 3) && (weights->num_dimensions() <= 4) && (conv_info.stride().first == 1)
       && (conv_info.stride().second == 1) && (biases != nullptr))
    {
        return ConvolutionMethod::WINOGRAD;
    }
    return ConvolutionMethod::GEMM;
}
// to here
class Named : public INEKernel
{
public:
    Named(const char *name) : _name(name) { configure(Window()); }
    bool is_parallelisable() const override { return false; }
    void run(const Window &, const ThreadInfo &) override { std::cout << _name << ' '; }

private:
    const char *_name;
};
namespace printed // beside the library's own
{
class NEWinogradLayer
{
public:
    NEWinogradLayer(Tensor &image, Tensor &turned, Tensor &back)
        : _batched_gemm_kernel(new Named("products")), _transform_input_kernel(new Named("input")),
          _transform_output_kernel(new Named("output")), _transform_weights_kernel(new Named("weights"))
    {
        _permute_input.configure(&image, &turned, PermutationVector{ 2U, 0U, 1U });
        _permute_weights.configure(&image, &turned, PermutationVector{ 2U, 0U, 1U });
        _permute_output.configure(&turned, &back, PermutationVector{ 1U, 2U, 0U });
    }
    void run();

private:
// as printed
    std::unique_ptr<INEKernel> _batched_gemm_kernel;
    std::unique_ptr<INEKernel> _transform_input_kernel;
    std::unique_ptr<INEKernel> _transform_output_kernel;
    std::unique_ptr<INEKernel> _transform_weights_kernel;

    CPPPermute     _permute_input;
    CPPPermute     _permute_weights;
    CPPPermute     _permute_output;
// to here
    MemoryGroup _memory_group{};
    bool _reshaped_kernel{ false };
};
// as printed
void NEWinogradLayer::run()
{
    _memory_group.acquire();
    if(!_reshaped_kernel)
    {
        _reshaped_kernel = true;
        _permute_weights.run();
        NEScheduler::get().schedule(_transform_weights_kernel.get(), Window::DimX);
    }
    //Bring channels to the front as Winograd code expects the tensor to be in the format NHWC
    _permute_input.run();

    // Transform input tensor to the winograd domain
    NEScheduler::get().schedule(_transform_input_kernel.get(), Window::DimX);

    //Run 16 GEMMs in multiple threads, each kernel runs one or more GEMMs
    NEScheduler::get().schedule(_batched_gemm_kernel.get(), Window::DimX);

    // Transform output tensor to the spatial domain
    NEScheduler::get().schedule(_transform_output_kernel.get(), Window::DimX);

    // Reorder the convoluted output to ACL's ordering NCHW
    _permute_output.run();
    _memory_group.release();
}
// to here
} // namespace printed
int main()
{
    Image src, once, split;
    for(auto *image : { &src, &once, &split }) image->allocator()->init(TensorInfo(64, 48, Format::U8));
    NEGaussian3x3Kernel kernel;
    kernel.configure(&src, &once, true);
    NEGaussian3x3 function;
    function.configure(&src, &split, BorderMode::UNDEFINED);
    for(auto *image : { &src, &once, &split }) image->allocator()->allocate();
    for(int y = 0; y < 48; ++y)
        for(int x = 0; x < 64; ++x) *src.ptr_to_element(Coordinates(x, y)) = uint8_t(3 * x + 7 * y);
    {
// as printed
// Retrieve the execution window of the kernel:
const Window& max_window = kernel.window();
// Run the whole kernel in the current thread:
kernel.run( max_window ); // Run the kernel on the full window
// to here
    }
    auto mine = std::make_shared<MyScheduler>();
    mine->set_num_threads(4);
    Scheduler::set(mine);
    function.run();
    int differences = 0;
    for(int y = 1; y < 47; ++y)
        for(int x = 1; x < 63; ++x) differences += *once.ptr_to_element(Coordinates(x, y)) != *split.ptr_to_element(Coordinates(x, y));
    std::cout << differences << ' ' << (Scheduler::get_type() == Scheduler::Type::CUSTOM) << (&Scheduler::get() == mine.get());
    Scheduler::set(Scheduler::Type::ST);
    std::cout << (Scheduler::get_type() == Scheduler::Type::ST) << Scheduler::is_available(Scheduler::Type::CPP) << '\\n';
    Tensor input, turned, back;
    input.allocator()->init(TensorInfo(TensorShape(4U, 3U, 2U), 1, DataType::F32));
    printed::NEWinogradLayer layer(input, turned, back);
    for(auto *tensor : { &input, &turned, &back }) tensor->allocator()->allocate();
    for(int n = 0; n < 24; ++n) *reinterpret_cast<float *>(input.ptr_to_element(Coordinates(n % 4, n / 4 % 3, n / 12))) = float(n);
    layer.run();
    layer.run();
    int x = 1, y = 2;
    {
        Tensor &input = back;
// as printed
float value = *reinterpret_cast<float*>(input.buffer() + input.info()->offset_element_in_bytes(Coordinates(x,y)));
// to here
        std::cout << value << ' ' << turned.info()->dimension(0) << '\\n';
    }
    TensorInfo image(TensorShape(8U, 8U, 3U), 1, DataType::F32), biases(TensorShape(4U), 1, DataType::F32);
    for(unsigned int side : { 1U, 3U, 5U })
        for(unsigned int stride : { 1U, 2U })
            for(const TensorInfo *b : { &biases, (TensorInfo *)nullptr })
            {
                TensorInfo kernels(TensorShape(side, side, 3U, 4U), 1, DataType::F32);
                const PadStrideInfo moves(stride, stride, 0, 0, DimensionRoundingType::FLOOR);
                const auto ours = NEConvolutionLayer::get_convolution_method(&image, &kernels, b, &image, moves, WeightsInfo());
                std::cout << (ours == Rule::get_convolution_method(&image, &kernels, b, &image, moves, WeightsInfo()));
                std::cout << (ours == ConvolutionMethod::WINOGRAD) << ' ';
            }
    std::cout << '\\n';
}
"""  # noqa: E501  # as the text has it


@pytest.mark.parametrize("arch", MACHINES)
def test_listings_compile_as_printed_and_say_what_the_text_says(arch: str, tmp_path: Path) -> None:
    compiler, emulator = MACHINES[arch]
    need(compiler, *emulator[:1])
    out = tmp_path / "out"
    assert main(["compute", "build", f"arch={arch}", "os=linux", "set_soname=0", "NEGaussian3x3", "-o", str(out)]) == 0
    (tmp_path / "program.cpp").write_text(PROGRAM)
    sources = [str(tmp_path / "program.cpp"), str(out / "libarmillary_compute.a"), "-lpthread"]
    command = [compiler, *FLAGS, f"-I{out}", *sources, "-o", str(tmp_path / "program")]
    subprocess.run(command, check=True)
    done = subprocess.run([*emulator, str(tmp_path / "program")], capture_output=True, text=True, check=True)
    assert done.stderr == "", "no system_error is caught"
    kernels, layer, rule = done.stdout.splitlines()
    assert kernels == "0 1111"  # split over four threads as in one, by the scheduler that was set, then by another one
    assert layer == "weights input products output input products output 9 2"  # weights once; NHWC and back
    assert rule == "10 10 10 10 11 10 10 10 10 10 10 10 "  # Winograd for 3x3, strides of 1 and biases alone
