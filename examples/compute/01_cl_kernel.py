"""A kernel of OpenCL: enqueued over its window on the default queue (text: "Kernels")."""

import numpy as np

from armillary.compute import BorderMode, CLFormulaKernel, CLImage, CLScheduler, Format, TensorInfo
from armillary.compute.functions.formulas.filters import DILATE

# Initialize the CLScheduler with the default context and default command queue
CLScheduler.get().default_init()
q = CLScheduler.get().queue()
input, output = CLImage(), CLImage()
for image in (input, output):
    image.allocator().init(TensorInfo(5, 4, Format.U8))
# Create a kernel object:
kernel = CLFormulaKernel(DILATE)
# Initialize the kernel with the input/output and options you want to use:
kernel.configure([input], [output], border=BorderMode.REPLICATE)
input.allocator().allocate()
output.allocator().allocate()
input.map()
input.array()[...] = np.arange(20).reshape(4, 5)
input.unmap()
# Retrieve the execution window of the kernel:
max_window = kernel.window()
# Run the whole kernel in the current thread:
kernel.run(q, max_window)  # Enqueue the kernel to process the full window on the default queue
# Wait for the processing to complete:
q.finish()
output.map()
print(max_window)
print(output.array())
output.unmap()

# Output:
# Window(0:5:1, 0:4:1)
# [[ 6  7  8  9  9]
#  [11 12 13 14 14]
#  [16 17 18 19 19]
#  [16 17 18 19 19]]
