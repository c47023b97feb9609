"""Kernels of cpu.conv2d_by_size_NCHWc: the direct convolution and the one by transforms, under a condition over sizes.

In: its call in a fused function. Out: the two calls that may stand in its place, and when which does; lowering
(driver/lower_fused.py) makes the loops of both. Invariant: both have the call's arguments, so the kernel's parameters
are those of the fused function.
"""

from __future__ import annotations

from dataclasses import replace

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.cpu.conv2d.winograd.operator_by_size import winograd_attrs
from armillary.backends.cpu.conv2d.winograd.space import WINOGRAD
from armillary.backends.explanation import Explanation
from armillary.backends.registry import Fused, Versions, implement
from armillary.backends.workload import Workload
from armillary.relay.expr import Call, shape_of
from armillary.relay.infer import infer_type
from armillary.relay.op import get_op

_SAME = ("padding", "channels", "strides", "dilation", "groups", "data_layout", "kernel_layout", "out_layout")


def versions(call: Call) -> Versions:
    """Directly for few output pixels, by transforms for many."""
    data, weight, transformed = call.args
    direct = get_op("nn.contrib_conv2d_NCHWc")
    plain = direct.make_attrs(named={name: getattr(call.attrs, name) for name in _SAME})
    few = Call(direct, (data, weight), plain, call.span)
    many = Call(get_op("cpu.conv2d_winograd_NCHWc"), (data, transformed), winograd_attrs(call.attrs), call.span)
    for version in (few, many):
        infer_type(version)
    shape = shape_of(call)
    assert shape is not None, "extents are numbers or expressions over sizes"
    return Versions(shape[0] * shape[2] * shape[3], call.attrs.fewest, few, many)


def _explain(workload: Workload) -> Explanation:
    """The choice for typical sizes, which are many pixels."""
    types = (workload.types[0], workload.types[2])
    op, attrs = get_op("cpu.conv2d_winograd_NCHWc"), winograd_attrs(workload.attrs)
    message = WINOGRAD.explain(replace(workload, op=op, attrs=attrs, types=types))
    below = f"directly below {workload.attrs.fewest} output pixels"
    return replace(message, objections=(*message.objections, below))


_BY_SIZE = Candidate("cpu.conv2d_by_size_NCHWc", "conv2d_by_size", sizes="any", explain_rule=_explain)


@implement(_BY_SIZE, family="cpu", versions=versions)
def conv2d_by_size(schedule: te.Schedule, fused: Fused) -> None:
    """Nothing: each version is scheduled as its own operator is."""
    del schedule, fused
