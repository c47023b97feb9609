// A Gaussian filter without a border: what of its output is valid. An example of `armc compute build examples=1`.
#include "armillary_compute.hpp"

using namespace arm_compute;

#ifndef WIDTH
#define WIDTH 640
#endif

int main() {
  Image src, dst;
  NEGaussian3x3 gauss;
  src.allocator()->init(TensorInfo(WIDTH, WIDTH / 4 * 3, Format::U8));
  dst.allocator()->init(*src.info());
  gauss.configure(&src, &dst, BorderMode::UNDEFINED);
  src.allocator()->allocate();
  dst.allocator()->allocate();
  gauss.run();
  const ValidRegion region = dst.info()->valid_region();
  std::cout << region.start(0) << ',' << region.start(1) << " to " << region.end(0) << ',' << region.end(1) << '\n';
}
