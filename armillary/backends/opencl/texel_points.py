"""Every choice that a convolution on blocks of four channels has, for GPUs that read textures.

In: a call of nn.conv2d in plain layout as its kernel's anchor. Out: `Point`s: the first is what a build takes by
itself, the others follow by their cost. Invariant: every point compiles. Of very many tiles the cheapest are kept.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from itertools import product

from armillary.backends.opencl.graph.block_channels import is_depthwise, objection_to_blocks
from armillary.backends.opencl.points import MOST_TILES, Point
from armillary.backends.opencl.space import TEXELS, Tiling, config_of
from armillary.backends.opencl.texel_tiles import COLUMNS, LEAST_ITEMS, Blocks, cost, objection, usual_tile
from armillary.backends.opencl.tiles import Tile, divisors
from armillary.relay.expr import Call
from armillary.relay.transform._rules import tensor
from armillary.target.choice import Choice
from armillary.target.texture import PIXEL

MOST_VECTORS = 40  # registers of a work-item that are tried
_COUNTS = (1, 2, 4, 8, 16, 32, 64)  # work-items along an axis


def texel_points(call: Call) -> list[Point]:
    """All choices of a convolution on blocks: the usual one first; none where it has no such form."""
    if objection_to_blocks(call):
        return []
    work = blocks_of(call)
    first = Tiling(usual_tile(work))
    others = (Tiling(tile, unroll) for tile in _tiles(work) for unroll in (False, True))
    rows = [(cost(work, tiling), number, tiling) for number, tiling in enumerate(others) if tiling != first]
    ranked = [(cost(work, first), 0, first), *heapq.nsmallest(MOST_TILES, rows)]
    return [Point(Choice(TEXELS.name, config_of(tiling)), estimate) for estimate, _, tiling in ranked]


def blocks_of(call: Call) -> Blocks:
    """The extents of a convolution in plain layout that has a form on blocks."""
    data, weight, result = tensor(call.args[0]), tensor(call.args[1]), tensor(call)
    assert data is not None and weight is not None and result is not None, "it has no objection"
    n, channels, rows, columns = result.static
    summed = 0 if is_depthwise(call) else -(-weight.static[1] // PIXEL)
    attrs = call.attrs
    (a, b), (c, d), taps = attrs.strides, attrs.dilation, (weight.static[2], weight.static[3])
    groups = attrs.groups != 1
    return Blocks(n, (channels // PIXEL, rows, columns), summed, taps, (a, b), (c, d), has_groups=groups)


def _tiles(work: Blocks) -> Iterator[Tile]:
    blocks, rows, columns = work.result
    per_item = (divisors(blocks, work.most_blocks), divisors(rows, 4), divisors(columns, COLUMNS))
    for own in product(*per_item):
        if work.vectors(own) > MOST_VECTORS:
            continue
        sizes = (work.images * blocks // own[0], rows // own[1], columns // own[2])
        counts = [[n for n in _COUNTS[:limit] if n < 2 * size] for size, limit in zip(sizes, (7, 5, 5), strict=True)]
        for c, y, x in product(*counts):
            result = Tile((c, y, x), own, 1)
            if result.items >= min(LEAST_ITEMS, math.prod(sizes)) and not objection(work, result):
                yield result
