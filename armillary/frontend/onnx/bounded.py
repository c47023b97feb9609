"""Operators whose result has as many elements as its values say: NonZero, Compress, Unique, NonMaxSuppression.

In: a node whose deciding input is computed at run time (where it is known, the operator's own rule folds it). Out: the
result at its largest size, the rest of it zero, with the number of elements that count; the pair is kept in
`walk.bounded` and comes out of the graph as `<output>` and `<output>.size`. Invariant: only graph outputs may be
bounded; any other reader is refused (`refuse_bounded`), because it would compute with the padding.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from armillary.errors import UnsupportedError
from armillary.frontend.onnx.loops import Opsets, Scope, Walk
from armillary.frontend.onnx.node import OnnxNode, onnx_rule
from armillary.ops._iota import iota, splat
from armillary.ops.nn._windows import call
from armillary.relay.expr import Constant, Expr, Tuple, TupleGetItem
from armillary.relay.types import TensorType

Values = list[Expr]
Build = Callable[[Walk, OnnxNode], Values]


def bounded(decides: int, build: Build, walk: Walk, view: OnnxNode, _scope: Scope, _opsets: Opsets) -> Values:
    """The operator's rule where input `decides` is known, else the bounded form."""
    rule = onnx_rule("", view.op_type, view.opset)
    if rule is not None and walk.folder.value(view.input(decides)) is not None:
        made = rule(view)
        return list(made) if isinstance(made, list | tuple) else [made]
    return build(walk, view)


def i64(values: object) -> Constant:  # numbers
    """An int64 constant."""
    return Constant(np.array(values, np.int64))


def _found(data: Expr) -> tuple[Expr, Expr]:
    """The coordinates of what is not zero, a row for each axis, zeros behind them, and how many there are."""
    both = call("bounded_nonzero", data)
    return TupleGetItem(both, 0), call("squeeze", TupleGetItem(both, 1), axis=(0,))


def _compacted(mask: Expr) -> tuple[Expr, Expr]:
    """Of a bool vector: the positions that hold, in order and then zeros, and how many there are."""
    places, size = _found(mask)
    return call("reshape", places, newshape=(-1,)), size


def _shape(value: Expr) -> tuple[int, ...]:
    ty = value.checked_type
    if not isinstance(ty, TensorType):
        raise UnsupportedError(f"expected a tensor, got {ty}")
    return ty.static


def _blanked(values: Expr, size: Expr, axis: int) -> Expr:
    """Zeros from position `size` on."""
    shape = _shape(values)
    line = call("reshape", iota(shape[axis]), newshape=tuple(n if k == axis else 1 for k, n in enumerate(shape)))
    zero = Constant(np.zeros((), values.checked_type.dtype.numpy))  # type: ignore[attr-defined]
    return call("where", call("less", line, size), values, zero)


def _mark(walk: Walk, values: Expr, axis: int, size: Expr) -> Expr:
    walk.bounded[id(values)] = (values, axis, size)
    return values


def non_zero(walk: Walk, view: OnnxNode) -> Values:
    """NonZero: a column of coordinates per element that is not zero."""
    data = view.input(0)
    places, size = _found(data if _shape(data) else call("reshape", data, newshape=(1,)))
    return [_mark(walk, places, 1, size)]


def compress(walk: Walk, view: OnnxNode) -> Values:
    """Compress: the slices whose condition holds."""
    data, axis = view.input(0), view.int("axis", default=None)
    condition = call("reshape", view.input(1), newshape=(-1,))
    if axis is None:
        axis, data = 0, call("reshape", data, newshape=(-1,))
    extent = _shape(data)[axis]
    if _shape(condition)[0] > extent:
        condition = call("strided_slice", condition, begin=(0,), end=(extent,), strides=(1,), axes=(0,))
    positions, size = _compacted(condition)
    axis %= len(_shape(data))
    return [_mark(walk, _blanked(call("take", data, positions, axis=axis), size, axis), axis, size)]


def unique(walk: Walk, view: OnnxNode) -> Values:
    """Unique: sorted values of the flattened input, where each is first, which it is for each element, how often."""
    if view.int("axis", default=None) is not None or not view.int("sorted", default=1):
        walk.ask(view.input(0))
        raise UnsupportedError("Unique of computed values is supported without axis, and sorted")
    flat = call("reshape", view.input(0), newshape=(-1,))
    (count,) = _shape(flat)
    order = call("argsort", flat, axis=0, is_ascend=True, dtype="int64")
    values = call("take", flat, order, axis=0)
    changes = call("not_equal", *(call("strided_slice", values, begin=(k,), end=(count - 1 + k,)) for k in (1, 0)))
    starts = call("concatenate", Tuple((Constant(np.ones(min(count, 1), bool)), changes)), axis=0)
    positions, size = _compacted(starts)
    rank = call("subtract", call("cumsum", call("cast", starts, dtype="int64"), axis=0), i64(1))
    inverse = call("scatter_elements", splat((count,), 0, "int64"), order, rank, axis=0)
    counts = call(
        "scatter_elements", splat((count,), 0, "int64"), rank, splat((count,), 1, "int64"), axis=0, reduction="add"
    )
    found = [call("take", values, positions, axis=0), call("take", order, positions, axis=0)]
    first, where = (_mark(walk, _blanked(x, size, 0), 0, size) for x in found)
    return [first, where, inverse, _mark(walk, counts, 0, size)]


# --- non-maximum suppression ------------------------------------------------------------------------------------------


def non_max_suppression(walk: Walk, view: OnnxNode) -> Values:
    """NonMaxSuppression: for each batch and class the best boxes, none of which overlaps a better one too much."""
    boxes, scores = view.input(0), view.input(1)
    _, classes, count = _shape(scores)
    asked = view.optional_const(2, "largest number of boxes")
    most = min(count, 0 if asked is None else max(0, int(np.reshape(asked, -1)[0])))
    if most == 0:
        return [Constant(np.zeros((0, 3), np.int64))]
    picks = call(
        "vision.suppress_overlaps",
        boxes,
        scores,
        _threshold(view, 3, 0.0),
        _threshold(view, 4, 0.0),
        most=most,
        centred=bool(view.int("center_point_box", 0)),
        has_least=not view.missing(4),
    )
    chosen = call("reshape", picks, newshape=(-1,))  # -1 where nothing was left
    positions, size = _compacted(call("greater_equal", chosen, i64(0)))
    rows = [
        call("floor_divide", positions, i64(classes * most)),
        call("floor_mod", call("floor_divide", positions, i64(most)), i64(classes)),
        call("take", chosen, positions, axis=0),
    ]
    table = call("stack", tuple(rows), axis=1)
    return [_mark(walk, _blanked(table, size, 0), 0, size)]


def _threshold(view: OnnxNode, index: int, default: float) -> Expr:
    if view.missing(index):
        return Constant(np.array(default, np.float32))
    return call("reshape", view.input(index), newshape=())
