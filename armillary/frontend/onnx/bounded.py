"""Operators whose result has as many elements as its values say: NonZero, Compress, Unique, NonMaxSuppression.

In: a node whose deciding input is computed at run time (where it is known, the operator's own rule folds it). Out: the
result at its true size, a size that the data says (data_sizes.py): a kernel writes it at its largest size and counts,
and what counts is cut out. Invariant: nothing reads what lies behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from armillary.base.extent import Extent, Known, least
from armillary.errors import Span, UnsupportedError
from armillary.frontend.folding.fold import Folder
from armillary.frontend.onnx.node import OnnxNode, onnx_rule
from armillary.ops._iota import splat
from armillary.ops.nn._windows import call
from armillary.relay.expr import Constant, Expr, Tuple, TupleGetItem
from armillary.relay.types import TensorType

if TYPE_CHECKING:
    from onnx import GraphProto

Values = list[Expr]
Body = Callable[[Sequence[Expr]], Values]
Scope = dict[str, Expr]  # expressions by the names that nodes use
Opsets = Mapping[str, int]  # versions by domain


class Walk(Protocol):
    """What control flow needs of the import in progress."""

    folder: Folder
    calls: list[tuple[str, str, str]]

    def body(self, graph: GraphProto, scope: Scope, opsets: Opsets) -> Body:
        """A function that imports the sub-graph for given inputs."""

    def known(self, view: OnnxNode, value: Expr, what: str) -> Any:
        """The value of an expression, which must be known when importing."""

    def ask(self, value: Expr) -> Any:  # Any: an array, a tuple of them, or None
        """The value of an expression where it is known; an error that follows names the inputs it depends on."""

    def unroll(self, view: OnnxNode, count: int = 1) -> None:
        """Count iterations that are unrolled."""

    def span(self, view: OnnxNode) -> Span:
        """Where the node is."""


Build = Callable[[Walk, OnnxNode], Values]
_USUAL = 100  # elements that are found, where nothing tells more


def bounded(decides: int, build: Build, walk: Walk, view: OnnxNode, _scope: Scope, _opsets: Opsets) -> Values:
    """The operator's rule where input `decides` is known, else the bounded form."""
    rule = onnx_rule("", view.op_type, view.opset)
    if rule is not None and walk.folder.value(view.input(decides)) is not None:
        result = rule(view)
        return list(result) if isinstance(result, list | tuple) else [result]
    return build(walk, view)


def i64(values: object) -> Constant:  # numbers
    """An int64 constant."""
    return Constant(np.array(values, np.int64))


def as_number(value: Known) -> Expr:
    """A size as an int64 scalar."""
    return i64(value) if isinstance(value, int) else call("sizes", values=(value,), shape=(), dtype="int64")


def _nonzero(data: Expr) -> tuple[Expr, Expr]:
    """The coordinates of what is not zero, a row for each axis, zeros behind them, and how many there are."""
    both = call("bounded_nonzero", data)
    return TupleGetItem(both, 0), call("squeeze", TupleGetItem(both, 1), axis=(0,))


def _positions(walk: Walk, view: OnnxNode, mask: Expr) -> Expr:
    """Of a bool vector: the positions that hold, in order."""
    positions, size = _compacted(mask)
    return cut(walk, view, positions, 0, size)


def _compacted(mask: Expr) -> tuple[Expr, Expr]:
    """Of a bool vector: the positions that hold, in order and then zeros, and how many there are."""
    places, size = _nonzero(mask)
    return call("reshape", places, newshape=(-1,)), size


def _shape(value: Expr) -> tuple[Known, ...]:
    ty = value.checked_type
    if not isinstance(ty, TensorType):
        raise UnsupportedError(f"expected a tensor, got {ty}")
    return ty.known


def _length(vector: Expr) -> Extent:
    (length,) = _shape(vector)
    assert isinstance(length, Extent), "it was cut to a size that the data says"
    return length


def cut(walk: Walk, view: OnnxNode, values: Expr, axis: int, count: Expr) -> Expr:
    """The first `count` of a tensor that was made at its largest size."""
    return walk.folder.data_sizes.cut(values, axis, count, view.op_type)


def _first(walk: Walk, values: Expr, axis: int, extent: Extent) -> Expr:
    """As many as a size says."""
    values = walk.folder.data_sizes.ordered(values, extent)
    return call("strided_slice", values, begin=(0,), end=(extent,), strides=(1,), axes=(axis,))


def non_zero(walk: Walk, view: OnnxNode) -> Values:
    """NonZero: a column of coordinates per element that is not zero."""
    data = view.input(0)
    places, size = _nonzero(data if _shape(data) else call("reshape", data, newshape=(1,)))
    return [cut(walk, view, places, 1, size)]


def compress(walk: Walk, view: OnnxNode) -> Values:
    """Compress: the slices whose condition holds."""
    data, axis = view.input(0), view.int("axis", default=None)
    condition = call("reshape", view.input(1), newshape=(-1,))
    if axis is None:
        axis, data = 0, call("reshape", data, newshape=(-1,))
    extent = _shape(data)[axis]
    if _shape(condition)[0] > extent:
        condition = call("strided_slice", condition, begin=(0,), end=(extent,), strides=(1,), axes=(0,))
    axis %= len(_shape(data))
    return [call("take", data, _positions(walk, view, condition), axis=axis)]


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
    starts = call("concatenate", Tuple((splat((least(count, 1),), True, "bool"), changes)), axis=0)
    rank = call("subtract", call("cumsum", call("cast", starts, dtype="int64"), axis=0), i64(1))
    inverse = call("scatter_elements", splat((count,), 0, "int64"), order, rank, axis=0)
    counts = call(
        "scatter_elements", splat((count,), 0, "int64"), rank, splat((count,), 1, "int64"), axis=0, reduction="add"
    )
    own = _positions(walk, view, starts)
    first, where = (call("take", x, own, axis=0) for x in (values, order))
    return [first, where, inverse, _first(walk, counts, 0, _length(own))]


# --- non-maximum suppression ------------------------------------------------------------------------------------------


def non_max_suppression(walk: Walk, view: OnnxNode) -> Values:
    """NonMaxSuppression: for each batch and class the best boxes, none of which overlaps a better one too much."""
    boxes, scores = view.input(0), view.input(1)
    _, classes, count = _shape(scores)
    asked = view.optional_const(2, "largest number of boxes")
    most = least(count, 0 if asked is None else max(0, int(np.reshape(asked, -1)[0])))
    if isinstance(most, int) and most == 0:
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
    positions = _positions(walk, view, call("greater_equal", chosen, i64(0)))
    rows = [
        call("floor_divide", positions, as_number(classes * most)),
        call("floor_mod", call("floor_divide", positions, as_number(most)), as_number(classes)),
        call("take", chosen, positions, axis=0),
    ]
    return [call("stack", tuple(rows), axis=1)]


def _threshold(view: OnnxNode, index: int, default: float) -> Expr:
    if view.missing(index):
        return Constant(np.array(default, np.float32))
    return call("reshape", view.input(index), newshape=())
