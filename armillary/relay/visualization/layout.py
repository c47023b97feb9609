"""A layered layout for graphs that flow from top to bottom.

In: sizes of boxes, numbered so that every edge leads from a smaller to a larger number, and edges. Out: the centre of
each box and a route for each edge. Steps: layers by the longest path, places for edges that cross layers, fewer
crossings by barycentres, then positions in each layer by least squares under the order found (pool adjacent
violators). Invariant: deterministic; boxes of a layer never overlap. Drawing: svg.py.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Point = tuple[float, float]
_GAP, _LANE = 26.0, 14.0  # free space between boxes of a layer; width of a place for a passing edge
_BETWEEN = 36.0  # free space between layers, where the labels of edges stand
_SWEEPS, _SETTLING = 10, 12
_BOX = 10.0  # how much more a box wants its place than a passing edge does


@dataclass
class Layout:
    """Where everything lies; the origin is the top left corner."""

    centres: list[Point]
    routes: list[list[Point]]
    width: float
    height: float


@dataclass
class _Net:
    """Boxes and places, by layer; edges between neighbouring layers only."""

    sizes: list[Point]
    layer: list[int]
    count: int  # of real boxes; the others are places
    above: list[list[int]] = field(default_factory=list)
    below: list[list[int]] = field(default_factory=list)
    chains: list[list[int]] = field(default_factory=list)  # of each edge: box, places…, box


def arrange(sizes: Sequence[Point], edges: Sequence[tuple[int, int]]) -> Layout:
    """Lay out boxes of the given (width, height)."""
    if not sizes:
        return Layout([], [], 0.0, 0.0)
    net = _with_places(sizes, edges, _layers(len(sizes), edges))
    rows: list[list[int]] = [[] for _ in range(max(net.layer) + 1)]
    for item, layer in enumerate(net.layer):
        rows[layer].append(item)
    rows = _fewer_crossings(net, rows)
    x = _positions(net, rows)
    return _geometry(net, rows, x)


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The longest path to each box; boxes without inputs stand right above their first user."""
    layer = [0] * count
    users: list[list[int]] = [[] for _ in range(count)]
    has_input = [False] * count
    for source, target in edges:
        users[source].append(target)
        has_input[target] = True
    for source in range(count):
        for target in users[source]:
            layer[target] = max(layer[target], layer[source] + 1)
    for item in range(count):
        if not has_input[item] and users[item]:
            layer[item] = min(layer[user] for user in users[item]) - 1
    return layer


def _with_places(sizes: Sequence[Point], edges: Sequence[tuple[int, int]], layer: list[int]) -> _Net:
    net = _Net(list(sizes), list(layer), len(sizes))
    for source, target in edges:
        chain = [source]
        for between in range(layer[source] + 1, layer[target]):
            chain.append(len(net.sizes))
            net.sizes.append((_LANE, 0.0))
            net.layer.append(between)
        net.chains.append([*chain, target])
    net.above, net.below = [[] for _ in net.sizes], [[] for _ in net.sizes]
    for chain in net.chains:
        for upper, lower in pairwise(chain):
            net.below[upper].append(lower)
            net.above[lower].append(upper)
    return net


# --- order within layers --------------------------------------------------------------------------------------------


def _fewer_crossings(net: _Net, rows: list[list[int]]) -> list[list[int]]:
    """Sort layers by the mean place of their neighbours, down and up in turns; the best order met is kept."""
    best, fewest = [list(row) for row in rows], _crossings(net, rows)
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        down = sweep % 2 == 0
        neighbours = net.above if down else net.below
        for k in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
            place = {item: float(n) for n, item in enumerate(rows[k - 1 if down else k + 1])}
            own = {item: float(n) for n, item in enumerate(rows[k])}
            rows[k].sort(key=lambda item, p=place, o=own: _mean([p[n] for n in neighbours[item]], o[item]))  # type: ignore[misc]
        now = _crossings(net, rows)
        if now < fewest:
            best, fewest = [list(row) for row in rows], now
    return best


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _crossings(net: _Net, rows: list[list[int]]) -> int:
    """Pairs of edges between neighbouring layers that cross."""
    total = 0
    for upper, lower in pairwise(rows):
        place = {item: n for n, item in enumerate(lower)}
        seen: list[int] = []
        for item in upper:
            ends = sorted(place[n] for n in net.below[item])
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


# --- positions ------------------------------------------------------------------------------------------------------


