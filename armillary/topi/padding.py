"""Paddings of windows as old schedules write them: numbers, pairs, or "SAME" and "VALID".

In: a padding and the size of the (dilated) window. Out: what lies before and after along each axis. Invariant: an odd
total has its larger half before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from armillary.errors import TypeMismatch

Padding = Any  # Any: an int, a list of ints, "SAME" or "VALID"


def get_pad_tuple_generic(padding: Padding, kernel: Sequence[int]) -> tuple[int, ...]:
    """All befores, then all afters."""
    rank = len(kernel)
    if isinstance(padding, str):
        if padding not in ("SAME", "VALID"):
            raise TypeMismatch(f"the padding {padding!r} is unknown", hint="'SAME', 'VALID', or numbers")
        totals = [size - 1 if padding == "SAME" else 0 for size in kernel]
    elif isinstance(padding, int):
        totals = [2 * padding] * rank
    elif len(padding) == 2 * rank:
        return tuple(int(p) for p in padding)
    elif len(padding) in (1, rank):
        totals = [2 * int(p) for p in (tuple(padding) * rank if len(padding) == 1 else padding)]
    else:
        wanted = f"1, {rank} or {2 * rank} numbers"
        raise TypeMismatch(f"the padding {padding!r} of a window over {rank} axes", hint=wanted)
    before = [(total + 1) // 2 for total in totals]
    return (*before, *(total - low for total, low in zip(totals, before, strict=True)))


def get_pad_tuple(padding: Padding, kernel: Sequence[int]) -> tuple[int, ...]:
    """(top, left, bottom, right)."""
    return get_pad_tuple_generic(padding, kernel)


def get_pad_tuple1d(padding: Padding, kernel: int | Iterable[int]) -> tuple[int, ...]:  # Any: an int or a tuple of one
    """The padding of a row as (left, right), from a number, a pair or a word."""
    return get_pad_tuple_generic(padding, (kernel,) if isinstance(kernel, int) else tuple(kernel))


def get_pad_tuple3d(padding: Padding, kernel: Sequence[int]) -> tuple[int, ...]:
    """(front, top, left, back, bottom, right)."""
    return get_pad_tuple_generic(padding, kernel)
