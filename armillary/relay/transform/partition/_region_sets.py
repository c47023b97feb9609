"""`relay.analysis.AnnotatedRegionSet`: the regions between compiler_begin and compiler_end, as sets of nodes.

In: an annotated function. Out: its regions: which nodes, what they read (`args`, the begins) and give (`rets`, the
ends), for which library. Invariant: the regions are those that PartitionGraph sees (_regions.py); nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from armillary.base.record import record
from armillary.relay.expr import Expr, Function
from armillary.relay.transform.partition._regions import BEGIN, END, Regions, compiler_of
from armillary.relay.walk import post_order


@record
class AnnotatedRegion:
    """A region: its expressions, and what enters and leaves it."""

    target: str
    nodes: tuple[Expr, ...]

    @property
    def args(self) -> list[Expr]:
        """The nodes through which values come in."""
        return [n for n in self.nodes if compiler_of(n, BEGIN)]

    @property
    def rets(self) -> list[Expr]:
        """The nodes through which values go out."""
        return [n for n in self.nodes if compiler_of(n, END)]


class AnnotatedRegionSet:
    """The regions of a function, in order."""

    def __init__(self, func: Function, region_begin_op: Expr | None = None, region_end_op: Expr | None = None) -> None:
        del region_begin_op, region_end_op  # there is one pair of marks
        order = post_order(func.body)
        regions = Regions(order)
        members: dict[int, list[Expr]] = {}
        for expr in order:
            members.setdefault(regions.of(expr), []).append(expr)
        self._regions = [AnnotatedRegion(n, tuple(calls)) for r, calls in members.items() if (n := regions.library[r])]

    def __len__(self) -> int:
        return len(self._regions)

    def __iter__(self) -> Iterator[AnnotatedRegion]:
        return iter(self._regions)

    def get_region(self, expr: Expr) -> AnnotatedRegion | None:
        """The region that a node is in."""
        return next((r for r in self._regions if any(n is expr for n in r.nodes)), None)
