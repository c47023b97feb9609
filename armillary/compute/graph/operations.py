"""The operations that the library has for its targets, registered when this module is imported.

In: a `NodeContext`. Out: a configured function, `NE…` or `CL…`. Invariant: the tensors of a node come in the order
values, weights, biases; a convolution follows the method hint, by that
method's own stages where it has some, or the function's own rule without one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from armillary import compute
from armillary.compute.core.layout import DataLayout
from armillary.compute.core.types import ConvolutionMethod
from armillary.compute.functions.nn.staged import objection_to_stages
from armillary.compute.graph.hints import GraphHints, OperationType, Target
from armillary.compute.graph.registry import IFunction, NodeContext, Operation, OperationRegistry
from armillary.errors import UnsupportedError

_PREFIX = {Target.NEON: "NE", Target.CL: "CL"}
_METHODS = {
    None: "ConvolutionLayer",
    ConvolutionMethod.GEMM: "GEMMConvolutionLayer",
    ConvolutionMethod.DIRECT: "DirectConvolutionLayer",
    ConvolutionMethod.WINOGRAD: "WinogradConvolutionLayer",
    ConvolutionMethod.FFT: "FFTConvolutionLayer",
}
Rule = Callable[[NodeContext], IFunction]


def _function_of(ctx: NodeContext, name: str, **options: bool) -> Any:  # Any: one of the functions
    """A function of the node's target."""
    return getattr(compute, _PREFIX[ctx.target()] + name)(ctx.memory_manager(), **options)


# What joins channels, the third dimension of an image or the first.
_CHANNELS = {DataLayout.NCHW: "DepthConcatenateLayer", DataLayout.NHWC: "WidthConcatenateLayer"}


def function_name(operation: OperationType, hints: GraphHints) -> str:
    """The function of an operation, without the prefix of its target."""
    is_convolution = operation is OperationType.ConvolutionLayer
    return _METHODS[hints.convolution_method] if is_convolution else operation.name


def _convolution(ctx: NodeContext) -> IFunction:
    hint, options = ctx.hints().convolution_method, {}
    if hint is not None and ctx.target() is Target.NEON:
        activation, groups = ctx.parameter("ActivationInfo"), ctx.parameter("NumGroups")
        options["stages"] = not objection_to_stages(ctx.input(0).info(), groups, activation)
    function = _function_of(ctx, function_name(ctx.operation(), ctx.hints()), **options)
    operands = (ctx.input(0), ctx.input(1), ctx.optional_input(2), ctx.output(), ctx.parameter("ConvolutionInfo"))
    more = {"act_info": ctx.parameter("ActivationInfo")}
    groups = ctx.parameter("NumGroups")
    if groups != 1:
        if ctx.hints().convolution_method not in (None, ConvolutionMethod.GEMM):
            raise UnsupportedError(f"a convolution of {groups} groups is computed by GEMM, not as hinted")
        more["num_groups"] = groups
    function.configure(*operands, **more)
    return function  # type: ignore[no-any-return]


def _depthwise(ctx: NodeContext) -> IFunction:
    function = _function_of(ctx, "DepthwiseConvolutionLayer")
    operands = (ctx.input(0), ctx.input(1), ctx.optional_input(2), ctx.output(), ctx.parameter("ConvolutionInfo"))
    function.configure(*operands, ctx.parameter("DepthMultiplier"), ctx.parameter("ActivationInfo"))
    return function  # type: ignore[no-any-return]


def _fully_connected(ctx: NodeContext) -> IFunction:
    function = _function_of(ctx, "FullyConnectedLayer")
    function.configure(ctx.input(0), ctx.input(1), ctx.optional_input(2), ctx.output())
    return function  # type: ignore[no-any-return]


def _batch_normalization(ctx: NodeContext) -> IFunction:
    function = _function_of(ctx, "BatchNormalizationLayer")
    mean, var, beta, gamma = (ctx.optional_input(n) for n in (1, 2, 3, 4))
    function.configure(ctx.input(0), ctx.output(), mean, var, beta, gamma, ctx.parameter("Epsilon"))
    return function  # type: ignore[no-any-return]


def _eltwise(ctx: NodeContext) -> IFunction:
    function = _function_of(ctx, f"Elementwise{ctx.parameter('EltwiseOperation').value}")
    function.configure(ctx.input(0), ctx.input(1), ctx.output())
    return function  # type: ignore[no-any-return]


def _depth_concatenate(ctx: NodeContext) -> IFunction:
    layout = ctx.input(0).info().data_layout()
    function = _function_of(ctx, _CHANNELS[layout])
    function.configure([ctx.input(n) for n in range(ctx.num_inputs())], ctx.output())
    return function  # type: ignore[no-any-return]


def _plain(name: str, *parameters: str) -> Rule:
    """A function of one input, its output, and parameters."""

    def configure(ctx: NodeContext) -> IFunction:
        function = _function_of(ctx, name)
        function.configure(ctx.input(0), ctx.output(), *(ctx.parameter(p) for p in parameters))
        return function  # type: ignore[no-any-return]

    return configure


def _with_output(name: str) -> Rule:
    """A function whose output's information is a parameter."""

    def configure(ctx: NodeContext) -> IFunction:
        if not ctx.output().has_info():
            ctx.output().allocator().init(ctx.parameter("OutputInfo"))
        function = _function_of(ctx, name)
        function.configure(ctx.input(0), ctx.output())
        return function  # type: ignore[no-any-return]

    return configure


_RULES: dict[OperationType, Rule] = {
    OperationType.ActivationLayer: _plain("ActivationLayer", "ActivationLayerInfo"),
    OperationType.BatchNormalizationLayer: _batch_normalization,
    OperationType.ConvolutionLayer: _convolution,
    OperationType.DepthConcatenateLayer: _depth_concatenate,
    OperationType.DepthwiseConvolutionLayer: _depthwise,
    OperationType.DequantizationLayer: _plain("DequantizationLayer"),
    OperationType.EltwiseLayer: _eltwise,
    OperationType.FlattenLayer: _plain("FlattenLayer"),
    OperationType.FullyConnectedLayer: _fully_connected,
    OperationType.NormalizationLayer: _plain("NormalizationLayer", "NormalizationLayerInfo"),
    OperationType.PermuteLayer: _plain("Permute", "PermutationVector"),
    OperationType.PoolingLayer: _plain("PoolingLayer", "PoolingLayerInfo"),
    OperationType.QuantizationLayer: _with_output("QuantizationLayer"),
    OperationType.ReshapeLayer: _with_output("ReshapeLayer"),
    OperationType.SoftmaxLayer: _plain("SoftmaxLayer", "Beta"),
}


def _register() -> None:
    registry = OperationRegistry.get()
    for target, prefix in _PREFIX.items():
        for kind, rule in _RULES.items():
            if not registry.contains(kind, target):
                registry.add_operation(kind, Operation(f"{prefix}{kind.name}Operation", target, rule))


_register()


def configure(ctx: NodeContext) -> IFunction:
    """A node's function, by the operation that is registered for its target."""
    return OperationRegistry.get().find_operation(ctx.operation(), ctx.target()).configure(ctx)
