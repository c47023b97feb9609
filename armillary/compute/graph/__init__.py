"""Networks as graphs: `graph << Target.NEON << Tensor(info, accessor) << ConvolutionLayer(…) << … << Tensor(accessor)`.

In: layers in order, accessors that load weights and inputs. Out: a pipeline of the library's functions, on one or
several targets, and `run()`. Invariant: a layer that does not fit is refused on the line that adds it; values between
layers share memory. Names are those of the library's `graph` namespace: `graph.Tensor` is not `compute.Tensor`.
Operations: `operations.py`. Relay in and out: `relay_bridge.py`.
"""

from armillary.base.lazy import lazy_names

_FILES = {
    "accessors": (
        "CaffePreproccessor",
        "DummyAccessor",
        "ITensorAccessor",
        "ImageAccessor",
        "NumPyAccessor",
        "NumPyBinLoader",
        "RandomAccessor",
        "SaveNumPyAccessor",
        "TFPreproccessor",
        "TopNPredictionsAccessor",
        "get_input_accessor",
        "get_output_accessor",
        "get_random_accessor",
        "get_weights_accessor",
    ),
    "branches": ("BranchLayer", "ConcatLayer", "EltwiseLayer", "ResidualLayer", "SubGraph"),
    "graph": ("Graph", "Stage"),
    "hints": ("BranchMergeMethod", "EltwiseOperation", "GraphHints", "OperationType", "Target"),
    "nodes": (
        "ActivationLayer",
        "BatchNormalizationLayer",
        "ConvolutionLayer",
        "DepthwiseConvolutionLayer",
        "DequantizationLayer",
        "FlattenLayer",
        "FullyConnectedLayer",
        "INode",
        "NormalizationLayer",
        "PermuteLayer",
        "PoolingLayer",
        "QuantizationLayer",
        "ReshapeLayer",
        "SoftmaxLayer",
    ),
    "operations": ("NodeContext", "OperationRegistry"),
    "registry": ("IFunction", "Operation", "OperationRegistrar", "register_simple_operation"),
    "relay_bridge": ("RelayLayer", "from_relay", "to_relay"),
    "tensor": ("Tensor",),
}
_NAMES = {name: f"armillary.compute.graph.{file}:{name}" for file, names in _FILES.items() for name in names}
_NAMES |= {
    "TargetHint": _NAMES["Target"],
    "ConvolutionMethod": "armillary.compute.core.types:ConvolutionMethod",
    "ConvolutionMethodHint": "armillary.compute.core.types:ConvolutionMethod",
    "IOperation": "armillary.compute.graph.registry:Operation",
    "ITensorObject": _NAMES["Tensor"],
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
