"""Histograms of gradients: descriptors of an image, detectors over them, several detectors at once.

In: an image of U8; a `HOG` has sizes of cells, blocks and windows, and for detection a linear classifier. Out: a
descriptor for each block (F32, as channels), or `DetectionWindow`s. Invariant: sizes are whole cells and whole strides;
the places of windows are those of the library. Votes: `functions/formulas/hog.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

import numpy as np

from armillary.base.boundary import bounded, bounded_methods
from armillary.base.record import record
from armillary.compute.core.kernel import IKernel
from armillary.compute.core.tensor_info import DataType, TensorInfo, TensorShape
from armillary.compute.core.types import PhaseType, Size2D
from armillary.compute.functions.configured import Border
from armillary.compute.functions.formulas.hog import BLOCKS, SCORES, VOTES, block_settings, vote_settings
from armillary.compute.functions.vision.base import VisionFunction, image, size_of
from armillary.compute.functions.vision.detection import CPPDetectionWindowNonMaximaSuppressionKernel, DetectionWindow
from armillary.compute.runtime.tensor import Array, Tensor
from armillary.errors import ExecutionError, TypeMismatch

_MOST_MODELS = 4096

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
            message = (
                f"HOGInfo: {width}x{height} pixels hold no block of {self.block_size.width}x{self.block_size.height}"
            )
            raise TypeMismatch(message)
        return TensorInfo(TensorShape(blocks.width, blocks.height), self.num_bins_per_block(), F32)


def _pair(size: Size2D) -> tuple[int, int]:
    return size.width, size.height


@bounded_methods("init")
class HOG:
    """Sizes, and a linear classifier: a factor for each value of a window's descriptor, then the bias."""

    def __init__(self) -> None:
        self._info: HOGInfo | None = None
        self._table = Tensor()

    def init(self, info: HOGInfo) -> None:
        """Set the sizes; the classifier is all zeros."""
        self._info, self._table = info, image(info.descriptor_size(), 1, F32)
        self._table.allocator().allocate()

    def info(self) -> HOGInfo:
        """The sizes of windows, blocks and cells."""
        if self._info is None:
            raise ExecutionError("the HOG has no information", hint="call init(HOGInfo(…)) first")
        return self._info

    def descriptor(self) -> Array:
        """The classifier, to be filled."""
        values: Array = self.table().array()[0]
        return values

    def table(self) -> Tensor:
        """The classifier as a tensor of one row."""
        self.info()
        return self._table


@bounded
class MultiHOG:
    """Several models; those that share cells or blocks should follow one another."""

    def __init__(self, num_models: int) -> None:
        if not 1 <= num_models <= _MOST_MODELS:
            raise TypeMismatch(f"MultiHOG of {num_models} models, wanted 1 to {_MOST_MODELS}")
        self._models = tuple(HOG() for _ in range(num_models))

    def num_models(self) -> int:
        """How many there are."""
        return len(self._models)

    def model(self, index: int) -> HOG:
        """One of them."""
        return self._models[index]


class _Gradients:
    """Length and direction of an image's gradients."""

    def __init__(self, on: HOGFunction, source: Tensor, kind: PhaseType, border: Border) -> None:
        size = size_of(source.info())
        slope, length, turn = (on._part(name) for name in ("Derivative", "Magnitude", "Phase"))
        gx, gy, self.length, self.turn = (on._image(*size, kind) for kind in (S16, S16, S16, U8))
        slope.configure(source, gx, gy, *border)
        length.configure(gx, gy, self.length)
        turn.configure(gx, gy, self.turn, kind)
        self.kernels: list[IKernel] = [*slope.kernels(), *length.kernels(), *turn.kernels()]
        self._all = (gx, gy, self.length, self.turn)

    def allocate(self) -> None:
        """Give all images their memory."""
        for tensor in self._all:
            tensor.allocator().allocate()


