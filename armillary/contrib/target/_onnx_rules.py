"""What each operator of Relay is in ONNX: elements, reductions, products, shapes. Windows: `_onnx_windows.py`.

In: a call and the names of its arguments' values. Out: nodes in a `Graph`, names of the results. Invariant: a
rule gives the operator's own result or is refused; `write` alone is called from outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from armillary.contrib.target import _onnx_quantised as quantised
from armillary.contrib.target import _onnx_windows as windows
from armillary.contrib.target._onnx_graph import Graph
from armillary.contrib.target._onnx_types import (
    Inputs,
    Rule,
    dtype_of,
    fixed,
    is_static,
    ndim_of,
    permutation,
    shape_of,
)
from armillary.errors import UnsupportedError
from armillary.ops.nn.gelu import TANH_CUBE, TANH_SCALE
from armillary.relay.expr import Call
from armillary.relay.op import Op
from armillary.relay.types import TupleType

_INT64 = np.iinfo(np.int64)

UNARY = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "ceil": "Ceil",
    "copy": "Identity",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "isinf": "IsInf",
    "isnan": "IsNaN",
    "log": "Log",
    "logical_not": "Not",
    "nearbyint": "Round",
    "negative": "Neg",
    "nn.relu": "Relu",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "tanh": "Tanh",
}
BINARY = {
    "add": "Add",
    "divide": "Div",
    "equal": "Equal",
    "floor_mod": "Mod",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "logical_and": "And",
    "logical_or": "Or",
    "logical_xor": "Xor",
    "maximum": "Max",
    "minimum": "Min",
    "multiply": "Mul",
    "power": "Pow",
    "subtract": "Sub",
}
REDUCE = {"max": "ReduceMax", "mean": "ReduceMean", "min": "ReduceMin", "prod": "ReduceProd", "sum": "ReduceSum"}


def write(graph: Graph, call: Call, inputs: Inputs) -> list[str]:
    """Write a call; names of its results. Raises UnsupportedError for an operator without a rule."""
    op = call.op
    assert isinstance(op, Op)
    if op.name in UNARY:
        return [graph.node(UNARY[op.name], inputs[0])]
    if op.name in BINARY:
        return [_binary(graph, op.name, call, inputs)]
    if op.name in REDUCE:
        return [_reduce(graph, REDUCE[op.name], call, inputs)]
    rules = {**RULES, **windows.RULES, **quantised.RULES}
    rule = rules.get(op.name)
    if rule is None:
        known = sorted({*UNARY, *BINARY, *REDUCE, *rules})
        raise UnsupportedError(f"to_onnx: there is no rule for {op.name}", hint=f"there are: {', '.join(known)}")
    result = rule(graph, call, inputs)
    return [result] if isinstance(result, str) else result


def _binary(graph: Graph, name: str, call: Call, inputs: Inputs) -> str:
    floats = dtype_of(call.args[0]).startswith("float")
    a, b = inputs[0][0], inputs[1][0]
    if BINARY[name] == "Mod" and floats:  # ONNX has none for floats whose sign is the divisor's
        return graph.node("Sub", [a, graph.node("Mul", [b, graph.node("Floor", [graph.node("Div", [a, b])])])])
    return graph.node(BINARY[name], [a, b])


def axes_of(call: Call) -> list[int]:
    """The axes that a reduction is over, by its attributes axis and exclude."""
    attrs, rank = call.attrs, ndim_of(call.args[0])
    axes = attrs.axis
    if axes is None or axes == ():
        return list(range(rank))
    named = sorted(int(axis) % rank for axis in ([axes] if isinstance(axes, int) else axes))
    return [axis for axis in range(rank) if axis not in named] if attrs.exclude else named


def _reduce(graph: Graph, kind: str, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    return graph.reduce(kind, inputs[0][0], axes_of(call), attrs.keepdims)


def _of_flags(kind: str) -> Rule:
    """Whether any, or all, hold: the largest, or the least, of zeros and ones."""

    def rule(graph: Graph, call: Call, inputs: Inputs) -> str:
        numbers = graph.cast(inputs[0][0], "int32")
        return graph.cast(graph.reduce(kind, numbers, axes_of(call), call.attrs.keepdims), "bool")

    return rule


def _arg(kind: str) -> Rule:
    def rule(graph: Graph, call: Call, inputs: Inputs) -> str:
        attrs = call.attrs
        axes = axes_of(call)
        value, more = inputs[0][0], {}
        if attrs.axis is None:
            value, axes = graph.reshape(value, [-1]), [0]
        if len(axes) != 1 or (attrs.axis is None and attrs.keepdims):
            raise UnsupportedError(f"to_onnx: {kind} over several axes", hint="one axis, or all without keepdims")
        if attrs.select_last_index and graph.opset >= 12:
            more["select_last_index"] = 1
        elif attrs.select_last_index:
            raise UnsupportedError(f"to_onnx: {kind} of the last place", hint="opset_version=12")
        position = graph.node(kind, [value], axis=axes[0], keepdims=int(attrs.keepdims), **more)
        return graph.cast(position, dtype_of(call))

    return rule


def _softmax(kind: str) -> Rule:
    def rule(graph: Graph, call: Call, inputs: Inputs) -> str:
        attrs = call.attrs
        rank = ndim_of(call)
        return graph.softmax(kind, inputs[0][0], attrs.axis % rank, rank)

    return rule


def _filled(value: float) -> Rule:
    def rule(graph: Graph, call: Call, inputs: Inputs) -> str:
        del inputs
        return _full(graph, graph.constant(value, dtype_of(call)), call)

    return rule


def _full(graph: Graph, value: str, call: Call) -> str:
    return graph.node("Expand", [value, graph.ints(shape_of(call))])


def _clip(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    return graph.limited(inputs[0][0], attrs.a_min, attrs.a_max, dtype_of(call))


def _where(graph: Graph, call: Call, inputs: Inputs) -> str:
    chosen = inputs[0][0]
    if dtype_of(call.args[0]) != "bool":
        chosen = graph.cast(chosen, "bool")
    return graph.node("Where", [chosen, inputs[1][0], inputs[2][0]])


def _take(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    value, places = inputs[0][0], inputs[1][0]
    if attrs.batch_dims:
        raise UnsupportedError("to_onnx: take with batch_dims", hint="gather_nd has a form with batches")
    axis = 0 if attrs.axis is None else attrs.axis % ndim_of(call.args[0])
    size = int(np.prod(shape_of(call.args[0]))) if attrs.axis is None else shape_of(call.args[0])[axis]
    value = graph.reshape(value, [-1]) if attrs.axis is None else value
    kind = dtype_of(call.args[1])
    if attrs.mode == "wrap":
        places = graph.node("Mod", [places, graph.constant(size, kind)])
    elif attrs.mode == "clip":
        places = graph.limited(places, 0, size - 1, kind)
    return graph.node("Gather", [value, places], axis=axis)


def _dense(graph: Graph, call: Call, inputs: Inputs) -> str:
    a, b = inputs[0][0], inputs[1][0]
    _need_float(call)
    if ndim_of(call.args[0]) == 2:
        return graph.node("Gemm", [a, b], transB=1)
    return graph.node("MatMul", [a, graph.transpose(b, [1, 0])])


def _matmul(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    _need_float(call)
    operands = []
    for (name,), arg, is_turned in zip(inputs, call.args, (attrs.transpose_a, attrs.transpose_b), strict=True):
        rank = ndim_of(arg)
        turned = [*range(rank - 2), rank - 1, rank - 2]
        operands.append(graph.transpose(name, turned) if is_turned else name)
    return graph.node("MatMul", operands)


def _need_float(call: Call) -> None:
    dtypes = {dtype_of(arg) for arg in call.args} | {dtype_of(call)}
    if len(dtypes) != 1 or not next(iter(dtypes)).startswith("float"):
        message = f"to_onnx: {call.op} of {', '.join(sorted(dtypes))}"
        raise UnsupportedError(message, hint="products and sums have the one float type of the operands")


def _bias_add(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    return graph.node("Add", [inputs[0][0], along(graph, inputs[1][0], attrs.axis, ndim_of(call))])


def along(graph: Graph, vector: str, axis: int, rank: int) -> str:
    """A vector that is added or multiplied along an axis."""
    return graph.unsqueeze(vector, list(range(1, rank - axis % rank)))


def _reshape(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    if is_static(call):
        return graph.reshape(inputs[0][0], shape_of(call))
    if min(attrs.newshape, default=0) < -1 or attrs.allowzero:
        raise UnsupportedError(f"to_onnx: reshape to {attrs.newshape} of open dimensions", hint="0 and -1 are known")
    return graph.reshape(inputs[0][0], attrs.newshape)


def _transpose(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    rank = ndim_of(call)
    order = list(range(rank))[::-1] if attrs.axes is None else [int(axis) % rank for axis in attrs.axes]
    return graph.transpose(inputs[0][0], order)


def _squeeze(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    rank = ndim_of(call.args[0])
    if attrs.axis is None:
        axes = [axis for axis, size in enumerate(shape_of(call.args[0])) if size == 1]
    else:
        axes = sorted(int(axis) % rank for axis in ([attrs.axis] if isinstance(attrs.axis, int) else attrs.axis))
    return graph.squeeze(inputs[0][0], axes)


def _expand_dims(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    first = attrs.axis if attrs.axis >= 0 else attrs.axis + ndim_of(call.args[0]) + 1
    return graph.unsqueeze(inputs[0][0], list(range(first, first + attrs.num_newaxis)))


def _concatenate(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    return graph.node("Concat", inputs[0], axis=attrs.axis % ndim_of(call))


def _stack(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    axis = attrs.axis % ndim_of(call)
    return graph.node("Concat", [graph.unsqueeze(name, [axis]) for name in inputs[0]], axis=axis)


def _split(graph: Graph, call: Call, inputs: Inputs) -> list[str]:
    attrs = call.attrs
    axis = attrs.axis % ndim_of(call.args[0])
    ty = call.checked_type
    assert isinstance(ty, TupleType)
    return graph.split(inputs[0][0], [shape_of(field)[axis] for field in call], axis)


def _strided_slice(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    begin, end = attrs.begin or (), attrs.end or ()
    axes = list(range(max(len(begin), len(end)))) if attrs.axes is None else [int(axis) for axis in attrs.axes]
    steps = [1] * len(axes) if attrs.strides is None else [int(s) for s in attrs.strides]
    steps += [1] * (len(axes) - len(steps))
    by_size = attrs.slice_mode == "size"
    steps = [1] * len(axes) if by_size else steps
    starts, stops = [], []
    for k, step in enumerate(steps):
        first = begin[k] if k < len(begin) else None
        last = end[k] if k < len(end) else None
        start = fixed(first, "strided_slice from") if first is not None else (0 if step > 0 else _INT64.max)
        if by_size and last is not None:
            last = None if last < 0 else start + fixed(last, "strided_slice of length")
        starts.append(start)
        stops.append(fixed(last, "strided_slice to") if last is not None else (_INT64.max if step > 0 else _INT64.min))
    return graph.node("Slice", [inputs[0][0], *(graph.ints(row) for row in (starts, stops, axes, steps))])


def _tile(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    rank = ndim_of(call)
    reps = [1] * (rank - len(attrs.reps)) + [fixed(count, "tile by") for count in attrs.reps]
    value = graph.unsqueeze(inputs[0][0], list(range(rank - ndim_of(call.args[0]))))
    return graph.node("Tile", [value, graph.ints(reps)])


def _layout_transform(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    return graph.transpose(inputs[0][0], permutation(attrs.src_layout, attrs.dst_layout))


def _batch_norm(graph: Graph, call: Call, inputs: Inputs) -> list[str]:
    attrs = call.attrs
    rank = ndim_of(call.args[0])
    value, gamma, beta, mean, variance = (names[0] for names in inputs)
    width = shape_of(call.args[1])
    if not attrs.scale:
        gamma = graph.constant(np.ones(width), dtype_of(call.args[1]))
    if not attrs.center:
        beta = graph.constant(np.zeros(width), dtype_of(call.args[2]))
    axis = attrs.axis % rank
    order = [0, axis, *(k for k in range(1, rank) if k != axis)] if axis else None
    if order is None or rank < 2:
        raise UnsupportedError("to_onnx: nn.batch_norm over its first axis", hint="channels are another axis")
    names = [graph.transpose(value, order), gamma, beta, mean, variance]
    node = graph.node("BatchNormalization", names, epsilon=float(attrs.epsilon))
    return [graph.transpose(node, [order.index(k) for k in range(rank)]), mean, variance]


def _layer_norm(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    rank = ndim_of(call)
    axis = attrs.axis % rank
    result = _unit(graph, inputs[0][0], [axis], graph.constant(attrs.epsilon, dtype_of(call)))
    if attrs.scale:
        result = graph.node("Mul", [result, along(graph, inputs[1][0], axis, rank)])
    return graph.node("Add", [result, along(graph, inputs[2][0], axis, rank)]) if attrs.center else result


def _standardize(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    axes = (attrs.axis,) if isinstance(attrs.axis, int) else attrs.axis
    axes = sorted(axis % ndim_of(call) for axis in axes)
    epsilon = graph.constant(attrs.epsilon, dtype_of(call))
    return _unit(graph, inputs[0][0], axes, epsilon, is_centred=attrs.center)


def _unit(graph: Graph, value: str, axes: Sequence[int], epsilon: str, is_centred: bool = True) -> str:
    """Divided by its spread along axes, less its mean unless the mean stays."""
    if is_centred:
        value = graph.node("Sub", [value, graph.reduce("ReduceMean", value, axes, keeps=True)])
    spread = graph.reduce("ReduceMean", graph.node("Mul", [value, value]), axes, keeps=True)
    return graph.node("Div", [value, graph.node("Sqrt", [graph.node("Add", [spread, epsilon])])])


def _gelu(graph: Graph, call: Call, inputs: Inputs) -> str:
    x, dtype = inputs[0][0], dtype_of(call)

    def scaled(value: str, factor: float) -> str:
        return graph.node("Mul", [value, graph.constant(factor, dtype)])

    if call.attrs.approximate == "tanh":
        cube = scaled(graph.node("Mul", [graph.node("Mul", [x, x]), x]), TANH_CUBE)
        spread = graph.node("Tanh", [scaled(graph.node("Add", [x, cube]), TANH_SCALE)])
    else:
        spread = graph.node("Erf", [scaled(x, math.sqrt(0.5))])
    return scaled(graph.node("Mul", [x, graph.node("Add", [spread, graph.constant(1.0, dtype)])]), 0.5)


def _prelu(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    return graph.node("PRelu", [inputs[0][0], along(graph, inputs[1][0], attrs.axis, ndim_of(call))])


def _leaky_relu(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    return graph.node("LeakyRelu", inputs[0], alpha=float(attrs.alpha))


def _gather(graph: Graph, call: Call, inputs: Inputs) -> str:
    attrs = call.attrs
    return graph.node("GatherElements", [inputs[0][0], inputs[1][0]], axis=attrs.axis)


def _cast(graph: Graph, call: Call, inputs: Inputs) -> str:
    return graph.cast(inputs[0][0], dtype_of(call))


def _rsqrt(graph: Graph, call: Call, inputs: Inputs) -> str:
    del call
    return graph.node("Reciprocal", [graph.node("Sqrt", inputs[0])])


def _round(graph: Graph, call: Call, inputs: Inputs) -> str:
    """Halves away from zero: the standard's Round takes them to even."""
    value, half = inputs[0][0], graph.constant(0.5, str(dtype_of(call)))
    whole = graph.node("Floor", [graph.node("Add", [graph.node("Abs", [value]), half])])
    return graph.node("Mul", [graph.node("Sign", [value]), whole])


