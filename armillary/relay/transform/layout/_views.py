"""Slices and resizes in changed layouts: parts of a tensor that can be taken without bringing it back.

In: a strided_slice, or a take along one axis, and the layout of its data. Out: the same part in that layout. Invariant:
a slice of a blocked axis starts and ends at whole blocks; element for element the result is the old one. The rules of
other operators: layout/_rules.py; what slices ask of a block before the walk: layout/_plan.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from armillary.base.extent import Extent
from armillary.ops.shape.slice import slices
from armillary.relay.expr import Call, Expr, shape_of
from armillary.relay.op import get_op
from armillary.relay.transform.layout._engine import Change, LayoutChoice, Request

Changes = Sequence[Change | None]


def strided_slice(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """Whole blocks of a blocked axis, any part of the others."""
    change, shape = have[0], shape_of(expr.args[0])
    if change is None or shape is None:
        return None
    plan = dict(zip(change.old.axes, slices(expr.attrs, shape), strict=True))
    begin, end, strides = [], [], []
    for letter, size in change.new.parts:
        start, step, count = plan[letter.upper()]
        block = change.new.block(letter)
        if step < 1 or not isinstance(start, int | Extent) or not isinstance(count, int | Extent):
            return None
        if size:  # the inner axis of a block stays whole
            start, step, count = 0, 1, size
        elif block:
            if not isinstance(start, int) or not isinstance(count, int) or step != 1 or start % block or count % block:
                return None
            start, count = start // block, count // block
        begin.append(start)
        end.append(start + (count - 1) * step + 1)
        strides.append(step)

    def build(args: Sequence[Expr]) -> Expr:
        return get_op("strided_slice")(args[0], begin=begin, end=end, strides=strides)

    return LayoutChoice((change,), build, change)


def take(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """Positions along a whole axis: resizing by nearest neighbours, or the parts of an interpolation."""
    change, indices = have[0], shape_of(expr.args[1])
    attrs = expr.attrs
    if change is None or have[1] is not None or indices is None or len(indices) != 1 or attrs.axis is None:
        return None
    letter = change.old.axes[attrs.axis % len(change.old.axes)]
    if attrs.batch_dims or change.new.block(letter):
        return None
    moved = dataclasses.replace(attrs, axis=change.new.index(letter))
    return LayoutChoice((change, None), lambda args: Call(expr.op, tuple(args), moved, expr.span), change)
