"""Two convolutions of OpenCL whose temporaries share memory (text: "Function support")."""

import numpy as np

from armillary.compute import (
    BlobLifetimeManager,
    CLBufferAllocator,
    CLConvolutionLayer,
    CLScheduler,
    CLTensor,
    DataType,
    MemoryManagerOnDemand,
    PadStrideInfo,
    PoolManager,
    TensorInfo,
    TensorShape,
)

CLScheduler.get().default_init()


def tensor(*sizes: int) -> CLTensor:
    """A tensor whose memory is to come."""
    made = CLTensor()
    made.allocator().init(TensorInfo(TensorShape(*sizes), 1, DataType.F32))
    return made


src, between, dst = tensor(16, 16, 8), CLTensor(), CLTensor()
weights1, biases1, weights2, biases2 = tensor(3, 3, 8, 8), tensor(8), tensor(3, 3, 8, 4), tensor(4)
# Setup Memory Manager
allocator = CLBufferAllocator()  # Create an allocator to use for the backing memory allocation
lifetime_mgr = BlobLifetimeManager()  # Create Lifetime Manager
pool_mgr = PoolManager()  # Create Pool Manager
mm = MemoryManagerOnDemand(lifetime_mgr, pool_mgr)  # Create Memory Manager
# Create two convolution layers and use the memory manager to manager their internal temporary buffers
conv1, conv2 = CLConvolutionLayer(mm), CLConvolutionLayer(mm)
# Configure layers
conv1.configure(src, weights1, biases1, between, PadStrideInfo(1, 1, 1, 1))
conv2.configure(between, weights2, biases2, dst, PadStrideInfo(1, 1, 1, 1))
# Finalize memory manager
mm.set_allocator(allocator)  # Set allocator to use
mm.set_set_num_pools(1)  # Set number of pools to create in case parallel operations can be run
mm.finalize()  # Finalize memory manager (Object lifetime check, Memory pool creation etc)
for each in (src, weights1, biases1, between, weights2, biases2, dst):
    each.allocator().allocate()
    each.map()
    each.array()[...] = np.ones(each.array().shape)
    each.unmap()
# Run layers (Memory will be recycled for internal buffers for conv1 and conv2
conv1.run()
conv2.run()
dst.map()
print(dst.info(), float(dst.array()[0, 8, 8]))
dst.unmap()

# Output:
# 16x16x4 F32 5257.0
