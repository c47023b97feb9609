"""Positions and other integers of a model that must lie within bounds.

In: an input of a node and the bounds. Out: the input, behind check_values where its values are not known when
importing. Invariant: known values are looked at now, and refused with the name of the node. Operands that broadcast to
another, which does not grow to them, are looked at here too; shapes that must be the same: ../shapes.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from armillary.base.extent import Known
from armillary.errors import TypeMismatch
from armillary.frontend.onnx.node import OnnxNode
from armillary.ops.check_values import NOT_ZERO, CheckValuesAttrs, check_values, violation
from armillary.relay.expr import Call, Expr


def along(size: Known) -> tuple[Known, Known]:
    """Bounds of a position on an axis: ONNX counts negative ones from the end."""
    return 0 - size, size - 1


def checked(node: OnnxNode, index: int, bounds: Sequence[tuple[Known, Known]], what: str, moved: int) -> Expr:
    """Input `index` of an ONNX node, whose values lie within bounds: looked at now if known, else when run."""
    value, ty = node.input(index), node.type_of(index)
    attrs = CheckValuesAttrs(tuple(bounds), f"{node.op_type}: {what}", moved)
    known = node.constants[index] if index < len(node.constants) else None
    fixed = [(low, high) for low, high in bounds if isinstance(low, int) and isinstance(high, int)]
    if known is not None and len(fixed) == len(bounds):
        problem = violation(np.asarray(known), attrs)
        if problem:
            raise TypeMismatch(f"{node.op_type} node {node.name!r}: {problem.partition(': ')[2]}")
        return value
    if 0 in ty.shape or any(high < low for low, high in fixed if (low, high) != NOT_ZERO):
        return value  # nothing to check, or an axis without elements, which other rules refuse
    return Call(check_values, (value,), attrs)


def one_way(node: OnnxNode, index: int, wanted: Sequence[object]) -> Expr:
    """Input `index` of an ONNX node, which broadcasts to the wanted shape and not the other way."""
    ty = node.type_of(index)
    behind = wanted[len(wanted) - ty.ndim :] if ty.ndim <= len(wanted) else ()
    fits = len(behind) == ty.ndim and all(
        have in (1, want) or not isinstance(have, int) or not isinstance(want, int)
        for have, want in zip(ty.shape, behind, strict=True)
    )
    if not fits:
        message = f"input {index} has shape {ty.shape}, which does not broadcast to {tuple(wanted)}"
        raise TypeMismatch(f"{node.op_type} node {node.name!r}: {message}")
    return node.input(index)


def checked_points(node: OnnxNode, batch_dims: int = 0) -> Expr:
    """Input 1, whose last axis has one position for each of the leading axes of input 0."""
    shape, places = node.type_of(0), node.type_of(1)
    count = places.shape[-1] if places.ndim else 0
    sizes = shape.known[batch_dims : batch_dims + count] if isinstance(count, int) else ()
    if not sizes or len(sizes) != count:
        return node.input(1)  # refused by the operator, with its shapes
    moved = math.prod(places.typical[:-1]) * math.prod(shape.typical[batch_dims + len(sizes) :])
    return checked(node, 1, [along(size) for size in sizes], "index", moved)
