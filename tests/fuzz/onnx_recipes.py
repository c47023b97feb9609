"""Recipes for random nodes whose inputs must fit each other: data movement, indices, reductions, products.

In: a Draw. Out: the node added to its graph, or Unfit. Invariant: RECIPES maps (domain, operator) to the recipes of an
operator; one that is not there is drawn from its schema (onnx_generic.py) or from a test of the standard
(onnx_samples.py). The other recipes are in onnx_recipes_nn.py, onnx_recipes_more.py and onnx_windows.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto
from onnx_generic import schema_of
from onnx_kit import ALL, FLOATS, INTS, NUMBERS, Draw, Unfit, Value

Recipe = Callable[[Draw], Any]
RECIPES: dict[tuple[str, str], list[Recipe]] = {}
ELEMENTS = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
}
FLOAT_FIRST = ("float32", "int64", "int32", "float64", "float16", "uint8", "int8", "bool")


def recipe(*ops: str, domain: str = "") -> Callable[[Recipe], Recipe]:
    """Register a recipe for operators."""

    def register(function: Recipe) -> Recipe:
        for op in ops:
            RECIPES.setdefault((domain, op), []).append(function)
        return function

    return register


def has_attribute(d: Draw, op: str, name: str, domain: str = "") -> bool:
    """Whether this opset gives it as an attribute (and not as an input)."""
    return name in schema_of(op, domain, d.opset).attributes


def indices(d: Draw, shape: tuple[int, ...], extent: int, dtype: str | None = None, negative: bool = True) -> Value:
    """Indices in range, some negative."""
    if extent < 1:
        raise Unfit("nothing to index")
    data = d.numpy.integers(-extent if negative and d.opset >= 11 and d.chance(0.5) else 0, extent, shape)
    return d.give(data.astype(dtype or d.one(("int64", "int64", "int32"))))


# --- conversions and elementwise --------------------------------------------------------------------------------------


@recipe("Cast")
def cast(d: Draw) -> None:
    x, to = d.data(ALL), d.one(ALL)
    with np.errstate(all="ignore"):
        if to in INTS and x.dtype in FLOATS and not np.all(np.abs(x.array.astype("f8")) < 100):
            raise Unfit("beyond the range of an integer: not defined")
        if to in INTS and to[0] == "u" and x.dtype in FLOATS and np.any(x.array < 0):
            raise Unfit("negative to unsigned: not defined")
    d.emit("Cast", [x], to=ELEMENTS[to])


@recipe("CastLike")
def cast_like(d: Draw) -> None:
    x = d.data(INTS)
    d.emit("CastLike", [x, d.data(("float32", "float64", *INTS))])


@recipe("Clip")
def clip(d: Draw) -> None:
    x = d.data(("float32", "float64", "float16", "int32", "int64", "int8", "uint8") if d.opset >= 12 else FLOATS)
    low, high = (d.one((None, 0, 1, 2)), d.one((None, 1, 3, 6)))
    if has_attribute(d, "Clip", "min"):
        d.emit("Clip", [x], min=None if low is None else float(low), max=None if high is None else float(high))
        return
    ends = [None if v is None else d.give(np.asarray(v, x.dtype), None if d.chance(0.3) else True) for v in (low, high)]
    d.emit("Clip", [x, *ends])


@recipe("Mod")
def modulo(d: Draw) -> None:
    x = d.data(NUMBERS)
    data = np.abs(d.array(x.dtype, d.broadcast(x.shape), special=0))
    y = d.give(np.where(data == 0, np.asarray(3, x.dtype), data))
    d.emit("Mod", [x, y], fmod=1 if x.dtype in FLOATS or d.chance(0.4) else d.one((0, None)))


@recipe("Div")
def divide(d: Draw) -> None:
    x = d.data(("float32", "float64", "float16", "int32", "int64", "int8", "uint8"))
    y = d.array(x.dtype, d.broadcast(x.shape))
    d.emit("Div", [x, d.give(np.where(y == 0, np.asarray(1, x.dtype), y))])


@recipe("BitShift")
def bit_shift(d: Draw) -> None:
    x = d.data(("uint8", "uint32", "uint64", "uint16"))
    y = d.give(d.array(x.dtype, d.broadcast(x.shape), 0, 7, special=0))
    d.emit("BitShift", [x, y], direction=d.one(("LEFT", "RIGHT")))


@recipe("Pow")
def power(d: Draw) -> None:
    x = d.give(d.array(d.one(("float32", "float64", "int32", "int64")), d.shape(), 0, 3))
    y = d.give(d.array(d.one(("float32", "int64", "int32")) if d.opset >= 12 else x.dtype, d.broadcast(x.shape), 0, 3))
    d.emit("Pow", [x, y])


@recipe("Log", "Sqrt", "Acosh", "Reciprocal")
def of_positive(d: Draw) -> None:
    x = d.give(np.abs(d.array(d.one(FLOATS), d.shape(), 0.5, 4)) + 1)
    d.emit(d.one(("Log", "Sqrt", "Acosh", "Reciprocal") if d.opset >= 9 else ("Log", "Sqrt", "Reciprocal")), [x])


@recipe("Acos", "Asin", "Atanh")
def of_unit(d: Draw) -> None:
    x = d.give(d.array("float32", d.shape(), -0.9, 0.9))
    d.emit(d.one(("Acos", "Asin", "Atanh") if d.opset >= 9 else ("Acos", "Asin")), [x])


# --- movement ---------------------------------------------------------------------------------------------------------


@recipe("Concat")
def concat(d: Draw) -> None:
    x = d.data(FLOAT_FIRST, 1)
    axis = d.axis(x.rank)
    parts = [x]
    for _ in range(d.integer(0, 3)):
        shape = list(x.shape)
        shape[axis] = d.size()
        parts.append(d.like(x, shape))
    d.random.shuffle(parts)
    d.emit("Concat", parts, axis=axis if d.opset >= 11 else axis % x.rank)


@recipe("Transpose")
def transpose(d: Draw) -> None:
    x = d.data(FLOAT_FIRST)
    perm = list(range(x.rank))
    d.random.shuffle(perm)
    d.emit("Transpose", [x], perm=perm if perm and d.chance(0.85) else None)


@recipe("Reshape")
def reshape(d: Draw) -> None:
    x = d.data(FLOAT_FIRST)
    shape = list(x.shape)
    for _ in range(d.integer(0, 3)):
        if len(shape) > 1 and d.chance(0.6):
            k = d.integer(0, len(shape) - 2)
            shape[k : k + 2] = [shape[k] * shape[k + 1]]
        else:
            shape.insert(d.integer(0, len(shape)), 1)
    allow = 0
    if x.array.size:
        shape = [0 if k < x.rank and s == x.shape[k] and d.chance(0.15) else s for k, s in enumerate(shape)]
        if shape and d.chance(0.4):
            shape[d.integer(0, len(shape) - 1)] = -1
    elif d.opset >= 14:
        allow = 1
    target = d.fixed(np.asarray(shape, "int64").reshape(-1))
    d.emit("Reshape", [x, target], allowzero=allow or None)


@recipe("Flatten")
def flatten(d: Draw) -> None:
    x = d.data(FLOAT_FIRST if d.opset >= 9 else FLOATS)
    d.emit("Flatten", [x], axis=d.integer(-x.rank if d.opset >= 11 else 0, x.rank))


@recipe("Squeeze", "Unsqueeze")
def squeeze(d: Draw) -> None:
    x = d.data(FLOAT_FIRST)
    ones = [k - (x.rank if d.chance(0.4) and d.opset >= 11 else 0) for k, s in enumerate(x.shape) if s == 1]
    if ones and d.chance(0.5):
        op, axes = "Squeeze", d.random.sample(ones, d.integer(1, len(ones)))
    else:
        count = d.integer(1, 2)
        op, axes = "Unsqueeze", sorted(d.random.sample(range(x.rank + count), count))
        if d.opset >= 11 and d.chance(0.4):
            axes = [a - x.rank - count for a in axes]
    if has_attribute(d, op, "axes"):
        d.emit(op, [x], axes=None if op == "Squeeze" and d.chance(0.1) else axes)
    else:
        d.emit(op, [x, None if op == "Squeeze" and d.chance(0.1) else d.fixed(axes)])


@recipe("Slice")
def slices(d: Draw) -> None:
    x = d.data(FLOAT_FIRST, 1)
    axes = d.random.sample(range(x.rank), d.integer(1, x.rank))
    starts, ends, steps = [], [], []
    for axis in axes:
        size = x.shape[axis]
        step = d.one((1, 1, 1, 2, 3, -1, -2, 7, -9)) if d.opset >= 10 else 1
        first, last = d.integer(-size - 2, size + 2), d.integer(-size - 2, size + 2)
        if d.chance(0.15):
            last = (1 << 31) - 1 if step > 0 else -(1 << 31)
        if d.chance(0.1):
            last = (1 << 63) - 1 if step > 0 else -(1 << 63) + 1
        starts, ends, steps = [*starts, first], [*ends, last], [*steps, step]
    signed = [a - x.rank if d.chance(0.3) and d.opset >= 10 else a for a in axes]
    if has_attribute(d, "Slice", "starts"):
        d.emit("Slice", [x], starts=starts, ends=ends, axes=signed)
        return
    whole = axes == list(range(x.rank)) and d.chance(0.3)
    parts = [d.fixed(starts), d.fixed(ends), None if whole else d.fixed(signed), d.fixed(steps)]
    d.emit("Slice", [x, *parts[: 2 if whole and set(steps) == {1} else 4]])


@recipe("Split")
def split(d: Draw) -> None:
    x = d.data(FLOAT_FIRST, 1)
    axis = d.axis(x.rank)
    size = x.shape[axis]
    if d.opset < 11:
        axis %= x.rank
    count = d.integer(1, 4)
    cuts = sorted(d.integer(0, size) for _ in range(count - 1))
    parts = [b - a for a, b in zip([0, *cuts], [*cuts, size])]
    if has_attribute(d, "Split", "split"):
        d.emit("Split", [x], count, axis=axis, split=parts)
    elif d.opset >= 18 and d.chance(0.4):
        d.emit("Split", [x], count, axis=axis, num_outputs=count)
    elif d.chance(0.2) and size % count == 0 and d.opset < 18:
        d.emit("Split", [x], count, axis=axis)
    else:
        d.emit("Split", [x, d.fixed(parts)], count, axis=axis)


@recipe("Expand")
def expand(d: Draw) -> None:
    x = d.data(FLOAT_FIRST, 0, 4)
    shape = [d.size() if s == 1 and d.chance(0.7) else d.one((s, s, 1)) for s in x.shape]
    shape = [d.integer(1, 3) for _ in range(d.integer(0, 2))] + shape
    d.emit("Expand", [x, d.fixed(np.asarray(shape, "int64").reshape(-1))])


@recipe("Tile")
def tile(d: Draw) -> None:
    x = d.data(FLOAT_FIRST, 1)
    d.emit("Tile", [x, d.fixed([d.one((1, 1, 2, 3, 0 if d.chance(0.1) else 1)) for _ in x.shape])])


@recipe("Pad")
def pad(d: Draw) -> None:
    x = d.data(("float32", "float64", "int64", "int32", "float16", "uint8") if d.opset >= 13 else FLOATS, 1)
    modes = ["constant", "reflect", "edge"] + (["wrap"] if d.opset >= 19 else [])
    mode, axes = d.one(["constant", *modes]), list(range(x.rank))
    by_axes = d.opset >= 18 and d.chance(0.4)
    if by_axes:
        axes = d.random.sample(axes, d.integer(1, x.rank))
    pads = []
    for end in range(2):
        for axis in axes:
            size = x.shape[axis]
            most = {"constant": 4, "reflect": size - 1, "edge": 4 if size else 0, "wrap": size}[mode]
            low = -((size - 1) // 2) if mode == "constant" and d.chance(0.2) else 0
            pads.append(d.integer(min(low, 0), max(0, min(most, 5))) + 0 * end)
    mode = None if mode == "constant" and d.chance(0.3) else mode
    if has_attribute(d, "Pad", "pads"):
        d.emit("Pad", [x], pads=pads, mode=mode, value=d.one((None, 0.0, 1.5)))
        return
    fill = None if d.chance(0.4) else d.give(d.array(x.dtype, (), special=0), True if d.chance(0.7) else None)
    signed = d.fixed([a - x.rank if d.chance(0.3) else a for a in axes]) if by_axes else None
    d.emit("Pad", [x, d.fixed(pads), fill, signed], mode=mode)


@recipe("DepthToSpace", "SpaceToDepth")
def depth_to_space(d: Draw) -> None:
    block, batch, channels = d.integer(1, 3), d.integer(1, 2), d.integer(1, 4)
    rows, columns = d.integer(1, 4), d.integer(1, 4)
    if d.chance(0.5):
        x = d.give(d.array("float32", (batch, channels * block * block, rows, columns)))
        mode = d.one(("DCR", "CRD")) if has_attribute(d, "DepthToSpace", "mode") else None
        d.emit("DepthToSpace", [x], blocksize=block, mode=mode)
    else:
        x = d.give(d.array("float32", (batch, channels, rows * block, columns * block)))
        d.emit("SpaceToDepth", [x], blocksize=block)


@recipe("Trilu")
def triangle(d: Draw) -> None:
    x = d.data(FLOAT_FIRST, 2)
    k = None if d.chance(0.4) else d.give(np.asarray(d.integer(-9, 9), "int64"), True if d.chance(0.7) else None)
    d.emit("Trilu", [x, k], upper=d.one((0, 1, None)))


@recipe("Constant")
def constant(d: Draw) -> None:
    if d.chance(0.5) and d.opset >= 12:
        d.emit("Constant", [], value_ints=[d.integer(-5, 5) for _ in range(d.integer(1, 4))])
    else:
        d.emit("Constant", [], **({"value_float": 2.5} if d.opset >= 12 else {"value": _tensor(d)}))


def _tensor(d: Draw) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(d.array(d.one(NUMBERS), d.shape(0, 3)))


@recipe("ConstantOfShape")
def constant_of_shape(d: Draw) -> None:
    from onnx import numpy_helper

    value = numpy_helper.from_array(d.array(d.one(ALL), (1,))) if d.chance(0.8) else None
    d.emit("ConstantOfShape", [d.fixed(np.asarray(d.shape(0, 3), "int64"))], value=value)


@recipe("EyeLike")
def eye(d: Draw) -> None:
    x = d.data(("float32", "int64", "float64", "bool"), 2, 2)
    d.emit("EyeLike", [x], k=d.one((None, 0, 1, -2, 40)), dtype=d.one((None, 1, 7, 11)))


@recipe("Range")
def numbers(d: Draw) -> None:
    dtype = d.one(("int64", "int32", "float32", "float64", "int16"))
    step = d.one((1, 2, 3, -1, -2))
    ends = [d.fixed(v, dtype) for v in (d.integer(-5, 5), d.integer(-20, 20), step)]
    d.emit("Range", ends)


@recipe("OneHot")
def one_hot(d: Draw) -> None:
    depth = d.integer(1, 7)
    x = d.give(d.numpy.integers(-depth, depth, d.shape(0, 3)).astype(d.one(("int64", "int32"))))
    values = d.give(d.array(d.one(("float32", "int64", "int32")), (2,)))
    d.emit("OneHot", [x, d.fixed(depth if d.chance(0.5) else [depth]), values], axis=d.integer(-x.rank - 1, x.rank))


# --- indices ----------------------------------------------------------------------------------------------------------


@recipe("Gather")
def gather(d: Draw) -> None:
    x = d.data(FLOAT_FIRST, 1)
    axis = d.axis(x.rank)
    d.emit("Gather", [x, indices(d, d.shape(0, 3, most=64), x.shape[axis])], axis=axis)


@recipe("GatherElements")
def gather_elements(d: Draw) -> None:
    x = d.data(FLOAT_FIRST, 1)
    axis = d.axis(x.rank)
    shape = [d.integer(1, s) if s else 0 for s in x.shape]
    shape[axis] = d.size()
    d.emit("GatherElements", [x, indices(d, tuple(shape), x.shape[axis])], axis=axis)


@recipe("GatherND")
def gather_nd(d: Draw) -> None:
    x = d.data(FLOAT_FIRST, 1)
    batch = d.integer(0, x.rank - 1) if d.opset >= 12 and d.chance(0.4) else 0
    last = d.integer(1, x.rank - batch)
    middle = d.shape(0, 2, most=32)
    where = np.zeros((*x.shape[:batch], *middle, last), "int64")
    for k in range(last):
        size = x.shape[batch + k]
        if not size:
            raise Unfit("nothing to index")
        where[..., k] = d.numpy.integers(-size if d.chance(0.4) else 0, size, where.shape[:-1])
    d.emit("GatherND", [x, d.give(where)], batch_dims=batch or None)


@recipe("ScatterElements")
def scatter_elements(d: Draw) -> None:
    x = d.data(FLOAT_FIRST if d.opset >= 16 else ("float32", "int64"), 1)
    axis = d.axis(x.rank)
    shape = [d.integer(1, s) if s else 0 for s in x.shape]
    where = indices(d, tuple(shape), x.shape[axis])
    reduction = _reduction(d, x)
    if reduction is None or reduction == "none":
        rows = np.argsort(d.numpy.random(x.shape), axis)  # no place twice
        where = d.give(rows[tuple(slice(0, s) for s in shape)].astype("int64"))
    d.emit("ScatterElements", [x, where, d.like(x, shape)], axis=axis, reduction=reduction)


def _reduction(d: Draw, x: Value) -> str | None:
    if d.opset < 16 or d.chance(0.4) or x.dtype == "bool":
        return None
    return d.one(("none", "add", "mul", "max", "min") if d.opset >= 18 else ("none", "add", "mul"))


@recipe("ScatterND")
def scatter_nd(d: Draw) -> None:
    x = d.data(FLOAT_FIRST, 1)
    last, reduction = d.integer(1, x.rank), _reduction(d, x)
    places = int(np.prod(x.shape[:last]))
    if not places:
        raise Unfit("nothing to write")
    count = d.integer(1, min(places, 12))
    flat = d.random.sample(range(places), count)
    where = np.stack(np.unravel_index(flat, x.shape[:last]), -1).astype("int64")
    if reduction not in (None, "none") and count > 1:
        where[0] = where[-1]
    d.emit("ScatterND", [x, d.give(where), d.like(x, (count, *x.shape[last:]))], reduction=reduction)


@recipe("TensorScatter")
def tensor_scatter(d: Draw) -> None:
    batch, length, width = d.integer(1, 3), d.integer(2, 8), d.integer(1, 5)
    steps = d.integer(1, length)
    cache = d.give(d.array("float32", (batch, 2, length, width)))
    update = d.give(d.array("float32", (batch, 2, steps, width)))
    circular = d.chance(0.5)
    first = d.numpy.integers(0, length if circular else length - steps + 1, batch)
    d.emit("TensorScatter", [cache, update, d.give(first.astype("int64"))], mode="circular" if circular else "linear")


@recipe("Compress")
def compress(d: Draw) -> None:
    x = d.data(FLOAT_FIRST, 1)
    axis = None if d.chance(0.3) else d.axis(x.rank)
    size = x.array.size if axis is None else x.shape[axis]
    d.emit("Compress", [x, d.give(d.array("bool", (d.integer(0, size),)))], axis=axis)


@recipe("TopK")
def top_k(d: Draw) -> None:
    x = d.data(("float32", "float64", "int64", "int32") if d.opset >= 11 else ("float32",), 1)
    axis = d.axis(x.rank)
    k = d.integer(0 if d.opset >= 10 and d.chance(0.1) else min(1, x.shape[axis]), x.shape[axis])
    order = {"largest": d.integer(0, 1)} if d.opset >= 11 else {}
    if has_attribute(d, "TopK", "k"):
        d.emit("TopK", [x], 2, axis=axis, k=k)
    else:
        d.emit("TopK", [x, d.fixed([k])], 2, axis=axis, **order)


@recipe("ReverseSequence")
def reverse_sequence(d: Draw) -> None:
    x = d.data(FLOAT_FIRST, 2)
    batch = d.integer(0, 1)
    lengths = d.numpy.integers(1, x.shape[1 - batch] + 1, x.shape[batch]) if x.shape[1 - batch] else None
    if lengths is None:
        raise Unfit("no time")
    d.emit("ReverseSequence", [x, d.give(lengths.astype("int64"))], batch_axis=batch, time_axis=1 - batch)


@recipe("Unique")
def unique(d: Draw) -> None:
    x = d.give(d.array(d.one(("float32", "int64")), d.shape(1, 3), special=0), True)
    d.emit("Unique", [x], d.integer(1, 4), axis=None if d.chance(0.5) else d.axis(x.rank), sorted=d.one((None, 0, 1)))


@recipe("NonZero")
def non_zero(d: Draw) -> None:
    d.emit("NonZero", [d.data(FLOAT_FIRST, 1)])


# --- reductions and scans ---------------------------------------------------------------------------------------------


def reduction(op: str) -> Recipe:
    """A reduction over some axes."""

    def draw(d: Draw) -> None:
        more = ("uint8", "int8") if op in ("ReduceMax", "ReduceMin") and d.opset >= 12 else ()
        x = d.data(("float32", "float64", "int32", "int64", "float16", *more))
        if op.startswith("ReduceLog"):
            x = d.give(d.array(d.one(("float32", "float64")), d.shape(), 0.5, 3))
        axes = None if d.chance(0.2) else d.axes(x.rank)
        if d.opset < 11 and axes is not None:
            axes = [a % x.rank for a in axes]
        keep = d.one((None, 0, 1))
        if has_attribute(d, op, "axes"):
            d.emit(op, [x], axes=axes or None, keepdims=keep)
        else:
            given = None if axes is None else d.fixed(np.asarray(axes, "int64").reshape(-1))
            d.emit(op, [x, given], keepdims=keep, noop_with_empty_axes=d.one((None, 0, 1)))

    return draw


for _op in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]:
    RECIPES["", f"Reduce{_op}"] = [reduction(f"Reduce{_op}")]


@recipe("CumSum", "CumProd")
def scan(d: Draw) -> None:
    x = d.data(("float32", "float64", "int32", "int64"), 1)
    op = "CumProd" if d.opset >= 26 and d.chance(0.5) else "CumSum"
    axis = d.fixed(d.axis(x.rank) if d.chance(0.7) else [d.axis(x.rank)], d.one(("int64", "int32")))
    d.emit(op, [x, axis], exclusive=d.one((None, 1)), reverse=d.one((None, 1)))


@recipe("ArgMax", "ArgMin")
def arg(d: Draw) -> None:
    x = d.data(("float32", "float64", "int32", "int8") if d.opset >= 12 else ("float32", "int32"), 1)
    last = d.one((None, 1)) if d.opset >= 12 else None
    axis = d.axis(x.rank)
    d.emit(
        d.one(("ArgMax", "ArgMin")),
        [x],
        axis=axis if d.opset >= 11 else axis % x.rank,
        keepdims=d.one((None, 0)),
        select_last_index=last,
    )


# --- products ---------------------------------------------------------------------------------------------------------


@recipe("MatMul", "MatMulInteger")
def matmul(d: Draw) -> None:
    whole = d.opset >= 10 and d.chance(0.3)
    dtype = (
        d.one(("uint8", "int8")) if whole else d.one(("float32", "float32", "float32", "float64", "float16", "int32"))
    )
    if d.opset < 9 and dtype == "int32":
        dtype = "float32"
    m, k, n = d.size(), d.size(), d.size()
    batch = d.shape(0, 2, most=8)
    left, right = (*d.broadcast(batch), m, k), (*batch, k, n)
    if d.chance(0.15):
        left = (k,)
    if d.chance(0.15):
        right = (k,)
    a = d.give(d.array(dtype, left))
    b = d.give(d.array(d.one(("uint8", "int8")) if whole else dtype, right))
    if not whole:
        d.emit("MatMul", [a, b])
        return
    zero = [None if d.chance(0.3) else d.give(d.array(v.dtype, (), 0, 5), True) for v in (a, b)]
    d.emit("MatMulInteger", [a, b, *zero])


@recipe("Gemm")
def gemm(d: Draw) -> None:
    dtype = d.one(("float32", "float32", "float32", "float64", "float16"))
    m, k, n = d.size(0), d.size(), d.size(0)
    first, second = d.integer(0, 1), d.integer(0, 1)
    a = d.give(d.array(dtype, (k, m) if first else (m, k)))
    b = d.give(d.array(dtype, (n, k) if second else (k, n)))
    c = None if d.opset >= 11 and d.chance(0.3) else d.give(d.array(dtype, d.broadcast((m, n))))
    scale = {"alpha": d.one((None, 0.5, 0.0)), "beta": d.one((None, 2.0, 0.0))}
    d.emit("Gemm", [a, b, c], transA=first or None, transB=second or None, **scale)


@recipe("Einsum")
def einsum(d: Draw) -> None:
    sizes = {letter: d.size(0) for letter in "abcd"}
    sizes = {k: min(v, 6) for k, v in sizes.items()}
    letters = ["".join(d.random.sample("abcd", d.integer(1, 3))) for _ in range(d.integer(1, 3))]
    seen = sorted(set("".join(letters)))
    result = "".join(d.random.sample(seen, d.integer(0, len(seen))))
    operands = [d.give(d.array("float32", [sizes[k] for k in word], special=0)) for word in letters]
    equation = ",".join(letters) + ("->" + result if d.chance(0.8) else "")
    d.emit("Einsum", operands, equation=equation)


@recipe("Det")
def determinant(d: Draw) -> None:
    size = d.integer(1, 4)
    d.emit("Det", [d.give(d.array("float32", (*d.shape(0, 2, most=8), size, size), special=0))])


@recipe("BitCast")
def bit_cast(d: Draw) -> None:
    same = d.one((("float32", "int32", "uint32"), ("int64", "float64"), ("int8", "uint8"), ("float16", "int16")))
    d.emit("BitCast", [d.data(same[:1])], to=ELEMENTS[d.one(same)])


@recipe("Shape", "Size")
def shape_of(d: Draw) -> None:
    x = d.data(ALL)
    if d.chance(0.3):
        d.emit("Size", [x])
    elif d.opset >= 15:
        d.emit("Shape", [x], start=d.one((None, 0, 1, -1, -2)), end=d.one((None, 1, 2, -1)))
    else:
        d.emit("Shape", [x])
