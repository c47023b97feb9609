"""Pooling, activation, softmax, and normalisation.

In: one image or matrix. Out: another one. Invariant: rounding modes and padding count as in the library: FLOOR drops
what is left over, an average divides by all elements under the window unless `exclude_padding`.
"""

from __future__ import annotations

from armillary import relay
from armillary.compute.core.kernel import Status
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
from armillary.compute.functions.nn import base
from armillary.compute.functions.nn.body import Node
from armillary.compute.functions.nn.requantize import limits
from armillary.compute.runtime.tensor import Tensor


class NEActivationLayer(base.NeuralFunction):
    """y = f(x); without an output, in place."""

    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, act_info: ActivationLayerInfo) -> Status:
        """Whether tensors of this information can be configured."""
        return base.status_of(
            cls.__name__,
            base.wrong_type("the input", input, base.FLOATS),
            base.wrong_shape("the output", output, input.shape),
            base.wrong_type("the output", output, base.FLOATS) if output is not None else "",
            "" if act_info.enabled() else "no activation function is given",
        )

    def configure(self, input: Tensor, output: Tensor | None, act_info: ActivationLayerInfo) -> None:
        """Set the tensors and the function."""
        target = input if output is None else output
        base.init_like(target, input.info())
        is_identity = act_info.activation is ActivationFunction.IDENTITY

        def body(x: Node) -> Node:
            return relay.copy(x) if is_identity else base.activated(x, act_info)

        self._compile({"x": input}, {}, target, body)


class NESoftmaxLayer(base.NeuralFunction):
    """exp(beta * x) over its sum along a dimension (0: along a row)."""

    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, beta: float = 1.0, axis: int = 0) -> Status:
        """Whether tensors of this information can be configured."""
        del beta
        rank = input.num_dimensions()
        return base.status_of(
            cls.__name__,
            base.wrong_type("the input", input, base.FLOATS),
            base.wrong_shape("the output", output, input.shape),
            base.wrong_type("the output", output, base.FLOATS) if output is not None else "",
            "" if -rank <= axis < rank else f"axis {axis} of a tensor of {rank} dimensions",
        )

    def configure(self, input: Tensor, output: Tensor, beta: float = 1.0, axis: int = 0) -> None:
        """Set the tensors."""
        base.init_like(output, input.info())
        rank = input.info().num_dimensions()
        at = rank - 1 - axis % rank

        def body(x: Node) -> Node:
            return relay.nn.softmax(x if beta == 1.0 else x * relay.const(beta, "float32"), axis=at)

        self._compile({"x": input}, {}, output, body)


class NEPoolingLayer(base.NeuralFunction):
    """The largest element under a window, the mean, or the root of the mean of squares."""

    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, pool_info: PoolingLayerInfo) -> Status:
        """Whether tensors of this information can be configured."""
        message = base.wrong_layout("the output", output, input)
        if message:
            return base.status_of(cls.__name__, message)
        input, output = input.in_nchw(), output.in_nchw() if output is not None else None
        width, height, size = _pooled(input, pool_info)
        pads = pool_info.pad_stride_info
        beyond = max(pads.pad_left(), pads.pad_right()) >= size.width
        beyond |= max(pads.pad_top(), pads.pad_bottom()) >= size.height
        kinds = base.FLOATS if pool_info.pool_type is not PoolingType.MAX else (*base.FLOATS, *base.QUANTIZED)
        return base.status_of(
            cls.__name__,
            base.wrong_type("the input", input, kinds),
            f"a {size.width}x{size.height} window does not fit {input!r}" if min(width, height) < 1 else "",
            f"padding {pads!r} is as large as the {size.width}x{size.height} window" if beyond else "",
            base.wrong_rank(input),
            base.wrong_quantization("the output", output, input),
            base.wrong_shape("the output", output, (width, height, *input.shape[2:])),
            base.wrong_type("the output", output, (input.data_type,)) if output is not None else "",
        )

    def configure(self, input: Tensor, output: Tensor, pool_info: PoolingLayerInfo) -> None:
        """Set the tensors and the window."""
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


