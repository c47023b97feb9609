"""Grouped convolutions with fewer groups, and zero weights between what was apart.

In: a call of nn.conv2d with constant weights OIHW, and how many of its groups become one. Out: the call with fewer
groups. Invariant: the same values; the count divides the groups. Who asks: merge-groups on CPUs, fill-channels for
textures.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from armillary.base.aliases import Array
from armillary.relay.expr import Call, Constant


def with_merged_groups(expr: Call, count: int) -> Call:
    """Each output channel gets zero weights for the inputs of the other `count - 1` groups; `count` divides them."""
    weight, groups = expr.args[1], expr.attrs.groups
    assert isinstance(weight, Constant), "who merges groups asks for it"
    old: Array = weight.data
    outputs, inside, *kernel = old.shape
    parts = old.reshape(groups // count, count, outputs // groups, inside, *kernel)
    new = np.zeros((*parts.shape[:3], count, *parts.shape[3:]), old.dtype)
    for group in range(count):
        new[:, group, :, group] = parts[:, group]
    attrs = dataclasses.replace(expr.attrs, groups=groups // count)
    return Call(expr.op, (expr.args[0], Constant(new.reshape(outputs, count * inside, *kernel))), attrs, expr.span)
