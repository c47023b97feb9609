"""conv2d-before-resize: 1x1 convolutions of enlarged images before the enlarging.

In: a typed module, resizings decomposed, batch normalisation folded. Out: a 1x1 nn.conv2d of an enlarged image, or of a
concatenation with enlarged ones, convolves those before they are enlarged, on fewer pixels; the results are added. What
enlarges is any sum of rows and columns taken from one image, with factors that do not depend on the channel. Invariant:
the same sums in another order, as both are linear and act on different axes; only where that leaves out a good part of
the products.

    nn.conv2d(concatenate((take(%x, rows, axis=2), %y), axis=1), %w)
    ->
    add(nn.conv2d(%y, %w[:, of %y]), take(nn.conv2d(%x, %w[:, of %x]), rows, axis=2))
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from armillary.base.aliases import Array
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Tuple
from armillary.relay.transform._rules import Found, Readers, concatenated, op_name, rewrite_found, tensor
from armillary.relay.walk import substitute
from armillary.transform import define_pass

LEFT = 0.45  # of the products at most: at 0.5, necks of detectors, nothing is gained; at 0.33, SegFormer's head, a lot
LEAST = 1 << 20  # products saved: a few microseconds, against a kernel more
WIDER = 2  # a result has at most that many times the channels of an image that is no longer enlarged


@define_pass("conv2d-before-resize", opt_level=3)
def conv2d_before_resize(module: IRModule) -> IRModule:
    """Move the convolutions."""
    return rewrite_found(module, _moved)


def _moved(expr: Expr, readers: Readers) -> Found | None:
    parts = _parts(expr, readers)
    if not parts or not isinstance(expr, Call):
        return None
    return Found(tuple(_source(p) for p in parts), lambda *sources: _sum(expr, parts, sources))


def _parts(expr: Expr, readers: Readers) -> list[Expr]:
    """What a 1x1 convolution reads, side by side, if moving it pays; else nothing."""
    if not _is_pointwise(expr) or not isinstance(expr, Call):
        return []
    data, result = expr.args[0], tensor(expr)
    parts, joins = [data], [data]
    if op_name(data) == "concatenate" and isinstance(data, Call) and isinstance(data.args[0], Tuple):
        parts, joins = list(data.args[0].fields), [data, data.args[0]]
        if data.attrs.axis not in (1, -3):
            return []
    if result is None or any(tensor(p) is None for p in parts) or any(len(readers[id(j)]) > 1 for j in joins):
        return []
    _, outputs, *size = result.static
    widths = [tensor(p).static[1] for p in parts]  # type: ignore[union-attr]
    pixels = [math.prod(tensor(_source(p)).static[2:]) for p in parts]  # type: ignore[union-attr]
    before = math.prod(size) * sum(widths)
    after = sum(w * p for w, p in zip(widths, pixels, strict=True))
    moved = [(p, w) for p, w in zip(parts, widths, strict=True) if _source(p) is not p]
    if any(len(readers[id(p)]) > 1 or outputs > WIDER * w for p, w in moved):
        return []
    return parts if after <= LEFT * before and (before - after) * outputs * result.static[0] >= LEAST else []


def _is_pointwise(expr: Expr) -> bool:
    """Whether it is a plain 1x1 convolution of float32 by a constant weight."""
    if op_name(expr) != "nn.conv2d" or not isinstance(expr, Call) or not isinstance(expr.args[1], Constant):
        return False
    a, data, result = expr.attrs, tensor(expr.args[0]), tensor(expr)
    layouts = (a.data_layout, a.kernel_layout, a.out_layout or "NCHW")
    if data is None or result is None or layouts != ("NCHW", "OIHW", "NCHW") or a.groups != 1:
        return False
    same = str(data.dtype) == str(result.dtype) == "float32" and data.static[2:] == result.static[2:]
    return same and tuple(expr.args[1].held.shape[2:]) == (1, 1) and not any(a.padding) and set(a.strides) == {1}


def _source(part: Expr) -> Expr:
    """The image that a part is an enlarged one of; else the part itself."""
    result = _leaf(part, {})
    small, large = tensor(result), tensor(part)
    if small is None or large is None or small.ndim != 4 or small.static[:2] != large.static[:2]:
        return part
    return result if math.prod(small.static[2:]) < math.prod(large.static[2:]) else part


def _leaf(expr: Expr, known: dict[int, Expr]) -> Expr:
    """The one expression whose rows and columns this is a sum of, with factors; itself, if it is no such sum."""
    if id(expr) not in known:
        known[id(expr)] = _inner(expr, known)
    return known[id(expr)]


def _inner(expr: Expr, known: dict[int, Expr]) -> Expr:
    if not isinstance(expr, Call):
        return expr
    name = op_name(expr)
    if name == "take" and isinstance(expr.args[1], Constant) and expr.attrs.axis in (2, 3):
        return _leaf(expr.args[0], known)
    if name == "multiply":
        return next((_leaf(x, known) for x, c in (expr.args, expr.args[::-1]) if _is_factor(c)), expr)
    if name == "add":
        left, right = (_leaf(x, known) for x in expr.args)
        return left if left is right and all(x is not left for x in expr.args) else expr
    return expr


def _is_factor(expr: Expr) -> bool:
    """Whether it is a constant with one number for all channels."""
    return isinstance(expr, Constant) and math.prod(expr.held.shape[:-2]) == 1


def _sum(expr: Call, parts: Sequence[Expr], sources: Sequence[Expr]) -> Expr:
    """The convolution of what stays, and what is enlarged after it."""
    weight = expr.args[1]
    assert isinstance(weight, Constant), "checked by _is_pointwise"
    ends = np.cumsum([tensor(p).static[1] for p in parts])  # type: ignore[union-attr]
    weights = np.split(weight.data, ends[:-1], axis=1)
    staying = [k for k, p in enumerate(parts) if _source(p) is p]
    total: Expr | None = None
    if staying:
        images = [sources[k] for k in staying]
        total = _convolved(expr, concatenated(images, 1), np.concatenate([weights[k] for k in staying], axis=1))
    for k, part in enumerate(parts):
        if k in staying:
            continue
        large = substitute(part, {id(_source(part)): _convolved(expr, sources[k], weights[k])})
        total = large if total is None else total + large
    assert total is not None, "a convolution reads something"
    return total


def _convolved(expr: Call, image: Expr, weight: Array) -> Call:
    attrs = dataclasses.replace(expr.attrs, kernel_size=(1, 1))
    return Call(expr.op, (image, Constant(np.ascontiguousarray(weight))), attrs, expr.span)
