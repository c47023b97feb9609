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
#include <sstream>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "armillary_compute_kernels.hpp"
#ifndef NO_MULTI_THREADING
#include <thread>
#endif
#if defined(ARM_COMPUTE_OPENMP_SCHEDULER) && defined(_OPENMP)
#include <omp.h>
#endif

#define ARM_COMPUTE_UNUSED(...) ((void)(__VA_ARGS__)) // of what a listing names and does not read

namespace armillary { namespace compute {

enum class Format { U8, S16, F32, S32, U32, RGB888, RGBA8888, UV88, YUYV422, UYVY422, NV12, NV21, IYUV, YUV444 };
enum class DataType { U8, S16, F32, S32, U32 };
enum class BorderMode { UNDEFINED, CONSTANT, REPLICATE };

struct BorderSize {
  BorderSize(unsigned int t = 0, unsigned int r = 0, unsigned int b = 0, unsigned int l = 0)
      : top(t), right(r), bottom(b), left(l) {}
  unsigned int top, right, bottom, left;
};
using PaddingSize = BorderSize;

struct Size2D {
  Size2D(size_t w = 0, size_t h = 0) : width(w), height(h) {}
  bool operator==(const Size2D &o) const { return width == o.width && height == o.height; }
  size_t area() const { return width * height; }
  size_t width, height;
};

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
    set(shape, Format(int(type))), channels_ = num_channels;
  }
  // Of a model's descriptors, for an image of this size.
  template <class Model, class = decltype(std::declval<const Model &>().num_bins_per_block())>
  TensorInfo(const Model &hog, unsigned int width, unsigned int height) {
    const auto blocks = hog.num_block_positions_per_image(Size2D(width, height));
    set(TensorShape(blocks.width, blocks.height), Format::F32), channels_ = hog.num_bins_per_block();
  }

  TensorInfo without_padding() const {
    TensorInfo result(shape_, format_);
    result.channels_ = channels_;
    return result;
  }
  size_t dimension(size_t n) const { return shape_[n]; }
  const TensorShape &tensor_shape() const { return shape_; }
  Format format() const { return format_; }
  DataType data_type() const { return format_ > Format::U32 ? DataType::U8 : DataType(int(format_)); }
  size_t num_channels() const { // values of a pixel
    if (channels_ != 1) return channels_;
    if (format_ == Format::RGB888 || format_ == Format::RGBA8888) return format_ == Format::RGB888 ? 3 : 4;
    return format_ == Format::UV88 || format_ == Format::YUYV422 || format_ == Format::UYVY422 ? 2 : 1;
  }
  size_t element_size() const { // of a pixel
    return num_channels() * (data_type() == DataType::U8 ? 1 : data_type() == DataType::S16 ? 2 : 4);
  }
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
    shape_ = shape, format_ = format, padding_ = PaddingSize(), channels_ = 1;
    region_ = ValidRegion{Coordinates(), shape};
  }
  TensorShape shape_;
  Format format_ = Format::U8;
  size_t channels_ = 1; // where no format says it
  PaddingSize padding_;
  ValidRegion region_;
  bool is_resizable_ = true;
};

using ITensorInfo = TensorInfo;

class Tensor;
class MemoryGroup;

// A device that runs kernels over tensors of its own, by names and numbers (`armillary_compute_cl.hpp`).
class IDevice {
public:
  virtual ~IDevice() = default;
  virtual void launch(const std::string &kernel, const std::vector<const Tensor *> &tensors,
                      const std::map<std::string, int64_t> &values) = 0;
  virtual Tensor *new_tensor() const = 0;
};

// Vectors of the last row read so far behind a tensor of another size than the output: 15 pixels of four values.
constexpr size_t READ_BEHIND = 64;

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
    memory_.reset(new uint8_t[info_.total_size() + READ_BEHIND]());
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
  static const char *const names[] = {"U8", "S16", "F32", "S32", "U32"};
  return names[int(type)];
}

// Reals are given as the bits of a double.
inline int64_t bits_of(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

} // namespace detail

class IFunction {
public:
  virtual ~IFunction() = default;
  virtual void prepare() {} // what the first run would do once: packing weights
  virtual void run() = 0;
};

namespace detail {
// Functions of the processor; those of a device have tensors and kernels there (`OnDevice`).
class Function : public IFunction {
protected:
  virtual IDevice *device() const { return nullptr; }
  Tensor *new_tensor() const { return device() != nullptr ? device()->new_tensor() : new Tensor; }
};
} // namespace detail

}} // namespace armillary::compute
#include "armillary_compute_layers.hpp"
#include "armillary_compute_rows.hpp"
#include "armillary_compute_vision.hpp"
#include "armillary_compute_points.hpp"
#include "armillary_compute_colours.hpp"
#include "armillary_compute_features.hpp"
#include "armillary_compute_pyramids.hpp"
#include "armillary_compute_tracking.hpp"
#include "armillary_compute_hog.hpp"
#include "armillary_compute_graph.hpp"
#ifdef ARMILLARY_COMPUTE_HAS_CL
#include "armillary_compute_cl.hpp"
#endif
namespace arm_compute = armillary::compute; // the name that programs written for Arm's library use
