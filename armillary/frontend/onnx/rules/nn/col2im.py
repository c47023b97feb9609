"""ONNX Col2Im: blocks added into an image where they lie.

In: (batch, channels * taps, blocks), the sizes of image and block, known when importing. Out: (batch, channels,
*image). Blocks that are `stride` apart put tap `s * j + p` on places of phase p, j steps further on: so each phase is a
sum of as many shifted planes as blocks overlap, and the phases are shuffled into the image. Of dilated blocks the plane
of each tap is spread over the image. More than MOST planes are a transposed convolution whose weights pick one tap
each. Invariant: every element of a block is added once; what is infinite stays where it lies, but in such a
convolution, which multiplies it by 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops.nn._windows import call, extent, reshape_to, type_of, window_count
from armillary.relay.expr import Expr, const

MOST = 64  # planes that are added: as many loads as one kernel should have


@record
class _Blocks:
    """Sizes by spatial axis."""

    image: tuple[int, ...]
    block: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[int, ...]
    counts: tuple[int, ...]


@from_onnx("Col2Im", since=18)
def col2im(node: OnnxNode) -> Expr:
    ty = node.type_of(0)
    image = tuple(int(v) for v in node.const(1, "image_shape").reshape(-1))
    block = tuple(int(v) for v in node.const(2, "block_shape").reshape(-1))
    rank, taps = len(image), math.prod(block)
    if rank not in (1, 2, 3) or ty.ndim != 3 or ty.static[1] % taps:
        raise UnsupportedError(f"Col2Im node {node.name!r}: blocks {block} of {rank} axes in data {ty}")
    strides, dilation = (tuple(node.ints(n) or (1,) * rank) for n in ("strides", "dilations"))
    pads = tuple(node.ints("pads") or (0,) * 2 * rank)
    counts = tuple(
        window_count(image[a], (pads[a], pads[rank + a]), block[a], strides[a], dilation[a]) for a in range(rank)
    )
    batch, rows, columns = ty.static
    if math.prod(counts) != columns:
        raise TypeMismatch(f"Col2Im node {node.name!r}: expected {math.prod(counts)} blocks, got {columns}")
    reach = [extent(size, step) for size, step in zip(block, dilation, strict=True)]
    strides = tuple(s if n > 1 else min(s, r) for s, n, r in zip(strides, counts, reach, strict=True))
    blocks = _Blocks(image, block, strides, dilation, pads, counts)
    if set(dilation) == {1} and math.prod(_overlaps(blocks)) <= MOST:
        return _by_phases(node.input(0), (batch, rows // taps), blocks)
    if taps <= MOST:
        return _by_taps(node.input(0), (batch, rows // taps), blocks)
    node.check_elements(taps * rows)
    data = reshape_to(node.input(0), (batch, rows, *counts))
    return _by_transposed_convolution(data, rows // taps, blocks, str(ty.dtype))


def _overlaps(blocks: _Blocks) -> list[int]:
    """Blocks that overlap along each axis."""
    return [-(-size // step) for size, step in zip(blocks.block, blocks.strides, strict=True)]


def _sum(terms: list[Expr]) -> Expr:
    """Pair by pair, so that no chain is long."""
    while len(terms) > 1:
        pairs = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[2 * len(pairs) :]
    return terms[0]


def _by_phases(x: Expr, outer: tuple[int, int], blocks: _Blocks) -> Expr:
    """Sums of shifted planes, one for each phase, then the phases side by side."""
    rank = len(blocks.image)
    steps = _overlaps(blocks)
    grown = [count + more - 1 for count, more in zip(blocks.counts, steps, strict=True)]
    data = reshape_to(x, (*outer, *blocks.block, *blocks.counts))
    fill = [(0, m * s - size) for m, s, size in zip(steps, blocks.strides, blocks.block, strict=True)]
    if any(more for _, more in fill):
        data = call("nn.pad", data, pad_width=((0, 0), (0, 0), *fill, *((0, 0),) * rank))
    planes = [_shifted(data, place, steps, blocks) for place in itertools.product(*map(range, steps))]
    beside = call(
        "transpose",
        _sum(planes),
        axes=(0, 1, *(axis for a in range(rank) for axis in (2 + rank + a, 2 + a))),
    )
    sizes = [g * s for g, s in zip(grown, blocks.strides, strict=True)]
    return _cut(reshape_to(beside, (*outer, *sizes)), sizes, blocks)


def _by_taps(x: Expr, outer: tuple[int, int], blocks: _Blocks) -> Expr:
    """The sum of the planes of all taps, each spread over the image and its padding."""
    rank = len(blocks.image)
    whole = [size + blocks.pads[a] + blocks.pads[rank + a] for a, size in enumerate(blocks.image)]
    data = reshape_to(x, (*outer, math.prod(blocks.block), *blocks.counts))
    planes = []
    for tap, place in enumerate(itertools.product(*map(range, blocks.block))):
        plane = call("strided_slice", data, begin=(tap,), end=(tap + 1,), strides=(1,), axes=(2,))
        spread = call("nn.dilate", reshape_to(plane, (*outer, *blocks.counts)), strides=(1, 1, *blocks.strides))
        around = []
        for at, step, size, have in zip(place, blocks.dilation, whole, type_of(spread).static[2:], strict=True):
            around.append((at * step, size - at * step - have))
        planes.append(call("nn.pad", spread, pad_width=((0, 0), (0, 0), *around)))
    return _cut(_sum(planes), whole, blocks)


def _shifted(data: Expr, place: Sequence[int], steps: Sequence[int], blocks: _Blocks) -> Expr:
    """The taps of all phases that lie `place` steps further on, among zeros: (batch, channels, *phases, *grown)."""
    rank = len(place)
    begin = [at * step for at, step in zip(place, blocks.strides, strict=True)]
    end = [b + step for b, step in zip(begin, blocks.strides, strict=True)]
    axes = tuple(range(2, 2 + rank))
    taps = call("strided_slice", data, begin=tuple(begin), end=tuple(end), strides=(1,) * rank, axes=axes)
    if all(more == 1 for more in steps):
        return taps
    around = [(at, more - 1 - at) for at, more in zip(place, steps, strict=True)]
    return call("nn.pad", taps, pad_width=((0, 0),) * (2 + rank) + tuple(around))


def _cut(whole: Expr, sizes: Sequence[int], blocks: _Blocks) -> Expr:
    """The image without its padding; zeros where it goes on behind the last block, or begins before the first one."""
    rank = len(sizes)
    before = [max(0, -pad) for pad in blocks.pads[:rank]]
    begin = [pad + more for pad, more in zip(blocks.pads, before, strict=False)]
    ends = [at + size for at, size in zip(begin, blocks.image, strict=True)]
    have = [size + more for size, more in zip(sizes, before, strict=True)]
    behind = [max(0, end - size) for end, size in zip(ends, have, strict=True)]
    if any(before) or any(behind):
        whole = call("nn.pad", whole, pad_width=((0, 0), (0, 0), *zip(before, behind, strict=True)))
    if list(blocks.image) == [size + more for size, more in zip(have, behind, strict=True)]:
        return whole
    axes = tuple(range(2, 2 + rank))
    return call("strided_slice", whole, begin=tuple(begin), end=tuple(ends), strides=(1,) * rank, axes=axes)


def _by_transposed_convolution(data: Expr, channels: int, blocks: _Blocks, dtype: str) -> Expr:
    rank, taps = len(blocks.image), math.prod(blocks.block)
    weight = np.tile(np.eye(taps, dtype=dtype), (channels, 1)).reshape(channels * taps, 1, *blocks.block)
    extra = tuple(
        blocks.image[a]
        + blocks.pads[a]
        + blocks.pads[rank + a]
        - (blocks.counts[a] - 1) * blocks.strides[a]
        - extent(blocks.block[a], blocks.dilation[a])
        for a in range(rank)
    )
    return call(
        f"nn.conv{rank}d_transpose",
        data,
        const(weight),
        strides=blocks.strides,
        padding=blocks.pads,
        dilation=blocks.dilation,
        channels=channels,
        kernel_size=blocks.block,
        groups=channels,
        output_padding=extra,
    )
