"""Names of `armillary.compute` for type checkers. Written by tools/write_docs.py; do not edit."""

from armillary.compute.functions.signatures import ROWS as ROWS
from armillary.compute.core.types import ActivationFunction as ActivationFunction
from armillary.compute.core.types import ActivationLayerInfo as ActivationLayerInfo
from armillary.compute.runtime.memory.pool import Allocator as Allocator
from armillary.compute.runtime.memory.lifetime import BlobLifetimeManager as BlobLifetimeManager
from armillary.compute.runtime.memory.pool import BlobMemoryPool as BlobMemoryPool
from armillary.compute.core.tensor_info import BorderMode as BorderMode
from armillary.compute.core.tensor_info import BorderSize as BorderSize
from armillary.compute.cl.tensor import CLBufferAllocator as CLBufferAllocator
from armillary.compute.cl.kernels import CLFormulaKernel as CLFormulaKernel
from armillary.compute.cl.tensor import CLImage as CLImage
from armillary.compute.cl.kernels import CLKernelLibrary as CLKernelLibrary
from armillary.compute.cl.vision import CLLut as CLLut
from armillary.compute.runtime.memory.manager import CLMemoryGroup as CLMemoryGroup
from armillary.compute.cl.tensor import CLMultiImage as CLMultiImage
from armillary.compute.cl.pyramids import CLPyramid as CLPyramid
from armillary.compute.cl.scheduler import CLScheduler as CLScheduler
from armillary.compute.cl.tensor import CLTensor as CLTensor
from armillary.compute.cl.tuner import CLTuner as CLTuner
from armillary.compute.cl.tuner import CLTunerMode as CLTunerMode
from armillary.compute.functions.vision.detection import CPPDetectionWindowNonMaximaSuppression as CPPDetectionWindowNonMaximaSuppression
from armillary.compute.functions.vision.detection import CPPDetectionWindowNonMaximaSuppressionKernel as CPPDetectionWindowNonMaximaSuppressionKernel
from armillary.compute.runtime.scheduler import CPPScheduler as CPPScheduler
from armillary.compute.core.kernel import CPUInfo as CPUInfo
from armillary.compute.core.types import Channel as Channel
from armillary.compute.cl.scheduler import CommandQueue as CommandQueue
from armillary.compute.cl.scheduler import Context as Context
from armillary.compute.core.types import ConvertPolicy as ConvertPolicy
from armillary.compute.core.types import ConvolutionMethod as ConvolutionMethod
from armillary.compute.core.window import Coordinates as Coordinates
from armillary.compute.core.layout import DataLayout as DataLayout
from armillary.compute.core.layout import DataLayoutDimension as DataLayoutDimension
from armillary.compute.core.tensor_info import DataType as DataType
from armillary.compute.functions.vision.detection import DetectionWindow as DetectionWindow
from armillary.compute.core.window import Dimension as Dimension
from armillary.compute.core.types import DimensionRoundingType as DimensionRoundingType
from armillary.compute.functions.vision.statistics import Distribution1D as Distribution1D
from armillary.compute.core.kernel import ErrorCode as ErrorCode
from armillary.compute.cl.scheduler import Event as Event
from armillary.compute.core.tensor_info import Format as Format
from armillary.compute.core.types import FullyConnectedLayerInfo as FullyConnectedLayerInfo
from armillary.compute.core.types import GEMMInfo as GEMMInfo
from armillary.compute.functions.vision.hog import HOG as HOG
from armillary.compute.functions.vision.hog import HOGInfo as HOGInfo
from armillary.compute.functions.vision.hog import HOGNormType as HOGNormType
from armillary.compute.runtime.memory.pool import IAllocator as IAllocator
from armillary.compute.core.kernel import IKernel as ICPPKernel
from armillary.compute.graph.registry import IFunction as IFunction
from armillary.compute.core.kernel import IKernel as IKernel
from armillary.compute.runtime.memory.lifetime import ILifetimeManager as ILifetimeManager
from armillary.compute.runtime.memory.manager import MemoryGroup as IMemoryGroup
from armillary.compute.runtime.memory.manager import IMemoryManager as IMemoryManager
from armillary.compute.runtime.memory.pool import IMemoryPool as IMemoryPool
from armillary.compute.core.kernel import IKernel as INEKernel
from armillary.compute.runtime.memory.pool import PoolManager as IPoolManager
from armillary.compute.runtime.scheduler import IScheduler as IScheduler
from armillary.compute.runtime.tensor import Tensor as ITensor
from armillary.compute.core.tensor_info import TensorInfo as ITensorInfo
from armillary.compute.runtime.tensor import Image as Image
from armillary.compute.core.types import InterpolationPolicy as InterpolationPolicy
from armillary.compute.core.iterator import Iterator as Iterator
from armillary.compute.functions.vision.features import KeyPoint as KeyPoint
from armillary.compute.functions.vision.arithmetic import Lut as Lut
from armillary.compute.core.types import MagnitudeType as MagnitudeType
from armillary.compute.core.types import MatrixPattern as MatrixPattern
from armillary.compute.runtime.memory.manager import MemoryGroup as MemoryGroup
from armillary.compute.runtime.memory.manager import MemoryManagerOnDemand as MemoryManagerOnDemand
from armillary.compute.functions.vision.hog import MultiHOG as MultiHOG
from armillary.compute.runtime.tensor import MultiImage as MultiImage
from armillary.compute.functions.vision.statistics import NEHistogramKernel as NEHistogramKernel
from armillary.compute.runtime.scheduler import NEScheduler as NEScheduler
from armillary.compute.core.types import NonLinearFilterFunction as NonLinearFilterFunction
from armillary.compute.core.types import NormType as NormType
from armillary.compute.core.types import NormalizationLayerInfo as NormalizationLayerInfo
from armillary.compute.runtime.scheduler import OMPScheduler as OMPScheduler
from armillary.compute.runtime.memory.lifetime import OffsetLifetimeManager as OffsetLifetimeManager
from armillary.compute.runtime.memory.pool import OffsetMemoryPool as OffsetMemoryPool
from armillary.compute.runtime.ppm import PPMLoader as PPMLoader
from armillary.compute.core.types import PadStrideInfo as PadStrideInfo
from armillary.compute.core.tensor_info import PaddingSize as PaddingSize
from armillary.compute.core.types import PermutationVector as PermutationVector
from armillary.compute.core.types import PhaseType as PhaseType
from armillary.compute.runtime.memory.pool import PoolManager as PoolManager
from armillary.compute.core.types import PoolingLayerInfo as PoolingLayerInfo
from armillary.compute.core.types import PoolingType as PoolingType
from armillary.compute.functions.vision.pyramid import Pyramid as Pyramid
from armillary.compute.core.tensor_info import QuantizationInfo as QuantizationInfo
from armillary.compute.core.types import RoundingPolicy as RoundingPolicy
from armillary.compute.functions.vision.pyramid import SCALE_PYRAMID_HALF as SCALE_PYRAMID_HALF
from armillary.compute.functions.vision.pyramid import SCALE_PYRAMID_ORB as SCALE_PYRAMID_ORB
from armillary.compute.functions.vision.statistics import Scalar as Scalar
from armillary.compute.runtime.scheduler import Scheduler as Scheduler
from armillary.compute.runtime.scheduler import SingleThreadScheduler as SingleThreadScheduler
from armillary.compute.core.types import Size2D as Size2D
from armillary.compute.core.kernel import Status as Status
from armillary.compute.core.window import Steps as Steps
from armillary.compute.runtime.tensor import Tensor as Tensor
from armillary.compute.runtime.tensor import TensorAllocator as TensorAllocator
from armillary.compute.core.tensor_info import TensorInfo as TensorInfo
from armillary.compute.core.tensor_info import TensorShape as TensorShape
from armillary.compute.core.types import Termination as Termination
from armillary.compute.core.kernel import ThreadInfo as ThreadInfo
from armillary.compute.core.types import ThresholdType as ThresholdType
from armillary.compute.core.tensor_info import ValidRegion as ValidRegion
from armillary.compute.core.types import WeightsInfo as WeightsInfo
from armillary.compute.core.window import Window as Window
from armillary.compute.ahead.build import build as build
from armillary.compute.runtime.scheduler import cpu_info as cpu_info
from armillary.compute.core.iterator import execute_window_loop as execute_window_loop
from armillary.compute.core.layout import get_data_layout_dimension_index as get_data_layout_dimension_index
from armillary.compute.runtime.ppm import save_to_ppm as save_to_ppm
import armillary.compute.cl.features as _cl_features
import armillary.compute.cl.layers as _cl_layers
import armillary.compute.cl.pyramids as _cl_pyramids
import armillary.compute.cl.statistics as _cl_statistics
import armillary.compute.cl.vision as _cl_vision
import armillary.compute.functions.nn.convolution as _nn_convolution
import armillary.compute.functions.nn.layers as _nn_layers
import armillary.compute.functions.nn.product as _nn_product
import armillary.compute.functions.nn.shape as _nn_shape
import armillary.compute.functions.vision.arithmetic as _vision_arithmetic
import armillary.compute.functions.vision.colour as _vision_colour
import armillary.compute.functions.vision.features as _vision_features
import armillary.compute.functions.vision.filters as _vision_filters
import armillary.compute.functions.vision.flow as _vision_flow
import armillary.compute.functions.vision.geometry as _vision_geometry
import armillary.compute.functions.vision.hog as _vision_hog
import armillary.compute.functions.vision.pyramid as _vision_pyramid
import armillary.compute.functions.vision.statistics as _vision_statistics
from collections.abc import Sequence as Sequence

