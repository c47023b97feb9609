"""Reading one element: `buffer()` is bytes whatever the type, and information is in bytes (text: "Tensors")."""

import numpy as np

from armillary.compute import Coordinates, DataType, PaddingSize, Tensor, TensorInfo, TensorShape

input = Tensor()
input.allocator().init(TensorInfo(TensorShape(8, 4), 1, DataType.F32))
input.info().extend_padding(PaddingSize(1, 2, 1, 3))
input.allocator().allocate()
input.array()[...] = np.arange(32).reshape(4, 8)

x, y = 5, 2
offset = input.info().offset_element_in_bytes(Coordinates(x, y))
value = input.buffer()[offset:].view(np.float32)[0]
print(input.buffer().dtype, input.info().total_size(), input.info().strides_in_bytes()[:2])
print(offset, value)

# Output:
# uint8 312 (4, 52)
# 188 21.0
