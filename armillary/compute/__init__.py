"""The compute library: kernels over windows, schedulers, functions, after the architecture of Arm's library.

In: tensors with padding, and functions that are configured once and run often. Out: their outputs. Core (`core/`)
allocates nothing and starts no thread: windows, tensor information, kernels. `runtime/` has tensors, schedulers and
files; `functions/` has what users configure and run. Invariant: a kernel writes what its window covers and nothing
else, so any split of a window over any scheduler gives the same bytes. Kernels are compiled by our own compiler.
"""

from armillary.base.lazy import lazy_names

_CORE = {
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
    "kernel": ("CPUInfo", "IKernel", "Status", "ThreadInfo"),
    "iterator": ("Iterator", "execute_window_loop"),
}
_RUNTIME = {
    "tensor": ("Image", "Tensor"),
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
_FUNCTIONS = (
    "NEAbsoluteDifference",
    "NEBitwiseAnd",
    "NEBitwiseNot",
    "NEBitwiseOr",
    "NEBitwiseXor",
    "NEBox3x3",
    "NEConvolution3x3",
    "NEConvolution5x5",
    "NEDilate",
    "NEErode",
    "NEGaussian3x3",
    "NEGaussian5x5",
    "NEMedian3x3",
    "NEScale",
    "NESobel3x3",
    "NEThreshold",
)
_NAMES |= {name: f"armillary.compute.functions.vision:{name}" for name in _FUNCTIONS}
_NEURAL = {
    "convolution": (
        "NEConvolutionLayer",
        "NEDepthwiseConvolutionLayer",
        "NEDirectConvolutionLayer",
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
    "tensor": ("CLBufferAllocator", "CLImage", "CLTensor"),
    "tuner": ("CLTuner",),
    "kernels": ("CLFormulaKernel", "CLKernelLibrary"),
    "vision": (
        "CLAbsoluteDifference",
        "CLBitwiseAnd",
        "CLBitwiseNot",
        "CLBitwiseOr",
        "CLBitwiseXor",
        "CLBox3x3",
        "CLConvolution3x3",
        "CLConvolution5x5",
        "CLDilate",
        "CLErode",
        "CLGaussian3x3",
        "CLGaussian5x5",
        "CLMedian3x3",
        "CLScale",
        "CLSobel3x3",
        "CLThreshold",
    ),
    "layers": (
        "CLActivationLayer",
        "CLBatchNormalizationLayer",
        "CLConvolutionLayer",
        "CLDepthConcatenateLayer",
        "CLDepthwiseConvolutionLayer",
        "CLDirectConvolutionLayer",
        "CLElementwiseAddition",
        "CLFullyConnectedLayer",
        "CLGEMMConvolutionLayer",
        "CLNormalizationLayer",
        "CLPermute",
        "CLPoolingLayer",
        "CLSoftmaxLayer",
    ),
}
_NAMES |= {name: f"armillary.compute.cl.{file}:{name}" for file, names in _DEVICE.items() for name in names}
_NAMES["NEWinogradLayer"] = "armillary.compute.functions.nn.convolution:NEWinogradConvolutionLayer"
_NAMES["CPPPermute"] = "armillary.compute.functions.nn.shape:NEPermute"
_NAMES["InterpolationPolicy"] = "armillary.compute.functions.vision:InterpolationPolicy"
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
