// The compute library without Python: images, windows, schedulers and filters over kernels that were compiled ahead.
//
// In: a library that `armillary.compute.build` wrote, and `armillary_compute_kernels.hpp` beside this file, which lists
// its kernels; the other headers of this folder. Out: classes with the names and the order of arguments of Arm Compute
// Library's. Invariant: memory is taken by `allocate` alone; valid regions, paddings and bytes are those of the Python library (`core/compiled.py`).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <typeinfo>
#include <vector>

#include "armillary_compute_kernels.hpp"
#if defined(ARM_COMPUTE_OPENMP_SCHEDULER) && defined(_OPENMP)
#include <omp.h>
#endif

namespace armillary { namespace compute {

enum class Format { U8, S16, F32 };
enum class DataType { U8, S16, F32 };
enum class BorderMode { UNDEFINED, CONSTANT, REPLICATE };

struct BorderSize {
  BorderSize(unsigned int t = 0, unsigned int r = 0, unsigned int b = 0, unsigned int l = 0)
      : top(t), right(r), bottom(b), left(l) {}
  unsigned int top, right, bottom, left;
};
using PaddingSize = BorderSize;

class Coordinates : public std::array<int, 6> {
public:
  static constexpr size_t num_max_dimensions = 6;
  explicit Coordinates(int x = 0, int y = 0, int z = 0) : std::array<int, 6>{{x, y, z, 0, 0, 0}} {}
  int x() const { return (*this)[0]; }
  int y() const { return (*this)[1]; }
  int z() const { return (*this)[2]; }
};

class TensorShape : public std::array<size_t, 6> {
public:
  TensorShape(size_t x = 1, size_t y = 1, size_t z = 1, size_t w = 1, size_t v = 1, size_t u = 1)
      : std::array<size_t, 6>{{x, y, z, w, v, u}} {}
  size_t x() const { return (*this)[0]; }
  size_t y() const { return (*this)[1]; }
  size_t z() const { return (*this)[2]; }
  size_t num_dimensions() const {
    size_t count = 6;
    while (count > 0 && (*this)[count - 1] == 1) count--;
    return count;
  }
  size_t total_size() const { return x() * y() * planes(); }
  size_t planes() const { return z() * (*this)[3] * (*this)[4] * (*this)[5]; }
};
using Strides = std::array<size_t, 3>; // of a value, a row and a plane

struct ValidRegion {
  Coordinates anchor;
  TensorShape shape;
  int start(size_t n) const { return anchor[n]; }
  int end(size_t n) const { return anchor[n] + static_cast<int>(shape[n]); }
};

class TensorInfo {
public:
  TensorInfo() = default;
  TensorInfo(unsigned int width, unsigned int height, Format format) { set(TensorShape(width, height), format); }
  TensorInfo(const TensorShape &shape, Format format) { set(shape, format); }
  TensorInfo(const TensorShape &shape, size_t num_channels, DataType type) {
    if (num_channels != 1) throw std::invalid_argument("a tensor has one channel");
    set(shape, Format(int(type)));
  }

  size_t dimension(size_t n) const { return shape_[n]; }
  const TensorShape &tensor_shape() const { return shape_; }
  Format format() const { return format_; }
  DataType data_type() const { return DataType(int(format_)); }
  size_t element_size() const { return size_t(1) << int(format_); }
  size_t num_dimensions() const { return shape_.num_dimensions(); }
  PaddingSize padding() const { return padding_; }
  ValidRegion valid_region() const { return region_; }
  void set_valid_region(const ValidRegion &region) { region_ = region; }
  int64_t columns() const { return int64_t(shape_[0]) + padding_.left + padding_.right; }
  int64_t rows() const { return int64_t(shape_[1]) + padding_.top + padding_.bottom; }
  size_t total_size() const { return size_t(columns() * rows()) * element_size() * shape_.planes(); }
  Strides strides_in_bytes() const {
    return {{element_size(), element_size() * size_t(columns()), element_size() * size_t(columns() * rows())}};
  }
  size_t offset_element_in_bytes(const Coordinates &at) const {
    int64_t plane = 0;
    for (size_t n = 5; n >= 2; n--) plane = plane * int64_t(shape_[n]) + at[n];
    const int64_t row = plane * rows() + at.y() + padding_.top;
    return size_t(row * columns() + at.x() + padding_.left) * element_size();
  }
  size_t offset_first_element_in_bytes() const { return offset_element_in_bytes(Coordinates()); }
  bool is_resizable() const { return is_resizable_; }
  void set_is_resizable(bool value) { is_resizable_ = value; }

