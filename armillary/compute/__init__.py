"""The compute library: kernels over windows, schedulers, functions, after the architecture of Arm's library.

In: tensors with padding, and functions that are configured once and run often. Out: their outputs. Core (`core/`)
allocates nothing and starts no thread: windows, tensor information, kernels. `runtime/` has tensors, schedulers and
files; `functions/` has what users configure and run. Invariant: a kernel writes what its window covers and nothing
else, so any split of a window over any scheduler gives the same bytes. Kernels are compiled by our own compiler.
"""

from __future__ import annotations

import sys
import types

from armillary.base.lazy import deferred, lazy_names

with deferred():
    from armillary.te.api import compute as _compute

_CORE = {
    "layout": ("DataLayout", "DataLayoutDimension", "get_data_layout_dimension_index"),
    "window": ("Coordinates", "Dimension", "Steps", "Window"),
    "tensor_info": (
        "BorderMode",
        "BorderSize",
        "DataType",
        "Format",
        "PaddingSize",
        "QuantizationInfo",
        "TensorInfo",
        "TensorShape",
        "ValidRegion",
    ),
    "types": (
        "ActivationFunction",
        "ActivationLayerInfo",
        "ConvolutionMethod",
        "DimensionRoundingType",
        "FullyConnectedLayerInfo",
        "GEMMInfo",
        "NormalizationLayerInfo",
        "NormType",
        "PadStrideInfo",
        "PermutationVector",
        "PoolingLayerInfo",
        "PoolingType",
        "Size2D",
        "WeightsInfo",
    ),
    "kernel": ("CPUInfo", "ErrorCode", "IKernel", "Status", "ThreadInfo"),
    "iterator": ("Iterator", "execute_window_loop"),
}
_RUNTIME = {
    "tensor": ("Image", "MultiImage", "Tensor"),
    "scheduler": (
        "CPPScheduler",
        "IScheduler",
        "NEScheduler",
        "OMPScheduler",
        "Scheduler",
        "SingleThreadScheduler",
        "cpu_info",
    ),
    "ppm": ("PPMLoader", "save_to_ppm"),
    "memory.lifetime": ("BlobLifetimeManager", "ILifetimeManager", "OffsetLifetimeManager"),
    "memory.manager": ("CLMemoryGroup", "IMemoryManager", "MemoryGroup", "MemoryManagerOnDemand"),
    "memory.pool": ("Allocator", "BlobMemoryPool", "IAllocator", "OffsetMemoryPool", "PoolManager"),
}
_NAMES = {
    **{name: f"armillary.compute.core.{file}:{name}" for file, names in _CORE.items() for name in names},
    **{name: f"armillary.compute.runtime.{file}:{name}" for file, names in _RUNTIME.items() for name in names},
}
_VISION = {
    "arithmetic": (
        "Lut",
        "MagnitudeType",
        "NEAbsoluteDifference",
        "NEAccumulate",
        "NEAccumulateSquared",
        "NEAccumulateWeighted",
        "NEArithmeticAddition",
        "NEArithmeticSubtraction",
        "NEBitwiseAnd",
        "NEBitwiseNot",
        "NEBitwiseOr",
        "NEBitwiseXor",
        "NEMagnitude",
        "NEPhase",
        "NEPixelWiseMultiplication",
        "NETableLookup",
        "NEThreshold",
        "PhaseType",
        "ThresholdType",
    ),
    "colour": ("Channel", "NEChannelCombine", "NEChannelExtract", "NEColorConvert"),
    "base": ("ConvertPolicy", "InterpolationPolicy", "RoundingPolicy"),
    "filters": (
        "MatrixPattern",
        "NEBox3x3",
        "NEConvolution3x3",
        "NEConvolution5x5",
        "NEConvolution7x7",
        "NEConvolution9x9",
        "NEConvolutionRectangle",
        "NEDerivative",
        "NEDilate",
        "NEErode",
        "NEGaussian3x3",
        "NEGaussian5x5",
        "NEMedian3x3",
        "NENonLinearFilter",
        "NENonMaximaSuppression3x3",
        "NEScharr3x3",
        "NESobel3x3",
        "NESobel5x5",
        "NESobel7x7",
        "NonLinearFilterFunction",
    ),
    "detection": (
        "CPPDetectionWindowNonMaximaSuppression",
        "CPPDetectionWindowNonMaximaSuppressionKernel",
        "DetectionWindow",
    ),
    "features": ("KeyPoint", "NECannyEdge", "NEFastCorners", "NEHarrisCorners"),
    "flow": ("NEOpticalFlow", "Termination"),
    "hog": (
        "HOG",
        "HOGInfo",
        "HOGNormType",
        "MultiHOG",
        "NEHOGDescriptor",
        "NEHOGDetector",
        "NEHOGMultiDetection",
    ),
    "geometry": ("NERemap", "NEScale", "NEWarpAffine", "NEWarpPerspective"),
    "pyramid": (
        "NEGaussianPyramidHalf",
        "NEGaussianPyramidOrb",
        "NELaplacianPyramid",
        "NELaplacianReconstruct",
        "Pyramid",
        "SCALE_PYRAMID_HALF",
        "SCALE_PYRAMID_ORB",
    ),
    "statistics": (
        "Distribution1D",
        "NEEqualizeHistogram",
        "NEHistogram",
        "NEHistogramKernel",
        "NEIntegralImage",
        "NEMeanStdDev",
        "NEMinMaxLocation",
        "Scalar",
    ),
}
_NAMES |= {
    name: f"armillary.compute.functions.vision.{file}:{name}" for file, names in _VISION.items() for name in names
}
_NEURAL = {
    "convolution": (
        "NEConvolutionLayer",
        "NEDepthwiseConvolutionLayer",
        "NEDirectConvolutionLayer",
        "NEFFTConvolutionLayer",
        "NEGEMMConvolutionLayer",
        "NEWinogradConvolutionLayer",
    ),
    "layers": (
        "NEActivationLayer",
        "NEBatchNormalizationLayer",
        "NEDequantizationLayer",
        "NENormalizationLayer",
        "NEPoolingLayer",
        "NEQuantizationLayer",
        "NESoftmaxLayer",
    ),
    "product": ("NEFullyConnectedLayer", "NEGEMM", "NEGEMMLowpMatrixMultiplyCore"),
    "shape": (
        "NEConcatenateLayer",
        "NEDepthConcatenateLayer",
        "NEElementwiseAddition",
        "NEElementwiseMax",
        "NEElementwiseMin",
        "NEFlattenLayer",
        "NEHeightConcatenateLayer",
        "NEPermute",
        "NEReshapeLayer",
        "NEWidthConcatenateLayer",
    ),
}
_NAMES |= {name: f"armillary.compute.functions.nn.{file}:{name}" for file, names in _NEURAL.items() for name in names}
_DEVICE = {
    "scheduler": ("CLScheduler", "CommandQueue", "Context", "Event"),
    "tensor": ("CLBufferAllocator", "CLImage", "CLMultiImage", "CLTensor"),
    "tuner": ("CLTuner", "CLTunerMode"),
    "kernels": ("CLFormulaKernel", "CLKernelLibrary"),
    "features": (
        "CLCannyEdge",
        "CLFastCorners",
        "CLHOGDescriptor",
        "CLHOGDetector",
        "CLHOGMultiDetection",
        "CLHarrisCorners",
        "CLOpticalFlow",
    ),
    "pyramids": (
        "CLGaussianPyramidHalf",
        "CLGaussianPyramidOrb",
        "CLLaplacianPyramid",
        "CLLaplacianReconstruct",
        "CLPyramid",
    ),
    "statistics": ("CLEqualizeHistogram", "CLHistogram", "CLIntegralImage", "CLMeanStdDev", "CLMinMaxLocation"),
    "vision": (
        "CLAbsoluteDifference",
        "CLAccumulate",
        "CLAccumulateSquared",
        "CLAccumulateWeighted",
        "CLArithmeticAddition",
        "CLArithmeticSubtraction",
        "CLBitwiseAnd",
        "CLBitwiseNot",
        "CLBitwiseOr",
        "CLBitwiseXor",
        "CLBox3x3",
        "CLChannelCombine",
        "CLChannelExtract",
        "CLColorConvert",
        "CLConvolution3x3",
        "CLConvolution5x5",
        "CLConvolution7x7",
        "CLConvolution9x9",
        "CLConvolutionRectangle",
        "CLDerivative",
        "CLDilate",
        "CLErode",
        "CLGaussian3x3",
        "CLGaussian5x5",
        "CLLut",
        "CLMagnitude",
        "CLMedian3x3",
        "CLNonLinearFilter",
        "CLNonMaximaSuppression3x3",
        "CLPhase",
        "CLPixelWiseMultiplication",
        "CLRemap",
        "CLScale",
        "CLScharr3x3",
        "CLSobel3x3",
        "CLSobel5x5",
        "CLSobel7x7",
        "CLTableLookup",
        "CLThreshold",
        "CLWarpAffine",
        "CLWarpPerspective",
    ),
    "layers": (
        "CLActivationLayer",
        "CLBatchNormalizationLayer",
        "CLConcatenateLayer",
        "CLConvolutionLayer",
        "CLDepthConcatenateLayer",
        "CLDepthwiseConvolutionLayer",
        "CLDequantizationLayer",
        "CLDirectConvolutionLayer",
        "CLElementwiseAddition",
        "CLElementwiseMax",
        "CLElementwiseMin",
        "CLFFTConvolutionLayer",
        "CLFlattenLayer",
        "CLFullyConnectedLayer",
        "CLGEMM",
        "CLGEMMConvolutionLayer",
        "CLGEMMLowpMatrixMultiplyCore",
        "CLHeightConcatenateLayer",
        "CLNormalizationLayer",
        "CLPermute",
        "CLPoolingLayer",
        "CLQuantizationLayer",
        "CLReshapeLayer",
        "CLSoftmaxLayer",
        "CLWidthConcatenateLayer",
        "CLWinogradConvolutionLayer",
    ),
}
_NAMES |= {name: f"armillary.compute.cl.{file}:{name}" for file, names in _DEVICE.items() for name in names}
_NAMES["NEWinogradLayer"] = "armillary.compute.functions.nn.convolution:NEWinogradConvolutionLayer"
_NAMES["build"] = "armillary.compute.ahead.build:build"
_NAMES["CPPPermute"] = "armillary.compute.functions.nn.shape:NEPermute"
# The text's interfaces, each by the class that has its methods.
_NAMES |= {
    "ICPPKernel": _NAMES["IKernel"],
    "IFunction": "armillary.compute.graph.registry:IFunction",
    "IMemoryGroup": _NAMES["MemoryGroup"],
    "IMemoryPool": "armillary.compute.runtime.memory.pool:IMemoryPool",
    "INEKernel": _NAMES["IKernel"],
    "IPoolManager": _NAMES["PoolManager"],
    "ITensor": _NAMES["Tensor"],
    "ITensorInfo": _NAMES["TensorInfo"],
    "TensorAllocator": "armillary.compute.runtime.tensor:TensorAllocator",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)


class _Callable(types.ModuleType):
    """This module, which scripts of 0.6 call: `compute(shape, f)` was what `te.compute` is."""

    def __call__(self, *args: object, **options: object) -> object:
        return _compute(*args, **options)


sys.modules[__name__].__class__ = _Callable
