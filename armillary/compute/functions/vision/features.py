"""Corners (Harris, FAST) and edges (Canny).

In: an image of U8. Out: a list of key points, strongest first for Harris, in order of rows for FAST; or an image with
255 on edges. Invariant: what lies outside the valid region is no corner and no edge. The arithmetic:
`functions/formulas/features.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from armillary.base.record import record
from armillary.compute.core.compiled import STEP
from armillary.compute.core.kernel import IKernel
from armillary.compute.core.loops import FlatPlane, Loops, LoopsKernel, Plane
from armillary.compute.core.regions import eroded, sides_of
from armillary.compute.core.tensor_info import BorderMode, BorderSize, DataType, PaddingSize
from armillary.compute.functions.configured import Border
from armillary.compute.functions.formulas import features as formulas
from armillary.compute.functions.formulas.filters import SOBEL_3X3, SOBEL_5X5, SOBEL_7X7
from armillary.compute.functions.vision.base import VisionFunction, size_of
from armillary.compute.functions.vision.sorting import descending_order
from armillary.compute.runtime.tensor import Array, Tensor
from armillary.tir import build as T
from armillary.tir.expr import Expr
from armillary.tir.ir_builder import IRBuilder

U8, S16, S32, F32 = DataType.U8, DataType.S16, DataType.S32, DataType.F32
ZEROS = Border(BorderMode.CONSTANT)
_SOBEL = {3: SOBEL_3X3, 5: SOBEL_5X5, 7: SOBEL_7X7}


@record(slots=True)
class KeyPoint:
    """A place in an image and how strong it is; `tracking_status`: 1 where it was found again in the next image."""

    x: int
    y: int
    strength: float = 0.0
    tracking_status: int = 1


def _valid(tensor: Tensor) -> tuple[Array, int, int]:
    """The values in the valid region, and where it begins."""
    region = tensor.info().valid_region()
    x, y = region.anchor[0], region.anchor[1]
    return tensor.read()[y : y + region.shape[1], x : x + region.shape[0]], x, y


def _points(tensor: Tensor) -> list[KeyPoint]:
    """The pixels that are not 0, row by row."""
    values, x, y = _valid(tensor)
    rows, columns = np.nonzero(values)
    corners = zip(columns.tolist(), rows.tolist(), values[rows, columns].tolist(), strict=True)
    return [KeyPoint(x + column, y + row, strength) for column, row, strength in corners]


class _Corners(VisionFunction):
    def _suppressed(self, scores: Tensor, border: Border) -> tuple[Tensor, tuple[IKernel, ...]]:
        """What is larger than all around it, and the kernels that find it."""
        retained = self._image(*size_of(scores.info()), scores.info().data_type)
        suppression = self._part("NonMaximaSuppression3x3")
        suppression.configure(scores, retained, BorderMode.CONSTANT)
        if border.is_undefined():  # the neighbours at the edge are not all known
            retained.info().set_valid_region(eroded(scores.info().valid_region(), BorderSize(1, 1, 1, 1)))
        return retained, suppression.kernels()


class FastCorners(_Corners):
    """Corners by pixels on a circle; strengths are 1 without suppression."""

    def _bind(
        self, input: Tensor, threshold: float, nonmax_suppression: bool, corners: list[KeyPoint], border: Border
    ) -> None:
        scores = self._image(*size_of(input.info()), U8)
        kernels = self._step(formulas.FAST, [input], [scores], border, (int(threshold),))
        self._corners, self._result, self._has_strengths = corners, scores, nonmax_suppression
        images = [scores]
        if nonmax_suppression:
            self._result, largest = self._suppressed(scores, border)
            kernels += largest
            images.append(self._result)
        self._set_kernels(kernels)
        for tensor in images:
            tensor.allocator().allocate()

    def run(self) -> None:
        """Find the corners."""
        super().run()
        corners = _points(self._result)
        self._corners[:] = corners if self._has_strengths else [KeyPoint(point.x, point.y, 1.0) for point in corners]


class HarrisCorners(_Corners):
    """Corners by the matrix of gradients in a block."""

    def _bind(
        self,
        input: Tensor,
        threshold: float,
        min_dist: float,
        sensitivity: float,
        gradient_size: int,
        block_size: int,
        corners: list[KeyPoint],
        border: Border,
    ) -> None:
        kind, size = _SOBEL[gradient_size].outputs[0], size_of(input.info())
        gx, gy, strengths = (self._image(*size, k) for k in (kind, kind, F32))
        sobel = self._part(f"Sobel{gradient_size}x{gradient_size}")
        sobel.configure(input, gx, gy, *border)
        norm = 1.0 / ((1 << (gradient_size - 1)) * block_size * 255.0)
        numbers = (norm, sensitivity, threshold)
        score = self._step(formulas.harris(block_size, kind), [gx, gy], [strengths], border, numbers)
        retained, suppression = self._suppressed(strengths, border)
        self._set_kernels([*sobel.kernels(), *score, *suppression])
        for tensor in (gx, gy, strengths, retained):
            tensor.allocator().allocate()
        self._corners, self._kept, self._distance = corners, retained, min_dist

    def run(self) -> None:
        """Find the corners."""
        super().run()
        values, x, y = _valid(self._kept)
        rows, columns = np.nonzero(values)
        order = descending_order(values[rows, columns])
        rows, columns = rows[order], columns[order]
        is_left, bound = np.ones(len(order), bool), np.float32(self._distance) ** 2
        for n in range(len(order)):
            if is_left[n]:
                apart = (columns[n + 1 :] - columns[n]) ** 2 + (rows[n + 1 :] - rows[n]) ** 2
                is_left[n + 1 :] &= apart >= bound
        corners = zip(*((v[is_left]).tolist() for v in (columns, rows, values[rows, columns])), strict=True)
        self._corners[:] = [KeyPoint(x + column, y + row, strength) for column, row, strength in corners]


def _follow(ib: IRBuilder, planes: Sequence[Plane], y0: Expr, rows: Expr, columns: Expr) -> None:
    """Weak pixels beside strong ones become strong, through a queue that begins with a frontier of strong ones.

    Planes: the image (for its pitch), then all bytes of it, of the frontier, the frontier in words, and the queue.
    """
    image, edges, frontier, words, queue = planes
    del y0, rows, columns
    zero, one, pitch = T.const(0), T.const(1), image.pitch()
    strong, weak = T.const(formulas.STRONG, "uint8"), T.const(formulas.WEAK, "uint8")
    length, done = (ib.allocate("int32", (1,), name, scope="local") for name in ("length", "done"))
    length[0] = zero
    done[0] = zero

    def push(place: Expr) -> None:
        queue[zero, length[0]] = place
        length[0] = T.add(length[0], one)

    with (
        ib.for_range(0, words.pitch(), "word") as word,
        ib.if_scope(T.not_equal(words[zero, word], T.const(0, "uint32"))),
    ):
        for n in range(4):
            place = T.add(T.mul(word, T.const(4)), T.const(n))
            with ib.if_scope(T.equal(frontier[zero, place], strong)):
                push(place)

    def spread(taken: Expr) -> None:
        """Take one from the queue."""
        place = ib.let("place", queue[zero, taken])
        for row in (T.sub(place, pitch), place, T.add(place, pitch)):
            for n in (-1, 0, 1):
                if row is not place or n:
                    at = ib.let("at", T.add(row, T.const(n)))
                    with ib.if_scope(T.equal(edges[zero, at], weak)):
                        edges[zero, at] = strong
                        push(at)

    with ib.for_range(0, _LEVELS, "level"):  # those in the queue by now; what they add is the next level
        begin, end = ib.let("begin", done[0]), ib.let("end", length[0])
        with ib.for_range(0, T.sub(end, begin), "taken") as taken:
            spread(T.add(begin, taken))
        done[0] = end
    with ib.if_scope(T.less(done[0], length[0])):
        first = ib.let("first", done[0])
        with ib.for_range(0, T.sub(queue.pitch(), first), "late") as late:
            at = ib.let("next", T.add(first, late))
            with ib.if_scope(T.less(at, length[0])):
                spread(at)


_LEVELS = 256  # of weak pixels behind one another; longer chains pay for every pixel of the image
TRACE = Loops("trace_edges", ("uint8", "uint8", "uint8", "uint32"), _follow, "int32")


class CannyEdge(VisionFunction):
    """Edges: crests of the gradient above a threshold, and what hangs on to them above a lower one."""

    _turns: ClassVar[int] = 4  # for all pixels at once, before the queue

    @classmethod
    def _wrong(cls, upper_thr: int, lower_thr: int) -> Iterator[str]:
        if lower_thr > upper_thr:
            yield f"thresholds {lower_thr} and {upper_thr}, wanted the lower one second"

    def _bind(
        self,
        input: Tensor,
        output: Tensor,
        upper_thr: int,
        lower_thr: int,
        gradient_size: int,
        norm_type: int,
        border: Border,
    ) -> None:
        size, is_sum = size_of(input.info()), norm_type == 1
        gx, gy = self._image(*size, S16), self._image(*size, S16)
        length = self._image(*size, S16 if is_sum else S32)
        self._classes, self._turn, self._frontier = planes = tuple(self._image(*size, U8) for _ in range(3))
        gradients = formulas.edge_gradients(_SOBEL[gradient_size], is_sum)
        limits = (lower_thr, upper_thr) if is_sum else (lower_thr**2, upper_thr**2)
        crest = formulas.crest(length.info().data_type)
        self._set_kernels(
            [
                *self._step(gradients, [input], [gx, gy, length], border),
                *self._step(crest, [gx, gy, length], [self._classes], ZEROS, limits),
            ]
        )
        self._region = input.info().valid_region()
        if border.is_undefined():
            margin = gradient_size // 2 + 1
            self._region = eroded(self._region, BorderSize(margin, margin, margin, margin))
        for plane in planes:  # of one pitch
            plane.info().extend_padding(PaddingSize(1, STEP + 1, 1, 1))
        spreads = self._spreads()
        result = self._step(formulas.STRONG_ONLY, [self._classes], [output], region=self._region)
        for tensor in (gx, gy, length, *planes):
            tensor.allocator().allocate()
        self._spreading, self._finishing = self._work([*spreads, *self._trace()]), self._work(result)

    def _spreads(self) -> list[IKernel]:
        """An even number of turns: the last one writes where the first one read."""
        kernels: list[IKernel] = []
        for n in range(self._turns):
            source, target = (self._classes, self._turn)[:: 1 if n % 2 == 0 else -1]
            kernels += self._step(formulas.SPREAD, [source], [target, self._frontier], ZEROS)[-1:]
        return kernels

    def _trace(self) -> list[IKernel]:
        """What is left to the queue."""
        flat = (FlatPlane(self._classes, U8), FlatPlane(self._frontier, U8), FlatPlane(self._frontier, DataType.U32))
        queue = np.zeros((1, self._classes.info().total_size()), np.int32)
        kernel = LoopsKernel(TRACE, is_parallel=False)
        kernel.configure([self._classes, *flat], queue)
        return [kernel]

    def kernels(self) -> tuple[IKernel, ...]:
        """The kernels of a run, in order."""
        return (*super().kernels(), *self._spreading.kernels(), *self._finishing.kernels())

    def run(self) -> None:
        """Find the edges."""
        super().run()
        self._clear_border()
        self._spread()
        self._finishing.run()

    def _spread(self) -> None:
        """Weak pixels that hang on to strong ones become strong."""
        self._spreading.run()

    def _clear_border(self) -> None:
        """Nothing is an edge beside the valid region."""
        plane, pad = self._classes.planes()[0], self._classes.info().padding
        x, y, right, bottom = sides_of(self._region)
        plane[: pad.top + y] = plane[pad.top + bottom :] = 0
        plane[:, : pad.left + x] = plane[:, pad.left + right :] = 0
