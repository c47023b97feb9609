// Histograms of gradients: descriptors, detectors, several detectors at once. Part of `armillary_compute.hpp`.
//
// In: images of U8; models with sizes of cells, blocks and windows, and a linear classifier. Out: descriptors (F32, a
// channel for each value of a block), or windows. Invariant: values and places are those of the Python functions
// (`functions/vision/hog.py`), whose loops these are.
#pragma once

namespace armillary { namespace compute {

enum class HOGNormType { L2_NORM = 1, L2HYS_NORM, L1_NORM };

class HOGInfo {
public:
  HOGInfo() = default;
  HOGInfo(const Size2D &cell, const Size2D &block, const Size2D &window, const Size2D &block_stride, size_t num_bins,
          HOGNormType normalization_type = HOGNormType::L2HYS_NORM, float l2_hyst_threshold = 0.2f,
          PhaseType phase_type = PhaseType::UNSIGNED)
      : cell_(cell), block_(block), window_(window), stride_(block_stride), bins_(num_bins), norm_(normalization_type),
        limit_(l2_hyst_threshold), phase_(phase_type) {
    check("a block", block, cell), check("the stride of blocks", block_stride, cell);
    check("a window beyond a block", Size2D(window.width - block.width, window.height - block.height), block_stride);
  }
  Size2D cell_size() const { return cell_; }
  Size2D block_size() const { return block_; }
  Size2D detection_window_size() const { return window_; }
  Size2D block_stride() const { return stride_; }
  size_t num_bins() const { return bins_; }
  HOGNormType normalization_type() const { return norm_; }
  float l2_hyst_threshold() const { return limit_; }
  PhaseType phase_type() const { return phase_; }
  Size2D num_cells_per_block() const { return divided(block_, cell_); }
  Size2D num_cells_per_block_stride() const { return divided(stride_, cell_); }
  Size2D num_block_positions_per_image(const Size2D &size) const {
    if (size.width < block_.width || size.height < block_.height) throw std::invalid_argument("HOGInfo: an image holds no block");
    const Size2D steps = divided(Size2D(size.width - block_.width, size.height - block_.height), stride_);
    return Size2D(steps.width + 1, steps.height + 1);
  }
  size_t num_bins_per_block() const { return num_cells_per_block().width * num_cells_per_block().height * bins_; }
  size_t descriptor_size() const { // of a window, with the bias
    const Size2D blocks = num_block_positions_per_image(window_);
    return blocks.width * blocks.height * num_bins_per_block() + 1;
  }
  bool operator==(const HOGInfo &o) const {
    return cell_ == o.cell_ && block_ == o.block_ && window_ == o.window_ && stride_ == o.stride_ && bins_ == o.bins_ &&
           norm_ == o.norm_ && limit_ == o.limit_ && phase_ == o.phase_;
  }
  static Size2D divided(const Size2D &size, const Size2D &part) {
    return Size2D(size.width / part.width, size.height / part.height);
  }

private:
  static void check(const char *what, const Size2D &size, const Size2D &part) {
    if (part.width == 0 || part.height == 0 || size.width % part.width != 0 || size.height % part.height != 0 ||
        size.width > 1u << 30 || size.height > 1u << 30)
      throw std::invalid_argument(std::string("HOGInfo: ") + what + " is no whole number of its parts");
  }
  Size2D cell_, block_, window_, stride_;
  size_t bins_ = 0;
  HOGNormType norm_ = HOGNormType::L2HYS_NORM;
  float limit_ = 0;
  PhaseType phase_ = PhaseType::UNSIGNED;
};

// Sizes, and a linear classifier: a factor for each value of a window's descriptor, then the bias.
class HOG {
public:
  void init(const HOGInfo &input) { info_ = input, values_.assign(input.descriptor_size(), 0.0f); }
  const HOGInfo *info() const { return &info_; }
  float *descriptor() const { return const_cast<float *>(values_.data()); }

private:
  HOGInfo info_;
  std::vector<float> values_;
};
using IHOG = HOG;

class MultiHOG {
public:
  explicit MultiHOG(size_t num_models) : models_(num_models) {}
  size_t num_models() const { return models_.size(); }
  HOG *model(size_t index) { return &models_.at(index); }
  const HOG *model(size_t index) const { return &models_.at(index); }

private:
  std::vector<HOG> models_;
};
using IMultiHOG = MultiHOG;

struct DetectionWindow {
  uint16_t x, y, width, height, idx_class;
  float score;
};
using DetectionWindowArray = Array<DetectionWindow>;
using IDetectionWindowArray = DetectionWindowArray;
using Size2DArray = Array<Size2D>;
using ISize2DArray = Size2DArray;

// Keeps, of windows of a class whose centres are nearer than a distance, the one with the highest score.
class CPPDetectionWindowNonMaximaSuppressionKernel {
public:
  void configure(IDetectionWindowArray *input_output, float min_distance) { windows_ = input_output, distance_ = min_distance; }
  bool is_parallelisable() const { return false; }
  void run() {
    std::vector<DetectionWindow> all(windows_->buffer(), windows_->buffer() + windows_->num_values());
    std::stable_sort(all.begin(), all.end(), [](const DetectionWindow &a, const DetectionWindow &b) {
      return a.idx_class != b.idx_class ? a.idx_class < b.idx_class : a.score > b.score;
    });
    windows_->clear();
    for (const DetectionWindow &each : all) {
      bool is_close = false;
      for (size_t n = 0; n < windows_->num_values() && !is_close; n++) {
        const DetectionWindow &better = windows_->at(n);
        const double dx = middle(each.x, each.width) - middle(better.x, better.width);
        const double dy = middle(each.y, each.height) - middle(better.y, better.height);
        is_close = each.idx_class == better.idx_class && dx * dx + dy * dy < double(distance_) * distance_;
      }
      if (!is_close) windows_->push_back(each);
    }
  }

private:
  static double middle(uint16_t at, uint16_t size) { return at + size * 0.5; }
  IDetectionWindowArray *windows_ = nullptr;
  float distance_ = 0;
};
using CPPDetectionWindowNonMaximaSuppression = CPPDetectionWindowNonMaximaSuppressionKernel;

namespace detail {
class HOGFunction : public VisionFunction {
public:
  // The device that computes, for parts of another function.
  void compute_on(IDevice *device) { device_ = device; }

protected:
  IDevice *device() const override { return device_; }
  // A table of the function's own, of one row.
  Tensor *table(const float *values, size_t count) {
    tables_.emplace_back(new_tensor());
    tables_.back()->allocator()->init(TensorInfo(TensorShape(count), 1, DataType::F32));
    tables_.back()->allocator()->allocate();
    fill(tables_.back().get(), values, count);
    return tables_.back().get();
  }
  static void fill(Tensor *table, const float *values, size_t count) {
    table->map();
    std::memcpy(table->buffer(), values, count * sizeof *values);
    table->unmap();
  }
  void loops(const char *name, std::vector<const Tensor *> tensors, std::vector<double> settings) {
    const std::vector<float> row(settings.begin(), settings.end());
    tensors.push_back(table(row.data(), row.size()));
    std::vector<Plane> planes;
    for (const Tensor *each : tensors) planes.push_back({each, 0});
    const TensorInfo &like = *tensors[0]->info();
    const Sides all{0, 0, int(like.dimension(0)), int(like.dimension(1))};
    kernels_.emplace_back(new LoopsKernel(name, planes, all, BANDS, device()));
  }
  void gradients(ITensor *input, PhaseType phase, BorderMode border, uint8_t constant) {
    clear(), tables_.clear();
    ITensor *gx = image(*input->info(), DataType::S16), *gy = image(*input->info(), DataType::S16);
    length_ = image(*input->info(), DataType::S16), turn_ = image(*input->info(), DataType::U8);
    step("derivative", {input}, {gx, gy}, border, constant), step("magnitude_l2", {gx, gy}, {length_});
    step(phase == PhaseType::UNSIGNED ? "phase_unsigned" : "phase_signed", {gx, gy}, {turn_});
  }
  ITensor *votes(const HOGInfo &info) { // the histograms of all cells
    const Size2D cell = info.cell_size();
    const size_t bins = info.num_bins(), across = length_->info()->dimension(0) / cell.width;
    tables_.emplace_back(new_tensor());
    Tensor *table = tables_.back().get();
    table->allocator()->init(TensorInfo(TensorShape(across * bins, length_->info()->dimension(1) / cell.height), 1, DataType::F32));
    table->allocator()->allocate();
    const double ratio = double(bins) / (info.phase_type() == PhaseType::SIGNED ? 255 : 180);
    loops("hog_votes", {table, length_, turn_}, {double(cell.width), double(cell.height), double(bins), ratio});
    return table;
  }
  void blocks(const ITensor *votes, const HOGInfo &info, const ITensor *descriptors) { // the descriptors of blocks of votes
    const Size2D cells = info.num_cells_per_block(), stride = info.num_cells_per_block_stride();
    const double bins = double(info.num_bins()), unlimited = 3.0e38;
    const bool is_sum = info.normalization_type() == HOGNormType::L1_NORM;
    const bool clips = info.normalization_type() == HOGNormType::L2HYS_NORM && info.l2_hyst_threshold() != 0;
    loops("hog_blocks", {descriptors, votes}, {double(cells.width) * bins, double(cells.height), double(stride.width) * bins,
                                         double(stride.height), clips ? info.l2_hyst_threshold() : unlimited, double(is_sum)});
  }

private:
  IDevice *device_ = nullptr;
  std::vector<std::unique_ptr<Tensor>> tables_;
  ITensor *length_ = nullptr, *turn_ = nullptr;
};
} // namespace detail

// The descriptors of an image's blocks: an output of `TensorInfo(*hog->info(), width, height)`.
class NEHOGDescriptor : public detail::HOGFunction {
public:
  void configure(ITensor *input, ITensor *output, const IHOG *hog, BorderMode border_mode, uint8_t constant_border_value = 0) {
    const TensorInfo &like = *input->info();
    const TensorInfo wanted(*hog->info(), unsigned(like.dimension(0)), unsigned(like.dimension(1))), &have = *output->info();
    if (like.data_type() != DataType::U8 || have.data_type() != DataType::F32 || have.num_channels() != wanted.num_channels() ||
        have.tensor_shape() != wanted.tensor_shape())
      throw std::invalid_argument("NEHOGDescriptor: U8 in, F32 of the blocks and their values out");
    gradients(input, hog->info()->phase_type(), border_mode, constant_border_value);
    blocks(votes(*hog->info()), *hog->info(), output);
    finish();
  }
};

// Windows of an image's descriptors whose score, by a linear classifier, is above a threshold.
class NEHOGDetector : public detail::HOGFunction {
public:
  void configure(const ITensor *input, const IHOG *hog, IDetectionWindowArray *detection_windows,
                 const Size2D &detection_window_stride, float threshold = 0.0f, size_t idx_class = 0) {
    const HOGInfo &info = *hog->info();
    const Size2D steps = HOGInfo::divided(detection_window_stride, info.block_stride());
    const Size2D whole_stride(steps.width * info.block_stride().width, steps.height * info.block_stride().height);
    if (!(whole_stride == detection_window_stride) || steps.area() == 0 || input->info()->num_channels() != info.num_bins_per_block())
      throw std::invalid_argument("NEHOGDetector: descriptors of the model, whole strides of blocks");
    clear();
    hog_ = hog, windows_ = detection_windows, stride_ = detection_window_stride, threshold_ = threshold, class_ = idx_class;
    const Size2D whole = HOGInfo::divided(info.detection_window_size(), info.block_stride());
    const Size2D inside = info.num_block_positions_per_image(info.detection_window_size());
    const int64_t across = count(input->info()->dimension(0), whole.width, steps.width);
    const int64_t down = count(input->info()->dimension(1), whole.height, steps.height);
    has_windows_ = across > 0 && down > 0;
    if (!has_windows_) return;
    scores_ = image(TensorInfo(TensorShape(size_t(across), size_t(down)), 1, DataType::F32), DataType::F32);
    factors_ = table(hog->descriptor(), info.descriptor_size());
    const double values = double(info.num_bins_per_block());
    loops("hog_scores", {scores_, input, factors_}, {double(inside.width) * values, double(inside.height),
                                                     double(steps.width) * values, double(steps.height)});
    finish();
  }
  void run() override { // adds the windows, row by row
    if (!has_windows_) return;
    const HOGInfo &info = *hog_->info();
    fill(factors_, hog_->descriptor(), info.descriptor_size());
    VisionFunction::run();
    scores_->map();
    for (size_t y = 0; y < scores_->info()->dimension(1); y++)
      for (size_t x = 0; x < scores_->info()->dimension(0); x++) {
        const float score = *reinterpret_cast<const float *>(scores_->ptr_to_element(Coordinates(int(x), int(y))));
        const Size2D size = info.detection_window_size();
        if (score > threshold_)
          windows_->push_back({uint16_t(x * stride_.width), uint16_t(y * stride_.height), uint16_t(size.width),
                               uint16_t(size.height), uint16_t(class_), score});
      }
    scores_->unmap();
  }

private:
  static int64_t count(size_t blocks, size_t window, size_t step) { // the library's
    return blocks < window ? 0 : int64_t((blocks - window) / step + 1);
  }
  const IHOG *hog_ = nullptr;
  IDetectionWindowArray *windows_ = nullptr;
  Size2D stride_;
  ITensor *scores_ = nullptr;
  Tensor *factors_ = nullptr;
  float threshold_ = 0;
  size_t class_ = 0;
  bool has_windows_ = false;
};

// Windows of several models in one image; of those of a model that are close to one another the best, if asked.
class NEHOGMultiDetection : public detail::HOGFunction {
public:
  void configure(ITensor *input, const IMultiHOG *multi_hog, IDetectionWindowArray *detection_windows,
                 ISize2DArray *detection_window_strides, BorderMode border_mode, uint8_t constant_border_value = 0,
                 float threshold = 0.0f, bool non_maxima_suppression = false, float min_distance = 1.0f) {
    const size_t count = multi_hog->num_models();
    if (detection_window_strides->num_values() != count) throw std::invalid_argument("NEHOGMultiDetection: a stride for each model");
    const PhaseType phase = multi_hog->model(0)->info()->phase_type();
    gradients(input, phase, border_mode, constant_border_value);
    windows_ = detection_windows, suppresses_ = non_maxima_suppression, descriptors_.clear(), detectors_.clear();
    suppression_.configure(detection_windows, min_distance);
    for (size_t n = 0; n < count; n++) {
      const HOGInfo &info = *multi_hog->model(n)->info();
      if (info.phase_type() != phase) throw std::invalid_argument("NEHOGMultiDetection: directions of half turns and of whole ones");
      descriptors_.emplace_back(new_tensor());
      descriptors_.back()->allocator()->init(TensorInfo(info, unsigned(input->info()->dimension(0)), unsigned(input->info()->dimension(1))));
      blocks(votes(info), info, descriptors_.back().get());
      detectors_.emplace_back(new NEHOGDetector);
      detectors_.back()->compute_on(device());
      detectors_.back()->configure(descriptors_.back().get(), multi_hog->model(n), detection_windows, detection_window_strides->at(n), threshold, n);
    }
    finish();
    for (auto &each : descriptors_) each->allocator()->allocate();
  }
  void run() override {
    VisionFunction::run();
    windows_->clear();
    for (auto &detector : detectors_) detector->run();
    if (suppresses_) suppression_.run();
  }

private:
  IDetectionWindowArray *windows_ = nullptr;
  std::vector<std::unique_ptr<Tensor>> descriptors_;
  std::vector<std::unique_ptr<NEHOGDetector>> detectors_;
  CPPDetectionWindowNonMaximaSuppressionKernel suppression_;
  bool suppresses_ = false;
};

}} // namespace armillary::compute
