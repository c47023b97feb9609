"""Corners (Harris, FAST) and edges (Canny).

In: an image of U8. Out: a list of key points, strongest first for Harris, in order of rows for FAST; or an image with
255 on edges. Invariant: what lies outside the valid region is no corner and no edge. The arithmetic:
`functions/formulas/features.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.base.record import record
from armillary.compute.core.loops import Loops, LoopsKernel, Plane
from armillary.compute.core.tensor_info import BorderMode, DataType
from armillary.compute.core.window import Window
from armillary.compute.functions.formulas import features as formulas
from armillary.compute.functions.vision.base import (
    Pipeline,
    Step,
    image,
    objection,
    refuse,
    size_of,
    wrong_size,
    wrong_type,
)
from armillary.compute.functions.vision.filters import NENonMaximaSuppression3x3, NESobel3x3, NESobel5x5, NESobel7x7
from armillary.compute.runtime.scheduler import Scheduler
from armillary.compute.runtime.tensor import Array, Tensor
from armillary.tir import build as T
from armillary.tir.expr import Expr
from armillary.tir.ir_builder import IRBuilder

U8, S16, S32, F32 = DataType.U8, DataType.S16, DataType.S32, DataType.F32
_SOBEL = {3: (NESobel3x3, S16), 5: (NESobel5x5, S16), 7: (NESobel7x7, S32)}


@record(slots=True)
class KeyPoint:
    """A place in an image and how strong it is."""

    x: int
    y: int
    strength: float = 0.0


def _valid(tensor: Tensor) -> tuple[Array, int, int]:
    """The values in the valid region, and where it begins."""
    region = tensor.info().valid_region()
    x, y = region.anchor[0], region.anchor[1]
    return tensor.array()[y : y + region.shape[1], x : x + region.shape[0]], x, y


def _points(tensor: Tensor) -> list[KeyPoint]:
    """The pixels that are not 0, row by row."""
    values, x, y = _valid(tensor)
    rows, columns = np.nonzero(values)
    found = zip(columns.tolist(), rows.tolist(), values[rows, columns].tolist(), strict=True)
    return [KeyPoint(x + column, y + row, strength) for column, row, strength in found]


class NEFastCorners(Pipeline):
    """Corners by 9 of 16 pixels on a circle that are all brighter or all darker than the middle by a threshold."""

    def configure(
        self,
        input: Tensor,
        threshold: float,
        nonmax_suppression: bool,
        corners: list[KeyPoint],
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the image, the threshold (1 to 254), and the list that gets the corners."""
        wrong = "" if 1 <= threshold < 255 else f"the threshold is {threshold}, wanted 1 to 254"
        refuse(objection("NEFastCorners", wrong_type("tensor 0", input.info(), U8), wrong))
        scores, step = image(*size_of(input.info()), U8), Step(formulas.FAST)
        step.configure([input], [scores], border_mode, constant_border_value, (int(threshold),))
        self._steps, self._corners, self._result = [step], corners, scores
        made = [scores]
        if nonmax_suppression:
            kept, suppression = image(*size_of(input.info()), U8), NENonMaximaSuppression3x3()
            suppression.configure(scores, kept, BorderMode.CONSTANT)
            self._steps.append(suppression)
            region = scores.info().valid_region()
            kept.info().set_valid_region(region)
            self._result = kept
            made.append(kept)
        for tensor in made:
            tensor.allocator().allocate()

    def run(self) -> None:
        """Find the corners."""
        super().run()
        self._corners[:] = _points(self._result)


