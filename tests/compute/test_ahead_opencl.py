"""OpenCL classes in C++ on the device that is here: the text's listings, layers and graphs, against Python's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from opencl_device import needs_opencl
from test_ahead_graph import PROGRAM as GRAPH
from test_ahead_graph import STAGES, network, write_weights
from test_ahead_layers import FLAGS

from armillary import compute
from armillary.compute import BorderMode, Format, Image, InterpolationPolicy, PadStrideInfo, Size2D, TensorInfo
from armillary.compute.ahead.options import BuildOptions
from armillary.compute.graph import Target
from armillary.compute.runtime.ppm import PPMLoader, read_image, save_to_ppm
from tests.compute.nn_oracles import convolved

pytestmark = needs_opencl
NAMES = [
    "NEGaussian5x5",
    "NEMedian3x3",
    "NEScale",
    "NEConvolution3x3",
    "NEFastCorners",
    "NEConvolutionLayer",
    "NEDilate",
]
# The text's listings: events, interoperability, a kernel, functions that share memory.
PROGRAM = """
#include "armillary_compute.hpp"
using namespace arm_compute;
using namespace utils;
static std::string output_filename;
static void events(int argc, char **argv)
{
    CLImage      src{}, dst{}, tmp_scale_median{}, tmp_median_gauss{};
    CLScale      scale{};
    CLMedian3x3  median{};
    CLGaussian5x5 gauss{};
        PPMLoader     ppm;
        constexpr int scale_factor = 2;
        CLScheduler::get().default_init();
        if(argc < 2)
        {
            // Print help
            std::cout << "Usage: ./build/cl_events [input_image.ppm]\\n\\n";
            std::cout << "No input_image provided, creating a dummy 640x480 image\\n";
            // Create an empty grayscale 640x480 image
            src.allocator()->init(TensorInfo(640, 480, Format::U8));
        }
        else
        {
            ppm.open(argv[1]);
            ppm.init_image(src, Format::U8);
        }
        TensorInfo dst_info(src.info()->dimension(0) / scale_factor, src.info()->dimension(1) / scale_factor, Format::U8);
        // Configure the temporary and destination images
        dst.allocator()->init(dst_info);
        tmp_scale_median.allocator()->init(dst_info);
        tmp_median_gauss.allocator()->init(dst_info);
        //Configure the functions:
        scale.configure(&src, &tmp_scale_median, InterpolationPolicy::NEAREST_NEIGHBOR, BorderMode::REPLICATE);
        median.configure(&tmp_scale_median, &tmp_median_gauss, BorderMode::REPLICATE);
        gauss.configure(&tmp_median_gauss, &dst, BorderMode::REPLICATE);
        // Allocate all the images
        src.allocator()->allocate();
        dst.allocator()->allocate();
        tmp_scale_median.allocator()->allocate();
        tmp_median_gauss.allocator()->allocate();
        // Fill the input image with the content of the PPM image if a filename was provided:
        if(ppm.is_open())
        {
            ppm.fill_image(src);
            output_filename = std::string(argv[1]) + "_out.ppm";
        }
    scale.run();
    cl::Event scale_event = CLScheduler::get().enqueue_sync_event();
    median.run();
    gauss.run();
    scale_event.wait();
    CLScheduler::get().sync();
    if(!output_filename.empty()) save_to_ppm(dst, output_filename);
}
static void interoperability(int argc, char **argv)
{
    CLImage      src{}, scale_median{}, median_gauss{}, dst{};
    CLScale      scale{};
    NEMedian3x3  median{};
    CLGaussian5x5 gauss{};
        PPMLoader ppm;
        CLScheduler::get().default_init();
        if(argc < 2)
        {
            // Print help
            std::cout << "Usage: ./build/cl_convolution [input_image.ppm]\\n\\n";
            std::cout << "No input_image provided, creating a dummy 640x480 image\\n";
            // Create an empty grayscale 640x480 image
            src.allocator()->init(TensorInfo(640, 480, Format::U8));
        }
        else
        {
            ppm.open(argv[1]);
            ppm.init_image(src, Format::U8);
        }
        TensorInfo scale_median_info(TensorInfo(src.info()->dimension(0) / 2, src.info()->dimension(1) / 2, Format::U8));
        // Configure the temporary and destination images
        scale_median.allocator()->init(scale_median_info);
        median_gauss.allocator()->init(scale_median_info);
        dst.allocator()->init(scale_median_info);
        scale.configure(&src, &scale_median, InterpolationPolicy::NEAREST_NEIGHBOR, BorderMode::REPLICATE);
        median.configure(&scale_median, &median_gauss, BorderMode::REPLICATE);
        gauss.configure(&median_gauss, &dst, BorderMode::REPLICATE);
        // Allocate all the images
        src.allocator()->allocate();
        scale_median.allocator()->allocate();
        median_gauss.allocator()->allocate();
        dst.allocator()->allocate();
        // Fill the input image with the content of the PPM image if a filename was provided:
        if(ppm.is_open())
        {
            ppm.fill_image(src);
            const std::string output_filename = std::string(argv[1]) + "_out.ppm";
        }
    // Enqueue OpenCL kernel:
    scale.run();
    // Map the OpenCL images, for the processor's function
    scale_median.map();
    median_gauss.map();
    median.run();
    scale_median.unmap();
    median_gauss.unmap();
    gauss.run();
    CLScheduler::get().sync();
    if(argc >= 2) save_to_ppm(dst, std::string(argv[1]) + "_out.ppm");
}
static void a_kernel()
{
    using MyKernel = CLDilateKernel;
    CLImage a, b;
    CLImage *input = &a, *output = &b;
    const bool option0 = true;
// Initialize the CLScheduler with the default context and default command queue
CLScheduler::get().default_init();
cl::CommandQueue q = CLScheduler::get().queue();
a.allocator()->init(TensorInfo(5, 4, Format::U8)), b.allocator()->init(TensorInfo(5, 4, Format::U8));
//Create a kernel object:
MyKernel kernel;
// Initialize the kernel with the input/output and options you want to use:
kernel.configure( input, output, option0);
a.allocator()->allocate(), b.allocator()->allocate();
a.map();
for(int n = 0; n < 20; ++n) *a.ptr_to_element(Coordinates(n % 5, n / 5)) = uint8_t(n);
a.unmap();
// Retrieve the execution window of the kernel:
const Window& max_window = kernel.window();
// Run the whole kernel in the current thread:
kernel.run( q, max_window ); // Enqueue the kernel to process the full window on the default queue
// Wait for the processing to complete:
q.finish();
    b.map();
    for(int y = 1; y < 3; ++y)
        for(int x = 1; x < 4; ++x) std::cout << int(*b.ptr_to_element(Coordinates(x, y))) << ' ';
    b.unmap();
}
static void shared_memory()
{
    CLScheduler::get().default_init();
    CLTensor src, w1, b1, mid, w2, dst;
    auto floats = [](CLTensor &t, TensorShape shape) { t.allocator()->init(TensorInfo(shape, 1, DataType::F32)); };
    floats(src, TensorShape(13, 11, 5)), floats(w1, TensorShape(3, 3, 5, 7)), floats(b1, TensorShape(7));
    floats(w2, TensorShape(5, 5, 7, 18));
// Setup Memory Manager
CLBufferAllocator  allocator{};                                                       // Create an allocator to use for the backing memory allocation
auto lifetime_mgr  = std::make_shared<BlobLifetimeManager>();                         // Create Lifetime Manager
auto pool_mgr      = std::make_shared<PoolManager>();                                 // Create Pool Manager
auto mm            = std::make_shared<MemoryManagerOnDemand>(lifetime_mgr, pool_mgr); // Create Memory Manager
// Create two convolution layers and use the memory manager to manager their internal temporary buffers
CLConvolutionLayer conv1(mm), conv2(mm);
// Configure layers
conv1.configure(&src, &w1, &b1, &mid, PadStrideInfo(1, 1, 1, 1));
conv2.configure(&mid, &w2, nullptr, &dst, PadStrideInfo(2, 2, 2, 1));
// Finalize memory manager
mm->set_allocator(&allocator); // Set allocator to use
mm->set_set_num_pools(1);      // Set number of pools to create in case parallel operations can be run
mm->finalize();                // Finalize memory manager (Object lifetime check, Memory pool creation etc)
    for(auto *t : {&src, &w1, &b1, &w2})
    {
        t->allocator()->allocate();
        t->map();
        std::cin.read(reinterpret_cast<char *>(t->buffer()), long(t->info()->total_size()));
        t->unmap();
    }
    mid.allocator()->allocate(), dst.allocator()->allocate();
// Run layers (Memory will be recycled for internal buffers for conv1 and conv2
conv1.run();
conv2.run();
    dst.map();
    std::cout.write(reinterpret_cast<char *>(dst.buffer()), long(dst.info()->total_size()));
    dst.unmap();
}
int main(int argc, char **argv)
{
    const std::string which = argv[1];
    if(which == "events") events(argc - 1, argv + 1);
    if(which == "interoperability") interoperability(argc - 1, argv + 1);
    if(which == "kernel") a_kernel();
    if(which == "memory") shared_memory();
    if(which == "refusals")
    {
        CLScheduler::get().default_init();
        Image on_host;
        CLImage other;
        CLDilate dilate;
        CLErode erode;
        for(auto *t : {static_cast<Tensor *>(&on_host), static_cast<Tensor *>(&other)})
            t->allocator()->init(TensorInfo(40, 40, Format::U8)), t->allocator()->allocate();
        try { dilate.configure(&on_host, &other, BorderMode::UNDEFINED), dilate.run(); }
        catch(const std::exception &e) { std::cout << e.what() << '\\n'; }
        try { erode.configure(&on_host, &other, BorderMode::UNDEFINED); }
        catch(const std::exception &e) { std::cout << e.what() << '\\n'; }
    }
}
"""  # noqa: E501  # as the text has it


def _program(folder: Path, out: Path, text: str) -> str:
    (folder / "p.cpp").write_text(text)
    libraries = [str(out / "libarmillary_compute.a"), "-lpthread", "-ldl", "-lm"]
    subprocess.run(["g++", *FLAGS, f"-I{out}", str(folder / "p.cpp"), *libraries, "-o", str(folder / "p")], check=True)
    return str(folder / "p")


@pytest.fixture(scope="module")
def listings(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The listings, with kernels in the library."""
    folder = tmp_path_factory.mktemp("opencl")
    return _program(folder, compute.build(NAMES, out=folder / "out", options=BuildOptions(opencl=True)), PROGRAM)


