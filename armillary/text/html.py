"""Small HTML for notebooks: coloured program text, and tables.

In: text of a printable language, or rows. Out: an HTML fragment with its styles inline, so that it looks the same in
every notebook. Invariant: everything from outside is escaped; no scripts, nothing fetched; long texts come folded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from armillary.base.lazy import deferred

with deferred():
    from html import escape as _escape  # the module brings a table of 500 KB
_FOLD = 60  # lines of text that are shown unfolded
_LONGEST = 4000  # lines after which the rest is left out
_TOKEN = re.compile(
    r"(?P<comment>/\*.*?\*/|(?:^|(?<=\s))(?:#|//)(?!\s*\d)[^\n]*)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<name>[%@][\w.]+)"
    r"|(?P<word>\b(?:def|fn|func|let|if|else|for|in|range|alloc|attr|assert|parallel|vectorized|unrolled|free_var|"
    r"compute|inline|extern|reduce|meta)\b)"
    r"|(?P<type>\b(?:Tensor|Buffer|bool|handle|(?:u?int|b?float)\d+(?:x\d+)?)\b)"
    r"|(?P<number>(?<![\w.])\d+(?:\.\d+)?(?:e[-+]?\d+)?\w*)",
    re.MULTILINE,
)
_COLOURS = {
    "comment": "#6a737d",
    "string": "#22863a",
    "name": "#0b5cad",
    "word": "#a626a4",
    "type": "#0f7b6c",
    "number": "#b35900",
}
_PRE = (
    "margin:0;padding:6px 10px;max-height:32em;overflow:auto;font:12px/1.45 ui-monospace,monospace;background:#f6f8fa;"
    "color:#24292f;border-radius:4px;white-space:pre"
)
_CELL = "padding:1px 10px 1px 0;border:0;white-space:nowrap"


def coloured(text: str) -> str:
    """The text escaped, with names, words, types, numbers and comments in colours."""
    parts, position = [], 0
    for match in _TOKEN.finditer(text):
        parts.append(_escape(text[position : match.start()]))
        colour = _COLOURS[match.lastgroup or "name"]
        parts.append(f'<span style="color:{colour}">{_escape(match[0])}</span>')
        position = match.end()
    return "".join(parts) + _escape(text[position:])


def source_html(text: str, title: str) -> str:
    """Program text in colours under a title; folded when it is long."""
    lines = text.rstrip("\n").split("\n")
    shown = "\n".join(lines[:_LONGEST])
    rest = f"\n… {len(lines) - _LONGEST} more lines" if len(lines) > _LONGEST else ""
    is_open = " open" if len(lines) <= _FOLD else ""
    head = f"{_escape(title)}, {len(lines)} line{'s' * (len(lines) != 1)}"
    body = f'<pre style="{_PRE}">{coloured(shown)}{_escape(rest)}</pre>'
    return f'<details{is_open}><summary style="font:13px sans-serif">{head}</summary>{body}</details>'


def table_html(heads: Sequence[str], rows: Sequence[Sequence[str]], bars: Sequence[float] = ()) -> str:
    """A table; cells that are numbers stand right; `bars` (0 to 1 by row) adds a column of bars."""
    style = "border-collapse:collapse;font:12px/1.5 ui-monospace,monospace"
    body = [_row("th", [*heads, *([""] if bars else [])])]
    for index, row in enumerate(rows):
        bar = f"<td>{_bar(bars[index])}</td>" if index < len(bars) else ""
        body.append(_row("td", row).removesuffix("</tr>") + bar + "</tr>")
    return f'<table style="{style}">{"".join(body)}</table>'


def _row(tag: str, cells: Sequence[str]) -> str:
    row = (
        f'<{tag} style="{_CELL};text-align:{"right" if _is_number(cell) else "left"}">{_escape(cell)}</{tag}>'
        for cell in cells
    )
    return f"<tr>{''.join(row)}</tr>"


def _is_number(cell: str) -> bool:
    return bool(re.fullmatch(r"-?[\d.,]+(e[-+]?\d+)?( ?%)?", cell.strip()))


def _bar(share: float) -> str:
    width = round(120 * min(1.0, max(0.0, share)), 1)
    return f'<div style="background:#5b8def;height:9px;width:{width}px;border-radius:2px"></div>'