def _flatten(graph: Graph, call: Call, inputs: Inputs) -> str:
    del call
    return graph.node("Flatten", inputs[0], axis=1)


def _first(maker: Callable[[Graph, str, Call], str]) -> Rule:
    return lambda graph, call, inputs: maker(graph, inputs[0][0], call)


RULES: dict[str, Rule] = {
    "all": _of_flags("ReduceMin"),
    "any": _of_flags("ReduceMax"),
    "argmax": _arg("ArgMax"),
    "argmin": _arg("ArgMin"),
    "broadcast_to": _first(_full),
    "broadcast_to_like": _first(_full),
    "cast": _cast,
    "cast_like": _cast,
    "clip": _clip,
    "concatenate": _concatenate,
    "expand_dims": _expand_dims,
    "full": _first(_full),
    "full_like": lambda graph, call, inputs: _full(graph, inputs[1][0], call),
    "gather": _gather,
    "layout_transform": _layout_transform,
    "nn.batch_flatten": _flatten,
    "nn.batch_matmul": _matmul,
    "nn.batch_norm": _batch_norm,
    "nn.bias_add": _bias_add,
    "nn.dense": _dense,
    "nn.dropout": lambda graph, call, inputs: graph.node("Identity", inputs[0]),
    "nn.gelu": _gelu,
    "nn.layer_norm": _layer_norm,
    "nn.leaky_relu": _leaky_relu,
    "nn.log_softmax": _softmax("LogSoftmax"),
    "nn.matmul": _matmul,
    "nn.prelu": _prelu,
    "nn.softmax": _softmax("Softmax"),
    "nn.standardize": _standardize,
    "ones": _filled(1),
    "ones_like": _filled(1),
    "reshape": _reshape,
    "reshape_like": _reshape,
    "round": _round,
    "rsqrt": _rsqrt,
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "strided_slice": _strided_slice,
    "take": _take,
    "tile": _tile,
    "transpose": _transpose,
    "where": _where,
    "zeros": _filled(0),
    "zeros_like": _filled(0),
}
