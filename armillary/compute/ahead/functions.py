"""Which kernels each function needs that can be compiled ahead of time.

In: nothing. Out: `FUNCTIONS`, by the library's names. Invariant: the classes of `armillary_compute_*.hpp` look kernels
up by the names that these have. Left to Python: masks that a program says where
it runs.
"""

from __future__ import annotations

from itertools import product

from armillary.compute.core.compiled import Formula
from armillary.compute.core.loops import Loops
from armillary.compute.core.tensor_info import DataType
from armillary.compute.core.types import MatrixPattern
from armillary.compute.functions.formulas import arithmetic as points
from armillary.compute.functions.formulas import features, filters, flow, geometry, hog, pyramid
from armillary.compute.functions.stages import fourier, images, products, rows, tiles, winograd
from armillary.compute.functions.stages.stage import Stage
from armillary.compute.functions.vision import colour, statistics
from armillary.compute.functions.vision import features as edges
from armillary.compute.functions.vision.filters import mask_offsets

Kernel = Formula | Stage | Loops
_U8, _S16, _S32, _F32 = DataType.U8, DataType.S16, DataType.S32, DataType.F32
_PRODUCTS = products.STAGES
_GEMM = (*_PRODUCTS, images.FILL_BORDER, images.IM2COL, images.RESHAPE_WEIGHTS, images.COL2IM)
_GROUPED = (images.FILL_BORDER, images.direct(True, True), images.direct(False, True))
_DIRECT = (images.FILL_BORDER, images.direct(True), images.direct(False))
_WINOGRAD = (images.FILL_BORDER, *tiles.STAGES, *winograd.STAGES)
_FOURIER = (images.FILL_BORDER, *tiles.STAGES, *fourier.STAGES)
_PAIRS = ((_U8, _U8, _U8), (_U8, _U8, _S16), (_U8, _S16, _S16), (_S16, _U8, _S16), (_S16, _S16, _S16))
_POLICIES, _BORDERS = ("nearest", "bilinear"), ("constant", "replicate")
_PATTERNS = (MatrixPattern.BOX, MatrixPattern.CROSS, MatrixPattern.DISK)
_MASKS = dict.fromkeys(mask_offsets(side, pattern) for side in (3, 5) for pattern in _PATTERNS)
_SOBEL = {3: filters.SOBEL_3X3, 5: filters.SOBEL_5X5, 7: filters.SOBEL_7X7}
_SCALES = tuple(geometry.scale(p, k, b) for p in _POLICIES for k in (_U8, _S16, _F32) for b in _BORDERS)
_HOG = (filters.DERIVATIVE, points.MAGNITUDE_L2, points.PHASE_SIGNED, points.PHASE_UNSIGNED, hog.VOTES, hog.BLOCKS)


def _sums(sign: int) -> tuple[Formula, ...]:
    """Sums or differences of all types; reals have no policy for what is too large."""
    whole = [points.arithmetic(sign, (a, b), out, saturates) for a, b, out in _PAIRS for saturates in (True, False)]
    return (*whole, points.arithmetic(sign, (_F32, _F32), _F32, True))


def _multiplications() -> tuple[Formula, ...]:
    rules = product(_PAIRS, (True, False), (True, False))
    whole = [points.multiplication((a, b), out, saturates, is_real) for (a, b, out), saturates, is_real in rules]
    return (*whole, *(points.multiplication((_F32, _F32), _F32, True, is_real) for is_real in (True, False)))


def _warps(is_perspective: bool) -> tuple[Formula, ...]:
    return tuple(geometry.warp(policy, is_perspective, border) for policy in _POLICIES for border in _BORDERS)


def _convolutions(columns: int, rows: int) -> tuple[Formula, ...]:
    return tuple(filters.convolution(columns, rows, kind) for kind in (_U8, _S16))


def _harris() -> tuple[Formula, ...]:
    blocks = tuple(features.harris(block, kind) for block in (3, 5, 7) for kind in (_S16, _S32))
    return (*_SOBEL.values(), *blocks, filters.non_maxima_suppression(_F32))


def _canny() -> tuple[Kernel, ...]:
    gradients = tuple(features.edge_gradients(_SOBEL[side], is_sum) for side in (3, 5) for is_sum in (True, False))
    crests = (features.crest(_S16), features.crest(_S32))
    return (*gradients, *crests, features.SPREAD, features.STRONG_ONLY, edges.TRACE)


