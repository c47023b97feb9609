"""A profile as one HTML page: figures, a timeline, a bar chart, a table; no other file is needed.

In: a `Profile` and a title. Out: the page's text. Invariant: everything from the model is escaped; without scripts the
page still shows all of it (hover texts are also `<title>`s). Bars have two parts: what the roof allows, and the rest.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from armillary.driver.profile import KernelProfile, Profile, percent_of_roof

CLASSES = (
    ("winograd", "Winograd convolution", "#2f6db3"), ("direct", "direct convolution", "#3d9b8f"),
    ("depthwise", "depthwise convolution", "#7a5aa6"), ("product", "matrix product", "#d07a2d"),
    ("", "other", "#8b929c"),
)  # fmt: skip
WIDTH, TIMELINE, BAR, LABEL = 1080, 64, 20, 300

_STYLE = """
:root{--ink:#1d2430;--soft:#5b6573;--line:#e3e7ec;--paper:#fff;--page:#f6f7f9}
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1320px;margin:0 auto;padding:28px 20px 60px}h1{font-size:24px;margin:0 0 2px}
h2{font-size:16px;margin:0 0 10px}p.sub{color:var(--soft);margin:0 0 20px}
section{background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:18px 20px;margin:0 0 18px;
overflow-x:auto}.cards{display:flex;gap:12px;flex-wrap:wrap;margin:0 0 18px}
.card{background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:12px 18px;flex:1 1 150px}
.card b{display:block;font-size:22px;font-variant-numeric:tabular-nums}.card span{color:var(--soft);font-size:13px}
svg{display:block;width:100%;height:auto;font:12px system-ui,sans-serif}svg text{fill:var(--ink)}
svg .soft{fill:var(--soft)}.k:hover .body{stroke:#1d2430;stroke-width:1.5}
.legend{display:flex;gap:16px;flex-wrap:wrap;color:var(--soft);font-size:13px;margin:0 0 10px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px;vertical-align:-1px}
table{border-collapse:collapse;width:100%;font-size:13px}th,td{padding:5px 8px;border-bottom:1px solid var(--line);
text-align:left;white-space:nowrap}th{color:var(--soft);font-weight:600;cursor:pointer}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
td{vertical-align:top}td.w{white-space:normal;min-width:400px}
td.w small{display:block;color:var(--soft);font-size:12px;line-height:1.4}
#tip{position:fixed;display:none;max-width:520px;background:#1d2430;color:#fff;padding:9px 12px;border-radius:8px;
font-size:13px;line-height:1.45;pointer-events:none;white-space:pre-line;z-index:9;box-shadow:0 4px 18px #0003}
"""

_SCRIPT = """
const tip=document.getElementById('tip');
document.querySelectorAll('.k').forEach(g=>{const t=g.querySelector('title');if(!t)return;
const s=t.textContent;t.remove();
g.addEventListener('mousemove',e=>{tip.textContent=s;tip.style.display='block';
const x=Math.min(e.clientX+14,innerWidth-tip.offsetWidth-10),low=e.clientY+16+tip.offsetHeight>innerHeight;
tip.style.left=x+'px';tip.style.top=(low?e.clientY-tip.offsetHeight-12:e.clientY+16)+'px'});
g.addEventListener('mouseleave',()=>tip.style.display='none')});
document.querySelectorAll('th').forEach((th,i)=>th.addEventListener('click',()=>{const b=th.closest('table').tBodies[0];
const v=r=>{const c=r.cells[i];return c.dataset.v!==undefined?+c.dataset.v:c.textContent};
const d=th.dataset.d=th.dataset.d==='1'?'-1':'1';[...b.rows].sort((p,q)=>{const a=v(p),c=v(q);
return (a>c?1:a<c?-1:0)*d}).forEach(r=>b.append(r))}));
"""


def page(profile: Profile, title: str, names: Sequence[str]) -> str:
    """The page; `names` label the kernels, in the order of the profile."""
    rows = list(zip(profile.kernels, names, strict=True))
    ordered = sorted(rows, key=lambda row: -row[0].seconds)
    sections = (
        f"<section><h2>Timeline of one inference</h2>{_legend()}{_timeline(profile, rows)}</section>",
        "<section><h2>Kernels by time: the dark part is what the roof allows</h2>"
        f"{_bars(ordered)}</section>",
        f"<section><h2>All kernels</h2>{_table(profile, rows)}</section>",
    )
    head = f"<title>Profile of {_text(title)}</title><style>{_STYLE}</style>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width">{head}</head><body><main>'
        f"<h1>{_text(title)}</h1>{_subtitle(profile)}{_cards(profile)}{''.join(sections)}</main>"
        f'<div id="tip"></div><script>{_SCRIPT}</script></body></html>\n'
    )


def _text(value: str) -> str:
    return html.escape(value, quote=True)


def _subtitle(profile: Profile) -> str:
    roof = profile.roof
    text = (
        f"{roof.cpu}, {roof.threads} thread{'s' * (roof.threads > 1)} · measured roof: {roof.gflops:.0f} GFLOP/s, "
        f"reads L2 {roof.l2:.0f}, L3 {roof.l3:.0f}, memory {roof.memory:.0f} GB/s · medians of {profile.runs} runs"
    )
    return f'<p class="sub">{_text(text)}</p>'


def _cards(profile: Profile) -> str:
    flops, direct = (sum(getattr(k, name) for k in profile.kernels) for name in ("flops", "direct"))
    saved = f" ({direct / 1e9:.2f} the direct way)" if direct > 1.01 * flops else ""
    cards = (
        (f"{1e3 * profile.in_kernels:.2f} ms", f"in kernels; a whole inference {1e3 * profile.seconds:.2f} ms"),
        (f"{percent_of_roof(profile):.0f} %", f"of the roof, which is {1e3 * profile.least:.2f} ms"),
        (f"{flops / (profile.in_kernels or 1.0) / 1e9:.0f} GFLOP/s", f"{flops / 1e9:.2f} GFLOP{saved}"),
        (str(len(profile.kernels)), "kernels"),
    )
    inside = "".join(f'<div class="card"><b>{_text(a)}</b><span>{_text(b)}</span></div>' for a, b in cards)
    return f'<div class="cards">{inside}</div>'


def _legend() -> str:
    items = "".join(f'<span><i style="background:{color}"></i>{name}</span>' for _, name, color in CLASSES)
    return f'<div class="legend">{items}</div>'


def _color(kernel: KernelProfile) -> str:
    told = kernel.algorithm.lower()
    return next(color for word, _, color in CLASSES if word in told)


def _hover(kernel: KernelProfile, name: str) -> str:
    head = (
        f"{name}  (#{kernel.index}, gives {kernel.shape})\n{1e3 * kernel.seconds:.4f} ms · {kernel.gflops:.1f} GFLOP/s"
        f" · {kernel.gbytes:.1f} GB/s · {kernel.percent:.0f} % of the roof"
    )
    return f"<title>{_text(chr(10).join([head, *kernel.reasons()]))}</title>"


def _timeline(profile: Profile, rows: Sequence[tuple[KernelProfile, str]]) -> str:
    total = profile.in_kernels or 1.0
    scale = (WIDTH - 2) / total
    parts = []
    for kernel, name in rows:
        x, width = 1 + kernel.start * scale, max(0.6, kernel.seconds * scale - 0.6)
        label = ""
        if width > 7.2 * len(name) * 0.9 + 8:
            label = f'<text x="{x + 5:.1f}" y="36" style="fill:#fff">{_text(name)}</text>'
        parts.append(
            f'<g class="k">{_hover(kernel, name)}<rect class="body" x="{x:.2f}" y="8" width="{width:.2f}" height="46" '
            f'rx="2" fill="{_color(kernel)}"/>{label}</g>'
        )
    ticks = "".join(
        f'<line x1="{1 + t / 1e3 * scale:.1f}" x2="{1 + t / 1e3 * scale:.1f}" y1="56" y2="62" stroke="#9aa3ae"/>'
        f'<text class="soft" x="{1 + t / 1e3 * scale:.1f}" y="76" text-anchor="{anchor}">{t:g} ms</text>'
        for t, anchor in _ticks(1e3 * total)
    )
    return f'<svg viewBox="0 0 {WIDTH} {TIMELINE + 18}" role="img">{"".join(parts)}{ticks}</svg>'


def _ticks(milliseconds: float) -> list[tuple[float, str]]:
    """Round times along the axis, and how their labels are set."""
    raw = milliseconds / 8
    unit: float = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw)
    last = int(0.97 * milliseconds / step)
    return [(round(step * i, 10), "start" if i == 0 else "middle") for i in range(last + 1)]


def _bars(rows: Sequence[tuple[KernelProfile, str]]) -> str:
    longest = max((k.seconds for k, _ in rows), default=1.0)
    room = WIDTH - LABEL - 190
    parts = []
    for line, (kernel, name) in enumerate(rows):
        y, width = line * BAR, room * kernel.seconds / longest
        roof = min(width, room * kernel.least / longest)
        color = _color(kernel)
        text = f"{1e3 * kernel.seconds:.3f} ms · {kernel.percent:.0f} %"
        shown = name if len(name) <= 44 else name[:43] + "…"
        parts.append(
            f'<g class="k">{_hover(kernel, name)}<rect x="0" y="{y}" width="{WIDTH}" height="{BAR}" fill="#fff0"/>'
            f'<text x="{LABEL - 8}" y="{y + 14}" text-anchor="end">{_text(shown)}</text>'
            f'<rect class="body" x="{LABEL}" y="{y + 3}" width="{max(1.0, width):.1f}" height="14" rx="2" '
            f'fill="{color}" fill-opacity="0.35"/>'
            f'<rect x="{LABEL}" y="{y + 3}" width="{max(0.5, roof):.1f}" height="14" rx="2" fill="{color}"/>'
            f'<text class="soft" x="{LABEL + width + 8:.1f}" y="{y + 14}">{text}</text></g>'
        )
    return f'<svg viewBox="0 0 {WIDTH} {BAR * len(rows) + 4}" role="img">{"".join(parts)}</svg>'


def _table(profile: Profile, rows: Sequence[tuple[KernelProfile, str]]) -> str:
    total = profile.in_kernels or 1.0
    heads = ("#", "kernel", "output", "ms", "share", "GFLOP/s", "GB/s", "% roof", "bound", "algorithm, tile, reasons")
    numbers = {"#", "ms", "share", "GFLOP/s", "GB/s", "% roof"}
    head = "".join(f'<th{" class=n" if h in numbers else ""}>{h}</th>' for h in heads)
    lines = []
    for k, name in rows:
        figures = (1e3 * k.seconds, 100 * k.seconds / total, k.gflops, k.gbytes, k.percent)
        shown = (f"{figures[0]:.3f}", f"{figures[1]:.1f} %", f"{k.gflops:.1f}", f"{k.gbytes:.1f}", f"{k.percent:.0f}")
        cells = "".join(f'<td class="n" data-v="{v:.6g}">{t}</td>' for v, t in zip(figures, shown, strict=True))
        choice, *reasons = map(_text, k.reasons())
        lines.append(
            f'<tr><td class="n" data-v="{k.index}">{k.index}</td><td>{_text(name)}</td><td>{_text(k.shape)}</td>{cells}'
            f'<td>{_text(k.bound)}</td><td class="w">{choice}<small>{"<br>".join(reasons)}</small></td></tr>'
        )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