def _positions(net: _Net, rows: list[list[int]]) -> list[float]:
    """Rows settle down and up in turns: a box under the boxes it reads, however far above; a place under the next."""
    x = [0.0] * len(net.sizes)
    for row in rows:
        _place(net, row, [0.0] * len(row), x)
    above, below = [list(near) for near in net.above], [list(near) for near in net.below]
    for item in range(net.count):
        above[item], below[item] = [], []
    for chain in net.chains:
        above[chain[-1]].append(chain[0])
        below[chain[0]].append(chain[-1])
    for turn in range(_SETTLING):
        down = turn % 2 == 0 or turn >= _SETTLING - 2
        neighbours = above if down else below
        for row in rows if down else reversed(rows):
            _place(net, row, [_mean([x[n] for n in neighbours[item]], x[item]) for item in row], x)
    for chain in net.chains:
        _straighten(net, rows, chain[1:-1], x)
    return x


def _straighten(net: _Net, rows: list[list[int]], chain: Sequence[int], x: list[float]) -> None:
    """Move the places of one edge onto one line, on the side where it keeps clear of what stands beside it."""
    if len(chain) < 2:
        return
    for side in (max, min):
        line = side(x[item] for item in chain)
        if all(_is_free(net, rows[net.layer[item]], item, line, x) for item in chain):
            for item in chain:
                x[item] = line
            return


def _is_free(net: _Net, row: Sequence[int], item: int, at: float, x: list[float]) -> bool:
    """Whether a place of a row can move to `at` without touching or passing its neighbours."""
    n = row.index(item)
    left, right = (row[n - 1] if n else None), (row[n + 1] if n + 1 < len(row) else None)
    room = net.sizes[item][0] / 2 + _GAP / 2
    after = left is None or at - x[left] >= net.sizes[left][0] / 2 + room
    return after and (right is None or x[right] - at >= net.sizes[right][0] / 2 + room)


def _place(net: _Net, row: Sequence[int], wanted: Sequence[float], x: list[float]) -> None:
    """Put a row as near to the wanted positions as its order and widths allow, in least squares."""
    offsets, at = [], 0.0
    for n, item in enumerate(row):
        if n:
            at += (net.sizes[row[n - 1]][0] + net.sizes[item][0]) / 2 + _GAP
        offsets.append(at)
    blocks: list[list[float]] = []  # [sum of weight * target, weight, members]
    for item, want, offset in zip(row, wanted, offsets, strict=True):
        weight = _BOX if item < net.count else 1.0
        blocks.append([weight * (want - offset), weight, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            last = blocks.pop()
            blocks[-1] = [a + b for a, b in zip(blocks[-1], last, strict=True)]
    n = 0
    for total, weight, members in blocks:
        for _ in range(int(members)):
            x[row[n]] = total / weight + offsets[n]
            n += 1


def _geometry(net: _Net, rows: list[list[int]], x: list[float]) -> Layout:
    """Coordinates from (0, 0); each edge leaves and enters a box at a port of its own."""
    left = min(x[i] - net.sizes[i][0] / 2 for row in rows for i in row)
    right = max(x[i] + net.sizes[i][0] / 2 for row in rows for i in row)
    top, tops, heights = 0.0, [], []
    for row in rows:
        heights.append(max(net.sizes[i][1] for i in row))
        tops.append(top)
        top += heights[-1] + _BETWEEN
    middle = [tops[layer] + heights[layer] / 2 for layer in net.layer]
    leaving, entering = _ports(net, x)
    routes = []
    for number, chain in enumerate(net.chains):
        first, last = chain[0], chain[-1]
        route = [(x[first] - left + leaving[number], middle[first] + net.sizes[first][1] / 2)]
        for item in chain[1:-1]:
            k = net.layer[item]
            route += [(x[item] - left, tops[k]), (x[item] - left, tops[k] + heights[k])]
        routes.append([*route, (x[last] - left + entering[number], middle[last] - net.sizes[last][1] / 2)])
    centres = [(x[i] - left, middle[i]) for i in range(net.count)]
    return Layout(centres, routes, right - left, top - _BETWEEN)


def _ports(net: _Net, x: list[float]) -> tuple[list[float], list[float]]:
    """Where, from the centre of its box, each edge leaves and enters: in the order of the other ends."""
    leaving, entering = [0.0] * len(net.chains), [0.0] * len(net.chains)
    for ports, end, beside in ((leaving, 0, 1), (entering, -1, -2)):
        groups: dict[int, list[int]] = {}
        for number, chain in enumerate(net.chains):
            groups.setdefault(chain[end], []).append(number)
        for item, numbers in groups.items():
            numbers.sort(key=lambda n, k=beside: x[net.chains[n][k]])  # type: ignore[misc]
            step = min(18.0, 0.7 * net.sizes[item][0] / len(numbers))
            for place, number in enumerate(numbers):
                ports[number] = (place - (len(numbers) - 1) / 2) * step
    return leaving, entering
