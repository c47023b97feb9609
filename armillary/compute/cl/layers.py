"""Neural-network functions of OpenCL: the CPU's, on tensors of a device.

In: `CLTensor`s. Out: `CLTensor`s. Invariant: arguments and refusals are those of the CPU's functions
(`functions/nn/`); kernels are those that the compiler makes for OpenCL. Convolutions are GEMM, as the architecture text
has it for this side; the compiler may take Winograd's algorithm inside.
"""

from __future__ import annotations

from armillary.compute.cl.pipeline import CLPipeline
from armillary.compute.core.types import ConvolutionMethod
from armillary.compute.functions.nn import base, convolution, layers, product, shape


class _OnDevice(base.NeuralFunction):
    """A pipeline of a device."""

    _pipeline_type = CLPipeline


class CLGEMMConvolutionLayer(_OnDevice, convolution.NEGEMMConvolutionLayer):
    """As `NEGEMMConvolutionLayer`."""


class CLConvolutionLayer(CLGEMMConvolutionLayer):
    """The convolution that chooses a method: GEMM."""

    @staticmethod
    def get_convolution_method(*_: object, **__: object) -> ConvolutionMethod:  # as of the CPU's function
        """GEMM, whatever the tensors."""
        return ConvolutionMethod.GEMM


class CLDepthwiseConvolutionLayer(_OnDevice, convolution.NEDepthwiseConvolutionLayer):
    """As `NEDepthwiseConvolutionLayer`."""


class CLDirectConvolutionLayer(_OnDevice, convolution.NEDirectConvolutionLayer):
    """As `NEDirectConvolutionLayer`."""


class CLFFTConvolutionLayer(_OnDevice, convolution.NEFFTConvolutionLayer):
    """As `NEFFTConvolutionLayer`; the compiler chooses the algorithm."""


class CLFullyConnectedLayer(_OnDevice, product.NEFullyConnectedLayer):
    """As `NEFullyConnectedLayer`."""


class CLActivationLayer(_OnDevice, layers.NEActivationLayer):
    """As `NEActivationLayer`."""


class CLPoolingLayer(_OnDevice, layers.NEPoolingLayer):
    """As `NEPoolingLayer`."""


class CLSoftmaxLayer(_OnDevice, layers.NESoftmaxLayer):
    """As `NESoftmaxLayer`."""


class CLBatchNormalizationLayer(_OnDevice, layers.NEBatchNormalizationLayer):
    """As `NEBatchNormalizationLayer`."""


class CLNormalizationLayer(_OnDevice, layers.NENormalizationLayer):
    """As `NENormalizationLayer`."""


class CLPermute(_OnDevice, shape.NEPermute):
    """As `NEPermute`."""


class CLElementwiseAddition(_OnDevice, shape.NEElementwiseAddition):
    """As `NEElementwiseAddition`."""


class CLDepthConcatenateLayer(_OnDevice, shape.NEDepthConcatenateLayer):
    """As `NEDepthConcatenateLayer`."""


class CLWinogradConvolutionLayer(_OnDevice, convolution.NEWinogradConvolutionLayer):
    """As `NEWinogradConvolutionLayer`."""


class CLGEMM(_OnDevice, product.NEGEMM):
    """As `NEGEMM`."""


class CLGEMMLowpMatrixMultiplyCore(_OnDevice, product.NEGEMMLowpMatrixMultiplyCore):
    """As `NEGEMMLowpMatrixMultiplyCore`."""


class CLQuantizationLayer(_OnDevice, layers.NEQuantizationLayer):
    """As `NEQuantizationLayer`."""


class CLDequantizationLayer(_OnDevice, layers.NEDequantizationLayer):
    """As `NEDequantizationLayer`."""


class CLElementwiseMax(_OnDevice, shape.NEElementwiseMax):
    """As `NEElementwiseMax`."""


class CLElementwiseMin(_OnDevice, shape.NEElementwiseMin):
    """As `NEElementwiseMin`."""


class CLConcatenateLayer(_OnDevice, shape.NEConcatenateLayer):
    """As `NEConcatenateLayer`."""


class CLWidthConcatenateLayer(_OnDevice, shape.NEWidthConcatenateLayer):
    """As `NEWidthConcatenateLayer`."""


class CLHeightConcatenateLayer(_OnDevice, shape.NEHeightConcatenateLayer):
    """As `NEHeightConcatenateLayer`."""


class CLReshapeLayer(_OnDevice, shape.NEReshapeLayer):
    """As `NEReshapeLayer`."""


class CLFlattenLayer(_OnDevice, shape.NEFlattenLayer):
    """As `NEFlattenLayer`."""

    _reshape_type = CLReshapeLayer