class NENormalizationLayer(base.NeuralFunction):
    """Local response normalisation over channels, rows, or planes."""

    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, norm_info: NormalizationLayerInfo) -> Status:
        """Whether tensors of this information can be configured."""
        return base.status_of(
            cls.__name__,
            base.wrong_type("the input", input, base.FLOATS),
            base.wrong_rank(input),
            base.wrong_layout("the output", output, input),
            "" if norm_info.norm_size % 2 else f"the size is {norm_info.norm_size}, wanted an odd number",
            base.wrong_shape("the output", output, input.shape),
            base.wrong_type("the output", output, base.FLOATS) if output is not None else "",
        )

    def configure(self, input: Tensor, output: Tensor, norm_info: NormalizationLayerInfo) -> None:
        """Set the tensors and what is added up."""
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


class NEBatchNormalizationLayer(base.NeuralFunction):
    """(x - mean) / sqrt(var + epsilon) * gamma + beta, by channel."""

    @classmethod
    def validate(
        cls,
        input: TensorInfo,
        output: TensorInfo | None,
        mean: TensorInfo,
        var: TensorInfo,
        beta: TensorInfo | None = None,
        gamma: TensorInfo | None = None,
        epsilon: float = 0.001,
        act_info: ActivationLayerInfo | None = None,
    ) -> Status:
        """Whether tensors of this information can be configured."""
        del act_info
        named = {"mean": mean, "var": var, "beta": beta, "gamma": gamma}
        channels = base.nchw(input)[1]
        return base.status_of(
            cls.__name__,
            base.wrong_type("the input", input, base.FLOATS),
            base.wrong_rank(input),
            base.wrong_type("the output", output, base.FLOATS) if output is not None else "",
            *(base.wrong_shape(name, info, (channels,)) for name, info in named.items()),
            *(base.wrong_type(name, info, base.FLOATS) for name, info in named.items() if info is not None),
            base.wrong_shape("the output", output, input.shape),
            base.wrong_layout("the output", output, input),
            "" if epsilon > 0 else f"epsilon is {epsilon}, wanted above 0",
        )

    def configure(
        self,
        input: Tensor,
        output: Tensor | None,
        mean: Tensor,
        var: Tensor,
        beta: Tensor | None = None,
        gamma: Tensor | None = None,
        epsilon: float = 0.001,
        act_info: ActivationLayerInfo | None = None,
    ) -> None:
        """Set the tensors; without an output, in place."""
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


class NEQuantizationLayer(base.NeuralFunction):
    """Real numbers as bytes of the output's scale and offset: rounded to nearest, halves away from zero."""

    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo) -> Status:
        """Whether tensors of this information can be configured."""
        return base.status_of(
            cls.__name__,
            base.wrong_type("the input", input, base.FLOATS),
            base.wrong_type("the output", output, base.QUANTIZED),
            base.wrong_shape("the output", output, input.shape),
            "" if output.quantization_info().scale > 0 else f"the scale is {output.quantization_info().scale}",
        )

    def configure(self, input: Tensor, output: Tensor) -> None:
        """Set the tensors; the output's information has the scale."""
        quantization, kind = output.info().quantization_info(), output.info().data_type
        low, high = limits(kind)

        def body(x: Node) -> Node:
            scaled = x * relay.const(1.0 / quantization.scale, "float32")
            zero, below, above = (relay.const(v, "float32") for v in (0.0, -0.5, 0.5))
            half = relay.where(relay.less(scaled, zero), below, above)
            rounded = relay.trunc(scaled + half) + relay.const(float(quantization.offset), "float32")
            return relay.cast(relay.clip(rounded, a_min=float(low), a_max=float(high)), kind.dtype)

        self._compile({"x": input}, {}, output, body)


class NEDequantizationLayer(base.NeuralFunction):
    """(value - offset) * scale."""

    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None) -> Status:
        """Whether tensors of this information can be configured."""
        return base.status_of(
            cls.__name__,
            base.wrong_type("the input", input, base.QUANTIZED),
            base.wrong_shape("the output", output, input.shape),
            base.wrong_type("the output", output, base.FLOATS) if output is not None else "",
        )

    def configure(self, input: Tensor, output: Tensor) -> None:
        """Set the tensors."""
        base.init_output(output, input.info().shape, base.FLOATS[0], layout=input.info().data_layout())
        quantization = input.info().quantization_info()

        def body(x: Node) -> Node:
            integers = relay.cast(x, "int32") - relay.const(quantization.offset, "int32")
            return relay.cast(integers, "float32") * relay.const(quantization.scale, "float32")

        self._compile({"x": input}, {}, output, body)
