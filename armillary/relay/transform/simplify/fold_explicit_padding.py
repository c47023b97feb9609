"""fold-explicit-padding: padding in front of a convolution or pooling becomes its own.

In: a module. Out: the same without `nn.pad` in front of nn.conv1d/2d/3d (zeros), qnn.conv2d (its zero point),
nn.max_pool1d/2d/3d (the lowest number) and nn.avg_pool1d/2d/3d (zeros that count), where only spatial axes are padded.
Invariant: the same results.

    def @main(%x: Tensor[(1, 2, 5, 5), float32], %w: Tensor[(2, 2, 3, 3), float32]) {
      %0 = nn.pad(%x, pad_width=[[0, 0], [0, 0], [1, 1], [2, 0]]);
      nn.conv2d(%0, %w)
    }
    ->
    def @main(%x: Tensor[(1, 2, 5, 5), float32], %w: Tensor[(2, 2, 3, 3), float32]) {
      nn.conv2d(%x, %w, padding=[1, 2, 1, 0])
    }
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, known_of
from armillary.relay.transform._rules import op_name, rewrite_module, splat
from armillary.transform import define_pass

_CONVOLUTIONS = {f"nn.conv{n}d": n for n in (1, 2, 3)}
_MAXIMA = {f"nn.max_pool{n}d": n for n in (1, 2, 3)}
_AVERAGES = {f"nn.avg_pool{n}d": n for n in (1, 2, 3)}
_RANKS = {**_CONVOLUTIONS, **_MAXIMA, **_AVERAGES}


@define_pass("fold-explicit-padding")
def fold_explicit_padding(module: IRModule) -> IRModule:
    """Fold nn.pad into what reads it."""
    return rewrite_module(module, fold)


def fold(expr: Expr) -> Expr | None:
    """conv(pad(x), w)  ->  conv(x, w)   if the padding is of spatial axes and of the value that counts for nothing"""
    own_name = op_name(expr)
    name, is_quantized = own_name.removeprefix("q"), own_name.startswith("qnn")  # as the plain operator is called
    if name not in _RANKS or not isinstance(expr, Call) or op_name(expr.args[0]) != "nn.pad":
        return None
    pad, attrs = expr.args[0], expr.attrs
    assert isinstance(pad, Call), "op_name is of calls"
    layout = str(getattr(attrs, "data_layout", "") or getattr(attrs, "layout", ""))
    widths = _spatial_widths(pad.attrs, layout)
    if widths is None or not _is_neutral(name, is_quantized, pad, expr):
        return None
    own = _pairs(attrs.padding, len(widths))
    sums = [(a + c, b + d) for (a, b), (c, d) in zip(own, widths, strict=True)]
    if pad.attrs.pad_value == float("-inf") and not _fits(attrs, sums):
        return None  # the maximum of a window of nothing but padding is the least number that is finite
    first, last = (tuple(pair[side] for pair in sums) for side in (0, 1))
    changed: dict[str, object] = {"padding": first if is_quantized and first == last else first + last}
    if name in _AVERAGES and not any(map(any, own)):
        changed["count_include_pad"] = True
    result = Call(expr.op, (pad.args[0], *expr.args[1:]), dataclasses.replace(attrs, **changed), expr.span)
    return result if _keeps_size(expr, result) else None


def _keeps_size(before: Call, after: Call) -> bool:
    """Whether the sizes stay: with ceil_mode no window starts in own padding, and one may in padding in front."""
    one, other = known_of(before), known_of(after)
    return one is not None and other is not None and one.shape == other.shape


def _spatial_widths(attrs: Any, layout: str) -> list[tuple[int, int]] | None:  # Any: of nn.pad
    """Padding of the spatial axes; None where another axis is padded, or a width is negative."""
    if attrs.pad_mode != "constant" or len(layout) != len(attrs.pad_width):
        return None
    result = []
    for axis, (before, after) in zip(layout, attrs.pad_width, strict=True):
        if min(before, after) < 0 or (axis not in "DHW" and (before or after)):
            return None
        if axis in "DHW":
            result.append((before, after))
    return result


def _fits(attrs: Any, pads: list[tuple[int, int]]) -> bool:  # Any: attributes of a pooling
    """Whether padding is smaller than the window of a pooling."""
    sizes, steps = (_each(value, len(pads)) for value in (attrs.pool_size, attrs.dilation))
    return all(max(pair) < (n - 1) * d + 1 for pair, n, d in zip(pads, sizes, steps, strict=True))


def _each(value: int | tuple[int, ...], rank: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * rank if len(values) == 1 else values


def _is_neutral(name: str, is_quantized: bool, pad: Call, reader: Call) -> bool:
    """Whether what is padded counts for nothing (or for what zeros count in an average)."""
    value, ty = pad.attrs.pad_value, known_of(pad)
    if ty is None:
        return False
    if name in _MAXIMA:
        dtype = ty.dtype.numpy
        lowest = np.finfo(dtype).min if ty.dtype.is_float else np.iinfo(dtype).min
        return bool(value <= lowest)
    if is_quantized:
        zero = splat(reader.args[2])
        return zero is not None and bool(value == zero)
    if value != 0:
        return False
    return name in _CONVOLUTIONS or bool(reader.attrs.count_include_pad) or not any(reader.attrs.padding)


def _pairs(padding: int | tuple[int, ...], rank: int) -> list[tuple[int, int]]:
    pads = (padding,) if isinstance(padding, int) else tuple(padding)
    pads = pads * rank if len(pads) == 1 else pads
    pads = pads * 2 if len(pads) == rank else pads
    return list(zip(pads[:rank], pads[rank:], strict=True))
