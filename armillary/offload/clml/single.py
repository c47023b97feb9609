"""Operators that OpenCLML computes alone: pooling, activations, sums, softmax, shapes.

In: matches of one call. Out: None or why not, and a node of the call's arguments with its attributes. Invariant: four
dimensions are NCHW; operands of a sum have one shape, as the preparation (prepare.py) sees to.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.offload.clml.convolution import RELU6, channel_vector
from armillary.offload.clml.limits import check_values, is_single
from armillary.offload.graph_json import Kernel, attributes, flattened, texts
from armillary.offload.rows import Composite, first, four, inside, is_rank, is_value, name_of, tensor
from armillary.relay.expr import Call, Constant, Expr, TupleGetItem, Var
from armillary.relay.pattern import DFPattern, is_constant, is_op, is_tuple, is_tuple_get_item, wildcard

Rule = Callable[[Call], str | None]
BINARY = ("add", "subtract", "multiply", "divide", "minimum", "maximum")


def _call(root: Expr) -> Call:
    assert isinstance(root, Call), "the pattern has a call"
    return root


def _as_is(name: str = "") -> Callable[[Call], Kernel]:
    """The node of a call's own arguments and attributes."""

    def kernel(call: Call) -> Kernel:
        body, outside = inside(call)
        one = _call(body)
        values = tuple(outside.get(id(e), e) for e in flattened(one.args))
        return Kernel(name or name_of(one), values, attributes(one.attrs))

    return kernel


def _none(call: Call) -> str | None:
    del call
    return None


def _row(name: str, operator: str, rule: Rule = _none, kernel: Callable[[Call], Kernel] | None = None) -> Composite:
    def check(root: Expr) -> str | None:
        return first(check_values(_call(root)), rule(_call(root)))

    return Composite(name, lambda: is_op(operator)(wildcard()), check, kernel or _as_is())


def _is_nchw(call: Call) -> str | None:
    return first(is_rank(call.args[0], "data", 4), is_value(call.attrs.layout, "layout", "NCHW"))


def _check_pool(call: Call) -> str | None:
    attrs, data, result = call.attrs, tensor(call.args[0]), tensor(call)
    assert data is not None and result is not None, "check_values made sure"
    message = first(_is_nchw(call), is_value(tuple(attrs.dilation), "dilation", (1, 1)))
    if message is not None:
        return message
    top, left, bottom, right = four(attrs.padding)
    if getattr(attrs, "count_include_pad", False) and any((top, left, bottom, right)):
        return "the mean counts the padding"
    floors = [
        (size + before + after - window) // stride + 1
        for size, before, after, window, stride in zip(
            data.static[2:], (top, left), (bottom, right), attrs.pool_size, attrs.strides, strict=True
        )
    ]
    return None if list(result.static[2:]) == floors else "ceil_mode adds windows that begin in the padding"


def _pool_kernel(call: Call) -> Kernel:
    kernel = _as_is()(call)
    pool = _call(inside(call)[0])
    return Kernel(kernel.name, kernel.inputs, {**kernel.attrs, "padding": texts(four(pool.attrs.padding))})


def _check_pad(call: Call) -> str | None:
    width, attrs = call.attrs.pad_width, call.attrs
    if len(width) != 4:
        return f"nn.pad has {len(width)} dimensions, wanted 4"
    if isinstance(call.args[0], Var):
        return "nn.pad reads an input of the graph"
    if any(tuple(pair) != (0, 0) for pair in width[:2]):
        return "nn.pad pads batch or channels"
    if any(amount < 0 for pair in width for amount in pair):
        return "nn.pad takes away"
    value = is_value(float(attrs.pad_value), "the value of nn.pad", 0.0) if attrs.pad_mode == "constant" else None
    return first(is_value(attrs.pad_mode, "the mode of nn.pad", "constant", "edge", "reflect"), value)


