"""Names of `armillary.compute` for type checkers. Written by tools/write_docs.py; do not edit."""

from armillary.compute.core.types import ActivationFunction as ActivationFunction
from armillary.compute.core.types import ActivationLayerInfo as ActivationLayerInfo
from armillary.compute.runtime.memory.pool import Allocator as Allocator
from armillary.compute.runtime.memory.lifetime import BlobLifetimeManager as BlobLifetimeManager
from armillary.compute.runtime.memory.pool import BlobMemoryPool as BlobMemoryPool
from armillary.compute.core.tensor_info import BorderMode as BorderMode
from armillary.compute.core.tensor_info import BorderSize as BorderSize
from armillary.compute.cl.vision import CLAbsoluteDifference as CLAbsoluteDifference
from armillary.compute.cl.layers import CLActivationLayer as CLActivationLayer
from armillary.compute.cl.layers import CLBatchNormalizationLayer as CLBatchNormalizationLayer
from armillary.compute.cl.vision import CLBitwiseAnd as CLBitwiseAnd
from armillary.compute.cl.vision import CLBitwiseNot as CLBitwiseNot
from armillary.compute.cl.vision import CLBitwiseOr as CLBitwiseOr
from armillary.compute.cl.vision import CLBitwiseXor as CLBitwiseXor
from armillary.compute.cl.vision import CLBox3x3 as CLBox3x3
from armillary.compute.cl.tensor import CLBufferAllocator as CLBufferAllocator
from armillary.compute.cl.vision import CLConvolution3x3 as CLConvolution3x3
from armillary.compute.cl.vision import CLConvolution5x5 as CLConvolution5x5
from armillary.compute.cl.layers import CLConvolutionLayer as CLConvolutionLayer
from armillary.compute.cl.layers import CLDepthConcatenateLayer as CLDepthConcatenateLayer
from armillary.compute.cl.layers import CLDepthwiseConvolutionLayer as CLDepthwiseConvolutionLayer
from armillary.compute.cl.vision import CLDilate as CLDilate
from armillary.compute.cl.layers import CLDirectConvolutionLayer as CLDirectConvolutionLayer
from armillary.compute.cl.layers import CLElementwiseAddition as CLElementwiseAddition
from armillary.compute.cl.vision import CLErode as CLErode
from armillary.compute.cl.kernels import CLFormulaKernel as CLFormulaKernel
from armillary.compute.cl.layers import CLFullyConnectedLayer as CLFullyConnectedLayer
from armillary.compute.cl.layers import CLGEMMConvolutionLayer as CLGEMMConvolutionLayer
from armillary.compute.cl.vision import CLGaussian3x3 as CLGaussian3x3
from armillary.compute.cl.vision import CLGaussian5x5 as CLGaussian5x5
from armillary.compute.cl.tensor import CLImage as CLImage
from armillary.compute.cl.kernels import CLKernelLibrary as CLKernelLibrary
from armillary.compute.cl.vision import CLMedian3x3 as CLMedian3x3
from armillary.compute.runtime.memory.manager import CLMemoryGroup as CLMemoryGroup
from armillary.compute.cl.layers import CLNormalizationLayer as CLNormalizationLayer
from armillary.compute.cl.layers import CLPermute as CLPermute
from armillary.compute.cl.layers import CLPoolingLayer as CLPoolingLayer
from armillary.compute.cl.vision import CLScale as CLScale
from armillary.compute.cl.scheduler import CLScheduler as CLScheduler
from armillary.compute.cl.vision import CLSobel3x3 as CLSobel3x3
from armillary.compute.cl.layers import CLSoftmaxLayer as CLSoftmaxLayer
from armillary.compute.cl.tensor import CLTensor as CLTensor
from armillary.compute.cl.vision import CLThreshold as CLThreshold
from armillary.compute.cl.tuner import CLTuner as CLTuner
from armillary.compute.functions.nn.shape import NEPermute as CPPPermute
from armillary.compute.runtime.scheduler import CPPScheduler as CPPScheduler
from armillary.compute.core.kernel import CPUInfo as CPUInfo
from armillary.compute.cl.scheduler import CommandQueue as CommandQueue
from armillary.compute.cl.scheduler import Context as Context
from armillary.compute.core.types import ConvolutionMethod as ConvolutionMethod
from armillary.compute.core.window import Coordinates as Coordinates
from armillary.compute.core.tensor_info import DataType as DataType
from armillary.compute.core.window import Dimension as Dimension
from armillary.compute.core.types import DimensionRoundingType as DimensionRoundingType
from armillary.compute.cl.scheduler import Event as Event
from armillary.compute.core.tensor_info import Format as Format
from armillary.compute.core.types import FullyConnectedLayerInfo as FullyConnectedLayerInfo
from armillary.compute.core.types import GEMMInfo as GEMMInfo
from armillary.compute.runtime.memory.pool import IAllocator as IAllocator
from armillary.compute.core.kernel import IKernel as IKernel
from armillary.compute.runtime.memory.lifetime import ILifetimeManager as ILifetimeManager
from armillary.compute.runtime.memory.manager import IMemoryManager as IMemoryManager
from armillary.compute.runtime.scheduler import IScheduler as IScheduler
from armillary.compute.runtime.tensor import Image as Image
from armillary.compute.functions.vision import InterpolationPolicy as InterpolationPolicy
from armillary.compute.core.iterator import Iterator as Iterator
from armillary.compute.runtime.memory.manager import MemoryGroup as MemoryGroup
from armillary.compute.runtime.memory.manager import MemoryManagerOnDemand as MemoryManagerOnDemand
from armillary.compute.functions.vision import NEAbsoluteDifference as NEAbsoluteDifference
from armillary.compute.functions.nn.layers import NEActivationLayer as NEActivationLayer
from armillary.compute.functions.nn.layers import NEBatchNormalizationLayer as NEBatchNormalizationLayer
from armillary.compute.functions.vision import NEBitwiseAnd as NEBitwiseAnd
from armillary.compute.functions.vision import NEBitwiseNot as NEBitwiseNot
from armillary.compute.functions.vision import NEBitwiseOr as NEBitwiseOr
from armillary.compute.functions.vision import NEBitwiseXor as NEBitwiseXor
from armillary.compute.functions.vision import NEBox3x3 as NEBox3x3
from armillary.compute.functions.nn.shape import NEConcatenateLayer as NEConcatenateLayer
from armillary.compute.functions.vision import NEConvolution3x3 as NEConvolution3x3
from armillary.compute.functions.vision import NEConvolution5x5 as NEConvolution5x5
from armillary.compute.functions.nn.convolution import NEConvolutionLayer as NEConvolutionLayer
from armillary.compute.functions.nn.shape import NEDepthConcatenateLayer as NEDepthConcatenateLayer
from armillary.compute.functions.nn.convolution import NEDepthwiseConvolutionLayer as NEDepthwiseConvolutionLayer
from armillary.compute.functions.nn.layers import NEDequantizationLayer as NEDequantizationLayer
from armillary.compute.functions.vision import NEDilate as NEDilate
from armillary.compute.functions.nn.convolution import NEDirectConvolutionLayer as NEDirectConvolutionLayer
from armillary.compute.functions.nn.shape import NEElementwiseAddition as NEElementwiseAddition
from armillary.compute.functions.nn.shape import NEElementwiseMax as NEElementwiseMax
from armillary.compute.functions.nn.shape import NEElementwiseMin as NEElementwiseMin
from armillary.compute.functions.vision import NEErode as NEErode
from armillary.compute.functions.nn.shape import NEFlattenLayer as NEFlattenLayer
from armillary.compute.functions.nn.product import NEFullyConnectedLayer as NEFullyConnectedLayer
from armillary.compute.functions.nn.product import NEGEMM as NEGEMM
from armillary.compute.functions.nn.convolution import NEGEMMConvolutionLayer as NEGEMMConvolutionLayer
from armillary.compute.functions.nn.product import NEGEMMLowpMatrixMultiplyCore as NEGEMMLowpMatrixMultiplyCore
from armillary.compute.functions.vision import NEGaussian3x3 as NEGaussian3x3
from armillary.compute.functions.vision import NEGaussian5x5 as NEGaussian5x5
from armillary.compute.functions.nn.shape import NEHeightConcatenateLayer as NEHeightConcatenateLayer
from armillary.compute.functions.vision import NEMedian3x3 as NEMedian3x3
from armillary.compute.functions.nn.layers import NENormalizationLayer as NENormalizationLayer
from armillary.compute.functions.nn.shape import NEPermute as NEPermute
from armillary.compute.functions.nn.layers import NEPoolingLayer as NEPoolingLayer
from armillary.compute.functions.nn.layers import NEQuantizationLayer as NEQuantizationLayer
from armillary.compute.functions.nn.shape import NEReshapeLayer as NEReshapeLayer
from armillary.compute.functions.vision import NEScale as NEScale
from armillary.compute.runtime.scheduler import NEScheduler as NEScheduler
from armillary.compute.functions.vision import NESobel3x3 as NESobel3x3
from armillary.compute.functions.nn.layers import NESoftmaxLayer as NESoftmaxLayer
from armillary.compute.functions.vision import NEThreshold as NEThreshold
from armillary.compute.functions.nn.shape import NEWidthConcatenateLayer as NEWidthConcatenateLayer
from armillary.compute.functions.nn.convolution import NEWinogradConvolutionLayer as NEWinogradConvolutionLayer
from armillary.compute.functions.nn.convolution import NEWinogradConvolutionLayer as NEWinogradLayer
from armillary.compute.core.types import NormType as NormType
from armillary.compute.core.types import NormalizationLayerInfo as NormalizationLayerInfo
from armillary.compute.runtime.scheduler import OMPScheduler as OMPScheduler
from armillary.compute.runtime.memory.lifetime import OffsetLifetimeManager as OffsetLifetimeManager
from armillary.compute.runtime.memory.pool import OffsetMemoryPool as OffsetMemoryPool
from armillary.compute.runtime.ppm import PPMLoader as PPMLoader
from armillary.compute.core.types import PadStrideInfo as PadStrideInfo
from armillary.compute.core.tensor_info import PaddingSize as PaddingSize
from armillary.compute.core.types import PermutationVector as PermutationVector
from armillary.compute.runtime.memory.pool import PoolManager as PoolManager
from armillary.compute.core.types import PoolingLayerInfo as PoolingLayerInfo
from armillary.compute.core.types import PoolingType as PoolingType
from armillary.compute.core.tensor_info import QuantizationInfo as QuantizationInfo
from armillary.compute.runtime.scheduler import Scheduler as Scheduler
from armillary.compute.runtime.scheduler import SingleThreadScheduler as SingleThreadScheduler
from armillary.compute.core.types import Size2D as Size2D
from armillary.compute.core.kernel import Status as Status
from armillary.compute.core.window import Steps as Steps
from armillary.compute.runtime.tensor import Tensor as Tensor
from armillary.compute.core.tensor_info import TensorInfo as TensorInfo
from armillary.compute.core.tensor_info import TensorShape as TensorShape
from armillary.compute.core.kernel import ThreadInfo as ThreadInfo
from armillary.compute.core.tensor_info import ValidRegion as ValidRegion
from armillary.compute.core.types import WeightsInfo as WeightsInfo
from armillary.compute.core.window import Window as Window
from armillary.compute.runtime.scheduler import cpu_info as cpu_info
from armillary.compute.core.iterator import execute_window_loop as execute_window_loop
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
    "CLActivationLayer",
    "CLBatchNormalizationLayer",
    "CLBitwiseAnd",
    "CLBitwiseNot",
    "CLBitwiseOr",
    "CLBitwiseXor",
    "CLBox3x3",
    "CLBufferAllocator",
    "CLConvolution3x3",
    "CLConvolution5x5",
    "CLConvolutionLayer",
    "CLDepthConcatenateLayer",
    "CLDepthwiseConvolutionLayer",
    "CLDilate",
    "CLDirectConvolutionLayer",
    "CLElementwiseAddition",
    "CLErode",
    "CLFormulaKernel",
    "CLFullyConnectedLayer",
    "CLGEMMConvolutionLayer",
    "CLGaussian3x3",
    "CLGaussian5x5",
    "CLImage",
    "CLKernelLibrary",
    "CLMedian3x3",
    "CLMemoryGroup",
    "CLNormalizationLayer",
    "CLPermute",
    "CLPoolingLayer",
    "CLScale",
    "CLScheduler",
    "CLSobel3x3",
    "CLSoftmaxLayer",
    "CLTensor",
    "CLThreshold",
    "CLTuner",
    "CPPPermute",
    "CPPScheduler",
    "CPUInfo",
    "CommandQueue",
    "Context",
    "ConvolutionMethod",
    "Coordinates",
    "DataType",
    "Dimension",
    "DimensionRoundingType",
    "Event",
    "Format",
    "FullyConnectedLayerInfo",
    "GEMMInfo",
    "IAllocator",
    "IKernel",
    "ILifetimeManager",
    "IMemoryManager",
    "IScheduler",
    "Image",
    "InterpolationPolicy",
    "Iterator",
    "MemoryGroup",
    "MemoryManagerOnDemand",
    "NEAbsoluteDifference",
    "NEActivationLayer",
    "NEBatchNormalizationLayer",
    "NEBitwiseAnd",
    "NEBitwiseNot",
    "NEBitwiseOr",
    "NEBitwiseXor",
    "NEBox3x3",
    "NEConcatenateLayer",
    "NEConvolution3x3",
    "NEConvolution5x5",
    "NEConvolutionLayer",
    "NEDepthConcatenateLayer",
    "NEDepthwiseConvolutionLayer",
    "NEDequantizationLayer",
    "NEDilate",
    "NEDirectConvolutionLayer",
    "NEElementwiseAddition",
    "NEElementwiseMax",
    "NEElementwiseMin",
    "NEErode",
    "NEFlattenLayer",
    "NEFullyConnectedLayer",
    "NEGEMM",
    "NEGEMMConvolutionLayer",
    "NEGEMMLowpMatrixMultiplyCore",
    "NEGaussian3x3",
    "NEGaussian5x5",
    "NEHeightConcatenateLayer",
    "NEMedian3x3",
    "NENormalizationLayer",
    "NEPermute",
    "NEPoolingLayer",
    "NEQuantizationLayer",
    "NEReshapeLayer",
    "NEScale",
    "NEScheduler",
    "NESobel3x3",
    "NESoftmaxLayer",
    "NEThreshold",
    "NEWidthConcatenateLayer",
    "NEWinogradConvolutionLayer",
    "NEWinogradLayer",
    "NormType",
    "NormalizationLayerInfo",
    "OMPScheduler",
    "OffsetLifetimeManager",
    "OffsetMemoryPool",
    "PPMLoader",
    "PadStrideInfo",
    "PaddingSize",
    "PermutationVector",
    "PoolManager",
    "PoolingLayerInfo",
    "PoolingType",
    "QuantizationInfo",
    "Scheduler",
    "SingleThreadScheduler",
    "Size2D",
    "Status",
    "Steps",
    "Tensor",
    "TensorInfo",
    "TensorShape",
    "ThreadInfo",
    "ValidRegion",
    "WeightsInfo",
    "Window",
    "cpu_info",
    "execute_window_loop",
    "save_to_ppm",
]
