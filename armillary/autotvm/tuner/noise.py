"""Whether one of two programs is faster than the other beyond what repeating tells.

In: times of both, in rounds of turns. Out: yes or no. Invariant: nothing is assumed of how times are spread. Both
programs of a round meet the same state of the machine, so of two that are alike either one is first in half of the
rounds: a sign test (J. Arbuthnot, 1710). What a program's place in memory does to it is the same in all rounds; that is
told by a second copy of the program, whose times differ from the first one's by that alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

ONE_IN = 1000  # pairs of programs that are alike, one of them counts as faster at most


@lru_cache(maxsize=1024)
def wins_needed(rounds: int) -> int:
    """Of so many rounds, the least number to be won that chance explains once in a thousand times at most; more than
    there are if even all of them are too few.

        wins_needed(9)  ->  10
        wins_needed(10)  ->  10
        wins_needed(40)  ->  30
    """
    tail, cases = 0, 1  # ways to win so many rounds or more; to win just so many
    for wins in range(rounds, -1, -1):
        tail += cases
        if ONE_IN * tail > 2**rounds:
            return wins + 1
        cases = cases * wins // (rounds - wins + 1)
    raise AssertionError("all ways together are more")


def is_faster(times: Sequence[float], others: Sequence[float]) -> bool:
    """Whether `times` are below `others`, round by round, more often than chance does; ties count for nobody."""
    pairs = [(a, b) for a, b in zip(times, others, strict=True) if a != b]
    return sum(a < b for a, b in pairs) >= wins_needed(len(pairs))
