// Functions of two images, thresholds, and gradients. Part of `armillary_compute.hpp`.
//
// In: images of one size, of U8, S16 or F32 as each says. Out: an image, or two. Invariant: arguments are in the order of
// Arm Compute Library, values those of the Python functions; tensors of other types are a std::invalid_argument.
#pragma once

namespace armillary { namespace compute {

enum class ConvertPolicy { WRAP, SATURATE };
enum class ThresholdType { BINARY, RANGE };

// A sum or a difference: U8 and S16 give S16, two of U8 also U8, F32 gives F32.
template <bool IsSum> class Arithmetic : public Filter {
public:
  void configure(ITensor *input1, ITensor *input2, ITensor *output, ConvertPolicy policy = ConvertPolicy::SATURATE) {
    std::string name = IsSum ? "addition" : "difference";
    for (ITensor *each : {input1, input2, output}) name += "_" + detail::name_of(each->info()->data_type());
    const bool saturates = policy == ConvertPolicy::SATURATE || output->info()->data_type() == DataType::F32;
    set(name + (saturates ? "_True" : "_False"), {input1, input2}, {output});
  }
};
using NEArithmeticAddition = Arithmetic<true>;
using NEArithmeticSubtraction = Arithmetic<false>;

// |a - b|, of U8 or S16.
class NEAbsoluteDifference : public Filter {
public:
  void configure(ITensor *input1, ITensor *input2, ITensor *output) {
    const bool is_short = input1->info()->data_type() == DataType::S16;
    set(is_short ? "absolute_difference_s16" : "absolute_difference", {input1, input2}, {output});
  }
};

// One value for pixels of U8 above a threshold (RANGE: from `threshold` to `upper`), another one for the rest.
class NEThreshold : public Filter {
public:
  void configure(ITensor *input, ITensor *output, uint8_t threshold, uint8_t false_value = 0, uint8_t true_value = 255,
                 ThresholdType type = ThresholdType::BINARY, uint8_t upper = 0) {
    const bool is_range = type == ThresholdType::RANGE;
    detail::Values numbers{{"number0", threshold}, {"number1", is_range ? upper : false_value}};
    numbers["number2"] = is_range ? false_value : true_value;
    if (is_range) numbers["number3"] = true_value;
    set(is_range ? "threshold_range" : "threshold", {input}, {output}, BorderMode::UNDEFINED, 0, std::move(numbers));
  }
};

// Gradients by 3x3 pixels of U8, as S16; one of both outputs may be null.
class NESobel3x3 : public Filter {
public:
  void configure(ITensor *input, ITensor *output_x, ITensor *output_y, BorderMode border_mode,
                 uint8_t constant_border_value = 0) {
    if (output_x == nullptr && output_y == nullptr)
      throw std::invalid_argument("sobel3x3: neither of both gradients is asked for");
    std::unique_ptr<Tensor> unused;
    if (output_x == nullptr || output_y == nullptr) {
      unused.reset(new Tensor());
      unused->allocator()->init(TensorInfo(input->info()->tensor_shape(), Format::S16));
    }
    ITensor *x = output_x != nullptr ? output_x : unused.get(), *y = output_y != nullptr ? output_y : unused.get();
    set("sobel3x3", {input}, {x, y}, border_mode, constant_border_value);
    if (unused) unused->allocator()->allocate();
    unused_ = std::move(unused);
  }

private:
  std::unique_ptr<Tensor> unused_; // what nobody asked for
};

}} // namespace armillary::compute
