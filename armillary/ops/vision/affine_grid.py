"""image.affine_grid: where each element of a picture is read when it is turned, moved or scaled.

In: data (N, 2, 3), one matrix for each picture, and the size (H, W) of the result. Out: (N, 2, H, W): x and y of the
places, in [-1, 1] between the outer centres, as image.grid_sample reads them. Invariant: one product of the matrices
with a constant, the homogeneous coordinates of the unmoved points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from armillary.base.record import record
from armillary.budgets import FOLDED_BYTES
from armillary.errors import TypeMismatch
from armillary.ops.nn._windows import call, f32, need_float, need_rank, per_axis, reshape_to, type_of
from armillary.relay.expr import Expr, const
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

NAME = "image.affine_grid"


@record
class AffineGridAttrs:
    target_shape: tuple[int, ...] = ()


affine_grid = Op(NAME, kind=Kind.OPAQUE, doc="Places that an affine map reads.")
affine_grid.attrs(AffineGridAttrs)


@affine_grid.infer
def _infer(attrs: AffineGridAttrs, data: Type) -> TensorType:
    x = need_float(NAME, need_rank(NAME, data, 3))
    if x.shape[1:] != (2, 3):
        raise TypeMismatch(f"{NAME}: data has shape {x.shape}, wanted (N, 2, 3)")
    return TensorType((x.shape[0], 2, *per_axis(NAME, "target_shape", attrs.target_shape, 2)), x.dtype)


def line(size: int, to_corners: bool) -> Array:
    """Coordinates along one axis: from -1 to 1 between the outer centres, or the outer edges."""
    if to_corners:
        return np.linspace(-1.0, 1.0, size) if size > 1 else np.zeros(size)
    return (2 * np.arange(size) + 1) / size - 1


def points(sizes: tuple[int, ...], to_corners: bool) -> Array:
    """Coordinates of every element, x first, and a one: (elements, axes + 1)."""
    grid = np.meshgrid(*(line(size, to_corners) for size in sizes), indexing="ij")
    return np.stack([*(axis.reshape(-1) for axis in reversed(grid)), np.ones(grid[0].size)], axis=1)


def _unmoved(attrs: AffineGridAttrs, dtype: object) -> Array:
    return points(per_axis(NAME, "target_shape", attrs.target_shape, 2), True).astype(str(dtype))


@affine_grid.reference
def _reference(attrs: AffineGridAttrs, data: Array) -> Array:
    placed: Array = np.einsum("nik,pk->nip", data, _unmoved(attrs, data.dtype)).astype(data.dtype)
    return placed.reshape(data.shape[0], 2, *per_axis(NAME, "target_shape", attrs.target_shape, 2))


@affine_grid.decompose
def _decompose(attrs: AffineGridAttrs, data: Expr) -> Expr:
    ty = type_of(data)
    count = ty.known[0]
    FOLDED_BYTES.check(48 * math.prod(per_axis(NAME, "target_shape", attrs.target_shape, 2)), NAME)
    product = call("nn.dense", reshape_to(data, (count * 2, 3)), const(_unmoved(attrs, ty.dtype)))
    return reshape_to(product, (count, 2, *per_axis(NAME, "target_shape", attrs.target_shape, 2)))


@affine_grid.samples
def _samples() -> Iterator[Sample]:
    yield Sample(AffineGridAttrs((4, 5)), (f32(2, 2, 3),))
    yield Sample(AffineGridAttrs((1, 3)), (f32(1, 2, 3),))


@affine_grid.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(AffineGridAttrs((4, 5)), (f32(2, 3, 3),), "wanted (N, 2, 3)")
    yield BadSample(AffineGridAttrs((4, 5, 6)), (f32(2, 2, 3),), "target_shape must be 2 integers")
