// Layers of float32 as stages that the scheduler in place splits one by one. Part of `armillary_compute.hpp`.
//
// In: tensors (width, height, channels, batch). Out: the same. Invariant: the stages, their order and their numbers are
// those of the Python library (`functions/nn/staged.py`); weights are turned at the first run; memory between stages is
// managed, so that functions of one memory manager share it.
#pragma once

#include "armillary_compute_images.hpp"

namespace armillary { namespace compute {

enum class DimensionRoundingType { FLOOR, CEIL };
class PadStrideInfo {
public:
  PadStrideInfo(unsigned int stride_x = 1, unsigned int stride_y = 1, unsigned int pad_x = 0, unsigned int pad_y = 0,
                DimensionRoundingType round = DimensionRoundingType::FLOOR)
      : PadStrideInfo(stride_x, stride_y, pad_x, pad_x, pad_y, pad_y, round) {}
  PadStrideInfo(unsigned int stride_x, unsigned int stride_y, unsigned int left, unsigned int right, unsigned int top,
                unsigned int bottom, DimensionRoundingType round)
      : x_(stride_x), y_(stride_y), left_(left), right_(right), top_(top), bottom_(bottom), round_(round) {}
  std::pair<unsigned int, unsigned int> stride() const { return {x_, y_}; }
  std::pair<unsigned int, unsigned int> pad() const { return {left_, top_}; }
  unsigned int pad_left() const { return left_; }
  unsigned int pad_right() const { return right_; }
  unsigned int pad_top() const { return top_; }
  unsigned int pad_bottom() const { return bottom_; }
  DimensionRoundingType round() const { return round_; }
  // How often a kernel fits.
  std::pair<int, int> scaled(int width, int height, int kernel_x, int kernel_y) const {
    return {steps(width + int(left_ + right_) - kernel_x, int(x_)), steps(height + int(top_ + bottom_) - kernel_y, int(y_))};
  }

private:
  int steps(int room, int stride) const {
    if (room < 0 || stride < 1) throw std::invalid_argument("the kernel does not fit the image");
    return (room + (round_ == DimensionRoundingType::CEIL ? stride - 1 : 0)) / stride + 1;
  }
  unsigned int x_, y_, left_, right_, top_, bottom_;
  DimensionRoundingType round_;
};

class ActivationLayerInfo {
public:
  enum class ActivationFunction {
    LOGISTIC, TANH, RELU, BOUNDED_RELU, LU_BOUNDED_RELU, LEAKY_RELU, SOFT_RELU, ABS, SQUARE, SQRT, LINEAR
  };
  ActivationLayerInfo() = default;
  ActivationLayerInfo(ActivationFunction f, float a = 0.0f, float b = 0.0f) : f_(f), a_(a), b_(b), enabled_(true) {}
  ActivationFunction activation() const { return f_; }
  float a() const { return a_; }
  float b() const { return b_; }
  bool enabled() const { return enabled_; }
  const char *name() const {
    static const char *const names[] = {"LOGISTIC", "TANH", "RELU", "BOUNDED_RELU", "LU_BOUNDED_RELU", "LEAKY_RELU",
                                        "SOFT_RELU", "ABS", "SQUARE", "SQRT", "LINEAR"};
    return names[int(f_)];
  }

private:
  ActivationFunction f_ = ActivationFunction::RELU;
  float a_ = 0.0f, b_ = 0.0f;
  bool enabled_ = false;
};

enum class PoolingType { MAX, AVG };
class PoolingLayerInfo {
public:
  PoolingLayerInfo(PoolingType type, unsigned int size, PadStrideInfo pad_stride = PadStrideInfo())
      : type(type), size(int(size)), info(pad_stride) {}
  PoolingType type;
  int size;
  PadStrideInfo info;
};
enum class ConvolutionMethod { GEMM, DIRECT, WINOGRAD, FFT };
struct WeightsInfo {};

// Dimension n of the output is dimension perm[n] of the input.
using PermutationVector = std::vector<size_t>;
class CPPPermute : public IFunction {
public:
  void configure(const ITensor *input, ITensor *output, const PermutationVector &perm) {
    TensorShape shape = input->info()->tensor_shape(), from = shape;
    std::vector<bool> is_named(perm.size());
    for (size_t n = 0; n < perm.size(); n++) {
      if (perm.size() > 4 || perm[n] >= perm.size() || is_named[perm[n]])
        throw std::invalid_argument("CPPPermute: a permutation names each of at most 4 dimensions once");
      is_named[perm[n]] = true, shape[n] = from[perm[n]];
    }
    if (output->info()->total_size() <= 1) output->allocator()->init(TensorInfo(shape, 1, input->info()->data_type()));
    if (output->info()->tensor_shape() != shape) throw std::invalid_argument("CPPPermute: the output has another shape");
    if (output->info()->element_size() != input->info()->element_size())
      throw std::invalid_argument("CPPPermute: the output has another type");
    input_ = input, output_ = output, perm_ = perm;
  }
  void run() override {
    if (input_ == nullptr) throw std::runtime_error("the function is not configured: call configure first");
    Window window;
    window.use_tensor_dimensions(output_->info()->tensor_shape());
    Iterator target(output_, window);
    execute_window_loop(window, [&](const Coordinates &at) {
      Coordinates from(at);
      for (size_t n = 0; n < perm_.size(); n++) from[perm_[n]] = at[n];
      std::memcpy(target.ptr(), input_->ptr_to_element(from), input_->info()->element_size());
    }, target);
  }

private:
  const ITensor *input_ = nullptr;
  ITensor *output_ = nullptr;
  PermutationVector perm_;
};

struct GEMMInfo {};

namespace detail {
constexpr int LANES = 16, OUTPUTS = 4;
inline int filled(int count, int unit) { return (count + unit - 1) / unit * unit; }

// A block of sums, 8x12 or 4x16: what fills up less; on AArch64 by what a block loads for its products, too.
struct Tile {
  int rows, columns;
};
inline Tile tile_of(int rows, int columns) {
#ifdef __aarch64__
  const int64_t wide = 116, narrow = 126; // (products + loads) / products, of 96
#else
  const int64_t wide = 1, narrow = 1;
#endif
  const int64_t by_8x12 = wide * filled(rows, 8) * filled(columns, 12), by_4x16 = narrow * filled(rows, 4) * filled(columns, 16);
  return by_8x12 <= by_4x16 ? Tile{8, 12} : Tile{4, 16};
}

// One stage: a window of `count` iterations; `in` and `out` are tensors whose padding its numbers tell.
class StageKernel final : public IKernel {
public:
  using Tensors = std::vector<std::pair<const char *, const Tensor *>>;
  StageKernel(IDevice *device, const std::string &name, Tensors tensors, int count, Values values,
              const char *image_name = "", const Tensor *image = nullptr)
      : device_(device), kernel_(find(name)), tensors_(std::move(tensors)), values_(std::move(values)),
        image_name_(image_name), image_(image), count_(count) {
    Window window;
    window.set(Window::DimX, Window::Dimension(0, count));
    configure(window);
  }
  const Tensors &tensors() const { return tensors_; }
  bool is_parallelisable() const override { return device_ == nullptr; } // a device takes all of a window
  void also_at(const char *name, const Tensor *tensor) { more_name_ = name, more_ = tensor; }
  void run(const Window &part, const ThreadInfo &info) override {
    Values v(values_);
    for (auto &each : tensors_) v[std::string(each.first) + "_size"] = int64_t(each.second->info()->total_size() / 4);
    v["count"] = count_;
    place(v, image_name_, image_);
    place(v, more_name_, more_);
    if (device_ != nullptr) {
      std::vector<const Tensor *> tensors;
      for (auto &each : tensors_) tensors.push_back(each.second);
      return device_->launch(kernel_.name, tensors, v);
    }
    std::vector<void *> data;
    for (auto &each : tensors_) data.push_back(each.second->buffer());
    call(kernel_, data, v, part.x().start(), part.x().end(), info.thread_id);
  }

private:
  static void place(Values &v, const std::string &prefix, const Tensor *tensor) {
    if (tensor == nullptr) return;
    const Strides strides = tensor->info()->strides_in_bytes();
    v[prefix + "offset"] = int64_t(tensor->info()->offset_first_element_in_bytes() / 4);
    v[prefix + "pitch"] = int64_t(strides[1] / 4), v[prefix + "plane"] = int64_t(strides[2] / 4);
  }
  IDevice *device_;
  const kernels::Kernel &kernel_;
  Tensors tensors_;
  Values values_;
  std::string image_name_, more_name_;
  const Tensor *image_, *more_ = nullptr;
  int count_;
};

inline void limits(Values &v, const ActivationLayerInfo &act) {
  using F = ActivationLayerInfo::ActivationFunction;
  const double inf = std::numeric_limits<double>::infinity();
  const F f = act.activation();
  if (act.enabled() && f != F::RELU && f != F::BOUNDED_RELU && f != F::LU_BOUNDED_RELU)
    throw std::invalid_argument("a layer takes an activation that clamps; others are layers of their own");
  v["high"] = bits_of(act.enabled() && f != F::RELU ? double(act.a()) : inf);
  v["low"] = bits_of(!act.enabled() ? -inf : f == F::LU_BOUNDED_RELU ? double(act.b()) : 0.0);
}
} // namespace detail

// A function of stages: those of the weights once, the others at each run.
class StagedFunction : public detail::Function {
public:
  explicit StagedFunction(std::shared_ptr<IMemoryManager> manager = nullptr) : group_(std::move(manager)) {}
  void prepare() override {
    if (is_prepared_) return;
    for (auto &kernel : once_) Scheduler::get().schedule(kernel.get(), Window::DimX);
    is_prepared_ = true;
    for (auto &kernel : once_)
      for (auto &each : kernel->tensors()) each.second->mark_as_unused();
    for (auto &kernel : each_)
      for (auto &each : kernel->tensors()) each.second->mark_as_used();
  }
  void run() override {
    if (each_.empty()) throw std::runtime_error("the function is not configured: call configure first");
    prepare();
    group_.acquire();
    try {
      for (auto &kernel : each_) Scheduler::get().schedule(kernel.get(), Window::DimX);
    } catch (...) {
      group_.release();
      throw;
    }
    group_.release();
  }

protected:
  using Stage = detail::StageKernel;
  Tensor *begin(size_t size) {
    Tensor *tensor = make(size);
    group_.manage(tensor);
    return tensor;
  }
  void end(Tensor *tensor) { tensor->allocator()->allocate(); }
  Tensor *constant(size_t size) {
    Tensor *tensor = make(size);
    tensor->allocator()->allocate();
    return tensor;
  }
  void clear() { once_.clear(), each_.clear(), is_prepared_ = false; }
  Stage *add(const std::string &name, Stage::Tensors tensors, int count, detail::Values values,
             const char *image_name = "", const Tensor *image = nullptr) {
    each_.emplace_back(new Stage(device(), name, std::move(tensors), count, std::move(values), image_name, image));
    return each_.back().get();
  }
  void add_once(const std::string &name, Stage::Tensors tensors, int count, detail::Values values,
                const char *image_name = "", const Tensor *image = nullptr) {
    once_.emplace_back(new Stage(device(), name, std::move(tensors), count, std::move(values), image_name, image));
  }
  // The values of a tensor one after another, from one on, in a tensor without padding.
  void add_copy(const Tensor *from, const Tensor *to, int64_t first = 0) {
    want_dense(to);
    const TensorShape &shape = from->info()->tensor_shape();
    const int64_t columns = int64_t(shape[0]), rows = int64_t(shape[1]);
    const detail::Values v{{"out_columns", columns}, {"out_rows", rows}, {"out_offset", first}, {"out_pitch", columns},
                           {"out_plane", rows * columns}};
    add("copy_rows", {{"x", from}, {"out", to}}, int(rows * shape.planes()), v, "in_", from);
  }
  static void init_output(Tensor *output, const TensorShape &shape) {
    if (output->info()->total_size() <= 1) output->allocator()->init(TensorInfo(shape, 1, DataType::F32));
    if (output->info()->tensor_shape() != shape) throw std::invalid_argument("the output has another shape");
  }
  static void want_dense(const Tensor *weights) {
    const PaddingSize pad = weights->info()->padding();
    if (pad.top + pad.bottom + pad.left + pad.right) throw std::invalid_argument("weights have padding");
  }

private:
  Tensor *make(size_t size) {
    memory_.emplace_back(new_tensor());
    memory_.back()->allocator()->init(TensorInfo(TensorShape(size), 1, DataType::F32));
    return memory_.back().get();
  }
  std::vector<std::unique_ptr<Tensor>> memory_;
  std::vector<std::unique_ptr<Stage>> once_, each_;
  bool is_prepared_ = false;
  MemoryGroup group_;
};

class NEGEMM : public StagedFunction {
public:
  using StagedFunction::StagedFunction;
  void configure(const ITensor *a, const ITensor *b, const ITensor *c, ITensor *d, float alpha, float beta,
                 const GEMMInfo & = GEMMInfo()) {
    const TensorShape &left = a->info()->tensor_shape(), &right = b->info()->tensor_shape();
    if (left[0] != right[1]) throw std::invalid_argument("NEGEMM: the inner sizes differ");
    clear();
    const int rows = int(left[1]), terms = int(left[0]), columns = int(right[0]);
    init_output(d, TensorShape(right[0], left[1]));
    const int high = detail::tile_of(rows, columns).rows, wide = detail::tile_of(rows, columns).columns;
    const int whole_rows = detail::filled(rows, high), whole = detail::filled(columns, wide);
    const std::string tile = std::to_string(high) + "x" + std::to_string(wide);
    detail::Values v{{"rows", rows}, {"terms", terms}, {"columns", columns}, {"whole", whole}};
    Tensor *panels = constant(size_t(terms) * whole), *blocks = begin(size_t(whole_rows) * terms);
    add_once("transpose_1x" + std::to_string(wide), {{"b", b}, {"out", panels}}, whole / wide, v, "", b);
    add("interleave_" + std::to_string(high) + "x4", {{"a", a}, {"out", blocks}}, whole_rows / high, v, "", a);
    Tensor *product = begin(size_t(whole_rows) * whole);
    detail::Values of_product(v);
    of_product["columns"] = whole;
    add("blocked_gemm_" + tile, {{"a", blocks}, {"b", panels}, {"out", product}}, whole_rows / high, of_product);
    end(blocks);
    v["c_offset"] = 0, v["c_pitch"] = 0, v["c_step"] = c != nullptr;
    v["alpha"] = detail::bits_of(alpha), v["beta"] = detail::bits_of(beta);
    detail::limits(v, ActivationLayerInfo());
    const Tensor *added = c != nullptr ? c : constant(1);
    auto *last = add("gemm_matrix_addition", {{"product", product}, {"c", added}, {"out", d}}, rows, v, "", d);
    if (c != nullptr) last->also_at("c_", c);
    end(product);
  }
};

class NEConvolutionLayer : public StagedFunction {
public:
  using StagedFunction::StagedFunction;
  // The text's rule.
  static ConvolutionMethod get_convolution_method(const TensorInfo *input, const TensorInfo *weights,
                                                  const TensorInfo *biases, const TensorInfo *, const PadStrideInfo &info,
                                                  const WeightsInfo & = WeightsInfo(), const Size2D &dilation = Size2D(1, 1),
                                                  const ActivationLayerInfo & = ActivationLayerInfo(),
                                                  unsigned int num_groups = 1) {
    const bool is_small = weights->dimension(0) == 3 && weights->dimension(1) == 3 && weights->num_dimensions() <= 4;
    const bool is_winograd = input->data_type() == DataType::F32 && is_small && info.stride().first == 1 &&
                             info.stride().second == 1 && biases != nullptr && dilation == Size2D(1, 1) && num_groups == 1;
    return is_winograd ? ConvolutionMethod::WINOGRAD : ConvolutionMethod::GEMM;
  }
  void configure(const ITensor *input, const ITensor *weights, const ITensor *biases, ITensor *output,
                 const PadStrideInfo &info, const WeightsInfo &weights_info = WeightsInfo(),
                 const Size2D &dilation = Size2D(1, 1), const ActivationLayerInfo &act = ActivationLayerInfo(),
                 bool enable_fast_math = false, unsigned int num_groups = 1) {
    ARM_COMPUTE_UNUSED(enable_fast_math);
    const TensorInfo *b = biases != nullptr ? biases->info() : nullptr;
    const auto method = get_convolution_method(input->info(), weights->info(), b, output->info(), info, weights_info, dilation,
                                               act, num_groups);
    configure_as(method, input, weights, biases, output, info, act, dilation, num_groups);
  }

protected:
  void configure_as(ConvolutionMethod method, const ITensor *input, const ITensor *weights, const ITensor *biases,
                    ITensor *output, const PadStrideInfo &info, const ActivationLayerInfo &act,
                    const Size2D &dilation = Size2D(1, 1), unsigned int groups = 1) {
    const TensorShape &in = input->info()->tensor_shape(), &k = weights->info()->tensor_shape();
    if (groups < 1 || in[2] != k[2] * groups || k[3] % groups)
      throw std::invalid_argument("NEConvolutionLayer: weights are for another number of channels");
    detail::Values own; // each group reads its own channels where the image lies
    if (groups > 1) own = {{"group_channels", int64_t(k[2])}, {"group_outputs", int64_t(k[3] / groups)}};
    configure_moves(input, weights, output, info, act, dilation, k[3], std::move(own), [&](detail::Values v, int batch) {
      if (groups > 1) return direct(input, weights, biases, output, std::move(v), batch);
      if (method == ConvolutionMethod::WINOGRAD) return winograd(input, weights, biases, output, std::move(v), batch);
      if (method == ConvolutionMethod::FFT) return fourier(input, weights, biases, output, std::move(v), batch);
      if (method == ConvolutionMethod::DIRECT) return direct(input, weights, biases, output, std::move(v), batch);
      gemm(input, weights, biases, output, std::move(v), batch);
    });
  }
  // The numbers of a convolution, with which a method writes down its stages.
  template <class Method>
  void configure_moves(const ITensor *input, const ITensor *weights, ITensor *output, const PadStrideInfo &info,
                       const ActivationLayerInfo &act, const Size2D &dilation, size_t outputs, detail::Values v,
                       Method &&method) {
    const TensorShape &in = input->info()->tensor_shape(), &k = weights->info()->tensor_shape();
    clear();
    want_dense(weights);
    const int across = int((k[0] - 1) * dilation.width) + 1, down = int((k[1] - 1) * dilation.height) + 1;
    if (dilation.area() < 1) throw std::invalid_argument("a dilation of 0, wanted at least 1");
    const auto size = info.scaled(int(in[0]), int(in[1]), across, down);
    init_output(output, TensorShape(size_t(size.first), size_t(size.second), outputs, in[3]));
    v.insert({{"channels", int(in[2])}, {"outputs", int(outputs)}, {"kernel_x", int(k[0])}, {"kernel_y", int(k[1])},
                     {"stride_x", info.stride().first}, {"stride_y", info.stride().second}, {"dilation_x", int64_t(dilation.width)},
                     {"dilation_y", int64_t(dilation.height)}, {"out_columns", size.first}, {"out_rows", size.second},
                     {"rows", int(in[1])}, {"columns", int(in[0])}, {"left", info.pad_left()}, {"top", info.pad_top()}});
    detail::limits(v, act);
    method(std::move(v), int(in[3]));
  }
  using V = detail::Values;
  // Biases filled up with zeros, copied at the first run by the stage that turns weights.
  const Tensor *biases_or_zeros(const ITensor *biases, int count) {
    if (biases == nullptr) return constant(size_t(count));
    Tensor *filled = constant(size_t(count));
    V v{{"padded_rows", 1}, {"padded", count}, {"rows", 1}, {"columns", int(biases->info()->dimension(0))}};
    v["top"] = v["left"] = 0;
    add_once("fill_border_float32", {{"image", biases}, {"out", filled}}, 1, v, "", biases);
    return filled;
  }
  Tensor *bordered(const ITensor *input, V &v, int batch, int64_t columns) {
    auto reach = [&](int64_t count, const char *axis) {
      const std::string a(axis);
      return (count - 1) * v["stride_" + a] + (v["kernel_" + a] - 1) * v["dilation_" + a] + 1;
    };
    v["padded"] = std::max(reach(columns, "x"), v["left"] + v["columns"]);
    v["padded_rows"] = std::max(reach(v["out_rows"], "y"), v["top"] + v["rows"]);
    const int planes = batch * int(v["channels"]);
    Tensor *out = begin(size_t(planes * v["padded"] * v["padded_rows"]));
    add("fill_border_float32", {{"image", input}, {"out", out}}, planes, v, "", input);
    return out;
  }
  void direct(const ITensor *input, const ITensor *weights, const ITensor *biases, ITensor *output, V v, int batch) {
    const Tensor *added = biases_or_zeros(biases, int(v["outputs"]));
    Tensor *image = bordered(input, v, batch, detail::filled(int(v["out_columns"]), detail::LANES));
    const int blocks = detail::filled(int(v["outputs"]), detail::OUTPUTS) / detail::OUTPUTS;
    const std::string kind = v.count("group_channels") ? "grouped_convolution" : "direct_convolution";
    const std::string name = v["stride_x"] == 1 ? kind : kind + "_strided";
    add(name, {{"image", image}, {"weights", weights}, {"biases", added}, {"out", output}}, batch * blocks, v, "", output);
    end(image);
  }

private:
  void gemm(const ITensor *input, const ITensor *weights, const ITensor *biases, ITensor *output, V v, int batch) {
    const int outputs = int(v["outputs"]), lines = batch * int(v["out_rows"]), rows = lines * int(v["out_columns"]);
    const int terms = int(v["channels"] * v["kernel_x"] * v["kernel_y"]);
    const int high = detail::tile_of(rows, outputs).rows, wide = detail::tile_of(rows, outputs).columns;
    const int whole_rows = detail::filled(rows, high), whole = detail::filled(outputs, wide);
    const Tensor *added = biases_or_zeros(biases, outputs);
    Tensor *turned = constant(size_t(terms) * outputs), *panels = constant(size_t(terms) * whole);
    const V of_weights{{"terms", terms}, {"outputs", outputs}, {"columns", outputs}, {"offset", 0}, {"pitch", outputs}};
    add_once("reshape_weights", {{"weights", weights}, {"out", turned}}, terms, of_weights);
    add_once("transpose_1x" + std::to_string(wide), {{"b", turned}, {"out", panels}}, whole / wide, of_weights);
    Tensor *image = bordered(input, v, batch, v["out_columns"]), *matrix = begin(size_t(rows) * terms);
    add("im2col", {{"image", image}, {"out", matrix}}, lines, v);
    end(image);
    const V p{{"rows", rows}, {"terms", terms}, {"offset", 0}, {"pitch", terms}, {"columns", whole}};
    Tensor *blocks = begin(size_t(whole_rows) * terms);
    add("interleave_" + std::to_string(high) + "x4", {{"a", matrix}, {"out", blocks}}, whole_rows / high, p);
    end(matrix);
    Tensor *product = begin(size_t(whole_rows) * whole);
    add("blocked_gemm_" + std::to_string(high) + "x" + std::to_string(wide),
        {{"a", blocks}, {"b", panels}, {"out", product}}, whole_rows / high, p);
    end(blocks);
    v["whole"] = whole;
    add("col2im", {{"product", product}, {"biases", added}, {"out", output}}, lines, v, "", output);
    end(product);
  }
  // A convolution by transforms of tiles, of tile_x by tile_y outputs and so many products (`functions/nn/staged.py`).
  struct Tiled {
    V n, outer; // numbers of stages of the input, and of the output
    const Tensor *biases;
    int64_t kernels, tiles, products;
    int lines, batch;
  };
  Tiled tiled(const ITensor *biases, V v, int batch, int tile_x, int tile_y, int products) {
    const int whole = detail::filled(int(v["channels"]), detail::LANES), wide = detail::filled(int(v["outputs"]), detail::LANES);
    const int64_t across = (v["out_columns"] + tile_x - 1) / tile_x, down = (v["out_rows"] + tile_y - 1) / tile_y;
    v["tile_columns"] = across, v["tile_rows"] = down, v["tile_x"] = tile_x, v["tile_y"] = tile_y;
    v["whole"] = v["whole_channels"] = whole, v["whole_outputs"] = wide;
    v["whole_tiles"] = detail::filled(int(batch * down * across), 4);
    V outer(v);
    outer["rows"] = v["out_rows"], outer["columns"] = v["out_columns"], outer["whole"] = wide, outer["channels"] = v["outputs"];
    return Tiled{v, outer, biases_or_zeros(biases, wide), int64_t(whole) * wide, batch * down * across, products,
                 int(batch * down), batch};
  }
  Tensor *then(const std::string &name, const char *from, Tensor *input, int64_t size, int count, const V &v) {
    Tensor *out = begin(size_t(size));
    add(name, {{from, input}, {"out", out}}, count, v);
    end(input);
    return out;
  }
  Tensor *once(const std::string &name, const char *from, const Tensor *input, int64_t size, int count, const V &v) {
    Tensor *out = constant(size_t(size));
    add_once(name, {{from, input}, {"out", out}}, count, v);
    return out;
  }
  Tensor *channels_last(const ITensor *input, Tiled &t) {
    const int lines = t.batch * int(t.n["rows"]);
    Tensor *image = begin(size_t(lines * t.n["columns"] * t.n["whole"]));
    add("permute_input", {{"image", input}, {"out", image}}, lines, t.n, "", input);
    return image;
  }
  Tensor *multiplied(Tensor *points, const Tensor *panels, Tiled &t) {
    Tensor *product = begin(size_t(t.products * t.n["whole_tiles"] * t.n["whole_outputs"]));
    add("batched_gemm", {{"a", points}, {"b", panels}, {"out", product}}, int(t.products), t.n);
    end(points);
    return product;
  }
  void finish(const std::string &name, const char *from, Tensor *values, ITensor *output, Tiled &t) {
    const int lines = t.batch * int(t.outer["rows"]);
    Tensor *image = begin(size_t(lines * t.outer["columns"] * t.outer["whole"]));
    add(name, {{from, values}, {"biases", t.biases}, {"out", image}}, t.lines, t.outer);
    end(values);
    add("permute_output", {{"image", image}, {"out", output}}, lines, t.outer, "", output);
    end(image);
  }
  void winograd(const ITensor *input, const ITensor *weights, const ITensor *biases, ITensor *output, V v, int batch) {
    const int side = std::min(v["rows"], v["columns"]) > 4 ? 4 : 2, products = (side + 2) * (side + 2);
    const std::string suffix = side == 4 ? "_4x4" : "_2x2";
    Tiled t = tiled(biases, v, batch, side, side, products);
    const int whole = int(t.n["whole"]), wide = int(t.n["whole_outputs"]);
    Tensor *turned = once("permute_weights", "weights", weights, 9 * t.kernels, whole, t.n);
    const Tensor *panels = once("winograd_transform_weights" + suffix, "weights", turned, products * t.kernels, wide / detail::LANES, t.n);
    const int64_t points = products * t.n["whole_tiles"] * whole;
    Tensor *tiles = then("winograd_transform_input" + suffix, "image", channels_last(input, t), points, t.lines, t.n);
    finish("winograd_transform_output" + suffix, "product", multiplied(tiles, panels, t), output, t);
  }
  void fourier(const ITensor *input, const ITensor *weights, const ITensor *biases, ITensor *output, V v, int batch) {
    if (v["stride_x"] != 1 || v["stride_y"] != 1 || std::max(v["kernel_x"], v["kernel_y"]) > 15)
      throw std::invalid_argument("a convolution by FFT takes kernels of up to 15x15 and strides of 1");
    Tiled t = tiled(biases, v, batch, 17 - int(v["kernel_x"]), 17 - int(v["kernel_y"]), 384);
    const int whole = int(t.n["whole"]), wide = int(t.n["whole_outputs"]);
    V w(t.n); // weights are images of one tile, a batch of channels whose channels are outputs
    w["whole"] = wide, w["rows"] = w["columns"] = 16, w["left"] = w["top"] = 0, w["tile_rows"] = w["tile_columns"] = 1;
    w["point_step"] = t.kernels, w["tile_step"] = detail::LANES, w["vector_step"] = whole * detail::LANES;
    Tensor *placed = once("fourier_place_weights", "weights", weights, 256 * t.kernels, whole, t.n);
    Tensor *turned = once("fourier_rows", "image", placed, 256 * t.kernels, whole, w);
    const Tensor *panels = once("fourier_columns_of_weights", "half", turned, 384 * t.kernels, whole, w);
    t.n["point_step"] = t.n["whole_tiles"] * whole, t.n["tile_step"] = whole, t.n["vector_step"] = detail::LANES;
    Tensor *half = then("fourier_rows", "image", channels_last(input, t), 256 * t.tiles * whole, t.lines, t.n);
    Tensor *points = then("fourier_columns", "half", half, 384 * t.n["whole_tiles"] * whole, t.lines, t.n);
    Tensor *product = multiplied(points, panels, t);
    finish("fourier_rows_back", "half", then("fourier_columns_back", "product", product, 256 * t.tiles * wide, t.lines, t.outer),
           output, t);
  }
};

class NEGEMMConvolutionLayer : public NEConvolutionLayer {
public:
  using NEConvolutionLayer::NEConvolutionLayer;
  void configure(const ITensor *input, const ITensor *weights, const ITensor *biases, ITensor *output,
                 const PadStrideInfo &info, const WeightsInfo & = WeightsInfo(), const Size2D &dilation = Size2D(1, 1),
                 const ActivationLayerInfo &act = ActivationLayerInfo(), unsigned int num_groups = 1) {
    configure_as(ConvolutionMethod::GEMM, input, weights, biases, output, info, act, dilation, num_groups);
  }
};

#define ARMILLARY_COMPUTE_CONVOLUTION(NAME, METHOD)                                                                     \
  class NAME : public NEConvolutionLayer {                                                                              \
  public:                                                                                                               \
    using NEConvolutionLayer::NEConvolutionLayer;                                                                       \
    void configure(const ITensor *input, const ITensor *weights, const ITensor *biases, ITensor *output,                \
                   const PadStrideInfo &info, const ActivationLayerInfo &act = ActivationLayerInfo(),                   \
                   bool enable_fast_math = false) {                                                                     \
      ARM_COMPUTE_UNUSED(enable_fast_math);                                                                                           \
      configure_as(ConvolutionMethod::METHOD, input, weights, biases, output, info, act);                               \
    }                                                                                                                   \
  };
ARMILLARY_COMPUTE_CONVOLUTION(NEDirectConvolutionLayer, DIRECT)
ARMILLARY_COMPUTE_CONVOLUTION(NEWinogradConvolutionLayer, WINOGRAD)
ARMILLARY_COMPUTE_CONVOLUTION(NEFFTConvolutionLayer, FFT)
#undef ARMILLARY_COMPUTE_CONVOLUTION
using NEWinogradLayer = NEWinogradConvolutionLayer;

// Each channel by kernels of its own: weights (width, height, channels * depth_multiplier).
class NEDepthwiseConvolutionLayer : public NEConvolutionLayer {
public:
  using NEConvolutionLayer::NEConvolutionLayer;
  void configure(const ITensor *input, const ITensor *weights, const ITensor *biases, ITensor *output, const PadStrideInfo &info,
                 unsigned int depth_multiplier = 1, const ActivationLayerInfo &act = ActivationLayerInfo(),
                 const Size2D &dilation = Size2D(1, 1)) {
    const TensorShape &in = input->info()->tensor_shape(), &k = weights->info()->tensor_shape();
    if (depth_multiplier < 1 || k[2] != in[2] * depth_multiplier || k[3] != 1)
      throw std::invalid_argument("NEDepthwiseConvolutionLayer: weights are for another number of channels");
    detail::Values more{{"group_channels", 1}, {"group_outputs", depth_multiplier}};
    configure_moves(input, weights, output, info, act, dilation, k[2], std::move(more), [&](detail::Values v, int batch) {
      direct(input, weights, biases, output, std::move(v), batch);
    });
  }
};

// Every output from every value of an image: a convolution by kernels of the image's size.
class NEFullyConnectedLayer : public NEGEMMConvolutionLayer {
public:
  using NEGEMMConvolutionLayer::NEGEMMConvolutionLayer;
  void configure(const ITensor *input, const ITensor *weights, const ITensor *biases, ITensor *output) {
    const TensorShape &in = input->info()->tensor_shape(), &w = weights->info()->tensor_shape();
    if (in.total_size() != w[0]) throw std::invalid_argument("NEFullyConnectedLayer: one image of as many values as weights have");
    init_output(output, TensorShape(w[1]));
    detail::Values v{{"rows", 1}, {"terms", int(w[0])}, {"outputs", int(w[1])}};
    rows_of(input, weights, biases, output, v);
  }

private:
  void rows_of(const ITensor *input, const ITensor *weights, const ITensor *biases, ITensor *output, detail::Values v) {
    clear();
    want_dense(weights);
    const bool is_image = input->info()->dimension(0) != input->info()->tensor_shape().total_size();
    Tensor *row = is_image ? begin(size_t(v["terms"])) : nullptr;
    if (is_image) add_copy(input, row), input = row;
    const int terms = int(v["terms"]), outputs = int(v["outputs"]), whole = detail::filled(outputs, 16);
    Tensor *turned = constant(size_t(terms) * outputs), *panels = constant(size_t(terms) * whole);
    v["columns"] = v["pitch"] = outputs, v["offset"] = 0;
    add_once("reshape_weights", {{"weights", weights}, {"out", turned}}, terms, v);
    add_once("transpose_1x16", {{"b", turned}, {"out", panels}}, whole / 16, v);
    Tensor *blocks = begin(size_t(4) * terms);
    add("interleave_4x4", {{"a", input}, {"out", blocks}}, 1, v, "", input);
    if (is_image) end(row);
    Tensor *product = begin(size_t(4) * whole);
    detail::Values p(v);
    p["columns"] = whole;
    add("blocked_gemm_4x16", {{"a", blocks}, {"b", panels}, {"out", product}}, 1, p);
    end(blocks);
    v["whole"] = whole, v["c_offset"] = v["c_pitch"] = 0, v["c_step"] = biases != nullptr;
    v["alpha"] = v["beta"] = detail::bits_of(1.0);
    detail::limits(v, ActivationLayerInfo());
    const Tensor *added = biases != nullptr ? biases : constant(1);
    auto *last = add("gemm_matrix_addition", {{"product", product}, {"c", added}, {"out", output}}, 1, v, "", output);
    if (biases != nullptr) last->also_at("c_", biases);
    end(product);
  }
};

}} // namespace armillary::compute
