"""Exact padding: functions are configured before images are allocated (text: "Padding")."""

import sys

from armillary.compute import BorderMode, Format, Image, NEConvolution3x3, NEConvolution5x5, PPMLoader, TensorInfo
from armillary.compute.runtime.ppm import save_to_ppm

gaussian3x3 = [1, 2, 1, 2, 4, 2, 1, 2, 1]
gaussian5x5 = [1, 4, 6, 4, 1, 4, 16, 24, 16, 4, 6, 24, 36, 24, 6, 4, 16, 24, 16, 4, 1, 4, 6, 4, 1]

src, tmp, dst = Image(), Image(), Image()
conv3x3, conv5x5 = NEConvolution3x3(), NEConvolution5x5()
ppm = PPMLoader()
if len(sys.argv) < 2:
    # Print help
    print("Usage: python 07_exact_padding.py [input_image.ppm]\n")
    print("No input_image provided, creating a dummy 640x480 image")
    # Initialize just the dimensions and format of your buffers:
    src.allocator().init(TensorInfo(640, 480, Format.U8))
else:
    ppm.open(sys.argv[1])
    # Initialize just the dimensions and format of your buffers:
    ppm.init_image(src, Format.U8)
# Initialize just the dimensions and format of the temporary and destination images:
tmp.allocator().init(src.info())
dst.allocator().init(src.info())
# Apply a Gaussian 3x3 filter to the source image followed by a Gaussian 5x5:
# The function will automatically update the padding information inside input and output to match its requirements
conv3x3.configure(src, tmp, gaussian3x3, 0, BorderMode.UNDEFINED)  # 0: Let the library calculate the scale
conv5x5.configure(tmp, dst, gaussian5x5, 0, BorderMode.UNDEFINED)
# Now that the padding requirements are known we can allocate the images:
src.allocator().allocate()
tmp.allocator().allocate()
dst.allocator().allocate()
# Fill the input image with the content of the PPM image if a filename was provided:
if ppm.is_open():
    ppm.fill_image(src)
else:
    src.array()[...] = 100
conv3x3.run()
conv5x5.run()
for name, image in (("src", src), ("tmp", tmp), ("dst", dst)):
    region = image.info().valid_region()
    print(name, image.info().padding)
    print("  valid", [(region.start(n), region.end(n)) for n in (0, 1)])
print(dst.array()[240, 320])
if ppm.is_open():
    save_to_ppm(dst, sys.argv[1] + "_out.ppm")

# Output:
# Usage: python 07_exact_padding.py [input_image.ppm]
#
# No input_image provided, creating a dummy 640x480 image
# src BorderSize(top=1, right=2, bottom=1, left=1)
#   valid [(0, 640), (0, 480)]
# tmp BorderSize(top=2, right=5, bottom=2, left=2)
#   valid [(1, 639), (1, 479)]
# dst BorderSize(top=0, right=3, bottom=0, left=0)
#   valid [(3, 637), (3, 477)]
# 100
