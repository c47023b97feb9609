// Laplacian pyramids: what smoothing takes away at each level, and the image of that. Part of `armillary_compute.hpp`.
//
// In: an image of U8, a pyramid of S16 of half sizes. Out: the pyramid and what is left, or the image again. Invariant:
// these are other functions in a row, in the order of the Python ones (`functions/vision/pyramid.py`), so bytes are equal.
#pragma once

namespace armillary { namespace compute {

namespace detail {
// The same values in another type, saturated.
class Conversion : public VisionFunction {
public:
  void configure(ITensor *input, ITensor *output) { set(typed("convert", {input, output}), {input}, {output}); }
};
// Functions that run one after another, and the images between them.
class Sequence : public IFunction {
public:
  void run() override {
    if (parts_.empty()) throw std::runtime_error("the function is not configured: call configure first");
    for (auto &part : parts_) part->run();
  }

protected:
  void clear() { parts_.clear(), images_.clear(); }
  template <class F, class... Arguments> void add(Arguments... arguments) {
    std::unique_ptr<F> part(new F);
    part->configure(arguments...);
    parts_.push_back(std::move(part));
  }
  ITensor *image(const ITensor *like, DataType type) {
    images_.emplace_back(new Tensor);
    images_.back()->allocator()->init(TensorInfo(like->info()->tensor_shape(), 1, type));
    return images_.back().get();
  }
  void finish() { // all parts have said what padding they need
    for (auto &each : images_) each->allocator()->allocate();
  }

private:
  std::vector<std::unique_ptr<IFunction>> parts_;
  std::vector<std::unique_ptr<Tensor>> images_;
};
} // namespace detail

class NELaplacianPyramid : public detail::Sequence {
public:
  void configure(ITensor *input, IPyramid *pyramid, ITensor *output, BorderMode border_mode, uint8_t constant_border_value = 0) {
    clear();
    const size_t count = pyramid->num_levels();
    levels_.init(count, SCALE_PYRAMID_HALF, input->info()->dimension(0), input->info()->dimension(1), Format::U8);
    add<NEGaussianPyramidHalf>(input, &levels_, border_mode, constant_border_value);
    for (size_t n = 0; n < count; n++) {
      ITensor *level = levels_.get_pyramid_level(n), *between = image(level, DataType::U8);
      add<NEGaussian5x5>(level, between, border_mode, constant_border_value);
      add<NEArithmeticSubtraction>(level, between, pyramid->get_pyramid_level(n), ConvertPolicy::WRAP);
      if (n == count - 1) add<detail::Conversion>(between, output);
    }
    finish(), levels_.allocate();
  }

private:
  Pyramid levels_;
};

// What is left, enlarged, plus each level; nothing beside an image is read.
class NELaplacianReconstruct : public detail::Sequence {
public:
  void configure(const IPyramid *pyramid, ITensor *input, ITensor *output, BorderMode = BorderMode::UNDEFINED, uint8_t = 0) {
    clear();
    ITensor *below = input;
    for (size_t n = pyramid->num_levels(); n-- > 0;) {
      ITensor *level = pyramid->get_pyramid_level(n), *total = image(level, DataType::S16);
      if (below->info()->tensor_shape() != level->info()->tensor_shape()) {
        ITensor *wide = image(level, DataType::S16);
        add<NEScale>(below, wide, InterpolationPolicy::NEAREST_NEIGHBOR, BorderMode::UNDEFINED);
        below = wide;
      }
      add<NEArithmeticAddition>(below, level, total, ConvertPolicy::WRAP);
      below = total;
    }
    add<detail::Conversion>(below, output);
    finish();
  }
};

}} // namespace armillary::compute
