"""Kernels of cpu.conv2d_by_size_NCHWc: the direct convolution and the one by transforms, under a condition over sizes.

In: its call in a fused function. Out: the two calls that may stand in its place, and when which does; lowering
(driver/lower_fused.py) makes the loops of both. Invariant: both have the call's arguments, so the kernel's parameters
are those of the fused function.
"""

from __future__ import annotations

from dataclasses import fields, replace

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.cpu.conv2d.winograd.operator_by_size import BySizeAttrs
from armillary.backends.cpu.conv2d.winograd.space import WINOGRAD
from armillary.backends.explanation import Explanation
from armillary.backends.registry import Fused, Version, Versions, implement
from armillary.backends.workload import Workload
from armillary.relay.expr import Call, shape_of
from armillary.relay.infer import infer_type
from armillary.relay.op import get_op

_DIRECT, _TRANSFORMED = "nn.contrib_conv2d_NCHWc", "cpu.conv2d_winograd_NCHWc"


def _attrs_of(name: str, attrs: BySizeAttrs, left_out: str = "") -> object:
    """The attributes that both operators have, of the one of this name."""
    op = get_op(name)
    assert op.attrs_class is not None, "convolutions have attributes"
    names = (field.name for field in fields(op.attrs_class) if field.name != left_out and hasattr(attrs, field.name))
    return op.make_attrs(named={name: getattr(attrs, name) for name in names})


def versions(call: Call, workload: Workload) -> Versions:
    """Directly for few output pixels, by transforms for many."""
    del workload
    data, weight, transformed = call.args
    plain = _attrs_of(_DIRECT, call.attrs, left_out="choice")  # which is of the transforms
    few = Call(get_op(_DIRECT), (data, weight), plain, call.span)
    many = Call(get_op(_TRANSFORMED), (data, transformed), _attrs_of(_TRANSFORMED, call.attrs), call.span)
    for version in (few, many):
        infer_type(version)
    shape = shape_of(call)
    assert shape is not None, "extents are numbers or expressions over sizes"
    return Versions(shape[0] * shape[2] * shape[3], call.attrs.fewest, (Version(few),), many)


def _explain(workload: Workload) -> Explanation:
    """The choice for typical sizes, which are many pixels."""
    types = (workload.types[0], workload.types[2])
    op, attrs = get_op(_TRANSFORMED), _attrs_of(_TRANSFORMED, workload.attrs)
    message = WINOGRAD.explain(replace(workload, op=op, attrs=attrs, types=types))
    below = f"directly below {workload.attrs.fewest} output pixels"
    return replace(message, objections=(*message.objections, below))


_BY_SIZE = Candidate("cpu.conv2d_by_size_NCHWc", "conv2d_by_size", sizes="any", explain_rule=_explain)


@implement(_BY_SIZE, family="cpu", versions=versions)
def conv2d_by_size(schedule: te.Schedule, fused: Fused) -> None:
    """Nothing: each version is scheduled as its own operator is."""
    del schedule, fused
