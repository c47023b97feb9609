"""Parts of tensors, as TensorFlow and TFLite cut them.

In: an expression of known shape, numbers that are known when importing. Out: Relay's operators. Invariant: what does
not fit is refused through the node, whose error names the operator. Windows over images: `channels_last.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol

from armillary.frontend.values import op, scalar, shape_of
from armillary.relay.expr import Expr, TupleGetItem


class Node(Protocol):
    """An operator of a file, which refuses in its own name."""

    def refuse(self, what: str, hint: str = "") -> NoReturn:
        """Raise UnsupportedError about this operator."""


def unpacked(node: Node, x: Expr, axis: int, count: int) -> list[Expr]:
    """The `count` tensors that lie along an axis, each without it."""
    if count != shape_of(x)[axis]:
        node.refuse(f"{count} parts of {shape_of(x)[axis]}")
    return [op("take", x, scalar(k, "int32"), axis=axis) for k in range(count)]


def equal_parts(node: Node, x: Expr, axis: int, count: int) -> list[Expr]:
    """`count` parts of one length."""
    if not 0 < count <= shape_of(x)[axis]:
        node.refuse(f"{count} parts of {shape_of(x)[axis]}")
    return _parts(x, count, axis, count)


def parts_of_lengths(x: Expr, axis: int, lengths: Sequence[int]) -> list[Expr]:
    """Parts of these lengths; one may be -1: what the others leave."""
    lengths = list(lengths)
    if -1 in lengths:
        lengths[lengths.index(-1)] = shape_of(x)[axis] - sum(lengths) - 1
    return _parts(x, tuple(sum(lengths[: k + 1]) for k in range(len(lengths) - 1)), axis, len(lengths))


def _parts(x: Expr, cuts: tuple[int, ...] | int, axis: int, count: int) -> list[Expr]:
    if count == 1:
        return [x]
    pieces = op("split", x, indices_or_sections=cuts, axis=axis)
    return [TupleGetItem(pieces, k) for k in range(count)]


def from_begin(x: Expr, begin: tuple[int, ...], lengths: Sequence[int]) -> Expr:
    """So many elements of each axis from its `begin` on; a length of -1 is all that is left."""
    rows = zip(begin, lengths, shape_of(x), strict=True)
    end = tuple(whole if length == -1 else first + length for first, length, whole in rows)
    return op("strided_slice", x, begin=begin, end=end, strides=(1,) * len(begin))


def sliced(
    x: Expr,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int],
    masks: tuple[int, int, int, int, int],
) -> Expr:
    """x[begin:end:strides] by TensorFlow's masks: of begins, ends, the ellipsis, new axes, axes that go."""
    from_mask, to_mask, ellipsis, new, shrink = masks
    shape = shape_of(x)
    consumed = sum(1 for k in range(len(begin)) if not (new >> k & 1) and not (ellipsis >> k & 1))
    starts, ends, steps, gone, fresh = [], [], [], [], []  # type: ignore[var-annotated]
    retained = 0  # axes of the result before those that go are taken out
    for k in range(len(begin)):
        if ellipsis >> k & 1:
            count = len(shape) - consumed
            starts, ends, steps = starts + [0] * count, ends + list(shape[len(starts) :][:count]), steps + [1] * count
            retained += count
        elif new >> k & 1:
            fresh.append(retained)
            retained += 1
        else:
            size, step = shape[len(starts)], strides[k]
            if shrink >> k & 1:
                at = begin[k] % size if size else 0
                gone.append(len(starts))
                starts, ends, steps = [*starts, at], [*ends, at + 1], [*steps, 1]
                continue
            first, last, _ = slice(
                None if from_mask >> k & 1 else begin[k], None if to_mask >> k & 1 else end[k], step
            ).indices(size)
            starts, ends, steps = [*starts, first], [*ends, last], [*steps, step]
            retained += 1
    axes = tuple(range(len(starts)))
    ends = [-(size + 1) if last < 0 else last for last, size in zip(ends, shape, strict=False)]
    result = x
    if any(s or e != n or t != 1 for s, e, t, n in zip(starts, ends, steps, shape, strict=False)):
        result = op("strided_slice", x, begin=tuple(starts), end=tuple(ends), strides=tuple(steps), axes=axes)
    if gone:
        result = op("squeeze", result, axis=tuple(gone))
    for axis in fresh:
        result = op("expand_dims", result, axis=axis)
    return result
