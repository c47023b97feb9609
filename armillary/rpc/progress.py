"""Curves of tuning: what clients report of their trials, for the tracker's page.

In: reports of a client: how many trials of a task are done, the speed of the last one and of the best. Out: curves.
Invariant: reports are shown and decide nothing; memory is bounded, however many clients report: the curves that were
heard of longest ago go first, and a long curve keeps every second of its points. Who draws them: `page.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from armillary.rpc.protocol import Json, int_of, text_of

MOST_CURVES, MOST_POINTS = 64, 256
_MOST_FLOPS = 1 << 62


@dataclass
class Curve:
    """The trials of one task of one client: points are (trial, operations per second, of the best so far)."""

    user: str
    key: str
    task: str
    total: int = 0
    trials: int = 0
    failed: int = 0
    error: str = ""
    heard: float = 0.0
    points: list[tuple[int, int, int]] = field(default_factory=list)


class Curves:
    """What clients of a tracker report."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Curve] = {}

    def note(self, user: str, header: dict[str, Json], now: float) -> None:
        """Take a report; RPCError where it is none."""
        task, key = text_of(header, "task", 512), text_of(header, "key")
        flops, best = (int_of(header, name, 0, _MOST_FLOPS) for name in ("flops", "best"))
        trials, failed = (int_of(header, name, 0, 1 << 40) for name in ("trials", "failed"))
        total, error = int_of(header, "total", 0, 1 << 40, 0), text_of(header, "error", 1024, "")
        curve = self._rows.pop((user, task), None) or Curve(user, key, task)
        self._rows[user, task] = curve
        curve.total, curve.trials, curve.failed, curve.heard = total, trials, failed, now
        curve.error = error or curve.error
        curve.points.append((trials, flops, best))
        if len(curve.points) > MOST_POINTS:
            del curve.points[1:-1:2]
        while len(self._rows) > MOST_CURVES:
            del self._rows[next(iter(self._rows))]

    def summary(self, now: float) -> list[dict[str, Json]]:
        """The curves, the latest first."""
        return [
            {
                "user": curve.user,
                "key": curve.key,
                "task": curve.task,
                "total": curve.total,
                "trials": curve.trials,
                "failed": curve.failed,
                "error": curve.error,
                "seconds_ago": int(now - curve.heard),
                "points": [list(point) for point in curve.points],
            }
            for curve in reversed(self._rows.values())
        ]
