"""What a run's outputs say: the largest elements of the first row.

In: a TVMCResult. Out: an array of their places and one of their values. Invariant: largest first, equal ones in order.
"""

from __future__ import annotations

import numpy as np

from armillary.base.aliases import Array
from armillary.driver.tvmc.model import TVMCResult
from armillary.errors import ExecutionError


def get_top_results(result: TVMCResult, max_results: int) -> Array:
    """An array (2, max_results): places and values of the largest elements of the first row of `output_0`."""
    scores = np.asarray(result.get_output("output_0"))
    if scores.ndim == 0 or max_results < 1:
        message = f"got an output of shape {scores.shape} and max_results={max_results}"
        raise ExecutionError(f"get_top_results: wanted rows and a number from 1 on; {message}")
    row = scores.reshape(-1, scores.shape[-1])[0]
    places = np.argsort(-row.astype(np.float64), kind="stable")[:max_results]
    return np.array([places, row[places]])
