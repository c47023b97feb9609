"""Axes that an operator takes to be equal are noted where their sizes have names: a run compares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import pytest
import sampling

from armillary.base.extent import noted_meetings, size, sizes_of
from armillary.errors import ArmillaryError
from armillary.relay.expr import Constant
from armillary.relay.op import OPS, Op, Sample
from armillary.relay.types import Dim, TensorType, TupleType, Type

Place: TypeAlias = tuple[int, ...]  # the input, its field, the axis
OWN = ("cpu.", "nn.contrib_", "opencl.")  # what builds make of operators that have been asked
KNOWN = {  # must be known when compiling, or leave what is read inside: blocks, parts
    "collapse_sum_like": "its shapes must be known",
    "layout_transform": "whole blocks are read",
    "nn.add_step": "of the compiler's own",
    "nn.depth_to_space": "whole blocks are read",
    "nn.lstm_cell": "of the compiler's own",
    "nn.space_to_depth": "whole blocks are read",
    "vision.yolo_reorg": "whole blocks are read",
}


def _type(value: object) -> Type:
    if isinstance(value, TensorType):
        return value
    return TupleType(tuple(map(_type, value))) if isinstance(value, list | tuple) else Constant(value).checked_type


def _mapped(ty: Type, place: Place, rule: Callable[[Place, Dim], Dim]) -> Type:
    if isinstance(ty, TupleType):
        return TupleType(tuple(_mapped(field, (*place, k), rule) for k, field in enumerate(ty.fields)))
    assert isinstance(ty, TensorType)
    return TensorType(tuple(rule((*place, axis), dim) for axis, dim in enumerate(ty.shape)), ty.dtype)


def _is_typed(op: Op, sample: Sample, types: list[Type], changed: Mapping[Place, Dim]) -> bool:
    try:
        op.infer_type(sample.attrs, [_mapped(t, (k,), lambda p, d: changed.get(p, d)) for k, t in enumerate(types)])
    except ArmillaryError:
        return False
    return True


def _axes_not_noted(op: Op, sample: Sample) -> list[Place]:
    """Axes that cannot change alone, though the type rule takes a size of any value there and notes nothing."""
    types = [_type(value) for value in sample.inputs]
    dims: dict[Place, Dim] = {}
    for k, ty in enumerate(types):
        _mapped(ty, (k,), lambda place, dim: dims.setdefault(place, dim))
    result = []
    for place, dim in dims.items() if _is_typed(op, sample, types, {}) else ():
        with noted_meetings() as noted:
            if not isinstance(dim, int) or dim < 2 or not _is_typed(op, sample, types, {place: size("s", 1)}):
                continue
        numbers = (dim + 1, dim + 5, 2 * dim)  # fewer may leave nothing, which no tensor is for
        is_noted = any("s" in sizes_of([meeting.a, meeting.b]) for meeting in noted)
        if not is_noted and not all(_is_typed(op, sample, types, {place: n}) for n in numbers):
            result.append(place)
    return result


@pytest.mark.parametrize("name", [n for n in sorted(OPS) if not n.startswith(OWN) and n not in KNOWN])
def test_what_cannot_change_alone_is_compared(name: str) -> None:
    op = OPS[name]
    for sample in sampling.list_samples(op)[:6] if op.infer_rule is not None else ():
        assert not _axes_not_noted(op, sample), sample.attrs


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_the_exceptions_are_needed(name: str) -> None:
    op = OPS[name]
    assert any(_axes_not_noted(op, sample) for sample in sampling.list_samples(op)), KNOWN[name]