  // Ask for at least so much padding; whether it is there: memory that is allocated does not grow.
  bool extend_padding(const PaddingSize &more) {
    PaddingSize wanted{std::max(padding_.top, more.top), std::max(padding_.right, more.right),
                       std::max(padding_.bottom, more.bottom), std::max(padding_.left, more.left)};
    const bool is_there = wanted.top == padding_.top && wanted.right == padding_.right &&
                          wanted.bottom == padding_.bottom && wanted.left == padding_.left;
    if (!is_there && !is_resizable_) return false;
    padding_ = wanted;
    return true;
  }
  void init(const TensorShape &shape, Format format) { set(shape, format); }
  // With padding that follows from strides, from where the first value is, and from the size of all.
  void init(const TensorShape &shape, Format format, const Strides &strides, size_t offset, size_t total) {
    set(shape, format);
    const size_t size = element_size(), row = strides[1], top = row ? offset / row : 0;
    const size_t left = row ? offset % row / size : 0, height = row ? total / shape.planes() / row : 0;
    if (row < (shape[0] + left) * size || height < shape[1] + top || total != height * row * shape.planes() || row % size)
      throw std::invalid_argument("strides, offset and size do not hold the tensor");
    padding_ = PaddingSize{unsigned(top), unsigned(row / size - shape[0] - left), unsigned(height - shape[1] - top),
                           unsigned(left)};
  }
  // Enough for every function: 4 elements around, 32 more at the end of a row.
  void init_auto_padding(const TensorShape &shape, Format format) {
    set(shape, format);
    extend_padding(PaddingSize{4, 36, 4, 4});
  }

private:
  void set(const TensorShape &shape, Format format) {
    shape_ = shape, format_ = format, padding_ = PaddingSize();
    region_ = ValidRegion{Coordinates(), shape};
  }
  TensorShape shape_;
  Format format_ = Format::U8;
  PaddingSize padding_;
  ValidRegion region_;
  bool is_resizable_ = true;
};

class Tensor;
class MemoryGroup;

// A device that runs kernels over tensors of its own, by names and numbers (`armillary_compute_cl.hpp`).
class IDevice {
public:
  virtual ~IDevice() = default;
  virtual void launch(const std::string &kernel, const std::vector<const Tensor *> &tensors,
                      const std::map<std::string, int64_t> &values) = 0;
};

class TensorAllocator {
public:
  explicit TensorAllocator(Tensor &owner) : owner_(owner) {}
  void init(const TensorInfo &info);
  void allocate();
  void free();

private:
  Tensor &owner_;
};

class Tensor {
public:
  Tensor() : allocator_(*this) {}
  virtual ~Tensor() = default;
  Tensor(const Tensor &) = delete;
  Tensor &operator=(const Tensor &) = delete;
  TensorInfo *info() { return &info_; }
  const TensorInfo *info() const { return &info_; }
  TensorAllocator *allocator() { return &allocator_; }
  uint8_t *buffer() const {
    if (!bytes_) throw std::runtime_error("the tensor has no memory: call allocator()->allocate(), or acquire its group");
    return bytes_;
  }
  uint8_t *ptr_to_element(const Coordinates &at) const { return buffer() + info_.offset_element_in_bytes(at); }
  // Of a device: who it is, and the host's sight of the memory. Tensors of the host are always in sight.
  virtual IDevice *device() const { return nullptr; }
  virtual void map(bool blocking = true) { (void)blocking; }
  virtual void unmap() {}
  bool is_on_device() const { return device() != nullptr; }
  // Whether a run still reads it: weights that were packed are read no more.
  bool is_used() const { return is_used_; }
  void mark_as_unused() const { is_used_ = false; }
  void mark_as_used() const { is_used_ = true; }

protected:
  friend class TensorAllocator;
  friend class MemoryGroup;
  virtual void take_memory() { // of its own
    memory_.reset(new uint8_t[info_.total_size()]());
    bytes_ = memory_.get();
  }
  virtual void drop_memory() {
    memory_.reset();
    bytes_ = nullptr;
  }
  virtual void place(void *blob) { bytes_ = static_cast<uint8_t *>(blob); } // in a group's memory, or nowhere
  virtual bool has_memory() const { return memory_ != nullptr; }
  TensorInfo info_;
  TensorAllocator allocator_;
  std::unique_ptr<uint8_t[]> memory_;
  uint8_t *bytes_ = nullptr;
  mutable bool is_used_ = true;
  MemoryGroup *group_ = nullptr;
};
using ITensor = Tensor;
class Image : public Tensor {};
using IImage = Tensor;

class Window {
public:
  static constexpr size_t DimX = 0, DimY = 1, DimZ = 2;
  class Dimension {
  public:
    constexpr Dimension(int start = 0, int end = 1, int step = 1) : start_(start), end_(end), step_(step) {}
    constexpr int start() const { return start_; }
    constexpr int end() const { return end_; }
    constexpr int step() const { return step_; }

