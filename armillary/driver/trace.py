"""What the threads do in a run: computing, waiting for one another, forking and joining; and a timeline of it.

In: the spans of `GraphExecutor.trace`: one per phase of a kernel as its caller sees it, and one per window of a thread.
Out: a `Share` per node, and spans joined for drawing. Invariant: of each phase, computing + uneven + overhead is its
time, where `computing` is the threads' work spread evenly, `uneven` is their mean wait at the end for the slowest one
(in a phase that is not parallel: for the only one), and `overhead` is all else: forking, waking, joining, the pauses
between windows. Used by driver/profile.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from armillary.runtime.executor import GraphExecutor
from armillary.runtime.node_times import Span

WHOLE = -1  # the "thread" of a phase as its caller sees it
FINEST = 2000  # pauses below this part of the run are not drawn


@dataclass(frozen=True, slots=True)
class Share:
    """Seconds of a kernel in one run, all its phases and its `calls` together."""

    seconds: float = 0.0
    computing: float = 0.0
    uneven: float = 0.0
    calls: int = 0

    @property
    def overhead(self) -> float:
        """Seconds in which threads neither compute nor wait for a slower one."""
        return self.seconds - self.computing - self.uneven

    def plus(self, other: Share) -> Share:
        """The shares of two steps added up."""
        return Share(
            self.seconds + other.seconds,
            self.computing + other.computing,
            self.uneven + other.uneven,
            self.calls + other.calls,
        )


def shares(spans: Iterable[Span], threads: int) -> dict[int, Share]:
    """Each node's share, from spans in the order of their beginnings."""
    result: dict[int, Share] = {}
    for phases, windows in _steps(spans):
        for phase, share in zip(phases, _shares(phases, windows, threads), strict=True):
            result[phase.node] = result.get(phase.node, Share()).plus(share)
    return result


def _steps(spans: Iterable[Span]) -> Iterator[tuple[list[Span], list[Span]]]:
    """The phases that ran side by side, mostly one, with their windows: steps run one after another."""
    phases, windows = list[Span](), list[Span]()
    for span in spans:
        if span.thread != WHOLE:
            windows.append(span)
        elif phases and phases[-1].rest:
            phases.append(span)
        else:
            if phases:
                yield phases, windows
            phases, windows = [span], []
    if phases:
        yield phases, windows


def _shares(phases: Sequence[Span], windows: Sequence[Span], threads: int) -> list[Share]:
    """Of a step's phases: each waits for others as long as its share of the work says."""
    if not windows:  # no iterations
        return [Share(p.end - p.begin, calls=int(p.phase == 0)) for p in phases]
    last: dict[int, float] = {}
    work: dict[tuple[int, int], float] = {}
    for span in windows:
        last[span.thread] = max(span.end, last.get(span.thread, 0.0))
        work[span.node, span.phase] = work.get((span.node, span.phase), 0.0) + span.end - span.begin
    done, total = max(last.values()), sum(work.values())
    waiting = sum(done - end for end in last.values())
    waiting += (threads - len(last)) * (done - min(span.begin for span in windows))
    parts = [work.get((p.node, p.phase), 0.0) for p in phases]
    return [
        Share(p.end - p.begin, part / threads, waiting * part / total / threads if total else 0.0, int(p.phase == 0))
        for p, part in zip(phases, parts, strict=True)
    ]


def joined(spans: Iterable[Span], seconds: float) -> tuple[Span, ...]:
    """The spans with those of one thread and node made one where the pause between them is too short to be seen."""
    latest: dict[int, Span] = {}
    all_spans: list[Span] = []
    for span in spans:
        before = latest.get(span.thread)
        if before is not None and before.node == span.node and span.begin - before.end <= seconds / FINEST:
            latest[span.thread] = Span(before.begin, max(before.end, span.end), span.node, before.phase, span.thread)
            continue
        if before is not None:
            all_spans.append(before)
        latest[span.thread] = span
    return tuple(sorted([*all_spans, *latest.values()], key=lambda span: (span.thread, span.begin)))


def chrome_trace(executor: GraphExecutor) -> dict[str, object]:
    """One run as the trace events of Chrome's and Perfetto's viewers: a row for each thread, one for the kernels."""
    _, spans = executor.trace()
    names = {WHOLE: "kernels"} | {span.thread: f"thread {span.thread}" for span in spans if span.thread != WHOLE}
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": thread + 1, "args": {"name": name}}
        for thread, name in sorted(names.items())
    ]
    for span in spans:
        name, function = executor.node(span.node)
        row: dict[str, object] = {"ph": "X", "pid": 0, "tid": span.thread + 1, "name": function or name}
        row |= {"ts": 1e6 * span.begin, "dur": 1e6 * (span.end - span.begin)}
        events.append(row | {"args": {"node": name, "phase": span.phase}})
    return {"traceEvents": events, "displayTimeUnit": "ns"}
