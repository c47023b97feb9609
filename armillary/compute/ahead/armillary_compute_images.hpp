// Pictures in files, as the examples of Arm Compute Library read and write them. Part of `armillary_compute.hpp`.
//
// In: a PPM file of 8 bits a channel (P6). Out: an image of grey values (U8), or such an image as a file. Invariant: a
// file that is none, or that ends early, is a std::runtime_error with its name.
#pragma once

#include <fstream>
#include <string>

namespace armillary { namespace compute { namespace utils {

// Reads a picture: open(), init_image() with its size, and, once the image has memory, fill_image().
class PPMLoader {
 public:
  void open(const std::string &name) {
    name_ = name;
    file_.open(name, std::ios::binary);
    if (!file_.is_open()) throw std::runtime_error(name + " cannot be opened");
    std::string magic;
    unsigned int most = 0;
    if (!(file_ >> magic) || magic != "P6") throw std::runtime_error(name + " is no PPM file of the kind P6");
    width_ = number(), height_ = number(), most = number();
    if (!file_ || width_ == 0 || height_ == 0 || most == 0 || most > 255)
      throw std::runtime_error(name + " says no size, or has more than 8 bits a channel");
    file_.get(); // one blank ends the header
  }
  bool is_open() const { return file_.is_open(); }
  unsigned int width() const { return width_; }
  unsigned int height() const { return height_; }
  template <class T> void init_image(T &image, Format format) const {
    if (format != Format::U8) throw std::invalid_argument("PPMLoader: pictures are read as U8");
    image.allocator()->init(TensorInfo(width_, height_, format));
  }
  template <class T> void fill_image(T &image) {
    image.map();
    read([&](unsigned int x, unsigned int y, const unsigned char *rgb) {
      *image.ptr_to_element(Coordinates(int(x), int(y))) = uint8_t(0.2126f * rgb[0] + 0.7152f * rgb[1] + 0.0722f * rgb[2]);
    });
    image.unmap();
  }
  template <class Pixel> void read(Pixel &&pixel) { // calls `pixel(x, y, rgb)`, row by row
    for (unsigned int y = 0; y < height_; y++) {
      for (unsigned int x = 0; x < width_; x++) {
        unsigned char rgb[3];
        if (!file_.read(reinterpret_cast<char *>(rgb), 3)) throw std::runtime_error(name_ + " ends early");
        pixel(x, y, rgb);
      }
    }
  }

 private:
  unsigned int number() { // with comments in front
    while (file_ >> std::ws && file_.peek() == '#') file_.ignore(1 << 16, '\n');
    unsigned int value = 0;
    file_ >> value;
    return value;
  }
  std::ifstream file_;
  std::string name_;
  unsigned int width_ = 0, height_ = 0;
};

// Writes an image of U8 as a picture whose three channels are equal.
template <class T> void save_to_ppm(T &image, const std::string &name) {
  if (image.info()->format() != Format::U8) throw std::invalid_argument("save_to_ppm: an image of U8 is wanted");
  const auto &shape = image.info()->tensor_shape();
  std::ofstream file(name, std::ios::binary);
  image.map();
  file << "P6\n" << shape[0] << ' ' << shape[1] << " 255\n";
  for (size_t y = 0; y < shape[1]; y++) {
    for (size_t x = 0; x < shape[0]; x++) {
      const char value = char(*image.ptr_to_element(Coordinates(int(x), int(y))));
      file << value << value << value;
    }
  }
  image.unmap();
  if (!file.flush()) throw std::runtime_error(name + " cannot be written");
}

}}} // namespace armillary::compute::utils
