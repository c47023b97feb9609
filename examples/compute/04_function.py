"""A function: configured, then run; temporaries and threads are its own affair (text: "Functions")."""

import numpy as np

from armillary.compute import DataType, NEScheduler, NESoftmaxLayer, NEThreshold, Tensor, TensorInfo, TensorShape

# A function of the library.
input, output = Tensor(), Tensor()
input.allocator().init(TensorInfo(TensorShape(6, 2), 1, DataType.U8))
output.allocator().init(TensorInfo(TensorShape(6, 2), 1, DataType.U8))
option0 = 100
# Create a function object:
function = NEThreshold()
# Initialize the function with the input/output and options you want to use:
function.configure(input, output, option0)
input.allocator().allocate()
output.allocator().allocate()
input.array()[...] = [[0, 50, 100, 101, 200, 255]] * 2
# Execute the function:
function.run()
print(output.array())


class MyFunction:
    """A function of one's own: a pipeline of two functions with a temporary between them."""

    def configure(self, input: Tensor, output: Tensor) -> None:
        """Softmax, and softmax again."""
        self.first, self.second, self.temporary = NESoftmaxLayer(), NESoftmaxLayer(), Tensor()
        self.first.configure(input, self.temporary)
        self.second.configure(self.temporary, output)
        self.temporary.allocator().allocate()

    def run(self) -> None:
        """Both, in order."""
        self.first.run()
        self.second.run()


values, result = Tensor(), Tensor()
values.allocator().init(TensorInfo(TensorShape(4), 1, DataType.F32))
mine = MyFunction()
mine.configure(values, result)
values.allocator().allocate()
result.allocator().allocate()
values.array()[...] = [1, 2, 3, 4]
mine.run()
print(np.round(result.array(), 4), NEScheduler.get_type().value)

# Output:
# [[  0   0   0 255 255 255]
#  [  0   0   0 255 255 255]]
# [0.195  0.2061 0.2393 0.3596] CPP
