"""Neural-network functions of OpenCL: the CPU's (`functions/nn/`), on tensors of a device.

In: `CLTensor`s. Out: `CLTensor`s. Invariant: a function is the CPU's on `OnDevice`; kernels are those that the compiler
makes for OpenCL. Convolutions are GEMM, as the architecture text has it for this side; the compiler may take Winograd's
algorithm inside.
"""

from __future__ import annotations

from armillary.compute.cl.pipeline import CLPipeline
from armillary.compute.core.types import ConvolutionMethod
from armillary.compute.functions.nn import base, convolution


class OnDevice(base.NeuralFunction):
    """A pipeline of a device."""

    _pipeline_type = CLPipeline


class ConvolutionLayer(OnDevice, convolution.GEMMConvolutionLayer):
    """The convolution that chooses a method: GEMM."""

    @staticmethod
    def get_convolution_method(*_: object, **__: object) -> ConvolutionMethod:  # as of the CPU's function
        """GEMM, whatever the tensors."""
        return ConvolutionMethod.GEMM
