"""Gradients of the layers of networks: products, convolutions, pooling, normalisation, losses.

In: a call and the gradient of its result. Out: the gradients of its arguments. Invariant: convolutions are
differentiated in NCHW with OIHW weights; other layouts are refused by name. Pooling is taken apart by the places in its
window.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from armillary.errors import UnsupportedError
from armillary.ops.gradient.rules import Grads, collapse, normal_axis, number, op, rule_of, tensor, zeros_like
from armillary.relay.expr import Call, Expr


@rule_of("nn.bias_add")
def bias_add(call: Call, grad: Expr) -> Grads:
    """The bias gets the sum over all other axes."""
    return [grad, op("sum", grad, axis=call.attrs.axis, keepdims=False, exclude=True)]


@rule_of("nn.dense")
def dense(call: Call, grad: Expr) -> Grads:
    """G W, and Gᵀ X."""
    data, weight = call.args
    rows = op("reshape", data, newshape=(-1, tensor(data).shape[-1]))
    flat = op("reshape", grad, newshape=(-1, tensor(grad).shape[-1]))
    return [
        collapse(op("nn.dense", grad, op("transpose", weight)), data),
        op("nn.dense", op("transpose", flat), op("transpose", rows)),
    ]


def _flipped(x: Expr, is_flipped: bool) -> Expr:
    ndim = tensor(x).ndim
    return op("transpose", x, axes=(*range(ndim - 2), ndim - 1, ndim - 2)) if is_flipped else x


@rule_of("nn.matmul", "nn.batch_matmul")
def matmul(call: Call, grad: Expr) -> Grads:
    """G Bᵀ and Aᵀ G, transposed as the arguments are."""
    (a, b), attrs, name = call.args, call.attrs, call.op.name
    b_back = op(name, grad, b, transpose_a=False, transpose_b=not attrs.transpose_b)
    a_back = op(name, a, grad, transpose_a=not attrs.transpose_a, transpose_b=False)
    return [collapse(_flipped(b_back, attrs.transpose_a), a), collapse(_flipped(a_back, attrs.transpose_b), b)]


@rule_of("nn.softmax")
def softmax(call: Call, grad: Expr) -> Grads:
    """(G - sum(G Y)) Y."""
    return [(grad - op("sum", grad * call, axis=call.attrs.axis, keepdims=True)) * call]


@rule_of("nn.log_softmax")
def log_softmax(call: Call, grad: Expr) -> Grads:
    """G - sum(G) softmax(X)."""
    axis = call.attrs.axis
    return [grad - op("sum", grad, axis=axis, keepdims=True) * op("exp", call)]


@rule_of("nn.dropout")
def dropout(call: Call, grad: Expr) -> Grads:
    """Nothing is dropped when a network runs, so the gradient passes."""
    del call
    return [grad]


@rule_of("nn.batch_norm")
def batch_norm(call: Call, grads: Any) -> Grads:
    """Of the form a running network has: the moving mean and variance are numbers that do not change."""
    data, gamma, _, centre, spread = call.args
    attrs, ty = call.attrs, tensor(data)
    axis = normal_axis(attrs.axis, ty.ndim)
    shape = tuple(ty.shape[k] if k == axis else 1 for k in range(ty.ndim))

    def wide(x: Expr) -> Expr:
        return op("reshape", x, newshape=shape)

    grad = grads[0]
    scale = op("rsqrt", spread + number(attrs.epsilon, spread))
    normal = (data - wide(centre)) * wide(scale)
    back = grad * wide(scale * gamma if attrs.scale else scale)
    sums = [op("sum", g, axis=(axis,), exclude=True) for g in (grad * normal, grad)]
    return [back, sums[0] if attrs.scale else None, sums[1] if attrs.center else None, None, None]


# --- convolutions ---------------------------------------------------------------------------------------------------


def _pads(padding: Any) -> tuple[int, int, int, int]:
    """Top, left, bottom, right."""
    pads = (padding,) if isinstance(padding, int) else tuple(padding)
    pads = pads * 2 if len(pads) == 1 else pads
    return pads * 2 if len(pads) == 2 else pads


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (tuple(value) * 2)[:2]


@rule_of("nn.conv2d")
def conv2d(call: Call, grad: Expr) -> Grads:
    """The data's gradient is a transposed convolution; the weight's a convolution of the data with the gradient."""
    (data, weight), attrs = call.args, call.attrs
    if (attrs.data_layout, attrs.kernel_layout) != ("NCHW", "OIHW") or attrs.out_layout not in ("", "NCHW"):
        message = f"gradient of nn.conv2d in layouts {attrs.data_layout} and {attrs.kernel_layout}"
        raise UnsupportedError(message, hint="convert the function to NCHW and OIHW with ConvertLayout first")
    size, filters = tensor(data).static[2:], tensor(weight).static
    pads, strides, dilation = _pads(attrs.padding), _pair(attrs.strides), _pair(attrs.dilation)
    out = tensor(grad).static[2:]
    extra = tuple(
        n + pads[k] + pads[k + 2] - (o - 1) * s - (f - 1) * d - 1
        for k, (n, o, s, f, d) in enumerate(zip(size, out, strides, filters[2:], dilation, strict=True))
    )
    back = op(
        "nn.conv2d_transpose",
        grad,
        weight,
        strides=strides,
        padding=pads,
        dilation=dilation,
        groups=attrs.groups,
        output_padding=extra,
        channels=tensor(data).static[1],
        kernel_size=filters[2:],
    )
    of_weight = conv2d_weight(grad, data, filters[2:], strides, pads, dilation, attrs.groups)
    return [back, of_weight]


def conv2d_weight(
    grad: Expr, data: Expr, kernel: Sequence[int], strides: object, padding: object, dilation: object, groups: int
) -> Expr:
    """The gradient of an OIHW weight: images become channels, strides and dilation change places."""
    batch, channels, *size = tensor(data).static
    units, out = tensor(grad).static[1], tensor(grad).static[2:]
    x = op("reshape", data, newshape=(batch, groups, channels // groups, *size))
    x = op("reshape", op("transpose", x, axes=(2, 1, 0, 3, 4)), newshape=(channels // groups, groups * batch, *size))
    g = op("transpose", grad, axes=(1, 0, 2, 3))
    result = op(
        "nn.conv2d",
        x,
        g,
        strides=_pair(dilation),
        dilation=_pair(strides),
        padding=_pads(padding),
        groups=groups,
        channels=units,
        kernel_size=out,
    )
    result = op("transpose", result, axes=(1, 0, 2, 3))
    if tensor(result).static[2:] == tuple(kernel):
        return result
    return op("strided_slice", result, begin=(0, 0), end=tuple(kernel), axes=(2, 3))


# --- pooling --------------------------------------------------------------------------------------------------------


class Windows:
    """A pooling by the places in its window: what each reads, and how its gradient goes back."""

    def __init__(self, call_attrs: Any, data: Expr, out: Sequence[int]) -> None:  # Any: attributes of a pooling
        self.data, self.shape = data, tensor(data).static
        rank = len(call_attrs.pool_size)
        first = call_attrs.layout.index("W" if rank == 1 else "H" if rank == 2 else "D")
        self.axes = tuple(range(first, first + rank))
        self.strides, self.dilation = _full(call_attrs.strides, rank), _full(call_attrs.dilation, rank)
        self.kernel = _full(call_attrs.pool_size, rank)
        pads = tuple(call_attrs.padding)
        pads = pads * (2 * rank) if len(pads) == 1 else pads * 2 if len(pads) == rank else pads
        self.before, self.after = pads[:rank], list(pads[rank:])
        self.own_after = tuple(self.after)
        self.out = tuple(out[a] for a in self.axes)
        for k, axis in enumerate(self.axes):
            reach = (self.out[k] - 1) * self.strides[k] + (self.kernel[k] - 1) * self.dilation[k] + 1
            self.after[k] = max(self.after[k], reach - self.shape[axis] - self.before[k])

    def width(self, axis_pads: dict[int, tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """Padding for all axes."""
        return tuple(axis_pads.get(k, (0, 0)) for k in range(len(self.shape)))

    def padded(self, x: Expr, value: float) -> Expr:
        """The data with its padding."""
        pads = {a: (self.before[k], self.after[k]) for k, a in enumerate(self.axes)}
        return op("nn.pad", x, pad_width=self.width(pads), pad_value=value)

    def places(self) -> list[tuple[int, ...]]:
        """The offsets of the window's elements."""
        return [
            tuple(i * d for i, d in zip(at, self.dilation, strict=True))
            for at in itertools.product(*(range(k) for k in self.kernel))
        ]

    def read(self, padded: Expr, place: Sequence[int]) -> Expr:
        """What a place reads, in the result's shape."""
        spans = zip(place, self.out, self.strides, strict=True)
        ends = tuple(p + (o - 1) * s + 1 for p, o, s in spans)
        return op("strided_slice", padded, begin=tuple(place), end=ends, strides=self.strides, axes=self.axes)

    def back(self, grad: Expr, place: Sequence[int]) -> Expr:
        """A gradient in the result's shape, put where the place read it, in the padded data's shape."""
        strides = tuple(self.strides[self.axes.index(k)] if k in self.axes else 1 for k in range(len(self.shape)))
        spread = op("nn.dilate", grad, strides=strides)
        pads = {}
        for k, axis in enumerate(self.axes):
            total = self.shape[axis] + self.before[k] + self.after[k]
            pads[axis] = (place[k], total - place[k] - ((self.out[k] - 1) * self.strides[k] + 1))
        return op("nn.pad", spread, pad_width=self.width(pads))

    def cropped(self, padded: Expr) -> Expr:
        """Without the padding."""
        ends = tuple(b + self.shape[a] for b, a in zip(self.before, self.axes, strict=True))
        return op("strided_slice", padded, begin=tuple(self.before), end=ends, axes=self.axes)


