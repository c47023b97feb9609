"""Optical flow: where points of one image are in the next, by pyramids (Lucas and Kanade).

In: two pyramids of U8, points of the first image. Out: points, with `tracking_status` 0 where one was lost. Invariant:
gradients are Scharr's, as in the library; a level is one kernel over all points. The loops: `formulas/flow.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import numpy as np

from armillary.compute.core.kernel import IKernel, Status
from armillary.compute.core.tensor_info import BorderMode, DataType
from armillary.compute.functions.formulas import flow
from armillary.compute.functions.vision.base import VisionFunction, objection, refuse, size_of, wrong_type
from armillary.compute.functions.vision.features import KeyPoint
from armillary.compute.functions.vision.filters import NEScharr3x3
from armillary.compute.functions.vision.pyramid import Pyramid
from armillary.compute.runtime.tensor import Tensor

U8, S16, S32, F32 = DataType.U8, DataType.S16, DataType.S32, DataType.F32
_MOST_STEPS = 1000  # where only a distance ends the iterations


class Termination(Enum):
    """What ends the iterations of a point: a small step, their number, or either."""

    TERM_CRITERIA_EPSILON, TERM_CRITERIA_ITERATIONS, TERM_CRITERIA_BOTH = "epsilon", "iterations", "both"


class _Level:
    """Two images and the gradients of the first; the settings of the loops over it."""

    def __init__(self, images: Sequence[Tensor], settings: Mapping[str, float], table: Tensor) -> None:
        self._images, self._settings = tuple(images), table
        regions = [t.info().valid_region() for t in images]
        sides = {"left": max(r.start(0) for r in regions), "top": max(r.start(1) for r in regions)}
        sides |= {"right": min(r.end(0) for r in regions), "bottom": min(r.end(1) for r in regions)}
        values = {**settings, **sides}
        table.write(np.array([[values[name] for name in flow.SETTINGS]], np.float32))

    def tensors(self) -> list[Tensor]:
        """Images, gradients, settings."""
        return [*self._images, self._settings]


class NEOpticalFlow(VisionFunction):
    """Points of the first image in the second."""

    @classmethod
    def validate(  # type: ignore[override]  # named
        cls, old_pyramid: Pyramid, new_pyramid: Pyramid, window_dimension: int, num_iterations: int = 1
    ) -> Status:
        """Whether these pyramids and numbers can be configured."""
        levels = (old_pyramid.num_levels(), new_pyramid.num_levels())
        sizes = [size_of(p.get_pyramid_level(0).info()) for p in (old_pyramid, new_pyramid)]
        return objection(
            cls.__name__,
            *(wrong_type("a pyramid", p.get_pyramid_level(0).info(), U8) for p in (old_pyramid, new_pyramid)),
            f"pyramids of {levels[0]} and {levels[1]} levels" if levels[0] != levels[1] else "",
            f"pyramids of {sizes[0]} and {sizes[1]} pixels" if sizes[0] != sizes[1] else "",
            f"a window of {window_dimension}, wanted at least 1" if window_dimension < 1 else "",
            f"{num_iterations} iterations, wanted at least 1" if num_iterations < 1 else "",
        )

    def configure(
        self,
        old_pyramid: Pyramid,
        new_pyramid: Pyramid,
        old_points: Sequence[KeyPoint],
        new_points_estimates: Sequence[KeyPoint],
        new_points: list[KeyPoint],
        termination: Termination,
        epsilon: float,
        num_iterations: int,
        window_dimension: int,
        use_initial_estimate: bool = False,
        border_mode: BorderMode = BorderMode.UNDEFINED,
        constant_border_value: int = 0,
    ) -> None:
        """Set the pyramids, the points (and, if used, where they may be), and the list that gets the new ones."""
        steps = _MOST_STEPS if termination is Termination.TERM_CRITERIA_EPSILON else num_iterations
        levels, scale = old_pyramid.num_levels(), old_pyramid.scale
        settings = {"scale": scale, "side": window_dimension, "steps": steps, "epsilon": epsilon}
        settings["watches"] = termination is not Termination.TERM_CRITERIA_ITERATIONS
        self._old, self._new = old_points, new_points
        self._estimates = new_points_estimates if use_initial_estimate else None
        self._side, self._top = window_dimension, np.float32(float(np.float32(scale)) ** (levels - 1))
        self._levels: list[_Level] = []
        self._gradients: list[IKernel] = []
        made: list[Tensor] = []
        for n in reversed(range(levels)):
            old, new = old_pyramid.get_pyramid_level(n), new_pyramid.get_pyramid_level(n)
            gx, gy = (self._image(*size_of(old.info()), S16) for _ in range(2))
            scharr = self._part(NEScharr3x3)
            scharr.configure(old, gx, gy, border_mode, constant_border_value)
            self._gradients += scharr.kernels()
            made += [gx, gy]
            settings |= {"divisor": 1.0 if n == levels - 1 else scale, "is_last": n == 0}
            self._levels.append(_Level([old, new, gx, gy], settings, self._table(len(flow.SETTINGS), 1, F32)))
        self._hold(len(old_points))
        for tensor in made:
            tensor.allocator().allocate()

    def _hold(self, count: int) -> None:
        """Make room for so many points."""
        self._points = self._table(flow.WIDTH, max(1, count), F32)
        windows = self._table(3 * self._side * self._side, max(1, count), S32)
        moves = [self._loops(flow.TRACK, [self._points, windows, *level.tensors()]) for level in self._levels]
        self._set_kernels([*self._gradients, *moves])

    def run(self) -> None:
        """Find the points."""
        refuse(objection(type(self).__name__, self._wrong_points()))
        old, guess = self._old, self._old if self._estimates is None else self._estimates
        if len(old) > self._points.info().dimension(1):
            self._hold(len(old))
        table = np.full((self._points.info().dimension(1), flow.WIDTH), -1, np.float32)  # outside of every image
        pairs = [(a.x, a.y, b.x, b.y) for a, b in zip(old, guess, strict=True)]
        table[: len(old), : flow.IS_FOUND] = np.array(pairs, np.float32).reshape(-1, flow.IS_FOUND) * self._top
        is_found = [self._estimates is None or p.tracking_status == 1 for p in guess]
        table[: len(old), flow.IS_FOUND] = is_found
        self._points.write(table)
        super().run()
        table = self._points.read()
        new = table[: len(old), flow.NEW : flow.NEW + 2]
        places = np.copysign(np.floor(np.abs(new) + np.float32(0.5)), new).astype(int).tolist()
        tracked = zip(places, (table[: len(old), flow.IS_FOUND] != 0).tolist(), strict=True)
        self._new[:] = [KeyPoint(x, y, 0.0, int(status)) for (x, y), status in tracked]

    def _wrong_points(self) -> str:
        if self._estimates is None or len(self._estimates) == len(self._old):
            return ""
        return f"{len(self._estimates)} estimates for {len(self._old)} points"
