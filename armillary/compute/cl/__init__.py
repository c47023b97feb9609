"""The OpenCL side: tensors in a device's memory, kernels that our compiler makes for it, functions over them."""
