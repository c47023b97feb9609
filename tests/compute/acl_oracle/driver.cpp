// Runs functions of Arm Compute Library 20.08 on inputs from standard input and writes what they give.
//
// In, for each case: NAME TENSORS PARAMETERS, then for each tensor a line "KIND RANK SIZES... SCALE OFFSET COUNT SCALES..."
// (KIND: a format; t and a data type; n and a data type: in NHWC), a line of the parameters, and the bytes of all tensors (planes one after another, no padding). Out: a line "RESULTS X Y W H" (the
// valid region of the last tensor), the results as doubles, and the bytes of all tensors again. Text is ASCII, bytes are
// raw. "error TEXT" in place of results: the library refused.
//
// A chain is one case: its name is "FUNCTION@N,N+FUNCTION@N,N" (numbers of tensors), its parameters are those of each
// function behind their count; the results are the valid regions (X Y W H) of all tensors, then those of the last function.
#include "arm_compute/core/CPP/ICPPKernel.h"
#include "arm_compute/runtime/CPP/CPPFunctions.h"
#include "arm_compute/core/Types.h"
#include "arm_compute/runtime/Distribution1D.h"
#include "arm_compute/runtime/BlobLifetimeManager.h"
#include "arm_compute/runtime/HOG.h"
#include "arm_compute/runtime/MultiHOG.h"
#include "arm_compute/runtime/Lut.h"
#include "arm_compute/runtime/MemoryGroup.h"
#include "arm_compute/runtime/MemoryManagerOnDemand.h"
#include "arm_compute/runtime/MultiImage.h"
#include "arm_compute/runtime/NEON/NEFunctions.h"
#include "arm_compute/runtime/OffsetLifetimeManager.h"
#include "arm_compute/runtime/PoolManager.h"
#include "arm_compute/runtime/Pyramid.h"
#include "arm_compute/runtime/IScheduler.h"
#include "arm_compute/runtime/Scheduler.h"
#include "arm_compute/runtime/Tensor.h"
#include <array>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

using namespace arm_compute;

namespace
{
const std::map<std::string, Format> FORMATS = {
    {"U8", Format::U8}, {"S16", Format::S16}, {"U16", Format::U16}, {"S32", Format::S32}, {"U32", Format::U32},
    {"F32", Format::F32}, {"RGB888", Format::RGB888}, {"RGBA8888", Format::RGBA8888}, {"UV88", Format::UV88},
    {"YUYV422", Format::YUYV422}, {"UYVY422", Format::UYVY422}, {"NV12", Format::NV12}, {"NV21", Format::NV21},
    {"IYUV", Format::IYUV}, {"YUV444", Format::YUV444}};
const std::map<std::string, DataType> TYPES = {
    {"F32", DataType::F32}, {"QASYMM8", DataType::QASYMM8}, {"QASYMM8_SIGNED", DataType::QASYMM8_SIGNED},
    {"QSYMM8_PER_CHANNEL", DataType::QSYMM8_PER_CHANNEL}, {"S32", DataType::S32}, {"U8", DataType::U8}, {"F16", DataType::F16}};

// The library's own schedulers take the number of threads from /proc/cpuinfo, which under an emulator has no parts.
class OneThread final : public IScheduler
{
public:
    void set_num_threads(unsigned int) override {}
    unsigned int num_threads() const override { return 1; }
    void schedule(ICPPKernel *kernel, const Hints &) override
    {
        ThreadInfo info;
        info.cpu_info = &cpu_info();
        kernel->run(kernel->window(), info);
    }
    void schedule_op(ICPPKernel *kernel, const Hints &, ITensorPack &tensors) override
    {
        ThreadInfo info;
        info.cpu_info = &cpu_info();
        kernel->run_op(tensors, kernel->window(), info);
    }

protected:
    void run_workloads(std::vector<Workload> &workloads) override
    {
        ThreadInfo info;
        info.cpu_info = &cpu_info();
        for(auto &work : workloads) work(info);
    }
};

struct Given
{
    std::unique_ptr<Tensor> tensor;
    std::unique_ptr<MultiImage> multi;
    int planes = 0;

    std::vector<ITensor *> all()
    {
        std::vector<ITensor *> found;
        if(tensor) found.push_back(tensor.get());
        for(int n = 0; multi && n < planes; ++n) found.push_back(multi->plane(n));
        return found;
    }
};

struct Case
{
    std::string name;
    std::vector<Given> tensors;
    std::vector<double> params, results;
    std::function<void()> run, fetch, after_allocate;
    std::vector<std::shared_ptr<void>> kept;
    std::vector<size_t> chosen; // which tensors a function of a chain takes; empty: all

