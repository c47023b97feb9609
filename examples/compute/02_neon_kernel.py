"""A kernel of one's own: configured, then run over its whole window in the calling thread (text: "Kernels")."""

import numpy as np

from armillary.compute import (
    DataType,
    Dimension,
    IKernel,
    Tensor,
    TensorInfo,
    TensorShape,
    ThreadInfo,
    Window,
)


class MyKernel(IKernel):
    """Multiplies every element by a factor and adds another number."""

    def configure(self, input: Tensor, output: Tensor, option0: float, option1: float) -> None:
        """Set tensors and options; the window has a step for each row."""
        self.input, self.output, self.options = input, output, (option0, option1)
        rows = Dimension(0, input.info().dimension(1))
        self.configure_window(Window(Dimension(), rows))

    def _run(self, window: Window, info: ThreadInfo) -> None:
        rows = slice(window.y().start(), window.y().end())
        self.output.array()[rows] = self.input.array()[rows] * self.options[0] + self.options[1]


input, output = Tensor(), Tensor()
for tensor in (input, output):
    tensor.allocator().init(TensorInfo(TensorShape(4, 3), 1, DataType.F32))
option0, option1 = 2.0, 1.0

# Create a kernel object:
kernel = MyKernel()
# Initialize the kernel with the input/output and options you want to use:
kernel.configure(input, output, option0, option1)
for tensor in (input, output):
    tensor.allocator().allocate()
input.array()[...] = np.arange(12).reshape(3, 4)
# Retrieve the execution window of the kernel:
max_window = kernel.window()
# Run the whole kernel in the current thread:
kernel.run(max_window)  # Run the kernel on the full window
print(max_window)
print(output.array())

# Output:
# Window(0:3:1)
# [[ 1.  3.  5.  7.]
#  [ 9. 11. 13. 15.]
#  [17. 19. 21. 23.]]
