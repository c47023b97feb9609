"""Buffers of a schedule's arguments: those that a script binds, and those that broadcast.

In: a schedule, its arguments, `binds=` of `build` or `lower`. Out: a buffer for each argument that is not just dense:
one that the script declared, or one whose symbolic axes may turn out to have length 1. Invariant: a buffer has the
tensor's dtype and rank. Where such an axis counts: `ir_builder.broadcast_strides`; variables that name strides and
offsets: `tir/transform/scripts/arguments.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from armillary.errors import TypeMismatch
from armillary.te.operation import ComputeOp, PlaceholderOp
from armillary.te.tensor import Tensor
from armillary.tir.analysis import free_vars
from armillary.tir.expr import Expr, Var
from armillary.tir.ir_builder import broadcast_strides
from armillary.tir.stmt import Buffer

if TYPE_CHECKING:
    from armillary.te.schedule import Schedule


def argument_buffers(schedule: Schedule, args: Sequence[object], binds: object) -> dict[Tensor, Buffer]:
    """The buffers of arguments that are not just dense.

    Raises TypeMismatch for what is no mapping of arguments to buffers of their dtype and rank.
    """
    result = _broadcasting(schedule, args)
    if binds is None:
        return result
    if not isinstance(binds, Mapping):
        raise TypeMismatch(f"lower: binds is {type(binds).__name__}, wanted a mapping of tensors to buffers")
    for tensor, buffer in binds.items():
        if _is_absent(tensor, schedule, args):
            continue  # the indices of a sparse matrix, of which a program reads the elements alone
        if not isinstance(tensor, Tensor) or not any(tensor == a for a in args if isinstance(a, Tensor)):
            raise TypeMismatch(f"lower: binds names {tensor!r:.60}, which is no tensor among the arguments")
        if not isinstance(buffer, Buffer):
            raise TypeMismatch(f"lower: binds gives {tensor.name} {buffer!r:.60}", hint="use tir.decl_buffer")
        if buffer.dtype is not tensor.dtype or len(buffer.shape) != tensor.ndim:
            got, wanted = (f"{x.dtype} of {len(x.shape)} axes" for x in (buffer, tensor))
            raise TypeMismatch(f"lower: binds gives {tensor.name} a buffer of {got}, wanted {wanted}")
        result[tensor] = buffer
    return result


def _is_absent(tensor: object, schedule: Schedule, args: Sequence[object]) -> bool:
    """Whether a tensor is an input that neither the program nor its arguments have."""
    if not isinstance(tensor, Tensor) or not isinstance(tensor.op, PlaceholderOp):
        return False
    is_argument = any(isinstance(a, Tensor) and tensor == a for a in args)
    return not is_argument and all(stage.op is not tensor.op for stage in schedule.stages)


def _broadcasting(schedule: Schedule, args: Sequence[object]) -> dict[Tensor, Buffer]:
    """Inputs with an axis whose length no other argument and no loop has: if it is 1, it stands for any length."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    counts = Counter(size for t in tensors for size in t.shape if isinstance(size, Var))
    if not counts:
        return {}
    if not all(isinstance(stage.op, ComputeOp | PlaceholderOp) for stage in schedule.stages):
        return {}  # others see memory, not elements
    used: set[Var] = {a for a in args if isinstance(a, Var)}
    for stage in schedule.stages:
        if isinstance(stage.op, ComputeOp):
            axes = (*stage.op.axis, *stage.op.reduce_axis)
            used.update(v for axis in axes if axis.dom is not None for v in free_vars(axis.dom.extent))
    result: dict[Tensor, Buffer] = {}
    for tensor in tensors:
        if not isinstance(tensor.op, PlaceholderOp):
            continue
        places = {k for k, n in enumerate(tensor.shape) if _is_own(n, counts, used)}
        if places:
            strides = broadcast_strides(tensor.shape, places)
            result[tensor] = Buffer(tensor.name, tensor.shape, tensor.dtype, strides=strides)
    return result


def _is_own(size: Expr, counts: Counter[Var], used: set[Var]) -> bool:
    return isinstance(size, Var) and counts[size] == 1 and size not in used