def _pad_kernel(call: Call) -> Kernel:
    kernel, attrs = _as_is()(call), _call(inside(call)[0]).attrs
    rows, columns = attrs.pad_width[2], attrs.pad_width[3]
    return Kernel(
        kernel.name, kernel.inputs, {"pad_width": texts((*rows, *columns)), "pad_mode": texts(attrs.pad_mode)}
    )


def _clip_kernel(call: Call) -> Kernel:
    body = _call(inside(call)[0])
    is_relu6 = all(getattr(body.attrs, name) == value for name, value in RELU6.items())
    return _as_is("nn.relu6" if is_relu6 else "clip")(call)


def _check_softmax(call: Call) -> str | None:
    ty = tensor(call)
    assert ty is not None, "check_values made sure"
    if len(ty.shape) not in (2, 4):
        return f"softmax has {len(ty.shape)} dimensions, wanted 2 or 4"
    return is_value(call.attrs.axis % len(ty.shape), "the axis of softmax", 1)


def _check_binary(call: Call) -> str | None:
    lhs, rhs = call.args
    one, other = tensor(lhs), tensor(rhs)
    if one is None or other is None or not other.shape:
        return "the right operand is a scalar"
    if lhs is rhs:
        return "both operands are one value"
    return None if one.shape == other.shape else f"operands have shapes {list(one.shape)} and {list(other.shape)}"


def _check_depth(call: Call) -> str | None:
    return first(_is_nchw(call), is_value(call.attrs.mode, "mode", "DCR"))


def _check_upsampling(call: Call) -> str | None:
    return first(_is_nchw(call), is_value(call.attrs.method, "method", "bilinear"))


def _check_concat(root: Expr) -> str | None:
    call = _call(root)
    ty = tensor(call)
    ndim = len(ty.shape) if ty is not None else 1
    return first(is_value(call.attrs.axis % ndim, "axis", 1), check_values(call))


def _norm() -> DFPattern:
    return is_tuple_get_item(is_op("nn.batch_norm")(wildcard(), *(is_constant() for _ in range(4))), 0)


def _norm_of(root: Expr) -> Call:
    assert isinstance(root, TupleGetItem) and isinstance(root.tuple_value, Call), "the pattern has a field of a call"
    return root.tuple_value


def _check_norm(root: Expr) -> str | None:
    norm = _norm_of(root)
    data = norm.args[0]
    return first(is_rank(data, "data", 4), is_single(data, "data"), is_value(norm.attrs.axis, "axis", 1, -3))


def _norm_kernel(call: Call) -> Kernel:
    """data, scale, shift, mean, variance"""
    body, outside = inside(call)
    norm = _norm_of(body)
    vectors: tuple[Constant, ...] = tuple(channel_vector(e) for e in norm.args[1:])
    return Kernel("nn.batch_norm", (outside[id(norm.args[0])], *vectors), attributes(norm.attrs))


def _binary(name: str) -> Composite:
    row = _row(name, name, _check_binary)
    return Composite(name, lambda: is_op(name)(wildcard(), wildcard()), row.check, row.kernel)


COMPOSITES = (
    _row("pad", "nn.pad", _check_pad, _pad_kernel),
    Composite("concat", lambda: is_op("concatenate")(is_tuple(None)), _check_concat, _as_is()),
    Composite("batch_norm", _norm, _check_norm, _norm_kernel),
    *(_binary(name) for name in BINARY),
    _row("softmax", "nn.softmax", _check_softmax),
    _row("reshape", "reshape"),
    _row("avg_pool2d", "nn.avg_pool2d", _check_pool, _pool_kernel),
    _row("max_pool2d", "nn.max_pool2d", _check_pool, _pool_kernel),
    _row("global_avg_pool2d", "nn.global_avg_pool2d", _is_nchw),
    _row("global_max_pool2d", "nn.global_max_pool2d", _is_nchw),
    _row("relu", "nn.relu"),
    _row("clip", "clip", kernel=_clip_kernel),
    _row("batch_flatten", "nn.batch_flatten"),
    _row("depth_to_space", "nn.depth_to_space", _check_depth),
    _row("upsampling", "nn.upsampling", _check_upsampling),
)
