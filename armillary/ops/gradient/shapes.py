"""Gradients of operators that move or add up elements.

In: a call and the gradient of its result. Out: the gradients of its arguments. Invariant: indices and shapes have none.
"""

from __future__ import annotations

import math
from typing import Any

from armillary.errors import UnsupportedError
from armillary.ops._types import tuple_fields
from armillary.ops.gradient.rules import (
    Grads,
    collapse,
    is_static,
    normal_axis,
    number,
    op,
    reshaped,
    rule_of,
    tensor,
    zeros_like,
)
from armillary.relay.expr import Call, Expr, Tuple
from armillary.relay.op import get_op
from armillary.relay.op.facts import Fact


@rule_of("reshape", "expand_dims", "squeeze", "nn.batch_flatten", "contrib_reverse_reshape", "reverse_reshape")
def same_elements(call: Call, grad: Expr) -> Grads:
    """The gradient in the argument's shape."""
    return [reshaped(grad, call.args[0])]


@rule_of("reshape_like")
def reshape_like(call: Call, grad: Expr) -> Grads:
    """As above; none for what gave the shape."""
    return [reshaped(grad, call.args[0]), None]


@rule_of("dynamic")
def dynamic(call: Call, grad: Grads | Expr) -> Grads:
    """That of the operator for its tensors, where a shape alone is a value; none for values."""
    fields, attrs = call.args[0], call.attrs
    count = len(tuple_fields(call.op.name, fields.checked_type))
    asked = get_op(attrs.op)
    if Fact.FLAT in asked.facts:
        return [[None] * count]
    if Fact.VIEW not in asked.facts or not isinstance(fields, Tuple):
        hint = f"say how with relay.op.register_gradient({attrs.op!r}, rule), and bind the values"
        raise UnsupportedError(f"operator {attrs.op} with attributes that are values has no gradient", hint=hint)
    return [[reshaped(grad, fields.fields[0]), *[None] * (count - 1)]]  # type: ignore[arg-type]  # of a tensor


@rule_of("broadcast_to")
def broadcast_to(call: Call, grad: Expr) -> Grads:
    """Sums along what was broadcast."""
    return [collapse(grad, call.args[0])]


@rule_of("collapse_sum_to", "collapse_sum_like")
def collapsed(call: Call, grad: Expr) -> Grads:
    """Each element that was added gets the gradient of the sum."""
    back = op("broadcast_to", grad, shape=tensor(call.args[0]).static)
    return [back, None][: len(call.args)]


@rule_of("transpose")
def transpose(call: Call, grad: Expr) -> Grads:
    """The inverse permutation."""
    ndim = tensor(call.args[0]).ndim
    axes = [normal_axis(a, ndim) for a in call.attrs.axes or range(ndim - 1, -1, -1)]
    return [op("transpose", grad, axes=tuple(axes.index(k) for k in range(ndim)))]


@rule_of("reverse")
def reverse(call: Call, grad: Expr) -> Grads:
    """The gradient of a reversed tensor is reversed again."""
    return [op("reverse", grad, axis=call.attrs.axis)]


@rule_of("layout_transform")
def layout_transform(call: Call, grad: Expr) -> Grads:
    """From the second layout to the first."""
    return [op("layout_transform", grad, src_layout=call.attrs.dst_layout, dst_layout=call.attrs.src_layout)]


@rule_of("concatenate")
def concatenate(call: Call, grad: Expr) -> Grads:
    """Each part gets its slice."""
    parts = call.args[0].checked_type.fields  # type: ignore[attr-defined]
    axis = normal_axis(call.attrs.axis, parts[0].ndim)
    at, slices = 0, []
    for part in parts:
        size = part.static[axis]
        slices.append(op("strided_slice", grad, begin=(at,), end=(at + size,), axes=(axis,)))
        at += size
    return [slices]


