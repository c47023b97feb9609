// Functions on OpenCL devices: `CL…` over `CLTensor`s. Included by `armillary_compute.hpp` in libraries with opencl=1.
//
// In: kernels' sources, from the library or from the folder of `CLKernelLibrary`; libOpenCL, loaded when a program runs.
// Out: the functions of the processor by name and argument, on a device: NEGaussian5x5's is CLGaussian5x5. Invariant: one
// queue, in order, so that a function sees what the one before it wrote; the host sees a tensor between map() and unmap().
#pragma once

#include <dlfcn.h>

namespace armillary { namespace compute { namespace detail {

// What is called of OpenCL 1.2, without its headers.
using Handle = void *;
struct OpenCL {
  int32_t (*GetPlatformIDs)(uint32_t, Handle *, uint32_t *);
  int32_t (*GetDeviceIDs)(Handle, uint64_t, uint32_t, Handle *, uint32_t *);
  int32_t (*GetDeviceInfo)(Handle, uint32_t, size_t, void *, size_t *);
  Handle (*CreateContext)(const intptr_t *, uint32_t, const Handle *, void *, void *, int32_t *);
  Handle (*CreateCommandQueue)(Handle, Handle, uint64_t, int32_t *);
  Handle (*CreateBuffer)(Handle, uint64_t, size_t, void *, int32_t *);
  int32_t (*ReleaseMemObject)(Handle);
  Handle (*CreateProgramWithSource)(Handle, uint32_t, const char **, const size_t *, int32_t *);
  int32_t (*BuildProgram)(Handle, uint32_t, const Handle *, const char *, void *, void *);
  int32_t (*GetProgramBuildInfo)(Handle, Handle, uint32_t, size_t, void *, size_t *);
  Handle (*CreateKernel)(Handle, const char *, int32_t *);
  int32_t (*SetKernelArg)(Handle, uint32_t, size_t, const void *);
  int32_t (*EnqueueNDRangeKernel)(Handle, Handle, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,
                                  const Handle *, Handle *);
  void *(*EnqueueMapBuffer)(Handle, Handle, uint32_t, uint64_t, size_t, size_t, uint32_t, const Handle *, Handle *, int32_t *);
  int32_t (*EnqueueUnmapMemObject)(Handle, Handle, void *, uint32_t, const Handle *, Handle *);
  int32_t (*EnqueueMarkerWithWaitList)(Handle, uint32_t, const Handle *, Handle *);
  int32_t (*WaitForEvents)(uint32_t, const Handle *);
  int32_t (*ReleaseEvent)(Handle);
  int32_t (*Finish)(Handle);

  static const OpenCL &get() {
    static const OpenCL one;
    return one;
  }

private:
  OpenCL() {
    void *library = nullptr;
    for (const char *name : {"libOpenCL.so.1", "libOpenCL.so", "/vendor/lib64/libOpenCL.so", "/system/vendor/lib64/libOpenCL.so",
                             "/vendor/lib/libOpenCL.so", "/system/vendor/lib/libOpenCL.so"})
      if (library == nullptr) library = dlopen(name, RTLD_NOW);
    if (library == nullptr) throw std::runtime_error("OpenCL: there is no libOpenCL.so on this system");
#define ARMILLARY_CL_LOAD(NAME) load(library, "cl" #NAME, NAME)
    ARMILLARY_CL_LOAD(GetPlatformIDs), ARMILLARY_CL_LOAD(GetDeviceIDs), ARMILLARY_CL_LOAD(GetDeviceInfo);
    ARMILLARY_CL_LOAD(CreateContext), ARMILLARY_CL_LOAD(CreateCommandQueue), ARMILLARY_CL_LOAD(CreateBuffer);
    ARMILLARY_CL_LOAD(ReleaseMemObject), ARMILLARY_CL_LOAD(CreateProgramWithSource), ARMILLARY_CL_LOAD(BuildProgram);
    ARMILLARY_CL_LOAD(GetProgramBuildInfo), ARMILLARY_CL_LOAD(CreateKernel), ARMILLARY_CL_LOAD(SetKernelArg);
    ARMILLARY_CL_LOAD(EnqueueNDRangeKernel), ARMILLARY_CL_LOAD(EnqueueMapBuffer), ARMILLARY_CL_LOAD(EnqueueUnmapMemObject);
    ARMILLARY_CL_LOAD(EnqueueMarkerWithWaitList), ARMILLARY_CL_LOAD(WaitForEvents), ARMILLARY_CL_LOAD(ReleaseEvent);
    ARMILLARY_CL_LOAD(Finish);
#undef ARMILLARY_CL_LOAD
  }
  template <class F> static void load(void *library, const char *name, F &function) {
    void *found = dlsym(library, name);
    if (found == nullptr) throw std::runtime_error(std::string("OpenCL: the library lacks ") + name);
    std::memcpy(&function, &found, sizeof found);
  }
};
inline void check(int32_t code, const char *what) {
  if (code != 0) throw std::runtime_error(std::string("OpenCL: ") + what + ": error " + std::to_string(code));
}
}}} // namespace armillary::compute::detail