__all__ = [
    "ActivationFunction",
    "ActivationLayerInfo",
    "Allocator",
    "BlobLifetimeManager",
    "BlobMemoryPool",
    "BorderMode",
    "BorderSize",
    "CLAbsoluteDifference",
    "CLAccumulate",
    "CLAccumulateSquared",
    "CLAccumulateWeighted",
    "CLActivationLayer",
    "CLArithmeticAddition",
    "CLArithmeticSubtraction",
    "CLBatchNormalizationLayer",
    "CLBitwiseAnd",
    "CLBitwiseNot",
    "CLBitwiseOr",
    "CLBitwiseXor",
    "CLBox3x3",
    "CLBufferAllocator",
    "CLCannyEdge",
    "CLChannelCombine",
    "CLChannelExtract",
    "CLColorConvert",
    "CLConcatenateLayer",
    "CLConvolution3x3",
    "CLConvolution5x5",
    "CLConvolution7x7",
    "CLConvolution9x9",
    "CLConvolutionLayer",
    "CLConvolutionRectangle",
    "CLDepthConcatenateLayer",
    "CLDepthwiseConvolutionLayer",
    "CLDequantizationLayer",
    "CLDerivative",
    "CLDilate",
    "CLDirectConvolutionLayer",
    "CLElementwiseAddition",
    "CLElementwiseMax",
    "CLElementwiseMin",
    "CLEqualizeHistogram",
    "CLErode",
    "CLFFTConvolutionLayer",
    "CLFastCorners",
    "CLFlattenLayer",
    "CLFormulaKernel",
    "CLFullyConnectedLayer",
    "CLGEMM",
    "CLGEMMConvolutionLayer",
    "CLGEMMLowpMatrixMultiplyCore",
    "CLGaussian3x3",
    "CLGaussian5x5",
    "CLGaussianPyramidHalf",
    "CLGaussianPyramidOrb",
    "CLHOGDescriptor",
    "CLHOGDetector",
    "CLHOGMultiDetection",
    "CLHarrisCorners",
    "CLHeightConcatenateLayer",
    "CLHistogram",
    "CLImage",
    "CLIntegralImage",
    "CLKernelLibrary",
    "CLLaplacianPyramid",
    "CLLaplacianReconstruct",
    "CLLut",
    "CLMagnitude",
    "CLMeanStdDev",
    "CLMedian3x3",
    "CLMemoryGroup",
    "CLMinMaxLocation",
    "CLMultiImage",
    "CLNonLinearFilter",
    "CLNonMaximaSuppression3x3",
    "CLNormalizationLayer",
    "CLOpticalFlow",
    "CLPermute",
    "CLPhase",
    "CLPixelWiseMultiplication",
    "CLPoolingLayer",
    "CLPyramid",
    "CLQuantizationLayer",
    "CLRemap",
    "CLReshapeLayer",
    "CLScale",
    "CLScharr3x3",
    "CLScheduler",
    "CLSobel3x3",
    "CLSobel5x5",
    "CLSobel7x7",
    "CLSoftmaxLayer",
    "CLTableLookup",
    "CLTensor",
    "CLThreshold",
    "CLTuner",
    "CLTunerMode",
    "CLWarpAffine",
    "CLWarpPerspective",
    "CLWidthConcatenateLayer",
    "CLWinogradConvolutionLayer",
    "CPPDetectionWindowNonMaximaSuppression",
    "CPPDetectionWindowNonMaximaSuppressionKernel",
    "CPPPermute",
    "CPPScheduler",
    "CPUInfo",
    "Channel",
    "CommandQueue",
    "Context",
    "ConvertPolicy",
    "ConvolutionMethod",
    "Coordinates",
    "DataLayout",
    "DataLayoutDimension",
    "DataType",
    "DetectionWindow",
    "Dimension",
    "DimensionRoundingType",
    "Distribution1D",
    "ErrorCode",
    "Event",
    "Format",
    "FullyConnectedLayerInfo",
    "GEMMInfo",
    "HOG",
    "HOGInfo",
    "HOGNormType",
    "IAllocator",
    "ICPPKernel",
    "IFunction",
    "IKernel",
    "ILifetimeManager",
    "IMemoryGroup",
    "IMemoryManager",
    "IMemoryPool",
    "INEKernel",
    "IPoolManager",
    "IScheduler",
    "ITensor",
    "ITensorInfo",
    "Image",
    "InterpolationPolicy",
    "Iterator",
    "KeyPoint",
    "Lut",
    "MagnitudeType",
    "MatrixPattern",
    "MemoryGroup",
    "MemoryManagerOnDemand",
    "MultiHOG",
    "MultiImage",
    "NEAbsoluteDifference",
    "NEAccumulate",
    "NEAccumulateSquared",
    "NEAccumulateWeighted",
    "NEActivationLayer",
    "NEArithmeticAddition",
    "NEArithmeticSubtraction",
    "NEBatchNormalizationLayer",
    "NEBitwiseAnd",
    "NEBitwiseNot",
    "NEBitwiseOr",
    "NEBitwiseXor",
    "NEBox3x3",
    "NECannyEdge",
    "NEChannelCombine",
    "NEChannelExtract",
    "NEColorConvert",
    "NEConcatenateLayer",
    "NEConvolution3x3",
    "NEConvolution5x5",
    "NEConvolution7x7",
    "NEConvolution9x9",
    "NEConvolutionLayer",
    "NEConvolutionRectangle",
    "NEDepthConcatenateLayer",
    "NEDepthwiseConvolutionLayer",
    "NEDequantizationLayer",
    "NEDerivative",
    "NEDilate",
    "NEDirectConvolutionLayer",
    "NEElementwiseAddition",
    "NEElementwiseMax",
    "NEElementwiseMin",
    "NEEqualizeHistogram",
    "NEErode",
    "NEFFTConvolutionLayer",
    "NEFastCorners",
    "NEFlattenLayer",
    "NEFullyConnectedLayer",
    "NEGEMM",
    "NEGEMMConvolutionLayer",
    "NEGEMMLowpMatrixMultiplyCore",
    "NEGaussian3x3",
    "NEGaussian5x5",
    "NEGaussianPyramidHalf",
    "NEGaussianPyramidOrb",
    "NEHOGDescriptor",
    "NEHOGDetector",
    "NEHOGMultiDetection",
    "NEHarrisCorners",
    "NEHeightConcatenateLayer",
    "NEHistogram",
    "NEHistogramKernel",
    "NEIntegralImage",
    "NELaplacianPyramid",
    "NELaplacianReconstruct",
    "NEMagnitude",
    "NEMeanStdDev",
    "NEMedian3x3",
    "NEMinMaxLocation",
    "NENonLinearFilter",
    "NENonMaximaSuppression3x3",
    "NENormalizationLayer",
    "NEOpticalFlow",
    "NEPermute",
    "NEPhase",
    "NEPixelWiseMultiplication",
    "NEPoolingLayer",
    "NEQuantizationLayer",
    "NERemap",
    "NEReshapeLayer",
    "NEScale",
    "NEScharr3x3",
    "NEScheduler",
    "NESobel3x3",
    "NESobel5x5",
    "NESobel7x7",
    "NESoftmaxLayer",
    "NETableLookup",
    "NEThreshold",
    "NEWarpAffine",
    "NEWarpPerspective",
    "NEWidthConcatenateLayer",
    "NEWinogradConvolutionLayer",
    "NEWinogradLayer",
    "NonLinearFilterFunction",
    "NormType",
    "NormalizationLayerInfo",
    "OMPScheduler",
    "OffsetLifetimeManager",
    "OffsetMemoryPool",
    "PPMLoader",
    "PadStrideInfo",
    "PaddingSize",
    "PermutationVector",
    "PhaseType",
    "PoolManager",
    "PoolingLayerInfo",
    "PoolingType",
    "Pyramid",
    "QuantizationInfo",
    "ROWS",
    "RoundingPolicy",
    "SCALE_PYRAMID_HALF",
    "SCALE_PYRAMID_ORB",
    "Scalar",
    "Scheduler",
    "Sequence",
    "SingleThreadScheduler",
    "Size2D",
    "Status",
    "Steps",
    "Tensor",
    "TensorAllocator",
    "TensorInfo",
    "TensorShape",
    "Termination",
    "ThreadInfo",
    "ThresholdType",
    "ValidRegion",
    "WeightsInfo",
    "Window",
    "build",
    "cpu_info",
    "execute_window_loop",
    "get_data_layout_dimension_index",
    "save_to_ppm",
]

