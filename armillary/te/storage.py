"""Shapes of the buffers behind stages: whole tensors, regions, and padding asked for by storage_align.

In: the plan of a stage and one of its tensors. Out: the buffer's shape. Invariant: padding only enlarges a dimension;
it never changes an index. Regions: `te/bounds.py`.
"""

from __future__ import annotations

from math import prod

from armillary.errors import ScheduleError
from armillary.te.affine import to_expr
from armillary.te.bounds import Plan
from armillary.te.tensor import Tensor
from armillary.tir import build as T
from armillary.tir.expr import Expr


def buffer_shape(plan: Plan, tensor: Tensor) -> tuple[Expr, ...]:
    """The shape of the buffer that holds a stage's tensor, or its region."""
    axes = plan.stage.op.axis
    if not axes or len(axes) != tensor.ndim or (plan.step is not None and plan.stage.attach is None):
        return tensor.shape
    shape = [to_expr(plan.sizes[a], e.dtype) for a, e in zip(axes, tensor.shape, strict=True)]
    for position, axis in enumerate(axes):
        if axis in plan.stage.align:
            _align(plan, shape, position, *plan.stage.align[axis])
    return tuple(shape)


def _align(plan: Plan, shape: list[Expr], position: int, factor: int, offset: int) -> None:
    """Pad the next dimension until the stride of this one is k * factor + offset."""
    name = plan.stage.key
    sizes = [T.as_int(e) for e in shape]
    inner = sizes[position + 1 :]
    if not inner or any(n is None for n in inner):
        if not inner and factor == 1:
            return
        raise ScheduleError(
            f"storage_align on stage {name}: the stride of this axis cannot be padded",
            hint="align an axis that has inner axes of constant extent",
        )
    step = prod(n for n in inner[1:] if n is not None)
    first = inner[0] or 1
    for extent in range(first, first + factor):
        if extent * step % factor == offset:
            shape[position + 1] = T.const(extent, shape[position + 1].dtype)
            return
    raise ScheduleError(f"storage_align on stage {name}: no padding gives a stride of k * {factor} + {offset}")