def _printed(program: str, *words: str, given: bytes = b"") -> bytes:
    return subprocess.run([program, *words], input=given, capture_output=True, check=True).stdout


@pytest.mark.parametrize("which", ["events", "interoperability"])
def test_listings_of_pictures_give_what_python_gives(listings: str, which: str, tmp_path: Path) -> None:
    picture, ours = tmp_path / "in.ppm", tmp_path / "ours.ppm"
    pixels = np.random.default_rng(2).integers(0, 256, (50, 66, 3)).astype(np.uint8)
    picture.write_bytes(b"P6\n66 50\n255\n" + pixels.tobytes())
    assert _printed(listings, which, str(picture)) == b""
    assert b"creating a dummy 640x480 image" in _printed(listings, which)
    source, half, smooth, result = images = [Image() for _ in range(4)]
    loader, scale, median, gauss = PPMLoader(), compute.NEScale(), compute.NEMedian3x3(), compute.NEGaussian5x5()
    loader.open(picture)
    loader.init_image(source, Format.U8)
    for image in images[1:]:
        image.allocator().init(TensorInfo(33, 25, Format.U8))
    scale.configure(source, half, InterpolationPolicy.NEAREST_NEIGHBOR, BorderMode.REPLICATE)
    median.configure(half, smooth, BorderMode.REPLICATE)
    gauss.configure(smooth, result, BorderMode.REPLICATE)
    for image in images:
        image.allocator().allocate()
    loader.fill_image(source)
    for function in (scale, median, gauss):
        function.run()
    save_to_ppm(result, ours)
    assert np.array_equal(read_image(ours), read_image(Path(f"{picture}_out.ppm")))