@rule_of("stack")
def stack(call: Call, grad: Expr) -> Grads:
    """Each part gets its slice, without the new axis."""
    parts = call.args[0].checked_type.fields  # type: ignore[attr-defined]
    axis = normal_axis(call.attrs.axis, parts[0].ndim + 1)
    slices = [op("strided_slice", grad, begin=(k,), end=(k + 1,), axes=(axis,)) for k in range(len(parts))]
    return [[op("squeeze", part, axis=(axis,)) for part in slices]]


@rule_of("split")
def split(call: Call, grads: Any) -> Grads:
    """The gradients of the parts, one behind the other."""
    return [op("concatenate", Tuple(tuple(grads)), axis=call.attrs.axis)]


@rule_of("strided_slice")
def strided_slice(call: Call, grad: Expr) -> Grads:
    """The gradient written where the slice was read, zeros elsewhere."""
    x, attrs = call.args[0], call.attrs
    shape = tensor(x).static
    slices = [slice(0, size, 1) for size in shape]
    axes = attrs.axes if attrs.axes is not None else tuple(range(len(attrs.begin)))
    strides = attrs.strides or (1,)
    strides = tuple(strides) * len(axes) if len(strides) == 1 else tuple(strides)
    sized = attrs.slice_mode == "size"
    for axis, begin, end, stride in zip(axes, attrs.begin, attrs.end, strides, strict=False):
        size, first = shape[axis], (begin or 0) + (shape[axis] if (begin or 0) < 0 else 0)
        last = size if end is None or (sized and end < 0) else first + end if sized else end
        slices[axis] = slice(first if begin is not None else None, last, 1 if sized else stride)
    limits = [s.indices(n) for s, n in zip(slices, shape, strict=True)]
    begins, ends, steps = zip(*limits, strict=True)
    ends = tuple(-n - 1 if e < 0 else e for e, n in zip(ends, shape, strict=True))
    return [op("strided_set", zeros_like(x), grad, begin=begins, end=ends, strides=steps)]


@rule_of("nn.pad")
def pad(call: Call, grad: Expr) -> Grads:
    """What is not padding."""
    if call.attrs.pad_mode != "constant":
        raise UnsupportedError(
            f"gradient of nn.pad with pad_mode={call.attrs.pad_mode!r}", hint="only 'constant' has one"
        )
    shape = tensor(call.args[0]).static
    begins = tuple(before for before, _ in call.attrs.pad_width)
    ends = tuple(b + n for b, n in zip(begins, shape, strict=True))
    none = [None] * (len(call.args) - 1)
    return [op("strided_slice", grad, begin=begins, end=ends), *none]


@rule_of("take")
def take(call: Call, grad: Expr) -> Grads:
    """The gradient added up where it was read, by a product with the positions in one-hot form."""
    data, indices = call.args
    ty, attrs = tensor(data), call.attrs
    if attrs.batch_dims:
        raise UnsupportedError("gradient of take with batch_dims", hint="take along one axis")
    shape = ty.static if attrs.axis is not None else (math.prod(ty.static),)
    axis = normal_axis(attrs.axis, len(shape)) if attrs.axis is not None else 0
    before, size, after = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    flat = op("reshape", indices, newshape=(-1,))
    index_dtype = str(tensor(indices).dtype)
    if attrs.mode == "wrap":
        flat = op("floor_mod", flat, number(size, indices))
    else:
        flat = op("clip", flat, a_min=0, a_max=size - 1)
    hot = op(
        "cast",
        op("equal", op("expand_dims", flat, axis=1), op("arange", 0, size, 1, dtype=index_dtype)),
        dtype=str(ty.dtype),
    )
    wide = op("reshape", grad, newshape=(before, -1, after)) if after else grad
    hot = op("broadcast_to", op("expand_dims", hot, axis=0), shape=(before, tensor(flat).shape[0], size))
    summed = op("nn.batch_matmul", hot, wide, transpose_a=True, transpose_b=False)
    return [op("reshape", summed, newshape=ty.static), None]


@rule_of("gather_nd")
def gather_nd(call: Call, grad: Expr) -> Grads:
    """The gradient added up where it was read."""
    if call.attrs.batch_dims:
        raise UnsupportedError("gradient of gather_nd with batch_dims", hint="gather without batch_dims")
    data, indices = call.args
    return [op("scatter_nd", zeros_like(data), indices, grad, mode="add"), None]


