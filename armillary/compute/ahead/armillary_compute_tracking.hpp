// Optical flow: where points of one image are in the next, by pyramids. Part of `armillary_compute.hpp`.
//
// In: two pyramids of U8 of the same sizes, points of the first. Out: points, with `tracking_status` 0 where one was
// lost. Invariant: places are those of the Python function (`functions/vision/flow.py`), whose loops these are: a level
// is one kernel over all points. Source: Bouguet 2001, "Pyramidal implementation of the affine Lucas Kanade tracker".
#pragma once

namespace armillary { namespace compute {

enum class Termination { TERM_CRITERIA_EPSILON, TERM_CRITERIA_ITERATIONS, TERM_CRITERIA_BOTH };

class NEOpticalFlow : public VisionFunction {
public:
  void configure(const Pyramid *old_pyramid, const Pyramid *new_pyramid, const IKeyPointArray *old_points,
                 const IKeyPointArray *new_points_estimates, IKeyPointArray *new_points, Termination termination, float epsilon,
                 unsigned int num_iterations, size_t window_dimension, bool use_initial_estimate, BorderMode border_mode,
                 uint8_t constant_border_value = 0) {
    const size_t levels = old_pyramid->num_levels();
    if (levels != new_pyramid->num_levels() || levels == 0)
      throw std::invalid_argument("NEOpticalFlow: pyramids of different levels");
    if (window_dimension < 1 || num_iterations < 1)
      throw std::invalid_argument("NEOpticalFlow: a window and iterations of at least 1");
    clear(), levels_.clear();
    old_ = old_points, estimates_ = use_initial_estimate ? new_points_estimates : old_points, new_ = new_points;
    uses_estimates_ = use_initial_estimate, side_ = window_dimension;
    const float scale = old_pyramid->scale();
    top_ = float(std::pow(double(scale), double(levels - 1)));
    const unsigned int steps = termination == Termination::TERM_CRITERIA_EPSILON ? most_steps : num_iterations;
    for (size_t n = levels; n-- > 0;) { // from the smallest image to the largest
      ITensor *before = old_pyramid->get_pyramid_level(n), *after = new_pyramid->get_pyramid_level(n);
      ITensor *gx = image(*before->info(), DataType::S16), *gy = image(*before->info(), DataType::S16);
      step("scharr3x3", {before}, {gx, gy}, border_mode, constant_border_value);
      const detail::Tensors images{before, after, gx, gy};
      detail::Sides seen = detail::sides_of(before->info()->valid_region());
      for (const Tensor *each : images) {
        const detail::Sides s = detail::sides_of(each->info()->valid_region());
        seen = {std::max(seen.left, s.left), std::max(seen.top, s.top), std::min(seen.right, s.right), std::min(seen.bottom, s.bottom)};
      }
      const float settings[] = {n == levels - 1 ? 1.0f : scale,
                                scale,
                                float(side_),
                                float(steps),
                                epsilon,
                                termination == Termination::TERM_CRITERIA_ITERATIONS ? 0.0f : 1.0f,
                                n == 0 ? 1.0f : 0.0f,
                                float(seen.left),
                                float(seen.top),
                                float(seen.right),
                                float(seen.bottom)};
      levels_.emplace_back(Level{images, table(sizeof settings / sizeof *settings, 1, DataType::F32)});
      levels_.back().settings->map();
      std::memcpy(levels_.back().settings->buffer(), settings, sizeof settings);
      levels_.back().settings->unmap();
    }
    gradients_ = kernels_.size();
    hold(old_points->num_values());
    finish();
  }
  void run() override {
    const size_t count = old_->num_values();
    if (estimates_->num_values() != count) throw std::invalid_argument("NEOpticalFlow: as many estimates as points");
    if (count > points_->info()->dimension(1)) hold(count);
    points_->map();
    float *row = reinterpret_cast<float *>(points_->buffer());
    std::fill(row, row + points_->info()->dimension(1) * point_values, -1.0f); // outside of every image
    for (size_t n = 0; n < count; n++, row += point_values) {
      const KeyPoint &a = old_->at(n), &b = estimates_->at(n);
      row[0] = float(a.x) * top_, row[1] = float(a.y) * top_, row[2] = float(b.x) * top_, row[3] = float(b.y) * top_;
      row[status_at] = !uses_estimates_ || b.tracking_status == 1 ? 1.0f : 0.0f;
    }
    points_->unmap();
    VisionFunction::run();
    new_->clear();
    points_->map();
    row = reinterpret_cast<float *>(points_->buffer());
    for (size_t n = 0; n < count; n++, row += point_values)
      new_->push_back({nearest(row[2]), nearest(row[3]), 0.0f, row[status_at] != 0});
    points_->unmap();
  }

private:
  static constexpr unsigned int most_steps = 1000; // where only a distance ends the iterations
  static constexpr size_t point_values = 5, status_at = 4; // of a point's row: where it was, where it is, whether it was found
  struct Level {
    detail::Tensors images; // both, and the gradients of the first
    std::unique_ptr<Tensor> settings;
  };
  static int32_t nearest(float value) { return int32_t(std::copysign(std::floor(std::fabs(value) + 0.5f), value)); }
  std::unique_ptr<Tensor> table(size_t width, size_t height, DataType type) const {
    std::unique_ptr<Tensor> image(new_tensor());
    image->allocator()->init(TensorInfo(TensorShape(width, height), 1, type));
    image->allocator()->allocate();
    return image;
  }
  void hold(size_t count) { // room for so many points
    const size_t rows = std::max<size_t>(count, 1);
    points_ = table(point_values, rows, DataType::F32), windows_ = table(3 * side_ * side_, rows, DataType::S32);
    kernels_.resize(gradients_);
    for (const Level &level : levels_) {
      std::vector<detail::Plane> planes{{points_.get(), 0}, {windows_.get(), 0}};
      for (const Tensor *each : level.images) planes.push_back({each, 0});
      planes.push_back({level.settings.get(), 0});
      kernels_.emplace_back(new detail::LoopsKernel("track_points", planes, {0, 0, int(point_values), int(rows)}, detail::BANDS, device()));
    }
  }
  const IKeyPointArray *old_ = nullptr, *estimates_ = nullptr;
  IKeyPointArray *new_ = nullptr;
  bool uses_estimates_ = false;
  float top_ = 1;
  size_t side_ = 0, gradients_ = 0;
  std::vector<Level> levels_;
  std::unique_ptr<Tensor> points_, windows_;
};

}} // namespace armillary::compute
