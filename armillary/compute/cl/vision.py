"""Vision functions of OpenCL: the CPU's, on tensors of a device.

In: `CLTensor`s. Out: `CLTensor`s. Invariant: a function is the CPU's (`functions/vision/`) on `OnDevice`; the bytes are
the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from armillary.compute.cl.kernels import CLFormulaKernel
from armillary.compute.cl.loops import CLLoopsKernel
from armillary.compute.cl.scheduler import CLScheduler, CommandQueue
from armillary.compute.cl.tensor import CLImage, CLTensor
from armillary.compute.core.compiled import Formula, Numbers
from armillary.compute.core.kernel import IKernel
from armillary.compute.core.loops import Loops
from armillary.compute.core.tensor_info import DataType, Format, TensorInfo, ValidRegion
from armillary.compute.core.window import Window
from armillary.compute.functions.configured import Border
from armillary.compute.functions.vision import arithmetic, base
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

    side: ClassVar[str] = "CL"
    tensor_type: ClassVar[type[Tensor]] = CLTensor

    def _step(
        self,
        formula: Formula,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        border: Border = base.NO_BORDER,
        numbers: Numbers = (),
        region: ValidRegion | None = None,
    ) -> list[IKernel]:
        kernel = CLFormulaKernel(formula)
        kernel.configure(inputs, outputs, numbers, *border, region)  # type: ignore[arg-type]  # it checks them
        return [kernel]

    def _loops(self, loops: Loops, tensors: Sequence[Tensor]) -> IKernel:
        kernel = CLLoopsKernel(loops)
        kernel.configure(tensors)  # type: ignore[arg-type]  # it checks them
        return kernel

    def _work(self, kernels: Sequence[IKernel]) -> base.RunsKernels:
        return DeviceWork(kernels)

    def _image(self, width: int, height: int, kind: Format | DataType) -> Tensor:
        return device_image(width, height, kind)

    def kernel(self) -> CLFormulaKernel:
        """The kernel of a function that has one alone."""
        (kernel,) = self.kernels()
        assert isinstance(kernel, CLFormulaKernel), "functions of one kernel have a formula"
        return kernel


class CLLut(arithmetic.Lut):
    """As `Lut`, in the device's memory."""

    def _image(self, width: int, kind: DataType) -> Tensor:
        return device_image(width, 1, kind)
