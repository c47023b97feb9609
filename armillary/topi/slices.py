"""Slices whose bounds are expressions or tensors: `strided_slice`, `dynamic_strided_slice`, `strided_set`.

In: a tensor; bounds as numbers, as expressions, or as tensors of integers. Out: TE tensors. Invariant: numbers and
tensors mean what they mean in numpy's `x[b:e:s]` (negative ones count from the end, beyond the axis is cut);
expressions are positions inside the axis. Of numbers alone the operator `strided_slice` makes the slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from armillary import te
from armillary.base.arguments import Arguments
from armillary.base.boundary import boundary
from armillary.errors import TypeMismatch
from armillary.tir import build as T
from armillary.tir.build import as_int
from armillary.tir.simplify import simplify
from armillary.topi.operators import single

Tensor = te.Tensor
_MOST = 2**31 - 1  # of an int32, in which bounds are computed
Bounds: TypeAlias = "Tensor | Sequence[te.ExprLike]"
OpenBounds: TypeAlias = "Tensor | Sequence[te.ExprLike | None]"
_FAR = (1 << 31) - 1  # an end behind every axis


@boundary("topi.strided_slice", arguments=True)
def strided_slice(
    a: Tensor,
    begin: OpenBounds,
    end: OpenBounds,
    strides: Bounds | None = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
    assume_inbound: bool = True,
) -> Tensor:
    """`a[begin:end:strides]` along `axes`, or along the first ones.

    Bounds that are tensors give a result of as many axes, whose sizes are variables that the caller's tensor tells.
    """
    begin, end = _stated(begin, strides, 0), _stated(end, strides, _FAR)
    if any(isinstance(bound, Tensor) for bound in (begin, end, strides)):
        if axes is not None or slice_mode != "end":
            raise TypeMismatch("topi.strided_slice: bounds in tensors are those of all axes, with slice_mode 'end'")
        shape = [te.var(f"size{k}") for k in range(a.ndim)]
        return dynamic_strided_slice(a, begin, end, strides, shape)
    steps = _numbers(strides) if strides is not None else [1]
    first, last = _numbers(begin), _numbers(end)
    named: dict[str, object] = {"begin": first, "end": last, "strides": steps, "slice_mode": slice_mode}
    is_static = all(as_int(extent) is not None for extent in a.shape)
    if is_static and not any(isinstance(bound, te.Expr) for bound in (*first, *last, *steps)):
        named = {key: tuple(value) if isinstance(value, list) else value for key, value in named.items()}
        return single("strided_slice", [a], {**named, "axes": None if axes is None else tuple(axes)})
    places = [k % a.ndim for k in axes] if axes is not None else list(range(len(first)))
    if slice_mode != "end" or len(first) != len(last) or len(first) != len(places):
        raise TypeMismatch(
            f"topi.strided_slice: {len(first)} begins, {len(last)} ends and {len(places)} axes, mode {slice_mode!r}",
            hint="as many of each, with slice_mode 'end'",
        )
    return _of_expressions(a, dict(zip(places, zip(first, last, steps * len(first), strict=False), strict=True)))


def _stated(bounds: OpenBounds, strides: Bounds | None, otherwise: int) -> Bounds:
    """Bounds with a value for those that are None, which are the whole axis forwards."""
    if isinstance(bounds, Tensor | te.Expr | int):
        return bounds
    steps = [1] if strides is None else _numbers(strides) if any(b is None for b in bounds) else []
    if any(not isinstance(step, int) or step < 0 for step in steps):
        raise TypeMismatch(f"topi.strided_slice: bounds {bounds} are left out where steps are {steps}")
    return [otherwise if bound is None else bound for bound in bounds]


def _numbers(values: Bounds) -> list[te.ExprLike]:
    """Bounds as ints where they are known."""
    if isinstance(values, Tensor):
        raise TypeMismatch("topi.strided_slice: some bounds are tensors and others are not")
    numbers = [values] if isinstance(values, te.Expr | int) else list(values)
    return [value if (known := _known(value)) is None else known for value in numbers]


def _known(value: te.ExprLike) -> int | None:
    return as_int(simplify(T.convert(value)))


def _of_expressions(a: Tensor, cuts: dict[int, tuple[te.ExprLike, te.ExprLike, te.ExprLike]]) -> Tensor:
    shape: list[te.ExprLike] = list(a.shape)
    begins: dict[int, tuple[te.Expr, te.Expr]] = {}
    for axis, (first, last, step) in cuts.items():
        low, high = (_from_front(bound, a.shape[axis]) for bound in (first, last))
        step = T.convert(step)
        shape[axis] = simplify(T.ceildiv(high - low, step))
        begins[axis] = low, step

    def element(*at: te.Var) -> te.Expr:
        moved = [begins[k][0] + i * begins[k][1] if k in begins else i for k, i in enumerate(at)]
        return a(*moved)

    return te.compute(shape, element, name="strided_slice", tag="injective")


def _from_front(bound: te.ExprLike, size: te.Expr) -> te.Expr:
    known = _known(bound)
    if known is None:
        return T.convert(bound)
    return T.minimum(known, size) if known >= 0 else T.maximum(size + known, 0)


@boundary("topi.dynamic_strided_slice", arguments=True)
def dynamic_strided_slice(
    a: Tensor, begin: Bounds, end: Bounds, strides: Bounds | None, output_shape: Sequence[te.ExprLike]
) -> Tensor:
    """A slice whose bounds are read when it runs; its shape, which follows from them, is given."""
    Arguments("topi.dynamic_strided_slice").kind("a", a, Tensor, "a tensor")
    read = [_reader(name, bounds) for name, bounds in (("begin", begin), ("strides", strides))]

    def element(*at: te.Var) -> te.Expr:
        moved = []
        for k, i in enumerate(at):
            step = read[1](k, T.const(1))
            moved.append(_start(read[0](k, T.const(0)), a.shape[k], step) + i * step)
        return a(*moved)

    return te.compute(tuple(output_shape), element, name="strided_slice", tag="injective")


def _reader(name: str, bounds: Bounds | None) -> Callable[[int, te.Expr], te.Expr]:
    """Bound number k, as int32, or what stands for one that is not there."""
    if isinstance(bounds, Tensor) and (bounds.ndim != 1 or not bounds.dtype.is_int):
        raise TypeMismatch(f"topi: {name} is {bounds.dtype} of {bounds.ndim} axes, wanted a vector of integers")
    count = 0 if bounds is None else as_int(bounds.shape[0]) if isinstance(bounds, Tensor) else len(bounds)

    def read(k: int, missing: te.Expr) -> te.Expr:
        if bounds is None or (count is not None and k >= count):
            return missing
        bound = bounds(k) if isinstance(bounds, Tensor) else T.convert(bounds[k])
        if bound.dtype.bits <= 32:
            return T.cast(bound, "int32")
        most = T.const(_MOST, bound.dtype)  # beyond it a bound means the end of the axis
        bound = T.minimum(bound, most)
        return T.cast(bound if bound.dtype.code == "uint" else T.maximum(bound, -most), "int32")

    return read


def _start(bound: te.Expr, size: te.Expr, step: te.Expr) -> te.Expr:
    """Where a slice begins: counted from the front, and cut to the axis."""
    front = T.select(bound < 0, bound + size, bound)
    rising = T.minimum(T.maximum(front, 0), size)
    falling = T.minimum(T.maximum(front, -1), size - 1)
    return T.select(step < 0, falling, rising)


@boundary("topi.strided_set", arguments=True)
def strided_set(a: Tensor, v: Tensor, begin: Bounds, end: Bounds, strides: Bounds | None = None) -> Tensor:
    """`a` with `a[begin:end:strides]` replaced by `v`; bounds that are left out are those of the whole axis."""
    check = Arguments("topi.strided_set")
    check.kind("a", a, Tensor, "a tensor")
    check.kind("v", v, Tensor, "a tensor")
    if v.ndim != a.ndim or v.dtype != a.dtype:
        raise TypeMismatch(f"topi.strided_set: v is {v.dtype} of {v.ndim} axes, wanted {a.dtype} of {a.ndim}")
    first, last, steps = (
        _reader(n, values_of) for n, values_of in (("begin", begin), ("end", end), ("strides", strides))
    )

    def element(*at: te.Var) -> te.Expr:
        inside: list[te.Expr] = []
        places: list[te.Expr] = []
        for k, i in enumerate(at):
            size, step = a.shape[k], steps(k, T.const(1))
            low = _start(first(k, T.select(step < 0, size - 1, T.const(0))), size, step)
            high = last(k, T.select(step < 0, -size - 1, size))
            high = T.select(high < 0, high + size, high)
            distance = T.select(step < 0, low - i, i - low)
            width = T.maximum(T.select(step < 0, -step, step), 1)
            inside += [distance >= 0, T.select(step < 0, i > high, i < high), T.equal(T.floormod(distance, width), 0)]
            places.append(T.floordiv(distance, width))
        return T.if_then_else(T.all_of(*inside), v(*places), a(*at))

    return te.compute(a.shape, element, name="strided_set", tag="injective")


FUNCTIONS: dict[str, Callable[..., object]] = {
    "dynamic_strided_slice": dynamic_strided_slice,
    "strided_set": strided_set,
    "strided_slice": strided_slice,
}
