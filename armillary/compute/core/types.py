"""What functions are configured with: padding and strides, pooling, activation, normalisation, quantisation.

In: numbers as the library's constructors take them. Out: frozen records. Invariant: a record that can be made is
consistent in itself; whether it fits tensors is for `validate`. Width comes before height, x before y.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from armillary.base.boundary import bounded
from armillary.base.record import record
from armillary.compute.core.layout import DataLayout
from armillary.errors import TypeMismatch


class DimensionRoundingType(Enum):
    """How the last, partial step of a window over an image counts."""

    FLOOR, CEIL = "floor", "ceil"


class ConvolutionMethod(Enum):
    """How a convolution is computed."""

    GEMM, DIRECT, WINOGRAD, FFT = "gemm", "direct", "winograd", "fft"


class ActivationFunction(Enum):
    """x to y, with the parameters a and b."""

    LOGISTIC, TANH, RELU, BOUNDED_RELU, LU_BOUNDED_RELU = "logistic", "tanh", "relu", "bounded_relu", "lu_bounded_relu"
    LEAKY_RELU, SOFT_RELU, ELU, ABS, SQUARE = "leaky_relu", "soft_relu", "elu", "abs", "square"
    SQRT, LINEAR, IDENTITY, HARD_SWISH = "sqrt", "linear", "identity", "hard_swish"


class PoolingType(Enum):
    """What pooling makes of the elements under its window."""

    MAX, AVG, L2 = "max", "avg", "l2"


class NormType(Enum):
    """Which elements a normalisation adds up: of a row, around in a plane, or of the channels around."""

    IN_MAP_1D, IN_MAP_2D, CROSS_MAP = "in_map_1d", "in_map_2d", "cross_map"


class InterpolationPolicy(Enum):
    """How a pixel between pixels is found."""

    NEAREST_NEIGHBOR, BILINEAR, AREA = "nearest", "bilinear", "area"


class ConvertPolicy(Enum):
    """What becomes of a result that its type does not hold: its low bits, or the nearest value."""

    WRAP, SATURATE = "wrap", "saturate"


class RoundingPolicy(Enum):
    """Where a fraction goes."""

    TO_ZERO, TO_NEAREST_UP, TO_NEAREST_EVEN = "to_zero", "to_nearest_up", "to_nearest_even"


class MagnitudeType(Enum):
    """How long a gradient is: the sum of both sizes, or the root of the sum of their squares."""

    L1NORM, L2NORM = "L1", "L2"


class PhaseType(Enum):
    """SIGNED: 0 to 255 for a whole turn. UNSIGNED: degrees of half a turn."""

    SIGNED, UNSIGNED = "signed", "unsigned"


class ThresholdType(Enum):
    """BINARY: above a threshold or not. RANGE: between two or not."""

    BINARY, RANGE = "binary", "range"


class NonLinearFilterFunction(Enum):
    """Which of the pixels under a mask is taken."""

    MEDIAN, MIN, MAX = "median", "least", "greatest"


class MatrixPattern(Enum):
    """The shape of a mask: all, a disk, a cross, or one that is given."""

    BOX, CROSS, DISK, OTHER = "box", "cross", "disk", "other"


class Channel(Enum):
    """A part of a pixel."""

    C0, C1, C2, C3 = "c0", "c1", "c2", "c3"
    R, G, B, A, Y, U, V = "r", "g", "b", "a", "y", "u", "v"


class Termination(Enum):
    """What ends the iterations of a point: a small step, their number, or either."""

    TERM_CRITERIA_EPSILON, TERM_CRITERIA_ITERATIONS, TERM_CRITERIA_BOTH = "epsilon", "iterations", "both"


@record(slots=True)
class Size2D:
    """Width and height."""

    width: int = 1
    height: int = 1


@bounded
class PadStrideInfo:
    """Strides first, then padding: `(stride_x, stride_y, pad_x, pad_y, round)` or with left, right, top and bottom.

    FLOOR is the default, as in the library; Caffe rounds up.
    """

    __slots__ = ("_pads", "_strides", "round")

    def __init__(
        self,
        stride_x: int = 1,
        stride_y: int = 1,
        pad_x: int = 0,
        pad_y: int = 0,
        *more: int | DimensionRoundingType,
        round: DimensionRoundingType = DimensionRoundingType.FLOOR,
    ) -> None:
        pads = [n for n in more if isinstance(n, int)]
        rounds = [n for n in more if isinstance(n, DimensionRoundingType)]
        if len(pads) not in (0, 2) or len(rounds) > 1:
            raise TypeMismatch(f"PadStrideInfo takes two or four paddings and a rounding, got {pads} and {rounds}")
        sides = (pad_x, pad_y, *pads) if pads else (pad_x, pad_x, pad_y, pad_y)
        if min(stride_x, stride_y) < 1 or min(sides) < 0:
            raise TypeMismatch(f"PadStrideInfo: strides {(stride_x, stride_y)}, padding {sides}; wanted >= 1 and >= 0")
        self._strides, self._pads = (stride_x, stride_y), sides
        self.round = rounds[0] if rounds else round

    def stride(self) -> tuple[int, int]:
        """Along x and y."""
        return self._strides

    def pad(self) -> tuple[int, int]:
        """Left and top."""
        return self._pads[0], self._pads[2]

    def pad_left(self) -> int:
        """Before each row."""
        return self._pads[0]

    def pad_right(self) -> int:
        """After each row."""
        return self._pads[1]

    def pad_top(self) -> int:
        """Above the first row."""
        return self._pads[2]

    def pad_bottom(self) -> int:
        """Below the last row."""
        return self._pads[3]

    def scaled(self, size: tuple[int, int], window: Size2D, dilation: Size2D | None = None) -> tuple[int, int]:
        """Width and height of what a window gives over an image; below 1 where it does not fit."""
        around = (self._pads[0] + self._pads[1], self._pads[2] + self._pads[3])
        spread = dilation or Size2D()
        spans = ((window.width - 1) * spread.width + 1, (window.height - 1) * spread.height + 1)
        sizes = []
        for n in (0, 1):
            room = size[n] + around[n] - spans[n]
            step = self._strides[n]
            steps = -(-room // step) if self.round is DimensionRoundingType.CEIL else room // step
            sizes.append(steps + 1 if room >= 0 else 0)
        return sizes[0], sizes[1]

    def __repr__(self) -> str:
        return f"PadStrideInfo(strides {self._strides}, padding {self._pads}, {self.round.name})"


@record(slots=True)
class ActivationLayerInfo:
    """An activation with its parameters; none unless a function is given."""

    activation: ActivationFunction | None = None
    a: float = 0.0
    b: float = 0.0

    def enabled(self) -> bool:
        """Whether there is one."""
        return self.activation is not None


class PoolingLayerInfo:
    """`(type, size, pad_stride_info, exclude_padding)`; without a size, the whole image."""

    __slots__ = ("exclude_padding", "is_global_pooling", "pad_stride_info", "pool_size", "pool_type")

    def __init__(
        self,
        pool_type: PoolingType,
        pool_size: int | Size2D | None = None,
        pad_stride_info: PadStrideInfo | None = None,
        exclude_padding: bool = False,
    ) -> None:
        if not isinstance(pad_stride_info, PadStrideInfo | None) or not isinstance(pool_size, Size2D | int | None):
            got = f"{type(pool_size).__name__} and {type(pad_stride_info).__name__}"
            raise TypeMismatch(f"PoolingLayerInfo: got {got}, wanted a size and a PadStrideInfo")
        self.pool_type, self.is_global_pooling = pool_type, pool_size is None
        self.pool_size = pool_size if isinstance(pool_size, Size2D) else Size2D(pool_size or 1, pool_size or 1)
        self.pad_stride_info, self.exclude_padding = pad_stride_info or PadStrideInfo(), exclude_padding


@record(slots=True)
class NormalizationLayerInfo:
    """x / (kappa + alpha / n * sum of squares) ** beta over `norm_size` neighbours; n is 1 unless `is_scaled`."""

    type: NormType = NormType.CROSS_MAP
    norm_size: int = 5
    alpha: float = 0.0001
    beta: float = 0.5
    kappa: float = 1.0
    is_scaled: bool = True


@record(slots=True)
class GEMMInfo:
    """Whether the right-hand side stays the same from run to run, and what follows the product."""

    reshape_b_only_on_first_run: bool = True
    activation_info: ActivationLayerInfo = field(default_factory=ActivationLayerInfo)


@record(slots=True)
class WeightsInfo:
    """Weights are given as (width, height, inputs, outputs); reshaped ones are refused."""

    are_reshaped: bool = False


@record(slots=True)
class FullyConnectedLayerInfo:
    """Whether weights are given as (inputs, outputs) with inputs along the row (the library's `transpose_weights`).

    `weights_trained_layout`: the order of an image's values that the weights are for.
    """

    transpose_weights: bool = True
    activation_info: ActivationLayerInfo = field(default_factory=ActivationLayerInfo)
    weights_trained_layout: DataLayout = DataLayout.NCHW


@bounded
class PermutationVector(tuple[int, ...]):
    """Dimension n of the output is dimension `vector[n]` of the input."""

    def __new__(cls, *dimensions: int) -> PermutationVector:
        if sorted(dimensions) != list(range(len(dimensions))):
            raise TypeMismatch(f"a permutation names each of {len(dimensions)} dimensions once, got {dimensions}")
        return super().__new__(cls, dimensions)
