"""Vision functions of OpenCL: the CPU's, on tensors of a device.

In: `CLTensor`s. Out: `CLTensor`s. Invariant: arguments are those of the CPU's function (`functions/vision.py`), from
which each takes formula, options and refusals; the bytes are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary.compute.cl.kernels import CLFormulaKernel
from armillary.compute.cl.scheduler import CLScheduler
from armillary.compute.core.tensor_info import BorderMode
from armillary.compute.functions import vision
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import ExecutionError


class _OnDevice(vision.VisionFunction):
    """A formula over images of a device."""

    def __init__(self) -> None:
        super().__init__()
        self._device_kernel: CLFormulaKernel | None = None

    def _configure(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        border: BorderMode = BorderMode.UNDEFINED,
        constant: int = 0,
        options: tuple[Any, ...] = (),
    ) -> None:
        kernel = CLFormulaKernel(self.formula)
        kernel.configure(inputs, outputs, options, border, constant)  # type: ignore[arg-type]  # it checks them
        self._device_kernel = kernel

    def kernel(self) -> CLFormulaKernel:
        """The one kernel of this function."""
        if self._device_kernel is None:
            raise ExecutionError(f"{type(self).__name__} is not configured", hint="call configure first")
        return self._device_kernel

    def run(self) -> None:
        """Enqueue the kernel."""
        self.kernel().enqueue(CLScheduler.get().queue())


class CLGaussian3x3(_OnDevice, vision.NEGaussian3x3):
    """As `NEGaussian3x3`."""


class CLGaussian5x5(_OnDevice, vision.NEGaussian5x5):
    """As `NEGaussian5x5`."""


class CLBox3x3(_OnDevice, vision.NEBox3x3):
    """As `NEBox3x3`."""


class CLMedian3x3(_OnDevice, vision.NEMedian3x3):
    """As `NEMedian3x3`."""


class CLErode(_OnDevice, vision.NEErode):
    """As `NEErode`."""


class CLDilate(_OnDevice, vision.NEDilate):
    """As `NEDilate`."""


class CLSobel3x3(_OnDevice, vision.NESobel3x3):
    """As `NESobel3x3`."""


class CLConvolution3x3(_OnDevice, vision.NEConvolution3x3):
    """As `NEConvolution3x3`."""


class CLConvolution5x5(_OnDevice, vision.NEConvolution5x5):
    """As `NEConvolution5x5`."""


class CLAbsoluteDifference(_OnDevice, vision.NEAbsoluteDifference):
    """As `NEAbsoluteDifference`."""


class CLBitwiseAnd(_OnDevice, vision.NEBitwiseAnd):
    """As `NEBitwiseAnd`."""


class CLBitwiseOr(_OnDevice, vision.NEBitwiseOr):
    """As `NEBitwiseOr`."""


class CLBitwiseXor(_OnDevice, vision.NEBitwiseXor):
    """As `NEBitwiseXor`."""


class CLBitwiseNot(_OnDevice, vision.NEBitwiseNot):
    """As `NEBitwiseNot`."""


class CLThreshold(_OnDevice, vision.NEThreshold):
    """As `NEThreshold`."""


class CLScale(_OnDevice, vision.NEScale):
    """As `NEScale`."""
