"""OpenCL and the CPU in one pipeline: images are mapped for the CPU's function (text: "interoperability")."""

import sys

import numpy as np

from armillary.compute import (
    BorderMode,
    CLGaussian5x5,
    CLImage,
    CLScale,
    CLScheduler,
    Format,
    InterpolationPolicy,
    NEMedian3x3,
    PPMLoader,
    TensorInfo,
    save_to_ppm,
)

src, scale_median, median_gauss, dst = CLImage(), CLImage(), CLImage(), CLImage()
scale, median, gauss = CLScale(), NEMedian3x3(), CLGaussian5x5()
ppm = PPMLoader()
CLScheduler.get().default_init()
if len(sys.argv) < 2:
    # Print help
    print("Usage: python 06_neoncl_scale_median_gaussian.py [input_image.ppm]\n")
    print("No input_image provided, creating a dummy 640x480 image")
    # Create an empty grayscale 640x480 image
    src.allocator().init(TensorInfo(640, 480, Format.U8))
else:
    ppm.open(sys.argv[1])
    ppm.init_image(src, Format.U8)
scale_median_info = TensorInfo(src.info().dimension(0) // 2, src.info().dimension(1) // 2, Format.U8)
# Configure the temporary and destination images
scale_median.allocator().init(scale_median_info)
median_gauss.allocator().init(scale_median_info)
dst.allocator().init(scale_median_info)
scale.configure(src, scale_median, InterpolationPolicy.NEAREST_NEIGHBOR, BorderMode.REPLICATE)
median.configure(scale_median, median_gauss, BorderMode.REPLICATE)
gauss.configure(median_gauss, dst, BorderMode.REPLICATE)
# Allocate all the images
src.allocator().allocate()
scale_median.allocator().allocate()
median_gauss.allocator().allocate()
dst.allocator().allocate()
# Fill the input image with the content of the PPM image if a filename was provided:
src.map()
if ppm.is_open():
    ppm.fill_image(src)
else:
    src.array()[...] = np.arange(640) // 4
src.unmap()
scale.run()  # on the device
scale_median.map()
median_gauss.map()
median.run()  # on the CPU, over the mapped images
scale_median.unmap()
median_gauss.unmap()
gauss.run()  # on the device again
CLScheduler.get().sync()
dst.map()
print(dst.info(), dst.array()[120, :320:40].tolist())
if ppm.is_open():
    save_to_ppm(dst, sys.argv[1] + "_out.ppm")
dst.unmap()

# Output:
# Usage: python 06_neoncl_scale_median_gaussian.py [input_image.ppm]
#
# No input_image provided, creating a dummy 640x480 image
# 320x240 U8 [0, 19, 39, 59, 79, 99, 119, 139]
