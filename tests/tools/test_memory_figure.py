"""The figure of what sharing saves shows what the managers give now."""

from __future__ import annotations

from tools.memory_figure import FILE, figure, totals


def test_the_figure_shows_what_managers_give() -> None:
    assert FILE.read_text() == figure(), "run tools/memory_figure.py"
    for alone, *shared in totals().values():
        assert all(size <= alone * 2 // 3 for size in shared)
