"""The Winograd layer: weights once, then input transform, 16 products, output transform (text: "NEWinogradLayer")."""

import numpy as np

from armillary.compute import DataType, NEWinogradLayer, PadStrideInfo, Tensor, TensorInfo, TensorShape, Window


def tensor(*sizes: int) -> Tensor:
    """A tensor whose memory is to come."""
    made = Tensor()
    made.allocator().init(TensorInfo(TensorShape(*sizes), 1, DataType.F32))
    return made


input, weights, biases, output = tensor(16, 16, 32), tensor(3, 3, 32, 16), tensor(16), tensor(16, 16, 16)
layer = NEWinogradLayer()
layer.configure(input, weights, biases, output, PadStrideInfo(1, 1, 1, 1))
rng = np.random.default_rng(0)
for each in (input, weights, biases, output):
    each.allocator().allocate()
    each.array()[...] = rng.standard_normal(each.array().shape)
layer.run()  # transforms the weights, once
transforms = [kernel for kernel in layer.kernels() if "winograd" in kernel.name]
for kernel, stage in zip(transforms, ("transform input", "batched GEMM", "transform output"), strict=True):
    print(stage, kernel.window().num_iterations(Window.DimX) > 0)
tiles = (16 // 2) * (16 // 2)
print("products of a tile:", (2 + 3 - 1) ** 2, "instead of", 2 * 2 * 3 * 3, "for each of", tiles, "tiles")

padded = np.pad(input.array().astype("float64"), ((0, 0), (1, 1), (1, 1)))
windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
wanted = np.einsum("chwyx,ocyx->ohw", windows, weights.array()) + biases.array()[:, None, None]
print("largest error below 1e-4:", bool(abs(output.array() - wanted).max() < 1e-4))

# Output:
# transform input True
# batched GEMM True
# transform output True
# products of a tile: 16 instead of 36 for each of 64 tiles
# largest error below 1e-4: True