class NEGaussian3x3(_vision_filters.Filter):
    """Smooths with 1 2 1 / 2 4 2 / 1 2 1, divided by 16."""

    def configure(self, input: Tensor, output: Tensor, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLGaussian3x3(_cl_vision.OnDevice, _vision_filters.Filter):
    """Smooths with 1 2 1 / 2 4 2 / 1 2 1, divided by 16."""

    def configure(self, input: Tensor, output: Tensor, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEGaussian5x5(_vision_filters.Filter):
    """Smooths with the product of 1 4 6 4 1 with itself, divided by 256."""

    def configure(self, input: Tensor, output: Tensor, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLGaussian5x5(_cl_vision.OnDevice, _vision_filters.Filter):
    """Smooths with the product of 1 4 6 4 1 with itself, divided by 256."""

    def configure(self, input: Tensor, output: Tensor, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEBox3x3(_vision_filters.Filter):
    """The mean of 3x3 pixels."""

    def configure(self, input: Tensor, output: Tensor, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLBox3x3(_cl_vision.OnDevice, _vision_filters.Filter):
    """The mean of 3x3 pixels."""

    def configure(self, input: Tensor, output: Tensor, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEMedian3x3(_vision_filters.Filter):
    """The median of 3x3 pixels."""

    def configure(self, input: Tensor, output: Tensor, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLMedian3x3(_cl_vision.OnDevice, _vision_filters.Filter):
    """The median of 3x3 pixels."""

    def configure(self, input: Tensor, output: Tensor, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEErode(_vision_filters.Filter):
    """The least of 3x3 pixels."""

    def configure(self, input: Tensor, output: Tensor, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLErode(_cl_vision.OnDevice, _vision_filters.Filter):
    """The least of 3x3 pixels."""

    def configure(self, input: Tensor, output: Tensor, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEDilate(_vision_filters.Filter):
    """The greatest of 3x3 pixels."""

    def configure(self, input: Tensor, output: Tensor, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLDilate(_cl_vision.OnDevice, _vision_filters.Filter):
    """The greatest of 3x3 pixels."""

    def configure(self, input: Tensor, output: Tensor, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NESobel3x3(_vision_filters.Gradient):
    """Gradients by 3x3 pixels, as S16."""

    def configure(self, input: Tensor, output_x: Tensor | None, output_y: Tensor | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output_x: TensorInfo | None, output_y: TensorInfo | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLSobel3x3(_cl_vision.OnDevice, _vision_filters.Gradient):
    """Gradients by 3x3 pixels, as S16."""

    def configure(self, input: Tensor, output_x: Tensor | None, output_y: Tensor | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output_x: TensorInfo | None, output_y: TensorInfo | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NESobel5x5(_vision_filters.Gradient):
    """Gradients by 5x5 pixels, as S16."""

    def configure(self, input: Tensor, output_x: Tensor | None, output_y: Tensor | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output_x: TensorInfo | None, output_y: TensorInfo | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLSobel5x5(_cl_vision.OnDevice, _vision_filters.Gradient):
    """Gradients by 5x5 pixels, as S16."""

    def configure(self, input: Tensor, output_x: Tensor | None, output_y: Tensor | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output_x: TensorInfo | None, output_y: TensorInfo | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NESobel7x7(_vision_filters.Gradient):
    """Gradients by 7x7 pixels, as S32."""

    def configure(self, input: Tensor, output_x: Tensor | None, output_y: Tensor | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output_x: TensorInfo | None, output_y: TensorInfo | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLSobel7x7(_cl_vision.OnDevice, _vision_filters.Gradient):
    """Gradients by 7x7 pixels, as S32."""

    def configure(self, input: Tensor, output_x: Tensor | None, output_y: Tensor | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output_x: TensorInfo | None, output_y: TensorInfo | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEScharr3x3(_vision_filters.Gradient):
    """Gradients by 3x3 pixels with the weights 3 10 3, as S16."""

    def configure(self, input: Tensor, output_x: Tensor | None, output_y: Tensor | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output_x: TensorInfo | None, output_y: TensorInfo | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLScharr3x3(_cl_vision.OnDevice, _vision_filters.Gradient):
    """Gradients by 3x3 pixels with the weights 3 10 3, as S16."""

    def configure(self, input: Tensor, output_x: Tensor | None, output_y: Tensor | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output_x: TensorInfo | None, output_y: TensorInfo | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEDerivative(_vision_filters.Gradient):
    """Differences of the pixels on both sides, as S16."""

    def configure(self, input: Tensor, output_x: Tensor | None, output_y: Tensor | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output_x: TensorInfo | None, output_y: TensorInfo | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLDerivative(_cl_vision.OnDevice, _vision_filters.Gradient):
    """Differences of the pixels on both sides, as S16."""

    def configure(self, input: Tensor, output_x: Tensor | None, output_y: Tensor | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output_x: TensorInfo | None, output_y: TensorInfo | None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEConvolution3x3(_vision_filters.Matrix):
    """A matrix of 3x3, by rows; `scale` 0 is the sum of its values (1 where that is 0)."""

    def configure(self, input: Tensor, output: Tensor, conv: Sequence[float], scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, conv: Sequence[float], scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLConvolution3x3(_cl_vision.OnDevice, _vision_filters.Matrix):
    """A matrix of 3x3, by rows; `scale` 0 is the sum of its values (1 where that is 0)."""

    def configure(self, input: Tensor, output: Tensor, conv: Sequence[float], scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, conv: Sequence[float], scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEConvolution5x5(_vision_filters.Matrix):
    """A matrix of 5x5, by rows; `scale` 0 is the sum of its values (1 where that is 0)."""

    def configure(self, input: Tensor, output: Tensor, conv: Sequence[float], scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, conv: Sequence[float], scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLConvolution5x5(_cl_vision.OnDevice, _vision_filters.Matrix):
    """A matrix of 5x5, by rows; `scale` 0 is the sum of its values (1 where that is 0)."""

    def configure(self, input: Tensor, output: Tensor, conv: Sequence[float], scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, conv: Sequence[float], scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEConvolution7x7(_vision_filters.Matrix):
    """A matrix of 7x7, by rows; `scale` 0 is the sum of its values (1 where that is 0)."""

    def configure(self, input: Tensor, output: Tensor, conv: Sequence[float], scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, conv: Sequence[float], scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLConvolution7x7(_cl_vision.OnDevice, _vision_filters.Matrix):
    """A matrix of 7x7, by rows; `scale` 0 is the sum of its values (1 where that is 0)."""

    def configure(self, input: Tensor, output: Tensor, conv: Sequence[float], scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, conv: Sequence[float], scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEConvolution9x9(_vision_filters.Matrix):
    """A matrix of 9x9, by rows; `scale` 0 is the sum of its values (1 where that is 0)."""

    def configure(self, input: Tensor, output: Tensor, conv: Sequence[float], scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, conv: Sequence[float], scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLConvolution9x9(_cl_vision.OnDevice, _vision_filters.Matrix):
    """A matrix of 9x9, by rows; `scale` 0 is the sum of its values (1 where that is 0)."""

    def configure(self, input: Tensor, output: Tensor, conv: Sequence[float], scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, conv: Sequence[float], scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEConvolutionRectangle(_vision_filters.ConvolutionRectangle):
    """A matrix whose sides are 3, 5, 7 or 9, by rows; `scale` 0 is the sum of its values (1 where that is 0)."""

    def configure(self, input: Tensor, output: Tensor, conv: Sequence[float], rows: int, cols: int, scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, conv: Sequence[float], rows: int, cols: int, scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLConvolutionRectangle(_cl_vision.OnDevice, _vision_filters.ConvolutionRectangle):
    """A matrix whose sides are 3, 5, 7 or 9, by rows; `scale` 0 is the sum of its values (1 where that is 0)."""

    def configure(self, input: Tensor, output: Tensor, conv: Sequence[float], rows: int, cols: int, scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, conv: Sequence[float], rows: int, cols: int, scale: int = 0, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NENonLinearFilter(_vision_filters.NonLinearFilter):
    """The least, greatest or middle pixel under a mask of 3x3 or 5x5."""

    def configure(self, input: Tensor, output: Tensor, func: NonLinearFilterFunction, mask_size: int = 3, pattern: MatrixPattern = ..., mask: Sequence[float] | None = None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, func: NonLinearFilterFunction, mask_size: int = 3, pattern: MatrixPattern = ..., mask: Sequence[float] | None = None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLNonLinearFilter(_cl_vision.OnDevice, _vision_filters.NonLinearFilter):
    """The least, greatest or middle pixel under a mask of 3x3 or 5x5."""

    def configure(self, input: Tensor, output: Tensor, func: NonLinearFilterFunction, mask_size: int = 3, pattern: MatrixPattern = ..., mask: Sequence[float] | None = None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, func: NonLinearFilterFunction, mask_size: int = 3, pattern: MatrixPattern = ..., mask: Sequence[float] | None = None, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NENonMaximaSuppression3x3(_vision_filters.NonMaximaSuppression3x3):
    """Pixels that are larger than all around; others become 0. Beside a CONSTANT border are zeros."""

    def configure(self, input: Tensor, output: Tensor, border_mode: BorderMode = ...) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, border_mode: BorderMode = ...) -> Status: ...

class CLNonMaximaSuppression3x3(_cl_vision.OnDevice, _vision_filters.NonMaximaSuppression3x3):
    """Pixels that are larger than all around; others become 0. Beside a CONSTANT border are zeros."""

    def configure(self, input: Tensor, output: Tensor, border_mode: BorderMode = ...) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, border_mode: BorderMode = ...) -> Status: ...

class NEAbsoluteDifference(_vision_arithmetic.AbsoluteDifference):
    """|a - b|, of U8 or S16."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo) -> Status: ...

class CLAbsoluteDifference(_cl_vision.OnDevice, _vision_arithmetic.AbsoluteDifference):
    """|a - b|, of U8 or S16."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo) -> Status: ...

class NEBitwiseAnd(_vision_arithmetic.Pairwise):
    """a and b, bit by bit."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo) -> Status: ...

class CLBitwiseAnd(_cl_vision.OnDevice, _vision_arithmetic.Pairwise):
    """a and b, bit by bit."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo) -> Status: ...

class NEBitwiseOr(_vision_arithmetic.Pairwise):
    """a or b, bit by bit."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo) -> Status: ...

class CLBitwiseOr(_cl_vision.OnDevice, _vision_arithmetic.Pairwise):
    """a or b, bit by bit."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo) -> Status: ...

class NEBitwiseXor(_vision_arithmetic.Pairwise):
    """a or b but not both, bit by bit."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo) -> Status: ...

class CLBitwiseXor(_cl_vision.OnDevice, _vision_arithmetic.Pairwise):
    """a or b but not both, bit by bit."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo) -> Status: ...

class NEBitwiseNot(_vision_arithmetic.BitwiseNot):
    """Every bit the other way."""

    def configure(self, input: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo) -> Status: ...

class CLBitwiseNot(_cl_vision.OnDevice, _vision_arithmetic.BitwiseNot):
    """Every bit the other way."""

    def configure(self, input: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo) -> Status: ...

class NEThreshold(_vision_arithmetic.Threshold):
    """One value for pixels above a threshold (RANGE: from it to `upper`, both included), another one for the rest."""

    def configure(self, input: Tensor, output: Tensor, threshold: int, false_value: int = 0, true_value: int = 255, type: ThresholdType = ..., upper: int = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, threshold: int, false_value: int = 0, true_value: int = 255, type: ThresholdType = ..., upper: int = 0) -> Status: ...

class CLThreshold(_cl_vision.OnDevice, _vision_arithmetic.Threshold):
    """One value for pixels above a threshold (RANGE: from it to `upper`, both included), another one for the rest."""

    def configure(self, input: Tensor, output: Tensor, threshold: int, false_value: int = 0, true_value: int = 255, type: ThresholdType = ..., upper: int = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, threshold: int, false_value: int = 0, true_value: int = 255, type: ThresholdType = ..., upper: int = 0) -> Status: ...

class NEAccumulate(_vision_arithmetic.Accumulate):
    """accum += input, saturated to S16."""

    def configure(self, input: Tensor, accum: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, accum: TensorInfo) -> Status: ...

class CLAccumulate(_cl_vision.OnDevice, _vision_arithmetic.Accumulate):
    """accum += input, saturated to S16."""

    def configure(self, input: Tensor, accum: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, accum: TensorInfo) -> Status: ...

class NEAccumulateSquared(_vision_arithmetic.AccumulateSquared):
    """accum += input * input >> shift, saturated to S16."""

    def configure(self, input: Tensor, shift: int, accum: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, shift: int, accum: TensorInfo) -> Status: ...

class CLAccumulateSquared(_cl_vision.OnDevice, _vision_arithmetic.AccumulateSquared):
    """accum += input * input >> shift, saturated to S16."""

    def configure(self, input: Tensor, shift: int, accum: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, shift: int, accum: TensorInfo) -> Status: ...

class NEAccumulateWeighted(_vision_arithmetic.AccumulateWeighted):
    """accum = (1 - alpha) * accum + alpha * input, without its fraction."""

    def configure(self, input: Tensor, alpha: float, accum: Tensor, use_fp16: bool = False) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, alpha: float, accum: TensorInfo, use_fp16: bool = False) -> Status: ...

class CLAccumulateWeighted(_cl_vision.OnDevice, _vision_arithmetic.AccumulateWeighted):
    """accum = (1 - alpha) * accum + alpha * input, without its fraction."""

    def configure(self, input: Tensor, alpha: float, accum: Tensor, use_fp16: bool = False) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, alpha: float, accum: TensorInfo, use_fp16: bool = False) -> Status: ...

class NEArithmeticAddition(_vision_arithmetic.Sum):
    """a + b."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor, policy: ConvertPolicy = ...) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo, policy: ConvertPolicy = ...) -> Status: ...

class CLArithmeticAddition(_cl_vision.OnDevice, _vision_arithmetic.Sum):
    """a + b."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor, policy: ConvertPolicy = ...) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo, policy: ConvertPolicy = ...) -> Status: ...

class NEArithmeticSubtraction(_vision_arithmetic.Sum):
    """a - b."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor, policy: ConvertPolicy = ...) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo, policy: ConvertPolicy = ...) -> Status: ...

class CLArithmeticSubtraction(_cl_vision.OnDevice, _vision_arithmetic.Sum):
    """a - b."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor, policy: ConvertPolicy = ...) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo, policy: ConvertPolicy = ...) -> Status: ...

class NEPixelWiseMultiplication(_vision_arithmetic.PixelWiseMultiplication):
    """a * b * scale; scales are 1/2^n (n up to 15, rounded to zero) and 1/255 (rounded to nearest, even)."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor, scale: float = 1.0, overflow_policy: ConvertPolicy = ..., rounding_policy: RoundingPolicy = ...) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo, scale: float = 1.0, overflow_policy: ConvertPolicy = ..., rounding_policy: RoundingPolicy = ...) -> Status: ...

class CLPixelWiseMultiplication(_cl_vision.OnDevice, _vision_arithmetic.PixelWiseMultiplication):
    """a * b * scale; scales are 1/2^n (n up to 15, rounded to zero) and 1/255 (rounded to nearest, even)."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor, scale: float = 1.0, overflow_policy: ConvertPolicy = ..., rounding_policy: RoundingPolicy = ...) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo, scale: float = 1.0, overflow_policy: ConvertPolicy = ..., rounding_policy: RoundingPolicy = ...) -> Status: ...

class NEMagnitude(_vision_arithmetic.Magnitude):
    """How long a gradient is, along x and y."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor, mag_type: MagnitudeType = ...) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo, mag_type: MagnitudeType = ...) -> Status: ...

class CLMagnitude(_cl_vision.OnDevice, _vision_arithmetic.Magnitude):
    """How long a gradient is, along x and y."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor, mag_type: MagnitudeType = ...) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo, mag_type: MagnitudeType = ...) -> Status: ...

class NEPhase(_vision_arithmetic.Phase):
    """Where a gradient along x and y points."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor, phase_type: PhaseType = ...) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo, phase_type: PhaseType = ...) -> Status: ...

class CLPhase(_cl_vision.OnDevice, _vision_arithmetic.Phase):
    """Where a gradient along x and y points."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor, phase_type: PhaseType = ...) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo, phase_type: PhaseType = ...) -> Status: ...

class NETableLookup(_vision_arithmetic.TableLookup):
    """Every pixel as a table says, whose values may change between runs; a pixel without an entry stays."""

    def configure(self, input: Tensor, lut: Lut, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, lut: Lut, output: TensorInfo) -> Status: ...

class CLTableLookup(_cl_vision.OnDevice, _vision_arithmetic.TableLookup):
    """Every pixel as a table says, whose values may change between runs; a pixel without an entry stays."""

    def configure(self, input: Tensor, lut: Lut, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, lut: Lut, output: TensorInfo) -> Status: ...

class NEColorConvert(_vision_colour.ColorConvert):
    """The same image in another format; formats say what is converted to what."""

    def configure(self, input: Tensor | MultiImage, output: Tensor | MultiImage) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo | MultiImage, output: TensorInfo | MultiImage) -> Status: ...

class CLColorConvert(_cl_vision.OnDevice, _vision_colour.ColorConvert):
    """The same image in another format; formats say what is converted to what."""

    def configure(self, input: Tensor | MultiImage, output: Tensor | MultiImage) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo | MultiImage, output: TensorInfo | MultiImage) -> Status: ...

class NEChannelExtract(_vision_colour.ChannelExtract):
    """One channel of an image, as U8; chroma of half size stays so."""

    def configure(self, input: Tensor | MultiImage, channel: Channel, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo | MultiImage, channel: Channel, output: TensorInfo) -> Status: ...

class CLChannelExtract(_cl_vision.OnDevice, _vision_colour.ChannelExtract):
    """One channel of an image, as U8; chroma of half size stays so."""

    def configure(self, input: Tensor | MultiImage, channel: Channel, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo | MultiImage, channel: Channel, output: TensorInfo) -> Status: ...

class NEChannelCombine(_vision_colour.ChannelCombine):
    """Planes of one channel (R, G, B, A or Y, U, V) as one image; the fourth is None but for RGBA8888."""

    def configure(self, plane0: Tensor, plane1: Tensor, plane2: Tensor, plane3: Tensor | None, output: Tensor | MultiImage) -> None: ...
    @classmethod
    def validate(cls, plane0: TensorInfo, plane1: TensorInfo, plane2: TensorInfo, plane3: TensorInfo | None, output: TensorInfo | MultiImage) -> Status: ...

class CLChannelCombine(_cl_vision.OnDevice, _vision_colour.ChannelCombine):
    """Planes of one channel (R, G, B, A or Y, U, V) as one image; the fourth is None but for RGBA8888."""

    def configure(self, plane0: Tensor, plane1: Tensor, plane2: Tensor, plane3: Tensor | None, output: Tensor | MultiImage) -> None: ...
    @classmethod
    def validate(cls, plane0: TensorInfo, plane1: TensorInfo, plane2: TensorInfo, plane3: TensorInfo | None, output: TensorInfo | MultiImage) -> Status: ...

class NEScale(_vision_geometry.Scale):
    """Another size: by the nearest pixel, between four, or the mean of a box; AREA to a larger size is the nearest."""

    def configure(self, input: Tensor, output: Tensor, policy: InterpolationPolicy = ..., border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, policy: InterpolationPolicy = ..., border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLScale(_cl_vision.OnDevice, _vision_geometry.Scale):
    """Another size: by the nearest pixel, between four, or the mean of a box; AREA to a larger size is the nearest."""

    def configure(self, input: Tensor, output: Tensor, policy: InterpolationPolicy = ..., border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, policy: InterpolationPolicy = ..., border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NERemap(_vision_geometry.Remap):
    """The pixel at the place that two maps of F32 say."""

    def configure(self, input: Tensor, map_x: Tensor, map_y: Tensor, output: Tensor, policy: InterpolationPolicy = ..., border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, map_x: TensorInfo, map_y: TensorInfo, output: TensorInfo, policy: InterpolationPolicy = ..., border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLRemap(_cl_vision.OnDevice, _vision_geometry.Remap):
    """The pixel at the place that two maps of F32 say."""

    def configure(self, input: Tensor, map_x: Tensor, map_y: Tensor, output: Tensor, policy: InterpolationPolicy = ..., border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, map_x: TensorInfo, map_y: TensorInfo, output: TensorInfo, policy: InterpolationPolicy = ..., border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEWarpAffine(_vision_geometry.Warp):
    """By six numbers, by columns as in OpenVX: from places of the output to those of the input."""

    def configure(self, input: Tensor, output: Tensor, matrix: Sequence[float], policy: InterpolationPolicy = ..., border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, matrix: Sequence[float], policy: InterpolationPolicy = ..., border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLWarpAffine(_cl_vision.OnDevice, _vision_geometry.Warp):
    """By six numbers, by columns as in OpenVX: from places of the output to those of the input."""

    def configure(self, input: Tensor, output: Tensor, matrix: Sequence[float], policy: InterpolationPolicy = ..., border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, matrix: Sequence[float], policy: InterpolationPolicy = ..., border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEWarpPerspective(_vision_geometry.Warp):
    """By nine numbers, by columns as in OpenVX; places are divided by the third row's."""

    def configure(self, input: Tensor, output: Tensor, matrix: Sequence[float], policy: InterpolationPolicy = ..., border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, matrix: Sequence[float], policy: InterpolationPolicy = ..., border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLWarpPerspective(_cl_vision.OnDevice, _vision_geometry.Warp):
    """By nine numbers, by columns as in OpenVX; places are divided by the third row's."""

    def configure(self, input: Tensor, output: Tensor, matrix: Sequence[float], policy: InterpolationPolicy = ..., border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, matrix: Sequence[float], policy: InterpolationPolicy = ..., border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEHistogram(_vision_statistics.Histogram):
    """How many pixels fall in each bin."""

    def configure(self, input: Tensor, output: Distribution1D) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo) -> Status: ...

class CLHistogram(_cl_statistics.OnDevice, _vision_statistics.Histogram):
    """How many pixels fall in each bin."""

    def configure(self, input: Tensor, output: Distribution1D) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo) -> Status: ...

class NEEqualizeHistogram(_vision_statistics.EqualizeHistogram):
    """Values by how many pixels are at most as bright."""

    def configure(self, input: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo) -> Status: ...

class CLEqualizeHistogram(_cl_statistics.EqualizeHistogram):
    """Values by how many pixels are at most as bright."""

    def configure(self, input: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo) -> Status: ...

class NEMeanStdDev(_vision_statistics.MeanStdDev):
    """The mean and the standard deviation of all pixels."""

    def configure(self, input: Tensor, mean: Scalar, stddev: Scalar | None = None) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo) -> Status: ...

class CLMeanStdDev(_cl_statistics.OnDevice, _vision_statistics.MeanStdDev):
    """The mean and the standard deviation of all pixels."""

    def configure(self, input: Tensor, mean: Scalar, stddev: Scalar | None = None) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo) -> Status: ...

class NEMinMaxLocation(_vision_statistics.MinMaxLocation):
    """The least and the greatest value, how often they are there, and where (x, y)."""

    def configure(self, input: Tensor, min: Scalar, max: Scalar, min_loc: list[tuple[int, int]] | None = None, max_loc: list[tuple[int, int]] | None = None, min_count: Scalar | None = None, max_count: Scalar | None = None) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo) -> Status: ...

class CLMinMaxLocation(_cl_statistics.OnDevice, _vision_statistics.MinMaxLocation):
    """The least and the greatest value, how often they are there, and where (x, y)."""

    def configure(self, input: Tensor, min: Scalar, max: Scalar, min_loc: list[tuple[int, int]] | None = None, max_loc: list[tuple[int, int]] | None = None, min_count: Scalar | None = None, max_count: Scalar | None = None) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo) -> Status: ...

class NEIntegralImage(_vision_statistics.IntegralImage):
    """The sum of all valid pixels above and to the left, a pixel's own included, as U32."""

    def configure(self, input: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo) -> Status: ...

class CLIntegralImage(_cl_statistics.IntegralImage):
    """The sum of all valid pixels above and to the left, a pixel's own included, as U32."""

    def configure(self, input: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo) -> Status: ...

class NEFastCorners(_vision_features.FastCorners):
    """Corners by 9 of 16 pixels on a circle that are all brighter or all darker than the middle by a threshold."""

    def configure(self, input: Tensor, threshold: float, nonmax_suppression: bool, corners: list[KeyPoint], border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, threshold: float, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLFastCorners(_cl_vision.OnDevice, _vision_features.FastCorners):
    """Corners by 9 of 16 pixels on a circle that are all brighter or all darker than the middle by a threshold."""

    def configure(self, input: Tensor, threshold: float, nonmax_suppression: bool, corners: list[KeyPoint], border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, threshold: float, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEHarrisCorners(_vision_features.HarrisCorners):
    """Corners by the matrix of gradients in a block, the strongest first, at least a distance apart."""

    def configure(self, input: Tensor, threshold: float, min_dist: float, sensitivity: float, gradient_size: int, block_size: int, corners: list[KeyPoint], border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, threshold: float, min_dist: float, gradient_size: int, block_size: int, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLHarrisCorners(_cl_vision.OnDevice, _vision_features.HarrisCorners):
    """Corners by the matrix of gradients in a block, the strongest first, at least a distance apart."""

    def configure(self, input: Tensor, threshold: float, min_dist: float, sensitivity: float, gradient_size: int, block_size: int, corners: list[KeyPoint], border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, threshold: float, min_dist: float, gradient_size: int, block_size: int, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NECannyEdge(_vision_features.CannyEdge):
    """Edges: crests of the gradient (norm 1: L1, 2: L2) above a threshold, and what hangs on to them above a lower one."""

    def configure(self, input: Tensor, output: Tensor, upper_thr: int, lower_thr: int, gradient_size: int, norm_type: int, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, upper_thr: int, lower_thr: int, gradient_size: int, norm_type: int, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLCannyEdge(_cl_features.CannyEdge):
    """Edges: crests of the gradient (norm 1: L1, 2: L2) above a threshold, and what hangs on to them above a lower one."""

    def configure(self, input: Tensor, output: Tensor, upper_thr: int, lower_thr: int, gradient_size: int, norm_type: int, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, upper_thr: int, lower_thr: int, gradient_size: int, norm_type: int, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEGaussianPyramidHalf(_vision_pyramid.GaussianPyramidHalf):
    """Each level half the one before; level 0 becomes a copy of the image."""

    def configure(self, input: Tensor, pyramid: Pyramid, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, pyramid: Pyramid, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLGaussianPyramidHalf(_cl_pyramids.GaussianPyramidHalf):
    """Each level half the one before; level 0 becomes a copy of the image."""

    def configure(self, input: Tensor, pyramid: Pyramid, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, pyramid: Pyramid, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEGaussianPyramidOrb(_vision_pyramid.GaussianPyramidOrb):
    """Each level 0.8409 of the one before; level 0 becomes a copy of the image."""

    def configure(self, input: Tensor, pyramid: Pyramid, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, pyramid: Pyramid, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLGaussianPyramidOrb(_cl_vision.OnDevice, _vision_pyramid.GaussianPyramidOrb):
    """Each level 0.8409 of the one before; level 0 becomes a copy of the image."""

    def configure(self, input: Tensor, pyramid: Pyramid, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, pyramid: Pyramid, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NELaplacianPyramid(_vision_pyramid.LaplacianPyramid):
    """What smoothing takes away at each level, as S16; the output is the smoothed last level."""

    def configure(self, input: Tensor, pyramid: Pyramid, output: Tensor, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, pyramid: Pyramid, output: TensorInfo, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLLaplacianPyramid(_cl_pyramids.LaplacianPyramid):
    """What smoothing takes away at each level, as S16; the output is the smoothed last level."""

    def configure(self, input: Tensor, pyramid: Pyramid, output: Tensor, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, pyramid: Pyramid, output: TensorInfo, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NELaplacianReconstruct(_vision_pyramid.LaplacianReconstruct):
    """The image of a Laplacian pyramid: what is left, enlarged, plus each level; nothing beside an image is read."""

    def configure(self, pyramid: Pyramid, input: Tensor, output: Tensor, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, pyramid: Pyramid, input: TensorInfo, output: TensorInfo, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLLaplacianReconstruct(_cl_vision.OnDevice, _vision_pyramid.LaplacianReconstruct):
    """The image of a Laplacian pyramid: what is left, enlarged, plus each level; nothing beside an image is read."""

    def configure(self, pyramid: Pyramid, input: Tensor, output: Tensor, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, pyramid: Pyramid, input: TensorInfo, output: TensorInfo, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEHOGDescriptor(_vision_hog.HOGDescriptor):
    """The descriptors of an image's blocks (`HOGInfo.tensor_info`)."""

    def configure(self, input: Tensor, output: Tensor, hog: HOG, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, hog: HOG, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLHOGDescriptor(_cl_vision.OnDevice, _vision_hog.HOGDescriptor):
    """The descriptors of an image's blocks (`HOGInfo.tensor_info`)."""

    def configure(self, input: Tensor, output: Tensor, hog: HOG, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, hog: HOG, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEHOGDetector(_vision_hog.HOGDetector):
    """Windows of an image's descriptors whose score, by a linear classifier, is above a threshold; the list grows."""

    def configure(self, input: Tensor, hog: HOG, detection_windows: list[DetectionWindow], detection_window_stride: Size2D, threshold: float = 0.0, idx_class: int = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, hog: HOG, detection_window_stride: Size2D) -> Status: ...

class CLHOGDetector(_cl_features.HOGDetector):
    """Windows of an image's descriptors whose score, by a linear classifier, is above a threshold; the list grows."""

    def configure(self, input: Tensor, hog: HOG, detection_windows: list[DetectionWindow], detection_window_stride: Size2D, threshold: float = 0.0, idx_class: int = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, hog: HOG, detection_window_stride: Size2D) -> Status: ...

class NEHOGMultiDetection(_vision_hog.HOGMultiDetection):
    """Windows of several models in one image; of those of a model that are close to one another the best, if asked."""

    def configure(self, input: Tensor, multi_hog: MultiHOG, detection_windows: list[DetectionWindow], detection_window_strides: Sequence[Size2D], border_mode: BorderMode = ..., constant_border_value: float = 0, threshold: float = 0.0, non_maxima_suppression: bool = False, min_distance: float = 1.0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, multi_hog: MultiHOG, detection_window_strides: Sequence[Size2D], border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLHOGMultiDetection(_cl_vision.OnDevice, _vision_hog.HOGMultiDetection):
    """Windows of several models in one image; of those of a model that are close to one another the best, if asked."""

    def configure(self, input: Tensor, multi_hog: MultiHOG, detection_windows: list[DetectionWindow], detection_window_strides: Sequence[Size2D], border_mode: BorderMode = ..., constant_border_value: float = 0, threshold: float = 0.0, non_maxima_suppression: bool = False, min_distance: float = 1.0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, multi_hog: MultiHOG, detection_window_strides: Sequence[Size2D], border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEOpticalFlow(_vision_flow.OpticalFlow):
    """Points of the first image in the second."""

    def configure(self, old_pyramid: Pyramid, new_pyramid: Pyramid, old_points: Sequence[KeyPoint], new_points_estimates: Sequence[KeyPoint], new_points: list[KeyPoint], termination: Termination, epsilon: float, num_iterations: int, window_dimension: int, use_initial_estimate: bool = False, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, old_pyramid: Pyramid, new_pyramid: Pyramid, num_iterations: int, window_dimension: int, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class CLOpticalFlow(_cl_vision.OnDevice, _vision_flow.OpticalFlow):
    """Points of the first image in the second."""

    def configure(self, old_pyramid: Pyramid, new_pyramid: Pyramid, old_points: Sequence[KeyPoint], new_points_estimates: Sequence[KeyPoint], new_points: list[KeyPoint], termination: Termination, epsilon: float, num_iterations: int, window_dimension: int, use_initial_estimate: bool = False, border_mode: BorderMode = ..., constant_border_value: float = 0) -> None: ...
    @classmethod
    def validate(cls, old_pyramid: Pyramid, new_pyramid: Pyramid, num_iterations: int, window_dimension: int, border_mode: BorderMode = ..., constant_border_value: float = 0) -> Status: ...

class NEGEMMConvolutionLayer(_nn_convolution.GEMMConvolutionLayer):
    """A convolution as a product of matrices on register tiles."""

    def configure(self, input: Tensor, weights: Tensor, biases: Tensor | None, output: Tensor, conv_info: PadStrideInfo, weights_info: WeightsInfo | None = None, dilation: Size2D | None = None, act_info: ActivationLayerInfo | None = None, num_groups: int = 1) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, weights: TensorInfo, biases: TensorInfo | None, output: TensorInfo | None, conv_info: PadStrideInfo, weights_info: WeightsInfo | None = None, dilation: Size2D | None = None, act_info: ActivationLayerInfo | None = None, num_groups: int = 1) -> Status: ...

class CLGEMMConvolutionLayer(_cl_layers.OnDevice, _nn_convolution.GEMMConvolutionLayer):
    """A convolution as a product of matrices on register tiles."""

    def configure(self, input: Tensor, weights: Tensor, biases: Tensor | None, output: Tensor, conv_info: PadStrideInfo, weights_info: WeightsInfo | None = None, dilation: Size2D | None = None, act_info: ActivationLayerInfo | None = None, num_groups: int = 1) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, weights: TensorInfo, biases: TensorInfo | None, output: TensorInfo | None, conv_info: PadStrideInfo, weights_info: WeightsInfo | None = None, dilation: Size2D | None = None, act_info: ActivationLayerInfo | None = None, num_groups: int = 1) -> Status: ...

class NEDirectConvolutionLayer(_nn_convolution.DirectConvolutionLayer):
    """A convolution that multiplies where the image lies."""

    def configure(self, input: Tensor, weights: Tensor, biases: Tensor | None, output: Tensor, conv_info: PadStrideInfo, act_info: ActivationLayerInfo | None = None, enable_fast_math: bool = False) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, weights: TensorInfo, biases: TensorInfo | None, output: TensorInfo | None, conv_info: PadStrideInfo, act_info: ActivationLayerInfo | None = None, enable_fast_math: bool = False) -> Status: ...

class CLDirectConvolutionLayer(_cl_layers.OnDevice, _nn_convolution.DirectConvolutionLayer):
    """A convolution that multiplies where the image lies."""

    def configure(self, input: Tensor, weights: Tensor, biases: Tensor | None, output: Tensor, conv_info: PadStrideInfo, act_info: ActivationLayerInfo | None = None, enable_fast_math: bool = False) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, weights: TensorInfo, biases: TensorInfo | None, output: TensorInfo | None, conv_info: PadStrideInfo, act_info: ActivationLayerInfo | None = None, enable_fast_math: bool = False) -> Status: ...

class NEWinogradConvolutionLayer(_nn_convolution.WinogradConvolutionLayer):
    """Winograd's F(2x2, 3x3): transforms of 4x4 tiles around 16 products of matrices."""

    def configure(self, input: Tensor, weights: Tensor, biases: Tensor | None, output: Tensor, conv_info: PadStrideInfo, act_info: ActivationLayerInfo | None = None, enable_fast_math: bool = False) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, weights: TensorInfo, biases: TensorInfo | None, output: TensorInfo | None, conv_info: PadStrideInfo, act_info: ActivationLayerInfo | None = None, enable_fast_math: bool = False) -> Status: ...

class CLWinogradConvolutionLayer(_cl_layers.OnDevice, _nn_convolution.WinogradConvolutionLayer):
    """Winograd's F(2x2, 3x3): transforms of 4x4 tiles around 16 products of matrices."""

    def configure(self, input: Tensor, weights: Tensor, biases: Tensor | None, output: Tensor, conv_info: PadStrideInfo, act_info: ActivationLayerInfo | None = None, enable_fast_math: bool = False) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, weights: TensorInfo, biases: TensorInfo | None, output: TensorInfo | None, conv_info: PadStrideInfo, act_info: ActivationLayerInfo | None = None, enable_fast_math: bool = False) -> Status: ...

class NEFFTConvolutionLayer(_nn_convolution.FFTConvolutionLayer):
    """A convolution by Fourier transforms of 16x16 tiles, for kernels of up to 15x15 that move by one pixel."""

    def configure(self, input: Tensor, weights: Tensor, biases: Tensor | None, output: Tensor, conv_info: PadStrideInfo, act_info: ActivationLayerInfo | None = None, enable_fast_math: bool = False) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, weights: TensorInfo, biases: TensorInfo | None, output: TensorInfo | None, conv_info: PadStrideInfo, act_info: ActivationLayerInfo | None = None, enable_fast_math: bool = False) -> Status: ...

class CLFFTConvolutionLayer(_cl_layers.OnDevice, _nn_convolution.FFTConvolutionLayer):
    """A convolution by Fourier transforms of 16x16 tiles, for kernels of up to 15x15 that move by one pixel."""

    def configure(self, input: Tensor, weights: Tensor, biases: Tensor | None, output: Tensor, conv_info: PadStrideInfo, act_info: ActivationLayerInfo | None = None, enable_fast_math: bool = False) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, weights: TensorInfo, biases: TensorInfo | None, output: TensorInfo | None, conv_info: PadStrideInfo, act_info: ActivationLayerInfo | None = None, enable_fast_math: bool = False) -> Status: ...

class NEDepthwiseConvolutionLayer(_nn_convolution.DepthwiseConvolutionLayer):
    """Each channel by kernels of its own; weights are (width, height, channels * depth_multiplier)."""

    def configure(self, input: Tensor, weights: Tensor, biases: Tensor | None, output: Tensor, conv_info: PadStrideInfo, depth_multiplier: int = 1, act_info: ActivationLayerInfo | None = None, dilation: Size2D | None = None) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, weights: TensorInfo, biases: TensorInfo | None, output: TensorInfo | None, conv_info: PadStrideInfo, depth_multiplier: int = 1, act_info: ActivationLayerInfo | None = None, dilation: Size2D | None = None) -> Status: ...

class CLDepthwiseConvolutionLayer(_cl_layers.OnDevice, _nn_convolution.DepthwiseConvolutionLayer):
    """Each channel by kernels of its own; weights are (width, height, channels * depth_multiplier)."""

    def configure(self, input: Tensor, weights: Tensor, biases: Tensor | None, output: Tensor, conv_info: PadStrideInfo, depth_multiplier: int = 1, act_info: ActivationLayerInfo | None = None, dilation: Size2D | None = None) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, weights: TensorInfo, biases: TensorInfo | None, output: TensorInfo | None, conv_info: PadStrideInfo, depth_multiplier: int = 1, act_info: ActivationLayerInfo | None = None, dilation: Size2D | None = None) -> Status: ...

class NEConvolutionLayer(_nn_convolution.ConvolutionLayer):
    """A convolution by the method that fits: Winograd for float32, 3x3, strides of 1 and biases; else GEMM."""

    def configure(self, input: Tensor, weights: Tensor, biases: Tensor | None, output: Tensor, conv_info: PadStrideInfo, weights_info: WeightsInfo | None = None, dilation: Size2D | None = None, act_info: ActivationLayerInfo | None = None, enable_fast_math: bool = False, num_groups: int = 1) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, weights: TensorInfo, biases: TensorInfo | None, output: TensorInfo | None, conv_info: PadStrideInfo, weights_info: WeightsInfo | None = None, dilation: Size2D | None = None, act_info: ActivationLayerInfo | None = None, enable_fast_math: bool = False, num_groups: int = 1) -> Status: ...

class CLConvolutionLayer(_cl_layers.ConvolutionLayer):
    """A convolution by the method that fits: Winograd for float32, 3x3, strides of 1 and biases; else GEMM."""

    def configure(self, input: Tensor, weights: Tensor, biases: Tensor | None, output: Tensor, conv_info: PadStrideInfo, weights_info: WeightsInfo | None = None, dilation: Size2D | None = None, act_info: ActivationLayerInfo | None = None, enable_fast_math: bool = False, num_groups: int = 1) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, weights: TensorInfo, biases: TensorInfo | None, output: TensorInfo | None, conv_info: PadStrideInfo, weights_info: WeightsInfo | None = None, dilation: Size2D | None = None, act_info: ActivationLayerInfo | None = None, enable_fast_math: bool = False, num_groups: int = 1) -> Status: ...

class NEActivationLayer(_nn_layers.ActivationLayer):
    """y = f(x); without an output, in place."""

    def configure(self, input: Tensor, output: Tensor | None, act_info: ActivationLayerInfo) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, act_info: ActivationLayerInfo) -> Status: ...

class CLActivationLayer(_cl_layers.OnDevice, _nn_layers.ActivationLayer):
    """y = f(x); without an output, in place."""

    def configure(self, input: Tensor, output: Tensor | None, act_info: ActivationLayerInfo) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, act_info: ActivationLayerInfo) -> Status: ...

class NESoftmaxLayer(_nn_layers.SoftmaxLayer):
    """exp(beta * x) over its sum along a dimension (0: along a row)."""

    def configure(self, input: Tensor, output: Tensor, beta: float = 1.0, axis: int = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, beta: float = 1.0, axis: int = 0) -> Status: ...

class CLSoftmaxLayer(_cl_layers.OnDevice, _nn_layers.SoftmaxLayer):
    """exp(beta * x) over its sum along a dimension (0: along a row)."""

    def configure(self, input: Tensor, output: Tensor, beta: float = 1.0, axis: int = 0) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, beta: float = 1.0, axis: int = 0) -> Status: ...

class NEPoolingLayer(_nn_layers.PoolingLayer):
    """The largest element under a window, the mean, or the root of the mean of squares."""

    def configure(self, input: Tensor, output: Tensor, pool_info: PoolingLayerInfo) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, pool_info: PoolingLayerInfo) -> Status: ...

class CLPoolingLayer(_cl_layers.OnDevice, _nn_layers.PoolingLayer):
    """The largest element under a window, the mean, or the root of the mean of squares."""

    def configure(self, input: Tensor, output: Tensor, pool_info: PoolingLayerInfo) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, pool_info: PoolingLayerInfo) -> Status: ...

class NENormalizationLayer(_nn_layers.NormalizationLayer):
    """Local response normalisation over channels, rows, or planes."""

    def configure(self, input: Tensor, output: Tensor, norm_info: NormalizationLayerInfo) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, norm_info: NormalizationLayerInfo) -> Status: ...

class CLNormalizationLayer(_cl_layers.OnDevice, _nn_layers.NormalizationLayer):
    """Local response normalisation over channels, rows, or planes."""

    def configure(self, input: Tensor, output: Tensor, norm_info: NormalizationLayerInfo) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, norm_info: NormalizationLayerInfo) -> Status: ...

class NEBatchNormalizationLayer(_nn_layers.BatchNormalizationLayer):
    """(x - mean) / sqrt(var + epsilon) * gamma + beta, by channel; without an output, in place."""

    def configure(self, input: Tensor, output: Tensor | None, mean: Tensor, var: Tensor, beta: Tensor | None = None, gamma: Tensor | None = None, epsilon: float = 0.001, act_info: ActivationLayerInfo | None = None) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, mean: TensorInfo, var: TensorInfo, beta: TensorInfo | None = None, gamma: TensorInfo | None = None, epsilon: float = 0.001, act_info: ActivationLayerInfo | None = None) -> Status: ...

class CLBatchNormalizationLayer(_cl_layers.OnDevice, _nn_layers.BatchNormalizationLayer):
    """(x - mean) / sqrt(var + epsilon) * gamma + beta, by channel; without an output, in place."""

    def configure(self, input: Tensor, output: Tensor | None, mean: Tensor, var: Tensor, beta: Tensor | None = None, gamma: Tensor | None = None, epsilon: float = 0.001, act_info: ActivationLayerInfo | None = None) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, mean: TensorInfo, var: TensorInfo, beta: TensorInfo | None = None, gamma: TensorInfo | None = None, epsilon: float = 0.001, act_info: ActivationLayerInfo | None = None) -> Status: ...

class NEQuantizationLayer(_nn_layers.QuantizationLayer):
    """Real numbers as bytes of the output's scale and offset: rounded to nearest, halves away from zero."""

    def configure(self, input: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo) -> Status: ...

class CLQuantizationLayer(_cl_layers.OnDevice, _nn_layers.QuantizationLayer):
    """Real numbers as bytes of the output's scale and offset: rounded to nearest, halves away from zero."""

    def configure(self, input: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo) -> Status: ...

class NEDequantizationLayer(_nn_layers.DequantizationLayer):
    """(value - offset) * scale."""

    def configure(self, input: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None) -> Status: ...

class CLDequantizationLayer(_cl_layers.OnDevice, _nn_layers.DequantizationLayer):
    """(value - offset) * scale."""

    def configure(self, input: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None) -> Status: ...

class NEGEMM(_nn_product.GEMM):
    """d = alpha * a * b + beta * c."""

    def configure(self, a: Tensor, b: Tensor, c: Tensor | None, d: Tensor, alpha: float = 1.0, beta: float = 0.0, gemm_info: GEMMInfo | None = None) -> None: ...
    @classmethod
    def validate(cls, a: TensorInfo, b: TensorInfo, c: TensorInfo | None, d: TensorInfo | None, alpha: float = 1.0, beta: float = 0.0, gemm_info: GEMMInfo | None = None) -> Status: ...

class CLGEMM(_cl_layers.OnDevice, _nn_product.GEMM):
    """d = alpha * a * b + beta * c."""

    def configure(self, a: Tensor, b: Tensor, c: Tensor | None, d: Tensor, alpha: float = 1.0, beta: float = 0.0, gemm_info: GEMMInfo | None = None) -> None: ...
    @classmethod
    def validate(cls, a: TensorInfo, b: TensorInfo, c: TensorInfo | None, d: TensorInfo | None, alpha: float = 1.0, beta: float = 0.0, gemm_info: GEMMInfo | None = None) -> Status: ...

class NEGEMMLowpMatrixMultiplyCore(_nn_product.GEMMLowpMatrixMultiplyCore):
    """Products of bytes less their offsets, in 32 bits; plus `c`, and requantised where the output is of bytes."""

    def configure(self, a: Tensor, b: Tensor, c: Tensor | None, output: Tensor, gemm_info: GEMMInfo | None = None) -> None: ...
    @classmethod
    def validate(cls, a: TensorInfo, b: TensorInfo, c: TensorInfo | None, output: TensorInfo | None, gemm_info: GEMMInfo | None = None) -> Status: ...

class CLGEMMLowpMatrixMultiplyCore(_cl_layers.OnDevice, _nn_product.GEMMLowpMatrixMultiplyCore):
    """Products of bytes less their offsets, in 32 bits; plus `c`, and requantised where the output is of bytes."""

    def configure(self, a: Tensor, b: Tensor, c: Tensor | None, output: Tensor, gemm_info: GEMMInfo | None = None) -> None: ...
    @classmethod
    def validate(cls, a: TensorInfo, b: TensorInfo, c: TensorInfo | None, output: TensorInfo | None, gemm_info: GEMMInfo | None = None) -> Status: ...

class NEFullyConnectedLayer(_nn_product.FullyConnectedLayer):
    """Every output from every input of a batch: weights (inputs, outputs)."""

    def configure(self, input: Tensor, weights: Tensor, biases: Tensor | None, output: Tensor, fc_info: FullyConnectedLayerInfo | None = None) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, weights: TensorInfo, biases: TensorInfo | None, output: TensorInfo | None, fc_info: FullyConnectedLayerInfo | None = None) -> Status: ...

class CLFullyConnectedLayer(_cl_layers.OnDevice, _nn_product.FullyConnectedLayer):
    """Every output from every input of a batch: weights (inputs, outputs)."""

    def configure(self, input: Tensor, weights: Tensor, biases: Tensor | None, output: Tensor, fc_info: FullyConnectedLayerInfo | None = None) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, weights: TensorInfo, biases: TensorInfo | None, output: TensorInfo | None, fc_info: FullyConnectedLayerInfo | None = None) -> Status: ...

class NEConcatenateLayer(_nn_shape.ConcatenateLayer):
    """Tensors one after another along a dimension."""

    def configure(self, inputs: Sequence[Tensor], output: Tensor, axis: int) -> None: ...
    @classmethod
    def validate(cls, inputs: Sequence[TensorInfo], output: TensorInfo | None, axis: int) -> Status: ...

class CLConcatenateLayer(_cl_layers.OnDevice, _nn_shape.ConcatenateLayer):
    """Tensors one after another along a dimension."""

    def configure(self, inputs: Sequence[Tensor], output: Tensor, axis: int) -> None: ...
    @classmethod
    def validate(cls, inputs: Sequence[TensorInfo], output: TensorInfo | None, axis: int) -> Status: ...

class NEWidthConcatenateLayer(_nn_shape.Along):
    """Images side by side."""

    def configure(self, inputs: Sequence[Tensor], output: Tensor, axis: int | None = None) -> None: ...
    @classmethod
    def validate(cls, inputs: Sequence[TensorInfo], output: TensorInfo | None, axis: int | None = None) -> Status: ...

class CLWidthConcatenateLayer(_cl_layers.OnDevice, _nn_shape.Along):
    """Images side by side."""

    def configure(self, inputs: Sequence[Tensor], output: Tensor, axis: int | None = None) -> None: ...
    @classmethod
    def validate(cls, inputs: Sequence[TensorInfo], output: TensorInfo | None, axis: int | None = None) -> Status: ...

class NEHeightConcatenateLayer(_nn_shape.Along):
    """Images one below another."""

    def configure(self, inputs: Sequence[Tensor], output: Tensor, axis: int | None = None) -> None: ...
    @classmethod
    def validate(cls, inputs: Sequence[TensorInfo], output: TensorInfo | None, axis: int | None = None) -> Status: ...

class CLHeightConcatenateLayer(_cl_layers.OnDevice, _nn_shape.Along):
    """Images one below another."""

    def configure(self, inputs: Sequence[Tensor], output: Tensor, axis: int | None = None) -> None: ...
    @classmethod
    def validate(cls, inputs: Sequence[TensorInfo], output: TensorInfo | None, axis: int | None = None) -> Status: ...

class NEDepthConcatenateLayer(_nn_shape.Along):
    """The channels of one image after those of another."""

    def configure(self, inputs: Sequence[Tensor], output: Tensor, axis: int | None = None) -> None: ...
    @classmethod
    def validate(cls, inputs: Sequence[TensorInfo], output: TensorInfo | None, axis: int | None = None) -> Status: ...

class CLDepthConcatenateLayer(_cl_layers.OnDevice, _nn_shape.Along):
    """The channels of one image after those of another."""

    def configure(self, inputs: Sequence[Tensor], output: Tensor, axis: int | None = None) -> None: ...
    @classmethod
    def validate(cls, inputs: Sequence[TensorInfo], output: TensorInfo | None, axis: int | None = None) -> Status: ...

class NEReshapeLayer(_nn_shape.ReshapeLayer):
    """The same elements in the same order, in the output's shape."""

    def configure(self, input: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo) -> Status: ...

class CLReshapeLayer(_cl_layers.OnDevice, _nn_shape.ReshapeLayer):
    """The same elements in the same order, in the output's shape."""

    def configure(self, input: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo) -> Status: ...

class NEFlattenLayer(_nn_shape.FlattenLayer):
    """Each image of a batch as one row."""

    def configure(self, input: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None) -> Status: ...

class CLFlattenLayer(_cl_layers.OnDevice, _nn_shape.FlattenLayer):
    """Each image of a batch as one row."""

    def configure(self, input: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None) -> Status: ...

class NEPermute(_nn_shape.Permute):
    """Dimension n of the output is dimension `perm[n]` of the input."""

    def configure(self, input: Tensor, output: Tensor, perm: PermutationVector) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, perm: PermutationVector) -> Status: ...

class CLPermute(_cl_layers.OnDevice, _nn_shape.Permute):
    """Dimension n of the output is dimension `perm[n]` of the input."""

    def configure(self, input: Tensor, output: Tensor, perm: PermutationVector) -> None: ...
    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, perm: PermutationVector) -> Status: ...

class NEElementwiseAddition(_nn_shape.Elementwise):
    """a + b."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo | None) -> Status: ...

class CLElementwiseAddition(_cl_layers.OnDevice, _nn_shape.Elementwise):
    """a + b."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo | None) -> Status: ...

class NEElementwiseMax(_nn_shape.Elementwise):
    """The larger of two."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo | None) -> Status: ...

class CLElementwiseMax(_cl_layers.OnDevice, _nn_shape.Elementwise):
    """The larger of two."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo | None) -> Status: ...

class NEElementwiseMin(_nn_shape.Elementwise):
    """The smaller of two."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo | None) -> Status: ...

class CLElementwiseMin(_cl_layers.OnDevice, _nn_shape.Elementwise):
    """The smaller of two."""

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None: ...
    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo | None) -> Status: ...

CPPPermute = NEPermute

NEWinogradLayer = NEWinogradConvolutionLayer
