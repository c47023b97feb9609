"""Draws laid-out graphs as one SVG.

In: `Graph`s of boxes (rows of text, a kind that colours them, a tooltip) and labelled edges. Out: SVG text, graphs side
by side under their titles, with a legend of the kinds in use. Invariant: self-contained; everything from outside is
escaped; text widths are estimated, so no font is measured.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from armillary.relay.visualization.layout import Layout, Point, arrange

# Fill, border: by kind of operator, and for what is no operator.
COLOURS = {
    "contraction": ("#d6e4ff", "#3b6fd4"),
    "reduce": ("#ffe3c7", "#d9822b"),
    "injective": ("#fff3bf", "#c79a00"),
    "broadcast": ("#d9f2ee", "#1f9e8c"),
    "elementwise": ("#dff3d8", "#4c9a2a"),
    "tuple": ("#ececec", "#888888"),
    "opaque": ("#eadcf7", "#8250c4"),
    "control": ("#fbd9e7", "#c2407a"),
    "input": ("#ffffff", "#57606a"),
    "output": ("#57606a", "#24292f"),
}
_LETTER, _NOTE_LETTER, _LINE = 6.9, 5.6, 15.0
_PAD, _MARGIN, _BESIDE = 9.0, 24.0, 70.0
_STYLE = (
    "text{font-family:Helvetica,Arial,sans-serif}.o{font-size:12px;fill:#1b1f24}.n{font-size:10px;fill:#57606a}"
    ".e{fill:none;stroke:#8c959f;stroke-width:1.2}.s{font-size:9.5px;fill:#57606a;paint-order:stroke;stroke:#fff;"
    "stroke-width:3px}.t{font-size:16px;font-weight:bold;fill:#1b1f24}.w{fill:#fff}"
    "g.b:hover rect.f{stroke-width:2.6px}"
)
_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0,0.8 L8,4 L0,7.2 z" fill="#8c959f"/></marker></defs>'
)


@dataclass
class Row:
    """A line of a box: an operator (with its kind's colour beside it), or a note in small letters."""

    text: str
    kind: str = ""
    note: str = ""
    times: int = 1
    is_note: bool = False

    @property
    def shown(self) -> str:
        """The line as it is drawn."""
        return f"{self.text} ×{self.times}" if self.times > 1 else self.text


@dataclass
class Box:
    """A node of the graph."""

    kind: str
    rows: list[Row]
    tooltip: str

    @property
    def size(self) -> Point:
        """Width and height by estimate."""
        widths = [_text_width(row) + (12 if self._has_chips and not row.is_note else 0) for row in self.rows]
        return max(widths, default=0.0) + 2 * _PAD, _LINE * len(self.rows) + 8

    @property
    def _has_chips(self) -> bool:
        return sum(bool(row.kind) for row in self.rows) > 1


@dataclass
class Edge:
    """From one box to another, with the shape of what flows."""

    source: int
    target: int
    label: str


@dataclass
class Graph:
    """Boxes, each after those it reads, and edges."""

    title: str
    boxes: list[Box]
    edges: list[Edge] = field(default_factory=list)


def draw(graphs: Sequence[Graph]) -> str:
    """The SVG of graphs side by side."""
    layouts = [arrange([b.size for b in g.boxes], [(e.source, e.target) for e in g.edges]) for g in graphs]
    kinds = [kind for kind in COLOURS if any(kind in _kinds(box) for g in graphs for box in g.boxes)]
    legend, legend_width = _legend(kinds)
    top = _MARGIN + 26 + (26 if any(g.title for g in graphs) else 0)
    left, parts = _MARGIN, [legend]
    for graph, layout in zip(graphs, layouts, strict=True):
        if graph.title:
            count = f"{graph.title}: {sum(b.kind not in ('input', 'output') for b in graph.boxes)} boxes"
            parts.append(f'<text class="t" x="{left:.1f}" y="{top - 12:.1f}">{html.escape(count)}</text>')
        shift = f"translate({left:.1f},{top:.1f})"
        parts.append(f'<g transform="{shift}">{_edges(graph, layout)}{_boxes(graph, layout)}</g>')
        left += max(layout.width, 9 * len(graph.title) + 90) + _BESIDE
    width = max(left - _BESIDE, legend_width) + _MARGIN
    height = max((layout.height for layout in layouts), default=0.0) + top + _MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}"><style>{_STYLE}</style>{_ARROW}'
        '<rect class="w" width="100%" height="100%"/>'
    )
    return head + "".join(parts) + "</svg>"


