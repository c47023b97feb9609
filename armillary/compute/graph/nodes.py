"""The layers of a graph: what each computes, with which weights and parameters.

In: the constructors' arguments, as in the library. Out: `INode`s, which a graph configures once it knows their inputs.
Invariant: a node has no tensors of its own, so that it can be configured more than once; its weights' shapes follow
from its input. The functions behind them: `operations.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from armillary.base.boundary import bounded
from armillary.compute.core.layout import from_nchw
from armillary.compute.core.tensor_info import DataType, QuantizationInfo, TensorInfo, TensorShape
from armillary.compute.core.types import (
    ActivationLayerInfo,
    NormalizationLayerInfo,
    PadStrideInfo,
    PermutationVector,
    PoolingLayerInfo,
)
from armillary.compute.graph.accessors import ITensorAccessor
from armillary.compute.graph.hints import EltwiseOperation, OperationType
from armillary.errors import TypeMismatch

Weights = list[tuple[TensorInfo, ITensorAccessor] | None]
Parameters = Mapping[str, object]


class INode:
    """One operation; `set_name` gives it a name for errors and for Relay."""

    operation: ClassVar[OperationType]

    def __init__(self) -> None:
        self._name = ""

    def set_name(self, name: str) -> INode:
        """Name the node; returns it, so that it can be streamed."""
        self._name = name
        return self

    def name(self) -> str:
        """The name, or the class's."""
        return self._name or type(self).__name__

    def weights(self, inputs: Sequence[TensorInfo]) -> Weights:
        """The tensors behind the inputs, with who fills them; None for one that the layer lacks."""
        del inputs
        return []

    def parameters(self, inputs: Sequence[TensorInfo]) -> Parameters:
        """What the operation asks its context for."""
        del inputs
        return {}


def _info(input: TensorInfo, *shape: int, quantization: QuantizationInfo | None = None) -> TensorInfo:
    return TensorInfo(
        TensorShape(*shape), 1, input.data_type, quantization or input.quantization_info(), input.data_layout()
    )


def _kernels(input: TensorInfo, *nchw: int, quantization: QuantizationInfo | None = None) -> TensorInfo:
    """Kernels (width, height, channels, …) in the input's layout."""
    return _info(input, *from_nchw(input.data_layout(), nchw), quantization=quantization)


def _channels(input: TensorInfo) -> int:
    return input.in_nchw().dimension(2)


def _biases(input: TensorInfo, count: int, accessor: ITensorAccessor | None) -> Weights:
    if accessor is None:
        return []
    kind = DataType.S32 if input.data_type.is_quantized else input.data_type
    return [(TensorInfo(TensorShape(count), 1, kind), accessor)]


