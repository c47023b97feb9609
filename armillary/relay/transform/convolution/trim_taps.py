"""trim-taps: convolutions without the rows and columns of their kernels that never touch the data.

In: a typed module. Out: where the first or last taps of a kernel along an axis lie on the padding for every output (of
a transposed convolution: on what the padding crops, for every input), the weight is sliced and the padding is as much
smaller. An axis with one tap has no dilation. Invariant: same values, each of the same sum but for products with 0. A
3x3 kernel whose dilation is the size of the image or more is a 1x1 kernel: eight ninths of its weights have no effect.

    def @main(%x: Tensor[(1, 3, 10), float32], %w: Tensor[(4, 3, 3), float32]) {
      nn.conv1d(%x, %w, padding=(12, 12), dilation=(12,))
    }
    ->
    def @main(%x: Tensor[(1, 3, 10), float32], %w: Tensor[(4, 3, 3), float32]) {
      %0 = strided_slice(%w, begin=(1,), end=(2,), strides=(1,), axes=(2,));
      nn.conv1d(%x, %0, padding=(0, 0))
    }
"""

from __future__ import annotations

import dataclasses
from typing import Any

from armillary.base.record import record
from armillary.ir import IRModule
from armillary.ops.nn.conv import window
from armillary.relay.expr import Call, Expr
from armillary.relay.transform._rules import call, op_name, rewrite_module, tensor
from armillary.transform import define_pass

_RANKS = {f"nn.conv{rank}d{kind}": rank for rank in (1, 2, 3) for kind in ("", "_transpose")}
_AXES = {1: "W", 2: "HW", 3: "DHW"}


@record
class _Axis:
    """One axis of a convolution: sizes of what a tap is moved along and of what it may touch, and the window."""

    moves: int
    reach: int
    taps: int
    stride: int
    dilation: int
    pads: tuple[int, int]

    def touches(self, tap: int) -> bool:
        """Whether the tap lies on something for one of its places."""
        start = tap * self.dilation - self.pads[0]
        place = max(0, -(start // self.stride))  # the first one that is not before the data
        return place < self.moves and start + place * self.stride < self.reach

    def trimmed(self) -> tuple[int, int]:
        """The taps [first, end) that stay: no padding may become negative."""
        first, end = 0, self.taps
        while first < end and not self.touches(first) and self.pads[0] >= (first + 1) * self.dilation:
            first += 1
        while end > first and not self.touches(end - 1) and self.pads[1] >= (self.taps - end + 1) * self.dilation:
            end -= 1
        return first, end


@define_pass("trim-taps", opt_level=2)
def trim_taps(module: IRModule) -> IRModule:
    """Slice kernels to the taps that touch data."""
    return rewrite_module(module, trim)


def trim(expr: Expr) -> Expr | None:
    """conv(x, w, padding=12, dilation=12)  ->  conv(x, slice(w))   for an image of 12 or less"""
    rank = _RANKS.get(op_name(expr), 0)
    if not rank or not isinstance(expr, Call):
        return None
    attrs, weight = expr.attrs, tensor(expr.args[1])
    axes = _axes(expr, rank)
    if axes is None or weight is None:
        return None
    retained = [axis.trimmed() for axis in axes]
    if any(first == end for first, end in retained) or all(
        k == (0, a.taps) for k, a in zip(retained, axes, strict=True)
    ):
        return None
    places = [attrs.kernel_layout.index(name) for name in _AXES[rank]]
    cut = [(p, *k) for p, k, axis in zip(places, retained, axes, strict=True) if k != (0, axis.taps)]
    where, begin, end = zip(*cut, strict=True)
    sliced = call("strided_slice", expr.args[1], begin=begin, end=end, strides=(1,) * len(cut), axes=where)
    result = Call(expr.op, (expr.args[0], sliced, *expr.args[2:]), _fewer_taps(attrs, axes, retained), expr.span)
    return result if result.checked_type == expr.checked_type else None


def _axes(expr: Call, rank: int) -> list[_Axis] | None:
    """The axes of a convolution in a plain layout; None for another one."""
    name, attrs = op_name(expr), expr.attrs
    data, weight, result = tensor(expr.args[0]), tensor(expr.args[1]), tensor(expr)
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or attrs.data_layout)
    if data is None or weight is None or result is None or any(len(text) != rank + 2 for text in layouts):
        return None
    win = window(name, attrs, rank)
    axes = []
    for n, axis in enumerate(_AXES[rank]):
        sizes = (data.static[layouts[0].index(axis)], result.static[layouts[2].index(axis)])
        reach, moves = sizes[::-1] if name.endswith("_transpose") else sizes
        taps = weight.static[layouts[1].index(axis)]
        axes.append(_Axis(moves, reach, taps, win.strides[n], win.dilation[n], win.pads[n]))
    return axes


def _fewer_taps(attrs: Any, axes: list[_Axis], taps: list[tuple[int, int]]) -> object:  # a convolution's attrs
    """The attributes for a kernel that was sliced."""
    before = [a.pads[0] - first * a.dilation for a, (first, _) in zip(axes, taps, strict=True)]
    after = [a.pads[1] - (a.taps - end) * a.dilation for a, (_, end) in zip(axes, taps, strict=True)]
    sizes = tuple(end - first for first, end in taps)
    return dataclasses.replace(
        attrs,
        padding=(*before, *after),
        dilation=tuple(1 if size == 1 else a.dilation for size, a in zip(sizes, axes, strict=True)),
        kernel_size=None if attrs.kernel_size is None else sizes,
    )
