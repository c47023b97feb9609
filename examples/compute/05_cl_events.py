"""Three functions of OpenCL and an event behind them (text: "OpenCL events and synchronization", its cl_events)."""

import sys

from armillary.compute import (
    BorderMode,
    CLGaussian5x5,
    CLImage,
    CLMedian3x3,
    CLScale,
    CLScheduler,
    Format,
    InterpolationPolicy,
    PPMLoader,
    TensorInfo,
    save_to_ppm,
)

src, dst, tmp_scale_median, tmp_median_gauss = CLImage(), CLImage(), CLImage(), CLImage()
scale, median, gauss = CLScale(), CLMedian3x3(), CLGaussian5x5()
ppm = PPMLoader()
scale_factor = 2
CLScheduler.get().default_init()
if len(sys.argv) < 2:
    # Print help
    print("Usage: python 05_cl_events.py [input_image.ppm]\n")
    print("No input_image provided, creating a dummy 640x480 image")
    # Create an empty grayscale 640x480 image
    src.allocator().init(TensorInfo(640, 480, Format.U8))
else:
    ppm.open(sys.argv[1])
    ppm.init_image(src, Format.U8)
dst_info = TensorInfo(src.info().dimension(0) // scale_factor, src.info().dimension(1) // scale_factor, Format.U8)
# Configure the temporary and destination images
dst.allocator().init(dst_info)
tmp_scale_median.allocator().init(dst_info)
tmp_median_gauss.allocator().init(dst_info)
# Configure the functions:
scale.configure(src, tmp_scale_median, InterpolationPolicy.NEAREST_NEIGHBOR, BorderMode.REPLICATE)
median.configure(tmp_scale_median, tmp_median_gauss, BorderMode.REPLICATE)
gauss.configure(tmp_median_gauss, dst, BorderMode.REPLICATE)
# Allocate all the images
src.allocator().allocate()
dst.allocator().allocate()
tmp_scale_median.allocator().allocate()
tmp_median_gauss.allocator().allocate()
# Fill the input image with the content of the PPM image if a filename was provided:
if ppm.is_open():
    src.map()
    ppm.fill_image(src)
    src.unmap()
# Enqueue the functions and an event behind each of the first two
scale.run()
scale_event = CLScheduler.get().enqueue_sync_event()
median.run()
gauss.run()
scale_event.wait()  # the scaled image is there
CLScheduler.get().sync()  # everything is
dst.map()
print(dst.info(), "from", int(dst.array().min()), "to", int(dst.array().max()))
if ppm.is_open():
    save_to_ppm(dst, sys.argv[1] + "_out.ppm")
dst.unmap()

# Output:
# Usage: python 05_cl_events.py [input_image.ppm]
#
# No input_image provided, creating a dummy 640x480 image
# 320x240 U8 from 0 to 0
