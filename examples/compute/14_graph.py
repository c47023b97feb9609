"""A network as a graph: AlexNet, with an eighth of its channels and random weights (text: "Graph").

With files of weights, `get_weights_accessor("folder/", "conv1_w.npy")` loads them; with a photo,
`get_input_accessor("cat.ppm", CaffePreproccessor((122.68, 116.67, 104.01)))`; with labels,
`get_output_accessor("labels.txt", 5)` prints the best classes.
"""

from armillary.compute import (
    ActivationFunction,
    ActivationLayerInfo,
    DataType,
    NormalizationLayerInfo,
    NormType,
    PadStrideInfo,
    PoolingLayerInfo,
    PoolingType,
    TensorInfo,
    TensorShape,
)
from armillary.compute.graph import (
    ActivationLayer,
    ConvolutionLayer,
    ConvolutionMethodHint,
    DummyAccessor,
    FullyConnectedLayer,
    Graph,
    NormalizationLayer,
    PoolingLayer,
    RandomAccessor,
    SaveNumPyAccessor,
    SoftmaxLayer,
    Target,
    Tensor,
    to_relay,
)

CHANNELS = 8  # 64 in the network that was published


def weights() -> RandomAccessor:
    """Values in place of a file's."""
    return RandomAccessor(-0.05, 0.05)


def relu() -> ActivationLayer:
    """max(0, x)."""
    return ActivationLayer(ActivationLayerInfo(ActivationFunction.RELU))


def pool() -> PoolingLayer:
    """The largest of 3x3, every second place."""
    return PoolingLayer(PoolingLayerInfo(PoolingType.MAX, 3, PadStrideInfo(2, 2, 0, 0)))


n, src = CHANNELS, TensorInfo(TensorShape(227, 227, 3, 1), 1, DataType.F32)
lrn = NormalizationLayerInfo(NormType.CROSS_MAP, 5, 0.0001, 0.75)
graph = Graph()
(
    graph
    << Target.NEON
    << Tensor(src, DummyAccessor())  # nothing is loaded: the image is black
    << ConvolutionMethodHint.GEMM
    << ConvolutionLayer(11, 11, 3 * n // 2, weights(), weights(), PadStrideInfo(4, 4, 0, 0)).set_name("conv1")
    << relu()
    << NormalizationLayer(lrn)
    << pool()
    << ConvolutionLayer(5, 5, 4 * n, weights(), weights(), PadStrideInfo(1, 1, 2, 2), 2).set_name("conv2")
    << relu()
    << NormalizationLayer(lrn)
    << pool()
    << ConvolutionLayer(3, 3, 6 * n, weights(), weights(), PadStrideInfo(1, 1, 1, 1)).set_name("conv3")
    << relu()
    << ConvolutionLayer(3, 3, 6 * n, weights(), weights(), PadStrideInfo(1, 1, 1, 1), 2).set_name("conv4")
    << relu()
    << ConvolutionLayer(3, 3, 4 * n, weights(), weights(), PadStrideInfo(1, 1, 1, 1), 2).set_name("conv5")
    << relu()
    << pool()
    << FullyConnectedLayer(64 * n, weights(), weights()).set_name("fc6")
    << relu()
    << FullyConnectedLayer(64 * n, weights(), weights()).set_name("fc7")
    << relu()
    << FullyConnectedLayer(1000, weights(), weights()).set_name("fc8")
    << SoftmaxLayer()
    << Tensor(SaveNumPyAccessor("alexnet.npy"))
)
graph.run()
for stage in graph.pipeline()[:4]:
    print(stage.name, "on", stage.target.name)
print(f"{len(graph.pipeline())} stages; the scores add up to {graph.output().array().sum():.3f}")
memory = graph.memory()
print(f"values between layers: {memory.values_bytes()} bytes, {memory.shared_bytes()} as they share memory")
module, params = to_relay(graph)  # to compile and deploy as any network
print(f"in Relay: {len(params)} parameters, the first is {next(iter(params))}")

# Output:
# conv1 on NEON
# ActivationLayer on NEON
# NormalizationLayer on NEON
# PoolingLayer on NEON
# 21 stages; the scores add up to 1.000
# values between layers: 962016 bytes, 290432 as they share memory
# in Relay: 16 parameters, the first is conv1_0.w
