"""The timeline of a profile's page: when each thread computed in the fastest run, and when it waited.

In: a `Profile`, and the name and colour of each kernel by its node. Out: HTML with one lane for the kernels as their
caller sees them and one per thread (the first LANES), widths in percent of the run. Invariant: what is not coloured in
a thread's lane is waiting: for work, for another thread, or between kernels; everything from the model is escaped.
The page's script adds the zoom; without it the whole run is shown.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

from armillary.driver.profile import Profile
from armillary.driver.trace import WHOLE
from armillary.runtime.node_times import Span

LANES = 16  # threads drawn
ZOOMS = (1, 4, 16, 64)
MARKS = 8  # labels along the axis, about

STYLE = """
.time{display:flex;gap:12px}.names{flex:none;font-size:12px;color:var(--soft);white-space:nowrap;text-align:right}
.names div{height:26px;line-height:26px;margin:0 0 4px}.scroll{flex:1;overflow-x:auto;min-width:0}
.lanes{position:relative;width:calc(100%*var(--zoom,1));padding:0 0 22px}
.lane{position:relative;height:26px;margin:0 0 4px;
background:repeating-linear-gradient(135deg,#eceff3 0 4px,#fafbfc 4px 8px)}
.lane .k{position:absolute;top:0;bottom:0;min-width:.5px;overflow:hidden;box-shadow:inset -1px 0 #fff9}
.lane .k:hover{filter:brightness(.8)}
.lane .k span{color:#fff;font-size:11px;line-height:26px;padding:0 5px;white-space:nowrap}
.tick{position:absolute;bottom:0;padding:0 0 0 3px;border-left:1px solid #9aa3ae;color:var(--soft);font-size:11px;
line-height:16px;white-space:nowrap}
.zoom button{font:inherit;font-size:12px;padding:1px 9px;margin:0 4px 0 0;border:1px solid var(--line);
border-radius:6px;background:var(--paper);color:var(--soft);cursor:pointer}
.zoom button.on{background:var(--ink);color:var(--paper)}
.zoom{margin:0 0 10px}.i-wait{background:repeating-linear-gradient(135deg,#dfe4ea 0 3px,#fafbfc 3px 6px)}
"""

SCRIPT = """
const lanes=document.querySelector('.lanes'),zoom=document.querySelector('.zoom');
const box=lanes.parentNode,run=+lanes.dataset.ms;
zoom.hidden=false;
const marks=k=>{lanes.querySelectorAll('.tick').forEach(t=>t.remove());
const count=Math.max(1,Math.min(8,box.clientWidth/60|0)),raw=run/count/k;
const unit=10**Math.floor(Math.log10(raw)),step=[1,2,5,10].map(m=>unit*m).find(s=>s>=raw);
for(let i=0;i*step<run*(1-.04/k);i++){const t=document.createElement('span');t.className='tick';
t.style.left=100*i*step/run+'%';t.textContent=+(i*step).toPrecision(6)+' ms';lanes.append(t)}};
zoom.querySelectorAll('button').forEach(b=>b.addEventListener('click',()=>{const k=+b.dataset.k,
old=lanes.clientWidth,middle=(box.scrollLeft+box.clientWidth/2)/old;
zoom.querySelectorAll('button').forEach(o=>o.classList.toggle('on',o===b));
lanes.style.setProperty('--zoom',k);box.scrollLeft=middle*lanes.clientWidth-box.clientWidth/2;marks(k)}));
marks(1);
"""


def timeline(profile: Profile, names: Mapping[int, str], colors: Mapping[int, str]) -> str:
    """The lanes; `names` and `colors` by node."""
    spans = [span for span in profile.timeline if span.node in names]
    threads = range(min(profile.threads, LANES))
    lanes = {WHOLE: [s for s in spans if s.thread == WHOLE]} | {t: [s for s in spans if s.thread == t] for t in threads}
    total = profile.traced or 1.0
    labels = "".join(f"<div>{_label(thread, row, total)}</div>" for thread, row in lanes.items())
    drawn = "".join(_lane(row, total, names, colors) for row in lanes.values())
    buttons = "".join(f'<button data-k="{k}"{" class=on" * (k == 1)}>{k}×</button>' for k in ZOOMS)
    more = f'<p class="sub">The first {LANES} of {profile.threads} threads.</p>' if profile.threads > LANES else ""
    return (
        f'<div class="zoom" hidden>{buttons}</div><div class="time"><div class="names">{labels}</div>'
        f'<div class="scroll"><div class="lanes" data-ms="{1e3 * total:.6g}">{drawn}{_ticks(1e3 * total)}'
        f"</div></div></div>{more}"
    )


def _label(thread: int, spans: Sequence[Span], total: float) -> str:
    share = 100 * sum(span.end - span.begin for span in spans) / total
    return f"in kernels {share:.0f} %" if thread == WHOLE else f"thread {thread} computes {share:.0f} %"


def _lane(spans: Sequence[Span], total: float, names: Mapping[int, str], colors: Mapping[int, str]) -> str:
    parts = []
    for span in spans:
        name, length = html.escape(names[span.node], quote=True), span.end - span.begin
        where = "" if span.thread == WHOLE else f", thread {span.thread}"
        hover = f"{name} (#{span.node}{where})\n{1e3 * length:.4f} ms from {1e3 * span.begin:.4f} ms on"
        label = f"<span>{name}</span>" if length > 0.02 * total else ""
        parts.append(
            f'<div class="k" title="{hover}" style="left:{100 * span.begin / total:.4f}%;'
            f'width:{100 * length / total:.4f}%;background:{colors[span.node]}">{label}</div>'
        )
    return f'<div class="lane">{"".join(parts)}</div>'


def _ticks(milliseconds: float) -> str:
    """Round times along the axis."""
    raw = milliseconds / MARKS
    unit: float = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw)
    times = [round(step * i, 10) for i in range(int(0.96 * milliseconds / step) + 1)]
    return "".join(f'<span class="tick" style="left:{100 * t / milliseconds:.3f}%">{t:g} ms</span>' for t in times)
