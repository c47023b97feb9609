"""A profile of a device as one HTML page: figures, bars of the kernels beside what the roof allows, a table.

In: a `DeviceProfile`, a title, names of the kernels. Out: the page's text. Invariant: as of the page of CPUs
(`profile.py`): everything from the model is escaped, and no other file is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.cli.pages.profile import BAR, LABEL, LETTERS, PAGE_SCRIPT, PAGE_STYLE, WIDTH, escaped, tail
from armillary.driver.devices.device_profile import DeviceKernel, DeviceProfile
from armillary.driver.devices.device_roof import SMALL, DeviceRoof

BUFFERS, IMAGES = "#2b8074", "#2f6db3"  # colours: a kernel of buffers alone, one that has textures
NUMBERS = ("ms", "share", "GFLOP/s", "GB/s", "% roof")
Rows = Sequence[tuple[DeviceKernel, str]]


def roof_text(roof: DeviceRoof) -> str:
    """The device and what was measured of it."""
    message = (
        f"{roof.device}: {roof.gflops:.0f} GFLOP/s (float32), reads memory {roof.memory:.0f}, "
        f"up to {SMALL >> 20} MB of caches {roof.cache:.0f} GB/s"
    )
    textures = f"; textures {roof.texture_memory:.0f} and {roof.texture_cache:.0f} GB/s"
    return message + textures if roof.texture_memory else message


def device_page(profile: DeviceProfile, title: str, names: Sequence[str]) -> str:
    """The page; `names` label the kernels, in the order of the profile."""
    rows = list(zip(profile.kernels, names, strict=True))
    bars = _bars(sorted(rows, key=lambda row: -row[0].seconds))
    legend = "".join(
        f'<span><i style="background:{color}"></i>{name}</span>'
        for color, name in ((BUFFERS, "buffers"), (IMAGES, "with textures"))
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>Profile of {escaped(title)}</title>'
        f"<style>{PAGE_STYLE}</style></head><body><main><h1>{escaped(title)}</h1>"
        f'<p class="sub">{escaped(roof_text(profile.roof))} · medians of {profile.runs} runs</p>{_cards(profile)}'
        "<section><h2>Kernels by time: the dark part is what the roof allows</h2>"
        f'<div class="legend">{legend}</div>{bars}</section>'
        f"<section><h2>All kernels, with the memory and layout of their tensors</h2>{_table(profile, rows)}</section>"
        f'</main><div id="tip"></div><script>{PAGE_SCRIPT}</script></body></html>\n'
    )


def _cards(profile: DeviceProfile) -> str:
    flops = sum(k.flops for k in profile.kernels)
    cards = (
        (f"{1e3 * profile.in_kernels:.3f} ms", f"in kernels; a whole inference {1e3 * profile.seconds:.3f} ms"),
        (f"{profile.percent:.0f} %", "of the roof"),
        (f"{flops / (profile.in_kernels or 1.0) / 1e9:.0f} GFLOP/s", f"{flops / 1e9:.2f} GFLOP"),
        (str(len(profile.kernels)), "kernels"),
    )
    inside = "".join(f'<div class="card"><b>{escaped(a)}</b><span>{escaped(b)}</span></div>' for a, b in cards)
    return f'<div class="cards">{inside}</div>'


def _bars(rows: Rows) -> str:
    longest, room, parts = max((k.seconds for k, _ in rows), default=0.0) or 1.0, WIDTH - LABEL - 190, []
    for line, (kernel, name) in enumerate(rows):
        y, width = line * BAR, room * kernel.seconds / longest
        roof = min(width, room * kernel.least / longest)
        color = IMAGES if any(tensor.startswith("texture") for tensor in kernel.tensors) else BUFFERS
        rates = f"{kernel.gflops:.1f} GFLOP/s · {kernel.gbytes:.1f} GB/s"
        hover = f"{name}  (#{kernel.index})\n{1e3 * kernel.seconds:.4f} ms · {rates}\n" + "\n".join(kernel.tensors)
        parts.append(
            f'<g class="k"><title>{escaped(hover)}</title><rect x="0" y="{y}" width="{WIDTH}" height="{BAR}" '
            f'fill="#fff0"/><text x="{LABEL - 8}" y="{y + 14}" text-anchor="end">{escaped(tail(name, LETTERS))}</text>'
            f'<rect class="body" x="{LABEL}" y="{y + 3}" width="{max(1.0, width):.1f}" height="14" rx="2" '
            f'fill="{color}" fill-opacity="0.35"/>'
            f'<rect x="{LABEL}" y="{y + 3}" width="{max(0.5, roof):.1f}" height="14" rx="2" fill="{color}"/>'
            f'<text class="soft" x="{LABEL + width + 8:.1f}" y="{y + 14}">'
            f"{1e3 * kernel.seconds:.3f} ms · {kernel.percent:.0f} %</text></g>"
        )
    return f'<svg viewBox="0 0 {WIDTH} {BAR * len(rows) + 4}" role="img">{"".join(parts)}</svg>'


def _table(profile: DeviceProfile, rows: Rows) -> str:
    heads = ("#", "kernel", *NUMBERS, "bound", "tensors, the results last")
    head = "".join(f"<th{' class=n' if h in ('#', *NUMBERS) else ''}>{h}</th>" for h in heads)
    lines = []
    for k, name in rows:
        share = 100 * k.seconds / (profile.in_kernels or 1.0)
        figures = (1e3 * k.seconds, ".4f"), (share, ".1f"), (k.gflops, ".1f"), (k.gbytes, ".1f"), (k.percent, ".0f")
        cells = "".join(f'<td class="n" data-v="{v:.6g}">{v:{form}}</td>' for v, form in figures)
        tensors = "<br>".join(map(escaped, k.tensors))
        lines.append(
            f'<tr><td class="n" data-v="{k.index}">{k.index}</td><td class="name">{escaped(name)}</td>{cells}'
            f"<td>{k.bound}</td><td>{tensors}</td></tr>"
        )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
