"""Detection windows: of those of one class that are close to one another, the best.

In: a list of windows with scores, as detectors give it. Out: the same list with what is kept, by class, of a class the
best first. Invariant: two kept windows of a class have centres at least the distance apart.
"""

from __future__ import annotations

from armillary.base.boundary import bounded_methods
from armillary.base.record import record
from armillary.errors import ExecutionError, TypeMismatch


@record(slots=True)
class DetectionWindow:
    """A rectangle, the number of its class, and how sure the detector is."""

    x: int
    y: int
    width: int
    height: int
    idx_class: int = 0
    score: float = 0.0

    def centre(self) -> tuple[float, float]:
        """The middle of the rectangle."""
        return self.x + self.width * 0.5, self.y + self.height * 0.5


@bounded_methods("configure")
class CPPDetectionWindowNonMaximaSuppressionKernel:
    """Keeps, of windows of a class whose centres are nearer than a distance, the one with the highest score."""

    def __init__(self) -> None:
        self._windows: list[DetectionWindow] | None = None
        self._distance = 0.0

    def configure(self, input_output: list[DetectionWindow], min_distance: float) -> None:
        """Set the list, which is changed in place, and the distance."""
        if not isinstance(input_output, list) or not all(isinstance(one, DetectionWindow) for one in input_output):
            raise TypeMismatch(f"the windows are {input_output!r:.60}, wanted a list of DetectionWindow")
        if not min_distance >= 0:
            raise TypeMismatch(f"windows are at least {min_distance} apart, wanted 0 or more")
        self._windows, self._distance = input_output, min_distance

    def is_parallelisable(self) -> bool:
        """Each window depends on those that are better."""
        return False

    def run(self) -> None:
        """Keep the best."""
        if self._windows is None:
            raise ExecutionError(f"{type(self).__name__} is not configured", hint="call configure first")
        retained: list[DetectionWindow] = []
        for window in sorted(self._windows, key=lambda one: (one.idx_class, -one.score)):
            if not any(self._is_close(window, better) for better in retained):
                retained.append(window)
        self._windows[:] = retained

    def _is_close(self, window: DetectionWindow, better: DetectionWindow) -> bool:
        (x, y), (at_x, at_y) = window.centre(), better.centre()
        far = (x - at_x) ** 2 + (y - at_y) ** 2 >= self._distance**2
        return window.idx_class == better.idx_class and not far


class CPPDetectionWindowNonMaximaSuppression(CPPDetectionWindowNonMaximaSuppressionKernel):
    """The kernel as a function."""
