"""Which operations there are for which target (text: "OperationRegistry")."""

from armillary.compute.graph import OperationRegistry, OperationType, Target

registry = OperationRegistry.get()
for operation in (OperationType.ConvolutionLayer, OperationType.SoftmaxLayer):
    for target in Target:
        print(operation.name, registry.contains(operation, target), registry.find_operation(operation, target).name)

# Output:
# ConvolutionLayer True NEConvolutionLayerOperation
# ConvolutionLayer True CLConvolutionLayerOperation
# SoftmaxLayer True NESoftmaxLayerOperation
# SoftmaxLayer True CLSoftmaxLayerOperation
