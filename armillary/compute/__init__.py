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
from armillary.compute.functions.signatures import ROWS

with deferred():
    from armillary.te.api import compute as _compute

# Names by the module that has them.
_PLACES = {
    "core.iterator": "Iterator execute_window_loop",
    "core.kernel": "CPUInfo ErrorCode IKernel Status ThreadInfo",
    "core.layout": "DataLayout DataLayoutDimension get_data_layout_dimension_index",
    "core.tensor_info": "BorderMode BorderSize DataType Format PaddingSize QuantizationInfo TensorInfo TensorShape "
    "ValidRegion",
    "core.types": "ActivationFunction ActivationLayerInfo Channel ConvertPolicy ConvolutionMethod "
    "DimensionRoundingType FullyConnectedLayerInfo GEMMInfo InterpolationPolicy MagnitudeType MatrixPattern "
    "NonLinearFilterFunction NormType NormalizationLayerInfo PadStrideInfo PermutationVector PhaseType "
    "PoolingLayerInfo PoolingType RoundingPolicy Size2D Termination ThresholdType WeightsInfo",
    "core.window": "Coordinates Dimension Steps Window",
    "runtime.memory.lifetime": "BlobLifetimeManager ILifetimeManager OffsetLifetimeManager",
    "runtime.memory.manager": "CLMemoryGroup IMemoryManager MemoryGroup MemoryManagerOnDemand",
    "runtime.memory.pool": "Allocator BlobMemoryPool IAllocator IMemoryPool OffsetMemoryPool PoolManager",
    "runtime.ppm": "PPMLoader save_to_ppm",
    "runtime.scheduler": "CPPScheduler IScheduler NEScheduler OMPScheduler Scheduler SingleThreadScheduler cpu_info",
    "runtime.tensor": "Image MultiImage Tensor TensorAllocator",
    "functions.vision.arithmetic": "Lut",
    "functions.vision.detection": "CPPDetectionWindowNonMaximaSuppression CPPDetectionWindowNonMaximaSuppressionKernel "
    "DetectionWindow",
    "functions.vision.features": "KeyPoint",
    "functions.vision.hog": "HOG HOGInfo HOGNormType MultiHOG",
    "functions.vision.pyramid": "Pyramid SCALE_PYRAMID_HALF SCALE_PYRAMID_ORB",
    "functions.vision.statistics": "Distribution1D NEHistogramKernel Scalar",
    "cl.kernels": "CLFormulaKernel CLKernelLibrary",
    "cl.pyramids": "CLPyramid",
    "cl.scheduler": "CLScheduler CommandQueue Context Event",
    "cl.tensor": "CLBufferAllocator CLImage CLMultiImage CLTensor",
    "cl.tuner": "CLTuner CLTunerMode",
    "cl.vision": "CLLut",
    "ahead.build": "build",
    "graph.registry": "IFunction",
    "classes": " ".join(f"NE{name} CL{name}" for name in ROWS),
}
_NAMES = {name: f"armillary.compute.{module}:{name}" for module, names in _PLACES.items() for name in names.split()}
# Other names: of the text, and its interfaces, each by the class that has its methods.
_OTHERS = {
    "CPPPermute": "NEPermute",
    "ICPPKernel": "IKernel",
    "IMemoryGroup": "MemoryGroup",
    "INEKernel": "IKernel",
    "IPoolManager": "PoolManager",
    "ITensor": "Tensor",
    "ITensorInfo": "TensorInfo",
    "NEWinogradLayer": "NEWinogradConvolutionLayer",
}
_NAMES |= {name: _NAMES[other] for name, other in _OTHERS.items()}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)


class _Callable(types.ModuleType):
    """This module, which scripts of 0.6 call: `compute(shape, f)` was what `te.compute` is."""

    def __call__(self, *args: object, **options: object) -> object:
        return _compute(*args, **options)


sys.modules[__name__].__class__ = _Callable
