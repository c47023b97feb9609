"""Pooling, activation, softmax, and normalisation.

In: one image or matrix. Out: another one. Invariant: rounding modes and padding count as in the library: FLOOR drops
what is left over, an average divides by all elements under the window unless `exclude_padding`.
"""

from __future__ import annotations

from collections.abc import Iterator

from armillary import relay
from armillary.compute.core.tensor_info import TensorInfo
from armillary.compute.core.types import (
    ActivationFunction,
    ActivationLayerInfo,
    DimensionRoundingType,
    NormalizationLayerInfo,
    NormType,
    PoolingLayerInfo,
    PoolingType,
    Size2D,
)
from armillary.compute.functions.arguments import FLOATS, wrong_shape, wrong_type
from armillary.compute.functions.nn import base
from armillary.compute.functions.nn.body import Node
from armillary.compute.functions.nn.requantize import limits
from armillary.compute.runtime.tensor import Tensor


class ActivationLayer(base.NeuralFunction):
    """y = f(x); without an output, in place."""

    @classmethod
    def _wrong(cls, act_info: ActivationLayerInfo) -> Iterator[str]:
        if not act_info.enabled():
            yield "no activation function is given"

    def _bind(self, input: Tensor, output: Tensor | None, act_info: ActivationLayerInfo) -> None:
        target = input if output is None else output
        base.init_like(target, input.info())
        is_identity = act_info.activation is ActivationFunction.IDENTITY

        def body(x: Node) -> Node:
            return relay.copy(x) if is_identity else base.activated(x, act_info)

        self._compile({"x": input}, {}, target, body)


class SoftmaxLayer(base.NeuralFunction):
    """exp(beta * x) over its sum along a dimension (0: along a row)."""

    @classmethod
    def _wrong(cls, input: TensorInfo, axis: int) -> Iterator[str]:
        rank = input.num_dimensions()
        if not -rank <= axis < rank:
            yield f"axis {axis} of a tensor of {rank} dimensions"

    def _bind(self, input: Tensor, output: Tensor, beta: float, axis: int) -> None:
        base.init_like(output, input.info())
        rank = input.info().num_dimensions()
        at = rank - 1 - axis % rank

        def body(x: Node) -> Node:
            return relay.nn.softmax(x if beta == 1.0 else x * relay.const(beta, "float32"), axis=at)

        self._compile({"x": input}, {}, output, body)


class PoolingLayer(base.NeuralFunction):
    """The largest element under a window, the mean, or the root of the mean of squares."""

    @classmethod
    def _wrong(cls, input: TensorInfo, output: TensorInfo | None, pool_info: PoolingLayerInfo) -> Iterator[str]:
        yield base.wrong_layout("the output", output, input)
        input, output = input.in_nchw(), output.in_nchw() if output is not None else None
        if pool_info.pool_type is not PoolingType.MAX:
            yield wrong_type("the input", input, FLOATS)
        width, height, size = _pooled(input, pool_info)
        pads = pool_info.pad_stride_info
        if min(width, height) < 1:
            yield f"a {size.width}x{size.height} window does not fit {input!r}"
        beyond = max(pads.pad_left(), pads.pad_right()) >= size.width
        if beyond or max(pads.pad_top(), pads.pad_bottom()) >= size.height:
            yield f"padding {pads!r} is as large as the {size.width}x{size.height} window"
        yield base.wrong_rank(input)
        yield base.wrong_quantization("the output", output, input)
        yield wrong_shape("the output", output, (width, height, *input.shape[2:]))

    def _bind(self, input: Tensor, output: Tensor, pool_info: PoolingLayerInfo) -> None:
        image = input.info().in_nchw()
        width, height, size = _pooled(image, pool_info)
        base.init_like(output, input.info(), width, height, *image.shape[2:])
        info = pool_info.pad_stride_info
        is_whole = pool_info.is_global_pooling
        strides = (1, 1) if is_whole else (info.stride()[1], info.stride()[0])
        sides = (0, 0, 0, 0) if is_whole else (info.pad_top(), info.pad_left(), info.pad_bottom(), info.pad_right())
        window = (size.height, size.width)
        is_ceil = info.round is DimensionRoundingType.CEIL and not is_whole

        def mean(x: Node) -> Node:
            return relay.nn.avg_pool2d(
                x,
                pool_size=window,
                strides=strides,
                padding=sides,
                ceil_mode=is_ceil,
                count_include_pad=not pool_info.exclude_padding,
            )

        def body(x: Node) -> Node:
            if pool_info.pool_type is PoolingType.MAX:
                return relay.nn.max_pool2d(x, pool_size=window, strides=strides, padding=sides, ceil_mode=is_ceil)
            return mean(x) if pool_info.pool_type is PoolingType.AVG else relay.sqrt(mean(x * x))

        shapes = {"x": base.nchw(input.info())}
        self._compile({"x": input}, {}, output, body, shapes)


def _pooled(input: TensorInfo, info: PoolingLayerInfo) -> tuple[int, int, Size2D]:
    """Width and height of the output, and the window."""
    width, height = input.dimension(0), input.dimension(1)
    if info.is_global_pooling:
        return 1, 1, Size2D(width, height)
    pads = info.pad_stride_info
    scaled = list(pads.scaled((width, height), info.pool_size))
    for n, (extent, before) in enumerate(((width, pads.pad_left()), (height, pads.pad_top()))):
        if pads.round is DimensionRoundingType.CEIL and (scaled[n] - 1) * pads.stride()[n] >= extent + before:
            scaled[n] -= 1  # the last window would lie in the padding alone
    return scaled[0], scaled[1], info.pool_size


