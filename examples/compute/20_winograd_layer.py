"""The Winograd layer: weights once, then input transform, 16 products, output transform (text: "NEWinogradLayer")."""

import numpy as np

from armillary.compute import DataType, NEWinogradLayer, PadStrideInfo, Tensor, TensorInfo, TensorShape, Window


def tensor(*sizes: int) -> Tensor:
    """A tensor whose memory is to come."""
    made = Tensor()
    made.allocator().init(TensorInfo(TensorShape(*sizes), 1, DataType.F32))
    return made


input, weights, biases, output = tensor(16, 16, 32), tensor(3, 3, 32, 16), tensor(16), tensor(16, 16, 16)
layer = NEWinogradLayer(stages=True)  # kernels that a scheduler splits one by one
layer.configure(input, weights, biases, output, PadStrideInfo(1, 1, 1, 1))
rng = np.random.default_rng(0)
for each in (input, weights, biases, output):
    each.allocator().allocate()
    each.array()[...] = rng.standard_normal(each.array().shape)
layer.run()  # transforms the weights, once
for kernel in layer.kernels():
    print(kernel.name, kernel.window().num_iterations(Window.DimX))
(products,) = (kernel for kernel in layer.kernels() if "batched_gemm" in kernel.name)
tiles = (16 // 2) * (16 // 2)
count = products.window().num_iterations(Window.DimX)
print("products of a tile:", count, "instead of", 2 * 2 * 3 * 3, "for each of", tiles, "tiles")

padded = np.pad(input.array().astype("float64"), ((0, 0), (1, 1), (1, 1)))
windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
wanted = np.einsum("chwyx,ocyx->ohw", windows, weights.array()) + biases.array()[:, None, None]
print("largest error below 1e-4:", bool(abs(output.array() - wanted).max() < 1e-4))

# Output:
# permute_input 16
# winograd_transform_input 8
# winograd_batched_gemm 16
# winograd_transform_output 8
# permute_output 16
# products of a tile: 16 instead of 36 for each of 64 tiles
# largest error below 1e-4: True
