"""Whether records pay, kernel by kernel: a network with all records and without any, every kernel timed in turns.

In: a network, the best record of each task. Out: the records whose kernels are faster where the network calls them.
Invariant: a record is kept only if no compiled function that it changed takes longer than what stands there without it,
changes of layout before and behind included, in a measurement that was made after the last record was dropped; both
networks meet the same state of the machine, since they run in turns. Only for executors that time kernels; kernels are
told to tasks by the names that a model gave its nodes, and where it gave none the answer is None: `network_check.py`
then adds records one by one.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.base.dispatch import Workload
from armillary.base.record import record

if TYPE_CHECKING:
    from armillary.autotvm.tuner.network_check import Timed

Pair = tuple[MeasureInput, MeasureResult]
Places = tuple[int, ...]
Names = Mapping[Workload, frozenset[str]]  # of the calls of a task, and of those behind each
SLOWER = 1.01  # times its time without records: a kernel is slower
PAYS = 0.995  # times their time without: kernels of a record that is worth having
ROUNDS = 8  # at least


@record
class Kernel:
    """A call of a compiled function in a run: the name that the model gave it ("" for none) and the function."""

    name: str
    function: str

    @property
    def key(self) -> str:
        """What it is found by in another build of the network."""
        return self.name or self.function.rpartition("_")[0]


@record
class Stretch:
    """Kernels that stand in the same place of two builds, by their positions, and the names of those in both."""

    first: Places
    second: Places
    names: frozenset[str]
    is_changed: bool


def stretches(first: Sequence[Kernel], second: Sequence[Kernel], known: frozenset[str]) -> list[Stretch]:
    """What differs between two builds of a network, each difference with what only one of the builds has around it, and
    with neighbours that are none of the `known` kernels and differ, too."""
    matcher = difflib.SequenceMatcher(None, [k.key for k in first], [k.key for k in second], autojunk=False)
    alike = [(b.a + n, b.b + n) for b in matcher.get_matching_blocks() for n in range(b.size)]
    pairs = [(i, j) for i, j in alike if first[i].name in known or first[i].function == second[j].function]
    found, before = list[Stretch](), (-1, -1)
    for i, j in pairs:
        mine, other = range(before[0] + 1, i + 1), range(before[1] + 1, j + 1)
        is_alone = len(mine) == len(other) == 1
        is_changed = not is_alone or first[i].function != second[j].function
        made = Stretch(tuple(mine), tuple(other), frozenset({first[i].name} & known), is_changed)
        if found and not is_alone and found[-1].is_changed:  # what was put in may belong to the kernel before it
            made = _joined(found.pop(), made)
        found.append(made)
        before = (i, j)
    mine, other = range(before[0] + 1, len(first)), range(before[1] + 1, len(second))
    rest = Stretch(tuple(mine), tuple(other), frozenset(), is_changed=True)
    if rest.first or rest.second:
        found.append(_joined(found.pop(), rest) if found else rest)
    return [stretch for stretch in found if stretch.is_changed]


def _joined(one: Stretch, next_one: Stretch) -> Stretch:
    names = one.names | next_one.names
    return Stretch(one.first + next_one.first, one.second + next_one.second, names, is_changed=True)


@record
class Change:
    """A compiled function in one build and what stands for it in the other, over all places: seconds of a run."""

    names: frozenset[str]
    without: float
    with_it: float


@record
class Found:
    """Of two builds: seconds of a run of each, and what changed."""

    before: float
    after: float
    changes: tuple[Change, ...]


def measured(first: Timed, second: Timed, seconds: float, known: frozenset[str]) -> Found:
    """Both builds in turns for so long; of each kernel the least time counts, as what disturbs it only adds to it.
    `known`: the names of kernels that records are for."""
    assert first.kernels is not None and second.kernels is not None, "executors that time kernels are asked"
    least, rounds, until = [first.kernels(), second.kernels()], 1, time.monotonic() + seconds
    while rounds < ROUNDS or time.monotonic() < until:
        for side in (0, 1) if rounds % 2 else (1, 0):
            measure = (first, second)[side].kernels
            assert measure is not None
            least[side] = list(map(min, least[side], measure()))
        rounds += 1
    groups: dict[tuple[tuple[str, ...], ...], list[Stretch]] = {}
    for stretch in stretches(first.names, second.names, known):
        mine, other = ((first, stretch.first), (second, stretch.second))
        key = tuple(tuple(side.names[at].function for at in places) for side, places in (mine, other))
        groups.setdefault(key, []).append(stretch)
    changes = tuple(_change(rows, least) for rows in groups.values())
    return Found(sum(least[0]), sum(least[1]), changes)


def _change(rows: Sequence[Stretch], least: Sequence[Sequence[float]]) -> Change:
    without, with_it = (
        sum(least[0][i] for s in rows for i in s.first),
        sum(least[1][i] for s in rows for i in s.second),
    )
    return Change(frozenset[str]().union(*(s.names for s in rows)), without, with_it)


def known_names(pairs: Iterable[Pair], names: Names) -> frozenset[str]:
    """What a model calls the kernels of these records."""
    return frozenset[str]().union(*(names.get(pair[0].task.workload, ()) for pair in pairs))


def refused(pairs: Iterable[Pair], found: Found, names: Names) -> list[tuple[Pair, str]]:
    """The records that make one of their kernels slower, or all of them together hardly faster; and why."""
    told = list[tuple[Pair, str]]()
    for pair in pairs:
        mine = [c for c in found.changes if c.names & names.get(pair[0].task.workload, frozenset())]
        slow = max(mine, key=lambda c: c.with_it / c.without, default=None)
        if slow is not None and slow.with_it > SLOWER * slow.without:
            told.append((pair, _said(slow.without, slow.with_it)))
            continue
        without, with_it = (sum(getattr(c, side) for c in mine) for side in ("without", "with_it"))
        if with_it >= PAYS * without:
            told.append((pair, _said(without, with_it)))
    return told


def _said(without: float, with_it: float) -> str:
    return f"end-to-end check: its kernels take {1e6 * with_it:.1f} us of a run with it, {1e6 * without:.1f} us without"