def test_a_kernel_is_enqueued(listings: str) -> None:
    assert _printed(listings, "kernel") == b"12 13 14 17 18 19 "


def test_layers_share_memory_of_the_device(listings: str) -> None:
    rng = np.random.default_rng(3)
    shapes = [(1, 5, 11, 13), (7, 5, 3, 3), (7,), (18, 7, 5, 5)]
    src, w1, b1, w2 = given = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    found = np.frombuffer(_printed(listings, "memory", given=b"".join(v.tobytes() for v in given)), np.float32)
    mid = convolved(src.astype(float), w1, PadStrideInfo(1, 1, 1, 1), Size2D(), 1) + b1[:, None, None]
    want = convolved(mid, w2, PadStrideInfo(2, 2, 2, 1), Size2D(), 1)
    np.testing.assert_allclose(found, want.ravel(), rtol=1e-4, atol=2e-4)


def test_what_a_device_cannot_take_is_refused(listings: str) -> None:
    host, unknown = _printed(listings, "refusals").decode().splitlines()
    assert host == "dilate/UNDEFINED: wanted tensors of a device: CLTensor, CLImage"
    assert unknown == "the kernel erode was not built: name its function to armillary.compute.build"


def test_a_graph_on_a_device_prints_what_python_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_weights(tmp_path)
    graph = network(tmp_path, "softmax")
    out = compute.build(
        network(tmp_path, "softmax", Target.CL), out=tmp_path / "out", options=BuildOptions(opencl=True)
    )
    program = _program(tmp_path, out, GRAPH.replace("::TARGET;", "::OPENCL;"))
    refusal, *scores = _printed(program, f"{tmp_path}/").decode().splitlines()
    graph.run()
    assert refusal == "the kernel does not fit the image"
    assert scores == [*capsys.readouterr().out.splitlines(), STAGES]


