"""Line plots as self-contained SVG and HTML, for the benchmarks.

In: panels of series of (x, y) points, both axes logarithmic. Out: an HTML page with one SVG per panel. Invariant:
nothing is fetched, no library is needed; the same points give the same text.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

Point = tuple[float, float]
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 520, 320, 62, 18, 34, 44
_COLOURS = ("#3b6fd4", "#d9822b", "#1f9e8c", "#c2407a", "#8250c4", "#4c9a2a", "#57606a")
_DASHES = ("", "6 3", "2 3", "8 3 2 3")


@dataclass
class Series:
    """A line: its name, the number of its colour and dash, its points in order."""

    name: str
    colour: int
    dash: int
    points: list[Point]


@dataclass
class Panel:
    """A plot; `ticks` are the x positions that are labelled."""

    title: str
    x_name: str
    y_name: str
    series: list[Series] = field(default_factory=list)

    @property
    def xs(self) -> list[float]:
        """Every x, in order."""
        return sorted({x for line in self.series for x, _ in line.points})


def page(title: str, panels: Sequence[Panel], tables: str = "") -> str:
    """An HTML page of panels, then tables."""
    cells = "td,th{padding:2px 10px;text-align:right}"
    style = f"body{{font:14px Helvetica,Arial,sans-serif;margin:24px}}svg{{margin:6px}}{cells}"
    head = f'<!doctype html><meta charset="utf-8"><title>{html.escape(title)}</title><style>{style}</style>'
    return f"{head}<h1>{html.escape(title)}</h1>{''.join(map(svg, panels))}{tables}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table."""
    lines = ["".join(f"<th>{html.escape(h)}</th>" for h in heads)]
    lines += ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def svg(panel: Panel) -> str:
    """One panel."""
    ys = [y for line in panel.series for _, y in line.points]
    if not ys:
        return ""
    xs = panel.xs
    low, high = 10 ** math.floor(math.log10(min(ys)) * 2 - 0.01), 10 ** math.ceil(math.log10(max(ys)) * 2 + 0.01)
    low, high = math.sqrt(low), math.sqrt(high)

    def place(x: float, y: float) -> Point:
        across = math.log(x / xs[0]) / math.log(xs[-1] / xs[0]) if xs[-1] > xs[0] else 0.5
        up = math.log(y / low) / math.log(high / low)
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        'font-family="Helvetica,Arial,sans-serif" font-size="11">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff" stroke="#d0d7de"/>',
        f'<text x="{_LEFT}" y="20" font-size="13" font-weight="bold">{html.escape(panel.title)}</text>',
    ]
    for y in _decades(low, high):
        at = place(xs[0], y)[1]
        parts.append(f'<path d="M{_LEFT},{at:.1f}H{_WIDTH - _RIGHT}" stroke="#eaeef2"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in xs:
        at = place(x, low)[0]
        parts.append(f'<path d="M{at:.1f},{_HEIGHT - _BOTTOM}v4" stroke="#57606a"/>')
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{x:g}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">{html.escape(panel.x_name)}</text>')
    turned = f'transform="rotate(-90 14 {_HEIGHT / 2})" text-anchor="middle"'
    parts.append(f'<text x="14" y="{_HEIGHT / 2}" {turned}>{html.escape(panel.y_name)}</text>')
    for number, line in enumerate(panel.series):
        parts += _line(line, [place(*point) for point in line.points], number)
    return "".join(parts) + "</svg>"


def _decades(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, 20… inside the range."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (m * 10.0**e for e in range(first, last + 1) for m in (1, 2, 5))
    return [y for y in steps if low <= y <= high]


def _line(line: Series, points: Sequence[Point], number: int) -> list[str]:
    colour, dash = _COLOURS[line.colour % len(_COLOURS)], _DASHES[line.dash % len(_DASHES)]
    path = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts = [f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dash}"/>']
    for (x, y), (at, value) in zip(points, line.points, strict=True):
        note = f"<title>{html.escape(line.name)}: {at:g} → {value:.4g}</title>"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}">{note}</circle>')
    top = _TOP + 10 + 15 * number
    left = _WIDTH - _RIGHT - 150
    parts.append(f'<path d="M{left},{top - 4}h22" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dash}"/>')
    parts.append(f'<text x="{left + 28}" y="{top}">{html.escape(line.name)}</text>')
    return parts
