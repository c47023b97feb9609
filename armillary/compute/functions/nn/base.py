"""What every neural-network function does: compile, prepare, run.

In: tensors and options. Out: the tensors that the function writes. Invariant: an output without information gets the
one that fits. Checks here return a text, "" where nothing is wrong. Kernels: `compiled.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Protocol

from armillary import relay
from armillary.compute.core.kernel import IKernel
from armillary.compute.core.layout import DataLayout, from_nchw
from armillary.compute.core.tensor_info import DataType, QuantizationInfo, TensorInfo, TensorShape
from armillary.compute.core.types import ActivationFunction, ActivationLayerInfo
from armillary.compute.functions.configured import ConfiguredFunction
from armillary.compute.functions.nn.body import Body, Build, ImageShape, Node
from armillary.compute.functions.nn.compiled import Pipeline
from armillary.compute.runtime.memory.manager import MemoryManagerOnDemand
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import ExecutionError


class RunsKernels(Protocol):
    """A pipeline, of the CPU or of a device."""

    @property
    def body(self) -> Body:
        """What is computed, as an expression."""

    def kernels(self) -> tuple[IKernel, ...]:
        """What a run does, in order."""

    def prepare(self) -> None:
        """Pack the weights."""

    def run(self) -> None:
        """Compute the output."""


class NeuralFunction(ConfiguredFunction):
    """A function over one compiled pipeline."""

    _pipeline_type: ClassVar[Callable[..., RunsKernels]] = Pipeline

    def __init__(self, memory_manager: MemoryManagerOnDemand | None = None, *, stages: bool = False) -> None:
        """`stages`: kernels that are scheduled one by one in place of the compiler's fused ones."""
        self._memory_manager, self._stages = memory_manager, stages
        self._pipeline: RunsKernels | None = None

    def _compile(
        self,
        inputs: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
        output: Tensor,
        build: Build,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Set the pipeline; `build` takes a variable for each input and weight, of its shape or that in `shapes`."""
        body = Body(inputs, weights, output, build, shapes)
        self._pipeline = self._pipeline_type(body, config or {}, self._memory_manager)

    def _configured(self) -> RunsKernels:
        if self._pipeline is None:
            raise ExecutionError(f"{type(self).__name__} is not configured", hint="call configure first")
        return self._pipeline

    @property
    def body(self) -> Body:
        """What is computed, as an expression over the tensors."""
        return self._configured().body

    def kernels(self) -> tuple[IKernel, ...]:
        """The kernels of a run, in order; prepares the function."""
        return self._configured().kernels()

    def prepare(self) -> None:
        """Pack the weights, once; the first run does it otherwise."""
        self._configured().prepare()

    def run(self) -> None:
        """Compute the output."""
        self._configured().run()


def wrong_rank(info: TensorInfo, most: int = 4) -> str:
    """An objection to the number of dimensions of the input."""
    rank = info.num_dimensions()
    return f"the input has {rank} dimensions, wanted at most {most}" if rank > most else ""


def wrong_scales(output: TensorInfo | None, *factors: TensorInfo) -> str:
    """An objection to scales: products of `factors` become the output's values by a multiplier of 31 bits."""
    infos = (*factors, *((output,) if output is not None else ()))
    if not all(info.data_type.is_quantized for info in infos):
        return ""
    every = [info.quantization_info().all_scales() for info in infos]
    for row in (list(scales) for scales in itertools.product(*every)):
        if any(not 0 < scale < math.inf for scale in row):
            return f"scales are {row}, wanted positive numbers"
        target = row.pop() if output is not None else row[0]
        ratio = math.prod(row) / target
        if not 2.0**-31 <= ratio < 2.0**31:
            return f"a ratio of scales is {ratio:g}, wanted within 2^-31 and 2^31"
    return ""


def wrong_channel_scales(what: str, info: TensorInfo, channels: int) -> str:
    """An objection to how many scales there are, and to an offset beside them."""
    quantization, is_many = info.quantization_info(), info.data_type is DataType.QSYMM8_PER_CHANNEL
    wanted = channels if is_many else 0
    if len(quantization.scales) != wanted:
        return f"{what} of {info.data_type.name} has {len(quantization.scales)} scales of channels, wanted {wanted}"
    return (
        f"{what} of {info.data_type.name} has the offset {quantization.offset}"
        if is_many and quantization.offset
        else ""
    )


def wrong_quantization(what: str, info: TensorInfo | None, wanted: TensorInfo) -> str:
    """An objection to a scale and an offset that are not those of another tensor."""
    if info is None or not wanted.data_type.is_quantized or info.quantization_info() == wanted.quantization_info():
        return ""
    return f"{what} has {info.quantization_info()}, wanted {wanted.quantization_info()}"


def init_output(
    output: Tensor,
    shape: Iterable[int],
    kind: DataType,
    quantization: QuantizationInfo | None = None,
    layout: DataLayout = DataLayout.NCHW,
) -> None:
    """Give an output without information the one that fits; `shape` is in the order of `layout`."""
    if not output.has_info() and min(shape := tuple(shape)) > 0:
        output.allocator().init(TensorInfo(TensorShape(*shape), 1, kind, quantization or QuantizationInfo(), layout))


def init_like(output: Tensor, input: TensorInfo, *nchw: int) -> None:
    """Give an output without information the input's type and layout; `nchw`: its (width, height, channels, …)."""
    layout = input.data_layout()
    shape = from_nchw(layout, nchw) if nchw else input.shape
    init_output(output, shape, input.data_type, input.quantization_info(), layout)


def wrong_layout(what: str, info: TensorInfo | None, wanted: TensorInfo) -> str:
    """An objection to a layout that is not the input's."""
    if info is None or info.data_layout() is wanted.data_layout():
        return ""
    return f"{what} has the layout {info.data_layout().name}, the input {wanted.data_layout().name}"


def nchw(info: TensorInfo) -> ImageShape:
    """Batch, channels, height, width, whatever the layout."""
    info = info.in_nchw()
    return ImageShape((info.dimension(3), info.dimension(2), info.dimension(1), info.dimension(0)))


def activated(value: Node, info: ActivationLayerInfo | None) -> Node:
    """An activation behind a value."""
    if info is None or info.activation is None:
        return value
    a, b = (relay.const(v, "float32") for v in (info.a, info.b))
    zero, one = relay.const(0.0, "float32"), relay.const(1.0, "float32")
    match info.activation:
        case ActivationFunction.LOGISTIC:
            return relay.sigmoid(value)
        case ActivationFunction.TANH:
            return a * relay.tanh(b * value)
        case ActivationFunction.RELU:
            return relay.nn.relu(value)
        case ActivationFunction.BOUNDED_RELU:
            return relay.minimum(a, relay.maximum(zero, value))
        case ActivationFunction.LU_BOUNDED_RELU:
            return relay.minimum(a, relay.maximum(b, value))
        case ActivationFunction.LEAKY_RELU:
            return relay.where(relay.greater(value, zero), value, a * value)
        case ActivationFunction.SOFT_RELU:
            return relay.log(one + relay.exp(value))
        case ActivationFunction.ELU:
            return relay.where(relay.greater_equal(value, zero), value, a * (relay.exp(value) - one))
        case ActivationFunction.ABS:
            return relay.abs(value)
        case ActivationFunction.SQUARE:
            return value * value
        case ActivationFunction.SQRT:
            return relay.sqrt(value)
        case ActivationFunction.LINEAR:
            return a * value + b
        case ActivationFunction.HARD_SWISH:
            six, three = relay.const(6.0, "float32"), relay.const(3.0, "float32")
            return value * relay.minimum(six, relay.maximum(zero, value + three)) / six
    return value
