"""Convolution layers: the one that chooses a method, and one for each method.

In: an image (width, height, channels, batch), weights (width, height, channels, outputs), or both in NHWC (channels
first), biases, paddings and strides. Out: an image. Invariant: the method is that of the architecture text: Winograd
for float32, 3x3 kernels, strides of 1 and given biases; else GEMM. The rest is the compiler's: GEMM is its implicit
product on register tiles, Winograd its F(2x2, 3x3) in phases, 16 products between two transforms. QASYMM8 adds up in
32 bits: `requantize.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from armillary import relay
from armillary.base.record import record
from armillary.compute.core.tensor_info import DataType, TensorInfo
from armillary.compute.core.types import (
    ActivationFunction,
    ActivationLayerInfo,
    ConvolutionMethod,
    PadStrideInfo,
    Size2D,
    WeightsInfo,
)
from armillary.compute.functions.arguments import wrong_shape, wrong_type
from armillary.compute.functions.nn import base
from armillary.compute.functions.nn.body import Body, ImageShape, Node
from armillary.compute.functions.nn.compiled import Pipeline
from armillary.compute.functions.nn.requantize import activation_limits, requantized, scale_ratio
from armillary.compute.functions.nn.staged import Moves, objection_to_stages, staged_convolution
from armillary.compute.functions.stages.fourier import LARGEST
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import TypeMismatch

PER_CHANNEL = DataType.QSYMM8_PER_CHANNEL
_BLOCK = 16  # channels that one block holds on every processor
CLAMPS = (None, ActivationFunction.RELU, ActivationFunction.BOUNDED_RELU, ActivationFunction.LU_BOUNDED_RELU)


@record(slots=True)
class _Asked:
    """How a kernel moves over an image; `multiplier`: outputs of each channel of a depthwise convolution."""

    conv_info: PadStrideInfo
    dilation: Size2D = Size2D()
    act_info: ActivationLayerInfo | None = None
    groups: int = 1
    multiplier: int = 0


# Image, weights, biases, output.
_Infos = tuple[TensorInfo, TensorInfo, TensorInfo | None, TensorInfo | None]
_Tensors = tuple[Tensor, Tensor, Tensor | None, Tensor]


def _objections(infos: _Infos, asked: _Asked) -> Iterator[str]:
    """What is wrong with a convolution; sizes are told as (width, height, channels) whatever the layout."""
    others = (("weights", infos[1]), ("the output", infos[3]))
    yield from (base.wrong_layout(what, info, infos[0]) for what, info in others)
    input, weights, output = (info.in_nchw() if info is not None else None for info in (infos[0], infos[1], infos[3]))
    biases = infos[2]  # a vector is one in any layout
    assert input is not None and weights is not None, "both are there"
    groups, dilation = asked.groups, asked.dilation
    conv_info, act_info, multiplier = asked.conv_info, asked.act_info, asked.multiplier
    if min(dilation.width, dilation.height) < 1:
        yield f"a dilation of {dilation.width}x{dilation.height}, wanted at least 1x1"
    size = Size2D(weights.dimension(0), weights.dimension(1))
    width, height = conv_info.scaled((input.dimension(0), input.dimension(1)), size, dilation)
    channels = input.dimension(2)
    outputs = channels * multiplier if multiplier else weights.dimension(3)
    have, want = (weights.dimension(2), outputs) if multiplier else (weights.dimension(2) * groups, channels)
    quantized = input.data_type.is_quantized
    yield wrong_type("weights", weights, (input.data_type, *((PER_CHANNEL,) if quantized else ())))
    yield base.wrong_channel_scales("weights", weights, outputs)
    if have != want:
        yield f"weights are for {have} channels, wanted {want}"
    if outputs % groups:
        yield f"groups {groups} do not divide {outputs} outputs"
    if min(width, height) < 1:
        yield f"a {size.width}x{size.height} kernel does not fit {input!r}, {conv_info!r}"
    yield wrong_shape("biases", biases, (outputs,))
    if biases is not None:
        yield wrong_type("biases", biases, (DataType.S32 if quantized else input.data_type,))
    yield wrong_shape("the output", output, (width, height, outputs, *input.shape[3:]))
    if quantized and (act_info.activation if act_info else None) not in CLAMPS:
        yield "a quantised convolution takes activations that clamp, or none"
    yield base.wrong_scales(output, input, weights)
    yield base.wrong_rank(input)


class _Convolution(base.NeuralFunction):
    """A convolution by one method."""

    _config: ClassVar[dict[str, object]] = {}  # Any: options of passes
    _method: ClassVar[ConvolutionMethod | None] = None  # whose stages there are

    def _build(self, tensors: _Tensors, asked: _Asked) -> None:
        (input, weights, biases, output), conv_info, dilation = tensors, asked.conv_info, asked.dilation
        act_info, groups, multiplier = asked.act_info, asked.groups, asked.multiplier
        _, channels, height, width = base.nchw(input.info())
        kernels = weights.info().in_nchw()
        kernel = Size2D(kernels.dimension(0), kernels.dimension(1))
        scaled = conv_info.scaled((width, height), kernel, dilation)
        outputs = channels * multiplier if multiplier else kernels.dimension(3)
        kind = input.info().data_type
        base.init_like(output, input.info(), *scaled, outputs, *input.info().shape[3:])
        attrs = _attrs(conv_info, dilation, (width, height), kernel, scaled, outputs, groups)
        per_group = 1 if multiplier else channels // groups
        shapes: dict[str, tuple[int, ...]] = {"x": base.nchw(input.info())}
        filters = (outputs, per_group, kernel.height, kernel.width)
        # Kernels of single channels lie as an image does: in NHWC the channels are last.
        is_image = multiplier > 0 and kernels is not weights.info()
        shapes["w"] = ImageShape((1, outputs, *filters[2:]) if is_image else filters)
        if biases is not None:
            shapes["b"] = (outputs,)

        def body(x: Node, w: Node, b: Node | None = None) -> Node:
            w = w if not is_image else relay.reshape(w, newshape=filters)
            if kind.is_quantized:
                return _quantized(x, w, b, input.info(), weights.info(), output.info(), act_info, attrs)
            value = self._product(x, w, per_group, attrs)
            return base.activated(value if b is None else relay.nn.bias_add(value, b), act_info)

        operands = {"w": weights} | ({"b": biases} if biases is not None else {})
        if self._stages:
            moves = _moves(input.info(), kernel, scaled, outputs, asked)
            self._pipeline = self._staged(Body({"x": input}, operands, output, body, shapes), moves, groups)
            return
        self._compile({"x": input}, operands, output, body, shapes, self._config)

    def _staged(self, body: Body, moves: Moves, groups: int) -> base.RunsKernels:
        name, info = type(self).__name__, body.inputs["x"].info()
        wrong = "" if self._method and self._pipeline_type is Pipeline else "it has no stages"
        wrong = wrong or objection_to_stages(info, groups, moves.act_info)
        if wrong:
            raise TypeMismatch(f"{name}: {wrong}")
        assert self._method is not None, "what has none is refused"
        return staged_convolution(self._method, body, moves, self._memory_manager)

    def _product(self, x: Node, w: Node, inputs: int, attrs: dict[str, Any]) -> Node:  # Any: attributes of nn.conv2d
        del inputs
        return relay.nn.conv2d(x, w, **attrs)


def _moves(image: TensorInfo, kernel: Size2D, made: tuple[int, int], outputs: int, asked: _Asked) -> Moves:
    batch, channels, height, width = base.nchw(image)
    info, dilation = asked.conv_info, (asked.dilation.width, asked.dilation.height)
    size, pads, stride = (kernel.width, kernel.height), (info.pad_left(), info.pad_top()), info.stride()
    return Moves(batch, channels, outputs, (width, height), size, made, stride, dilation, pads, asked.act_info)


def _attrs(
    info: PadStrideInfo,
    dilation: Size2D,
    size: tuple[int, int],
    kernel: Size2D,
    made: tuple[int, int],
    outputs: int,
    groups: int,
) -> dict[str, Any]:  # Any: attributes of nn.conv2d
    """Attributes of nn.conv2d; what rounding up adds is padding at the right and below."""
    right, bottom = (
        max(0, (made[n] - 1) * info.stride()[n] + (side - 1) * spread + 1 - size[n] - info.pad()[n])
        for n, side, spread in ((0, kernel.width, dilation.width), (1, kernel.height, dilation.height))
    )
    return {
        "strides": (info.stride()[1], info.stride()[0]),
        "groups": groups,
        "channels": outputs,
        "padding": (info.pad_top(), info.pad_left(), max(bottom, 0), max(right, 0)),
        "dilation": (dilation.height, dilation.width),
        "kernel_size": (kernel.height, kernel.width),
    }


def _quantized(
    x: Node,
    w: Node,
    b: Node | None,
    input: TensorInfo,
    weights: TensorInfo,
    output: TensorInfo,
    act_info: ActivationLayerInfo | None,
    attrs: dict[str, Any],
) -> Node:
    of_input, of_weights = input.quantization_info(), weights.quantization_info()
    scales = [relay.const(q.scale, "float32") for q in (of_input, of_weights)]
    zeros = [relay.const(q.offset, "int32") for q in (of_input, of_weights)]
    sums = relay.qnn.conv2d(x, w, zeros[0], zeros[1], scales[0], scales[1], **attrs)
    if b is not None:
        sums = relay.nn.bias_add(sums, b)
    low, high = clamp_of(act_info, output)
    target = output.quantization_info().scale
    ratios = [scale_ratio(of_input.scale, scale, target) for scale in of_weights.all_scales()]
    return requantized(sums, ratios, output.quantization_info(), output.data_type, low, high)


def clamp_of(act_info: ActivationLayerInfo | None, output: TensorInfo) -> tuple[int, int]:
    """The stored values that a clamping activation leaves."""
    which = act_info.activation if act_info else None
    upper = act_info.a if act_info and which is not ActivationFunction.RELU else None
    lower = act_info.b if act_info and which is ActivationFunction.LU_BOUNDED_RELU else 0.0
    return activation_limits(output.data_type, output.quantization_info(), which is not None, upper, lower)


class GEMMConvolutionLayer(_Convolution):
    """A convolution as a product of matrices on register tiles."""

    _method = ConvolutionMethod.GEMM
    _config: ClassVar[dict[str, object]] = {"relay.WinogradConv2D.tile": 0}

    @classmethod
    def _wrong(
        cls,
        input: TensorInfo,
        weights: TensorInfo,
        biases: TensorInfo | None,
        output: TensorInfo | None,
        conv_info: PadStrideInfo,
        weights_info: WeightsInfo | None,
        dilation: Size2D | None,
        act_info: ActivationLayerInfo | None,
        num_groups: int,
    ) -> Iterator[str]:
        if weights_info is not None and weights_info.are_reshaped:
            yield "reshaped weights are not taken, only (width, height, inputs, outputs)"
        asked = _Asked(conv_info, dilation or Size2D(), act_info, num_groups)
        yield from _objections((input, weights, biases, output), asked)

    def _bind(
        self,
        input: Tensor,
        weights: Tensor,
        biases: Tensor | None,
        output: Tensor,
        conv_info: PadStrideInfo,
        dilation: Size2D | None,
        act_info: ActivationLayerInfo | None,
        num_groups: int,
    ) -> None:
        self._build((input, weights, biases, output), _Asked(conv_info, dilation or Size2D(), act_info, num_groups))


class _Plain(_Convolution):
    """A convolution of real numbers by one method, of one group and without holes."""

    @classmethod
    def _limits(cls, input: TensorInfo, size: tuple[int, int], conv_info: PadStrideInfo) -> tuple[str, ...]:
        """What the method does not take, of kernels of this width and height."""
        del input, size, conv_info
        return ()

    @classmethod
    def _wrong(
        cls,
        input: TensorInfo,
        weights: TensorInfo,
        biases: TensorInfo | None,
        output: TensorInfo | None,
        conv_info: PadStrideInfo,
        act_info: ActivationLayerInfo | None,
    ) -> Iterator[str]:
        kernels = weights.in_nchw()
        yield from cls._limits(input, (kernels.dimension(0), kernels.dimension(1)), conv_info)
        yield from _objections((input, weights, biases, output), _Asked(conv_info, act_info=act_info))

    def _bind(
        self,
        input: Tensor,
        weights: Tensor,
        biases: Tensor | None,
        output: Tensor,
        conv_info: PadStrideInfo,
        act_info: ActivationLayerInfo | None,
    ) -> None:
        self._build((input, weights, biases, output), _Asked(conv_info, act_info=act_info))


class DirectConvolutionLayer(_Plain):
    """A convolution that multiplies where the image lies."""

    _method = ConvolutionMethod.DIRECT
    _config: ClassVar[dict[str, object]] = {"relay.WinogradConv2D.tile": 0}


def _has_tiles(input: TensorInfo, info: PadStrideInfo) -> bool:
    """Whether each row and column of the kernel meets the image somewhere; else the kernel is a smaller one."""
    input = input.in_nchw()
    ends = info.scaled((input.dimension(0), input.dimension(1)), Size2D(3, 3))
    return all(
        max(0, tap - info.pad()[n]) < min(input.dimension(n), tap - info.pad()[n] + ends[n])
        for n in (0, 1)
        for tap in range(3)
    )


def _wrong_strides(conv_info: PadStrideInfo) -> str:
    return "" if conv_info.stride() == (1, 1) else f"the strides are {conv_info.stride()}, wanted 1"


class WinogradConvolutionLayer(_Plain):
    """Winograd's F(2x2, 3x3): transforms of 4x4 tiles around 16 products of matrices.

    Channels in and out are filled up to blocks of 16 with zeros. Weights that are all whole numbers are multiplied
    directly, which keeps their sums exact. In stages F(4x4, 3x3) where an image has more than four rows and columns.
    """

    _method = ConvolutionMethod.WINOGRAD
    _config: ClassVar[dict[str, object]] = {"relay.WinogradConv2D.tile": 2, "cpu.winograd.strip": 0}

    @classmethod
    def _limits(cls, input: TensorInfo, size: tuple[int, int], conv_info: PadStrideInfo) -> tuple[str, ...]:
        return (
            "" if size == (3, 3) else f"the kernel is {size[0]}x{size[1]}, wanted 3x3",
            _wrong_strides(conv_info),
            "" if _has_tiles(input, conv_info) else f"a part of the kernel never meets {input!r}, {conv_info!r}",
        )

    def _product(self, x: Node, w: Node, inputs: int, attrs: dict[str, Any]) -> Node:  # Any: attributes of nn.conv2d
        outputs = int(attrs["channels"])
        more, wider = -outputs % _BLOCK, -inputs % _BLOCK
        if wider:
            x = relay.nn.pad(x, pad_width=((0, 0), (0, wider), (0, 0), (0, 0)))
        if more or wider:
            w = relay.nn.pad(w, pad_width=((0, more), (0, wider), (0, 0), (0, 0)))
        value = relay.nn.conv2d(x, w, **attrs | {"channels": outputs + more})
        if not more:
            return value
        planes = relay.reshape(value, newshape=(0, 0, -1))  # a slice of the image itself would take smaller blocks
        retained = relay.strided_slice(planes, begin=[0], end=[outputs], strides=[1], axes=[1])
        return relay.reshape_like(retained, value, lhs_begin=2, lhs_end=3, rhs_begin=2, rhs_end=4)


class FFTConvolutionLayer(_Plain):
    """A convolution by Fourier transforms of 16x16 tiles, for kernels of up to 15x15 that move by one pixel.

    A pixel of the output takes 384 / ((17 - width) * (17 - height)) products, whatever the kernel. Without stages,
    kernels of fewer than four rows or columns are multiplied directly.
    """

    _method = ConvolutionMethod.FFT
    _config: ClassVar[dict[str, object]] = {"relay.WinogradConv2D.tile": 0, "relay.FourierConv2D.use": 1}

    @classmethod
    def _limits(cls, input: TensorInfo, size: tuple[int, int], conv_info: PadStrideInfo) -> tuple[str, ...]:
        del input
        most = f"wanted at most {LARGEST}x{LARGEST}"
        return (
            "" if max(size) <= LARGEST else f"the kernel is {size[0]}x{size[1]}, {most}",
            _wrong_strides(conv_info),
        )


class DepthwiseConvolutionLayer(_Convolution):
    """Each channel by kernels of its own; weights are (width, height, channels * depth_multiplier)."""

    @classmethod
    def _wrong(
        cls,
        input: TensorInfo,
        weights: TensorInfo,
        biases: TensorInfo | None,
        output: TensorInfo | None,
        conv_info: PadStrideInfo,
        depth_multiplier: int,
        act_info: ActivationLayerInfo | None,
        dilation: Size2D | None,
    ) -> Iterator[str]:
        asked = _Asked(conv_info, dilation or Size2D(), act_info, base.nchw(input)[1], depth_multiplier)
        yield from _objections((input, weights, biases, output), asked)

    def _bind(
        self,
        input: Tensor,
        weights: Tensor,
        biases: Tensor | None,
        output: Tensor,
        conv_info: PadStrideInfo,
        depth_multiplier: int,
        act_info: ActivationLayerInfo | None,
        dilation: Size2D | None,
    ) -> None:
        asked = _Asked(conv_info, dilation or Size2D(), act_info, base.nchw(input.info())[1], depth_multiplier)
        self._build((input, weights, biases, output), asked)


class ConvolutionLayer(base.NeuralFunction):
    """A convolution by the method that fits: Winograd for float32, 3x3, strides of 1 and biases; else GEMM."""

    _wrong = GEMMConvolutionLayer._wrong

    @staticmethod
    def get_convolution_method(
        input: TensorInfo,
        weights: TensorInfo,
        biases: TensorInfo | None,
        output: TensorInfo | None,
        conv_info: PadStrideInfo,
        weights_info: WeightsInfo | None = None,
        dilation: Size2D | None = None,
        act_info: ActivationLayerInfo | None = None,
        num_groups: int = 1,
    ) -> ConvolutionMethod:
        """Which method `configure` takes: the text's rule. Holes, groups, and kernels partly in padding: products."""
        del output, weights_info, act_info
        kernels = weights.in_nchw()
        fits = (
            input.data_type is DataType.F32
            and kernels.dimension(0) == 3
            and kernels.dimension(1) == 3
            and weights.num_dimensions() <= 4
            and conv_info.stride() == (1, 1)
            and biases is not None
        )
        plain = dilation in (None, Size2D()) and num_groups == 1 and _has_tiles(input, conv_info)
        return ConvolutionMethod.WINOGRAD if fits and plain else ConvolutionMethod.GEMM

    def _bind(
        self,
        input: Tensor,
        weights: Tensor,
        biases: Tensor | None,
        output: Tensor,
        conv_info: PadStrideInfo,
        weights_info: WeightsInfo | None,
        dilation: Size2D | None,
        act_info: ActivationLayerInfo | None,
        enable_fast_math: bool,
        num_groups: int,
    ) -> None:
        infos = (input.info(), weights.info(), biases.info() if biases is not None else None, None)
        method = self.get_convolution_method(*infos, conv_info, weights_info, dilation, act_info, num_groups)
        part = self._part("Winograd" if method is ConvolutionMethod.WINOGRAD else "GEMM")
        if method is ConvolutionMethod.WINOGRAD:
            part.configure(input, weights, biases, output, conv_info, act_info, enable_fast_math)
        else:
            part.configure(input, weights, biases, output, conv_info, weights_info, dilation, act_info, num_groups)
        self._pipeline = part

    def _part(self, method: str) -> base.NeuralFunction:
        kind = self.class_of(f"NE{method}ConvolutionLayer")
        assert issubclass(kind, base.NeuralFunction), "the table says so"
        return kind(self._memory_manager, stages=self._stages)
