"""Every choice that a call on a GPU has, with what the model of costs expects of it.

In: a call of nn.conv2d, nn.dense or nn.batch_matmul as its kernel's anchor. Out: `Point`s: the first is what a build
takes by itself, the others follow by their cost. Invariant: every point compiles; tiles and costs are those of the
schedules (`space.py`, `tiles.py`, `graph/winograd_conv2d.py`). Of very many tiles those of least cost are kept.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from itertools import product

from armillary.backends.opencl.gemm import tile as gemm
from armillary.backends.opencl.gemm.convolution import convolved, in_multiply_adds, size_of
from armillary.backends.opencl.graph.winograd_conv2d import (
    LAUNCH,
    TILES,
    can_transform,
    plain_cost,
    winograd_extra,
    winograd_product,
)
from armillary.backends.opencl.space import (
    DEPTHWISE,
    DIRECT,
    MIN_ROWS,
    PLAIN,
    PRODUCT,
    WINOGRAD,
    Algorithm,
    Tiling,
    can_unroll,
    config_of,
)
from armillary.backends.opencl.tiles import (
    FULL,
    GLOBAL_READ,
    Product,
    Tile,
    best_tiles,
    choose_depthwise_tile,
    cost,
    divisors,
)
from armillary.backends.winograd import MAX_TILE
from armillary.base.record import record
from armillary.relay.expr import Call
from armillary.relay.transform._rules import tensor
from armillary.relay.types import TensorType
from armillary.target.choice import Choice
from armillary.transform import PassContext

MOST_TILES = 768  # of an algorithm
LEAST_ITEMS, MOST_ITEMS = 16, 256  # of a group of depthwise sums
CACHED_READ = GLOBAL_READ / 4  # of what neighbouring work-items read too
UNROLLED = 1.0001  # of the cost of what is not


@record(slots=True)
class Point:
    """A choice and its estimated cost, in multiply-adds of a work-item, all together."""

    choice: Choice
    cost: float


def points_of(call: Call) -> list[Point]:
    """All choices of a call; none where its kernel has nothing to choose."""
    types = [tensor(argument) for argument in call.args]
    data, weight = (t for t in types if t is not None)
    result = tensor(call)
    assert result is not None, "the call is typed"
    name = getattr(call.op, "name", "")
    if name == "nn.conv2d":
        return _convolution(call, data, weight, result)
    *batch, rows, columns = result.static
    batches = 1 if name == "nn.dense" else math.prod(batch)
    terms = data.size // math.prod((*batch, rows))
    return _product(gemm.Size(batches, math.prod((*batch, rows)) // batches, columns, terms))


def _product(size: gemm.Size) -> list[Point]:
    if size.rows < MIN_ROWS:
        return []
    best = [(gemm.cost(size, tile), tile) for tile in gemm.best_tiles(size, MOST_TILES)]
    macs = size.batches * size.rows * size.columns * size.terms
    plain = gemm.LAUNCH + 4.0 * macs / gemm.PROCESSORS / gemm.LANES_OF_PROCESSOR
    return [
        *(Point(Choice(PRODUCT.name, config_of(Tiling(tile))), cost_) for cost_, tile in best),
        Point(Choice(PLAIN.name), plain),
    ]


def _convolution(call: Call, data: TensorType, weight: TensorType, result: TensorType) -> list[Point]:
    attrs, work = call.attrs, convolved(weight, result, call.attrs)
    if attrs.groups != 1:
        return _depthwise(work)
    points = [Point(p.choice, LAUNCH + p.cost) for p in _tiled(DIRECT, work)]
    points = points or [Point(Choice(PLAIN.name), LAUNCH + plain_cost(work))]
    size = size_of(data, weight, result, attrs)
    for tile in gemm.best_tiles(size, MOST_TILES):
        points.append(Point(Choice(PRODUCT.name, config_of(Tiling(tile))), in_multiply_adds(gemm.cost(size, tile))))
    if can_transform(call):
        limit = PassContext.current().get(MAX_TILE)
        for side in (tile for tile in TILES if tile <= limit):
            product_ = winograd_product(data, result, side)
            extra = winograd_extra(product_)
            for point in _tiled(WINOGRAD, product_):
                choice = Choice(WINOGRAD.name, (("tile", side), *point.choice.config))
                points.append(Point(choice, extra + point.cost))
    return sorted(points, key=lambda point: point.cost)


def _tiled(algorithm: Algorithm, work: Product) -> list[Point]:
    """The tiles of least cost, with and without unrolled loops."""
    result = []
    for tile in best_tiles(work, MOST_TILES):
        estimate = cost(work, tile)
        for unroll in (False, True) if can_unroll(work, tile) else (False,):
            choice = Choice(algorithm.name, config_of(Tiling(tile, unroll)))
            result.append(Point(choice, estimate * (UNROLLED if unroll else 1.0)))
    return sorted(result, key=lambda point: point.cost)


def _depthwise(work: Product) -> list[Point]:
    """Tiles without shared memory and plain loops, first what a build takes by itself."""
    tilings = [Tiling(tile, unroll) for tile in _depthwise_tiles(work) for unroll in (False, True)]
    rows = [(_depthwise_cost(work, t.tile) * (UNROLLED if t.unroll else 1.0), n, t) for n, t in enumerate(tilings)]
    best = heapq.nsmallest(MOST_TILES, rows)
    plain = _depthwise_cost(work, Tile((1, 1, 1), (1, 1, 1), 1))
    own = choose_depthwise_tile(work)
    first = [] if own is None else [(_depthwise_cost(work, own), 0, Tiling(own))]
    tiled = [Point(Choice(DEPTHWISE.name, config_of(t)), c) for c, _, t in (*first, *best)]
    return [*tiled[: len(first)], Point(Choice(PLAIN.name), plain), *tiled[len(first) :]]


def _depthwise_tiles(work: Product) -> Iterator[Tile]:
    channels, rows, columns = work.result
    for own_x, own_y in product(divisors(columns, 8), divisors(rows, 8)):
        if own_x * own_y > 16:
            continue
        for over_x, over_y in product(divisors(columns // own_x, 64), divisors(rows // own_y, 32)):
            for over_c in divisors(channels, 64):
                if LEAST_ITEMS <= over_x * over_y * over_c <= MOST_ITEMS:
                    yield Tile((over_c, over_y, over_x), (1, own_y, own_x), 1)


def _depthwise_cost(work: Product, tile: Tile) -> float:
    own = math.prod(tile.sums)
    reads = work.taps[0] * work.taps[1] * work.channels
    patch = work.channels
    for count, stride, taps, dilation in zip(tile.sums[1:], work.strides, work.taps, work.dilation, strict=True):
        patch *= (count - 1) * stride + (taps - 1) * dilation + 1
    total = work.images * math.prod(work.result) / own
    return (reads * own + CACHED_READ * (patch + reads)) * max(total, FULL)
