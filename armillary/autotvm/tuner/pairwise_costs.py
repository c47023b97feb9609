"""The least sum of costs of single choices and of pairs of choices: a partitioned Boolean quadratic problem.

In: for each node the cost of each of its choices, and for pairs of nodes that of each pair of choices. Out: a choice
for each node. Invariant: with every node eliminated exactly the sum is the least there is; a node that has more
neighbours than may be tabulated takes what is least together with the best of each neighbour, and the sum is then
only low. Eliminating a node is one step of dynamic programming (Bertelè and Brioschi 1972); with two neighbours at
most and that heuristic it is the solver of Scholz and Eckstein (2002).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import prod
from typing import TypeVar

import numpy as np

from armillary.base.aliases import Array

K = TypeVar("K", bound=Hashable)
MOST_ENTRIES = 1 << 20  # of a table


class _Table:
    """Costs over the choices of some nodes: an axis for each."""

    def __init__(self, nodes: Sequence[int], costs: Array) -> None:
        self.nodes, self.costs = tuple(nodes), costs

    def over(self, nodes: Sequence[int]) -> Array:
        """The costs with an axis for each of `nodes`, which are sorted as its own are."""
        where = [slice(None) if n in self.nodes else None for n in nodes]
        return self.costs[tuple(where)]


def least(
    costs: Mapping[K, Sequence[float]],
    pairs: Mapping[tuple[K, K], Array],
    most_neighbours: int | None = None,
    most_entries: int = MOST_ENTRIES,
) -> dict[K, int]:
    """A choice for each key; `pairs[a, b][i, j]` is paid where a takes i and b takes j.

    A node is eliminated exactly where it has no more than `most_neighbours` (None: any number) and its table no more
    than `most_entries`.
    """
    keys = list(costs)
    number = {key: index for index, key in enumerate(keys)}
    tables = [_Table((number[key],), np.asarray(row, "float64")) for key, row in costs.items()]
    for (a, b), matrix in pairs.items():
        tables.append(_of_pair(number[a], number[b], np.asarray(matrix, "float64")))
    sizes = [len(costs[key]) for key in keys]
    rest, steps, fixed = set(range(len(keys))), list[_Table](), dict[int, int]()
    while rest:
        near = {n: {m for t in tables if n in t.nodes for m in t.nodes} - {n} for n in rest}
        node = min(sorted(rest), key=lambda n: (len(near[n]), prod(sizes[m] for m in near[n])))
        mine = [t for t in tables if node in t.nodes]
        tables = [t for t in tables if node not in t.nodes]
        entries = sizes[node] * prod(sizes[m] for m in near[node])
        if (most_neighbours is not None and len(near[node]) > most_neighbours) or entries > most_entries:
            fixed[node] = _alone(node, mine)
            tables += [_at_choice(t, node, fixed[node]) for t in mine if len(t.nodes) > 1]
        else:
            scope = sorted({node} | near[node])
            whole = sum((t.over(scope) for t in mine), np.zeros((1,) * len(scope)))
            steps.append(_Table((node, *sorted(near[node])), whole.argmin(scope.index(node))))
            tables.append(_Table(sorted(near[node]), whole.min(scope.index(node))))
        rest.remove(node)
    for table in reversed(steps):
        node, *others = table.nodes
        fixed[node] = int(table.costs[tuple(fixed[m] for m in others)])
    return {key: fixed[number[key]] for key in keys}


def _of_pair(a: int, b: int, matrix: Array) -> _Table:
    if a == b:
        return _Table((a,), matrix.diagonal().copy())
    return _Table((a, b), matrix) if a < b else _Table((b, a), matrix.T)


def _alone(node: int, tables: Sequence[_Table]) -> int:
    """What is least where each neighbour takes what suits this node best."""
    rows = [t.costs.min(tuple(k for k, n in enumerate(t.nodes) if n != node)) for t in tables]
    return int(np.sum(rows, axis=0).argmin())


def _at_choice(table: _Table, node: int, choice: int) -> _Table:
    axis = table.nodes.index(node)
    return _Table([n for n in table.nodes if n != node], table.costs.take(choice, axis))


def total(costs: Mapping[K, Sequence[float]], pairs: Mapping[tuple[K, K], Array], chosen: Mapping[K, int]) -> float:
    """The sum of costs of a choice for each key."""
    alone = sum(row[chosen[key]] for key, row in costs.items())
    return float(alone + sum(matrix[chosen[a], chosen[b]] for (a, b), matrix in pairs.items()))
