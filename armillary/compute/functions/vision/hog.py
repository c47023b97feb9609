"""Histograms of gradients: descriptors of an image, detectors over them, several detectors at once.

In: an image of U8; a `HOG` has sizes of cells, blocks and windows, and for detection a linear classifier. Out: a
descriptor for each block (F32, as channels), or `DetectionWindow`s. Invariant: sizes are whole cells and whole strides;
the places of windows are those of the library. Votes: `functions/formulas/hog.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum

import numpy as np

from armillary.base.boundary import bounded
from armillary.base.record import record
from armillary.compute.core.kernel import IKernel, Status
from armillary.compute.core.loops import LoopsKernel
from armillary.compute.core.tensor_info import BorderMode, DataType, TensorInfo, TensorShape
from armillary.compute.core.types import Size2D
from armillary.compute.functions.formulas.hog import binning
from armillary.compute.functions.vision.arithmetic import NEMagnitude, NEPhase, PhaseType
from armillary.compute.functions.vision.base import VisionFunction, image, objection, refuse, size_of, wrong_type
from armillary.compute.functions.vision.detection import CPPDetectionWindowNonMaximaSuppressionKernel, DetectionWindow
from armillary.compute.functions.vision.filters import NEDerivative
from armillary.compute.runtime.tensor import Array, Tensor
from armillary.errors import ExecutionError, TypeMismatch

U8, S16, F32 = DataType.U8, DataType.S16, DataType.F32


class HOGNormType(Enum):
    """How a block is normalised: by its length, by its length after large values were clipped, by its sum."""

    L2_NORM, L2HYS_NORM, L1_NORM = "l2", "l2hys", "l1"


@record(slots=True)
class HOGInfo:
    """Sizes in pixels; blocks, strides and windows are whole cells, windows whole strides of blocks."""

    cell_size: Size2D
    block_size: Size2D
    detection_window_size: Size2D
    block_stride: Size2D
    num_bins: int
    normalization_type: HOGNormType = HOGNormType.L2HYS_NORM
    l2_hyst_threshold: float = 0.2
    phase_type: PhaseType = PhaseType.UNSIGNED

    def __post_init__(self) -> None:
        pairs = [
            ("a block", _pair(self.block_size), "cells", _pair(self.cell_size)),
            ("the stride of blocks", _pair(self.block_stride), "cells", _pair(self.cell_size)),
            (
                "what a window has beyond a block",
                tuple(w - b for w, b in zip(_pair(self.detection_window_size), _pair(self.block_size), strict=True)),
                "strides of blocks",
                _pair(self.block_stride),
            ),
        ]
        if min(*_pair(self.cell_size), *_pair(self.block_stride), self.num_bins) < 1:
            raise TypeMismatch(f"HOGInfo: cells of {_pair(self.cell_size)}, {self.num_bins} bins; wanted at least 1")
        for what, size, unit, part in pairs:
            if any(n < 0 or n % p for n, p in zip(size, part, strict=True)):
                raise TypeMismatch(f"HOGInfo: {what} of {size[0]}x{size[1]} is no whole {unit} of {part[0]}x{part[1]}")

    def num_cells_per_block(self) -> Size2D:
        """Cells of a block along x and y."""
        return Size2D(self.block_size.width // self.cell_size.width, self.block_size.height // self.cell_size.height)

    def num_block_positions_per_image(self, image_size: Size2D) -> Size2D:
        """Blocks of an image along x and y."""
        spare = (image_size.width - self.block_size.width, image_size.height - self.block_size.height)
        return Size2D(spare[0] // self.block_stride.width + 1, spare[1] // self.block_stride.height + 1)

    def num_bins_per_block(self) -> int:
        """Values of a block's descriptor."""
        cells = self.num_cells_per_block()
        return cells.width * cells.height * self.num_bins

    def descriptor_size(self) -> int:
        """Values of a window's descriptor, and one more, the bias."""
        blocks = self.num_block_positions_per_image(self.detection_window_size)
        return blocks.width * blocks.height * self.num_bins_per_block() + 1

    def tensor_info(self, width: int, height: int) -> TensorInfo:
        """What the descriptors of an image are; the library's `TensorInfo(hog_info, width, height)`."""
        blocks = self.num_block_positions_per_image(Size2D(width, height))
        if min(blocks.width, blocks.height) < 1:
            told = f"HOGInfo: {width}x{height} pixels hold no block of {self.block_size.width}x{self.block_size.height}"
            raise TypeMismatch(told)
        return TensorInfo(TensorShape(blocks.width, blocks.height), self.num_bins_per_block(), F32)


