"""flatten-atrous-conv: a convolution between space_to_batch_nd and batch_to_space_nd is a dilated convolution.

In: a module. Out: one where `batch_to_space_nd(conv2d(space_to_batch_nd(x)))` is one nn.conv2d. Invariant: only where
the convolution has stride 1 and no dilation, the blocks lie on its spatial axes and agree, the padding is zero, and the
crops do not exceed the padding; then the values are the same, each of the same sum.

    def @main(%x: Tensor[(1, 6, 6, 1), float32], %w: Tensor[(3, 3, 1, 2), float32]) {
      %0 = nn.space_to_batch_nd(%x, block_shape=(2, 2), paddings=((2, 2), (2, 2)));
      %1 = nn.conv2d(%0, %w, data_layout="NHWC", kernel_layout="HWIO");
      nn.batch_to_space_nd(%1, block_shape=(2, 2), crops=((0, 0), (0, 0)))
    }
    ->
    def @main(%x: Tensor[(1, 6, 6, 1), float32], %w: Tensor[(3, 3, 1, 2), float32]) {
      nn.conv2d(%x, %w, padding=(2, 2, 2, 2), dilation=(2, 2), data_layout="NHWC", kernel_layout="HWIO")
    }
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr
from armillary.relay.transform._rules import op_name, rewrite_module
from armillary.transform import define_pass

Pair = tuple[int, int]


@define_pass("flatten-atrous-conv")
def flatten_atrous_conv(module: IRModule) -> IRModule:
    """Write convolutions of interleaved batches as dilated convolutions."""
    return rewrite_module(module, flatten)


def flatten(expr: Expr) -> Expr | None:
    """batch_to_space_nd(conv2d(space_to_batch_nd(x), w))  ->  conv2d(x, w, dilation=block)"""
    if op_name(expr) != "nn.batch_to_space_nd" or not isinstance(expr, Call):
        return None
    conv = expr.args[0]
    if op_name(conv) != "nn.conv2d" or not isinstance(conv, Call):
        return None
    spread = conv.args[0]
    if op_name(spread) != "nn.space_to_batch_nd" or not isinstance(spread, Call):
        return None
    attrs = _dilated(spread.attrs, conv.attrs, expr.attrs)
    result = Call(conv.op, (spread.args[0], *conv.args[1:]), attrs, conv.span) if attrs is not None else None
    return result if result is not None and result.checked_type == expr.checked_type else None


def _dilated(spread: Any, conv: Any, gather: Any) -> object:  # Any: each operator's attrs
    """The attrs of the dilated convolution, or None where there is none."""
    plain = set(conv.strides) | set(conv.dilation) == {1} and conv.out_layout in ("", conv.data_layout)
    if not plain or spread.pad_value != 0 or spread.block_shape != gather.block_shape:
        return None
    paddings = _by_axis(conv.data_layout, spread.paddings, (0, 0))
    crops = _by_axis(conv.data_layout, gather.crops, (0, 0))
    blocks = _by_axis(conv.data_layout, tuple((b, b) for b in spread.block_shape), (1, 1))
    if paddings is None or crops is None or blocks is None:
        return None
    own = _four(conv.padding)
    sides = zip((0, 0, 1, 1), "HWHW", own, strict=True)
    padding = tuple(paddings[a][s] + q * blocks[a][0] - crops[a][s] for s, a, q in sides)
    if min(padding) < 0:
        return None
    return dataclasses.replace(conv, padding=padding, dilation=(blocks["H"][0], blocks["W"][0]))


def _by_axis(data_layout: str, pairs: Sequence[Pair], neutral: Pair) -> dict[str, Pair] | None:
    """What is said of the axes after the first, by letter; None where it concerns other than spatial axes."""
    letters = data_layout[1 : 1 + len(pairs)]
    if data_layout[:1] != "N" or len(letters) != len(pairs):
        return None
    pads_of = dict(zip(letters, (tuple(p) for p in pairs), strict=True))
    if pads_of.get("C", neutral) != neutral:
        return None
    return {a: pads_of.get(a, neutral) for a in "HW"}  # type: ignore[misc]


def _four(padding: Sequence[int]) -> tuple[int, int, int, int]:
    """Top, left, bottom, right."""
    if len(padding) == 4:
        return padding[0], padding[1], padding[2], padding[3]
    return padding[0], padding[-1], padding[0], padding[-1]
