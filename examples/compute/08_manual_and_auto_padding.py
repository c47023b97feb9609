"""Images allocated first: automatic padding for the input, strides of one's own for the output (text: "Padding")."""

import numpy as np

from armillary.compute import BorderMode, Format, Image, NEGaussian3x3, TensorShape


def fill_image(image: Image) -> None:
    """A ramp."""
    image.array()[...] = np.arange(480)[:, None] // 2


src, dst = Image(), Image()
# Use auto padding for the input:
src.info().init_auto_padding(TensorShape(640, 480), Format.U8)
# Use manual padding for the destination image
strides_in_bytes, offset_first_element_in_bytes, total_size_in_bytes = (1, 656), 656 + 8, 656 * 482
dst.info().init(
    src.info().tensor_shape(), Format.U8, strides_in_bytes, offset_first_element_in_bytes, total_size_in_bytes
)
# Allocate all the images
src.allocator().allocate()
dst.allocator().allocate()
# Fill the input image with the content of the PPM image if a filename was provided:
fill_image(src)
gauss = NEGaussian3x3()
# Apply a Gaussian 3x3 filter to the source image (Note: if the padding provided is not enough then the execution window
# and valid region of the output will be shrunk)
gauss.configure(src, dst, BorderMode.UNDEFINED)
# Execute the functions:
gauss.run()
print("src", src.info().padding, src.info().strides_in_bytes()[:2], src.info().total_size())
print("dst", dst.info().padding, dst.info().strides_in_bytes()[:2], dst.info().total_size())
region = dst.info().valid_region()
print("valid", [(region.start(n), region.end(n)) for n in (0, 1)], dst.array()[100, 320])

# Without padding at the end of rows the window ends where the last whole step of 16 pixels ends:
src, dst = Image(), Image()
for image in (src, dst):
    image.info().init(TensorShape(640, 480), Format.U8, (1, 640), 0, 640 * 480)
    image.allocator().allocate()
fill_image(src)
gauss = NEGaussian3x3()
gauss.configure(src, dst, BorderMode.UNDEFINED)
gauss.run()
region = dst.info().valid_region()
print("valid", [(region.start(n), region.end(n)) for n in (0, 1)], dst.array()[100, 320])

# Output:
# src BorderSize(top=4, right=36, bottom=4, left=4) (1, 680) 331840
# dst BorderSize(top=1, right=8, bottom=1, left=8) (1, 656) 316192
# valid [(1, 639), (1, 479)] 49
# valid [(1, 625), (1, 479)] 49
