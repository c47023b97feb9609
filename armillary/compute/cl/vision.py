"""Vision functions of OpenCL: the CPU's, on tensors of a device.

In: `CLTensor`s. Out: `CLTensor`s. Invariant: arguments are those of the CPU's function (`functions/vision/`), from
which each takes formula, options and refusals; the bytes are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from armillary.compute.cl.kernels import CLFormulaKernel
from armillary.compute.cl.loops import CLLoopsKernel
from armillary.compute.cl.scheduler import CLScheduler, CommandQueue
from armillary.compute.cl.tensor import CLImage, CLTensor
from armillary.compute.core.compiled import Formula, Numbers
from armillary.compute.core.kernel import IKernel
from armillary.compute.core.loops import Loops
from armillary.compute.core.tensor_info import BorderMode, DataType, Format, TensorInfo, ValidRegion
from armillary.compute.core.window import Window
from armillary.compute.functions.vision import arithmetic, base, colour, filters, geometry
from armillary.compute.runtime.tensor import Tensor


class DeviceKernel(Protocol):
    """A kernel of a device."""

    def enqueue(self, queue: CommandQueue, window: Window | None = None) -> None:
        """Enqueue it over a window."""


class DeviceWork:
    """Kernels that are enqueued one after another."""

    def __init__(self, kernels: Sequence[IKernel]) -> None:
        self._kernels = tuple(kernels)
        self._device: tuple[DeviceKernel, ...] = tuple(kernels)  # type: ignore[arg-type]  # all of them are

    def kernels(self) -> tuple[IKernel, ...]:
        """All of them."""
        return self._kernels

    def run(self) -> None:
        """Enqueue them."""
        queue = CLScheduler.get().queue()
        for kernel in self._device:
            kernel.enqueue(queue)


def device_image(width: int, height: int, kind: Format | DataType) -> CLImage:
    """An image of a device, whose memory is to come."""
    result = CLImage()
    result.allocator().init(TensorInfo(width, height, kind))
    return result


class OnDevice(base.VisionFunction):
    """A function whose images and kernels are of a device."""

    def _step(
        self,
        formula: Formula,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        border: BorderMode = BorderMode.UNDEFINED,
        constant: float = 0,
        numbers: Numbers = (),
        region: ValidRegion | None = None,
    ) -> list[IKernel]:
        kernel = CLFormulaKernel(formula)
        kernel.configure(inputs, outputs, numbers, border, constant, region)  # type: ignore[arg-type]  # it checks them
        return [kernel]

    def _loops(self, loops: Loops, tensors: Sequence[Tensor]) -> IKernel:
        kernel = CLLoopsKernel(loops)
        kernel.configure(tensors)  # type: ignore[arg-type]  # it checks them
        return kernel

    def _work(self, kernels: Sequence[IKernel]) -> base.RunsKernels:
        return DeviceWork(kernels)

    def _image(self, width: int, height: int, kind: Format | DataType) -> Tensor:
        return device_image(width, height, kind)

    def _part(self, function: type[base.Function]) -> base.Function:
        result: base.Function = PARTS[function]()  # a subclass of it
        return result

    def kernel(self) -> CLFormulaKernel:
        """The kernel of a function that has one alone."""
        (kernel,) = self.kernels()
        assert isinstance(kernel, CLFormulaKernel), "functions of one kernel have a formula"
        return kernel


class CLGaussian3x3(OnDevice, filters.NEGaussian3x3):
    """As `NEGaussian3x3`."""


class CLGaussian5x5(OnDevice, filters.NEGaussian5x5):
    """As `NEGaussian5x5`."""


class CLBox3x3(OnDevice, filters.NEBox3x3):
    """As `NEBox3x3`."""


class CLMedian3x3(OnDevice, filters.NEMedian3x3):
    """As `NEMedian3x3`."""


class CLErode(OnDevice, filters.NEErode):
    """As `NEErode`."""


class CLDilate(OnDevice, filters.NEDilate):
    """As `NEDilate`."""


class CLSobel3x3(OnDevice, filters.NESobel3x3):
    """As `NESobel3x3`."""


class CLConvolution3x3(OnDevice, filters.NEConvolution3x3):
    """As `NEConvolution3x3`."""


class CLConvolution5x5(OnDevice, filters.NEConvolution5x5):
    """As `NEConvolution5x5`."""


class CLAbsoluteDifference(OnDevice, arithmetic.NEAbsoluteDifference):
    """As `NEAbsoluteDifference`."""


class CLBitwiseAnd(OnDevice, arithmetic.NEBitwiseAnd):
    """As `NEBitwiseAnd`."""


class CLBitwiseOr(OnDevice, arithmetic.NEBitwiseOr):
    """As `NEBitwiseOr`."""


class CLBitwiseXor(OnDevice, arithmetic.NEBitwiseXor):
    """As `NEBitwiseXor`."""


class CLBitwiseNot(OnDevice, arithmetic.NEBitwiseNot):
    """As `NEBitwiseNot`."""


class CLThreshold(OnDevice, arithmetic.NEThreshold):
    """As `NEThreshold`."""


class CLScale(OnDevice, geometry.NEScale):
    """As `NEScale`."""


class CLSobel5x5(OnDevice, filters.NESobel5x5):
    """As `NESobel5x5`."""


class CLSobel7x7(OnDevice, filters.NESobel7x7):
    """As `NESobel7x7`."""


class CLDerivative(OnDevice, filters.NEDerivative):
    """As `NEDerivative`."""


class CLConvolution7x7(OnDevice, filters.NEConvolution7x7):
    """As `NEConvolution7x7`."""


class CLConvolution9x9(OnDevice, filters.NEConvolution9x9):
    """As `NEConvolution9x9`."""


class CLConvolutionRectangle(OnDevice, filters.NEConvolutionRectangle):
    """As `NEConvolutionRectangle`."""


class CLNonLinearFilter(OnDevice, filters.NENonLinearFilter):
    """As `NENonLinearFilter`."""


class CLNonMaximaSuppression3x3(OnDevice, filters.NENonMaximaSuppression3x3):
    """As `NENonMaximaSuppression3x3`."""


class CLAccumulate(OnDevice, arithmetic.NEAccumulate):
    """As `NEAccumulate`."""


class CLAccumulateSquared(OnDevice, arithmetic.NEAccumulateSquared):
    """As `NEAccumulateSquared`."""


class CLAccumulateWeighted(OnDevice, arithmetic.NEAccumulateWeighted):
    """As `NEAccumulateWeighted`."""


class CLArithmeticAddition(OnDevice, arithmetic.NEArithmeticAddition):
    """As `NEArithmeticAddition`."""


class CLArithmeticSubtraction(OnDevice, arithmetic.NEArithmeticSubtraction):
    """As `NEArithmeticSubtraction`."""


class CLPixelWiseMultiplication(OnDevice, arithmetic.NEPixelWiseMultiplication):
    """As `NEPixelWiseMultiplication`."""


class CLMagnitude(OnDevice, arithmetic.NEMagnitude):
    """As `NEMagnitude`."""


class CLPhase(OnDevice, arithmetic.NEPhase):
    """As `NEPhase`."""


class CLRemap(OnDevice, geometry.NERemap):
    """As `NERemap`."""


class CLWarpAffine(OnDevice, geometry.NEWarpAffine):
    """As `NEWarpAffine`."""


class CLWarpPerspective(OnDevice, geometry.NEWarpPerspective):
    """As `NEWarpPerspective`."""


class CLScharr3x3(OnDevice, filters.NEScharr3x3):
    """As `NEScharr3x3`."""


class CLColorConvert(OnDevice, colour.NEColorConvert):
    """As `NEColorConvert`."""


class CLChannelExtract(OnDevice, colour.NEChannelExtract):
    """As `NEChannelExtract`."""


class CLChannelCombine(OnDevice, colour.NEChannelCombine):
    """As `NEChannelCombine`."""


class CLLut(arithmetic.Lut):
    """As `Lut`, in the device's memory."""

    def _image(self, width: int, kind: DataType) -> Tensor:
        return device_image(width, 1, kind)


class CLTableLookup(OnDevice, arithmetic.NETableLookup):
    """As `NETableLookup`, with a `CLLut`."""


# What functions are made of, with what takes its place on a device.
PARTS: dict[type, type] = {
    Tensor: CLTensor,
    filters.NEDerivative: CLDerivative,
    filters.NEGaussian5x5: CLGaussian5x5,
    filters.NENonMaximaSuppression3x3: CLNonMaximaSuppression3x3,
    filters.NEScharr3x3: CLScharr3x3,
    filters.NESobel3x3: CLSobel3x3,
    filters.NESobel5x5: CLSobel5x5,
    filters.NESobel7x7: CLSobel7x7,
    arithmetic.NEArithmeticAddition: CLArithmeticAddition,
    arithmetic.NEArithmeticSubtraction: CLArithmeticSubtraction,
    arithmetic.NEMagnitude: CLMagnitude,
    arithmetic.NEPhase: CLPhase,
    geometry.NEScale: CLScale,
}