@rule_of("one_hot")
def one_hot(call: Call, grad: Expr) -> Grads:
    """What is on and what is off get the sums over their places."""
    indices, on, off, *_ = call.args
    attrs = call.attrs
    dtype = str(tensor(grad).dtype)
    ones, none = number(1, grad), number(0, grad)
    chosen = get_op("one_hot")(indices, ones, none, depth=attrs.depth, axis=attrs.axis, dtype=dtype)
    first = op("sum", grad * chosen)
    other = op("sum", grad * (number(1, grad) - chosen))
    return [None, op("cast", first, dtype=str(tensor(on).dtype)), op("cast", other, dtype=str(tensor(off).dtype))]


# --- reductions -----------------------------------------------------------------------------------------------------


def _axes(call: Call) -> tuple[int, ...]:
    """The axes that a reduction removes."""
    attrs, ndim = call.attrs, tensor(call.args[0]).ndim
    reduced = tuple(range(ndim)) if attrs.axis is None else attrs.axis
    reduced = (reduced,) if isinstance(reduced, int) else reduced
    axes = {normal_axis(a, ndim) for a in reduced}
    return tuple(k for k in range(ndim) if (k in axes) != (attrs.exclude and attrs.axis is not None))


def _with_reduced_axes(call: Call, value: Expr) -> Expr:
    """A result of a reduction with the axes that it removed, of size 1."""
    if call.attrs.keepdims:
        return value
    axes, ty = _axes(call), tensor(call.args[0])
    if is_static(ty):
        return op("reshape", value, newshape=tuple(1 if k in axes else d for k, d in enumerate(ty.static)))
    for axis in axes:
        value = op("expand_dims", value, axis=axis)
    return value


def _count(call: Call) -> int:
    shape = tensor(call.args[0]).static
    return math.prod(shape[k] for k in _axes(call))


def _spread(call: Call, grad: Expr) -> Expr:
    return op("broadcast_to_like", _with_reduced_axes(call, grad), call.args[0])


@rule_of("sum")
def total(call: Call, grad: Expr) -> Grads:
    """Each element gets the gradient of its sum."""
    return [_spread(call, grad)]


@rule_of("mean")
def mean(call: Call, grad: Expr) -> Grads:
    """The same, divided by the count."""
    return [_spread(call, grad) * number(1.0 / _count(call), grad)]


@rule_of("variance")
def variance(call: Call, grad: Expr) -> Grads:
    """2 (x - mean) / count, and its negative sum for the mean."""
    x, centre = call.args
    count = _count(call) - (1 if call.attrs.unbiased else 0)
    slope = _spread(call, grad) * (x - centre) * number(2.0 / count, grad)
    return [slope, collapse(op("negative", slope), centre)]


@rule_of("max", "min")
def extreme(call: Call, grad: Expr) -> Grads:
    """The gradient goes to the elements that have the extreme value, each its share."""
    x = call.args[0]
    here = op("cast", op("equal", x, _with_reduced_axes(call, call)), dtype=str(tensor(x).dtype))
    count = op("sum", here, axis=_axes(call), keepdims=True)
    return [_spread(call, grad) * here / count]


@rule_of("prod")
def product(call: Call, grad: Expr) -> Grads:
    """The product over the element."""
    x = call.args[0]
    return [_spread(call, grad * call) / x]


@rule_of("cumsum")
def cumsum(call: Call, grad: Expr) -> Grads:
    """Sums from the other end."""
    attrs, ty = call.attrs, tensor(call.args[0])
    axis = 0 if attrs.axis is None else attrs.axis
    back = op("reverse", grad, axis=axis)
    back = op("reverse", op("cumsum", back, axis=axis, exclusive=attrs.exclusive), axis=axis)
    return [op("cast", op("reshape", back, newshape=ty.static), dtype=str(ty.dtype))]
