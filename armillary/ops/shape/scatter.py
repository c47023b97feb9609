"""Writing at computed positions: scatter_elements, scatter_nd (and Relay's older name scatter).

In: data, integer positions, updates. Out: the data with the updates written over it, or combined with it. Invariant:
updates are applied in row-major order of the updates, so the last one wins; a position is counted from the end when
negative and is clamped, never outside. Reading: indexing.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import S, scalar, te
from armillary.ops._loops import load, nest, nest_apart, rows, store
from armillary.ops._types import axis_of, check_kind, check_same_dtype, check_to_read, f32, i32, ints
from armillary.ops.nn._windows import same_dim
from armillary.ops.shape.indexing import numpy_wrapped, wrapped
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Precision
from armillary.relay.types import AnyDim, TensorType, Type

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.stmt import Buffer, Stmt

Combine: TypeAlias = "Callable[[Scalar, Scalar], Scalar]"
_COMBINE: dict[str, tuple[Combine, np.ufunc | None]] = {
    "update": (lambda old, new: new, None),
    "add": (scalar("add"), np.add),
    "mul": (scalar("mul"), np.multiply),
    "min": (scalar("minimum"), np.minimum),
    "max": (scalar("maximum"), np.maximum),
}


def _check(name: str, reduction: str, data: Type, indices: Type, updates: Type) -> tuple[TensorType, ...]:
    """The three tensors, with dtypes and the reduction's name checked."""
    result = []
    for what, ty in (("data", data), ("indices", indices), ("updates", updates)):
        if not isinstance(ty, TensorType):
            raise TypeMismatch(f"{name}: {what} is {ty}, wanted a tensor")
        result.append(ty)
    check_kind(name, "indices", result[1], "integer")
    check_same_dtype(name, (result[0], result[2]))
    if reduction not in _COMBINE:
        raise TypeMismatch(f"{name}: reduction {reduction!r}, wanted one of {', '.join(_COMBINE)}")
    if reduction != "update":
        check_kind(name, "data", result[0], "numeric")
    return tuple(result)