def _pair(size: Size2D) -> tuple[int, int]:
    return size.width, size.height


class HOG:
    """Sizes, and a linear classifier: a factor for each value of a window's descriptor, then the bias."""

    def __init__(self) -> None:
        self._info: HOGInfo | None = None
        self._descriptor = np.zeros(0, np.float32)

    def init(self, info: HOGInfo) -> None:
        """Set the sizes; the classifier is all zeros."""
        self._info, self._descriptor = info, np.zeros(info.descriptor_size(), np.float32)

    def info(self) -> HOGInfo:
        """The sizes."""
        if self._info is None:
            raise ExecutionError("the HOG has no information", hint="call init(HOGInfo(…)) first")
        return self._info

    def descriptor(self) -> Array:
        """The classifier, to be filled."""
        return self._descriptor


@bounded
class MultiHOG:
    """Several models; those that share cells or blocks should follow one another."""

    def __init__(self, num_models: int) -> None:
        if num_models < 1:
            raise TypeMismatch(f"MultiHOG of {num_models} models, wanted at least 1")
        self._models = tuple(HOG() for _ in range(num_models))

    def num_models(self) -> int:
        """How many there are."""
        return len(self._models)

    def model(self, index: int) -> HOG:
        """One of them."""
        return self._models[index]


class _Gradients:
    """Length and direction of an image's gradients."""

    def __init__(self, source: Tensor, kind: PhaseType, border: BorderMode, constant: int) -> None:
        size = size_of(source.info())
        slope, length, turn = NEDerivative(), NEMagnitude(), NEPhase()
        gx, gy, self.length, self.turn = image(*size, S16), image(*size, S16), image(*size, S16), image(*size, U8)
        slope.configure(source, gx, gy, border, constant)
        length.configure(gx, gy, self.length)
        turn.configure(gx, gy, self.turn, kind)
        self.kernels: list[IKernel] = [*slope.kernels(), *length.kernels(), *turn.kernels()]
        self._all = (gx, gy, self.length, self.turn)

    def allocate(self) -> None:
        """Give all images their memory."""
        for tensor in self._all:
            tensor.allocator().allocate()


