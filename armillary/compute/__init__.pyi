"""Names of `armillary.compute` for type checkers. Written by tools/write_docs.py; do not edit."""

from armillary.compute.core.types import ActivationFunction as ActivationFunction
from armillary.compute.core.types import ActivationLayerInfo as ActivationLayerInfo
from armillary.compute.runtime.memory.pool import Allocator as Allocator
from armillary.compute.runtime.memory.lifetime import BlobLifetimeManager as BlobLifetimeManager
from armillary.compute.runtime.memory.pool import BlobMemoryPool as BlobMemoryPool
from armillary.compute.core.tensor_info import BorderMode as BorderMode
from armillary.compute.core.tensor_info import BorderSize as BorderSize
from armillary.compute.cl.vision import CLAbsoluteDifference as CLAbsoluteDifference
from armillary.compute.cl.vision import CLAccumulate as CLAccumulate
from armillary.compute.cl.vision import CLAccumulateSquared as CLAccumulateSquared
from armillary.compute.cl.vision import CLAccumulateWeighted as CLAccumulateWeighted
from armillary.compute.cl.layers import CLActivationLayer as CLActivationLayer
from armillary.compute.cl.vision import CLArithmeticAddition as CLArithmeticAddition
from armillary.compute.cl.vision import CLArithmeticSubtraction as CLArithmeticSubtraction
from armillary.compute.cl.layers import CLBatchNormalizationLayer as CLBatchNormalizationLayer
from armillary.compute.cl.vision import CLBitwiseAnd as CLBitwiseAnd
from armillary.compute.cl.vision import CLBitwiseNot as CLBitwiseNot
from armillary.compute.cl.vision import CLBitwiseOr as CLBitwiseOr
from armillary.compute.cl.vision import CLBitwiseXor as CLBitwiseXor
from armillary.compute.cl.vision import CLBox3x3 as CLBox3x3
from armillary.compute.cl.tensor import CLBufferAllocator as CLBufferAllocator
from armillary.compute.cl.features import CLCannyEdge as CLCannyEdge
from armillary.compute.cl.vision import CLChannelCombine as CLChannelCombine
from armillary.compute.cl.vision import CLChannelExtract as CLChannelExtract
from armillary.compute.cl.vision import CLColorConvert as CLColorConvert
from armillary.compute.cl.layers import CLConcatenateLayer as CLConcatenateLayer
from armillary.compute.cl.vision import CLConvolution3x3 as CLConvolution3x3
from armillary.compute.cl.vision import CLConvolution5x5 as CLConvolution5x5
from armillary.compute.cl.vision import CLConvolution7x7 as CLConvolution7x7
from armillary.compute.cl.vision import CLConvolution9x9 as CLConvolution9x9
from armillary.compute.cl.layers import CLConvolutionLayer as CLConvolutionLayer
from armillary.compute.cl.vision import CLConvolutionRectangle as CLConvolutionRectangle
from armillary.compute.cl.layers import CLDepthConcatenateLayer as CLDepthConcatenateLayer
from armillary.compute.cl.layers import CLDepthwiseConvolutionLayer as CLDepthwiseConvolutionLayer
from armillary.compute.cl.layers import CLDequantizationLayer as CLDequantizationLayer
from armillary.compute.cl.vision import CLDerivative as CLDerivative
from armillary.compute.cl.vision import CLDilate as CLDilate
from armillary.compute.cl.layers import CLDirectConvolutionLayer as CLDirectConvolutionLayer
from armillary.compute.cl.layers import CLElementwiseAddition as CLElementwiseAddition
from armillary.compute.cl.layers import CLElementwiseMax as CLElementwiseMax
from armillary.compute.cl.layers import CLElementwiseMin as CLElementwiseMin
from armillary.compute.cl.statistics import CLEqualizeHistogram as CLEqualizeHistogram
from armillary.compute.cl.vision import CLErode as CLErode
from armillary.compute.cl.layers import CLFFTConvolutionLayer as CLFFTConvolutionLayer
from armillary.compute.cl.features import CLFastCorners as CLFastCorners
from armillary.compute.cl.layers import CLFlattenLayer as CLFlattenLayer
from armillary.compute.cl.kernels import CLFormulaKernel as CLFormulaKernel
from armillary.compute.cl.layers import CLFullyConnectedLayer as CLFullyConnectedLayer
from armillary.compute.cl.layers import CLGEMM as CLGEMM
from armillary.compute.cl.layers import CLGEMMConvolutionLayer as CLGEMMConvolutionLayer
from armillary.compute.cl.layers import CLGEMMLowpMatrixMultiplyCore as CLGEMMLowpMatrixMultiplyCore
from armillary.compute.cl.vision import CLGaussian3x3 as CLGaussian3x3
from armillary.compute.cl.vision import CLGaussian5x5 as CLGaussian5x5
from armillary.compute.cl.pyramids import CLGaussianPyramidHalf as CLGaussianPyramidHalf
from armillary.compute.cl.pyramids import CLGaussianPyramidOrb as CLGaussianPyramidOrb
from armillary.compute.cl.features import CLHOGDescriptor as CLHOGDescriptor
from armillary.compute.cl.features import CLHOGDetector as CLHOGDetector
from armillary.compute.cl.features import CLHOGMultiDetection as CLHOGMultiDetection
from armillary.compute.cl.features import CLHarrisCorners as CLHarrisCorners
from armillary.compute.cl.layers import CLHeightConcatenateLayer as CLHeightConcatenateLayer
from armillary.compute.cl.statistics import CLHistogram as CLHistogram
from armillary.compute.cl.tensor import CLImage as CLImage
from armillary.compute.cl.statistics import CLIntegralImage as CLIntegralImage
from armillary.compute.cl.kernels import CLKernelLibrary as CLKernelLibrary
from armillary.compute.cl.pyramids import CLLaplacianPyramid as CLLaplacianPyramid
from armillary.compute.cl.pyramids import CLLaplacianReconstruct as CLLaplacianReconstruct
from armillary.compute.cl.vision import CLLut as CLLut
from armillary.compute.cl.vision import CLMagnitude as CLMagnitude
from armillary.compute.cl.statistics import CLMeanStdDev as CLMeanStdDev
from armillary.compute.cl.vision import CLMedian3x3 as CLMedian3x3
from armillary.compute.runtime.memory.manager import CLMemoryGroup as CLMemoryGroup
from armillary.compute.cl.statistics import CLMinMaxLocation as CLMinMaxLocation
from armillary.compute.cl.tensor import CLMultiImage as CLMultiImage
from armillary.compute.cl.vision import CLNonLinearFilter as CLNonLinearFilter
from armillary.compute.cl.vision import CLNonMaximaSuppression3x3 as CLNonMaximaSuppression3x3
from armillary.compute.cl.layers import CLNormalizationLayer as CLNormalizationLayer
from armillary.compute.cl.features import CLOpticalFlow as CLOpticalFlow
from armillary.compute.cl.layers import CLPermute as CLPermute
from armillary.compute.cl.vision import CLPhase as CLPhase
from armillary.compute.cl.vision import CLPixelWiseMultiplication as CLPixelWiseMultiplication
from armillary.compute.cl.layers import CLPoolingLayer as CLPoolingLayer
from armillary.compute.cl.pyramids import CLPyramid as CLPyramid
from armillary.compute.cl.layers import CLQuantizationLayer as CLQuantizationLayer
from armillary.compute.cl.vision import CLRemap as CLRemap
from armillary.compute.cl.layers import CLReshapeLayer as CLReshapeLayer
from armillary.compute.cl.vision import CLScale as CLScale
from armillary.compute.cl.vision import CLScharr3x3 as CLScharr3x3
from armillary.compute.cl.scheduler import CLScheduler as CLScheduler
from armillary.compute.cl.vision import CLSobel3x3 as CLSobel3x3
from armillary.compute.cl.vision import CLSobel5x5 as CLSobel5x5
from armillary.compute.cl.vision import CLSobel7x7 as CLSobel7x7
from armillary.compute.cl.layers import CLSoftmaxLayer as CLSoftmaxLayer
from armillary.compute.cl.vision import CLTableLookup as CLTableLookup
from armillary.compute.cl.tensor import CLTensor as CLTensor
from armillary.compute.cl.vision import CLThreshold as CLThreshold
from armillary.compute.cl.tuner import CLTuner as CLTuner
from armillary.compute.cl.tuner import CLTunerMode as CLTunerMode
from armillary.compute.cl.vision import CLWarpAffine as CLWarpAffine
from armillary.compute.cl.vision import CLWarpPerspective as CLWarpPerspective
from armillary.compute.cl.layers import CLWidthConcatenateLayer as CLWidthConcatenateLayer
from armillary.compute.cl.layers import CLWinogradConvolutionLayer as CLWinogradConvolutionLayer
from armillary.compute.functions.vision.detection import CPPDetectionWindowNonMaximaSuppression as CPPDetectionWindowNonMaximaSuppression
from armillary.compute.functions.vision.detection import CPPDetectionWindowNonMaximaSuppressionKernel as CPPDetectionWindowNonMaximaSuppressionKernel
from armillary.compute.functions.nn.shape import NEPermute as CPPPermute
from armillary.compute.runtime.scheduler import CPPScheduler as CPPScheduler
from armillary.compute.core.kernel import CPUInfo as CPUInfo
from armillary.compute.functions.vision.colour import Channel as Channel
from armillary.compute.cl.scheduler import CommandQueue as CommandQueue
from armillary.compute.cl.scheduler import Context as Context
from armillary.compute.functions.vision.base import ConvertPolicy as ConvertPolicy
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
from armillary.compute.functions.vision.base import InterpolationPolicy as InterpolationPolicy
from armillary.compute.core.iterator import Iterator as Iterator
from armillary.compute.functions.vision.features import KeyPoint as KeyPoint
from armillary.compute.functions.vision.arithmetic import Lut as Lut
from armillary.compute.functions.vision.arithmetic import MagnitudeType as MagnitudeType
from armillary.compute.functions.vision.filters import MatrixPattern as MatrixPattern
from armillary.compute.runtime.memory.manager import MemoryGroup as MemoryGroup
from armillary.compute.runtime.memory.manager import MemoryManagerOnDemand as MemoryManagerOnDemand
from armillary.compute.functions.vision.hog import MultiHOG as MultiHOG
from armillary.compute.runtime.tensor import MultiImage as MultiImage
from armillary.compute.functions.vision.arithmetic import NEAbsoluteDifference as NEAbsoluteDifference
from armillary.compute.functions.vision.arithmetic import NEAccumulate as NEAccumulate
from armillary.compute.functions.vision.arithmetic import NEAccumulateSquared as NEAccumulateSquared
from armillary.compute.functions.vision.arithmetic import NEAccumulateWeighted as NEAccumulateWeighted
from armillary.compute.functions.nn.layers import NEActivationLayer as NEActivationLayer
from armillary.compute.functions.vision.arithmetic import NEArithmeticAddition as NEArithmeticAddition
from armillary.compute.functions.vision.arithmetic import NEArithmeticSubtraction as NEArithmeticSubtraction
from armillary.compute.functions.nn.layers import NEBatchNormalizationLayer as NEBatchNormalizationLayer
from armillary.compute.functions.vision.arithmetic import NEBitwiseAnd as NEBitwiseAnd
from armillary.compute.functions.vision.arithmetic import NEBitwiseNot as NEBitwiseNot
from armillary.compute.functions.vision.arithmetic import NEBitwiseOr as NEBitwiseOr
from armillary.compute.functions.vision.arithmetic import NEBitwiseXor as NEBitwiseXor
from armillary.compute.functions.vision.filters import NEBox3x3 as NEBox3x3
from armillary.compute.functions.vision.features import NECannyEdge as NECannyEdge
from armillary.compute.functions.vision.colour import NEChannelCombine as NEChannelCombine
from armillary.compute.functions.vision.colour import NEChannelExtract as NEChannelExtract
from armillary.compute.functions.vision.colour import NEColorConvert as NEColorConvert
from armillary.compute.functions.nn.shape import NEConcatenateLayer as NEConcatenateLayer
from armillary.compute.functions.vision.filters import NEConvolution3x3 as NEConvolution3x3
from armillary.compute.functions.vision.filters import NEConvolution5x5 as NEConvolution5x5
from armillary.compute.functions.vision.filters import NEConvolution7x7 as NEConvolution7x7
from armillary.compute.functions.vision.filters import NEConvolution9x9 as NEConvolution9x9
from armillary.compute.functions.nn.convolution import NEConvolutionLayer as NEConvolutionLayer
from armillary.compute.functions.vision.filters import NEConvolutionRectangle as NEConvolutionRectangle
from armillary.compute.functions.nn.shape import NEDepthConcatenateLayer as NEDepthConcatenateLayer
from armillary.compute.functions.nn.convolution import NEDepthwiseConvolutionLayer as NEDepthwiseConvolutionLayer
from armillary.compute.functions.nn.layers import NEDequantizationLayer as NEDequantizationLayer
from armillary.compute.functions.vision.filters import NEDerivative as NEDerivative
from armillary.compute.functions.vision.filters import NEDilate as NEDilate
from armillary.compute.functions.nn.convolution import NEDirectConvolutionLayer as NEDirectConvolutionLayer
from armillary.compute.functions.nn.shape import NEElementwiseAddition as NEElementwiseAddition
from armillary.compute.functions.nn.shape import NEElementwiseMax as NEElementwiseMax
from armillary.compute.functions.nn.shape import NEElementwiseMin as NEElementwiseMin
from armillary.compute.functions.vision.statistics import NEEqualizeHistogram as NEEqualizeHistogram
from armillary.compute.functions.vision.filters import NEErode as NEErode
from armillary.compute.functions.nn.convolution import NEFFTConvolutionLayer as NEFFTConvolutionLayer
from armillary.compute.functions.vision.features import NEFastCorners as NEFastCorners
from armillary.compute.functions.nn.shape import NEFlattenLayer as NEFlattenLayer
from armillary.compute.functions.nn.product import NEFullyConnectedLayer as NEFullyConnectedLayer
from armillary.compute.functions.nn.product import NEGEMM as NEGEMM
from armillary.compute.functions.nn.convolution import NEGEMMConvolutionLayer as NEGEMMConvolutionLayer
from armillary.compute.functions.nn.product import NEGEMMLowpMatrixMultiplyCore as NEGEMMLowpMatrixMultiplyCore
from armillary.compute.functions.vision.filters import NEGaussian3x3 as NEGaussian3x3
from armillary.compute.functions.vision.filters import NEGaussian5x5 as NEGaussian5x5
from armillary.compute.functions.vision.pyramid import NEGaussianPyramidHalf as NEGaussianPyramidHalf
from armillary.compute.functions.vision.pyramid import NEGaussianPyramidOrb as NEGaussianPyramidOrb
from armillary.compute.functions.vision.hog import NEHOGDescriptor as NEHOGDescriptor
from armillary.compute.functions.vision.hog import NEHOGDetector as NEHOGDetector
from armillary.compute.functions.vision.hog import NEHOGMultiDetection as NEHOGMultiDetection
from armillary.compute.functions.vision.features import NEHarrisCorners as NEHarrisCorners
from armillary.compute.functions.nn.shape import NEHeightConcatenateLayer as NEHeightConcatenateLayer
from armillary.compute.functions.vision.statistics import NEHistogram as NEHistogram
from armillary.compute.functions.vision.statistics import NEHistogramKernel as NEHistogramKernel
from armillary.compute.functions.vision.statistics import NEIntegralImage as NEIntegralImage
from armillary.compute.functions.vision.pyramid import NELaplacianPyramid as NELaplacianPyramid
from armillary.compute.functions.vision.pyramid import NELaplacianReconstruct as NELaplacianReconstruct
from armillary.compute.functions.vision.arithmetic import NEMagnitude as NEMagnitude
from armillary.compute.functions.vision.statistics import NEMeanStdDev as NEMeanStdDev
from armillary.compute.functions.vision.filters import NEMedian3x3 as NEMedian3x3
from armillary.compute.functions.vision.statistics import NEMinMaxLocation as NEMinMaxLocation
from armillary.compute.functions.vision.filters import NENonLinearFilter as NENonLinearFilter
from armillary.compute.functions.vision.filters import NENonMaximaSuppression3x3 as NENonMaximaSuppression3x3
from armillary.compute.functions.nn.layers import NENormalizationLayer as NENormalizationLayer
from armillary.compute.functions.vision.flow import NEOpticalFlow as NEOpticalFlow
from armillary.compute.functions.nn.shape import NEPermute as NEPermute
from armillary.compute.functions.vision.arithmetic import NEPhase as NEPhase
from armillary.compute.functions.vision.arithmetic import NEPixelWiseMultiplication as NEPixelWiseMultiplication
from armillary.compute.functions.nn.layers import NEPoolingLayer as NEPoolingLayer
from armillary.compute.functions.nn.layers import NEQuantizationLayer as NEQuantizationLayer
from armillary.compute.functions.vision.geometry import NERemap as NERemap
from armillary.compute.functions.nn.shape import NEReshapeLayer as NEReshapeLayer
from armillary.compute.functions.vision.geometry import NEScale as NEScale
from armillary.compute.functions.vision.filters import NEScharr3x3 as NEScharr3x3
from armillary.compute.runtime.scheduler import NEScheduler as NEScheduler
from armillary.compute.functions.vision.filters import NESobel3x3 as NESobel3x3
from armillary.compute.functions.vision.filters import NESobel5x5 as NESobel5x5
from armillary.compute.functions.vision.filters import NESobel7x7 as NESobel7x7
from armillary.compute.functions.nn.layers import NESoftmaxLayer as NESoftmaxLayer
from armillary.compute.functions.vision.arithmetic import NETableLookup as NETableLookup
from armillary.compute.functions.vision.arithmetic import NEThreshold as NEThreshold
from armillary.compute.functions.vision.geometry import NEWarpAffine as NEWarpAffine
from armillary.compute.functions.vision.geometry import NEWarpPerspective as NEWarpPerspective
from armillary.compute.functions.nn.shape import NEWidthConcatenateLayer as NEWidthConcatenateLayer
from armillary.compute.functions.nn.convolution import NEWinogradConvolutionLayer as NEWinogradConvolutionLayer
from armillary.compute.functions.nn.convolution import NEWinogradConvolutionLayer as NEWinogradLayer
from armillary.compute.functions.vision.filters import NonLinearFilterFunction as NonLinearFilterFunction
from armillary.compute.core.types import NormType as NormType
from armillary.compute.core.types import NormalizationLayerInfo as NormalizationLayerInfo
from armillary.compute.runtime.scheduler import OMPScheduler as OMPScheduler
from armillary.compute.runtime.memory.lifetime import OffsetLifetimeManager as OffsetLifetimeManager
from armillary.compute.runtime.memory.pool import OffsetMemoryPool as OffsetMemoryPool
from armillary.compute.runtime.ppm import PPMLoader as PPMLoader
from armillary.compute.core.types import PadStrideInfo as PadStrideInfo
from armillary.compute.core.tensor_info import PaddingSize as PaddingSize
from armillary.compute.core.types import PermutationVector as PermutationVector
from armillary.compute.functions.vision.arithmetic import PhaseType as PhaseType
from armillary.compute.runtime.memory.pool import PoolManager as PoolManager
from armillary.compute.core.types import PoolingLayerInfo as PoolingLayerInfo
from armillary.compute.core.types import PoolingType as PoolingType
from armillary.compute.functions.vision.pyramid import Pyramid as Pyramid
from armillary.compute.core.tensor_info import QuantizationInfo as QuantizationInfo
from armillary.compute.functions.vision.base import RoundingPolicy as RoundingPolicy
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
from armillary.compute.functions.vision.flow import Termination as Termination
from armillary.compute.core.kernel import ThreadInfo as ThreadInfo
from armillary.compute.functions.vision.arithmetic import ThresholdType as ThresholdType
from armillary.compute.core.tensor_info import ValidRegion as ValidRegion
from armillary.compute.core.types import WeightsInfo as WeightsInfo
from armillary.compute.core.window import Window as Window
from armillary.compute.ahead.build import build as build
from armillary.compute.runtime.scheduler import cpu_info as cpu_info
from armillary.compute.core.iterator import execute_window_loop as execute_window_loop
from armillary.compute.core.layout import get_data_layout_dimension_index as get_data_layout_dimension_index
from armillary.compute.runtime.ppm import save_to_ppm as save_to_ppm

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
    "RoundingPolicy",
    "SCALE_PYRAMID_HALF",
    "SCALE_PYRAMID_ORB",
    "Scalar",
    "Scheduler",
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
