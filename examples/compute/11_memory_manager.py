"""A memory manager: three temporaries share memory, two threads have a pool each (text: "MemoryManager")."""

import threading

import numpy as np

from armillary.compute import (
    ActivationFunction,
    ActivationLayerInfo,
    Allocator,
    BlobLifetimeManager,
    DataType,
    MemoryGroup,
    MemoryManagerOnDemand,
    NEActivationLayer,
    PoolManager,
    Tensor,
    TensorInfo,
    TensorShape,
)

allocator = Allocator()  # Create an allocator to use for the backing memory allocation
lifetime_mgr = BlobLifetimeManager()  # Create Lifetime Manager
pool_mgr = PoolManager()  # Create Pool Manager
mm = MemoryManagerOnDemand(lifetime_mgr, pool_mgr)  # Create Memory Manager

memory_group = MemoryGroup(mm)  # Create a memory group and set the memory manager to use

tmp1, tmp2, tmp3 = Tensor(), Tensor(), Tensor()  # Create example tensors
for tmp in (tmp1, tmp2, tmp3):
    tmp.allocator().init(TensorInfo(TensorShape(1000), 1, DataType.F32))
operation1, operation2 = NEActivationLayer(), NEActivationLayer()
square, twice = (
    ActivationLayerInfo(ActivationFunction.SQUARE),
    ActivationLayerInfo(ActivationFunction.LINEAR, 2.0, 0.0),
)

memory_group.manage(tmp1)  # Start managing object tmp1 and start its lifetime
memory_group.manage(tmp2)  # Start managing object tmp2 and start its lifetime
operation1.configure(tmp1, tmp2, square)  # Configure a function/kernel using tmp1 and tmp2
tmp1.allocator().allocate()  # Flag that the lifetime of object tmp1 has ended
memory_group.manage(tmp3)  # Start managing object tmp3 and start its lifetime
operation2.configure(tmp2, tmp3, twice)  # Configure a function/kernel using tmp2 and tmp3
tmp2.allocator().allocate()  # Flag that the lifetime of object tmp2 has ended
tmp3.allocator().allocate()  # Flag that the lifetime of object tmp3 has ended

mm.set_allocator(allocator)  # Set allocator to use
mm.set_set_num_pools(2)  # Set number of pools to create in case parallel operations can be run
mm.finalize()  # Finalize memory manager (Object lifetime check, Memory pool creation etc)
print("three tensors of", tmp1.info().total_size(), "bytes lie in blobs of", lifetime_mgr.blobs())

results = {}


def pipeline(value: float) -> None:
    """One run of both operations."""
    memory_group.acquire()  # Request memory for the group
    tmp1.array()[...] = value
    operation1.run()  # Run operation1
    operation2.run()  # Run operation2
    results[value] = np.unique(tmp3.array()).tolist()
    memory_group.release()  # Release memory so that it can be reused


threads = [threading.Thread(target=pipeline, args=(value,)) for value in (3.0, 5.0)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(dict(sorted(results.items())), pool_mgr.num_pools(), "pools")

# Output:
# three tensors of 4000 bytes lie in blobs of (4032, 4032)
# {3.0: [18.0], 5.0: [50.0]} 2 pools