def _full(value: Any, rank: int) -> tuple[int, ...]:
    sizes = (value,) if isinstance(value, int) else tuple(value)
    return sizes * rank if len(sizes) == 1 else sizes


def _sum(terms: Sequence[Expr]) -> Expr:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def max_pool_back(grad: Expr, data: Expr, attrs: object) -> Expr:  # attributes of a pooling
    """Each gradient goes to the first element of its window that has the maximum."""
    windows = Windows(attrs, data, tensor(grad).static)
    padded = windows.padded(data, -3.0e38 if str(tensor(data).dtype) != "float16" else -6.0e4)
    reads = [windows.read(padded, place) for place in windows.places()]
    highest = reads[0]
    for read in reads[1:]:
        highest = op("maximum", highest, read)
    none, left, terms = zeros_like(grad), None, []
    for read, place in zip(reads, windows.places(), strict=True):
        here = op("equal", read, highest)
        free = here if left is None else op("logical_and", here, left)
        terms.append(windows.back(op("where", free, grad, none), place))
        missed = op("logical_not", here)
        left = missed if left is None else op("logical_and", left, missed)
    return windows.cropped(_sum(terms))


def avg_pool_back(grad: Expr, data: Expr, attrs: Any) -> Expr:  # Any: attributes of a pooling
    """Each element of a window gets its share."""
    windows = Windows(attrs, data, tensor(grad).static)
    ones = op("ones_like", data)
    if attrs.count_include_pad:
        pads = {a: (windows.before[k], windows.own_after[k]) for k, a in enumerate(windows.axes)}
        counted = op("nn.pad", ones, pad_width=windows.width(pads), pad_value=1.0)
        pads = {a: (0, windows.after[k] - windows.own_after[k]) for k, a in enumerate(windows.axes)}
        counted = op("nn.pad", counted, pad_width=windows.width(pads))
    else:
        counted = windows.padded(ones, 0.0)
    count = _sum([windows.read(counted, place) for place in windows.places()])
    share = grad / count
    return windows.cropped(_sum([windows.back(share, place) for place in windows.places()]))


