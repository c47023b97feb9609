"""Regions between compiler_begin and compiler_end: found, and joined where no cycle comes of it.

In: the nodes of an annotated function in post order; composites and other closed functions are leaves. Out: a
`Regions`: which region each node belongs to. Nodes outside every region are regions of their own. Invariant: `join`
refuses what would make two regions wait for each other: a way from the producer to the consumer through a third region.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.relay.expr import Call, Constant, Expr, Function, Var
from armillary.relay.transform._rules import op_name
from armillary.relay.walk import children, not_primitive

BEGIN, END = "annotation.compiler_begin", "annotation.compiler_end"


def parts(expr: Expr) -> Sequence[Expr]:
    """What a node is made of; a composite, a primitive or a library's function is closed."""
    return children(expr) if not_primitive(expr) else ()


def compiler_of(expr: Expr, kind: str) -> str:
    """The library of a compiler_begin or compiler_end call, "" for anything else."""
    return str(expr.attrs.compiler) if isinstance(expr, Call) and op_name(expr) == kind else ""


class Regions:
    """Union-find over nodes; `first` and `last` are the positions a region spans in post order."""

    def __init__(self, order: Sequence[Expr]) -> None:
        self.order = order
        self.position = {id(e): k for k, e in enumerate(order)}
        self.link = list(range(len(order)))
        self.first, self.last = list(range(len(order))), list(range(len(order)))
        self.library = [""] * len(order)
        self.users: list[set[int]] = [set() for _ in order]
        self._find_regions()
        self._find_users()

    def of(self, expr: Expr) -> int:
        """The region of a node, as the index of its representative."""
        return self.find(self.position[id(expr)])

    def find(self, index: int) -> int:
        while self.link[index] != index:
            self.link[index] = self.link[self.link[index]]
            index = self.link[index]
        return index

    def _find_regions(self) -> None:
        """Ends and begins belong to the region they bound."""
        for k in range(len(self.order) - 1, -1, -1):
            expr = self.order[k]
            name = compiler_of(expr, END)
            if name:
                self.library[self.find(k)] = name
            if self.library[self.find(k)] and not compiler_of(expr, BEGIN):
                for child in parts(expr):
                    if not isinstance(child, Function | Constant | Var):
                        self._merge(self.position[id(child)], k)

    def _find_users(self) -> None:
        for k, expr in enumerate(self.order):
            for child in parts(expr):
                source, target = self.of(child), self.find(k)
                if source != target:
                    self.users[source].add(target)

    def _merge(self, a: int, b: int) -> int:
        a, b = self.find(a), self.find(b)
        if a == b:
            return a
        self.link[a] = b
        self.first[b], self.last[b] = min(self.first[a], self.first[b]), max(self.last[a], self.last[b])
        self.library[b] = self.library[b] or self.library[a]
        self.users[b] = {r for user in self.users[a] | self.users[b] if (r := self.find(user)) != b}
        return b

    def join(self, producer: int, consumer: int) -> bool:
        """Make one region of two of the same library, unless a third lies between them."""
        producer, consumer = self.find(producer), self.find(consumer)
        if producer == consumer:
            return True
        if self.library[producer] != self.library[consumer] or self._reaches(producer, consumer):
            return False
        self._merge(producer, consumer)
        return True

    def _reaches(self, source: int, target: int) -> bool:
        """Whether there is a way from source to target that passes another region."""
        pending = [r for u in self.users[source] if (r := self.find(u)) not in (source, target)]
        seen = set(pending)
        while pending:
            region = pending.pop()
            for user in self.users[region]:
                regions = self.find(user)
                if regions == target:
                    return True
                if regions not in seen and regions != source and self.first[regions] < self.last[target]:
                    seen.add(regions)
                    pending.append(regions)
        return False