  private:
    int start_, end_, step_;
  };

  const Dimension &operator[](size_t n) const { return dims_.at(n); }
  const Dimension &x() const { return dims_[0]; }
  const Dimension &y() const { return dims_[1]; }
  const Dimension &z() const { return dims_[2]; }
  void set(size_t n, const Dimension &value) { dims_.at(n) = value; }
  void use_tensor_dimensions(const TensorShape &shape, size_t first = DimX) {
    for (size_t n = first; n < dims_.size(); n++) dims_[n] = Dimension(0, int(shape[n]), 1);
  }
  size_t num_iterations(size_t n) const {
    const Dimension &d = dims_.at(n);
    return size_t((d.end() - d.start() + d.step() - 1) / d.step());
  }
  // One of `total` sub-windows; the first ones take one iteration more where it is uneven.
  Window split_window(size_t n, size_t id, size_t total) const {
    const Dimension d = dims_.at(n);
    const int count = int(num_iterations(n)), share = count / int(total), rest = count % int(total);
    const int first = int(id) * share + std::min(int(id), rest), last = first + share + (int(id) < rest);
    Window part = *this;
    part.set(n, Dimension(d.start() + first * d.step(), std::min(d.end(), d.start() + last * d.step()), d.step()));
    return part;
  }

private:
  std::array<Dimension, 6> dims_;
};

class Iterator {
public:
  Iterator(Tensor *tensor, const Window &window) : tensor_(tensor) {
    move(Coordinates(window.x().start(), window.y().start(), window.z().start()));
  }
  uint8_t *ptr() const { return tensor_->buffer() + offset_; }
  size_t offset() const { return offset_; }
  void move(const Coordinates &at) { offset_ = tensor_->info()->offset_element_in_bytes(at); }

private:
  Tensor *tensor_;
  size_t offset_ = 0;
};

// Call a function for each place of a window, with the iterators there.
template <typename Body, typename... Iterators>
void execute_window_loop(const Window &window, Body &&body, Iterators &&...iterators) {
  Coordinates at;
  for (size_t n = 0; n < Coordinates::num_max_dimensions; n++) {
    if (window.num_iterations(n) == 0) return;
    at[n] = window[n].start();
  }
  for (;;) {
    const int moved[] = {0, (iterators.move(at), 0)...};
    (void)moved;
    body(const_cast<const Coordinates &>(at));
    size_t n = 0; // the first dimension changes fastest
    while (n < Coordinates::num_max_dimensions && (at[n] += window[n].step()) >= window[n].end()) {
      at[n] = window[n].start();
      n++;
    }
    if (n == Coordinates::num_max_dimensions) return;
  }
}

}} // namespace armillary::compute
#include "armillary_compute_memory.hpp"