def _kinds(box: Box) -> set[str]:
    return {box.kind, *(row.kind for row in box.rows)}


def _text_width(row: Row) -> float:
    if row.is_note:
        return _NOTE_LETTER * len(row.note)
    return _LETTER * len(row.shown) + (_NOTE_LETTER * (len(row.note) + 1) if row.note else 0)


def _legend(kinds: Sequence[str]) -> tuple[str, float]:
    parts, x = [], _MARGIN
    for kind in kinds:
        fill, line = COLOURS[kind]
        parts.append(f'<rect x="{x:.0f}" y="12" width="13" height="13" rx="3" fill="{fill}" stroke="{line}"/>')
        parts.append(f'<text class="n" x="{x + 18:.0f}" y="22">{kind}</text>')
        x += 34 + _NOTE_LETTER * len(kind)
    return "".join(parts), x


def _boxes(graph: Graph, layout: Layout) -> str:
    return "".join(_box(box, centre) for box, centre in zip(graph.boxes, layout.centres, strict=True))


def _box(box: Box, centre: Point) -> str:
    width, height = box.size
    x, y = centre[0] - width / 2, centre[1] - height / 2
    fill, line = COLOURS.get(box.kind, COLOURS["opaque"])
    radius = height / 2 if box.kind in ("input", "output") else 5
    parts = [
        f'<g class="b"><title>{html.escape(box.tooltip)}</title><rect class="f" x="{x:.1f}" y="{y:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}" rx="{radius:.0f}" fill="{fill}" stroke="{line}"/>'
    ]
    chips = sum(bool(row.kind) for row in box.rows) > 1
    for n, row in enumerate(box.rows):
        parts.append(_row(row, box, x + _PAD, centre[0], y + 4 + _LINE * n, chips))
    return "".join(parts) + "</g>"


def _row(row: Row, box: Box, left: float, middle: float, top: float, chips: bool) -> str:
    base = top + 11.5
    if row.is_note:
        return f'<text class="n" x="{middle:.1f}" y="{base:.1f}" text-anchor="middle">{html.escape(row.note)}</text>'
    note = f' <tspan class="n">{html.escape(row.note)}</tspan>' if row.note else ""
    colour = ' style="fill:#fff"' if box.kind == "output" else ""
    text = f"{html.escape(row.shown)}{note}</text>"
    if not chips:
        return f'<text class="o"{colour} x="{middle:.1f}" y="{base:.1f}" text-anchor="middle">{text}'
    fill = COLOURS.get(row.kind, COLOURS["opaque"])[1]
    chip = f'<rect x="{left:.1f}" y="{top + 3.5:.1f}" width="7" height="8" rx="1.5" fill="{fill}"/>'
    return f'{chip}<text class="o" x="{left + 12:.1f}" y="{base:.1f}">{text}'


def _edges(graph: Graph, layout: Layout) -> str:
    """Curves, then labels: one for each box that is read, where the edge leaves it."""
    curves = [f'<path class="e" d="{_curve(r)}" marker-end="url(#arrow)"/>' for r in layout.routes]
    labels, seen = [], set()
    for edge, route in zip(graph.edges, layout.routes, strict=True):
        if graph.boxes[edge.source].kind != "input" and (edge.source, edge.label) not in seen:
            seen.add((edge.source, edge.label))
            x, y = route[0]
            labels.append(f'<text class="s" x="{x + 5:.1f}" y="{y + 13:.1f}">{html.escape(edge.label)}</text>')
    return "".join(curves) + "".join(labels)


def _curve(route: Sequence[Point]) -> str:
    """Straight down through layers, bent between them."""
    parts = [f"M{route[0][0]:.1f},{route[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(route):
        middle = (y0 + y1) / 2
        straight = abs(x0 - x1) < 0.05
        parts.append(f"V{y1:.1f}" if straight else f"C{x0:.1f},{middle:.1f} {x1:.1f},{middle:.1f} {x1:.1f},{y1:.1f}")
    return "".join(parts)
