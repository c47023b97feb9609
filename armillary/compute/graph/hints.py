"""What a graph is told besides its layers: where they run, and how convolutions are computed.

In: `Target` and `ConvolutionMethod` values that are streamed into a graph. Out: `GraphHints`, which each layer keeps as
they were when it was added. Invariant: a hint holds for the layers behind it; a method that a target lacks is refused.
"""

from __future__ import annotations

from enum import Enum

from armillary.base.record import record
from armillary.compute.core.types import ConvolutionMethod


class Target(Enum):
    """NEON: the processor, whichever it is. CL: the device of `CLScheduler`."""

    NEON, CL = "NEON", "CL"


class OperationType(Enum):
    """What a node computes; `OperationRegistry` has a function for each, by target."""

    ActivationLayer, BatchNormalizationLayer, ConvolutionLayer = "activation", "batch_normalization", "convolution"
    DepthConcatenateLayer, DepthwiseConvolutionLayer = "depth_concatenate", "depthwise_convolution"
    DequantizationLayer, EltwiseLayer, FlattenLayer = "dequantization", "eltwise", "flatten"
    FullyConnectedLayer, NormalizationLayer, PermuteLayer = "fully_connected", "normalization", "permute"
    PoolingLayer, QuantizationLayer, ReshapeLayer, SoftmaxLayer = "pooling", "quantization", "reshaped", "softmax"
    RelayLayer = "relay"


class BranchMergeMethod(Enum):
    """How branches come together."""

    DEPTH_CONCATENATE = "depth_concatenate"


class EltwiseOperation(Enum):
    """What becomes of two branches' elements."""

    Add, Max, Min = "Addition", "Max", "Min"


@record(slots=True)
class GraphHints:
    """The hints that hold for a layer; no method: the function chooses."""

    target: Target = Target.NEON
    convolution_method: ConvolutionMethod | None = None