def test_sources_in_a_folder_are_read(tmp_path: Path) -> None:
    options = BuildOptions(opencl=True, embed_kernels=False)
    out = compute.build(["NEDilate", "NEGaussian5x5", "NEMedian3x3", "NEScale"], out=tmp_path / "out", options=options)
    sources = list((out / "cl_kernels").iterdir())
    assert len(sources) > 3 and 'R"opencl' not in (out / "armillary_compute_cl_kernels.hpp").read_text()
    for source in sources:
        if source.name.startswith("dilate"):
            source.write_text(source.read_text() + "\n#error changed\n")
    queue = "cl::CommandQueue q = CLScheduler::get().queue();"
    program = _program(tmp_path, out, PROGRAM.replace(queue, f"{queue}\nCLKernelLibrary::get().init();"))
    done = subprocess.run([program, "kernel"], cwd=out, capture_output=True, text=True)
    assert "dilate/UNDEFINED does not build" in done.stderr and "changed" in done.stderr
    elsewhere = subprocess.run([program, "kernel"], cwd=tmp_path, capture_output=True, text=True)
    assert "./cl_kernels has no kernel dilate_" in elsewhere.stderr


COUNTING = """
#include "armillary_compute.hpp"
using namespace arm_compute;
int main()
{
    CLScheduler::get().default_init();
    CLImage image, shorts;
    image.allocator()->init(TensorInfo(37, 29, Format::U8));
    shorts.allocator()->init(TensorInfo(37, 29, Format::S16));
    for(auto *t : {&image, &shorts}) t->info()->extend_padding(PaddingSize{1, 2, 3, 4});
    Distribution1D bins(16, 10, 200);
    float mean = 0, deviation = 0;
    int32_t low = 0, high = 0;
    uint32_t lows = 0, highs = 0;
    Coordinates2DArray places(100);
    CLPyramid pyramid;
    pyramid.init(3, SCALE_PYRAMID_HALF, 37, 29);
    CLHistogram histogram;
    CLMeanStdDev moments;
    CLMinMaxLocation extremes;
    CLGaussianPyramidHalf halves;
    histogram.configure(&image, &bins);
    moments.configure(&image, &mean, &deviation);
    extremes.configure(&shorts, &low, &high, &places, nullptr, &lows, &highs);
    halves.configure(&image, &pyramid, BorderMode::REPLICATE);
    pyramid.allocate();
    for(auto *t : {&image, &shorts})
    {
        t->allocator()->allocate(), t->map();
        for(int y = 0; y < 29; y++) std::cin.read(reinterpret_cast<char *>(t->ptr_to_element(Coordinates(0, y))), 37 * long(t->info()->element_size()));
        t->unmap();
    }
    for(int twice = 0; twice < 2; twice++) histogram.run(), moments.run(), extremes.run(), halves.run();
    for(size_t n = 0; n < bins.num_bins(); n++) std::cout << bins.buffer()[n] << ' ';
    std::cout << '\\n' << mean << ' ' << deviation << ' ' << low << ' ' << high << ' ' << lows << ' ' << highs << '\\n';
    for(size_t n = 0; n < places.num_values(); n++) std::cout << places.at(n).x << ' ' << places.at(n).y << ' ';
    std::cout << '\\n';
    for(size_t level = 0; level < 3; level++)
    {
        auto *t = pyramid.get_pyramid_level(level);
        t->map();
        for(size_t y = 0; y < t->info()->dimension(1); y++)
            for(size_t x = 0; x < t->info()->dimension(0); x++) std::cout << int(*t->ptr_to_element(Coordinates(int(x), int(y)))) << ' ';
        t->unmap();
    }
}
"""  # noqa: E501  # lines of C++


