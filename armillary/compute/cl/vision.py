"""Vision functions of OpenCL: the CPU's, on tensors of a device.

In: `CLTensor`s. Out: `CLTensor`s. Invariant: arguments are those of the CPU's function (`functions/vision/`), from
which each takes formula, options and refusals; the bytes are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.compute.cl.kernels import CLFormulaKernel
from armillary.compute.cl.scheduler import CLScheduler
from armillary.compute.core.compiled import Formula, Numbers
from armillary.compute.core.tensor_info import BorderMode
from armillary.compute.functions.vision import arithmetic, base, filters, geometry
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import ExecutionError


class _OnDevice(base.VisionFunction):
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
        numbers: Numbers = (),
        formula: Formula | None = None,
    ) -> None:
        kernel = CLFormulaKernel(formula or self.formula)
        kernel.configure(inputs, outputs, numbers, border, constant)  # type: ignore[arg-type]  # it checks them
        self._device_kernel = kernel

    def kernel(self) -> CLFormulaKernel:
        """The one kernel of this function."""
        if self._device_kernel is None:
            raise ExecutionError(f"{type(self).__name__} is not configured", hint="call configure first")
        return self._device_kernel

    def run(self) -> None:
        """Enqueue the kernel."""
        self.kernel().enqueue(CLScheduler.get().queue())


class CLGaussian3x3(_OnDevice, filters.NEGaussian3x3):
    """As `NEGaussian3x3`."""


class CLGaussian5x5(_OnDevice, filters.NEGaussian5x5):
    """As `NEGaussian5x5`."""


class CLBox3x3(_OnDevice, filters.NEBox3x3):
    """As `NEBox3x3`."""


class CLMedian3x3(_OnDevice, filters.NEMedian3x3):
    """As `NEMedian3x3`."""


class CLErode(_OnDevice, filters.NEErode):
    """As `NEErode`."""


class CLDilate(_OnDevice, filters.NEDilate):
    """As `NEDilate`."""


class CLSobel3x3(_OnDevice, filters.NESobel3x3):
    """As `NESobel3x3`."""


class CLConvolution3x3(_OnDevice, filters.NEConvolution3x3):
    """As `NEConvolution3x3`."""


class CLConvolution5x5(_OnDevice, filters.NEConvolution5x5):
    """As `NEConvolution5x5`."""


class CLAbsoluteDifference(_OnDevice, arithmetic.NEAbsoluteDifference):
    """As `NEAbsoluteDifference`."""


class CLBitwiseAnd(_OnDevice, arithmetic.NEBitwiseAnd):
    """As `NEBitwiseAnd`."""


class CLBitwiseOr(_OnDevice, arithmetic.NEBitwiseOr):
    """As `NEBitwiseOr`."""


class CLBitwiseXor(_OnDevice, arithmetic.NEBitwiseXor):
    """As `NEBitwiseXor`."""


class CLBitwiseNot(_OnDevice, arithmetic.NEBitwiseNot):
    """As `NEBitwiseNot`."""


class CLThreshold(_OnDevice, arithmetic.NEThreshold):
    """As `NEThreshold`."""


class CLScale(_OnDevice, geometry.NEScale):
    """As `NEScale`."""


class CLSobel5x5(_OnDevice, filters.NESobel5x5):
    """As `NESobel5x5`."""


class CLSobel7x7(_OnDevice, filters.NESobel7x7):
    """As `NESobel7x7`."""


class CLDerivative(_OnDevice, filters.NEDerivative):
    """As `NEDerivative`."""


class CLConvolution7x7(_OnDevice, filters.NEConvolution7x7):
    """As `NEConvolution7x7`."""


class CLConvolution9x9(_OnDevice, filters.NEConvolution9x9):
    """As `NEConvolution9x9`."""


class CLConvolutionRectangle(_OnDevice, filters.NEConvolutionRectangle):
    """As `NEConvolutionRectangle`."""


class CLNonLinearFilter(_OnDevice, filters.NENonLinearFilter):
    """As `NENonLinearFilter`."""


class CLNonMaximaSuppression3x3(_OnDevice, filters.NENonMaximaSuppression3x3):
    """As `NENonMaximaSuppression3x3`."""


class CLAccumulate(_OnDevice, arithmetic.NEAccumulate):
    """As `NEAccumulate`."""


class CLAccumulateSquared(_OnDevice, arithmetic.NEAccumulateSquared):
    """As `NEAccumulateSquared`."""


class CLAccumulateWeighted(_OnDevice, arithmetic.NEAccumulateWeighted):
    """As `NEAccumulateWeighted`."""


class CLArithmeticAddition(_OnDevice, arithmetic.NEArithmeticAddition):
    """As `NEArithmeticAddition`."""


class CLArithmeticSubtraction(_OnDevice, arithmetic.NEArithmeticSubtraction):
    """As `NEArithmeticSubtraction`."""


class CLPixelWiseMultiplication(_OnDevice, arithmetic.NEPixelWiseMultiplication):
    """As `NEPixelWiseMultiplication`."""


class CLMagnitude(_OnDevice, arithmetic.NEMagnitude):
    """As `NEMagnitude`."""


class CLPhase(_OnDevice, arithmetic.NEPhase):
    """As `NEPhase`."""


class CLRemap(_OnDevice, geometry.NERemap):
    """As `NERemap`."""


class CLWarpAffine(_OnDevice, geometry.NEWarpAffine):
    """As `NEWarpAffine`."""


class CLWarpPerspective(_OnDevice, geometry.NEWarpPerspective):
    """As `NEWarpPerspective`."""
