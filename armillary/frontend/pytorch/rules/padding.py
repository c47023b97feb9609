"""ATen's borders: constant, reflected, replicated and circular padding, and the modes of `pad`.

In: a tensor and pads from the last axis on, (before, after) each. Out: nn.pad, nn.mirror_pad or slices side by side.
Invariant: negative pads cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.frontend.pytorch.table import AtenCall, aten
from armillary.frontend.values import Value, op, rank_of, shape_of
from armillary.relay.expr import Expr, Tuple

Pairs = list[tuple[int, int]]


def pairs_of(pads: Sequence[int], rank: int) -> Pairs:
    """(before, after) of every axis, in order."""
    behind = [(int(pads[k]), int(pads[k + 1])) for k in range(0, len(pads), 2)]
    return [(0, 0)] * (rank - len(behind)) + behind[::-1]


def cut(x: Expr, pairs: Pairs) -> tuple[Expr, Pairs]:
    """What negative pads leave, and the others."""
    if all(b >= 0 and a >= 0 for b, a in pairs):
        return x, pairs
    begin = [max(0, -b) for b, _ in pairs]
    end = [d - max(0, -a) for d, (_, a) in zip(shape_of(x), pairs, strict=True)]
    return op("strided_slice", x, begin=tuple(begin), end=tuple(end)), [(max(0, b), max(0, a)) for b, a in pairs]


def same_padding(x: Expr, kernel: Sequence[int], dilation: Sequence[int]) -> Expr:
    """Zeros that keep the spatial sizes; an odd one goes to the end."""
    totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    spatial = [(t // 2, t - t // 2) for t in totals]
    return padded(x, [(0, 0)] * (rank_of(x) - len(spatial)) + spatial, 0.0)


def padded(x: Expr, pairs: Pairs, value: float) -> Expr:
    """A border of one number."""
    x, pairs = cut(x, pairs)
    if not any(b or a for b, a in pairs):
        return x
    return op("nn.pad", x, pad_width=tuple(pairs), pad_value=value)


@aten("constant_pad_nd")
def constant_pad(call: AtenCall, x: Expr, pads: Sequence[int], value: Value) -> Expr:
    return padded(x, pairs_of(pads, rank_of(x)), float(value or 0))


@aten("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(call: AtenCall, x: Expr, pads: Sequence[int]) -> Expr:
    x, pairs = cut(x, pairs_of(pads, rank_of(x)))
    if not any(b or a for b, a in pairs):
        return x
    return op("nn.mirror_pad", x, pad_width=tuple(pairs), mode="REFLECT")


@aten("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(call: AtenCall, x: Expr, pads: Sequence[int]) -> Expr:
    x, pairs = cut(x, pairs_of(pads, rank_of(x)))
    if not any(b or a for b, a in pairs):
        return x
    return op("nn.pad", x, pad_width=tuple(pairs), pad_mode="edge")


def _circular(x: Expr, pairs: Pairs) -> Expr:
    for axis, (before, after) in enumerate(pairs):
        size, parts = shape_of(x)[axis], [x]
        if before:
            parts.insert(0, op("strided_slice", x, begin=(size - before,), end=(size,), axes=(axis,)))
        if after:
            parts.append(op("strided_slice", x, begin=(0,), end=(after,), axes=(axis,)))
        x = op("concatenate", Tuple(tuple(parts)), axis=axis) if len(parts) > 1 else x
    return x


@aten("pad")
def pad(call: AtenCall, x: Expr, pads: Sequence[int], mode: str, value: float | None) -> Expr:
    rules = {"reflect": reflection_pad, "replicate": replication_pad}
    if mode == "constant":
        return padded(x, pairs_of(pads, rank_of(x)), float(value or 0))
    if mode == "circular":
        return _circular(x, pairs_of(pads, rank_of(x)))
    result: Expr = rules[mode](call, x, pads)
    return result
