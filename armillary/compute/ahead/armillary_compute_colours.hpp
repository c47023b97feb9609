// Colours: images of several planes, other formats, one channel, channels put together. Part of `armillary_compute.hpp`.
//
// In: images of RGB888, RGBA8888, YUYV422, UYVY422, and `MultiImage`s of NV12, NV21, IYUV, YUV444. Out: the same pictures
// otherwise. Invariant: bytes are those of the Python functions (`functions/vision/colour.py`); what is not there is a
// std::invalid_argument.
#pragma once

namespace armillary { namespace compute {

// An image whose planes may have half its size.
class MultiImage {
public:
  MultiImage() = default;
  virtual ~MultiImage() = default;
  void init(unsigned int width, unsigned int height, Format format) {
    const bool is_nv = format == Format::NV12 || format == Format::NV21, is_half = is_nv || format == Format::IYUV;
    if (!is_half && format != Format::YUV444) throw std::invalid_argument("MultiImage: NV12, NV21, IYUV or YUV444");
    if (is_half && (width % 2 || height % 2)) throw std::invalid_argument("MultiImage: planes of half of an odd size");
    format_ = format, width_ = width, height_ = height, planes_.clear();
    for (unsigned int n = 0; n < (is_nv ? 2u : 3u); n++) {
      const unsigned int by = n != 0 && is_half ? 2 : 1;
      planes_.emplace_back(new_plane());
      planes_.back()->allocator()->init(TensorInfo(width / by, height / by, n == 1 && is_nv ? Format::UV88 : Format::U8));
    }
  }
  void allocate() {
    for (auto &plane : planes_) plane->allocator()->allocate();
  }
  Tensor *plane(unsigned int index) const { return planes_.at(index).get(); }
  Format format() const { return format_; }
  unsigned int width() const { return width_; }
  unsigned int height() const { return height_; }
  std::vector<Tensor *> planes() const {
    std::vector<Tensor *> all;
    for (auto &plane : planes_) all.push_back(plane.get());
    return all;
  }

protected:
  virtual Tensor *new_plane() const { return new Image; }

private:
  Format format_ = Format::YUV444;
  unsigned int width_ = 0, height_ = 0;
  std::vector<std::unique_ptr<Tensor>> planes_;
};
using IMultiImage = MultiImage;

enum class Channel { UNKNOWN, C0, C1, C2, C3, R, G, B, A, Y, U, V };

namespace detail {
inline std::string lower_name(Format format) {
  static const char *const names[] = {"u8", "s16", "f32", "s32", "u32", "rgb888", "rgba8888", "uv88", "yuyv422",
                                      "uyvy422", "nv12", "nv21", "iyuv", "yuv444"};
  return names[int(format)];
}
// A picture of one plane or of several.
struct Picture {
  Picture(const Tensor *one)
      : format(one->info()->format()), width(one->info()->dimension(0)), height(one->info()->dimension(1)),
        planes{const_cast<Tensor *>(one)} {}
  Picture(const MultiImage *many)
      : format(many->format()), width(many->width()), height(many->height()), planes(many->planes()) {}
  Format format;
  size_t width, height;
  Tensors planes;
};
inline bool has_half_planes(Format format) {
  return format == Format::NV12 || format == Format::NV21 || format == Format::IYUV;
}
inline bool is_packed_yuv(Format format) { return format == Format::YUYV422 || format == Format::UYVY422; }
inline void expect_size(const char *what, const Tensor *image, size_t width, size_t height) {
  const TensorInfo &info = *image->info();
  if (info.format() != Format::U8 || info.dimension(0) != width || info.dimension(1) != height)
    throw std::invalid_argument(std::string(what) + ": wanted U8 of " + std::to_string(width) + "x" + std::to_string(height));
}
} // namespace detail

// The same picture in another format.
class NEColorConvert : public VisionFunction {
public:
  void configure(const ITensor *input, ITensor *output) { convert(input, output); }
  void configure(const IMultiImage *input, IImage *output) { convert(input, output); }
  void configure(const IImage *input, IMultiImage *output) { convert(input, output); }
  void configure(const IMultiImage *input, IMultiImage *output) { convert(input, output); }

private:
  void convert(const detail::Picture &from, const detail::Picture &to) {
    if (from.width != to.width || from.height != to.height)
      throw std::invalid_argument("NEColorConvert: pictures of different sizes");
    const std::string name = detail::lower_name(from.format) + "_to_" + detail::lower_name(to.format);
    clear();
    if (!detail::has_half_planes(to.format)) return step(name, from.planes, to.planes);
    step(name + "_y", from.planes, {to.planes[0]});
    step(name + "_uv", from.planes, {to.planes.begin() + 1, to.planes.end()});
  }
};

// One channel of a picture, as U8; chroma of half size stays so.
class NEChannelExtract : public VisionFunction {
public:
  void configure(const ITensor *input, Channel channel, ITensor *output) { extract(input, channel, output); }
  void configure(const IMultiImage *input, Channel channel, IImage *output) { extract(input, channel, output); }

private:
  struct Place {
    size_t plane, at, spread;
  };
  void extract(const detail::Picture &from, Channel channel, Tensor *output) {
    const Place place = place_of(from.format, channel);
    const Tensor *plane = from.planes[place.plane];
    const TensorInfo &info = *plane->info();
    detail::expect_size("NEChannelExtract", output, info.dimension(0) / place.spread, info.dimension(1));
    const size_t stride = info.num_channels() * place.spread;
    set("extract_" + std::to_string(stride) + "_" + std::to_string(place.at), {const_cast<Tensor *>(plane)}, {output});
  }
  static Place place_of(Format format, Channel channel) {
    const size_t rgb = size_t(channel) - size_t(Channel::R), yuv = size_t(channel) - size_t(Channel::Y);
    const bool is_chroma = channel == Channel::U || channel == Channel::V;
    if (channel >= Channel::R && (format == Format::RGB888 || format == Format::RGBA8888)) {
      if (rgb < (format == Format::RGB888 ? 3u : 4u)) return {0, rgb, 1};
    } else if (channel >= Channel::Y && detail::is_packed_yuv(format)) {
      const size_t luma = format == Format::YUYV422 ? 0 : 1;
      return is_chroma ? Place{0, 1 - luma + 2 * (yuv - 1), 2} : Place{0, luma, 1};
    } else if (channel >= Channel::Y && (format == Format::NV12 || format == Format::NV21)) {
      return is_chroma ? Place{1, (yuv == 1) == (format == Format::NV12) ? 0u : 1u, 1} : Place{0, 0, 1};
    } else if (channel >= Channel::Y && (format == Format::IYUV || format == Format::YUV444)) {
      return {yuv, 0, 1};
    }
    throw std::invalid_argument("NEChannelExtract: " + detail::lower_name(format) + " has no such channel");
  }
};

// Planes of one channel as one picture; the fourth plane is null but for RGBA8888.
class NEChannelCombine : public VisionFunction {
public:
  void configure(const ITensor *plane0, const ITensor *plane1, const ITensor *plane2, const ITensor *plane3, ITensor *output) {
    combine({plane0, plane1, plane2, plane3}, output);
  }
  void configure(const IImage *plane0, const IImage *plane1, const IImage *plane2, IMultiImage *output) {
    combine({plane0, plane1, plane2, nullptr}, output);
  }

private:
  void combine(const std::vector<const Tensor *> &sources, const detail::Picture &to) {
    detail::Tensors in;
    const size_t wide = detail::is_packed_yuv(to.format) || detail::has_half_planes(to.format) ? 2 : 1;
    const size_t high = detail::has_half_planes(to.format) ? 2 : 1;
    for (const Tensor *plane : sources) {
      if (plane == nullptr) continue;
      detail::expect_size("NEChannelCombine", plane, to.width / (in.empty() ? 1 : wide), to.height / (in.empty() ? 1 : high));
      in.push_back(const_cast<Tensor *>(plane));
    }
    if (in.size() != (to.format == Format::RGBA8888 ? 4u : 3u)) throw std::invalid_argument("NEChannelCombine: how many planes");
    clear();
    if (to.format == Format::NV12 || to.format == Format::NV21) {
      step("combine_1", {in[0]}, {to.planes[0]});
      if (to.format == Format::NV21) std::swap(in[1], in[2]);
      step("combine_2", {in[1], in[2]}, {to.planes[1]});
    } else if (to.planes.size() > 1) {
      for (size_t n = 0; n < 3; n++) step("combine_1", {in[n]}, {to.planes[n]});
    } else if (detail::is_packed_yuv(to.format)) {
      step(to.format == Format::YUYV422 ? "combine_YUYV422" : "combine_UYVY422", in, to.planes);
    } else {
      step("combine_" + std::to_string(in.size()), in, to.planes);
    }
  }
};

}} // namespace armillary::compute