def _votes(gradients: _Gradients, info: HOGInfo) -> tuple[Tensor, IKernel]:
    """The histograms of all cells, allocated, and the kernel that makes them."""
    width, height = size_of(gradients.length.info())
    cell, bins = info.cell_size, info.num_bins
    found = image(width // cell.width * bins, height // cell.height, F32)
    loops = binning(cell.width, cell.height, bins, info.phase_type is PhaseType.SIGNED)
    kernel = LoopsKernel(loops)
    kernel.configure([found, gradients.length, gradients.turn])
    found.allocator().allocate()
    return found, kernel


def _normalised(votes: Array, info: HOGInfo) -> Array:
    """The descriptors of blocks (rows, columns, values), from (rows, cells * bins) of float32.

    A tenth of a block's size is added to its length, and 0.001 after clipping, as Dalal and Triggs do; L1 takes the
    root of the sum, as the library does.
    """
    cells, bins = info.num_cells_per_block(), info.num_bins
    grid = votes.reshape(votes.shape[0], -1, bins)
    steps = (info.block_stride.height // info.cell_size.height, info.block_stride.width // info.cell_size.width)
    windows = np.lib.stride_tricks.sliding_window_view(grid, (cells.height, cells.width), (0, 1))
    blocks = windows[:: steps[0], :: steps[1]].transpose(0, 1, 3, 4, 2)
    values: Array = np.ascontiguousarray(blocks, np.float32).reshape(*blocks.shape[:2], -1)
    room = np.float32(values.shape[2] * 0.1)
    is_sum = info.normalization_type is HOGNormType.L1_NORM
    total = np.abs(values).sum(2) if is_sum else (values * values).sum(2)
    values = values * (np.float32(1) / (np.sqrt(total) + room))[..., None]
    if info.normalization_type is HOGNormType.L2HYS_NORM:
        values = np.minimum(values, np.float32(info.l2_hyst_threshold))
        again = np.sqrt((values * values).sum(2)) + np.float32(1e-3)
        values = values * (np.float32(1) / again)[..., None]
    return values


class NEHOGDescriptor(VisionFunction):
    """The descriptors of an image's blocks."""

    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo, hog: HOG) -> Status:  # type: ignore[override]  # named
        """Whether images of this information and a model can be configured."""
        wanted = hog.info().tensor_info(*size_of(input))
        have = (*size_of(output), output.num_channels())
        want = (*size_of(wanted), wanted.num_channels())
        return objection(
            cls.__name__,
            wrong_type("tensor 0", input, U8),
            wrong_type("tensor 1", output, F32),
            f"tensor 1 is {have} (blocks along x and y, values of each), wanted {want}" if have != want else "",
        )

    def configure(
        self,
        input: Tensor,
        output: Tensor,
        hog: HOG,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the image, the descriptors (`HOGInfo.tensor_info`), and the model."""
        refuse(self.validate(input.info(), output.info(), hog))
        self._info, self._output = hog.info(), output
        gradients = _Gradients(input, self._info.phase_type, border_mode, constant_border_value)
        self._votes, kernel = _votes(gradients, self._info)
        self._set_kernels([*gradients.kernels, kernel])
        gradients.allocate()

    def run(self) -> None:
        """Compute the descriptors."""
        super().run()
        self._output.array()[...] = _normalised(self._votes.array(), self._info)


class NEHOGDetector:
    """Windows of an image's descriptors whose score, by a linear classifier, is above a threshold."""

    def __init__(self) -> None:
        self._blocks: Callable[[], Array] | None = None

    def configure(
        self,
        input: Tensor,
        hog: HOG,
        detection_windows: list[DetectionWindow],
        detection_window_stride: Size2D,
        threshold: float = 0.0,
        idx_class: int = 0,
    ) -> None:
        """Set the descriptors, the model, and the list that windows are added to."""
        wanted = hog.info().num_bins_per_block()
        if input.info().data_type is not F32 or input.info().num_channels() != wanted:
            told = (
                f"the descriptors are {input.info()!r} of {input.info().num_channels()} values, wanted F32 of {wanted}"
            )
            raise TypeMismatch(f"NEHOGDetector: {told}")
        self.set(input.array, hog, detection_windows, detection_window_stride, threshold, idx_class)

    def set(
        self,
        blocks: Callable[[], Array],
        hog: HOG,
        windows: list[DetectionWindow],
        stride: Size2D,
        threshold: float,
        idx_class: int,
    ) -> None:
        """As `configure`, with what gives the descriptors as an array."""
        info = hog.info()
        if stride.width % info.block_stride.width or stride.height % info.block_stride.height or stride.width < 1:
            told = f"{stride.width}x{stride.height}, wanted whole strides of blocks"
            raise TypeMismatch(f"NEHOGDetector: the stride of windows is {told}")
        self._blocks, self._hog, self._windows = blocks, hog, windows
        self._stride, self._threshold, self._class = stride, threshold, idx_class

    def run(self) -> None:
        """Add the windows that are found, row by row."""
        if self._blocks is None:
            raise ExecutionError("NEHOGDetector is not configured", hint="call configure first")
        info, blocks = self._hog.info(), self._blocks()
        size, stride = info.detection_window_size, info.block_stride
        steps = (self._stride.height // stride.height, self._stride.width // stride.width)
        spare = (blocks.shape[0] - size.height // stride.height, blocks.shape[1] - size.width // stride.width)
        counts = tuple(max(0, room // step) for room, step in zip(spare, steps, strict=True))  # the library's count
        if not math.prod(counts):
            return
        inside = info.num_block_positions_per_image(size)
        views = np.lib.stride_tricks.sliding_window_view(blocks, (inside.height, inside.width), (0, 1))
        chosen = views[: counts[0] * steps[0] : steps[0], : counts[1] * steps[1] : steps[1]].transpose(0, 1, 3, 4, 2)
        *factors, bias = self._hog.descriptor()
        scores = chosen.reshape(*counts, -1) @ np.asarray(factors, np.float32) + bias
        for row, column in np.argwhere(scores > self._threshold).tolist():
            x, y = column * self._stride.width, row * self._stride.height
            score = float(scores[row, column])
            self._windows.append(DetectionWindow(x, y, size.width, size.height, self._class, score))


class NEHOGMultiDetection(VisionFunction):
    """Windows of several models in one image; of those of a model that are close to one another the best, if asked."""

    def configure(
        self,
        input: Tensor,
        multi_hog: MultiHOG,
        detection_windows: list[DetectionWindow],
        detection_window_strides: Sequence[Size2D],
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
        threshold: float = 0.0,
        non_maxima_suppression: bool = False,
        min_distance: float = 1.0,
    ) -> None:
        """Set the image, the models with the strides of their windows, and the list, which each run fills anew."""
        models = [multi_hog.model(n) for n in range(multi_hog.num_models())]
        kinds = {model.info().phase_type for model in models}
        refuse(
            objection(
                type(self).__name__,
                wrong_type("tensor 0", input.info(), U8),
                f"{len(detection_window_strides)} strides, wanted {len(models)}"
                if len(detection_window_strides) != len(models)
                else "",
                "models with directions of half turns and of whole ones" if len(kinds) > 1 else "",
            )
        )
        gradients = _Gradients(input, models[0].info().phase_type, border_mode, constant_border_value)
        self._spaces: dict[tuple[object, ...], tuple[Tensor, IKernel]] = {}
        self._detectors, self._windows, self._threshold = [], detection_windows, threshold
        for index, (model, stride) in enumerate(zip(models, detection_window_strides, strict=True)):
            info = model.info()
            info.tensor_info(*size_of(input.info()))  # refuses an image that holds no block
            key = (info.cell_size, info.num_bins)
            if key not in self._spaces:
                self._spaces[key] = _votes(gradients, info)
            detector = NEHOGDetector()
            detector.set(self._blocks(key, info), model, detection_windows, stride, threshold, index)
            self._detectors.append(detector)
        self._set_kernels([*gradients.kernels, *(kernel for _, kernel in self._spaces.values())])
        self._suppression = CPPDetectionWindowNonMaximaSuppressionKernel() if non_maxima_suppression else None
        if self._suppression is not None:
            self._suppression.configure(detection_windows, min_distance)
        gradients.allocate()

    def _blocks(self, key: tuple[object, ...], info: HOGInfo) -> Callable[[], Array]:
        """What normalises the votes of a model's cells."""
        return lambda: _normalised(self._spaces[key][0].array(), info)

    def run(self) -> None:
        """Find the windows."""
        super().run()
        self._windows.clear()
        for detector in self._detectors:
            detector.run()
        if self._suppression is not None:
            self._suppression.run()