@bounded
class ConvolutionLayer(INode):
    """`ofm` kernels of `conv_width` x `conv_height` over the image; no biases: None."""

    operation = OperationType.ConvolutionLayer

    def __init__(
        self,
        conv_width: int,
        conv_height: int,
        ofm: int,
        weights: ITensorAccessor,
        biases: ITensorAccessor | None,
        conv_info: PadStrideInfo,
        num_groups: int = 1,
        weights_quant_info: QuantizationInfo | None = None,
        activation_info: ActivationLayerInfo | None = None,
    ) -> None:
        super().__init__()
        if min(conv_width, conv_height, ofm, num_groups) < 1:
            message = f"{conv_width}x{conv_height} kernels, {ofm} outputs, {num_groups} groups"
            raise TypeMismatch(f"ConvolutionLayer: {message}: wanted at least 1 each")
        self._size, self._outputs, self._groups = (conv_width, conv_height), ofm, num_groups
        self._weights, self._biases, self._info = weights, biases, conv_info
        self._quantization, self._activation = weights_quant_info, activation_info

    def weights(self, inputs: Sequence[TensorInfo]) -> Weights:
        """Kernels and biases."""
        depth = _channels(inputs[0])
        if depth % self._groups:
            raise TypeMismatch(f"{self.name()}: {depth} channels do not make {self._groups} groups")
        shape = (*self._size, depth // self._groups, self._outputs)
        kernels = (_kernels(inputs[0], *shape, quantization=self._quantization), self._weights)
        return [kernels, *_biases(inputs[0], self._outputs, self._biases)]

    def parameters(self, inputs: Sequence[TensorInfo]) -> Parameters:
        """Strides, padding, groups."""
        del inputs
        named = {"ConvolutionInfo": self._info, "NumGroups": self._groups}
        return {**named, "ActivationInfo": self._activation}


@bounded
class DepthwiseConvolutionLayer(INode):
    """Each channel by `depth_multiplier` kernels of its own."""

    operation = OperationType.DepthwiseConvolutionLayer

    def __init__(
        self,
        conv_width: int,
        conv_height: int,
        weights: ITensorAccessor,
        biases: ITensorAccessor | None,
        conv_info: PadStrideInfo,
        depth_multiplier: int = 1,
        weights_quant_info: QuantizationInfo | None = None,
        activation_info: ActivationLayerInfo | None = None,
    ) -> None:
        super().__init__()
        self._size, self._multiplier = (conv_width, conv_height), depth_multiplier
        self._weights, self._biases, self._info = weights, biases, conv_info
        self._quantization, self._activation = weights_quant_info, activation_info

    def weights(self, inputs: Sequence[TensorInfo]) -> Weights:
        """Kernels and biases."""
        outputs = _channels(inputs[0]) * self._multiplier
        kernels = (_kernels(inputs[0], *self._size, outputs, quantization=self._quantization), self._weights)
        return [kernels, *_biases(inputs[0], outputs, self._biases)]

    def parameters(self, inputs: Sequence[TensorInfo]) -> Parameters:
        """Strides, padding, kernels of a channel."""
        del inputs
        named = {"ConvolutionInfo": self._info, "DepthMultiplier": self._multiplier}
        return {**named, "ActivationInfo": self._activation}


@bounded
class FullyConnectedLayer(INode):
    """`num_outputs` sums of all inputs; weights are (inputs, outputs)."""

    operation = OperationType.FullyConnectedLayer

    def __init__(
        self,
        num_outputs: int,
        weights: ITensorAccessor,
        biases: ITensorAccessor | None,
        weights_quant_info: QuantizationInfo | None = None,
    ) -> None:
        super().__init__()
        self._outputs, self._weights, self._biases = num_outputs, weights, biases
        self._quantization = weights_quant_info

    def weights(self, inputs: Sequence[TensorInfo]) -> Weights:
        """Weights and biases."""
        first = inputs[0]
        terms = int(np.prod(first.shape[:3])) if first.num_dimensions() > 2 else first.dimension(0)
        matrix = (_info(first, terms, self._outputs, quantization=self._quantization), self._weights)
        return [matrix, *_biases(first, self._outputs, self._biases)]


@bounded
class BatchNormalizationLayer(INode):
    """(x - mean) / sqrt(var + epsilon) * gamma + beta, by channel."""

    operation = OperationType.BatchNormalizationLayer

    def __init__(
        self,
        mean: ITensorAccessor,
        var: ITensorAccessor,
        gamma: ITensorAccessor | None = None,
        beta: ITensorAccessor | None = None,
        epsilon: float = 0.001,
    ) -> None:
        super().__init__()
        self._given, self._epsilon = (mean, var, beta, gamma), epsilon

    def weights(self, inputs: Sequence[TensorInfo]) -> Weights:
        """Mean, variance, beta, gamma."""
        info = _info(inputs[0], _channels(inputs[0]))
        return [(info, accessor) if accessor is not None else None for accessor in self._given]

    def parameters(self, inputs: Sequence[TensorInfo]) -> Parameters:
        """What the node is written with: epsilon."""
        del inputs
        return {"Epsilon": self._epsilon}


class _Parametrised(INode):
    """A layer of one input and one parameter."""

    _parameter: ClassVar[str]

    def _set(self, value: object) -> None:
        super().__init__()
        self._value = value

    def parameters(self, inputs: Sequence[TensorInfo]) -> Parameters:
        """What the node is written with: its one parameter."""
        del inputs
        return {self._parameter: self._value}


class ActivationLayer(_Parametrised):
    """y = f(x)."""

    operation, _parameter = OperationType.ActivationLayer, "ActivationLayerInfo"

    def __init__(self, act_info: ActivationLayerInfo) -> None:
        self._set(act_info)


class NormalizationLayer(_Parametrised):
    """Local response normalisation."""

    operation, _parameter = OperationType.NormalizationLayer, "NormalizationLayerInfo"

    def __init__(self, norm_info: NormalizationLayerInfo) -> None:
        self._set(norm_info)


class PoolingLayer(_Parametrised):
    """Largest, mean, or root of the mean of squares under a window."""

    operation, _parameter = OperationType.PoolingLayer, "PoolingLayerInfo"

    def __init__(self, pool_info: PoolingLayerInfo) -> None:
        self._set(pool_info)


class SoftmaxLayer(_Parametrised):
    """exp(beta * x) over its sum along a row."""

    operation, _parameter = OperationType.SoftmaxLayer, "Beta"

    def __init__(self, beta: float = 1.0) -> None:
        self._set(beta)


class PermuteLayer(_Parametrised):
    """Dimension n of the output is dimension `perm[n]` of the input."""

    operation, _parameter = OperationType.PermuteLayer, "PermutationVector"

    def __init__(self, perm: PermutationVector) -> None:
        self._set(perm)


class FlattenLayer(INode):
    """Each image as one row."""

    operation = OperationType.FlattenLayer


class DequantizationLayer(INode):
    """(value - offset) * scale."""

    operation = OperationType.DequantizationLayer


@bounded
class ReshapeLayer(INode):
    """The same elements in another shape."""

    operation = OperationType.ReshapeLayer

    def __init__(self, shape: TensorShape) -> None:
        super().__init__()
        self._shape = shape

    def parameters(self, inputs: Sequence[TensorInfo]) -> Parameters:
        """What the output is."""
        return {"OutputInfo": _info(inputs[0], *self._shape)}


@bounded
class QuantizationLayer(INode):
    """Real numbers as bytes of a scale and an offset."""

    operation = OperationType.QuantizationLayer

    def __init__(self, out_quant_info: QuantizationInfo, data_type: DataType = DataType.QASYMM8) -> None:
        super().__init__()
        self._quantization, self._kind = out_quant_info, data_type

    def parameters(self, inputs: Sequence[TensorInfo]) -> Parameters:
        """What the output is."""
        return {"OutputInfo": TensorInfo(inputs[0].shape, 1, self._kind, self._quantization, inputs[0].data_layout())}


class DepthConcatenateNode(INode):
    """The channels of several inputs, one after another."""

    operation = OperationType.DepthConcatenateLayer


class EltwiseNode(INode):
    """Two inputs, element by element."""

    operation = OperationType.EltwiseLayer

    def __init__(self, op: EltwiseOperation) -> None:
        super().__init__()
        self._op = op

    def parameters(self, inputs: Sequence[TensorInfo]) -> Parameters:
        """What the node is written with: which operation."""
        del inputs
        return {"EltwiseOperation": self._op}