def test_counts_and_pyramids_on_a_device_are_those_of_the_host(tmp_path: Path) -> None:
    names = ["NEHistogram", "NEMeanStdDev", "NEMinMaxLocation", "NEGaussianPyramidHalf"]
    program = _program(
        tmp_path, compute.build(names, out=tmp_path / "out", options=BuildOptions(opencl=True)), COUNTING
    )
    rng = np.random.default_rng(4)
    pixels, shorts = rng.integers(0, 256, (29, 37), np.uint8), rng.integers(-50, 50, (29, 37)).astype(np.int16)
    lines = _printed(program, given=pixels.tobytes() + shorts.tobytes()).splitlines()
    counts, numbers, places, levels = ([float(v) for v in line.split()] for line in lines)
    inside = pixels[(pixels >= 10) & (pixels < 210)].astype(int)
    assert counts == np.bincount((inside - 10) * 16 // 200, minlength=16).tolist()
    ends = [int(shorts.min()), int(shorts.max())]
    np.testing.assert_allclose(numbers[:2], [pixels.mean(), pixels.std()], rtol=1e-5)
    assert numbers[2:] == [*ends, *((shorts == end).sum() for end in ends)]
    y, x = np.nonzero(shorts == ends[0])
    assert places == np.stack([x, y], 1).ravel().tolist()
    source, pyramid, halves = Image(), compute.Pyramid(), compute.NEGaussianPyramidHalf()
    source.allocator().init(TensorInfo(37, 29, Format.U8))
    pyramid.init(3, 0.5, 37, 29, Format.U8)
    halves.configure(source, pyramid, BorderMode.REPLICATE)
    pyramid.allocate()
    source.allocator().allocate()
    source.write(pixels)
    halves.run()
    assert levels == np.concatenate([pyramid.get_pyramid_level(n).array().ravel() for n in range(3)]).tolist()


EDGES = """
#include "armillary_compute.hpp"
using namespace arm_compute;
int main()
{
    CLScheduler::get().default_init();
    CLImage image, even, table, edges[3];
    for(auto *t : {&image, &even, &table, &edges[0], &edges[1], &edges[2]}) t->allocator()->init(TensorInfo(61, 47, Format::U8));
    CLLut lut;
    lut.map();
    for(int n = 0; n < 256; n++) lut.buffer()[n] = uint8_t(7 * n + 3);
    lut.unmap();
    CLEqualizeHistogram equalise;
    CLTableLookup lookup;
    CLCannyEdge canny[3];
    equalise.configure(&image, &even);
    lookup.configure(&image, &lut, &table);
    for(int n = 0; n < 3; n++) canny[n].configure(&image, &edges[n], 120, 40, n == 1 ? 5 : 3, n == 2 ? 2 : 1, BorderMode(n), 70);
    for(auto *t : {&image, &even, &table, &edges[0], &edges[1], &edges[2]}) t->allocator()->allocate();
    image.map();
    for(int y = 0; y < 47; y++) std::cin.read((char *)image.ptr_to_element(Coordinates(0, y)), 61);
    image.unmap();
    for(int twice = 0; twice < 2; twice++)
    {
        equalise.run(), lookup.run();
        for(auto &each : canny) each.run();
    }
    for(auto *t : {&even, &table, &edges[0], &edges[1], &edges[2]})
    {
        t->map();
        for(int y = 0; y < 47; y++) std::cout.write((char *)t->ptr_to_element(Coordinates(0, y)), 61);
        t->unmap();
    }
}
"""  # noqa: E501  # lines of C++


def test_edges_and_tables_on_a_device_are_those_of_the_host(tmp_path: Path) -> None:
    names = ["NECannyEdge", "NEEqualizeHistogram", "NETableLookup"]
    program = _program(tmp_path, compute.build(names, out=tmp_path / "out", options=BuildOptions(opencl=True)), EDGES)
    rng = np.random.default_rng(5)
    hills = np.add.outer(np.sin(np.arange(47) / 4), np.cos(np.arange(61) / 6)) * 55 + 128
    pixels = np.clip(hills + rng.integers(-12, 12, (47, 61)), 0, 255).astype(np.uint8)
    found = np.frombuffer(_printed(program, given=pixels.tobytes()), np.uint8).reshape(5, 47, 61)
    source, even, *edges = images = [Image() for _ in range(5)]
    for image in images:
        image.allocator().init(TensorInfo(61, 47, Format.U8))
    equalise, canny = compute.NEEqualizeHistogram(), [compute.NECannyEdge() for _ in edges]
    equalise.configure(source, even)
    for n, (function, image) in enumerate(zip(canny, edges, strict=True)):
        mode = (BorderMode.UNDEFINED, BorderMode.CONSTANT, BorderMode.REPLICATE)[n]
        function.configure(source, image, 120, 40, 5 if n == 1 else 3, 2 if n == 2 else 1, mode, 70)
    for image in images:
        image.allocator().allocate()
    source.write(pixels)
    for each in (equalise, *canny):
        each.run()
    assert (found[0] == even.read()).all() and (found[1] == (7 * pixels.astype(int) + 3) % 256).all()
    for n, image in enumerate(edges):
        wanted = image.read()
        assert (found[2 + n] == wanted).all() and 30 < (wanted == 255).sum() < 1500, n


LOOPS = """
#include "armillary_compute.hpp"
using namespace arm_compute;
template <class Picture> static void fill(Picture &image, int shift)
{
    image.allocator()->allocate(), image.map();
    for(int y = 0; y < 80; y++)
        for(int x = 0; x < 96; x++)
            *image.ptr_to_element(Coordinates(x, y)) = uint8_t(128 + 60 * std::sin((x + shift) / 5.0) + 50 * std::cos((y - shift) / 6.0));
    image.unmap();
}
template <class Picture, class Levels, class Halves, class Flow, class Describe, class Detect> static std::vector<double> values()
{
    Picture images[2];
    Levels pyramids[2];
    Halves halves[2];
    KeyPointArray before(20), after(20);
    Flow flow;
    for(int k = 0; k < 2; k++) images[k].allocator()->init(TensorInfo(96, 80, Format::U8)), pyramids[k].init(3, SCALE_PYRAMID_HALF, 96, 80);
    for(int k = 0; k < 2; k++) halves[k].configure(&images[k], &pyramids[k], BorderMode::REPLICATE);
    for(int k = 0; k < 9; k++) before.push_back({20 + 7 * k, 15 + 5 * k, 0, 1});
    flow.configure(&pyramids[0], &pyramids[1], &before, &before, &after, Termination::TERM_CRITERIA_BOTH, 0.01f, 10, 7, false, BorderMode::REPLICATE);
    const HOGInfo info(Size2D(8, 8), Size2D(16, 16), Size2D(32, 48), Size2D(8, 8), 9);
    MultiHOG models(1);
    models.model(0)->init(info);
    for(size_t n = 0; n < info.descriptor_size(); n++) models.model(0)->descriptor()[n] = float(n % 7) - 3;
    Picture descriptors;
    descriptors.allocator()->init(TensorInfo(info, 96, 80));
    Describe describe;
    describe.configure(&images[0], &descriptors, models.model(0), BorderMode::REPLICATE);
    DetectionWindowArray windows;
    Size2DArray strides;
    strides.push_back(Size2D(8, 8));
    Detect detect;
    detect.configure(&images[0], &models, &windows, &strides, BorderMode::REPLICATE, 0, -1000.0f);
    descriptors.allocator()->allocate();
    for(int k = 0; k < 2; k++) pyramids[k].allocate(), fill(images[k], 2 * k), halves[k].run();
    for(int twice = 0; twice < 2; twice++) flow.run();
    std::vector<double> all;
    for(size_t n = 0; n < after.num_values(); n++) all.insert(all.end(), {double(after.at(n).x), double(after.at(n).y), double(after.at(n).tracking_status)});
    for(int twice = 0; twice < 2; twice++) describe.run(), detect.run();
    descriptors.map();
    const float *first = (const float *)descriptors.ptr_to_element(Coordinates());
    all.insert(all.end(), first, first + info.num_bins_per_block() * 11 * 9);
    descriptors.unmap();
    for(size_t n = 0; n < windows.num_values(); n++) all.insert(all.end(), {double(windows.at(n).x), double(windows.at(n).y), double(windows.at(n).score)});
    return all;
}
int main()
{
    CLScheduler::get().default_init();
    const auto host = values<Image, Pyramid, NEGaussianPyramidHalf, NEOpticalFlow, NEHOGDescriptor, NEHOGMultiDetection>();
    const auto device = values<CLImage, CLPyramid, CLGaussianPyramidHalf, CLOpticalFlow, CLHOGDescriptor, CLHOGMultiDetection>();
    double most = host.size() == device.size() ? 0 : 1e9, sum = 0;
    for(size_t n = 0; n < host.size(); n++) most = std::max(most, std::fabs(host[n] - device.at(n))), sum += std::fabs(host[n]);
    std::cout << host.size() << ' ' << most << ' ' << sum;
}
"""  # noqa: E501  # lines of C++


def test_flow_and_histograms_of_gradients_on_a_device_are_those_of_the_host(tmp_path: Path) -> None:
    names = ["NEGaussianPyramidHalf", "NEOpticalFlow", "NEHOGDescriptor", "NEHOGMultiDetection"]
    program = _program(tmp_path, compute.build(names, out=tmp_path / "out", options=BuildOptions(opencl=True)), LOOPS)
    count, most, total = map(float, _printed(program).split())
    assert count == 9 * 3 + 36 * 11 * 9 + 32 * 3 and most < 1e-4 and total > 2000
