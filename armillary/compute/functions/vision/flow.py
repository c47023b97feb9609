"""Optical flow: where points of one image are in the next, by pyramids (Lucas and Kanade).

In: two pyramids of U8, points of the first image. Out: points, with `tracking_status` 0 where one was lost. Invariant:
gradients are Scharr's, as in the library; a level is one kernel over all points. The loops: `formulas/flow.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from armillary.compute.core.kernel import IKernel
from armillary.compute.core.tensor_info import DataType
from armillary.compute.core.types import Termination
from armillary.compute.functions.arguments import wrong_type
from armillary.compute.functions.configured import Border
from armillary.compute.functions.formulas import flow
from armillary.compute.functions.vision.base import VisionFunction, size_of
from armillary.compute.functions.vision.features import KeyPoint
from armillary.compute.functions.vision.pyramid import Pyramid
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import TypeMismatch

U8, S16, S32, F32 = DataType.U8, DataType.S16, DataType.S32, DataType.F32
_MOST_STEPS = 1000  # where only a distance ends the iterations


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


class OpticalFlow(VisionFunction):
    """Points of the first image in the second."""

    @classmethod
    def _wrong(cls, old_pyramid: Pyramid, new_pyramid: Pyramid) -> Iterator[str]:
        pyramids = (old_pyramid, new_pyramid)
        firsts = [p.get_pyramid_level(0).info() for p in pyramids]
        yield from (wrong_type("a pyramid", info, [U8]) for info in firsts)
        levels, sizes = [p.num_levels() for p in pyramids], list(map(size_of, firsts))
        if levels[0] != levels[1]:
            yield f"pyramids of {levels[0]} and {levels[1]} levels"
        if sizes[0] != sizes[1]:
            yield f"pyramids of {sizes[0]} and {sizes[1]} pixels"

    def _bind(
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
        use_initial_estimate: bool,
        border: Border,
    ) -> None:
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
            scharr = self._part("Scharr3x3")
            scharr.configure(old, gx, gy, *border)
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
        if self._estimates is not None and len(self._estimates) != len(self._old):
            message = f"{len(self._estimates)} estimates for {len(self._old)} points"
            raise TypeMismatch(f"{type(self).__name__}: {message}")
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
