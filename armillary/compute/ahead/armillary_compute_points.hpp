// Functions pixel by pixel, and those that move pixels. Part of `armillary_compute.hpp`.
//
// In: images, of U8, S16 or F32 as each says. Out: an image. Invariant: arguments are in the order of Arm Compute Library,
// values those of the Python functions; tensors of other types are a std::invalid_argument.
#pragma once

namespace armillary { namespace compute {

enum class ConvertPolicy { WRAP, SATURATE };
enum class RoundingPolicy { TO_ZERO, TO_NEAREST_UP, TO_NEAREST_EVEN };
enum class ThresholdType { BINARY, RANGE };
enum class MagnitudeType { L1NORM, L2NORM };
enum class PhaseType { SIGNED, UNSIGNED };
enum class InterpolationPolicy { NEAREST_NEIGHBOR, BILINEAR, AREA };

namespace detail {
inline std::string typed(std::string name, const Tensors &tensors) {
  for (const Tensor *each : tensors) name += "_" + name_of(each->info()->data_type());
  return name;
}
inline const char *saturating(ConvertPolicy policy, const Tensor *output) { // reals always are
  return policy == ConvertPolicy::SATURATE || output->info()->data_type() == DataType::F32 ? "_True" : "_False";
}
} // namespace detail

// A sum or a difference: U8 and S16 give S16, two of U8 also U8, F32 gives F32.
template <bool IsSum> class Arithmetic : public VisionFunction {
public:
  void configure(ITensor *input1, ITensor *input2, ITensor *output, ConvertPolicy policy = ConvertPolicy::SATURATE) {
    const std::string name = detail::typed(IsSum ? "addition" : "difference", {input1, input2, output});
    set(name + detail::saturating(policy, output), {input1, input2}, {output});
  }
};
using NEArithmeticAddition = Arithmetic<true>;
using NEArithmeticSubtraction = Arithmetic<false>;

// a * b * scale; scales are 1/2^n (towards zero) and 1/255 (to the nearest, even).
class NEPixelWiseMultiplication : public VisionFunction {
public:
  void configure(ITensor *input1, ITensor *input2, ITensor *output, float scale = 1.0f,
                 ConvertPolicy overflow_policy = ConvertPolicy::SATURATE, RoundingPolicy = RoundingPolicy::TO_ZERO) {
    const bool is_real = std::abs(scale * 255.0f - 1.0f) < 1e-4f;
    int exponent = 0;
    if (!is_real && (std::frexp(scale, &exponent) != 0.5f || exponent > 1 || exponent < -14))
      throw std::invalid_argument("NEPixelWiseMultiplication: the scale is 1/2^n with n from 0 to 15, or 1/255");
    const int shift = is_real ? 0 : 1 - exponent;
    const std::string name = detail::typed("multiply", {input1, input2, output}) + detail::saturating(overflow_policy, output);
    set(name + (is_real ? "_True" : "_False"), {input1, input2}, {output}, BorderMode::UNDEFINED, 0,
        {double(shift), double((1 << shift) - 1), is_real ? 1.0 / 255 : std::ldexp(1.0, -shift)});
  }
};

#define ARMILLARY_COMPUTE_PAIR(NAME, KERNEL)                                                                       \
  class NAME : public VisionFunction {                                                                             \
  public:                                                                                                          \
    void configure(ITensor *input1, ITensor *input2, ITensor *output) { set(KERNEL, {input1, input2}, {output}); } \
  };
ARMILLARY_COMPUTE_PAIR(NEBitwiseAnd, "bitwise_and")
ARMILLARY_COMPUTE_PAIR(NEBitwiseOr, "bitwise_or")
ARMILLARY_COMPUTE_PAIR(NEBitwiseXor, "bitwise_xor")
ARMILLARY_COMPUTE_PAIR(NEAbsoluteDifference, input1->info()->data_type() == DataType::S16 ? "absolute_difference_s16" : "absolute_difference")
#undef ARMILLARY_COMPUTE_PAIR

class NEBitwiseNot : public VisionFunction {
public:
  void configure(ITensor *input, ITensor *output) { set("bitwise_not", {input}, {output}); }
};

// One value for pixels of U8 above a threshold (RANGE: from `threshold` to `upper`), another one for the rest.
class NEThreshold : public VisionFunction {
public:
  void configure(ITensor *input, ITensor *output, uint8_t threshold, uint8_t false_value = 0, uint8_t true_value = 255,
                 ThresholdType type = ThresholdType::BINARY, uint8_t upper = 0) {
    Numbers numbers{double(threshold), double(false_value), double(true_value)};
    if (type == ThresholdType::RANGE) numbers.insert(numbers.begin() + 1, upper);
    set(type == ThresholdType::RANGE ? "threshold_range" : "threshold", {input}, {output}, BorderMode::UNDEFINED, 0, numbers);
  }
};

// The accumulated image is read and written.
class NEAccumulate : public VisionFunction {
public:
  void configure(ITensor *input, ITensor *accum) { set("accumulate", {input, accum}, {accum}); }
};
class NEAccumulateSquared : public VisionFunction {
public:
  void configure(ITensor *input, uint32_t shift, ITensor *accum) {
    if (shift > 15) throw std::invalid_argument("NEAccumulateSquared: the shift is 0 to 15");
    set("accumulate_squared", {input, accum}, {accum}, BorderMode::UNDEFINED, 0, {double(shift)});
  }
};
class NEAccumulateWeighted : public VisionFunction {
public:
  void configure(ITensor *input, float alpha, ITensor *accum, bool use_fp16 = false) {
    (void)use_fp16;
    if (!(alpha >= 0 && alpha <= 1)) throw std::invalid_argument("NEAccumulateWeighted: alpha is 0 to 1");
    set("accumulate_weighted", {input, accum}, {accum}, BorderMode::UNDEFINED, 0, {alpha});
  }
};

// The length of a gradient, and where it points.
class NEMagnitude : public VisionFunction {
public:
  void configure(ITensor *input1, ITensor *input2, ITensor *output, MagnitudeType mag_type = MagnitudeType::L2NORM) {
    set(mag_type == MagnitudeType::L1NORM ? "magnitude_l1" : "magnitude_l2", {input1, input2}, {output});
  }
};
class NEPhase : public VisionFunction {
public:
  void configure(ITensor *input1, ITensor *input2, ITensor *output, PhaseType phase_type = PhaseType::SIGNED) {
    set(phase_type == PhaseType::UNSIGNED ? "phase_unsigned" : "phase_signed", {input1, input2}, {output});
  }
};

// Places in an image: numbers of the formula are a constant, what is valid of the input, and more.
class Geometry : public VisionFunction {
protected:
  void move(const std::string &name, const detail::Tensors &inputs, ITensor *output, InterpolationPolicy policy,
            BorderMode border, uint8_t constant, const Numbers &more, const ValidRegion *region = nullptr,
            const std::string &kind = "") {
    const bool is_area = policy == InterpolationPolicy::AREA;
    if (is_area && name != "scale") throw std::invalid_argument(name + ": the nearest pixel, or BILINEAR");
    const detail::Sides s = detail::sides_of(inputs[0]->info()->valid_region());
    Numbers numbers{double(constant), double(s.left), double(s.top), double(s.right), double(s.bottom)};
    numbers.insert(numbers.end(), more.begin(), more.end());
    const bool has_boxes = is_area && more.size() > 2; // to a larger size it is the nearest pixel
    const std::string how = policy == InterpolationPolicy::BILINEAR ? "_bilinear" : has_boxes ? "_boxes" : "_nearest";
    const std::string beside = border == BorderMode::CONSTANT ? "_constant_" : "_replicate_";
    clear();
    step(name + how + kind + beside + detail::name_of(inputs[0]->info()->data_type()), inputs, {output}, BorderMode::UNDEFINED,
         0, numbers, region);
  }
};

// Another size, of U8, S16 or F32.
class NEScale : public Geometry {
public:
  void configure(ITensor *input, ITensor *output, InterpolationPolicy policy, BorderMode border_mode,
                 uint8_t constant_border_value = 0) {
    const TensorInfo &in = *input->info(), &out = *output->info();
    const detail::Sides s = detail::sides_of(in.valid_region());
    const int starts[] = {s.left, s.top}, ends[] = {s.right, s.bottom};
    int low[2], high[2];
    for (size_t n = 0; n < 2; n++) { // in the library's float32: what a valid pixel has a part in, or only that
      const float ratio = float(out.dimension(n)) / float(in.dimension(n)), first = float(starts[n]), end = float(ends[n]);
      if (border_mode != BorderMode::UNDEFINED || policy == InterpolationPolicy::AREA) {
        low[n] = int(std::floor(first * ratio)), high[n] = int(std::ceil(end * ratio));
      } else if (policy == InterpolationPolicy::NEAREST_NEIGHBOR) {
        low[n] = int(std::ceil(first * ratio - 0.5f)), high[n] = int(std::ceil(end * ratio - 0.5f));
      } else {
        low[n] = int(std::ceil((first + 0.5f) * ratio - 0.5f));
        high[n] = int(std::floor((end - 1 + 0.5f) * ratio - 0.5f + 1));
      }
      low[n] = std::max(0, low[n]), high[n] = std::min(int(out.dimension(n)), high[n]);
    }
    const ValidRegion region = detail::region_of({low[0], low[1], high[0], high[1]}, out.tensor_shape());
    Numbers ratios{double(in.dimension(0)) / double(out.dimension(0)), double(in.dimension(1)) / double(out.dimension(1))};
    if (policy == InterpolationPolicy::AREA) {
      if (device() != nullptr) throw std::invalid_argument("CLScale: AREA is for the processor, or for Python");
      const double most = std::max(ratios[0], ratios[1]);
      if (in.data_type() != DataType::U8 || most > 8) throw std::invalid_argument("NEScale: AREA of U8, to an eighth at least");
      if (most > 1) ratios.insert(ratios.end(), {std::ceil(ratios[0] / 2), std::ceil(ratios[1] / 2)});
    }
    move("scale", {input}, output, policy, border_mode, constant_border_value, ratios, &region);
  }
};

// The pixel at the place that two maps of F32 say.
class NERemap : public Geometry {
public:
  void configure(ITensor *input, ITensor *map_x, ITensor *map_y, ITensor *output, InterpolationPolicy policy,
                 BorderMode border_mode, uint8_t constant_border_value = 0) {
    move("remap", {input, map_x, map_y}, output, policy, border_mode, constant_border_value, {});
  }
};

// By a matrix of six or nine numbers, by columns, from places of the output to those of the input.
template <size_t Count> class NEWarp : public Geometry {
public:
  void configure(ITensor *input, ITensor *output, const std::array<float, 9> &matrix, InterpolationPolicy policy,
                 BorderMode border_mode, uint8_t constant_border_value = 0) {
    move("warp", {input}, output, policy, border_mode, constant_border_value, Numbers(matrix.begin(), matrix.begin() + Count), nullptr,
         Count == 9 ? "_perspective" : "_affine");
  }
};
using NEWarpAffine = NEWarp<6>;
using NEWarpPerspective = NEWarp<9>;

// Every pixel of U8 as a table of 256 values says.
class Lut {
public:
  explicit Lut(size_t num_elements = 256, DataType type = DataType::U8) : Lut(new Tensor, num_elements, type) {}
  virtual ~Lut() = default;
  uint8_t *buffer() { return values_->buffer(); }
  size_t num_elements() const { return values_->info()->dimension(0); }
  ITensor *tensor() { return values_.get(); }

protected:
  Lut(Tensor *values, size_t num_elements, DataType type) : values_(values) {
    if (num_elements != 256 || type != DataType::U8) throw std::invalid_argument("Lut: 256 values of U8");
    values_->allocator()->init(TensorInfo(TensorShape(num_elements), 1, type));
    values_->allocator()->allocate();
  }

private:
  std::unique_ptr<Tensor> values_;
};
using ILut = Lut;
class NETableLookup : public VisionFunction {
public:
  void configure(ITensor *input, ILut *lut, ITensor *output) {
    clear();
    const ValidRegion region = input->info()->valid_region();
    step("table_U8_256", {input, lut->tensor()}, {output}, BorderMode::UNDEFINED, 0, {}, &region);
  }
};

}} // namespace armillary::compute