class HOGFunction(VisionFunction):
    """What descriptors and detectors have in common."""

    def _votes(self, gradients: _Gradients, info: HOGInfo) -> tuple[Tensor, IKernel]:
        """The histograms of all cells, allocated, and the kernel that makes them."""
        width, height = size_of(gradients.length.info())
        cell, bins = info.cell_size, info.num_bins
        image = self._image(width // cell.width * bins, height // cell.height, F32)
        settings = vote_settings(cell.width, cell.height, bins, info.phase_type is PhaseType.SIGNED)
        kernel = self._loops(VOTES, [image, gradients.length, gradients.turn, self._row(settings)])
        image.allocator().allocate()
        return image, kernel

    def _descriptors(self, votes: Tensor, info: HOGInfo, found: Tensor) -> IKernel:
        """The kernel that makes the descriptors of blocks of votes."""
        cell, stride, cells = info.cell_size, info.block_stride, info.num_cells_per_block()
        clips = info.normalization_type is HOGNormType.L2HYS_NORM
        steps = (stride.width // cell.width, stride.height // cell.height)
        is_sum = info.normalization_type is HOGNormType.L1_NORM
        settings = block_settings(_pair(cells), steps, info.num_bins, is_sum, info.l2_hyst_threshold if clips else 0.0)
        return self._loops(BLOCKS, [found, votes, self._row(settings)])


class HOGDescriptor(HOGFunction):
    """The descriptors of an image's blocks."""

    @classmethod
    def _wrong(cls, input: TensorInfo, output: TensorInfo, hog: HOG) -> Iterator[str]:
        wanted = hog.info().tensor_info(*size_of(input))
        have, want = ((*size_of(info), info.num_channels()) for info in (output, wanted))
        if have != want:
            yield f"the output is {have} (blocks along x and y, values of each), wanted {want}"

    def _bind(self, input: Tensor, output: Tensor, hog: HOG, border: Border) -> None:
        info = hog.info()
        gradients = _Gradients(self, input, info.phase_type, border)
        votes, kernel = self._votes(gradients, info)
        self._set_kernels([*gradients.kernels, kernel, self._descriptors(votes, info, output)])
        gradients.allocate()


class HOGDetector(HOGFunction):
    """Windows of an image's descriptors whose score, by a linear classifier, is above a threshold."""

    @classmethod
    def _wrong(cls, input: TensorInfo, hog: HOG, detection_window_stride: Size2D) -> Iterator[str]:
        info, stride = hog.info(), detection_window_stride
        wanted, block = info.num_bins_per_block(), info.block_stride
        if input.num_channels() != wanted:
            yield f"the descriptors are {input!r} of {input.num_channels()} values, wanted F32 of {wanted}"
        is_whole = stride.width % block.width == 0 and stride.height % block.height == 0
        if not is_whole or min(stride.width, stride.height) < 1:
            yield f"the stride of windows is {stride.width}x{stride.height}, wanted whole strides of blocks"

    def _bind(
        self,
        input: Tensor,
        hog: HOG,
        detection_windows: list[DetectionWindow],
        detection_window_stride: Size2D,
        threshold: float,
        idx_class: int,
    ) -> None:
        info, stride = hog.info(), detection_window_stride
        size, block = info.detection_window_size, info.block_stride
        steps = (stride.width // block.width, stride.height // block.height)
        whole = (size.width // block.width, size.height // block.height)
        spare = [blocks - n for blocks, n in zip(size_of(input.info()), whole, strict=True)]
        counts = [max(0, room // step + 1) for room, step in zip(spare, steps, strict=True)]  # the library's count
        self._windows, self._size, self._stride = detection_windows, size, stride
        self._threshold, self._class = threshold, idx_class
        self._scores = self._image(max(1, counts[0]), max(1, counts[1]), F32)
        inside, values = info.num_block_positions_per_image(size), info.num_bins_per_block()
        settings = self._row((inside.width * values, inside.height, steps[0] * values, steps[1]))
        kernel = self._loops(SCORES, [self._scores, input, self._factors(hog), settings])
        self._has_windows = min(counts) > 0
        self._set_kernels([kernel] if self._has_windows else [])
        self._scores.allocator().allocate()

    def _factors(self, hog: HOG) -> Tensor:
        """Where the kernel reads the classifier."""
        return hog.table()

    def update(self) -> None:
        """Bring the classifier to where the kernel reads it."""

    def run(self) -> None:
        """Add the windows that are found, row by row."""
        self.update()
        super().run()
        self.collect()

    def collect(self) -> None:
        """Add the windows whose scores have been computed."""
        if not self._has_windows:
            return
        scores = self._scores.read()
        for row, column in np.argwhere(scores > self._threshold).tolist():
            x, y = column * self._stride.width, row * self._stride.height
            score = float(scores[row, column])
            self._windows.append(DetectionWindow(x, y, self._size.width, self._size.height, self._class, score))


class HOGMultiDetection(HOGFunction):
    """Windows of several models in one image; of those of a model that are close to one another the best, if asked."""

    @classmethod
    def _wrong(cls, multi_hog: MultiHOG, detection_window_strides: Sequence[Size2D]) -> Iterator[str]:
        models = [multi_hog.model(n) for n in range(multi_hog.num_models())]
        if len(detection_window_strides) != len(models):
            yield f"{len(detection_window_strides)} strides, wanted {len(models)}"
        if len({model.info().phase_type for model in models}) > 1:
            yield "models with directions of half turns and of whole ones"

    def _bind(
        self,
        input: Tensor,
        multi_hog: MultiHOG,
        detection_windows: list[DetectionWindow],
        detection_window_strides: Sequence[Size2D],
        border: Border,
        threshold: float,
        non_maxima_suppression: bool,
        min_distance: float,
    ) -> None:
        models = [multi_hog.model(n) for n in range(multi_hog.num_models())]
        gradients = _Gradients(self, input, models[0].info().phase_type, border)
        spaces: dict[tuple[object, ...], tuple[Tensor, IKernel]] = {}
        descriptors: dict[HOGInfo, tuple[Tensor, IKernel]] = {}
        self._detectors, self._windows = [self._detector() for _ in models], detection_windows
        for index, (detector, model, stride) in enumerate(
            zip(self._detectors, models, detection_window_strides, strict=True)
        ):
            info = model.info()
            key = (info.cell_size, info.num_bins)
            if key not in spaces:
                spaces[key] = self._votes(gradients, info)
            if info not in descriptors:
                blocks = self.tensor_type()
                blocks.allocator().init(info.tensor_info(*size_of(input.info())))
                descriptors[info] = (blocks, self._descriptors(spaces[key][0], info, blocks))
            detector.configure(descriptors[info][0], model, detection_windows, stride, threshold, index)
        owned = [*spaces.values(), *descriptors.values()]
        scores = [kernel for detector in self._detectors for kernel in detector.kernels()]
        self._set_kernels([*gradients.kernels, *(kernel for _, kernel in owned), *scores])
        self._suppression = CPPDetectionWindowNonMaximaSuppressionKernel() if non_maxima_suppression else None
        if self._suppression is not None:
            self._suppression.configure(detection_windows, min_distance)
        gradients.allocate()
        for blocks, _ in descriptors.values():
            blocks.allocator().allocate()

    def _detector(self) -> HOGDetector:
        result = self._part("HOGDetector")
        assert isinstance(result, HOGDetector), "the table says so"
        return result

    def run(self) -> None:
        """Find the windows."""
        for detector in self._detectors:
            detector.update()
        super().run()
        self._windows.clear()
        for detector in self._detectors:
            detector.collect()
        if self._suppression is not None:
            self._suppression.run()