class NormalizationLayer(base.NeuralFunction):
    """Local response normalisation over channels, rows, or planes."""

    @classmethod
    def _wrong(cls, input: TensorInfo, output: TensorInfo | None, norm_info: NormalizationLayerInfo) -> Iterator[str]:
        yield base.wrong_rank(input)
        yield base.wrong_layout("the output", output, input)
        if norm_info.norm_size % 2 == 0:
            yield f"the size is {norm_info.norm_size}, wanted an odd number"

    def _bind(self, input: Tensor, output: Tensor, norm_info: NormalizationLayerInfo) -> None:
        base.init_like(output, input.info())
        size = norm_info.norm_size
        count = 1 if not norm_info.is_scaled else size * size if norm_info.type is NormType.IN_MAP_2D else size

        def body(x: Node) -> Node:
            if norm_info.type is NormType.CROSS_MAP:
                # nn.lrn divides alpha by the size
                return relay.nn.lrn(
                    x, size=size, alpha=norm_info.alpha * size / count, beta=norm_info.beta, bias=norm_info.kappa
                )
            window = (size, size) if norm_info.type is NormType.IN_MAP_2D else (1, size)
            half = size // 2 if norm_info.type is NormType.IN_MAP_2D else 0
            padding = (half, size // 2, half, size // 2)
            means = relay.nn.avg_pool2d(
                x * x, pool_size=window, strides=(1, 1), padding=padding, count_include_pad=True
            )
            elements = window[0] * window[1]
            factor = relay.const(norm_info.alpha * elements / count, "float32")
            return x / relay.power(
                relay.const(norm_info.kappa, "float32") + means * factor, relay.const(norm_info.beta, "float32")
            )

        shapes = {"x": base.nchw(input.info())}
        self._compile({"x": input}, {}, output, body, shapes)


class BatchNormalizationLayer(base.NeuralFunction):
    """(x - mean) / sqrt(var + epsilon) * gamma + beta, by channel."""

    @classmethod
    def _wrong(
        cls,
        input: TensorInfo,
        output: TensorInfo | None,
        mean: TensorInfo,
        var: TensorInfo,
        beta: TensorInfo | None,
        gamma: TensorInfo | None,
    ) -> Iterator[str]:
        yield base.wrong_rank(input)
        for name, info in (("mean", mean), ("var", var), ("beta", beta), ("gamma", gamma)):
            yield wrong_shape(name, info, (base.nchw(input)[1],))
        yield base.wrong_layout("the output", output, input)

    def _bind(
        self,
        input: Tensor,
        output: Tensor | None,
        mean: Tensor,
        var: Tensor,
        beta: Tensor | None,
        gamma: Tensor | None,
        epsilon: float,
        act_info: ActivationLayerInfo | None,
    ) -> None:
        target = input if output is None else output
        base.init_like(target, input.info())
        operands = {"mean": mean, "var": var, "beta": beta, "gamma": gamma}
        weights = {name: tensor for name, tensor in operands.items() if tensor is not None}
        channels = base.nchw(input.info())[1]

        def body(x: Node, *others: Node) -> Node:
            named = dict(zip(weights, others, strict=True))
            one, zero = relay.ones((channels,), "float32"), relay.zeros((channels,), "float32")
            value = relay.nn.batch_norm(
                x, named.get("gamma", one), named.get("beta", zero), named["mean"], named["var"], epsilon=epsilon
            )[0]
            return base.activated(value, act_info)

        shapes = {"x": base.nchw(input.info())} | dict.fromkeys(weights, (channels,))
        self._compile({"x": input}, weights, target, body, shapes)


class QuantizationLayer(base.NeuralFunction):
    """Real numbers as bytes of the output's scale and offset: rounded to nearest, halves away from zero."""

    @classmethod
    def _wrong(cls, output: TensorInfo) -> Iterator[str]:
        if output.quantization_info().scale <= 0:
            yield f"the scale is {output.quantization_info().scale}"

    def _bind(self, input: Tensor, output: Tensor) -> None:
        quantization, kind = output.info().quantization_info(), output.info().data_type
        low, high = limits(kind)

        def body(x: Node) -> Node:
            scaled = x * relay.const(1.0 / quantization.scale, "float32")
            zero, below, above = (relay.const(v, "float32") for v in (0.0, -0.5, 0.5))
            half = relay.where(relay.less(scaled, zero), below, above)
            rounded = relay.trunc(scaled + half) + relay.const(float(quantization.offset), "float32")
            return relay.cast(relay.clip(rounded, a_min=float(low), a_max=float(high)), kind.dtype)

        self._compile({"x": input}, {}, output, body)


class DequantizationLayer(base.NeuralFunction):
    """(value - offset) * scale."""

    def _bind(self, input: Tensor, output: Tensor) -> None:
        base.init_output(output, input.info().shape, FLOATS[0], layout=input.info().data_layout())
        quantization = input.info().quantization_info()

        def body(x: Node) -> Node:
            integers = relay.cast(x, "int32") - relay.const(quantization.offset, "int32")
            return relay.cast(integers, "float32") * relay.const(quantization.scale, "float32")

        self._compile({"x": input}, {}, output, body)
