"""What CPU schedules share: lanes, extents, fusing axes, and which expressions are dear to recompute.

In: axes, stages and bodies of te. Out: numbers and answers. Invariant: nothing here depends on an operator.
Users: the schedules of this directory.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary import te
from armillary.dtype import DType
from armillary.errors import UnsupportedError
from armillary.node import Node, post_order
from armillary.target.cpu import CpuModel
from armillary.tir import build as T
from armillary.tir.expr import Call, Div, IterVar

_CHEAP_CALLS = frozenset({
    "if_then_else", "likely", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right", "fabs", "abs",
})  # fmt: skip


def lanes_of(cpu: CpuModel, dtype: DType) -> int:
    """Elements of `dtype` in one vector register."""
    return max(1, cpu.vector_bits // (8 * dtype.bytes))


def is_power_of_two(extent: int) -> bool:
    """Whether an axis of this extent is one short vector."""
    return extent > 1 and extent & (extent - 1) == 0


def static_extent(axis: IterVar) -> int:
    """The extent of an axis, which must be known; 1 << 30 for a symbolic one."""
    if axis.dom is None:
        raise UnsupportedError(f"axis {axis.var.name} has no range")
    extent = T.as_int(axis.dom.extent)
    return 1 << 30 if extent is None else extent


def fuse_all(stage: te.Stage, axes: Sequence[IterVar]) -> IterVar:
    """The (adjacent) axes fused into one."""
    return axes[0] if len(axes) == 1 else stage.fuse(*axes)


def is_expensive(body: Node) -> bool:
    """Whether computing it twice costs more than storing it once."""
    return any(isinstance(n, Div) or (isinstance(n, Call) and n.name not in _CHEAP_CALLS) for n in post_order(body))
