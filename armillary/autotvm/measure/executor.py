"""What a runner's trials can be submitted to: `LocalRunner.executor`.

In: a function and its arguments. Out: a future, whose `result()` is the function's. Invariant: as in
`concurrent.futures`, whose executors fit, too. A runner without one runs its trials one after another.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from armillary.autotvm.errors import TuningError

if TYPE_CHECKING:
    from armillary.autotvm.measure.measure import MeasureResult
    from armillary.base.aliases import AnyFunction


class Executor:
    """Runs functions somewhere; subclasses say where."""

    def submit(self, func: AnyFunction, *args: object, **kwargs: object) -> Future[MeasureResult]:
        """Begin a call; its future has the result."""
        raise TuningError(f"{type(self).__name__} does not define submit", hint="concurrent.futures has executors")
