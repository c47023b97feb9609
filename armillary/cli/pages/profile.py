"""A profile as one HTML page: figures, a timeline of the threads, a bar chart, a table; no other file is needed.

In: a `Profile` and a title. Out: the page's text. Invariant: everything from the model is escaped; without scripts the
page still shows all of it (hover texts are titles too). Bars have two parts: what the roof allows, and the rest.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from armillary.cli.pages.timeline import SCRIPT, STYLE, timeline
from armillary.driver.profile import KernelProfile, Profile, percent_of_roof

CLASSES = (
    ("winograd", "Winograd convolution", "#2f6db3"),
    ("direct", "direct convolution", "#2b8074"),
    ("fourier", "convolution by Fourier transforms", "#5f7b14"),
    ("depthwise", "depthwise convolution", "#7a5aa6"),
    ("product", "matrix product", "#b0621a"),
    ("attention", "attention", "#b3476b"),
    ("", "other", "#6b727d"),
)
DIVISION = ("#2b8074", "#d8a13a", "#b3476b", "#7a5aa6", "#6b727d")  # colours of Profile.division
WIDTH, BAR, LABEL, LETTERS = 1080, 20, 300, 42

PAGE_STYLE = """
:root{--ink:#1d2430;--soft:#5b6573;--line:#e3e7ec;--paper:#fff;--page:#f6f7f9;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa7b4;--line:#30363d;--paper:#161b22;--page:#0d1117}}
@media(max-width:700px){section svg{min-width:760px}}
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1320px;margin:0 auto;padding:28px 20px 60px}h1{font-size:24px;margin:0 0 2px}
h2{font-size:16px;margin:0 0 10px}p.sub{color:var(--soft);margin:0 0 20px}
section{background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:18px 20px;margin:0 0 18px;
overflow-x:auto}.cards{display:flex;gap:12px;flex-wrap:wrap;margin:0 0 18px}
.card{background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:12px 18px;flex:1 1 150px}
.card b{display:block;font-size:22px;font-variant-numeric:tabular-nums}.card span{color:var(--soft);font-size:13px}
svg{display:block;width:100%;height:auto;font:12px system-ui,sans-serif}svg text{fill:var(--ink)}
svg .soft{fill:var(--soft)}.k:hover .body{stroke:var(--ink);stroke-width:1.5}
.division{display:flex;height:22px;margin:0 0 10px;border-radius:4px;overflow:hidden}.division .k{height:100%}
.legend{display:flex;gap:16px;flex-wrap:wrap;color:var(--soft);font-size:13px;margin:0 0 10px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px;vertical-align:-1px}
table{border-collapse:collapse;width:100%;font-size:13px}th,td{padding:5px 8px;border-bottom:1px solid var(--line);
text-align:left;white-space:nowrap}th{color:var(--soft);font-weight:600;cursor:pointer}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
td{vertical-align:top}td.w{white-space:normal;min-width:400px}
td.name{white-space:normal;overflow-wrap:anywhere;min-width:160px}
td.w small{display:block;color:var(--soft);font-size:12px;line-height:1.4}
#tip{position:fixed;display:none;max-width:520px;background:#1d2430;color:#fff;padding:9px 12px;border-radius:8px;
font-size:13px;line-height:1.45;pointer-events:none;white-space:pre-line;z-index:9;box-shadow:0 4px 18px #0003}
"""

PAGE_SCRIPT = """
const tip=document.getElementById('tip');
document.querySelectorAll('.k').forEach(g=>{const t=g.querySelector('title'),s=t?t.textContent:g.title;
if(t)t.remove();else g.removeAttribute('title');
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
    labels = {kernel.index: name for kernel, name in rows}
    lanes = timeline(profile, labels, {kernel.index: _color(kernel) for kernel in profile.kernels})
    sections = (
        f"<section><h2>Timeline of the fastest run</h2>{_legend()}{lanes}</section>",
        f"<section><h2>Where the threads' time goes</h2>{_division(profile)}</section>",
        f"<section><h2>Kernels by time: the dark part is what the roof allows</h2>{_bars(ordered)}</section>",
        f"<section><h2>All kernels</h2>{_table(profile, rows)}</section>",
    )
    head = f"<title>Profile of {escaped(title)}</title><style>{PAGE_STYLE}{STYLE}</style>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width">{head}</head><body><main>'
        f"<h1>{escaped(title)}</h1>{_subtitle(profile)}{_cards(profile)}{''.join(sections)}</main>"
        f'<div id="tip"></div><script>{PAGE_SCRIPT}{SCRIPT}</script></body></html>\n'
    )


def tail(name: str, letters: int) -> str:
    """The last letters of a long name: the first ones are the same for a whole block of a model."""
    return name if len(name) <= letters else f"…{name[1 - letters :]}"


def escaped(value: str) -> str:
    """Text as it stands in a page."""
    return html.escape(value, quote=True)


def _subtitle(profile: Profile) -> str:
    roof = profile.roof
    text = (
        f"{roof.cpu}, {roof.threads} thread{'s' * (roof.threads > 1)} · measured roof: {roof.gflops:.0f} GFLOP/s, "
        f"reads L1 {roof.l1:.0f}, L2 {roof.l2:.0f}, L3 {roof.l3:.0f}, memory {roof.memory:.0f} GB/s · "
        f"medians of {profile.runs} runs"
    )
    return f'<p class="sub">{escaped(text)}</p>'


def _cards(profile: Profile) -> str:
    flops, direct = (sum(getattr(k, name) for k in profile.kernels) for name in ("flops", "direct"))
    saved = f" ({direct / 1e9:.2f} the direct way)" if direct > 1.01 * flops else ""
    cards = (
        (f"{1e3 * profile.in_kernels:.2f} ms", f"in kernels; a whole inference {1e3 * profile.seconds:.2f} ms"),
        (f"{percent_of_roof(profile):.0f} %", f"of the roof, which is {1e3 * profile.least:.2f} ms"),
        (f"{flops / (profile.in_kernels or 1.0) / 1e9:.0f} GFLOP/s", f"{flops / 1e9:.2f} GFLOP{saved}"),
        (str(len(profile.kernels)), "kernels"),
    )
    inside = "".join(f'<div class="card"><b>{escaped(a)}</b><span>{escaped(b)}</span></div>' for a, b in cards)
    return f'<div class="cards">{inside}</div>'


def _division(profile: Profile) -> str:
    """One bar for a whole inference, and its parts in words."""
    parts = [(name, max(0.0, seconds)) for name, seconds in profile.division()]
    total = sum(seconds for _, seconds in parts) or 1.0
    bar = "".join(
        f'<div class="k" title="{name}: {1e3 * seconds:.4f} ms" style="width:{100 * seconds / total:.3f}%;'
        f'background:{color}"></div>'
        for (name, seconds), color in zip(parts, DIVISION, strict=True)
    )
    message = "".join(
        f'<span><i style="background:{color}"></i>{name} {1e3 * seconds:.3f} ms, {100 * seconds / total:.1f} %</span>'
        for (name, seconds), color in zip(parts, DIVISION, strict=True)
    )
    return f'<div class="division">{bar}</div><div class="legend">{message}</div>'


def _legend() -> str:
    items = "".join(f'<span><i style="background:{color}"></i>{name}</span>' for _, name, color in CLASSES)
    return f'<div class="legend">{items}<span><i class="i-wait"></i>waiting</span></div>'


def _color(kernel: KernelProfile) -> str:
    message = kernel.algorithm.lower()
    return next(color for word, _, color in CLASSES if word in message)


def _hover(kernel: KernelProfile, name: str) -> str:
    head = (
        f"{name}  (#{kernel.index}, gives {kernel.shape})\n{1e3 * kernel.seconds:.4f} ms · {kernel.gflops:.1f} GFLOP/s"
        f" · {kernel.gbytes:.1f} GB/s · {kernel.percent:.0f} % of the roof"
    )
    return f"<title>{escaped(chr(10).join([head, *kernel.reasons()]))}</title>"


def _bars(rows: Sequence[tuple[KernelProfile, str]]) -> str:
    longest = max((k.seconds for k, _ in rows), default=1.0)
    room = WIDTH - LABEL - 190
    parts = []
    for line, (kernel, name) in enumerate(rows):
        y, width = line * BAR, room * kernel.seconds / longest
        roof = min(width, room * kernel.least / longest)
        color = _color(kernel)
        text = f"{1e3 * kernel.seconds:.3f} ms · {kernel.percent:.0f} %"
        shown = tail(name, LETTERS)
        parts.append(
            f'<g class="k">{_hover(kernel, name)}<rect x="0" y="{y}" width="{WIDTH}" height="{BAR}" fill="#fff0"/>'
            f'<text x="{LABEL - 8}" y="{y + 14}" text-anchor="end">{escaped(shown)}</text>'
            f'<rect class="body" x="{LABEL}" y="{y + 3}" width="{max(1.0, width):.1f}" height="14" rx="2" '
            f'fill="{color}" fill-opacity="0.35"/>'
            f'<rect x="{LABEL}" y="{y + 3}" width="{max(0.5, roof):.1f}" height="14" rx="2" fill="{color}"/>'
            f'<text class="soft" x="{LABEL + width + 8:.1f}" y="{y + 14}">{text}</text></g>'
        )
    return f'<svg viewBox="0 0 {WIDTH} {BAR * len(rows) + 4}" role="img">{"".join(parts)}</svg>'


def _table(profile: Profile, rows: Sequence[tuple[KernelProfile, str]]) -> str:
    total = profile.in_kernels or 1.0
    numbers = ("ms", "share", "waits", "GFLOP/s", "GB/s", "% roof")
    heads = ("#", "kernel", "output", *numbers, "bound", "algorithm, tile, reasons")
    head = "".join(f"<th{' class=n' if h in ('#', *numbers) else ''}>{h}</th>" for h in heads)
    lines = []
    for k, name in rows:
        figures = (
            (1e3 * k.seconds, ".3f", ""),
            (100 * k.seconds / total, ".1f", " %"),
            (k.waiting, ".0f", " %"),
            (k.gflops, ".1f", ""),
            (k.gbytes, ".1f", ""),
            (k.percent, ".0f", ""),
        )
        cells = "".join(f'<td class="n" data-v="{v:.6g}">{v:{form}}{unit}</td>' for v, form, unit in figures)
        choice, *reasons = map(escaped, k.reasons())
        message = f'<td class="w">{choice}<small>{"<br>".join(reasons)}</small></td>'
        lines.append(
            f'<tr><td class="n" data-v="{k.index}">{k.index}</td><td class="name">{escaped(name)}</td>'
            f"<td>{escaped(k.shape)}</td>{cells}<td>{escaped(k.bound)}</td>{message}</tr>"
        )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
