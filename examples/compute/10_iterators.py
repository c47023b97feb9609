"""Iterators: a tensor filled element by element, another one read row by row (text: "Images and Tensors")."""

import numpy as np

from armillary.compute import (
    Coordinates,
    DataType,
    Iterator,
    NESoftmaxLayer,
    Tensor,
    TensorInfo,
    TensorShape,
    Window,
    execute_window_loop,
)

width, height, batch = 4, 3, 2
src_data = np.zeros(width * height * batch, np.float32)
dst_data = np.zeros(width * height * batch, np.float32)
# Fill src_data with dummy values:
for b in range(batch):
    for h in range(height):
        for w in range(width):
            src_data[b * (width * height) + h * width + w] = 100 * b + 10 * h + w
input, output, softmax = Tensor(), Tensor(), NESoftmaxLayer()
# Initialize the tensors dimensions and type:
shape = TensorShape(width, height, batch)
input.allocator().init(TensorInfo(shape, 1, DataType.F32))
output.allocator().init(TensorInfo(shape, 1, DataType.F32))
# Configure softmax:
softmax.configure(input, output)
# Allocate the input / output tensors:
input.allocator().allocate()
output.allocator().allocate()
# Fill the input tensor:
# Simplest way: create an iterator to iterate through each element of the input tensor:
input_window = Window()
input_window.use_tensor_dimensions(input.info().tensor_shape())
print(" Dimensions of the input's iterator:")
print(f" X = [start={input_window.x().start()}, end={input_window.x().end()}, step={input_window.x().step()}]")
print(f" Y = [start={input_window.y().start()}, end={input_window.y().end()}, step={input_window.y().step()}]")
print(f" Z = [start={input_window.z().start()}, end={input_window.z().end()}, step={input_window.z().step()}]")
# Create an iterator:
input_it = Iterator(input, input_window)


def set_item(id: Coordinates) -> None:
    """One element."""
    print(f"Setting item [{id.x()},{id.y()},{id.z()}]")
    input_it.ptr().view(np.float32)[0] = src_data[id.z() * (width * height) + id.y() * width + id.x()]


# Iterate through the elements of src_data and copy them one by one to the input tensor:
execute_window_loop(input_window, set_item, input_it)
softmax.run()
# More efficient way: create an iterator to iterate through each row (instead of each element) of the output tensor:
output_window = Window()
output_window.use_tensor_dimensions(output.info().tensor_shape(), Window.DimY)  # rows, not each element
print(" Dimensions of the output's iterator:")
print(f" X = [start={output_window.x().start()}, end={output_window.x().end()}, step={output_window.x().step()}]")
print(f" Y = [start={output_window.y().start()}, end={output_window.y().end()}, step={output_window.y().step()}]")
print(f" Z = [start={output_window.z().start()}, end={output_window.z().end()}, step={output_window.z().step()}]")
# Create an iterator:
output_it = Iterator(output, output_window)


def copy_row(id: Coordinates) -> None:
    """One whole row."""
    print(f"Copying one row starting from [{id.x()},{id.y()},{id.z()}]")
    start = id.z() * (width * height) + id.y() * width
    dst_data[start : start + width] = output_it.ptr().view(np.float32)[:width]


# Iterate through the rows of the output tensor and copy them to dst_data:
execute_window_loop(output_window, copy_row, output_it)
print(np.round(dst_data.reshape(batch, height, width)[1], 4))

# Output:
#  Dimensions of the input's iterator:
#  X = [start=0, end=4, step=1]
#  Y = [start=0, end=3, step=1]
#  Z = [start=0, end=2, step=1]
# Setting item [0,0,0]
# Setting item [1,0,0]
# Setting item [2,0,0]
# Setting item [3,0,0]
# Setting item [0,1,0]
# Setting item [1,1,0]
# Setting item [2,1,0]
# Setting item [3,1,0]
# Setting item [0,2,0]
# Setting item [1,2,0]
# Setting item [2,2,0]
# Setting item [3,2,0]
# Setting item [0,0,1]
# Setting item [1,0,1]
# Setting item [2,0,1]
# Setting item [3,0,1]
# Setting item [0,1,1]
# Setting item [1,1,1]
# Setting item [2,1,1]
# Setting item [3,1,1]
# Setting item [0,2,1]
# Setting item [1,2,1]
# Setting item [2,2,1]
# Setting item [3,2,1]
#  Dimensions of the output's iterator:
#  X = [start=0, end=1, step=1]
#  Y = [start=0, end=3, step=1]
#  Z = [start=0, end=2, step=1]
# Copying one row starting from [0,0,0]
# Copying one row starting from [0,1,0]
# Copying one row starting from [0,2,0]
# Copying one row starting from [0,0,1]
# Copying one row starting from [0,1,1]
# Copying one row starting from [0,2,1]
# [[0.0321 0.0871 0.2369 0.6439]
#  [0.0321 0.0871 0.2369 0.6439]
#  [0.0321 0.0871 0.2369 0.6439]]