@rule_of("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")
def max_pool(call: Call, grad: Expr) -> Grads:
    """See max_pool_back."""
    return [max_pool_back(grad, call.args[0], call.attrs)]


@rule_of("nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d")
def avg_pool(call: Call, grad: Expr) -> Grads:
    """See avg_pool_back."""
    return [avg_pool_back(grad, call.args[0], call.attrs)]


@rule_of("nn.global_avg_pool1d", "nn.global_avg_pool2d", "nn.global_avg_pool3d")
def global_avg_pool(call: Call, grad: Expr) -> Grads:
    """Each element gets the gradient over the count."""
    shape = tensor(call.args[0]).static
    count = 1
    for size, retained in zip(shape, tensor(grad).static, strict=True):
        count *= size if retained == 1 else 1
    return [op("broadcast_to", grad * number(1.0 / count, grad), shape=shape)]


@rule_of("nn.global_max_pool1d", "nn.global_max_pool2d", "nn.global_max_pool3d")
def global_max_pool(call: Call, grad: Expr) -> Grads:
    """The gradient goes to the elements that have the maximum, each its share."""
    x = call.args[0]
    axes = tuple(k for k, size in enumerate(tensor(grad).static) if size == 1)
    here = op("cast", op("equal", x, call), dtype=str(tensor(x).dtype))
    return [grad * here / op("sum", here, axis=axes, keepdims=True)]


@rule_of("nn.layer_norm")
def layer_norm(call: Call, grad: Expr) -> Grads:
    """The three sums of a normalisation over one axis."""
    data, gamma, _ = call.args
    attrs, ty = call.attrs, tensor(data)
    axis = normal_axis(attrs.axis, ty.ndim)
    centred = data - op("mean", data, axis=axis, keepdims=True)
    scale = op("rsqrt", op("mean", centred * centred, axis=axis, keepdims=True) + number(attrs.epsilon, data))
    normal = centred * scale
    shape = tuple(ty.shape[k] if k == axis else 1 for k in range(ty.ndim))
    inner = grad * op("reshape", gamma, newshape=shape) if attrs.scale else grad
    means = [op("mean", g, axis=axis, keepdims=True) for g in (inner, inner * normal)]
    sums = [op("sum", g, axis=(axis,), exclude=True) for g in (grad * normal, grad)]
    back = scale * (inner - means[0] - normal * means[1])
    return [back, sums[0] if attrs.scale else None, sums[1] if attrs.center else None]
