// What an image holds: counts, sums, extremes; corners and edges; pyramids. Part of `armillary_compute.hpp`.
//
// In: images of U8 (S16 and F32 where it says so). Out: numbers, key points, images. Invariant: bands of rows count for
// themselves and are joined once, so any number of threads gives the same; results are those of the Python functions.
#pragma once

namespace armillary { namespace compute { namespace detail {

constexpr int BANDS = 4, DEVICE_BANDS = 64;

// A tensor's memory as one row: words of `size` bytes, or the image itself where that is 0.
struct Plane {
  const Tensor *tensor;
  size_t size;
};

// Loops over rows of the first plane, in bands; `partial` has a row of `columns` values for each band.
class LoopsKernel final : public IKernel {
public:
  LoopsKernel(const std::string &name, std::vector<Plane> planes, Sides sides, int bands = BANDS, IDevice *device = nullptr)
      : kernel_(find(name)), planes_(std::move(planes)), sides_(sides), bands_(bands), device_(device) {
    Window window;
    window.set(Window::DimY, Window::Dimension(0, bands));
    configure(window);
  }
  void set_partial(void *partial, int64_t columns) { partial_ = partial, columns_ = columns; }
  bool is_parallelisable() const override { return bands_ > 1 && device_ == nullptr; }
  void run(const Window &part, const ThreadInfo &info) override {
    if (device_ != nullptr) return launch();
    Values v{{"height", sides_.bottom - sides_.top}, {"columns", sides_.right - sides_.left}, {"bands", bands_}};
    v["partial_rows"] = bands_, v["partial_columns"] = columns_;
    std::vector<void *> data;
    for (size_t n = 0; n < planes_.size(); n++) {
      const std::string name = "plane" + std::to_string(n);
      const Tensor &tensor = *planes_[n].tensor;
      add_plane(v, name, *tensor.info());
      if (planes_[n].size != 0) {
        v[name + "_rows"] = 1, v[name + "_columns"] = int64_t(tensor.info()->total_size() / planes_[n].size);
        v["top_" + name] = v["left_" + name] = 0;
      }
      v["top_" + name] += sides_.top, v["left_" + name] += sides_.left;
      data.push_back(tensor.buffer());
    }
    if (partial_ != nullptr) data.push_back(partial_);
    call(kernel_, data, v, part.y().start(), part.y().end(), info.thread_id);
  }

private:
  void launch() const { // all bands, whose results are in the planes
    Values v{{"rows", sides_.bottom - sides_.top}, {"columns", sides_.right - sides_.left}};
    std::vector<const Tensor *> tensors;
    for (const Plane &plane : planes_) {
      const TensorInfo &info = *plane.tensor->info();
      const std::string k = std::to_string(tensors.size());
      const int64_t channels = int64_t(info.num_channels());
      v["rows" + k] = info.rows(), v["columns" + k] = info.columns() * channels;
      v["top" + k] = info.padding().top + sides_.top, v["left" + k] = info.padding().left * channels + sides_.left;
      tensors.push_back(plane.tensor);
    }
    device_->launch(kernel_.name, tensors, v);
  }
  const kernels::Kernel &kernel_;
  std::vector<Plane> planes_;
  Sides sides_;
  int bands_;
  IDevice *device_;
  void *partial_ = nullptr;
  int64_t columns_ = 0;
};

// A function that counts over the valid pixels: `Value` partial results for each band.
template <class Value> class Counting : public Function {
public:
  // The device that counts, for parts of another function.
  void count_on(IDevice *device) { device_ = device; }

protected:
  IDevice *device() const override { return device_; }
  void set(const std::string &name, const Tensor *input, size_t columns, DataType type) {
    if (input->info()->data_type() != type) throw std::invalid_argument(name + ": the image is of another type");
    input_ = input, sides_ = sides_of(input->info()->valid_region()), columns_ = columns;
    name_ = name, kernel_.reset(new LoopsKernel(name, {{input, 0}}, sides_));
    partial_.resize((device() != nullptr ? DEVICE_BANDS : BANDS) * columns);
    kernel_->set_partial(partial_.data(), int64_t(columns));
    if (device() == nullptr) return;
    on_device_.reset(device()->new_tensor());
    on_device_->allocator()->init(TensorInfo(TensorShape(partial_.size() * sizeof(Value)), 1, DataType::U8));
    on_device_->allocator()->allocate();
  }
  const std::vector<Value> &counted(Value start = 0) {
    if (!kernel_) throw std::runtime_error("the function is not configured: call configure first");
    std::fill(partial_.begin(), partial_.end(), start);
    if (device() != nullptr) return counted_on_device();
    Scheduler::get().schedule(kernel_.get(), Window::DimY);
    return partial_;
  }
  std::vector<int64_t> summed(size_t values) { // rows of partial results, and copies in a row, added up
    std::vector<int64_t> sums(values);
    const auto &all = counted();
    for (size_t n = 0; n < all.size(); n++) sums[n % values] += all[n];
    return sums;
  }
  // Calls a function with each valid pixel and its place; tensors of a device are in the host's sight meanwhile.
  template <class T, class Pixel> void pixels(Pixel &&pixel) const {
    for (int y = sides_.top; y < sides_.bottom; y++)
      for (int x = sides_.left; x < sides_.right; x++)
        pixel(*reinterpret_cast<const T *>(input_->ptr_to_element(Coordinates(x, y))), x, y);
  }
  const Tensor *input_ = nullptr;
  Sides sides_{};

private:
  // A work-item for each band; its row of results goes there and comes back.
  const std::vector<Value> &counted_on_device() {
    Values v;
    add_plane(v, "plane", *input_->info());
    v["rows0"] = v["plane_rows"], v["columns0"] = v["plane_columns"];
    v["top0"] = v["top_plane"] + sides_.top, v["left0"] = v["left_plane"] + sides_.left;
    v["rows"] = sides_.bottom - sides_.top, v["columns"] = sides_.right - sides_.left;
    const size_t size = partial_.size() * sizeof(Value);
    on_device_->map(), std::memcpy(on_device_->buffer(), partial_.data(), size), on_device_->unmap();
    device()->launch(name_, {input_, on_device_.get()}, v);
    on_device_->map(), std::memcpy(partial_.data(), on_device_->buffer(), size), on_device_->unmap();
    return partial_;
  }
  IDevice *device_ = nullptr;
  std::string name_;
  std::unique_ptr<Tensor> on_device_;
  std::unique_ptr<LoopsKernel> kernel_;
  std::vector<Value> partial_;
  size_t columns_ = 0;
};
constexpr size_t COPIES = 4; // counters for each value of a byte
} // namespace detail

// Counts in bins over [offset, offset + range).
class Distribution1D {
public:
  Distribution1D(size_t num_bins, int32_t offset, uint32_t range) : counts_(num_bins), offset_(offset), range_(range) {
    if (num_bins < 1 || num_bins > range || offset < 0 || offset + int64_t(range) > 256)
      throw std::invalid_argument("Distribution1D: bins over values of a byte, no more bins than values");
  }
  size_t num_bins() const { return counts_.size(); }
  int32_t offset() const { return offset_; }
  uint32_t range() const { return range_; }
  uint32_t *buffer() { return counts_.data(); }
  uint32_t bin_of(size_t value) const { // a value outside the range falls in no bin
    const bool is_in = value >= size_t(offset_) && value < size_t(offset_) + range_;
    return is_in ? uint32_t((value - size_t(offset_)) * counts_.size() / range_) : uint32_t(counts_.size());
  }

private:
  std::vector<uint32_t> counts_;
  int32_t offset_;
  uint32_t range_;
};
using IDistribution1D = Distribution1D;

// Counts rows of a window in memory of the caller's: memory_needed_per_thread() * num_threads bytes, of which a thread
// uses the part that its number says; what it counted is added to the bins. `window_lut` gets the bin of each value.
class NEHistogramKernel final : public IKernel {
public:
  static constexpr size_t memory_needed_per_thread() { return 256 * detail::COPIES * sizeof(int32_t); }
  void configure(const IImage *input, IDistribution1D *output, uint32_t *local_hist, uint32_t *window_lut) {
    input_ = input, output_ = output, local_ = local_hist, bins_ = window_lut;
    for (size_t value = 0; value < 256; value++) bins_[value] = output->bin_of(value);
    const detail::Sides s = detail::sides_of(input->info()->valid_region());
    Window window;
    window.set(Window::DimX, Window::Dimension(s.left, s.right)), window.set(Window::DimY, Window::Dimension(s.top, s.bottom));
    IKernel::configure(window);
  }
  void run(const Window &part, const ThreadInfo &info = ThreadInfo()) override {
    int32_t *counts = reinterpret_cast<int32_t *>(local_) + size_t(info.thread_id) * 256 * detail::COPIES;
    std::fill(counts, counts + 256 * detail::COPIES, 0);
    detail::LoopsKernel counter("count_values", {{input_, 0}}, {part.x().start(), part.y().start(), part.x().end(), part.y().end()}, 1);
    counter.set_partial(counts, 256 * detail::COPIES);
    counter.run(counter.window(), ThreadInfo());
    Lock lock(joining_);
    for (size_t n = 0; n < 256 * detail::COPIES; n++)
      if (bins_[n % 256] < output_->num_bins()) output_->buffer()[bins_[n % 256]] += uint32_t(counts[n]);
  }

private:
  const IImage *input_ = nullptr;
  IDistribution1D *output_ = nullptr;
  uint32_t *local_ = nullptr, *bins_ = nullptr;
  Mutex joining_{};
};

class NEHistogram : public detail::Counting<int32_t> {
public:
  void configure(const IImage *input, IDistribution1D *output) {
    set("count_values", input, 256 * detail::COPIES, DataType::U8);
    output_ = output;
  }
  void run() override {
    std::fill(output_->buffer(), output_->buffer() + output_->num_bins(), 0u);
    const auto sums = summed(256);
    for (size_t value = 0; value < 256; value++)
      if (output_->bin_of(value) < output_->num_bins()) output_->buffer()[output_->bin_of(value)] += uint32_t(sums[value]);
  }

private:
  IDistribution1D *output_ = nullptr;
};

// Values by how many pixels are at most as bright.
class NEEqualizeHistogram : public detail::Counting<int32_t> {
public:
  void configure(const IImage *input, IImage *output) {
    set("count_values", input, 256 * detail::COPIES, DataType::U8);
    table_.reset(new_tensor());
    table_->allocator()->init(TensorInfo(TensorShape(256), 1, DataType::U8));
    table_->allocator()->allocate();
    const ValidRegion region = input->info()->valid_region();
    const detail::Tensors inputs{const_cast<IImage *>(input), table_.get()};
    lookup_.reset(new detail::FormulaKernel(device(), "table_U8_256", inputs, {output}, BorderMode::UNDEFINED, 0, {}, &region));
  }
  void run() override {
    auto sums = summed(256);
    int64_t least = 0;
    for (size_t n = 0; n < 256; n++) {
      sums[n] += n != 0 ? sums[n - 1] : 0;
      if (least == 0) least = sums[n];
    }
    const int64_t total = sums[255];
    table_->map();
    for (size_t n = 0; n < 256; n++) {
      const float part = float(std::max<int64_t>(sums[n] - least, 0)) / float(std::max<int64_t>(total - least, 1));
      table_->buffer()[n] = total == least ? uint8_t(n) : uint8_t(part * 255.0f + 0.5f);
    }
    table_->unmap();
    Scheduler::get().schedule(lookup_.get(), Window::DimY);
  }

private:
  std::unique_ptr<Tensor> table_;
  std::unique_ptr<IKernel> lookup_;
};

class NEMeanStdDev : public detail::Counting<int64_t> {
public:
  void configure(IImage *input, float *mean, float *stddev = nullptr) {
    set("add_up", input, 2, DataType::U8);
    mean_ = mean, deviation_ = stddev;
  }
  void run() override {
    const auto sums = summed(2);
    const double count = double(sides_.right - sides_.left) * (sides_.bottom - sides_.top), mean = double(sums[0]) / count;
    *mean_ = float(mean);
    if (deviation_ != nullptr) *deviation_ = float(std::sqrt(std::max(0.0, double(sums[1]) / count - mean * mean)));
  }

private:
  float *mean_ = nullptr, *deviation_ = nullptr;
};

struct Coordinates2D {
  int32_t x, y;
};
template <class T> class Array { // as many as are asked for at most
public:
  explicit Array(size_t max_num_values = size_t(1) << 20) : most_(max_num_values) {}
  size_t num_values() const { return values_.size(); }
  size_t max_num_values() const { return most_; }
  void clear() { values_.clear(); }
  bool push_back(const T &value) { return values_.size() < most_ && (values_.push_back(value), true); }
  T &at(size_t n) { return values_.at(n); }
  const T &at(size_t n) const { return values_.at(n); }
  T *buffer() { return values_.data(); }

private:
  size_t most_;
  std::vector<T> values_;
};
using Coordinates2DArray = Array<Coordinates2D>;
using ICoordinates2DArray = Coordinates2DArray;

// The least and the greatest value of U8, S16 (int32_t) or F32 (float), how often they are there, and where.
class NEMinMaxLocation : public detail::Function {
public:
  void configure(const IImage *input, void *min, void *max, ICoordinates2DArray *min_loc = nullptr,
                 ICoordinates2DArray *max_loc = nullptr, uint32_t *min_count = nullptr, uint32_t *max_count = nullptr) {
    type_ = input->info()->data_type(), input_ = const_cast<IImage *>(input);
    bytes_.count_on(device()), shorts_.count_on(device()), reals_.count_on(device());
    bytes_.configure(type_ == DataType::U8 ? input : nullptr), shorts_.configure(type_ == DataType::S16 ? input : nullptr);
    reals_.configure(type_ == DataType::F32 ? input : nullptr);
    ends_[0] = {min, min_loc, min_count}, ends_[1] = {max, max_loc, max_count};
  }
  void run() override {
    if (type_ == DataType::U8) return bytes_.search<int32_t>(input_, ends_);
    if (type_ == DataType::S16) return shorts_.search<int32_t>(input_, ends_);
    reals_.search<float>(input_, ends_);
  }

private:
  struct End {
    void *value;
    ICoordinates2DArray *places;
    uint32_t *count;
  };
  template <class T> class Search : public detail::Counting<T> {
  public:
    void configure(const IImage *input) {
      if (input != nullptr) this->set("extremes_" + detail::name_of(input->info()->data_type()), input, 2, input->info()->data_type());
    }
    void run() override {}
    template <class Out> void search(IImage *input, End *ends) {
      input->map();
      const T first = *reinterpret_cast<const T *>(input->ptr_to_element(Coordinates(this->sides_.left, this->sides_.top)));
      input->unmap();
      const auto extremes = this->counted(first);
      input->map();
      for (size_t side = 0; side < 2; side++) {
        T end = extremes[side];
        for (size_t n = side; n < extremes.size(); n += 2) end = side == 0 ? std::min(end, extremes[n]) : std::max(end, extremes[n]);
        *static_cast<Out *>(ends[side].value) = Out(end);
        uint32_t count = 0;
        if (ends[side].places != nullptr) ends[side].places->clear();
        if (ends[side].places == nullptr && ends[side].count == nullptr) continue;
        this->template pixels<T>([&](T value, int x, int y) {
          if (value != end) return;
          count++;
          if (ends[side].places != nullptr) ends[side].places->push_back({x, y});
        });
        if (ends[side].count != nullptr) *ends[side].count = count;
      }
      input->unmap();
    }
  };
  DataType type_ = DataType::U8;
  IImage *input_ = nullptr;
  Search<uint8_t> bytes_;
  Search<int16_t> shorts_;
  Search<float> reals_;
  End ends_[2] = {};
};

// The sum of all valid pixels above and to the left, as U32.
class NEIntegralImage : public VisionFunction {
public:
  void configure(const ITensor *input, ITensor *output) {
    if (input->info()->data_type() != DataType::U8 || output->info()->data_type() != DataType::U32)
      throw std::invalid_argument("NEIntegralImage: U8 in, U32 out");
    clear();
    const ValidRegion region = input->info()->valid_region();
    kernels_.emplace_back(new detail::LoopsKernel("integral_image", {{input, 0}, {output, 0}}, detail::sides_of(region), 1));
    output->info()->set_valid_region(region);
  }
};

struct KeyPoint {
  int32_t x, y;
  float strength;
  int32_t tracking_status;
};
using KeyPointArray = Array<KeyPoint>;
using IKeyPointArray = KeyPointArray;

namespace detail {
// Pixels of the valid region that are not 0, row by row.
template <class T> void points_of(Tensor &image, const std::function<void(int, int, T)> &point) {
  image.map();
  const Sides s = sides_of(image.info()->valid_region());
  for (int y = s.top; y < s.bottom; y++)
    for (int x = s.left; x < s.right; x++) {
      const T value = *reinterpret_cast<const T *>(image.ptr_to_element(Coordinates(x, y)));
      if (value > 0) point(x, y, value);
    }
  image.unmap();
}
} // namespace detail

// Corners by 9 of 16 pixels on a circle that are all brighter or all darker than the middle by a threshold.
class NEFastCorners : public VisionFunction {
public:
  void configure(IImage *input, float threshold, bool nonmax_suppression, KeyPointArray *corners, BorderMode border_mode,
                 uint8_t constant_border_value = 0) {
    if (!(threshold >= 1 && threshold < 255)) throw std::invalid_argument("NEFastCorners: the threshold is 1 to 254");
    clear();
    corners_ = corners, has_strengths_ = nonmax_suppression;
    IImage *scores = result_ = image(*input->info(), DataType::U8);
    step("fast_corners", {input}, {scores}, border_mode, constant_border_value, {double(int(threshold))});
    if (nonmax_suppression) {
      result_ = image(*input->info(), DataType::U8);
      const detail::Sides sides = detail::sides_of(scores->info()->valid_region());
      step("non_maxima_U8", {scores}, {result_}, BorderMode::CONSTANT);
      if (border_mode == BorderMode::UNDEFINED) // the neighbours at the edge are not all known
        result_->info()->set_valid_region(detail::region_of(detail::eroded(sides, 1, 1), input->info()->tensor_shape()));
    }
    finish();
  }
  void run() override {
    VisionFunction::run();
    corners_->clear();
    detail::points_of<uint8_t>(*result_, [&](int x, int y, uint8_t strength) {
      corners_->push_back({x, y, has_strengths_ ? float(strength) : 1.0f, 1});
    });
  }

private:
  KeyPointArray *corners_ = nullptr;
  IImage *result_ = nullptr;
  bool has_strengths_ = false;
};

// Corners by the matrix of gradients in a block, the strongest first, at least a distance apart.
class NEHarrisCorners : public VisionFunction {
public:
  void configure(IImage *input, float threshold, float min_dist, float sensitivity, int32_t gradient_size, int32_t block_size,
                 KeyPointArray *corners, BorderMode border_mode, uint8_t constant_border_value = 0, bool use_fp16 = false) {
    (void)use_fp16;
    clear();
    corners_ = corners, distance_ = min_dist;
    const TensorInfo &like = *input->info();
    const DataType type = gradient_size == 7 ? DataType::S32 : DataType::S16;
    IImage *gx = image(like, type), *gy = image(like, type), *strengths = image(like, DataType::F32);
    kept_ = image(like, DataType::F32);
    const std::string side = std::to_string(gradient_size);
    step("sobel" + side + "x" + side, {input}, {gx, gy}, border_mode, constant_border_value);
    const double norm = 1.0 / ((1 << (gradient_size - 1)) * block_size * 255.0);
    step("harris_" + std::to_string(block_size) + "_" + detail::name_of(type), {gx, gy}, {strengths}, border_mode, constant_border_value,
         {norm, sensitivity, threshold});
    step("non_maxima_F32", {strengths}, {kept_}, BorderMode::CONSTANT);
    const detail::Sides sides = detail::sides_of(strengths->info()->valid_region());
    if (border_mode == BorderMode::UNDEFINED) // the neighbours at the edge are not all known
      kept_->info()->set_valid_region(detail::region_of(detail::eroded(sides, 1, 1), like.tensor_shape()));
    finish();
  }
  void run() override {
    VisionFunction::run();
    std::vector<KeyPoint> corners;
    detail::points_of<float>(*kept_, [&](int x, int y, float strength) { corners.push_back({x, y, strength, 1}); });
    std::sort(corners.begin(), corners.end(), [](const KeyPoint &a, const KeyPoint &b) { return a.strength > b.strength; }); // ties as Arm's library
    corners_->clear();
    for (const KeyPoint &each : corners) {
      bool is_near = false;
      for (size_t n = 0; n < corners_->num_values() && !is_near; n++) {
        const float dx = float(each.x - corners_->at(n).x), dy = float(each.y - corners_->at(n).y);
        is_near = dx * dx + dy * dy < distance_ * distance_;
      }
      if (!is_near) corners_->push_back(each);
    }
  }

private:
  KeyPointArray *corners_ = nullptr;
  IImage *kept_ = nullptr;
  float distance_ = 0;
};

// Edges: crests of the gradient above a threshold, and what hangs on to them above a lower one.
class NECannyEdge : public VisionFunction {
public:
  void configure(ITensor *input, ITensor *output, int32_t upper_thr, int32_t lower_thr, int32_t gradient_size, int32_t norm_type,
                 BorderMode border_mode, uint8_t constant_border_value = 0) {
    if ((gradient_size != 3 && gradient_size != 5) || (norm_type != 1 && norm_type != 2) || lower_thr < 0 ||
        lower_thr > upper_thr || upper_thr >= 1 << 15)
      throw std::invalid_argument("NECannyEdge: gradients of 3x3 or 5x5, norms 1 or 2, 0 <= lower <= upper");
    clear();
    const TensorInfo &like = *input->info();
    const bool is_sum = norm_type == 1;
    const DataType type = is_sum ? DataType::S16 : DataType::S32;
    ITensor *gx = image(like, DataType::S16), *gy = image(like, DataType::S16), *length = image(like, type);
    ITensor *turn = image(like, DataType::U8), *frontier = frontier_ = image(like, DataType::U8);
    classes_ = image(like, DataType::U8);
    const std::string side = std::to_string(gradient_size);
    sides_ = detail::sides_of(like.valid_region());
    if (border_mode == BorderMode::UNDEFINED) sides_ = detail::eroded(sides_, gradient_size / 2 + 1, gradient_size / 2 + 1);
    step("edge_sobel" + side + "x" + side + (is_sum ? "_l1" : "_l2"), {input}, {gx, gy, length}, border_mode, constant_border_value);
    const double low = is_sum ? lower_thr : double(lower_thr) * lower_thr, high = is_sum ? upper_thr : double(upper_thr) * upper_thr;
    const ValidRegion region = detail::region_of(sides_, like.tensor_shape());
    // A device writes nothing beside the region, so that zeros are there, as `clear_border` leaves them here.
    step("edge_crest_" + detail::name_of(type), {gx, gy, length}, {classes_}, BorderMode::CONSTANT, 0, {low, high},
         device() != nullptr ? &region : nullptr);
    gradient_steps_ = kernels_.size();
    for (ITensor *plane : {classes_, turn, frontier}) // of one pitch
      plane->info()->extend_padding(PaddingSize{1, unsigned(kernels::STEP + 1), 1, 1});
    const int turns = device() == nullptr ? int(TURNS) : int(DEVICE_TURNS);
    for (int n = 0; n < turns; n++) {
      step("edge_spread", {n % 2 ? turn : classes_}, {n % 2 ? classes_ : turn, frontier}, BorderMode::CONSTANT);
      if (device() == nullptr) kernels_.erase(kernels_.end() - 2); // nothing is an edge beside the region: the planes' borders are zeros
    }
    if (device() == nullptr) trace(like);
    step("edge_strong", {classes_}, {output}, BorderMode::UNDEFINED, 0, {}, &region);
    finish();
  }
  void run() override {
    if (kernels_.empty()) throw std::runtime_error("the function is not configured: call configure first");
    run(0, gradient_steps_);
    if (device() == nullptr) clear_border();
    do run(gradient_steps_, kernels_.size() - 1);
    while (device() != nullptr && spreads());
    run(kernels_.size() - 1, kernels_.size());
  }

private:
  static constexpr int TURNS = 4, DEVICE_TURNS = 16; // for all pixels at once: before the queue, between two looks
  void run(size_t begin, size_t end) {
    for (size_t n = begin; n < end; n++) Scheduler::get().schedule(kernels_[n].get(), Window::DimY);
  }
  void trace(const TensorInfo &like) { // what hangs on to edges, through a queue of pixels
    const detail::Sides all{0, 0, int(like.dimension(0)), int(like.dimension(1))};
    std::unique_ptr<detail::LoopsKernel> kernel(
        new detail::LoopsKernel("trace_edges", {{classes_, 0}, {classes_, 1}, {frontier_, 1}, {frontier_, 4}}, all, 1));
    queue_.resize(classes_->info()->total_size());
    kernel->set_partial(queue_.data(), int64_t(queue_.size()));
    kernels_.push_back(std::move(kernel));
  }
  bool spreads() { // whether the last turn changed a pixel
    bool is_changed = false;
    detail::points_of<uint8_t>(*frontier_, [&](int, int, uint8_t) { is_changed = true; });
    return is_changed;
  }
  void clear_border() { // nothing is an edge beside the valid region
    const TensorInfo &t = *classes_->info();
    const int64_t columns = t.columns(), top = t.padding().top + sides_.top, left = t.padding().left + sides_.left;
    const int64_t bottom = top + sides_.bottom - sides_.top, right = left + sides_.right - sides_.left;
    uint8_t *all = classes_->buffer();
    for (int64_t y = 0; y < t.rows(); y++)
      for (int64_t x = 0; x < columns; x++)
        if (y < top || y >= bottom || x < left || x >= right) all[y * columns + x] = 0;
  }
  ITensor *classes_ = nullptr, *frontier_ = nullptr;
  detail::Sides sides_{};
  size_t gradient_steps_ = 0;
  std::vector<int32_t> queue_;
};

constexpr float SCALE_PYRAMID_HALF = 0.5f, SCALE_PYRAMID_ORB = 8.408964152537146130583778358414e-01f;

// Images in smaller and smaller sizes, the largest first.
class Pyramid {
public:
  virtual ~Pyramid() = default;
  void init(size_t num_levels, float scale, size_t width, size_t height, Format format = Format::U8) {
    levels_.clear(), scale_ = scale;
    const float factors[] = {1, scale, scale * scale, scale * scale * scale};
    size_t sides[] = {width, height}, wide[2];
    for (size_t n = 0; n < num_levels; n++) {
      for (size_t side = 0; side < 2; side++) { // ORB's are parts of every fourth level, which is half of the one before
        const bool is_orb = scale == SCALE_PYRAMID_ORB;
        if (n != 0 && (!is_orb || n % 4 == 0)) sides[side] = size_t(std::ceil(double(sides[side]) * (is_orb ? 0.5 : double(scale))));
        wide[side] = is_orb ? size_t(std::ceil(float(sides[side]) * factors[n % 4])) : sides[side];
      }
      levels_.emplace_back(new_level());
      levels_.back()->allocator()->init(TensorInfo(TensorShape(wide[0], wide[1]), format));
    }
  }
  size_t num_levels() const { return levels_.size(); }
  float scale() const { return scale_; }
  ITensor *get_pyramid_level(size_t index) const { return levels_.at(index).get(); }
  void allocate() {
    for (auto &level : levels_) level->allocator()->allocate();
  }

protected:
  virtual Tensor *new_level() const { return new Tensor; }

private:
  std::vector<std::unique_ptr<Tensor>> levels_;
  float scale_ = SCALE_PYRAMID_HALF;
};
using IPyramid = Pyramid;

// Each level half the one before, through a Gaussian of 5x5; level 0 is a copy of the image.
class NEGaussianPyramidHalf : public VisionFunction {
public:
  void configure(ITensor *input, IPyramid *pyramid, BorderMode border_mode, uint8_t constant_border_value = 0) {
    clear();
    step("copy_image", {input}, {pyramid->get_pyramid_level(0)});
    for (size_t n = 1; n < pyramid->num_levels(); n++)
      reduce(pyramid->get_pyramid_level(n - 1), pyramid->get_pyramid_level(n), border_mode, constant_border_value);
  }

private:
  void reduce(ITensor *above, ITensor *below, BorderMode border, uint8_t constant) {
    const int width = int(above->info()->dimension(0)), height = int(above->info()->dimension(1));
    const int columns = int(below->info()->dimension(0)), rows = int(below->info()->dimension(1)), step_size = kernels::STEP;
    const int behind = 2 * ((columns + step_size - 1) / step_size * step_size) + kernels::OVERSHOOT - width;
    if (!above->info()->extend_padding(PaddingSize{2, unsigned(std::max(0, behind)), 2, 2}))
      throw std::invalid_argument("NEGaussianPyramidHalf: configure it before the pyramid is allocated");
    const detail::Sides s = detail::sides_of(above->info()->valid_region());
    const int odd[] = {1 - width % 2, 1 - height % 2}, around = border == BorderMode::UNDEFINED ? 2 : 0;
    const auto first = [&](int odd_one, int start) { return -floor_half(odd_one - around - start); };
    const auto last = [&](int odd_one, int end) { return floor_half(end - 1 - around - odd_one); };
    const detail::Sides halved{first(odd[0], s.left), first(odd[1], s.top), last(odd[0], s.right) + 1, last(odd[1], s.bottom) + 1};
    const ValidRegion whole = detail::region_of({0, 0, columns, rows}, below->info()->tensor_shape());
    step("gaussian_half", {above}, {below}, border, constant, {double(odd[0]), double(odd[1])}, &whole);
    below->info()->set_valid_region(detail::region_of(halved, below->info()->tensor_shape()));
  }
  static int floor_half(int value) { return value >= 0 ? value / 2 : -((1 - value) / 2); }
};

// Each level 0.8409 of the one before.
class NEGaussianPyramidOrb : public VisionFunction {
public:
  void configure(ITensor *input, IPyramid *pyramid, BorderMode border_mode, uint8_t constant_border_value = 0) {
    clear(), parts_.clear();
    step("copy_image", {input}, {pyramid->get_pyramid_level(0)});
    for (size_t n = 1; n < pyramid->num_levels(); n++) {
      ITensor *above = pyramid->get_pyramid_level(n - 1), *between = image(*above->info(), DataType::U8);
      std::unique_ptr<NEGaussian5x5> smooth(new NEGaussian5x5);
      std::unique_ptr<NEScale> scale(new NEScale);
      smooth->configure(above, between, border_mode, constant_border_value);
      scale->configure(between, pyramid->get_pyramid_level(n), InterpolationPolicy::NEAREST_NEIGHBOR, BorderMode::UNDEFINED);
      parts_.push_back(std::move(smooth)), parts_.push_back(std::move(scale));
    }
    finish();
  }
  void run() override {
    VisionFunction::run();
    for (auto &part : parts_) part->run();
  }

private:
  std::vector<std::unique_ptr<IFunction>> parts_;
};

}} // namespace armillary::compute
