"""Biases that stand behind convolutions, as the convolutions' own.

In: a `Graph` that is written whole. Out: the same graph, where a Conv that one Add alone reads has the Add's constant
as its bias. Invariant: a bias has one number for each channel; the names of other values stay. Engines that compute
quantised convolutions in integers take a bias into them, but leave an addition in float.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from onnx import NodeProto, TensorProto, numpy_helper

from armillary.base.aliases import Array
from armillary.contrib.target._onnx_graph import Graph


def with_biases(graph: Graph, results: Sequence[str]) -> None:
    """Move constants that are added to results of convolutions into them; `results` are read by the caller, too."""
    constants = {weight.name: weight for weight in graph.initializers}
    readers = Counter([*results, *(name for node in graph.nodes for name in node.input)])
    makers = {node.output[0]: node for node in graph.nodes}
    rest: list[NodeProto] = []
    for node in graph.nodes:
        convolution = next((makers[n] for n in node.input if n in makers and makers[n].op_type == "Conv"), None)
        constant = next((constants[n] for n in node.input if n in constants), None)
        bias: Array | None = None
        if node.op_type == "Add" and convolution and constant and readers[convolution.output[0]] == 1:
            bias = _by_channel(numpy_helper.to_array(constant), _kernel(convolution, makers, constants))
        if bias is None or convolution is None:
            rest.append(node)
            continue
        if len(convolution.input) > 2:
            bias = bias + numpy_helper.to_array(constants[convolution.input.pop()])
        convolution.input.append(graph.constant(bias))
        constants[convolution.input[2]] = graph.initializers[-1]
        convolution.output[0] = node.output[0]
        makers[node.output[0]] = convolution
    graph.nodes[:] = rest


def _kernel(
    convolution: NodeProto, makers: Mapping[str, NodeProto], constants: Mapping[str, TensorProto]
) -> Sequence[int]:
    """The sizes of a convolution's weights; none where they are computed."""
    name = convolution.input[1]
    if name in makers and makers[name].op_type == "DequantizeLinear":
        name = makers[name].input[0]
    return constants[name].dims if name in constants else ()


def _by_channel(values: Array, kernel: Sequence[int]) -> Array | None:
    """A constant as a vector of a number for each channel of a result; None where it is something else."""
    shape = (1,) * (len(kernel) - values.ndim) + values.shape
    is_one_each = len(kernel) > 2 and shape == (1, kernel[0], *[1] * (len(kernel) - 2))
    return values.reshape(-1) if is_one_each else None
