"""Optical flow: where points of one image are in the next, by pyramids (Lucas and Kanade).

In: two pyramids of U8, points of the first image. Out: points, with `tracking_status` 0 where one was lost. Invariant:
pixels between pixels have weights of 14 bits, gradients are Scharr's, sums are whole numbers, as in the library; all
points of a level go through its iterations together. Source: Bouguet 2001, "Pyramidal implementation of the affine
Lucas Kanade feature tracker".
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np

from armillary.compute.core.kernel import IKernel, Status
from armillary.compute.core.tensor_info import BorderMode, DataType
from armillary.compute.functions.vision.base import VisionFunction, image, objection, refuse, size_of, wrong_type
from armillary.compute.functions.vision.features import KeyPoint
from armillary.compute.functions.vision.filters import NEScharr3x3
from armillary.compute.functions.vision.pyramid import Pyramid
from armillary.compute.runtime.tensor import Array, Tensor

U8, S16 = DataType.U8, DataType.S16
_BITS = 14  # of the weights between pixels
_FRACTION = 5  # bits of a fraction that interpolated pixels keep
_UNIT = np.float32(1.0 / (1 << 20))
_LEAST_EIGENVALUE, _LEAST_DETERMINANT = np.float32(1e-4), 1e-7
_MOST_STEPS = 1000  # where only a distance ends the iterations
_STILL = np.float32(0.01)  # two steps that take each other back, up to this, end them too


class Termination(Enum):
    """What ends the iterations of a point: a small step, their number, or either."""

    TERM_CRITERIA_EPSILON, TERM_CRITERIA_ITERATIONS, TERM_CRITERIA_BOTH = "epsilon", "iterations", "both"


class _Level:
    """Two images, the gradients of the first, and the window of points."""

    def __init__(self, old: Tensor, new: Tensor, gx: Tensor, gy: Tensor, side: int) -> None:
        self._tensors, self._side = (old, new, gx, gy), side
        regions = [t.info().valid_region() for t in self._tensors]
        self._low = np.array([max(r.start(n) for r in regions) for n in (0, 1)])
        self._high = np.array([min(r.end(n) for r in regions) for n in (0, 1)])

    def has(self, points: Array) -> Array:
        """Whether the window around each point (x, y) is inside the valid region."""
        half, place = self._side // 2, np.floor(points).astype(np.int64)
        return np.asarray(((place - half >= self._low) & (place + half < self._high - 1)).all(1))

    def values(self, which: int, points: Array, shift: int) -> Array:
        """The pixels of the windows (points, rows, columns), with weights, less `shift` bits."""
        plane = self._tensors[which].array()
        whole = np.trunc(points)
        wx, wy = (points - whole).T
        one, unit = np.float32(1), np.float32(1 << _BITS)
        shares = [(one - wx) * (one - wy), wx * (one - wy), (one - wx) * wy]
        weights = [np.floor(share * unit + np.float32(0.5)).astype(np.int32) for share in shares]
        weights.append((1 << _BITS) - sum(weights))
        span = np.arange(self._side + 1) - self._side // 2
        x, y = whole.astype(np.int64).T
        around = plane[(y[:, None] + span)[:, :, None], (x[:, None] + span)[:, None, :]].astype(np.int32)
        corners = (around[:, :-1, :-1], around[:, :-1, 1:], around[:, 1:, :-1], around[:, 1:, 1:])
        total = sum(corner * weight[:, None, None] for corner, weight in zip(corners, weights, strict=True))
        return np.asarray((total + (1 << (shift - 1))) >> shift)


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
        refuse(self.validate(old_pyramid, new_pyramid, window_dimension, num_iterations))
        self._scale, self._ends = np.float32(old_pyramid.scale), termination
        self._epsilon, self._side = np.float32(epsilon), window_dimension
        self._steps = _MOST_STEPS if termination is Termination.TERM_CRITERIA_EPSILON else num_iterations
        self._old, self._new = old_points, new_points
        self._estimates = new_points_estimates if use_initial_estimate else None
        self._levels: list[_Level] = []
        kernels: list[IKernel] = []
        made: list[Tensor] = []
        for n in range(old_pyramid.num_levels()):
            old, new = old_pyramid.get_pyramid_level(n), new_pyramid.get_pyramid_level(n)
            gx, gy, scharr = image(*size_of(old.info()), S16), image(*size_of(old.info()), S16), NEScharr3x3()
            scharr.configure(old, gx, gy, border_mode, constant_border_value)
            kernels += scharr.kernels()
            made += [gx, gy]
            self._levels.append(_Level(old, new, gx, gy, window_dimension))
        self._set_kernels(kernels)
        for tensor in made:
            tensor.allocator().allocate()

    def run(self) -> None:
        """Find the points."""
        super().run()
        refuse(objection(type(self).__name__, self._wrong_points()))
        old = np.array([(p.x, p.y) for p in self._old], np.float32).reshape(-1, 2)
        top = np.float32(float(self._scale) ** (len(self._levels) - 1))
        guess = old if self._estimates is None else np.array([(p.x, p.y) for p in self._estimates], np.float32)
        old, new = old * top, guess.reshape(-1, 2) * top
        is_found = np.array([p.tracking_status == 1 for p in self._estimates or self._old], bool)
        is_found = is_found if self._estimates is not None else np.ones(len(old), bool)
        for n in reversed(range(len(self._levels))):
            if n < len(self._levels) - 1:
                old, new = old / self._scale, new / self._scale
            lost = self._track(self._levels[n], old, new)
            is_found &= ~lost if n == 0 else True
        places = np.copysign(np.floor(np.abs(new) + np.float32(0.5)), new).astype(int).tolist()
        found = zip(places, is_found.tolist(), strict=True)
        self._new[:] = [KeyPoint(x, y, 0.0, int(status)) for (x, y), status in found]

    def _wrong_points(self) -> str:
        if self._estimates is None or len(self._estimates) == len(self._old):
            return ""
        return f"{len(self._estimates)} estimates for {len(self._old)} points"

    def _track(self, level: _Level, old: Array, new: Array) -> Array:
        """Move `new` of a level; whether each point was lost there."""
        lost: Array = ~level.has(old)
        going = _Points(level, np.flatnonzero(~lost), old)
        lost[going.without(going.is_flat(self._side))] = True
        for turn in range(self._steps):
            lost[going.without(~level.has(new[going.index]))] = True
            if not len(going.index):
                break
            step = going.step(level.values(1, new[going.index], _BITS - _FRACTION))
            new[going.index] += step
            is_done = np.zeros(len(step), bool)
            if self._ends is not Termination.TERM_CRITERIA_ITERATIONS:
                is_done = (step * step).sum(1) <= self._epsilon
            turns_back = ~is_done & (np.abs(step + going.before) < _STILL).all(1) & (turn > 0)
            new[going.index[turns_back]] -= step[turns_back] * self._scale
            going.before = step
            going.without(is_done | turns_back)
        return lost


class _Points:
    """Points of a level that still move: their numbers, gradients and pixels of their windows, and their equations."""

    def __init__(self, level: _Level, index: Array, old: Array) -> None:
        self.index = index
        self._gx, self._gy = (level.values(which, old[index], _BITS) for which in (2, 3))
        self._pixels = level.values(0, old[index], _BITS - _FRACTION)
        self.before: Array = np.zeros((len(index), 2), np.float32)
        pairs = ((self._gx, self._gx), (self._gx, self._gy), (self._gy, self._gy))
        xx, xy, yy = (_UNIT * _sum(a, b).astype(np.float32) for a, b in pairs)
        self._matrix: Array = np.stack([xx, xy, yy, xx * yy - xy * xy], 1)

    def is_flat(self, side: int) -> Array:
        """Whether the gradients of a window leave its movement open."""
        xx, _, yy, determinant = self._matrix.T
        trace = xx + yy
        root = np.sqrt(np.maximum(trace * trace - np.float32(4) * determinant, np.float32(0)))
        least = (trace - root) / np.float32(2 * side * side)
        return np.asarray((least < _LEAST_EIGENVALUE) | (determinant < _LEAST_DETERMINANT))

    def without(self, mask: Array) -> Array:
        """Drop points; their numbers."""
        dropped, kept = self.index[mask], ~mask
        self.index, self._gx, self._gy = self.index[kept], self._gx[kept], self._gy[kept]
        self._pixels, self.before, self._matrix = self._pixels[kept], self.before[kept], self._matrix[kept]
        return np.asarray(dropped)

    def step(self, pixels: Array) -> Array:
        """How far each point moves by the pixels of the second image: the solution of its two equations."""
        difference = pixels - self._pixels
        b1, b2 = ((_UNIT * _sum(difference, g).astype(np.float32)).astype(np.float64) for g in (self._gx, self._gy))
        xx, xy, yy, determinant = self._matrix.astype(np.float64).T
        moved = [(xy * b2 - yy * b1) / determinant, (xy * b1 - xx * b2) / determinant]
        return np.stack(moved, 1).astype(np.float32)


def _sum(a: Array, b: Array) -> Array:
    """The sums over windows, in 32 bits."""
    return np.asarray((a * b).sum((1, 2), dtype=np.int32))
