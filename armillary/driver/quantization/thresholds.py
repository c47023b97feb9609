"""The largest value that is worth a step of its own: thresholds of clipping, from samples.

In: samples of a value. Out: a number; what lies above is clipped when the value is quantised. `by_divergence` takes the
threshold whose quantised distribution diverges least from the samples' (Kullback and Leibler's measure), the published
method of 8-bit calibration; `by_percentile` all but a few samples. Invariant: positive, and never above the largest
sample, unless all samples are 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from armillary.base.aliases import Array

BINS, STEPS, PERCENTILE = 2048, 128, 99.999
_IN_A_BIN = 16
_PARTS, _MOST_SAMPLES, _LAST_STEP = 36, 100_000, 255.0
_STRIDE = 16  # bins between the thresholds that are tried: a 128th of the range


def by_percentile(samples: Array) -> float:
    """What all but one in a hundred thousand samples lie below."""
    return float(np.percentile(np.abs(samples), PERCENTILE)) or 1.0


def by_divergence(samples: Array) -> float:
    """The threshold whose 128 steps tell most of the distribution of magnitudes."""
    magnitudes = np.abs(np.asarray(samples, np.float32)).ravel()
    largest = float(magnitudes.max(initial=0.0))
    if not largest or not np.isfinite(largest):
        return largest if np.isfinite(largest) and largest else 1.0
    bins = min(BINS, max(2 * STEPS, magnitudes.size // _IN_A_BIN))  # of few samples, bins that are not mostly empty
    counts, edges = np.histogram(magnitudes, bins, (0.0, largest))
    tried = range(STEPS, bins + 1, _STRIDE)
    losses = [_divergence(counts.astype(np.float64), retained) for retained in tried]
    return float(edges[tried[int(np.argmin(losses))]])


def by_error(samples: Array) -> tuple[float, float]:
    """The range whose 256 steps lose the least mean square, of ranges that are parts of the samples'."""
    values = np.asarray(samples, np.float32).ravel()
    if values.size > _MOST_SAMPLES:
        values = np.random.default_rng(0).choice(values, _MOST_SAMPLES, replace=False)
    low, high = min(float(samples.min()), 0.0), max(float(samples.max()), 0.0)
    best, least = (low, high), math.inf
    for part in np.linspace(0.3, 1.0, _PARTS):
        scale = max(part * (high - low) / _LAST_STEP, float(np.finfo(np.float32).tiny))
        zero = np.rint(-part * low / scale)
        steps = np.clip(np.rint(values / scale), -zero, _LAST_STEP - zero)
        lost = float(((steps * scale - values) ** 2).mean())
        if lost < least:
            best, least = (float(part) * low, float(part) * high), lost
    return best


def _within(limit: float, samples: Array) -> tuple[float, float]:
    return max(float(samples.min()), -limit), min(float(samples.max()), limit)


LIMITS: dict[str, Callable[[Array], tuple[float, float]]] = {  # the least and the largest value that steps cover
    "minmax": lambda samples: (float(samples.min()), float(samples.max())),
    "percentile": lambda samples: _within(by_percentile(samples), samples),
    "entropy": lambda samples: _within(by_divergence(samples), samples),
    "mse": by_error,
}


def _divergence(counts: Array, bins: int) -> float:
    """How far the first `bins` bins, with all above in the last, are from themselves in 128 steps."""
    clipped = counts[:bins].copy()
    inside = clipped.copy()
    clipped[-1] += counts[bins:].sum()
    edges = np.linspace(0, bins, STEPS + 1).round().astype(int)
    steps = np.zeros(bins)
    for start, stop in itertools.pairwise(edges):
        filled = inside[start:stop] > 0
        if filled.any():
            steps[start:stop][filled] = inside[start:stop].sum() / filled.sum()
    p, q = clipped / max(clipped.sum(), 1.0), steps / max(steps.sum(), 1.0)
    both = p > 0
    return float(np.sum(p[both] * np.log(p[both] / np.maximum(q[both], 1e-9))))