FUNCTIONS: dict[str, tuple[Kernel, ...]] = {
    "NEGaussian3x3": (filters.GAUSSIAN_3X3,),
    "NEGaussian5x5": (filters.GAUSSIAN_5X5,),
    "NEBox3x3": (filters.BOX_3X3,),
    "NEMedian3x3": (filters.MEDIAN_3X3,),
    "NEErode": (filters.ERODE,),
    "NEDilate": (filters.DILATE,),
    "NENonLinearFilter": tuple(filters.non_linear(f, m) for f in ("median", "least", "greatest") for m in _MASKS),
    **{f"NEConvolution{n}x{n}": _convolutions(n, n) for n in (3, 5, 7, 9)},
    "NEConvolutionRectangle": tuple(f for n, m in product((3, 5, 7, 9), repeat=2) for f in _convolutions(n, m)),
    "NESobel3x3": (filters.SOBEL_3X3,),
    "NESobel5x5": (filters.SOBEL_5X5,),
    "NESobel7x7": (filters.SOBEL_7X7,),
    "NEScharr3x3": (filters.SCHARR_3X3,),
    "NEDerivative": (filters.DERIVATIVE,),
    "NENonMaximaSuppression3x3": tuple(filters.non_maxima_suppression(kind) for kind in (_U8, _F32)),
    "NEArithmeticAddition": _sums(1),
    "NEArithmeticSubtraction": _sums(-1),
    "NEPixelWiseMultiplication": _multiplications(),
    "NEAbsoluteDifference": (points.ABSOLUTE_DIFFERENCE, points.ABSOLUTE_DIFFERENCE_S16),
    "NEBitwiseAnd": (points.BITWISE_AND,),
    "NEBitwiseOr": (points.BITWISE_OR,),
    "NEBitwiseXor": (points.BITWISE_XOR,),
    "NEBitwiseNot": (points.BITWISE_NOT,),
    "NEThreshold": (points.THRESHOLD, points.THRESHOLD_RANGE),
    "NEAccumulate": (points.ACCUMULATE,),
    "NEAccumulateSquared": (points.ACCUMULATE_SQUARED,),
    "NEAccumulateWeighted": (points.ACCUMULATE_WEIGHTED,),
    "NEMagnitude": (points.MAGNITUDE_L1, points.MAGNITUDE_L2),
    "NEPhase": (points.PHASE_SIGNED, points.PHASE_UNSIGNED),
    "NETableLookup": (points.table_lookup(_U8, 256, 0),),
    "NEScale": (*_SCALES, *map(geometry.scale_boxes, _BORDERS)),
    "NERemap": tuple(geometry.remap(policy, border) for policy in _POLICIES for border in _BORDERS),
    "NEWarpAffine": _warps(False),
    "NEWarpPerspective": _warps(True),
    "NEColorConvert": colour.conversion_formulas(),
    "NEChannelExtract": colour.extraction_formulas(),
    "NEChannelCombine": colour.combination_formulas(),
    "NEHistogram": (statistics.COUNTS,),
    "NEEqualizeHistogram": (statistics.COUNTS, points.table_lookup(_U8, 256, 0)),
    "NEMeanStdDev": (statistics.SUMS,),
    "NEMinMaxLocation": tuple(statistics.EXTREMES.values()),
    "NEIntegralImage": (statistics.INTEGRAL,),
    "NEFastCorners": (features.FAST, filters.non_maxima_suppression(_U8)),
    "NEHarrisCorners": _harris(),
    "NECannyEdge": _canny(),
    "NEGaussianPyramidHalf": (pyramid.COPY, pyramid.HALVED),
    "NEGaussianPyramidOrb": (pyramid.COPY, filters.GAUSSIAN_5X5, *_SCALES),
    "NELaplacianPyramid": (
        *(pyramid.COPY, pyramid.HALVED, filters.GAUSSIAN_5X5),
        points.arithmetic(-1, (_U8, _U8), _S16, False),
        pyramid.converted(_U8, _S16),
    ),
    "NELaplacianReconstruct": (
        *(geometry.scale("nearest", _S16, border) for border in _BORDERS),
        points.arithmetic(1, (_S16, _S16), _S16, False),
        pyramid.converted(_S16, _U8),
    ),
    "NEHOGDescriptor": _HOG,
    "NEHOGDetector": (hog.SCORES,),
    "NEHOGMultiDetection": (*_HOG, hog.SCORES),
    "NEOpticalFlow": (filters.SCHARR_3X3, flow.TRACK),
    "NEConvolutionLayer": (*_GEMM, *_WINOGRAD, *_GROUPED),
    "NEGEMMConvolutionLayer": (*_GEMM, *_GROUPED),
    "NEDirectConvolutionLayer": _DIRECT,
    "NEWinogradConvolutionLayer": _WINOGRAD,
    "NEFFTConvolutionLayer": _FOURIER,
    "NEDepthwiseConvolutionLayer": _GROUPED,
    "NEBatchNormalizationLayer": (rows.BATCH_NORMALIZATION,),
    "NENormalizationLayer": (rows.NORMALIZATION,),
    "NEDepthConcatenateLayer": (rows.COPY_ROWS,),
    "NEGEMM": _PRODUCTS,
    "NEFullyConnectedLayer": (*_PRODUCTS, images.RESHAPE_WEIGHTS, rows.COPY_ROWS),
    "NEFlattenLayer": (rows.COPY_ROWS,),
    "NEReshapeLayer": (rows.COPY_ROWS,),
    "NESoftmaxLayer": (rows.SOFTMAX,),
    "NEActivationLayer": tuple(rows.activation(name) for name in rows.ACTIVATIONS),
    "NEPoolingLayer": (rows.pooling(True), rows.pooling(False)),
}
