"""What a kernel computes once: integers that the work-item alone decides, or the turn of a loop, stand where it begins.

In: integer expressions on their way to text. Out: names, and the lines that set them. Invariant: a line reads names of
lines before it, at its own place or at one around. Compilers of drivers take as long as text is: an address that is
written out at each of 16 loads is taken apart 16 times before it is found to be one.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.node import post_order
from armillary.tir import expr as E

TERMS = 3  # of a sum that has a name


class Place:
    """The top of a kernel, or of a loop's body: where its lines go, and the names of texts that hold there."""

    def __init__(self, variables: set[E.Var], name: str, line: int, indent: str) -> None:
        self.variables, self.name, self.line, self.indent = variables, name, line, indent
        self.names: dict[str, str] = {}
        self.lines: list[str] = []

    def write(self, lines: list[str]) -> None:
        """Put the lines where they belong."""
        lines[self.line : self.line] = [self.indent + line for line in self.lines]


def place_of(item: E.Expr, places: Sequence[Place]) -> Place | None:
    """The innermost place that decides an integer; None where nothing around does."""
    if item.dtype != "int32":
        return None
    level = -1
    for part in post_order(item):
        if isinstance(part, E.BufferLoad | E.Call):
            return None
        if isinstance(part, E.Var):
            own = next((n for n in reversed(range(len(places))) if part in places[n].variables), None)
            if own is None:
                return None
            level = max(level, own)
    return places[level] if level >= 0 else None


def is_open_sum(item: E.Expr) -> bool:
    """Whether the sums that an integer is made of need no names of their own."""
    return isinstance(item, E.Add | E.Sub) and not isinstance(item.b, E.IntImm)


def is_long_sum(item: E.Expr) -> bool:
    """Whether a sum has so many terms that its text is worth a name; numbers that are added last have none."""
    return is_open_sum(item) and _terms(item) >= TERMS


def _terms(item: E.Expr) -> int:
    if isinstance(item, E.Add | E.Sub):
        return _terms(item.a) + _terms(item.b)
    return 0 if isinstance(item, E.IntImm) else 1
