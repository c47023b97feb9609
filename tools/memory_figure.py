"""Draws what sharing saves: docs/images/memory.svg, bytes of temporary values with and without a memory manager.

Run: `python tools/memory_figure.py`. In: the listing of the architecture text (three values, of which two are needed at
once), and the lifetimes of three networks. Out: for each a bar without a manager
and one for each lifetime manager, as parts of the first. Invariant: the managers compute the numbers; the same
lifetimes give the same text.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from armillary.compute import BlobLifetimeManager, OffsetLifetimeManager  # noqa: E402
from tests.compute.acl_oracle import memory_cases  # noqa: E402

FILE = ROOT / "docs" / "images" / "memory.svg"
MANAGERS = {"BlobLifetimeManager": BlobLifetimeManager, "OffsetLifetimeManager": OffsetLifetimeManager}
_LISTING = [1 << 20, 1 << 20, -1, 1 << 20, -2, -3]  # as the text manages tmp1, tmp2 and tmp3
_NAMES = {"vgg16": "VGG-16", "mobilenet": "MobileNet", "resnet50": "ResNet-50"}
_COLOURS = ("#b8bec6", "#3b6fd4", "#1f9e8c")
_WIDTH, _HEIGHT, _LEFT, _TOP, _GROUP, _BAR = 700, 300, 44, 40, 168, 34


def totals() -> dict[str, tuple[int, ...]]:
    """Bytes of each case: every value on its own, then by manager."""
    cases = {"three values of the text": _LISTING}
    cases |= {_NAMES[name]: events() for name, events in memory_cases.NETWORKS.items()}
    return {
        name: (sum(n for n in events if n > 0), *(memory_cases.ours(events, kind) for kind in MANAGERS.values()))
        for name, events in cases.items()
    }


def figure() -> str:
    """The SVG."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
    ]
    for n, name in enumerate(("no manager", *MANAGERS)):
        x = _LEFT + 170 * n
        lines.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{_COLOURS[n]}"/>')
        lines.append(f'<text x="{x + 18}" y="22" font-size="12">{name}</text>')
    for group, (name, sizes) in enumerate(totals().items()):
        lines += _group(_LEFT + group * _GROUP, name, sizes)
    return "\n".join([*lines, "</svg>", ""])


def _group(left: int, name: str, sizes: tuple[int, ...]) -> list[str]:
    """The bars of a case, with megabytes and parts of the first one."""
    base, lines = _HEIGHT - 42, []
    for n, size in enumerate(sizes):
        height = round((base - _TOP - 30) * size / sizes[0], 1)
        x, y = left + n * (_BAR + 4), round(base - height, 1)
        lines.append(f'<rect x="{x}" y="{y}" width="{_BAR}" height="{height}" fill="{_COLOURS[n]}"/>')
        message = (f"{size / 1e6:.1f}", "MB" if n == 0 else f"{size / sizes[0]:.0%}")
        for k, text in enumerate(message):
            at = f'x="{x + _BAR // 2}" y="{round(y - 16 + 12 * k, 1)}"'
            lines.append(f'<text {at} font-size="10" text-anchor="middle">{text}</text>')
    middle = left + (_BAR + 4) * len(sizes) // 2
    return [*lines, f'<text x="{middle}" y="{base + 18}" font-size="11" text-anchor="middle">{name}</text>']


if __name__ == "__main__":
    FILE.write_text(figure())
    for case, count in totals().items():
        print(case, *count)
