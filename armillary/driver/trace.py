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

from armillary.runtime.executor import Span

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
        """Both together."""
        return Share(
            self.seconds + other.seconds, self.computing + other.computing, self.uneven + other.uneven,
            self.calls + other.calls,
        )  # fmt: skip


def shares(spans: Iterable[Span], threads: int) -> dict[int, Share]:
    """Each node's share, from spans in the order of their beginnings."""
    found: dict[int, Share] = {}
    for whole, windows in _phases(spans):
        found[whole.node] = found.get(whole.node, Share()).plus(_share(whole, windows, threads))
    return found


def _phases(spans: Iterable[Span]) -> Iterator[tuple[Span, list[Span]]]:
    """Each phase with its windows: phases run one after another, and a phase begins before its windows."""
    whole, windows = None, list[Span]()
    for span in spans:
        if span.thread != WHOLE:
            windows.append(span)
            continue
        if whole is not None:
            yield whole, windows
        whole, windows = span, []
    if whole is not None:
        yield whole, windows


def _share(whole: Span, windows: Sequence[Span], threads: int) -> Share:
    seconds, calls = whole.end - whole.begin, int(whole.phase == 0)
    if not windows:  # no iterations
        return Share(seconds, calls=calls)
    last: dict[int, float] = {}
    for span in windows:
        last[span.thread] = max(span.end, last.get(span.thread, 0.0))
    done = max(last.values())
    waiting = sum(done - end for end in last.values())
    waiting += (threads - len(last)) * (done - min(span.begin for span in windows))
    computing = sum(span.end - span.begin for span in windows)
    return Share(seconds, computing / threads, waiting / threads, calls)


def joined(spans: Iterable[Span], seconds: float) -> tuple[Span, ...]:
    """The spans with those of one thread and node made one where the pause between them is too short to be seen."""
    latest: dict[int, Span] = {}
    found: list[Span] = []
    for span in spans:
        before = latest.get(span.thread)
        if before is not None and before.node == span.node and span.begin - before.end <= seconds / FINEST:
            latest[span.thread] = Span(before.begin, max(before.end, span.end), span.node, before.phase, span.thread)
            continue
        if before is not None:
            found.append(before)
        latest[span.thread] = span
    return tuple(sorted([*found, *latest.values()], key=lambda span: (span.thread, span.begin)))
