"""Whether records pay, kernel by kernel: a network with all records and without any, every kernel timed in turns.

In: a network, the best record of each task. Out: the records whose kernels are faster where the network calls them.
Invariant: a record is kept only if no compiled function that it changed takes longer than what stands there without it,
changes of layout before and behind included, and if its gain is beyond the noise (`noise.py`), in two measurements that
were made after the last record was dropped; the networks meet the same state of the machine, since they run in turns,
and a second executor of the network without records among them tells the noise. Only for executors that time kernels;
kernels are told to tasks by the names that a model gave its nodes, and where it gave none the answer is None:
`network_check.py` then adds records one by one.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from armillary.autotvm.measure.measure import MeasureInput, MeasureResult
from armillary.autotvm.tuner.noise import is_faster
from armillary.base.aliases import Array
from armillary.base.dispatch import Workload
from armillary.base.record import record

if TYPE_CHECKING:
    from armillary.autotvm.tuner.network_check import Timed

Pair = tuple[MeasureInput, MeasureResult]
Places = tuple[int, ...]
Names = Mapping[Workload, frozenset[str]]  # of the calls of a task, and of those behind each
SLOWER = 1.01  # times its time without records: a kernel is slower
PAYS = 0.995  # times their time without: kernels of a record that is worth having
NOISES = 1.0  # times what two executors of the same network differ by: a gain is more
ROUNDS = 12  # at least: of fewer than ten, chance may win all
MOST_ROUNDS = 400  # in which 232 wins are beyond chance: more rounds tell no more than new executors do


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
    parts, before = list[Stretch](), (-1, -1)
    for i, j in pairs:
        mine, other = range(before[0] + 1, i + 1), range(before[1] + 1, j + 1)
        is_alone = len(mine) == len(other) == 1
        is_changed = not is_alone or first[i].function != second[j].function
        changed = Stretch(tuple(mine), tuple(other), frozenset({first[i].name} & known), is_changed)
        if parts and not is_alone and parts[-1].is_changed:  # what was put in may belong to the kernel before it
            changed = _joined(parts.pop(), changed)
        parts.append(changed)
        before = (i, j)
    mine, other = range(before[0] + 1, len(first)), range(before[1] + 1, len(second))
    rest = Stretch(tuple(mine), tuple(other), frozenset(), is_changed=True)
    if rest.first or rest.second:
        parts.append(_joined(parts.pop(), rest) if parts else rest)
    return [stretch for stretch in parts if stretch.is_changed]


def _joined(one: Stretch, next_one: Stretch) -> Stretch:
    names = one.names | next_one.names
    return Stretch(one.first + next_one.first, one.second + next_one.second, names, is_changed=True)


@record
class Change:
    """A compiled function in one build and what stands for it in the other, over all places: seconds of a run, the
    least; `again`: in a second executor without records; `rounds`: of the three in each round, in that order."""

    names: frozenset[str]
    without: float
    with_it: float
    again: float
    rounds: tuple[tuple[float, float, float], ...]


@record
class Found:
    """Of two builds: seconds of a run of each, and what changed."""

    before: float
    after: float
    changes: tuple[Change, ...]


def measured(first: Timed, second: Timed, seconds: float, known: frozenset[str], again: Timed | None = None) -> Found:
    """Both builds in turns for so long, or for so many rounds that more would tell nothing; of each kernel the least
    time counts, as what disturbs it only adds to it.
    `known`: the names of kernels that records are for; `again`: another executor of the first build (default: it is
    asked twice)."""
    rows = rows_in_turns((first, again or first, second), seconds)
    changes = changes_between(first.names, second.names, known, rows)
    return Found(float(rows[0].min(axis=0).sum()), float(rows[2].min(axis=0).sum()), changes)


def rows_in_turns(sides: Sequence[Timed], seconds: float) -> list[Array]:
    """Of each executor a row of what its kernels take in each round."""
    times, until = [list[list[float]]() for _ in sides], time.monotonic() + seconds
    while len(times[0]) < ROUNDS or (len(times[0]) < MOST_ROUNDS and time.monotonic() < until):
        turn = len(times[0]) % len(sides)
        for side in (*range(turn, len(sides)), *range(turn)):
            measure = sides[side].kernels
            assert measure is not None, "executors that time kernels are asked"
            times[side].append(measure())
    return [np.array(column) for column in times]


def changes_between(
    first: Sequence[Kernel], second: Sequence[Kernel], known: frozenset[str], rows: Sequence[Array]
) -> tuple[Change, ...]:
    """What differs between two builds, by compiled functions; `rows`: of the first, of it again, and of the second."""
    groups: dict[tuple[tuple[str, ...], ...], list[Stretch]] = {}
    for stretch in stretches(first, second, known):
        mine, other = ((first, stretch.first), (second, stretch.second))
        key = tuple(tuple(kernels[at].function for at in places) for kernels, places in (mine, other))
        groups.setdefault(key, []).append(stretch)
    return tuple(_change(group, rows) for group in groups.values())


def _change(group: Sequence[Stretch], rows: Sequence[Array]) -> Change:
    first, second = [at for s in group for at in s.first], [at for s in group for at in s.second]
    parts = [rows[0][:, first], rows[1][:, first], rows[2][:, second]]
    without, again, with_it = (float(part.min(axis=0).sum()) for part in parts)
    names, sums = frozenset[str]().union(*(s.names for s in group)), [part.sum(axis=1).tolist() for part in parts]
    return Change(names, without, with_it, again, tuple(zip(*sums, strict=True)))


def known_names(pairs: Iterable[Pair], names: Names) -> frozenset[str]:
    """What a model calls the kernels of these records."""
    return frozenset[str]().union(*(names.get(pair[0].task.workload, ()) for pair in pairs))


def refused(pairs: Iterable[Pair], findings: Found, names: Names) -> list[tuple[Pair, str]]:
    """The records that make one of their kernels slower, or all of them together not faster beyond the noise; and
    why."""
    message = list[tuple[Pair, str]]()
    for pair in pairs:
        mine = [c for c in findings.changes if c.names & names.get(pair[0].task.workload, frozenset())]
        slow = next((c for c in mine if _is_slower(c)), None)
        if slow is not None:
            message.append((pair, _gain_text(slow.without, slow.with_it)))
            continue
        without, with_it, again = (sum(getattr(c, side) for c in mine) for side in ("without", "with_it", "again"))
        noise = NOISES * abs(without - again)
        if with_it >= min(PAYS * without, min(without, again) - noise):
            message.append((pair, _gain_text(without, with_it, noise)))
        elif not all(_wins(mine, side) for side in (0, 1)):
            message.append((pair, f"{_gain_text(without, with_it)}, but too few rounds say so"))
    return message


def is_promising(pair: Pair, findings: Found, names: Names) -> bool:
    """Whether all kernels of a record together are faster than in both executors without it, be it within the noise,
    and none of them alone is slower: other executors may tell."""
    mine = [c for c in findings.changes if c.names & names.get(pair[0].task.workload, frozenset())]
    without, with_it, again = (sum(getattr(c, side) for c in mine) for side in ("without", "with_it", "again"))
    return with_it < PAYS * min(without, again) and not any(map(_is_slower, mine))


def _is_slower(change: Change) -> bool:
    """By more than is let pass, or by less in nearly all rounds."""
    if change.with_it > SLOWER * change.without:
        return True
    first, again, with_it = ([row[side] for row in change.rounds] for side in range(3))
    is_more = change.with_it > max(change.without, change.again)
    return is_more and is_faster(first, with_it) and is_faster(again, with_it)


def _wins(changes: Sequence[Change], side: int) -> bool:
    """Whether all together are faster than one of the executors without records in more rounds than chance gives."""
    totals = [
        [sum(row[at] for row in rows) for rows in zip(*(c.rounds for c in changes), strict=True)] for at in (2, side)
    ]
    return is_faster(*totals)


def _gain_text(without: float, with_it: float, noise: float = 0.0) -> str:
    message = (
        f"end-to-end check: its kernels take {1e6 * with_it:.1f} us of a run with it, {1e6 * without:.1f} us without"
    )
    return f"{message}, at a noise of {1e6 * noise:.1f} us" if noise else message