#ifndef CL_HPP_ // programs with Khronos' classes have their own
namespace cl {
class Context {
public:
  armillary::compute::detail::Handle handle = nullptr;
};
class Device {
public:
  armillary::compute::detail::Handle handle = nullptr;
};
class CommandQueue {
public:
  armillary::compute::detail::Handle handle = nullptr;
  int32_t finish() const {
    armillary::compute::detail::check(armillary::compute::detail::OpenCL::get().Finish(handle), "finish");
    return 0;
  }
};
class Event {
public:
  explicit Event(armillary::compute::detail::Handle event = nullptr)
      : handle_(event, [](void *e) { if (e) armillary::compute::detail::OpenCL::get().ReleaseEvent(e); }) {}
  int32_t wait() const {
    const armillary::compute::detail::Handle event = handle_.get();
    armillary::compute::detail::check(armillary::compute::detail::OpenCL::get().WaitForEvents(1, &event), "wait");
    return 0;
  }

private:
  std::shared_ptr<void> handle_;
};
} // namespace cl
#endif

namespace armillary { namespace compute {

// Sources of kernels: the library's, or, where it was built with embed_kernels=0, those of a folder.
class CLKernelLibrary {
public:
  static CLKernelLibrary &get() {
    static CLKernelLibrary one;
    return one;
  }
  void init(const std::string &kernel_path = "./cl_kernels", const cl::Context &context = cl::Context(),
            const cl::Device &device = cl::Device()) {
    (void)context, (void)device; // those of the scheduler
    path_ = kernel_path, is_read_ = true, kernels_.clear();
  }
  void set_kernel_path(const std::string &kernel_path) { path_ = kernel_path; }
  std::string get_kernel_path() const { return path_; }
  void clear_programs_cache() { kernels_.clear(); }
  // A kernel, built at its first use.
  std::pair<const kernels::DeviceKernel *, detail::Handle> create_kernel(const std::string &key, const cl::Context &context,
                                                                         const cl::Device &device) {
    auto &found = kernels_[key];
    if (found.second != nullptr) return found;
    const kernels::DeviceKernel *row = kernels::of_device();
    while (row->key != nullptr && key != row->key) row++;
    if (row->key == nullptr) throw std::runtime_error("the kernel " + key + " was not built: name its function to armillary.compute.build");
    const auto &cl = detail::OpenCL::get();
    const std::string text = source(*row);
    const char *start = text.c_str();
    int32_t code = 0;
    const detail::Handle program = cl.CreateProgramWithSource(context.handle, 1, &start, nullptr, &code);
    detail::check(code, "create a program");
    if ((code = cl.BuildProgram(program, 1, &device.handle, options(text, device).c_str(), nullptr, nullptr)) != 0) {
      std::vector<char> log(1 << 14);
      cl.GetProgramBuildInfo(program, device.handle, 0x1183, log.size() - 1, log.data(), nullptr);
      throw std::runtime_error("OpenCL: " + key + " does not build: " + log.data());
    }
    const detail::Handle kernel = cl.CreateKernel(program, row->symbol, &code);
    detail::check(code, row->symbol);
    return found = {row, kernel};
  }
  static std::string info(const cl::Device &device, uint32_t what) {
    std::vector<char> text(1 << 14);
    detail::OpenCL::get().GetDeviceInfo(device.handle, what, text.size() - 1, text.data(), nullptr);
    return text.data();
  }

private:
  std::string source(const kernels::DeviceKernel &row) const {
    std::ifstream file(path_ + "/" + row.file + ".cl");
    if (row.source != nullptr && !(is_read_ && file)) return row.source;
    if (!file) throw std::runtime_error(path_ + " has no kernel " + row.file + ".cl");
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  // Mali's drivers take groups that do not divide a size by an option of Arm's; products stay apart where a kernel asks.
  static std::string options(const std::string &text, const cl::Device &device) {
    std::string all = "-cl-std=CL1.2";
    if (text.find("FP_CONTRACT OFF") == std::string::npos) all += " -cl-mad-enable";
    const bool is_mali = info(device, 0x102B).find("Mali") != std::string::npos;
    if (is_mali && info(device, 0x1030).find("cl_arm_non_uniform_work_group_size") != std::string::npos)
      all += " -cl-arm-non-uniform-work-group-size";
    return all;
  }
  std::string path_ = "./cl_kernels";
  bool is_read_ = false;
  std::map<std::string, std::pair<const kernels::DeviceKernel *, detail::Handle>> kernels_;
};

class CLTensor;

// The context, the device and the queue of all functions and tensors.
class CLScheduler final : public IDevice {
public:
  static CLScheduler &get() {
    static CLScheduler one;
    return one;
  }
  // The first GPU or, without one, the first device.
  void default_init() {
    if (is_initialised()) return;
    const auto &cl = detail::OpenCL::get();
    detail::Handle platforms[16];
    uint32_t count = 0;
    detail::check(cl.GetPlatformIDs(16, platforms, &count), "there is no platform");
    cl::Device device;
    for (const uint64_t kind : {uint64_t(4), uint64_t(0xFFFFFFFF)}) // a GPU, any
      for (uint32_t n = 0; n < std::min(count, 16u) && device.handle == nullptr; n++)
        if (cl.GetDeviceIDs(platforms[n], kind, 1, &device.handle, nullptr) != 0) device.handle = nullptr;
    if (device.handle == nullptr) throw std::runtime_error("OpenCL: there is no device");
    int32_t code = 0;
    cl::Context context;
    context.handle = cl.CreateContext(nullptr, 1, &device.handle, nullptr, nullptr, &code);
    detail::check(code, "create a context");
    cl::CommandQueue queue;
    queue.handle = cl.CreateCommandQueue(context.handle, device.handle, 0, &code);
    detail::check(code, "create a queue");
    init(context, queue, device);
  }
  void init(const cl::Context &context, const cl::CommandQueue &queue, const cl::Device &device) {
    context_ = context, queue_ = queue, device_ = device;
    CLKernelLibrary::get().clear_programs_cache();
  }
  bool is_initialised() const { return queue_.handle != nullptr; }
  cl::Context &context() { return used().context_; }
  cl::CommandQueue &queue() { return used().queue_; }
  cl::Device &device() { return used().device_; }
  std::string target() { return CLKernelLibrary::info(used().device_, 0x102B); }
  void sync() { used().queue_.finish(); }
  cl::Event enqueue_sync_event() {
    detail::Handle event = nullptr;
    detail::check(detail::OpenCL::get().EnqueueMarkerWithWaitList(used().queue_.handle, 0, nullptr, &event), "enqueue a marker");
    return cl::Event(event);
  }
  void launch(const std::string &key, const std::vector<const Tensor *> &tensors, const detail::Values &values) override;
  Tensor *new_tensor() const override;

private:
  CLScheduler() = default;
  CLScheduler &used() {
    if (!is_initialised()) throw std::runtime_error("CLScheduler: call CLScheduler::get().default_init() first");
    return *this;
  }
  cl::Context context_;
  cl::CommandQueue queue_;
  cl::Device device_;
};

class CLTensor : public Tensor {
public:
  ~CLTensor() override { CLTensor::drop_memory(); }
  IDevice *device() const override { return &CLScheduler::get(); }
  detail::Handle cl_buffer() const {
    if (buffer_ == nullptr) throw std::runtime_error("the tensor has no memory: call allocator()->allocate(), or acquire its group");
    return buffer_;
  }
  void map(bool = true) override {
    if (bytes_ != nullptr) return;
    int32_t code = 0;
    bytes_ = static_cast<uint8_t *>(detail::OpenCL::get().EnqueueMapBuffer(
        CLScheduler::get().queue().handle, cl_buffer(), 1, 3, 0, info()->total_size(), 0, nullptr, nullptr, &code));
    detail::check(code, "map a tensor");
  }
  void unmap() override {
    if (bytes_ == nullptr) return;
    detail::check(detail::OpenCL::get().EnqueueUnmapMemObject(CLScheduler::get().queue().handle, buffer_, bytes_, 0, nullptr, nullptr),
                  "unmap a tensor");
    bytes_ = nullptr;
  }
  static detail::Handle new_buffer(size_t size) {
    int32_t code = 0;
    const auto made = detail::OpenCL::get().CreateBuffer(CLScheduler::get().context().handle, 1, std::max<size_t>(size, 1), nullptr, &code);
    detail::check(code, "allocate memory");
    return made;
  }

protected:
  void take_memory() override { // zeros, as on the host
    buffer_ = new_buffer(info()->total_size()), is_own_ = true;
    map();
    std::memset(bytes_, 0, info()->total_size());
    unmap();
  }
  void drop_memory() override {
    if (buffer_ != nullptr && is_own_) unmap(), detail::OpenCL::get().ReleaseMemObject(buffer_);
    buffer_ = nullptr, is_own_ = false;
  }
  void place(void *blob) override { buffer_ = blob; }
  bool has_memory() const override { return is_own_; }

private:
  detail::Handle buffer_ = nullptr;
  bool is_own_ = false;
};
using ICLTensor = CLTensor;
class CLImage : public CLTensor {};
inline Tensor *CLScheduler::new_tensor() const { return new CLTensor; }
class CLPyramid : public Pyramid {
protected:
  Tensor *new_level() const override { return new CLTensor; }
};
class CLLut : public Lut {
public:
  explicit CLLut(size_t num_elements = 256, DataType type = DataType::U8) : Lut(new CLTensor, num_elements, type) {}
  void map(bool = true) { tensor()->map(); }
  void unmap() { tensor()->unmap(); }
};
using ICLLut = CLLut;
class CLMultiImage : public MultiImage {
protected:
  Tensor *new_plane() const override { return new CLImage; }
};
using ICLMultiImage = MultiImage;
using ICLImage = CLTensor;
using CLMemoryGroup = MemoryGroup;

class CLBufferAllocator final : public IAllocator {
public:
  void *allocate(size_t size, size_t) override { return CLTensor::new_buffer(size); }
  void free(void *memory) override { detail::OpenCL::get().ReleaseMemObject(memory); }
};

inline void CLScheduler::launch(const std::string &key, const std::vector<const Tensor *> &tensors, const detail::Values &values) {
  const auto &cl = detail::OpenCL::get();
  const auto kernel = CLKernelLibrary::get().create_kernel(key, context(), device_);
  std::istringstream words(kernel.first->arguments);
  uint32_t place = 0;
  for (std::string word; words >> word; place++) {
    if (word[0] == '#') {
      const auto *tensor = dynamic_cast<const CLTensor *>(tensors.at(std::stoul(word.substr(1))));
      if (tensor == nullptr) throw std::invalid_argument(key + ": wanted tensors of a device: CLTensor, CLImage");
      const detail::Handle buffer = tensor->cl_buffer();
      detail::check(cl.SetKernelArg(kernel.second, place, sizeof buffer, &buffer), key.c_str());
      continue;
    }
    int64_t value = values.at(word[0] == '~' ? word.substr(1) : word);
    if (word[0] == '~') { // reals are the bits of a double on the host
      double real;
      std::memcpy(&real, &value, sizeof real);
      const float narrow = float(real);
      int32_t bits;
      std::memcpy(&bits, &narrow, sizeof bits);
      value = bits;
    }
    detail::check(cl.SetKernelArg(kernel.second, place, sizeof value, &value), key.c_str());
  }
  size_t global[3], local[3];
  for (int n = 0; n < 3; n++) {
    const kernels::Groups &groups = kernel.first->groups[n];
    const int64_t count = groups.value != nullptr ? (values.at(groups.value) + groups.more) / groups.items : groups.more;
    local[n] = size_t(kernel.first->items[n]), global[n] = size_t(count) * local[n];
    if (count <= 0) return;
  }
  detail::check(cl.EnqueueNDRangeKernel(queue_.handle, kernel.second, 3, nullptr, global, local, 0, nullptr, nullptr), key.c_str());
}

namespace detail {
// A function of the processor's on the device.
template <class F> class OnDevice : public F {
public:
  using F::F;

protected:
  IDevice *device() const override { return &CLScheduler::get(); }
};
// A kernel of the processor's on the device: enqueued over a window; the queue's finish() waits for it.
template <class F> class KernelOnDevice : public F {
public:
  void run(cl::CommandQueue &queue, const Window &window) {
    if (queue.handle != CLScheduler::get().queue().handle) throw std::invalid_argument("kernels go to CLScheduler's queue");
    F::run(window);
  }
  void run(const Window &window, cl::CommandQueue &queue) { run(queue, window); }

protected:
  IDevice *device() const override { return &CLScheduler::get(); }
};
} // namespace detail

using CLGaussian3x3Kernel = detail::KernelOnDevice<NEGaussian3x3Kernel>;
using CLGaussian5x5Kernel = detail::KernelOnDevice<NEGaussian5x5Kernel>;
using CLBox3x3Kernel = detail::KernelOnDevice<NEBox3x3Kernel>;
using CLMedian3x3Kernel = detail::KernelOnDevice<NEMedian3x3Kernel>;
using CLErodeKernel = detail::KernelOnDevice<NEErodeKernel>;
using CLDilateKernel = detail::KernelOnDevice<NEDilateKernel>;

enum class GPUTarget { MIDGARD, BIFROST, UNKNOWN };

// GEMM, whatever the sizes: the text's rule for this side.
class CLConvolutionLayer : public detail::OnDevice<NEConvolutionLayer> {
public:
  using OnDevice::OnDevice;
  template <class... Any> static ConvolutionMethod get_convolution_method(const Any &...) { return ConvolutionMethod::GEMM; }
  void configure(const ITensor *input, const ITensor *weights, const ITensor *biases, ITensor *output,
                 const PadStrideInfo &info, const WeightsInfo & = WeightsInfo(), const Size2D &dilation = Size2D(1, 1),
                 const ActivationLayerInfo &act = ActivationLayerInfo(), bool enable_fast_math = false,
                 unsigned int num_groups = 1) {
    ARM_COMPUTE_UNUSED(enable_fast_math);
    configure_as(ConvolutionMethod::GEMM, input, weights, biases, output, info, act, dilation, num_groups);
  }
};

#define ARMILLARY_COMPUTE_CL(NAME) using CL##NAME = detail::OnDevice<NE##NAME>;
#define ARMILLARY_COMPUTE_CL4(A, B, C, D) \
  ARMILLARY_COMPUTE_CL(A) ARMILLARY_COMPUTE_CL(B) ARMILLARY_COMPUTE_CL(C) ARMILLARY_COMPUTE_CL(D)
ARMILLARY_COMPUTE_CL4(Gaussian3x3, Gaussian5x5, Box3x3, Median3x3)
ARMILLARY_COMPUTE_CL4(Erode, Dilate, NonLinearFilter, NonMaximaSuppression3x3)
ARMILLARY_COMPUTE_CL4(Sobel3x3, Sobel5x5, Sobel7x7, Scharr3x3)
ARMILLARY_COMPUTE_CL4(Convolution3x3, Convolution5x5, Convolution7x7, Convolution9x9)
ARMILLARY_COMPUTE_CL4(ConvolutionRectangle, Derivative, ArithmeticAddition, ArithmeticSubtraction)
ARMILLARY_COMPUTE_CL4(PixelWiseMultiplication, AbsoluteDifference, Threshold, BitwiseNot)
ARMILLARY_COMPUTE_CL4(BitwiseAnd, BitwiseOr, BitwiseXor, Accumulate)
ARMILLARY_COMPUTE_CL4(AccumulateSquared, AccumulateWeighted, Magnitude, Phase)
ARMILLARY_COMPUTE_CL4(Scale, Remap, WarpAffine, WarpPerspective)
ARMILLARY_COMPUTE_CL4(FastCorners, HarrisCorners, GEMM, GEMMConvolutionLayer)
ARMILLARY_COMPUTE_CL4(DirectConvolutionLayer, WinogradConvolutionLayer, FullyConnectedLayer, FlattenLayer)
ARMILLARY_COMPUTE_CL4(ReshapeLayer, PoolingLayer, ActivationLayer, SoftmaxLayer)
ARMILLARY_COMPUTE_CL4(FFTConvolutionLayer, ColorConvert, ChannelExtract, ChannelCombine)
ARMILLARY_COMPUTE_CL4(DepthwiseConvolutionLayer, BatchNormalizationLayer, NormalizationLayer, DepthConcatenateLayer)
ARMILLARY_COMPUTE_CL4(Histogram, MeanStdDev, MinMaxLocation, GaussianPyramidHalf)
ARMILLARY_COMPUTE_CL4(EqualizeHistogram, TableLookup, CannyEdge, OpticalFlow)
ARMILLARY_COMPUTE_CL(HOGDescriptor) ARMILLARY_COMPUTE_CL(HOGDetector) ARMILLARY_COMPUTE_CL(HOGMultiDetection)
using CLWinogradLayer = CLWinogradConvolutionLayer;

namespace graph { namespace detail {
struct CLFunctions {
  static TargetHint target() { return TargetHint::OPENCL; }
  using Activation = CLActivationLayer;
  using Pooling = CLPoolingLayer;
  using Softmax = CLSoftmaxLayer;
  using Flatten = CLFlattenLayer;
  using Reshape = CLReshapeLayer;
  using FullyConnected = CLFullyConnectedLayer;
  using Convolution = CLConvolutionLayer;
  using GEMM = CLGEMMConvolutionLayer;
  using Direct = CLDirectConvolutionLayer;
  using Winograd = CLWinogradConvolutionLayer;
  using FFT = CLFFTConvolutionLayer;
  using Depthwise = CLDepthwiseConvolutionLayer;
  using BatchNormalization = CLBatchNormalizationLayer;
  using Normalization = CLNormalizationLayer;
};
inline compute::Tensor *new_cl_tensor() { // a graph prepares OpenCL itself
  CLScheduler::get().default_init();
  return new CLTensor;
}
static const bool has_cl_operations = (factory_of(TargetHint::OPENCL) = new_cl_tensor, register_operations<CLFunctions>());
}} // namespace graph::detail

}} // namespace armillary::compute