def _numpy_scatter(data: Array, key: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    result, ufunc = np.array(data), _COMBINE[reduction][1]
    if ufunc is not None:
        ufunc.at(result, key, updates)
        return result
    flat = np.ravel_multi_index(key, data.shape).reshape(-1) if data.size else np.zeros(0, np.int64)
    result.reshape(-1)[flat] = updates.reshape(-1)  # of equal positions numpy keeps the last
    return result


def _extern(
    data: te.Tensor, inputs: list[te.Tensor], name: str, update: Callable[[list[Buffer], Buffer], Stmt]
) -> te.Tensor:
    """A copy of the data, then the update statement."""
    shape = te.extents(data)
    fixed = tuple(n for n in shape if isinstance(n, int))

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        head = len(shape) if len(shape) < 2 else len(shape) - 1

        def copy_row(i: list[Scalar]) -> Stmt:
            if len(fixed) < len(shape):
                return nest(shape[head:], lambda j: store(outs[0], load(ins[0], *i, *j), *i, *j))
            return nest_apart(fixed[head:], lambda j: store(outs[0], load(ins[0], *i, *j), *i, *j))

        return S.seq(rows(shape[:head], copy_row), update(ins, outs[0]))

    result: te.Tensor = te.extern([shape], [data, *inputs], body, name=name, dtype=[data.dtype])
    return result


# --- scatter_elements ---------------------------------------------------------------------------------------------


@record
class ScatterElementsAttrs:
    """The axis that indices point along; reduction: update, add, mul, min or max."""

    axis: int = 0
    reduction: str = "update"


_INPUTS = ("data", "indices", "updates")
scatter_elements = Op(
    "scatter_elements", kind=Kind.OPAQUE, inputs=_INPUTS, doc="Write elements at positions along an axis."
)
scatter_elements.attrs(ScatterElementsAttrs)


@scatter_elements.infer
def infer_scatter_elements(attrs: ScatterElementsAttrs, data: Type, indices: Type, updates: Type) -> TensorType:
    ty, places, values = _check("scatter_elements", attrs.reduction, data, indices, updates)
    axis = axis_of("scatter_elements", attrs.axis, ty.ndim)
    if places.ndim != ty.ndim or places.shape != values.shape:
        raise TypeMismatch(
            f"scatter_elements: indices {places.shape} and updates {values.shape} must agree, with {ty.ndim} dimensions"
        )
    for i, (have, want) in enumerate(zip(places.shape, ty.shape)):
        if i != axis and isinstance(have, int) and isinstance(want, int) and have > want:
            raise TypeMismatch(f"scatter_elements: indices {places.shape} exceed data {ty.shape} in dimension {i}")
    check_to_read("scatter_elements", ty, (axis,), places.shape)
    return ty


@scatter_elements.reference
def scatter_elements_reference(attrs: ScatterElementsAttrs, data: Array, indices: Array, updates: Array) -> Array:
    axis = attrs.axis % data.ndim
    key: list[Array] = list(np.indices(indices.shape))
    key[axis] = numpy_wrapped(indices, data.shape[axis])
    return _numpy_scatter(data, tuple(key), updates, attrs.reduction)


@scatter_elements.compute
def scatter_elements_compute(
    attrs: ScatterElementsAttrs, data: te.Tensor, indices: te.Tensor, updates: te.Tensor
) -> te.Tensor:
    shape, places = te.extents(data), te.extents(indices)
    axis, combine = attrs.axis % len(shape), _COMBINE[attrs.reduction][0]

    def update(ins: list[Buffer], out: Buffer) -> Stmt:
        def one(i: list[Scalar]) -> Stmt:
            at = [*i[:axis], wrapped(load(ins[1], *i), shape[axis]), *i[axis + 1 :]]
            return store(out, combine(load(out, *at), load(ins[2], *i)), *at)

        return nest(places, one)

    return _extern(data, [indices, updates], "scatter_elements", update)


@scatter_elements.samples
def scatter_elements_samples() -> Iterator[Sample]:
    places = ints([[0, 2], [1, -1]])
    for reduction in _COMBINE:
        yield Sample(ScatterElementsAttrs(1, reduction), (f32(2, 3), places, f32(2, 2)))
    yield Sample(ScatterElementsAttrs(0, "add"), (i32(3), ints([1, 1, 1, 0], "int64"), i32(4)))
    yield Sample(ScatterElementsAttrs(0), (f32(3), ints([1, 1]), f32(2)))


@scatter_elements.bad_samples
def scatter_elements_bad_samples() -> Iterator[BadSample]:
    yield BadSample(ScatterElementsAttrs(), (f32(3), i32(2), f32(3)), "must agree")
    yield BadSample(ScatterElementsAttrs(0, "mean"), (f32(3), i32(2), f32(2)), "wanted one of update, add")
    yield BadSample(ScatterElementsAttrs(), (f32(3), f32(2), f32(2)), "wanted integer")
    yield BadSample(ScatterElementsAttrs(), (f32(3), i32(2), i32(2)), "got int32, wanted float32")
    yield BadSample(ScatterElementsAttrs(), (f32(3, 2), i32(2, 3), f32(2, 3)), "exceed data")


# --- scatter_nd ---------------------------------------------------------------------------------------------------


@record
class ScatterNdAttrs:
    """indices is (M, Y..): a position of M leading axes for each of the Y.. slices in updates."""

    mode: str = "update"


scatter_nd = Op("scatter_nd", kind=Kind.OPAQUE, inputs=_INPUTS, doc="Write slices at multi-dimensional positions.")
scatter_nd.attrs(ScatterNdAttrs)


@scatter_nd.infer
def infer_scatter_nd(attrs: ScatterNdAttrs, data: Type, indices: Type, updates: Type) -> TensorType:
    ty, places, values = _check("scatter_nd", attrs.mode, data, indices, updates)
    depth = places.shape[0] if places.ndim else 0
    if isinstance(depth, AnyDim) or not places.ndim or depth > ty.ndim:
        raise TypeMismatch(f"scatter_nd: indices {places.shape} address {depth} axes, data {ty.shape} has {ty.ndim}")
    wanted = (*places.shape[1:], *ty.shape[depth:])
    if values.ndim != len(wanted) or not all(map(same_dim, values.shape, wanted)):
        raise TypeMismatch(f"scatter_nd: updates has shape {values.shape}, wanted {wanted}")
    check_to_read("scatter_nd", ty, range(depth), values.shape)
    return ty


@scatter_nd.reference
def scatter_nd_reference(attrs: ScatterNdAttrs, data: Array, indices: Array, updates: Array) -> Array:
    depth, count = indices.shape[0], indices.ndim - 1
    grid = np.indices(updates.shape)
    places = [np.clip(numpy_wrapped(indices[k], data.shape[k]), 0, None) for k in range(depth)]
    expand = (..., *(None,) * (updates.ndim - count))
    key = [np.broadcast_to(p[expand], updates.shape) for p in places]
    return _numpy_scatter(data, (*key, *grid[count:]), updates, attrs.mode)


@scatter_nd.compute
def scatter_nd_compute(attrs: ScatterNdAttrs, data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
    shape, places, values = (te.extents(t) for t in (data, indices, updates))
    depth, count, combine = te.static_shape(indices, 1)[0], len(places) - 1, _COMBINE[attrs.mode][0]

    def update(ins: list[Buffer], out: Buffer) -> Stmt:
        def one(i: Sequence[Scalar]) -> Stmt:
            at = [*(wrapped(load(ins[1], k, *i[:count]), shape[k]) for k in range(depth)), *i[count:]]
            return store(out, combine(load(out, *at), load(ins[2], *i)), *at)

        walk = nest_apart if len(values) > count else nest  # elements of a slice have places of their own
        return walk(values, one)

    return _extern(data, [indices, updates], "scatter_nd", update)


@scatter_nd.samples
def scatter_nd_samples() -> Iterator[Sample]:
    for mode in _COMBINE:
        yield Sample(ScatterNdAttrs(mode), (f32(3, 4), ints([[0, 2, 0], [1, -1, 3]]), f32(3)))
    yield Sample(ScatterNdAttrs("add"), (f32(3, 4), ints([[1, 1]], "int64"), f32(2, 4)))


@scatter_nd.bad_samples
def scatter_nd_bad_samples() -> Iterator[BadSample]:
    yield BadSample(ScatterNdAttrs(), (f32(3), i32(2, 3), f32(3)), "address 2 axes")
    yield BadSample(ScatterNdAttrs(), (f32(3, 4), i32(2, 3), f32(4)), "wanted (3,)")
    yield BadSample(ScatterNdAttrs("x"), (f32(3, 4), i32(2, 3), f32(3)), "wanted one of update")


state("scatter_elements scatter_nd", precision=Precision.FOLLOW)
