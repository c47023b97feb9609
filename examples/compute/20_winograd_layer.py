"""The Winograd layer: weights once, then input transform, 16 products, output transform (text: "NEWinogradLayer")."""

import numpy as np

from armillary.compute import DataType, NEWinogradLayer, PadStrideInfo, Tensor, TensorInfo, TensorShape, Window


def tensor(*sizes: int) -> Tensor:
    """A tensor whose memory is to come."""
    made = Tensor()
    made.allocator().init(TensorInfo(TensorShape(*sizes), 1, DataType.F32))
    return made


rng = np.random.default_rng(0)
for size, tile in ((4, 2), (16, 4)):  # tiles of 2x2 outputs for small images, as in the text; of 4x4 for larger ones
    input, weights, biases, output = tensor(size, size, 32), tensor(3, 3, 32, 16), tensor(16), tensor(size, size, 16)
    layer = NEWinogradLayer(stages=True)  # kernels that a scheduler splits one by one
    layer.configure(input, weights, biases, output, PadStrideInfo(1, 1, 1, 1))
    for each in (input, weights, biases, output):
        each.allocator().allocate()
        each.array()[...] = rng.standard_normal(each.array().shape)
    layer.run()  # transforms the weights, once
    for kernel in layer.kernels():
        print(kernel.name, kernel.window().num_iterations(Window.DimX))
    (products,) = (kernel for kernel in layer.kernels() if "batched_gemm" in kernel.name)
    count = products.window().num_iterations(Window.DimX)
    print("products of a tile:", count, "instead of", tile * tile * 3 * 3)

    padded = np.pad(input.array().astype("float64"), ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    wanted = np.einsum("chwyx,ocyx->ohw", windows, weights.array()) + biases.array()[:, None, None]
    print("largest error below 1e-4:", bool(abs(output.array() - wanted).max() < 1e-4))

# Output:
# permute_input 4
# winograd_transform_input_2x2 2
# batched_gemm 16
# winograd_transform_output_2x2 2
# permute_output 4
# products of a tile: 16 instead of 36
# largest error below 1e-4: True
# permute_input 16
# winograd_transform_input_4x4 4
# batched_gemm 36
# winograd_transform_output_4x4 4
# permute_output 16
# products of a tile: 36 instead of 144
# largest error below 1e-4: True
