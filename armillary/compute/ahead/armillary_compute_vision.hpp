// Vision functions: their kernels, and filters over the pixels around. Part of `armillary_compute.hpp`.
//
// In: images, what lies beside them. Out: images. Invariant: `configure` asks for padding and sets valid regions as the
// Python functions do (`functions/vision/base.py`), and so are the bytes; on a device nothing beside an image is written.
#pragma once

namespace armillary { namespace compute { namespace detail {

// The place of a tensor's values in its memory, as kernels take it.
inline void add_plane(Values &values, const std::string &name, const TensorInfo &info) {
  const int64_t channels = int64_t(info.num_channels());
  values[name + "_rows"] = info.rows(), values[name + "_columns"] = info.columns() * channels;
  values["top_" + name] = info.padding().top, values["left_" + name] = info.padding().left * channels;
}
inline uint8_t *plane_of(const Tensor &tensor, size_t z) {
  return tensor.buffer() + z * tensor.info()->strides_in_bytes()[2];
}

struct Sides {
  int left, top, right, bottom;
};
inline Sides sides_of(const ValidRegion &region) { return {region.start(0), region.start(1), region.end(0), region.end(1)}; }
inline ValidRegion region_of(const Sides &sides, TensorShape shape) {
  shape[0] = size_t(std::max(0, sides.right - sides.left)), shape[1] = size_t(std::max(0, sides.bottom - sides.top));
  return ValidRegion{Coordinates(sides.left, sides.top), shape};
}
inline Sides eroded(const Sides &s, int across, int down) {
  return {s.left + across, s.top + down, s.right - across, s.bottom - down};
}

// Fills the border around the valid pixels of a tensor.
class BorderKernel final : public IKernel {
public:
  BorderKernel(Tensor *tensor, BorderSize size, BorderMode mode, int constant)
      : tensor_(tensor), size_(size), mode_(mode), constant_(constant), sides_(sides_of(tensor->info()->valid_region())) {}
  bool is_parallelisable() const override { return false; }
  void run(const Window &, const ThreadInfo &info) override {
    const TensorInfo &t = *tensor_->info();
    const int x = sides_.left, y = sides_.top, right = sides_.right, bottom = sides_.bottom;
    Values v;
    add_plane(v, "plane", t);
    v["top_plane"] += y, v["left_plane"] += x;
    v["width"] = right - x, v["height"] = bottom - y, v["is_constant"] = mode_ == BorderMode::CONSTANT;
    v["top"] = std::min<int64_t>(size_.top, t.padding().top + y);
    v["left"] = std::min<int64_t>(size_.left, t.padding().left + x);
    v["right"] = std::min<int64_t>(size_.right, int64_t(t.dimension(0)) + t.padding().right - right);
    v["bottom"] = std::min<int64_t>(size_.bottom, int64_t(t.dimension(1)) + t.padding().bottom - bottom);
    v["value"] = t.data_type() == DataType::F32 ? bits_of(constant_) : constant_;
    for (size_t z = 0; z < t.tensor_shape().planes(); z++)
      call(find("border_" + name_of(t.data_type())), {plane_of(*tensor_, z)}, v, 0, 1, info.thread_id);
  }

private:
  Tensor *tensor_;
  BorderSize size_;
  BorderMode mode_;
  int constant_;
  Sides sides_;
};

using Tensors = std::vector<Tensor *>;

// A formula over the window of its first output; on a device, which computes the border where it reads it.
class FormulaKernel final : public IKernel {
public:
  FormulaKernel(IDevice *device, const std::string &name, Tensors inputs, Tensors outputs, BorderMode border, int constant,
                const std::vector<double> &numbers, const ValidRegion *region)
      : device_(device), kernel_(find(name)), inputs_(std::move(inputs)), outputs_(std::move(outputs)), border_(border) {
    check();
    for (size_t n = 0; n < numbers.size(); n++)
      values_["number" + std::to_string(n)] = kernel_.numbers[n] == 'i' ? int64_t(numbers[n]) : bits_of(numbers[n]);
    values_["constant"] = constant;
    seen_ = common();
    const TensorInfo &out = *outputs_[0]->info();
    const Sides whole{0, 0, int(out.dimension(0)), int(out.dimension(1))};
    Sides sides = region != nullptr ? sides_of(*region) : kernel_.same_size ? seen_ : whole;
    if (region == nullptr && border == BorderMode::UNDEFINED) sides = eroded(sides, kernel_.reach_x, kernel_.reach_y);
    const int right = sides.right, step = device == nullptr ? kernels::STEP : 1;
    const int steps = device == nullptr ? steps_in_memory(sides) : std::max(0, right - sides.left);
    if (right <= sides.left || steps <= 0 || sides.bottom <= sides.top)
      throw std::invalid_argument(name + ": " + std::to_string(whole.right) + "x" + std::to_string(whole.bottom) +
                                  " pixels without padding leave no window");
    Window window;
    window.set(Window::DimX, Window::Dimension(sides.left, sides.left + steps * step, step));
    window.set(Window::DimY, Window::Dimension(sides.top, sides.bottom));
    configure(window);
    sides.right = std::min(sides.left + steps * step, right);
    for (Tensor *each : outputs_) each->info()->set_valid_region(region_of(sides, out.tensor_shape()));
  }
  bool is_parallelisable() const override { return device_ == nullptr; }
  void run(const Window &part, const ThreadInfo &info) override {
    Tensors all(inputs_);
    all.insert(all.end(), outputs_.begin(), outputs_.end());
    if (device_ != nullptr) return launch(part, all);
    Values v(values_);
    for (size_t n = 0; n < all.size(); n++) {
      const bool is_input = n < inputs_.size();
      add_plane(v, is_input ? "in" + std::to_string(n) : "out" + std::to_string(n - inputs_.size()), *all[n]->info());
    }
    const int first = window().y().start();
    v["y0"] = first, v["rows"] = window().y().end() - first;
    v["x0"] = part.x().start(), v["steps"] = int64_t(part.num_iterations(Window::DimX));
    for (size_t z = 0; z < outputs_[0]->info()->tensor_shape().planes(); z++) {
      std::vector<void *> data;
      for (Tensor *each : all) data.push_back(plane_of(*each, each->info()->tensor_shape().planes() > 1 ? z : 0));
      call(kernel_, data, v, part.y().start() - first, part.y().end() - first, info.thread_id);
    }
  }

private:
  // What is valid of all inputs of the output's size, or of the first one.
  Sides common() const {
    Sides sides = sides_of(inputs_[0]->info()->valid_region());
    for (Tensor *each : inputs_) {
      const Sides other = sides_of(each->info()->valid_region());
      if (!kernel_.same_size) break;
      sides = {std::max(sides.left, other.left), std::max(sides.top, other.top), std::min(sides.right, other.right),
               std::min(sides.bottom, other.bottom)};
    }
    return sides;
  }
  // Ask for the padding of whole vectors; how many steps stay in the memory of all tensors.
  int steps_in_memory(Sides &sides) const {
    const TensorInfo &out = *outputs_[0]->info();
    const int reach_x = kernel_.reach_x, reach_y = kernel_.reach_y, step = kernels::STEP;
    const int width = int(out.dimension(0)), height = int(out.dimension(1));
    const int wide = (sides.right - sides.left + step - 1) / step * step;
    const unsigned int beyond = unsigned(std::max(0, sides.left + wide - width));
    int room = std::numeric_limits<int>::max();
    for (Tensor *each : inputs_) {
      if (!kernel_.same_size) break;
      TensorInfo &in = *each->info();
      in.extend_padding(PaddingSize{unsigned(reach_y), reach_x + beyond, unsigned(reach_y), unsigned(reach_x)});
      sides.left = std::max(sides.left, reach_x - int(in.padding().left));
      sides.top = std::max(sides.top, reach_y - int(in.padding().top));
      sides.bottom = std::min(sides.bottom, height + int(in.padding().bottom) - reach_y);
      room = std::min(room, width + int(in.padding().right) - reach_x);
    }
    for (Tensor *each : outputs_) {
      each->info()->extend_padding(PaddingSize{0, beyond, 0, 0});
      room = std::min(room, width + int(each->info()->padding().right));
    }
    return std::min((sides.right - sides.left + step - 1) / step, (room - sides.left) / step);
  }
  void launch(const Window &part, const Tensors &all) const {
    static const char *const names[] = {"/UNDEFINED", "/CONSTANT", "/REPLICATE"};
    Values v(values_);
    v["x0"] = part.x().start(), v["y0"] = part.y().start(), v["z0"] = 0;
    v["across"] = part.x().end() - part.x().start(), v["down"] = part.y().end() - part.y().start(), v["deep"] = 1;
    v["left"] = seen_.left, v["top"] = seen_.top, v["right"] = seen_.right, v["bottom"] = seen_.bottom;
    for (size_t z = 0; z < outputs_[0]->info()->tensor_shape().planes(); z++) {
      for (size_t n = 0; n < all.size(); n++) {
        const TensorInfo &info = *all[n]->info();
        const std::string k = std::to_string(n);
        const int64_t channels = int64_t(info.num_channels());
        v["rows" + k] = info.rows() * int64_t(info.tensor_shape().planes()), v["columns" + k] = info.columns() * channels;
        v["top" + k] = info.padding().top + (info.tensor_shape().planes() > 1 ? int64_t(z) * info.rows() : 0);
        v["left" + k] = info.padding().left * channels;
      }
      device_->launch(kernel_.name + std::string(names[int(border_)]), {all.begin(), all.end()}, v);
    }
  }
  void check() const { // types and sizes
    std::string types;
    for (const auto *side : {&inputs_, &outputs_}) {
      for (Tensor *each : *side) {
        types += (types.empty() ? "" : ",") + name_of(each->info()->data_type());
        const bool is_alike = each->info()->tensor_shape() == outputs_[0]->info()->tensor_shape();
        if ((kernel_.same_size || side == &outputs_) && !is_alike)
          throw std::invalid_argument(std::string(kernel_.name) + ": tensors of different sizes");
        if (kernel_.same_size && each->info()->num_channels() != 1)
          throw std::invalid_argument(std::string(kernel_.name) + ": a tensor has several values for a pixel");
      }
    }
    if (types != kernel_.types)
      throw std::invalid_argument(std::string(kernel_.name) + ": tensors are " + types + ", wanted " + kernel_.types);
  }
  IDevice *device_;
  const kernels::Kernel &kernel_;
  Tensors inputs_, outputs_;
  BorderMode border_;
  Values values_;
  Sides seen_;
};
} // namespace detail

// Kernels that run one after another, and the images between them.
class VisionFunction : public detail::Function {
public:
  void run() override {
    if (kernels_.empty()) throw std::runtime_error("the function is not configured: call configure first");
    for (auto &kernel : kernels_) Scheduler::get().schedule(kernel.get(), Window::DimY);
  }

protected:
  using Numbers = std::vector<double>;
  void clear() { kernels_.clear(), images_.clear(); }
  ITensor *image(const TensorInfo &like, DataType type) { // one that the function keeps
    images_.emplace_back(new_tensor());
    images_.back()->allocator()->init(TensorInfo(like.tensor_shape(), 1, type));
    return images_.back().get();
  }
  // A formula: borders of the inputs, if the mode has one, then the kernel.
  void step(const std::string &name, const detail::Tensors &inputs, const detail::Tensors &outputs,
            BorderMode border = BorderMode::UNDEFINED, int constant = 0, const Numbers &numbers = {},
            const ValidRegion *region = nullptr) {
    const kernels::Kernel &kernel = detail::find(name);
    const unsigned int x = unsigned(kernel.reach_x), y = unsigned(kernel.reach_y);
    std::vector<std::unique_ptr<IKernel>> fills;
    if (border != BorderMode::UNDEFINED && x + y > 0 && device() == nullptr)
      for (Tensor *input : inputs) fills.emplace_back(new detail::BorderKernel(input, BorderSize(y, x, y, x), border, constant));
    std::unique_ptr<IKernel> own(new detail::FormulaKernel(device(), name, inputs, outputs, border, constant, numbers, region));
    for (auto &fill : fills) kernels_.push_back(std::move(fill));
    kernels_.push_back(std::move(own));
  }
  void set(const std::string &name, const detail::Tensors &inputs, const detail::Tensors &outputs,
           BorderMode border = BorderMode::UNDEFINED, int constant = 0, const Numbers &numbers = {}) {
    clear();
    step(name, inputs, outputs, border, constant, numbers);
  }
  void finish() { // all kernels have said what padding they need
    for (auto &each : images_) each->allocator()->allocate();
  }
  std::vector<std::unique_ptr<IKernel>> kernels_;

private:
  std::vector<std::unique_ptr<Tensor>> images_;
};

namespace detail {
// A filter's kernel alone, for programs that schedule it themselves; with a border they fill it before.
class FilterKernel : public IKernel {
public:
  bool is_parallelisable() const override { return own_->is_parallelisable(); }
  void run(const Window &window, const ThreadInfo &info = ThreadInfo()) override { own_->run(window, info); }

protected:
  virtual IDevice *device() const { return nullptr; }
  void make(const char *name, const ITensor *input, ITensor *output, bool border_undefined) {
    const BorderMode border = border_undefined ? BorderMode::UNDEFINED : BorderMode::REPLICATE;
    own_.reset(new FormulaKernel(device(), name, {const_cast<ITensor *>(input)}, {output}, border, 0, {}, nullptr));
    IKernel::configure(own_->window());
  }

private:
  std::unique_ptr<FormulaKernel> own_;
};
} // namespace detail

// One image of U8 in, one out.
#define ARMILLARY_COMPUTE_FILTER(NAME, KERNEL)                                                                     \
  class NAME : public VisionFunction {                                                                             \
  public:                                                                                                          \
    void configure(ITensor *input, ITensor *output, BorderMode border_mode, uint8_t constant_border_value = 0) {   \
      set(KERNEL, {input}, {output}, border_mode, constant_border_value);                                          \
    }                                                                                                              \
  };                                                                                                               \
  class NAME##Kernel : public detail::FilterKernel {                                                               \
  public:                                                                                                          \
    void configure(const ITensor *input, ITensor *output, bool border_undefined) {                                 \
      make(KERNEL, input, output, border_undefined);                                                               \
    }                                                                                                              \
  };
ARMILLARY_COMPUTE_FILTER(NEGaussian3x3, "gaussian3x3")
ARMILLARY_COMPUTE_FILTER(NEGaussian5x5, "gaussian5x5")
ARMILLARY_COMPUTE_FILTER(NEBox3x3, "box3x3")
ARMILLARY_COMPUTE_FILTER(NEMedian3x3, "median3x3")
ARMILLARY_COMPUTE_FILTER(NEErode, "erode")
ARMILLARY_COMPUTE_FILTER(NEDilate, "dilate")
#undef ARMILLARY_COMPUTE_FILTER

// Gradients along x and y; one of both outputs may be null.
#define ARMILLARY_COMPUTE_GRADIENT(NAME, KERNEL, TYPE)                                                             \
  class NAME : public VisionFunction {                                                                             \
  public:                                                                                                          \
    void configure(ITensor *input, ITensor *output_x, ITensor *output_y, BorderMode border_mode,                   \
                   uint8_t constant_border_value = 0) {                                                            \
      if (!output_x && !output_y) throw std::invalid_argument(KERNEL ": neither of both gradients is asked for");  \
      clear();                                                                                                     \
      ITensor *x = output_x ? output_x : image(*input->info(), DataType::TYPE);                                    \
      ITensor *y = output_y ? output_y : image(*input->info(), DataType::TYPE);                                    \
      step(KERNEL, {input}, {x, y}, border_mode, constant_border_value);                                           \
      finish();                                                                                                    \
    }                                                                                                              \
  };
ARMILLARY_COMPUTE_GRADIENT(NESobel3x3, "sobel3x3", S16)
ARMILLARY_COMPUTE_GRADIENT(NESobel5x5, "sobel5x5", S16)
ARMILLARY_COMPUTE_GRADIENT(NESobel7x7, "sobel7x7", S32)
ARMILLARY_COMPUTE_GRADIENT(NEScharr3x3, "scharr3x3", S16)
ARMILLARY_COMPUTE_GRADIENT(NEDerivative, "derivative", S16)
#undef ARMILLARY_COMPUTE_GRADIENT

// A matrix of S16 values, divided by a scale (0: the sum of the matrix), saturated to U8 or S16.
class NEConvolutionRectangle : public VisionFunction {
public:
  void configure(ITensor *input, ITensor *output, const int16_t *conv, uint32_t rows, uint32_t cols, uint32_t scale,
                 BorderMode border_mode, uint8_t constant_border_value = 0) {
    Numbers numbers(conv, conv + rows * cols);
    double sum = 0;
    for (double each : numbers) sum += each;
    numbers.push_back(1.0 / (scale != 0 ? double(scale) : std::max(1.0, std::abs(sum))));
    const char *type = output->info()->data_type() == DataType::U8 ? "_U8" : "_S16";
    set("convolution" + std::to_string(cols) + "x" + std::to_string(rows) + type, {input}, {output}, border_mode,
        constant_border_value, numbers);
  }
};
template <unsigned int Side> class NEConvolution : public NEConvolutionRectangle {
public:
  void configure(ITensor *input, ITensor *output, const int16_t *conv, uint32_t scale, BorderMode border_mode,
                 uint8_t constant_border_value = 0) {
    NEConvolutionRectangle::configure(input, output, conv, Side, Side, scale, border_mode, constant_border_value);
  }
};
using NEConvolution3x3 = NEConvolution<3>;
using NEConvolution5x5 = NEConvolution<5>;
using NEConvolution7x7 = NEConvolution<7>;
using NEConvolution9x9 = NEConvolution<9>;

enum class NonLinearFilterFunction { MEDIAN, MIN, MAX };
enum class MatrixPattern { BOX, CROSS, DISK, OTHER };

// The middle, least or greatest pixel under a mask of 3x3 or 5x5; masks that are no pattern are compiled by Python alone.
class NENonLinearFilter : public VisionFunction {
public:
  void configure(ITensor *input, ITensor *output, NonLinearFilterFunction func, unsigned int mask_size, MatrixPattern pattern,
                 const uint8_t *mask, BorderMode border_mode, uint8_t constant_border_value = 0) {
    if (mask_size != 3 && mask_size != 5) throw std::invalid_argument("NENonLinearFilter: a mask of side 3 or 5");
    static const char *const names[] = {"median", "least", "greatest"};
    const int half = int(mask_size) / 2;
    unsigned int places = 0;
    for (int dy = -half; dy <= half; dy++)
      for (int dx = -half; dx <= half; dx++) {
        const unsigned int at = unsigned(dy + half) * mask_size + unsigned(dx + half);
        const bool is_cross = dy == 0 || dx == 0, is_disk = std::abs(dy) + std::abs(dx) < 2 * half || (half == 1 && is_cross);
        const bool has = pattern == MatrixPattern::CROSS ? is_cross : pattern == MatrixPattern::DISK ? is_disk
                         : pattern == MatrixPattern::BOX || mask[at];
        places |= unsigned(has) << at;
      }
    std::ostringstream name;
    name << "non_linear_" << names[int(func)] << "_" << mask_size << "_" << std::hex << places;
    set(name.str(), {input}, {output}, border_mode, constant_border_value);
  }
};

// Pixels of U8 or F32 that are larger than all around; others become 0.
class NENonMaximaSuppression3x3 : public VisionFunction {
public:
  void configure(ITensor *input, ITensor *output, BorderMode border_mode) {
    if (border_mode == BorderMode::REPLICATE) throw std::invalid_argument("NENonMaximaSuppression3x3: UNDEFINED or CONSTANT");
    set("non_maxima_" + detail::name_of(input->info()->data_type()), {input}, {output}, border_mode);
  }
};

}} // namespace armillary::compute
