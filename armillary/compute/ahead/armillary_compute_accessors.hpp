// Who fills and reads the tensors of a graph: arrays in files, pictures, labels, nobody. Part of `armillary_compute.hpp`.
//
// In: names of files. Out: accessors of `graph::ITensorAccessor`. Invariant: a file that does not fit its tensor is a
// std::runtime_error with its name; arrays (.npy, float32, in C's order) lie as the tensor does, the last dimension first.
#pragma once

namespace armillary { namespace compute { namespace graph_utils {

using graph::ITensorAccessor;

// Calls a function for each row of a tensor, in order.
template <class Row> void for_each_row(compute::ITensor &tensor, Row &&row) {
  Window window;
  window.use_tensor_dimensions(tensor.info()->tensor_shape(), Window::DimY);
  Iterator it(&tensor, window);
  execute_window_loop(window, [&](const Coordinates &at) { row(reinterpret_cast<float *>(it.ptr()), at); }, it);
}

// Touches nothing, so that speed can be measured without a model; goes on `maximum` times, with 0 always.
class DummyAccessor final : public ITensorAccessor {
public:
  explicit DummyAccessor(unsigned int maximum = 1) : maximum_(maximum) {}
  bool access_tensor(compute::ITensor &) override {
    const bool goes_on = maximum_ == 0 || count_ < maximum_;
    count_ = goes_on ? count_ + 1 : 0;
    return goes_on;
  }

private:
  unsigned int maximum_, count_ = 0;
};

// Fills a tensor from a .npy file.
class NumPyBinLoader final : public ITensorAccessor {
public:
  explicit NumPyBinLoader(std::string filename) : name_(std::move(filename)) {}
  bool access_tensor(compute::ITensor &tensor) override {
    std::ifstream file(name_, std::ios::binary);
    if (!file) throw std::runtime_error(name_ + " cannot be opened");
    char start[8];
    uint32_t size = 0;
    if (!file.read(start, 8) || std::memcmp(start, "\x93NUMPY", 6) != 0) throw std::runtime_error(name_ + " is no .npy file");
    for (int n = 0; n < (start[6] == 1 ? 2 : 4); n++) size |= uint32_t(uint8_t(file.get())) << (8 * n);
    std::string head(std::min(size, 1u << 16), ' ');
    file.read(&head[0], std::streamsize(head.size()));
    if (head.find("'<f4'") == std::string::npos || head.find("'fortran_order': False") == std::string::npos)
      throw std::runtime_error(name_ + ": wanted float32 in C's order");
    size_t at = head.find('(', head.find("'shape'")), count = 1;
    while (at != std::string::npos && at + 1 < head.size() && head[at] != ')') {
      char *end = nullptr;
      const unsigned long extent = std::strtoul(&head[at + 1], &end, 10);
      if (end == &head[at + 1]) break; // (n,) and ()
      count *= extent, at = size_t(end - &head[0]);
    }
    if (count != tensor.info()->tensor_shape().total_size())
      throw std::runtime_error(name_ + " has " + std::to_string(count) + " values, the tensor " +
                               std::to_string(tensor.info()->tensor_shape().total_size()));
    const size_t row = tensor.info()->dimension(0) * sizeof(float);
    for_each_row(tensor, [&](float *to, const Coordinates &) { file.read(reinterpret_cast<char *>(to), std::streamsize(row)); });
    if (!file) throw std::runtime_error(name_ + " ends early");
    return true;
  }

private:
  std::string name_;
};

// Takes a mean from each channel (red, green, blue), as networks of Caffe want it.
struct CaffePreproccessor {
  std::array<float, 3> mean;
  float scale = 1.0f;
  explicit CaffePreproccessor(std::array<float, 3> m = {{0.0f, 0.0f, 0.0f}}, float s = 1.0f) : mean(m), scale(s) {}
};

// Fills a tensor of three planes from a PPM picture: once, then the run ends.
class PPMAccessor final : public ITensorAccessor {
public:
  PPMAccessor(std::string filename, bool bgr = true, CaffePreproccessor preprocessor = CaffePreproccessor())
      : name_(std::move(filename)), bgr_(bgr), preprocessor_(preprocessor) {}
  bool access_tensor(compute::ITensor &tensor) override {
    is_loaded_ = !is_loaded_;
    if (!is_loaded_) return false;
    utils::PPMLoader ppm;
    ppm.open(name_);
    const TensorShape &shape = tensor.info()->tensor_shape();
    if (ppm.width() != shape[0] || ppm.height() != shape[1] || shape.planes() != 3)
      throw std::runtime_error(name_ + " has another size than the tensor");
    ppm.read([&](unsigned int x, unsigned int y, const unsigned char *rgb) {
      for (int c = 0; c < 3; c++)
        *reinterpret_cast<float *>(tensor.ptr_to_element(Coordinates(int(x), int(y), bgr_ ? 2 - c : c))) =
            (float(rgb[c]) - preprocessor_.mean[size_t(c)]) * preprocessor_.scale;
    });
    return true;
  }

private:
  std::string name_;
  bool bgr_, is_loaded_ = false;
  CaffePreproccessor preprocessor_;
};

// Prints the largest values with the labels of a file, one a line, and ends the run.
class TopNPredictionsAccessor final : public ITensorAccessor {
public:
  TopNPredictionsAccessor(const std::string &labels_path, size_t top_n = 5, std::ostream &output_stream = std::cout)
      : top_n_(top_n), stream_(output_stream) {
    std::ifstream file(labels_path);
    if (!file) throw std::runtime_error(labels_path + " cannot be opened");
    for (std::string line; std::getline(file, line);) labels_.push_back(line);
  }
  bool access_tensor(compute::ITensor &tensor) override { return access_predictions_tensor(tensor), false; }

private:
  void access_predictions_tensor(compute::ITensor &tensor) {
    std::vector<std::pair<float, size_t>> scores;
    const size_t columns = tensor.info()->dimension(0);
    for_each_row(tensor, [&](const float *row, const Coordinates &) {
      for (size_t x = 0; x < columns; x++) scores.emplace_back(-row[x], scores.size());
    });
    if (labels_.size() < scores.size()) throw std::runtime_error("there are more classes than labels");
    std::sort(scores.begin(), scores.end());
    stream_ << "---------- Top " << top_n_ << " predictions ----------\n\n" << std::fixed << std::setprecision(4);
    for (size_t n = 0; n < std::min(top_n_, scores.size()); n++)
      stream_ << -scores[n].first << " - [id = " << scores[n].second << "], " << labels_[scores[n].second] << "\n";
  }
  size_t top_n_;
  std::ostream &stream_;
  std::vector<std::string> labels_;
};

// The loader of a file in a folder; without a folder nothing is loaded.
inline std::unique_ptr<ITensorAccessor> get_weights_accessor(const std::string &path, const std::string &data_file) {
  if (path.empty()) return std::unique_ptr<ITensorAccessor>(new DummyAccessor());
  return std::unique_ptr<ITensorAccessor>(new NumPyBinLoader(path + data_file));
}
// What loads a picture, or an array; without a name nothing is loaded.
inline std::unique_ptr<ITensorAccessor> get_input_accessor(const std::string &image,
                                                           CaffePreproccessor preprocessor = CaffePreproccessor(),
                                                           bool bgr = true) {
  if (image.empty()) return std::unique_ptr<ITensorAccessor>(new DummyAccessor());
  if (image.size() > 4 && image.compare(image.size() - 4, 4, ".npy") == 0)
    return std::unique_ptr<ITensorAccessor>(new NumPyBinLoader(image));
  return std::unique_ptr<ITensorAccessor>(new PPMAccessor(image, bgr, preprocessor));
}
// What prints the best classes; without labels nothing is printed and the run ends.
inline std::unique_ptr<ITensorAccessor> get_output_accessor(const std::string &labels_path, size_t top_n = 5) {
  if (labels_path.empty()) return std::unique_ptr<ITensorAccessor>(new DummyAccessor(0));
  return std::unique_ptr<ITensorAccessor>(new TopNPredictionsAccessor(labels_path, top_n));
}

}}} // namespace armillary::compute::graph_utils