    size_t count() const { return chosen.empty() ? tensors.size() : chosen.size(); }
    size_t at(size_t n) const { return chosen.empty() ? n : chosen.at(n); }
    Tensor *t(size_t n) { return tensors.at(at(n)).tensor.get(); }
    MultiImage *m(size_t n) { return tensors.at(at(n)).multi.get(); }
    double p(size_t n) { return params.at(n); }
    BorderMode border(size_t n) { return static_cast<BorderMode>(static_cast<int>(p(n))); }
    uint8_t constant(size_t n) { return static_cast<uint8_t>(p(n)); }
    std::vector<int16_t> matrix(size_t from) { return std::vector<int16_t>(params.begin() + from, params.end()); }
    template <typename F, typename... A> void use(A &&... args)
    {
        auto f = std::make_shared<F>();
        f->configure(std::forward<A>(args)...);
        run = [f] { f->run(); };
        kept.push_back(f);
    }
};

// The bytes of a plane without padding, in or out.
void each_row(ITensor *tensor, const std::function<void(uint8_t *, size_t)> &action)
{
    Window window;
    window.use_tensor_dimensions(tensor->info()->tensor_shape(), Window::DimY);
    const size_t bytes = tensor->info()->dimension(0) * tensor->info()->element_size();
    execute_window_loop(window, [&](const Coordinates &id) { action(tensor->ptr_to_element(id), bytes); });
}

using Rule = std::function<void(Case &)>;
#define FILTER(F) {#F, [](Case &c) { c.use<F>(c.t(0), c.t(1), c.border(0), c.constant(1)); }}
#define GRADIENT(F) {#F, [](Case &c) { c.use<F>(c.t(0), c.t(1), c.t(2), c.border(0), c.constant(1)); }}
#define MATRIX(F) {#F, [](Case &c) { auto v = c.matrix(3); c.use<F>(c.t(0), c.t(1), v.data(), uint32_t(c.p(2)), c.border(0), c.constant(1)); }}
#define PAIR(F) {#F, [](Case &c) { c.use<F>(c.t(0), c.t(1), c.t(2)); }}
#define POLICY(n) static_cast<InterpolationPolicy>(static_cast<int>(c.p(n)))

template <typename F> void warp(Case &c)
{
    std::array<float, 9> matrix{};
    for(size_t n = 3; n < c.params.size(); ++n) matrix[n - 3] = static_cast<float>(c.p(n));
    c.use<F>(c.t(0), c.t(1), matrix, POLICY(2), c.border(0), c.constant(1));
}

void convert(Case &c)
{
    if(c.t(0) && c.t(1)) c.use<NEColorConvert>(static_cast<const ITensor *>(c.t(0)), static_cast<ITensor *>(c.t(1)));
    else if(c.m(0) && c.t(1)) c.use<NEColorConvert>(static_cast<const IMultiImage *>(c.m(0)), static_cast<IImage *>(c.t(1)));
    else if(c.t(0)) c.use<NEColorConvert>(static_cast<const IImage *>(c.t(0)), static_cast<IMultiImage *>(c.m(1)));
    else c.use<NEColorConvert>(static_cast<const IMultiImage *>(c.m(0)), static_cast<IMultiImage *>(c.m(1)));
}

void histogram(Case &c)
{
    auto d = std::make_shared<Distribution1D>(size_t(c.p(0)), int32_t(c.p(1)), uint32_t(c.p(2)));
    c.use<NEHistogram>(c.t(0), d.get());
    c.fetch = [&c, d] { c.results.assign(d->buffer(), d->buffer() + d->num_bins()); };
}

void min_max(Case &c)
{
    auto values = std::make_shared<std::array<int32_t, 2>>();
    auto floats = std::make_shared<std::array<float, 2>>();
    auto counts = std::make_shared<std::array<uint32_t, 2>>();
    auto least = std::make_shared<Coordinates2DArray>(4096), most = std::make_shared<Coordinates2DArray>(4096);
    const bool real = c.t(0)->info()->data_type() == DataType::F32;
    void *low = real ? static_cast<void *>(&(*floats)[0]) : &(*values)[0];
    void *high = real ? static_cast<void *>(&(*floats)[1]) : &(*values)[1];
    c.use<NEMinMaxLocation>(static_cast<IImage *>(c.t(0)), low, high, least.get(), most.get(), &(*counts)[0], &(*counts)[1]);
    c.fetch = [=, &c] {
        c.results = {real ? (*floats)[0] : (*values)[0], real ? (*floats)[1] : (*values)[1], double((*counts)[0]), double((*counts)[1])};
        for(auto *places : {least.get(), most.get()})
            for(size_t n = 0; n < places->num_values(); ++n) { c.results.push_back(places->at(n).x); c.results.push_back(places->at(n).y); }
    };
}

void mean_std(Case &c)
{
    auto found = std::make_shared<std::array<float, 2>>();
    c.use<NEMeanStdDev>(static_cast<IImage *>(c.t(0)), &(*found)[0], &(*found)[1]);
    c.fetch = [=, &c] { c.results = {(*found)[0], (*found)[1]}; };
}

void corners(Case &c, const std::shared_ptr<KeyPointArray> &found)
{
    c.fetch = [&c, found] {
        for(size_t n = 0; n < found->num_values(); ++n) { const auto &k = found->at(n); c.results.insert(c.results.end(), {double(k.x), double(k.y), double(k.strength)}); }
    };
}

void fast(Case &c)
{
    auto found = std::make_shared<KeyPointArray>(size_t(4096));
    c.use<NEFastCorners>(static_cast<IImage *>(c.t(0)), float(c.p(2)), c.p(3) != 0, found.get(), c.border(0), c.constant(1));
    corners(c, found);
}

void harris(Case &c)
{
    auto found = std::make_shared<KeyPointArray>(size_t(4096));
    c.use<NEHarrisCorners>(static_cast<IImage *>(c.t(0)), float(c.p(2)), float(c.p(3)), float(c.p(4)), int32_t(c.p(5)), int32_t(c.p(6)), found.get(), c.border(0), c.constant(1));
    corners(c, found);
}

void table(Case &c)
{
    const bool is_short = c.t(0)->info()->data_type() == DataType::S16;
    auto lut = std::make_shared<Lut>(c.params.size(), is_short ? DataType::S16 : DataType::U8);
    for(size_t n = 0; n < c.params.size(); ++n)
    {
        if(is_short) reinterpret_cast<int16_t *>(lut->buffer())[n] = int16_t(c.p(n));
        else lut->buffer()[n] = uint8_t(c.p(n));
    }
    c.use<NETableLookup>(c.t(0), lut.get(), c.t(1));
    c.kept.push_back(lut);
}

template <typename P> void pyramid(Case &c, float scale)
{
    auto levels = std::make_shared<Pyramid>();
    const size_t count = size_t(c.p(2));
    levels->init(PyramidInfo(count, scale, TensorShape(c.t(0)->info()->dimension(0), c.t(0)->info()->dimension(1)), Format::U8));
    c.use<P>(c.t(0), levels.get(), c.border(0), c.constant(1));
    c.after_allocate = [levels] { levels->allocate(); };
    c.kept.push_back(levels);
    c.fetch = [&c, levels, count] {
        for(size_t n = 0; n < count; ++n)
        {
            auto *level = levels->get_pyramid_level(n);
            c.results.insert(c.results.end(), {double(level->info()->dimension(0)), double(level->info()->dimension(1))});
            each_row(level, [&c](uint8_t *row, size_t bytes) { c.results.insert(c.results.end(), row, row + bytes); });
        }
    };
}

void laplacian(Case &c)
{
    auto levels = std::make_shared<Pyramid>();
    const size_t count = size_t(c.p(2));
    levels->init(PyramidInfo(count, SCALE_PYRAMID_HALF, TensorShape(c.t(0)->info()->dimension(0), c.t(0)->info()->dimension(1)), Format::S16));
    c.use<NELaplacianPyramid>(c.t(0), levels.get(), c.t(1), c.border(0), c.constant(1));
    c.after_allocate = [levels] { levels->allocate(); };
    c.kept.push_back(levels);
    c.fetch = [&c, levels, count] {
        for(size_t n = 0; n < count; ++n)
        {
            auto *level = levels->get_pyramid_level(n);
            c.results.insert(c.results.end(), {double(level->info()->dimension(0)), double(level->info()->dimension(1))});
            each_row(level, [&c](uint8_t *row, size_t bytes) { auto *v = reinterpret_cast<int16_t *>(row); c.results.insert(c.results.end(), v, v + bytes / 2); });
        }
    };
}

void reconstruct(Case &c)
{
    laplacian(c);
    auto levels = std::static_pointer_cast<Pyramid>(c.kept.back());
    auto take_apart = c.run;
    auto f = std::make_shared<NELaplacianReconstruct>();
    f->configure(levels.get(), c.t(1), c.t(2), c.border(0), c.constant(1));
    c.run = [=] { take_apart(); f->run(); };
    c.fetch = nullptr;
}

HOGInfo hog_info(Case &c, size_t at)
{
    auto pair = [&](size_t n) { return Size2D(size_t(c.p(at + n)), size_t(c.p(at + n + 1))); };
    return HOGInfo(pair(0), pair(2), pair(4), pair(6), size_t(c.p(at + 8)), static_cast<HOGNormType>(int(c.p(at + 9))), float(c.p(at + 10)), static_cast<PhaseType>(int(c.p(at + 11))));
}

void hog_descriptor(Case &c)
{
    auto hog = std::make_shared<HOG>();
    hog->init(hog_info(c, 2));
    c.kept.push_back(hog);
    TensorInfo info(*(hog->info()), c.t(0)->info()->dimension(0), c.t(0)->info()->dimension(1));
    auto out = std::make_shared<Tensor>();
    out->allocator()->init(info);
    c.use<NEHOGDescriptor>(c.t(0), out.get(), hog.get(), c.border(0), c.constant(1));
    c.after_allocate = [out] { out->allocator()->allocate(); };
    c.fetch = [&c, out] {
        c.results = {double(out->info()->dimension(0)), double(out->info()->dimension(1)), double(out->info()->num_channels())};
        each_row(out.get(), [&c](uint8_t *row, size_t bytes) { auto *v = reinterpret_cast<float *>(row); c.results.insert(c.results.end(), v, v + bytes / 4); });
    };
}

void windows_found(Case &c, const std::shared_ptr<DetectionWindowArray> &found)
{
    c.fetch = [&c, found] {
        for(size_t n = 0; n < found->num_values(); ++n) { const auto &w = found->at(n); c.results.insert(c.results.end(), {double(w.x), double(w.y), double(w.width), double(w.height), double(w.idx_class), double(w.score)}); }
    };
}

void set_classifier(Case &c, HOG &hog, size_t from)
{
    for(size_t n = 0; n < hog.info()->descriptor_size(); ++n) hog.descriptor()[n] = float(c.p(from + n));
}

void hog_detector(Case &c)
{
    auto hog = std::make_shared<HOG>();
    hog->init(hog_info(c, 2));
    set_classifier(c, *hog, 17);
    c.kept.push_back(hog);
    TensorInfo info(*(hog->info()), c.t(0)->info()->dimension(0), c.t(0)->info()->dimension(1));
    auto out = std::make_shared<Tensor>();
    out->allocator()->init(info);
    auto blocks = std::make_shared<NEHOGDescriptor>();
    blocks->configure(c.t(0), out.get(), hog.get(), c.border(0), c.constant(1));
    auto found = std::make_shared<DetectionWindowArray>(size_t(4096));
    auto f = std::make_shared<NEHOGDetector>();
    f->configure(out.get(), hog.get(), found.get(), Size2D(size_t(c.p(14)), size_t(c.p(15))), float(c.p(16)), 3);
    c.after_allocate = [out] { out->allocator()->allocate(); };
    c.run = [=] { blocks->run(); f->run(); };
    windows_found(c, found);
}

void hog_multi_detection(Case &c)
{
    auto models = std::make_shared<MultiHOG>(2);
    auto steps = std::make_shared<Size2DArray>(size_t(2));
    size_t at = 5;
    for(size_t n = 0; n < 2; ++n)
    {
        HOG &hog = *static_cast<HOG *>(models->model(n));
        hog.init(hog_info(c, at));
        steps->push_back(Size2D(size_t(c.p(at + 12)), size_t(c.p(at + 13))));
        set_classifier(c, hog, at + 14);
        at += 14 + hog.info()->descriptor_size();
    }
    auto found = std::make_shared<DetectionWindowArray>(size_t(4096));
    c.kept.push_back(models);
    c.kept.push_back(steps);
    c.use<NEHOGMultiDetection>(c.t(0), models.get(), found.get(), steps.get(), c.border(0), c.constant(1), float(c.p(2)), c.p(3) != 0, float(c.p(4)));
    windows_found(c, found);
}

void flow(Case &c)
{
    const size_t levels = size_t(c.p(2)), points = size_t(c.p(6));
    auto old_p = std::make_shared<Pyramid>(), new_p = std::make_shared<Pyramid>();
    for(auto &p : {old_p, new_p}) p->init(PyramidInfo(levels, SCALE_PYRAMID_HALF, TensorShape(c.t(0)->info()->dimension(0), c.t(0)->info()->dimension(1)), Format::U8));
    // The library's tracker takes the row stride of the new image for the old one too: both get the same padding.
    for(auto &p : {old_p, new_p})
        for(size_t n = 0; n < levels; ++n) p->get_pyramid_level(n)->info()->extend_padding(PaddingSize(8, 64, 8, 64));
    for(size_t n : {0, 1}) c.t(n)->info()->extend_padding(PaddingSize(8, 64, 8, 64));
    auto a = std::make_shared<NEGaussianPyramidHalf>(), b = std::make_shared<NEGaussianPyramidHalf>();
    a->configure(c.t(0), old_p.get(), c.border(0), c.constant(1));
    b->configure(c.t(1), new_p.get(), c.border(0), c.constant(1));
    auto from = std::make_shared<KeyPointArray>(points), to = std::make_shared<KeyPointArray>(points);
    for(size_t n = 0; n < points; ++n) { KeyPoint k{}; k.x = int32_t(c.p(7 + 2 * n)); k.y = int32_t(c.p(8 + 2 * n)); k.tracking_status = 1; from->push_back(k); }
    c.kept.push_back(from);
    auto f = std::make_shared<NEOpticalFlow>();
    f->configure(old_p.get(), new_p.get(), from.get(), from.get(), to.get(), Termination::TERM_CRITERIA_BOTH, float(c.p(3)), unsigned(c.p(4)), size_t(c.p(5)), false, c.border(0), c.constant(1));
    c.after_allocate = [=] { old_p->allocate(); new_p->allocate(); };
    c.run = [=] { a->run(); b->run(); f->run(); };
    c.fetch = [=, &c] { for(size_t n = 0; n < to->num_values(); ++n) { const auto &k = to->at(n); c.results.insert(c.results.end(), {double(k.x), double(k.y), double(k.tracking_status)}); } };
}

// What a lifetime manager makes of events: bytes where a lifetime starts, -(n + 1) where that of tensor n ends.
void lifetimes(Case &c)
{
    const bool is_offset = c.p(0) != 0;
    auto blobs = std::make_shared<BlobLifetimeManager>();
    auto offsets = std::make_shared<OffsetLifetimeManager>();
    std::shared_ptr<ILifetimeManager> kind = blobs;
    if(is_offset) kind = offsets;
    auto manager = std::make_shared<MemoryManagerOnDemand>(kind, std::make_shared<PoolManager>());
    MemoryGroup group(manager);
    std::vector<std::unique_ptr<Tensor>> tensors;
    for(size_t n = 1; n < c.params.size(); ++n)
    {
        if(c.p(n) < 0) { tensors.at(size_t(-c.p(n)) - 1)->allocator()->allocate(); continue; }
        tensors.push_back(std::make_unique<Tensor>());
        tensors.back()->allocator()->init(TensorInfo(TensorShape(size_t(c.p(n))), 1, DataType::U8));
        group.manage(tensors.back().get());
    }
    size_t total = 0;
    if(is_offset) total = offsets->info().size;
    else for(const auto &blob : blobs->info()) total += blob.size;
    c.results = {double(total)};
    c.run = [] {};
}

// Distances of a kernel's taps, if the case has them.
Size2D dilation(Case &c) { return c.params.size() > 11 ? Size2D(size_t(c.p(10)), size_t(c.p(11))) : Size2D(1U, 1U); }

PadStrideInfo strides(Case &c, size_t at)
{
    auto n = [&](size_t k) { return static_cast<unsigned int>(c.p(at + k)); };
    return PadStrideInfo(n(0), n(1), n(2), n(3), n(4), n(5), c.p(at + 6) != 0 ? DimensionRoundingType::CEIL : DimensionRoundingType::FLOOR);
}

ActivationLayerInfo activation(Case &c, size_t at)
{
    if(c.p(at) < 0) return ActivationLayerInfo();
    return ActivationLayerInfo(static_cast<ActivationLayerInfo::ActivationFunction>(int(c.p(at))), float(c.p(at + 1)), float(c.p(at + 2)));
}

void concatenate(Case &c)
{
    std::vector<const ITensor *> parts;
    for(size_t n = 0; n + 1 < c.tensors.size(); ++n) parts.push_back(c.t(n));
    c.use<NEConcatenateLayer>(parts, c.t(c.tensors.size() - 1), size_t(c.p(0)));
}

const std::map<std::string, Rule> RULES = {
    {"Lifetimes", lifetimes},
    FILTER(NEGaussian3x3), FILTER(NEGaussian5x5), FILTER(NEBox3x3), FILTER(NEMedian3x3), FILTER(NEErode), FILTER(NEDilate),
    GRADIENT(NESobel3x3), GRADIENT(NESobel5x5), GRADIENT(NESobel7x7), GRADIENT(NEDerivative),
    MATRIX(NEConvolution3x3), MATRIX(NEConvolution5x5), MATRIX(NEConvolution7x7), MATRIX(NEConvolution9x9),
    PAIR(NEAbsoluteDifference), PAIR(NEBitwiseAnd), PAIR(NEBitwiseOr), PAIR(NEBitwiseXor),
    {"NEConvolutionRectangle", [](Case &c) { auto v = c.matrix(5); c.use<NEConvolutionRectangle>(c.t(0), c.t(1), v.data(), uint32_t(c.p(4)), uint32_t(c.p(3)), uint32_t(c.p(2)), c.border(0), c.constant(1)); }},  // it takes `rows` for columns
    {"NEBitwiseNot", [](Case &c) { c.use<NEBitwiseNot>(c.t(0), c.t(1)); }},
    {"NEThreshold", [](Case &c) { c.use<NEThreshold>(c.t(0), c.t(1), uint8_t(c.p(0)), uint8_t(c.p(1)), uint8_t(c.p(2)), c.p(3) != 0 ? ThresholdType::RANGE : ThresholdType::BINARY, uint8_t(c.p(4))); }},
    {"NEAccumulate", [](Case &c) { c.use<NEAccumulate>(c.t(0), c.t(1)); }},
    {"NEAccumulateSquared", [](Case &c) { c.use<NEAccumulateSquared>(c.t(0), uint32_t(c.p(0)), c.t(1)); }},
    {"NEAccumulateWeighted", [](Case &c) { c.use<NEAccumulateWeighted>(c.t(0), float(c.p(0)), c.t(1)); }},
    {"NEArithmeticAddition", [](Case &c) { c.use<NEArithmeticAddition>(c.t(0), c.t(1), c.t(2), c.p(0) != 0 ? ConvertPolicy::SATURATE : ConvertPolicy::WRAP); }},
    {"NEArithmeticSubtraction", [](Case &c) { c.use<NEArithmeticSubtraction>(c.t(0), c.t(1), c.t(2), c.p(0) != 0 ? ConvertPolicy::SATURATE : ConvertPolicy::WRAP); }},
    {"NEPixelWiseMultiplication", [](Case &c) { c.use<NEPixelWiseMultiplication>(c.t(0), c.t(1), c.t(2), float(c.p(1)), c.p(0) != 0 ? ConvertPolicy::SATURATE : ConvertPolicy::WRAP, c.p(2) != 0 ? RoundingPolicy::TO_NEAREST_EVEN : RoundingPolicy::TO_ZERO); }},
    {"NEMagnitude", [](Case &c) { c.use<NEMagnitude>(c.t(0), c.t(1), c.t(2), c.p(0) != 0 ? MagnitudeType::L1NORM : MagnitudeType::L2NORM); }},
    {"NEPhase", [](Case &c) { c.use<NEPhase>(c.t(0), c.t(1), c.t(2), c.p(0) != 0 ? PhaseType::UNSIGNED : PhaseType::SIGNED); }},
    {"NETableLookup", table},
    {"NENonLinearFilter", [](Case &c) { std::vector<uint8_t> mask(c.params.begin() + 5, c.params.end()); c.use<NENonLinearFilter>(c.t(0), c.t(1), static_cast<NonLinearFilterFunction>(int(c.p(2))), unsigned(c.p(3)), static_cast<MatrixPattern>(int(c.p(4))), mask.empty() ? nullptr : mask.data(), c.border(0), c.constant(1)); }},
    {"NENonMaximaSuppression3x3", [](Case &c) { c.use<NENonMaximaSuppression3x3>(c.t(0), c.t(1), c.border(0)); }},
    {"NEScale", [](Case &c) { c.use<NEScale>(c.t(0), c.t(1), POLICY(2), c.border(0), PixelValue(int(c.p(1)))); }},
    {"NERemap", [](Case &c) { c.use<NERemap>(c.t(0), c.t(1), c.t(2), c.t(3), POLICY(2), c.border(0), c.constant(1)); }},
    {"NEWarpAffine", warp<NEWarpAffine>}, {"NEWarpPerspective", warp<NEWarpPerspective>},
    {"NEColorConvert", convert},
    {"NEChannelExtract", [](Case &c) { auto ch = static_cast<Channel>(int(c.p(0))); if(c.m(0)) c.use<NEChannelExtract>(static_cast<const IMultiImage *>(c.m(0)), ch, static_cast<IImage *>(c.t(1))); else c.use<NEChannelExtract>(static_cast<const ITensor *>(c.t(0)), ch, static_cast<ITensor *>(c.t(1))); }},
    {"NEChannelCombine", [](Case &c) { if(c.m(3)) c.use<NEChannelCombine>(static_cast<const IImage *>(c.t(0)), static_cast<const IImage *>(c.t(1)), static_cast<const IImage *>(c.t(2)), static_cast<IMultiImage *>(c.m(3))); else { size_t n = c.count(); c.use<NEChannelCombine>(static_cast<const ITensor *>(c.t(0)), static_cast<const ITensor *>(c.t(1)), static_cast<const ITensor *>(c.t(2)), static_cast<const ITensor *>(n == 5 ? c.t(3) : nullptr), static_cast<ITensor *>(c.t(n - 1))); } }},
    {"NEHistogram", histogram}, {"NEMinMaxLocation", min_max}, {"NEMeanStdDev", mean_std},
    {"NEEqualizeHistogram", [](Case &c) { c.use<NEEqualizeHistogram>(c.t(0), c.t(1)); }},
    {"NEIntegralImage", [](Case &c) { c.use<NEIntegralImage>(c.t(0), c.t(1)); }},
    {"NEFastCorners", fast}, {"NEHarrisCorners", harris},
    {"NECannyEdge", [](Case &c) { c.use<NECannyEdge>(c.t(0), c.t(1), int32_t(c.p(2)), int32_t(c.p(3)), int32_t(c.p(4)), int32_t(c.p(5)), c.border(0), c.constant(1)); }},
    {"NEGaussianPyramidHalf", [](Case &c) { pyramid<NEGaussianPyramidHalf>(c, SCALE_PYRAMID_HALF); }},
    {"NEGaussianPyramidOrb", [](Case &c) { pyramid<NEGaussianPyramidOrb>(c, SCALE_PYRAMID_ORB); }},
    {"NELaplacianPyramid", laplacian}, {"NELaplacianReconstruct", reconstruct}, GRADIENT(NEScharr3x3), PAIR(NEElementwiseMax), PAIR(NEElementwiseMin),
    {"NEElementwiseAddition", [](Case &c) { c.use<NEArithmeticAddition>(c.t(0), c.t(1), c.t(2), ConvertPolicy::SATURATE); }},
    {"NEFlattenLayer", [](Case &c) { c.use<NEFlattenLayer>(c.t(0), c.t(1)); }},
    {"NEGEMMLowpMatrixMultiplyCore", [](Case &c) { for(size_t n : {0, 1}) { auto q = c.t(n)->info()->quantization_info().uniform(); c.t(n)->info()->set_quantization_info(QuantizationInfo(q.scale, -q.offset)); } /* it adds offsets */ c.use<NEGEMMLowpMatrixMultiplyCore>(c.t(0), c.t(1), nullptr, c.t(2)); }},
    {"NEHOGDescriptor", hog_descriptor}, {"NEHOGDetector", hog_detector}, {"NEHOGMultiDetection", hog_multi_detection}, {"NEOpticalFlow", flow},
    {"NEActivationLayer", [](Case &c) { c.use<NEActivationLayer>(c.t(0), c.t(1), activation(c, 0)); }},
    {"NESoftmaxLayer", [](Case &c) { c.use<NESoftmaxLayer>(c.t(0), c.t(1), float(c.p(0))); }},
    {"NEPoolingLayer", [](Case &c) { c.use<NEPoolingLayer>(c.t(0), c.t(1), PoolingLayerInfo(static_cast<PoolingType>(int(c.p(0))), Size2D(size_t(c.p(1)), size_t(c.p(2))), c.t(0)->info()->data_layout(), strides(c, 4), c.p(3) != 0)); }},
    {"NENormalizationLayer", [](Case &c) { c.use<NENormalizationLayer>(c.t(0), c.t(1), NormalizationLayerInfo(static_cast<NormType>(int(c.p(0))), uint32_t(c.p(1)), float(c.p(2)), float(c.p(3)), float(c.p(4)), c.p(5) != 0)); }},
    {"NEConvolutionLayer", [](Case &c) { bool b = c.count() == 4; c.use<NEConvolutionLayer>(c.t(0), c.t(1), b ? c.t(2) : nullptr, c.t(b ? 3 : 2), strides(c, 3), WeightsInfo(), dilation(c), activation(c, 0)); }},
    {"NEGEMMConvolutionLayer", [](Case &c) { bool b = c.count() == 4; c.use<NEGEMMConvolutionLayer>(c.t(0), c.t(1), b ? c.t(2) : nullptr, c.t(b ? 3 : 2), strides(c, 3), WeightsInfo(), dilation(c), activation(c, 0)); }},
    {"NEWinogradConvolutionLayer", [](Case &c) { c.use<NEWinogradConvolutionLayer>(c.t(0), c.t(1), c.t(2), c.t(3), strides(c, 3), activation(c, 0)); }},
    {"NEDirectConvolutionLayer", [](Case &c) { bool b = c.count() == 4; c.use<NEDirectConvolutionLayer>(c.t(0), c.t(1), b ? c.t(2) : nullptr, c.t(b ? 3 : 2), strides(c, 3), activation(c, 0)); }},
    {"NEPermute", [](Case &c) { c.use<NEPermute>(c.t(0), c.t(1), PermutationVector(uint32_t(c.p(0)), uint32_t(c.p(1)), uint32_t(c.p(2)))); }},
    {"NEReshapeLayer", [](Case &c) { c.use<NEReshapeLayer>(c.t(0), c.t(1)); }},
    {"NEWidthConcatenateLayer", concatenate}, {"NEHeightConcatenateLayer", concatenate}, {"NEDepthConcatenateLayer", concatenate},
    {"NEConcatenateLayer", concatenate}, {"CPPPermute", [](Case &c) { c.use<CPPPermute>(c.t(0), c.t(1), PermutationVector(uint32_t(c.p(0)), uint32_t(c.p(1)), uint32_t(c.p(2)))); }},
    {"NEDepthwiseConvolutionLayer", [](Case &c) { bool b = c.count() == 4; c.use<NEDepthwiseConvolutionLayer>(c.t(0), c.t(1), b ? c.t(2) : nullptr, c.t(b ? 3 : 2), strides(c, 3), c.params.size() > 12 ? uint32_t(c.p(12)) : 1U, activation(c, 0), dilation(c)); }},
    {"NEFullyConnectedLayer", [](Case &c) { bool b = c.count() == 4; c.use<NEFullyConnectedLayer>(c.t(0), c.t(1), b ? c.t(2) : nullptr, c.t(b ? 3 : 2)); }},
    {"NEBatchNormalizationLayer", [](Case &c) { c.use<NEBatchNormalizationLayer>(c.t(0), c.t(5), c.t(1), c.t(2), c.t(3), c.t(4), float(c.p(0))); }},
    {"NEGEMM", [](Case &c) { c.use<NEGEMM>(c.t(0), c.t(1), c.t(2), c.t(3), float(c.p(0)), float(c.p(1)), GEMMInfo(false, false, false));  /* else it takes C for biases */ }},
    {"NEQuantizationLayer", [](Case &c) { c.use<NEQuantizationLayer>(c.t(0), c.t(1)); }},
    {"NEDequantizationLayer", [](Case &c) { c.use<NEDequantizationLayer>(c.t(0), c.t(1)); }},
};

// Configure the functions of a chain in order; they run in order when all tensors have their bytes.
void chain(Case &c)
{
    std::vector<std::function<void()>> runs, fetches, allocations;
    const auto all = c.params;
    size_t next = 0;
    std::stringstream steps(c.name);
    // The library fills a border around the valid region, but no more of it than it asked padding for.
    for(auto &given : c.tensors) given.tensor->info()->extend_padding(PaddingSize(16, 64, 16, 16));
    for(std::string step; std::getline(steps, step, '+');)
    {
        const size_t cut = step.find('@'), count = size_t(all.at(next));
        std::stringstream numbers(step.substr(cut + 1));
        c.chosen.clear();
        for(std::string n; std::getline(numbers, n, ',');) c.chosen.push_back(std::stoul(n));
        c.params.assign(all.begin() + next + 1, all.begin() + next + 1 + count);
        next += 1 + count;
        c.after_allocate = c.fetch = nullptr;
        RULES.at(step.substr(0, cut))(c);
        runs.push_back(c.run);
        if(c.after_allocate) allocations.push_back(c.after_allocate);
    }
    c.chosen.clear();
    c.after_allocate = [=] { for(auto &each : allocations) each(); };
    c.run = [=] { for(auto &each : runs) each(); };
    const auto last = c.fetch;
    c.fetch = [&c, last] {
        c.results.clear();
        if(last) last();
        const auto numbers = c.results;
        c.results.clear();
        for(auto &given : c.tensors)
        {
            const ValidRegion region = given.all()[0]->info()->valid_region();
            c.results.insert(c.results.end(), {double(region.anchor[0]), double(region.anchor[1]), double(region.shape[0]), double(region.shape[1])});
        }
        c.results.insert(c.results.end(), numbers.begin(), numbers.end());
    };
}

Given read_tensor()
{
    std::string kind;
    int rank = 0;
    std::cin >> kind >> rank;
    TensorShape shape;
    std::vector<int> sizes(rank);
    for(int n = 0; n < rank; ++n) { std::cin >> sizes[n]; shape.set(n, sizes[n], false); }
    float scale = 0;
    int offset = 0;
    size_t count = 0;
    std::cin >> scale >> offset >> count;
    std::vector<float> scales(count);
    for(auto &each : scales) std::cin >> each;
    Given made;
    if(kind[0] == 't' || kind[0] == 'n')
    {
        made.tensor = std::make_unique<Tensor>();
        TensorInfo info(shape, 1, TYPES.at(kind.substr(1)), count ? QuantizationInfo(scales) : QuantizationInfo(scale, offset));
        info.set_data_layout(kind[0] == 'n' ? DataLayout::NHWC : DataLayout::NCHW);
        made.tensor->allocator()->init(info);
        return made;
    }
    const Format format = FORMATS.at(kind);
    made.planes = num_planes_from_format(format);
    if(made.planes > 1)
    {
        made.multi = std::make_unique<MultiImage>();
        made.multi->init(sizes[0], sizes[1], format);
        return made;
    }
    made.planes = 0;
    made.tensor = std::make_unique<Tensor>();
    made.tensor->allocator()->init(TensorInfo(sizes[0], sizes[1], format));
    return made;
}

void answer(Case &c)
{
    size_t tensors = 0, params = 0;
    std::cin >> tensors >> params;
    for(size_t n = 0; n < tensors; ++n) c.tensors.push_back(read_tensor());
    for(size_t n = 0; n < params; ++n) { double v = 0; std::cin >> v; c.params.push_back(v); }
    std::string rest;
    for(int lines = params ? 1 : 2; lines > 0; --lines) std::getline(std::cin, rest);
    if(c.name.find('@') != std::string::npos) chain(c);
    else RULES.at(c.name)(c);
    for(auto &given : c.tensors)
    {
        if(given.tensor) given.tensor->allocator()->allocate();
        else given.multi->allocate();
    }
    if(c.after_allocate) c.after_allocate();
    for(auto &given : c.tensors)
        for(auto *plane : given.all()) each_row(plane, [](uint8_t *row, size_t bytes) { std::cin.read(reinterpret_cast<char *>(row), bytes); });
    c.run();
    if(c.fetch) c.fetch();
    const ValidRegion region = c.tensors.back().all()[0]->info()->valid_region();
    const auto &s = region.shape;
    std::cout << c.results.size() << ' ' << region.anchor[0] << ' ' << region.anchor[1] << ' ' << s[0] << ' ' << s[1] << '\n';
    std::cout.write(reinterpret_cast<const char *>(c.results.data()), c.results.size() * sizeof(double));
    for(auto &given : c.tensors)
        for(auto *plane : given.all()) each_row(plane, [](uint8_t *row, size_t bytes) { std::cout.write(reinterpret_cast<const char *>(row), bytes); });
}
} // namespace

int main()
{
    std::ios::sync_with_stdio(false);
    Scheduler::set(std::make_shared<OneThread>());
    std::string name;
    while(std::cin >> name)
    {
        Case c;
        c.name = name;
        try { answer(c); }
        catch(const std::exception &error) { std::string told = error.what(); for(auto &ch : told) if(ch == '\n') ch = ' '; std::cout << "error " << told << '\n'; std::cout.flush(); return 1; }
    }
    return 0;
}