#include "armillary_compute_schedulers.hpp"

namespace armillary { namespace compute {

namespace detail {
using Values = std::map<std::string, int64_t>;

inline const kernels::Kernel &find(const std::string &name) {
  for (const kernels::Kernel *k = kernels::all(); k->name != nullptr; k++)
    if (name == k->name) return *k;
  throw std::runtime_error("the kernel " + name + " was not built: name its function to armillary.compute.build");
}

inline void call(const kernels::Kernel &kernel, const std::vector<void *> &tensors, const Values &values, int64_t begin,
                 int64_t end, int64_t thread) {
  std::vector<void *> data(tensors);
  data.insert(data.end(), 2, nullptr); // it needs no scratch memory
  std::vector<int64_t> numbers;
  for (const char *const *name = kernel.values; *name != nullptr; name++) numbers.push_back(values.at(*name));
  if (kernel.run(data.data(), numbers.data(), begin, end, thread) != 0)
    throw std::runtime_error(std::string("a compiled kernel failed: ") + kernel.name);
}

inline std::string name_of(DataType type) {
  return type == DataType::U8 ? "U8" : type == DataType::S16 ? "S16" : "F32";
}

// Reals are given as the bits of a double.
inline int64_t bits_of(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline void add_plane(Values &values, const std::string &name, const TensorInfo &info) {
  values[name + "_rows"] = info.rows(), values[name + "_columns"] = info.columns();
  values["top_" + name] = info.padding().top, values["left_" + name] = info.padding().left;
}

inline uint8_t *plane_of(const Tensor &tensor, size_t z) {
  return tensor.buffer() + z * tensor.info()->strides_in_bytes()[2];
}

// Fills the border around the valid pixels of a tensor.
class BorderKernel final : public IKernel {
public:
  BorderKernel(Tensor *tensor, BorderSize size, BorderMode mode, int constant)
      : tensor_(tensor), size_(size), mode_(mode), constant_(constant), region_(tensor->info()->valid_region()) {}
  bool is_parallelisable() const override { return false; }
  void run(const Window &, const ThreadInfo &info) override {
    const TensorInfo &t = *tensor_->info();
    const int x = region_.start(0), y = region_.start(1), right = region_.end(0), bottom = region_.end(1);
    Values v;
    add_plane(v, "plane", t);
    v["top_plane"] += y, v["left_plane"] += x;
    v["width"] = right - x, v["height"] = bottom - y, v["is_constant"] = mode_ == BorderMode::CONSTANT;
    v["top"] = std::min<int64_t>(size_.top, t.padding().top + y);
    v["left"] = std::min<int64_t>(size_.left, t.padding().left + x);
    v["right"] = std::min<int64_t>(size_.right, int64_t(t.dimension(0)) + t.padding().right - right);
    v["bottom"] = std::min<int64_t>(size_.bottom, int64_t(t.dimension(1)) + t.padding().bottom - bottom);
    v["value"] = constant_;
    const char *type = t.data_type() == DataType::U8 ? "uint8" : "int16";
    for (size_t z = 0; z < t.tensor_shape().planes(); z++)
      call(find(std::string("fill_border_") + type), {plane_of(*tensor_, z)}, v, 0, 1, info.thread_id);
  }

private:
  Tensor *tensor_;
  BorderSize size_;
  BorderMode mode_;
  int constant_;
  ValidRegion region_;
};

// A formula over the window of its first output.
class FormulaKernel final : public IKernel {
public:
  using Tensors = std::vector<Tensor *>;
  FormulaKernel(const std::string &name, Tensors inputs, Tensors outputs, BorderMode border, Values numbers)
      : kernel_(find(name)), inputs_(std::move(inputs)), outputs_(std::move(outputs)), values_(std::move(numbers)) {
    check();
    const TensorInfo &out = *outputs_[0]->info();
    const int reach_x = kernel_.reach_x, reach_y = kernel_.reach_y, step = kernels::STEP;
    const bool is_undefined = border == BorderMode::UNDEFINED;
    const int side = is_undefined ? reach_x : 0, above = is_undefined ? reach_y : 0;
    const int width = int(out.dimension(0)), height = int(out.dimension(1));
    int x = 0, y = 0, right = width, bottom = height;
    for (Tensor *each : inputs_) { // what is valid of all of them
      const ValidRegion valid = each->info()->valid_region();
      x = std::max(x, valid.start(0)), y = std::max(y, valid.start(1));
      right = std::min(right, valid.end(0)), bottom = std::min(bottom, valid.end(1));
    }
    x += side, y += above, right -= side, bottom -= above;
    const unsigned int beyond = unsigned(std::max(0, x + (right - x + step - 1) / step * step - width));
    int room = std::numeric_limits<int>::max();
    for (Tensor *each : inputs_) {
      TensorInfo &in = *each->info();
      in.extend_padding(PaddingSize{unsigned(reach_y), reach_x + beyond, unsigned(reach_y), unsigned(reach_x)});
      x = std::max(x, reach_x - int(in.padding().left)), y = std::max(y, reach_y - int(in.padding().top));
      bottom = std::min(bottom, height + int(in.padding().bottom) - reach_y);
      room = std::min(room, width + int(in.padding().right) - reach_x);
    }
    for (Tensor *each : outputs_) {
      each->info()->extend_padding(PaddingSize{0, beyond, 0, 0});
      room = std::min(room, width + int(each->info()->padding().right));
    }
    const int steps = std::min((right - x + step - 1) / step, (room - x) / step);
    if (right <= x || room <= x || steps <= 0 || bottom <= y)
      throw std::invalid_argument(name + ": " + std::to_string(width) + "x" + std::to_string(height) +
                                  " pixels without padding leave no window");
    Window window;
    window.set(Window::DimX, Window::Dimension(x, x + steps * step, step));
    window.set(Window::DimY, Window::Dimension(y, bottom));
    configure(window);
    TensorShape covered = out.tensor_shape();
    covered[0] = size_t(std::min(x + steps * step, right) - x), covered[1] = size_t(bottom - y);
    for (Tensor *each : outputs_) each->info()->set_valid_region(ValidRegion{Coordinates(x, y), covered});
  }
  void run(const Window &part, const ThreadInfo &info) override {
    Values v(values_);
    Tensors all(inputs_);
    all.insert(all.end(), outputs_.begin(), outputs_.end());
    for (size_t n = 0; n < all.size(); n++) {
      const bool is_input = n < inputs_.size();
      add_plane(v, is_input ? "in" + std::to_string(n) : "out" + std::to_string(n - inputs_.size()), *all[n]->info());
    }
    const int first = window().y().start();
    v["y0"] = first, v["rows"] = window().y().end() - first;
    v["x0"] = part.x().start(), v["steps"] = int64_t(part.num_iterations(Window::DimX));
    for (size_t z = 0; z < outputs_[0]->info()->tensor_shape().planes(); z++) {
      std::vector<void *> data;
      for (Tensor *each : all) data.push_back(plane_of(*each, z));
      call(kernel_, data, v, part.y().start() - first, part.y().end() - first, info.thread_id);
    }
  }

private:
  void check() const { // types and sizes
    std::string given;
    for (const auto *side : {&inputs_, &outputs_}) {
      for (Tensor *each : *side) {
        given += (given.empty() ? "" : ",") + name_of(each->info()->data_type());
        if (each->info()->tensor_shape() != outputs_[0]->info()->tensor_shape())
          throw std::invalid_argument(std::string(kernel_.name) + ": tensors of different sizes");
      }
    }
    if (given != kernel_.types)
      throw std::invalid_argument(std::string(kernel_.name) + ": tensors are " + given + ", wanted " + kernel_.types);
  }
  const kernels::Kernel &kernel_;
  Tensors inputs_, outputs_;
  Values values_;
};
} // namespace detail

class IFunction {
public:
  virtual ~IFunction() = default;
  virtual void prepare() {} // what the first run would do once: packing weights
  virtual void run() = 0;
};

// One formula: borders of the inputs, if the mode has one, then the kernel.
class Filter : public IFunction {
public:
  void run() override {
    if (kernels_.empty()) throw std::runtime_error("the function is not configured: call configure first");
    for (auto &kernel : kernels_) Scheduler::get().schedule(kernel.get(), Window::DimY);
  }

protected:
  void set(const std::string &name, const std::vector<Tensor *> &inputs, const std::vector<Tensor *> &outputs,
           BorderMode border = BorderMode::UNDEFINED, int constant = 0, detail::Values numbers = {}) {
    const kernels::Kernel &kernel = detail::find(name);
    const BorderSize size{unsigned(kernel.reach_y), unsigned(kernel.reach_x), unsigned(kernel.reach_y),
                          unsigned(kernel.reach_x)};
    std::vector<std::unique_ptr<IKernel>> all;
    if (border != BorderMode::UNDEFINED && kernel.reach_x + kernel.reach_y > 0)
      for (Tensor *input : inputs) all.emplace_back(new detail::BorderKernel(input, size, border, constant));
    all.emplace_back(new detail::FormulaKernel(name, inputs, outputs, border, std::move(numbers)));
    kernels_ = std::move(all);
  }

private:
  std::vector<std::unique_ptr<IKernel>> kernels_;
};

#define ARMILLARY_COMPUTE_FILTER(NAME, KERNEL)                                                         \
  class NAME : public Filter {                                                                         \
  public:                                                                                              \
    void configure(ITensor *input, ITensor *output, BorderMode border_mode, uint8_t constant = 0) {    \
      set(KERNEL, {input}, {output}, border_mode, constant);                                           \
    }                                                                                                  \
  };
ARMILLARY_COMPUTE_FILTER(NEGaussian3x3, "gaussian3x3")
ARMILLARY_COMPUTE_FILTER(NEGaussian5x5, "gaussian5x5")
ARMILLARY_COMPUTE_FILTER(NEBox3x3, "box3x3")
ARMILLARY_COMPUTE_FILTER(NEMedian3x3, "median3x3")
ARMILLARY_COMPUTE_FILTER(NEErode, "erode")
ARMILLARY_COMPUTE_FILTER(NEDilate, "dilate")
#undef ARMILLARY_COMPUTE_FILTER

// A square matrix of S16 values, divided by a scale (0: the sum of the matrix), saturated to U8 or S16.
template <int Side> class Convolution : public Filter {
public:
  void configure(ITensor *input, ITensor *output, const int16_t *conv, uint32_t scale, BorderMode border_mode,
                 uint8_t constant = 0) {
    detail::Values numbers;
    int sum = 0;
    for (int n = 0; n < Side * Side; n++) numbers["number" + std::to_string(n)] = conv[n], sum += conv[n];
    const double factor = 1.0 / (scale != 0 ? double(scale) : std::max(1, std::abs(sum)));
    std::memcpy(&numbers["number" + std::to_string(Side * Side)], &factor, sizeof factor);
    const std::string side = std::to_string(Side), type = output->info()->data_type() == DataType::U8 ? "U8" : "S16";
    set("convolution" + side + "x" + side + "_" + type, {input}, {output}, border_mode, constant, std::move(numbers));
  }
};
using NEConvolution3x3 = Convolution<3>;
using NEConvolution5x5 = Convolution<5>;
using NEConvolution7x7 = Convolution<7>;
using NEConvolution9x9 = Convolution<9>;

}} // namespace armillary::compute
#include "armillary_compute_layers.hpp"
#include "armillary_compute_points.hpp"
#include "armillary_compute_graph.hpp"
namespace arm_compute = armillary::compute; // the name that programs written for Arm's library use