class NEHarrisCorners(Pipeline):
    """Corners by the matrix of gradients in a block, the strongest first, at least a distance apart."""

    def configure(
        self,
        input: Tensor,
        threshold: float,
        min_dist: float,
        sensitivity: float,
        gradient_size: int,
        block_size: int,
        corners: list[KeyPoint],
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the image, the numbers of OpenVX, and the list that gets the corners."""
        sides = (3, 5, 7)
        refuse(
            objection(
                "NEHarrisCorners",
                wrong_type("tensor 0", input.info(), U8),
                *(f"a side is {n}, wanted 3, 5 or 7" for n in (gradient_size, block_size) if n not in sides),
                "" if min_dist >= 0 and threshold >= 0 else "threshold and distance are at least 0",
            )
        )
        kind, size = _SOBEL[gradient_size][1], size_of(input.info())
        gx, gy, strengths, kept = image(*size, kind), image(*size, kind), image(*size, F32), image(*size, F32)
        sobel, score = _SOBEL[gradient_size][0](), Step(formulas.harris(block_size, kind))
        sobel.configure(input, gx, gy, border_mode, constant_border_value)
        norm = 1.0 / ((1 << (gradient_size - 1)) * block_size * 255.0)
        options = (norm * norm, sensitivity, threshold)
        score.configure([gx, gy], [strengths], border_mode, 0, options)
        suppression = NENonMaximaSuppression3x3()
        suppression.configure(strengths, kept, BorderMode.CONSTANT)
        self._steps = [sobel, score, suppression]
        for tensor in (gx, gy, strengths, kept):
            tensor.allocator().allocate()
        self._corners, self._kept, self._distance = corners, kept, min_dist
        self._margin = (gradient_size // 2 + block_size // 2) if border_mode is BorderMode.UNDEFINED else 0

    def run(self) -> None:
        """Find the corners."""
        super().run()
        values = self._kept.array()
        inside = np.zeros(values.shape, bool)
        margin = self._margin
        inside[margin : values.shape[0] - margin, margin : values.shape[1] - margin] = True
        rows, columns = np.nonzero((values > 0) & inside)
        order = np.argsort(-values[rows, columns], kind="stable")
        found: list[KeyPoint] = []
        taken = np.zeros((0, 2))
        for at in order:
            place = np.array([columns[at], rows[at]], float)
            if not len(taken) or ((taken - place) ** 2).sum(1).min() >= self._distance**2:
                found.append(KeyPoint(int(place[0]), int(place[1]), float(values[rows[at], columns[at]])))
                taken = np.vstack([taken, place])
        self._corners[:] = found


def _trace(
    ib: IRBuilder, planes: Sequence[Plane], y0: Expr, rows: Expr, columns: Expr, options: tuple[int, ...]
) -> None:
    """Weak pixels beside strong ones become strong, through a queue of strong ones; its first number is its length."""
    del options
    edges, queue = planes
    zero, one, width = T.const(0), T.const(1), T.add(columns, T.const(2))
    strong, weak = T.const(formulas.STRONG, "uint8"), T.const(formulas.WEAK, "uint8")

    def push(y: Expr, x: Expr) -> None:
        queue[zero, zero] = T.add(queue[zero, zero], one)
        queue[zero, queue[zero, zero]] = T.add(T.mul(T.add(y, one), width), T.add(x, one))

    with ib.for_range(0, rows, "row") as row, ib.for_range(0, columns, "column") as column:
        y = T.add(y0, row)
        with ib.if_scope(T.equal(edges[y, column], strong)):
            push(y, column)
    with ib.for_range(0, T.mul(rows, columns), "taken") as taken, ib.if_scope(T.less(taken, queue[zero, zero])):
        place = ib.let("place", queue[zero, T.add(taken, one)])
        y = ib.let("y", T.sub(T.floordiv(place, width), one))
        x = ib.let("x", T.sub(T.floormod(place, width), one))
        for dy in (-1, 0, 1):
            for dx in (-1, 0, 1):
                if (dy, dx) != (0, 0):
                    at_y, at_x = T.add(y, T.const(dy)), T.add(x, T.const(dx))
                    with ib.if_scope(T.equal(edges[at_y, at_x], weak)):
                        edges[at_y, at_x] = strong
                        push(at_y, at_x)


_TRACE = Loops("trace_edges", ("uint8", "int32"), _trace)


class NECannyEdge(Pipeline):
    """Edges: crests of the gradient above a threshold, and what hangs on to them above a lower one."""

    def configure(
        self,
        input: Tensor,
        output: Tensor,
        upper_thr: int,
        lower_thr: int,
        gradient_size: int,
        norm_type: int,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the images, the thresholds, the side of the gradient (3 or 5) and the norm (1: L1, 2: L2)."""
        size = size_of(input.info())
        refuse(
            objection(
                "NECannyEdge",
                wrong_type("tensor 0", input.info(), U8),
                wrong_type("tensor 1", output.info(), U8),
                wrong_size("tensor 1", output.info(), *size),
                "" if gradient_size in (3, 5) else f"the gradient's side is {gradient_size}, wanted 3 or 5",
                "" if norm_type in (1, 2) else f"the norm is {norm_type}, wanted 1 or 2",
                "" if 0 <= lower_thr <= upper_thr < 1 << 15 else f"thresholds {lower_thr} and {upper_thr}",
            )
        )
        gx, gy, length, edges = image(*size, S16), image(*size, S16), image(*size, S32), image(*size, U8)
        sobel, measure, crest = (
            _SOBEL[gradient_size][0](),
            Step(formulas.edge_length(norm_type == 1)),
            Step(formulas.CREST),
        )
        sobel.configure(input, gx, gy, border_mode, constant_border_value)
        measure.configure([gx, gy], [length])
        limits = (lower_thr, upper_thr) if norm_type == 1 else (lower_thr**2, upper_thr**2)
        crest.configure([gx, gy, length], [edges], BorderMode.CONSTANT, 0, limits)
        self._margin = gradient_size // 2 + 1 if border_mode is BorderMode.UNDEFINED else 0
        self._edges, self._output = edges, output
        self._queue, self._trace = np.zeros((1, size[0] * size[1] + 1), np.int32), LoopsKernel(_TRACE, False)
        edges.info().extend_padding(type(edges.info().padding)(1, 1, 1, 1))
        self._trace.configure([edges])
        self._trace.set_partial(self._queue)
        self._steps = [sobel, measure, crest]
        for tensor in (gx, gy, length, edges):
            tensor.allocator().allocate()

    def run(self) -> None:
        """Find the edges."""
        super().run()
        self._clear_border(self._margin)
        self._queue[0, 0] = 0
        Scheduler.get().schedule(self._trace, Window.DimY)
        edges = self._edges.array()
        self._output.array()[...] = np.where(edges == formulas.STRONG, edges, 0)

    def _clear_border(self, margin: int) -> None:
        """Nothing is an edge beside the image, nor within `margin` of its border."""
        plane, pad = self._edges.planes()[0], self._edges.info().padding
        width, height = size_of(self._edges.info())
        plane[: pad.top + margin] = plane[pad.top + height - margin :] = 0
        plane[:, : pad.left + margin] = plane[:, pad.left + width - margin :] = 0
