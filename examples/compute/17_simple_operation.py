"""An operation of one's own in place of the library's (text: "REGISTER_SIMPLE_OPERATION")."""

import numpy as np

from armillary.compute import ActivationFunction, ActivationLayerInfo, DataType, TensorInfo, TensorShape
from armillary.compute import Tensor as ComputeTensor
from armillary.compute.graph import (
    ActivationLayer,
    Graph,
    NodeContext,
    NumPyAccessor,
    OperationRegistry,
    OperationType,
    Target,
    Tensor,
    register_simple_operation,
)


class Doubling:
    """A function: anything with `run`."""

    def __init__(self, source: ComputeTensor, target: ComputeTensor) -> None:
        self.source, self.target = source, target

    def run(self) -> None:
        """Compute the output."""
        self.target.array()[...] = 2 * self.source.array()


graph = Graph()
(
    graph
    << Target.NEON
    << Tensor(TensorInfo(TensorShape(3), 1, DataType.F32), NumPyAccessor(np.arange(3, dtype="float32")))
)
library = OperationRegistry.get().find_operation(OperationType.ActivationLayer, Target.NEON)


@register_simple_operation("DoublingOperation", Target.NEON, OperationType.ActivationLayer)
def configure(ctx: NodeContext) -> Doubling:
    """Called when a graph configures an activation on the processor."""
    print(f"{ctx.operation().name} with {ctx.parameter('ActivationLayerInfo').activation.name}")
    if not ctx.output().has_info():
        ctx.output().allocator().init(ctx.input(0).info())
    return Doubling(ctx.input(0), ctx.output())


class Print:
    """An accessor: anything with `access_tensor`."""

    def access_tensor(self, tensor: ComputeTensor) -> bool:
        """Print the values; false ends the run."""
        print(tensor.array())
        return False


try:
    graph << ActivationLayer(ActivationLayerInfo(ActivationFunction.LINEAR, 2.0, 0.0)) << Tensor(Print())
    graph.run()
finally:
    OperationRegistry.get().add_operation(OperationType.ActivationLayer, library)

# Output:
# ActivationLayer with LINEAR
# ActivationLayer with LINEAR
# [0. 2. 4.]
