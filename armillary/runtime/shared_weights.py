"""Parameters that several executors of one graph have in memory once.

In: what one executor has loaded and expanded. Out: the same memory for others (`LoadedOnce.bind`). Invariant: it stays
as long as one of these executors does; whoever sets a parameter anew shares no longer (`GraphExecutor._unshare`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING

from armillary.base.record import record
from armillary.runtime.native_library import Handle
from armillary.runtime.stored_params import EmbeddedParams, StoredParams

if TYPE_CHECKING:
    from armillary.runtime.executor import GraphExecutor


@record(eq=False)
class SharedWeights:
    """What an executor has loaded, for others of the same graph: which parameters, and which it has let go of since."""

    handle: Handle
    params: frozenset[str]
    released: frozenset[str]


class LoadedOnce:
    """Gives executors of one graph the same loaded parameters; they stay as long as one of these executors does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._weights: weakref.ref[SharedWeights] | None = None

    def bind(self, executor: GraphExecutor, params: Mapping[str, object] | StoredParams | EmbeddedParams) -> None:
        """Set the parameters of a new executor (Any: arrays). Another thread's waits until they are loaded."""
        with self._lock:
            weights = self._weights() if self._weights is not None else None
            if weights is not None:
                executor.adopt(weights, params)
                return
            executor.bind(params)
            weights = executor.publish()
            self._weights = weakref.ref(weights) if weights is not None else None
