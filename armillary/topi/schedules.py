"""`topi.generic.schedule_injective(outs)` and its kin: a schedule for computed tensors.

In: a tensor or a list of them, and the target in force. Out: a `te.Schedule` of them. Invariant: there is one way to
schedule tensors whose operator is not known, the back end's default; which old name asked for it makes no difference.
Tensors of symbolic shape get injective stages inlined, and plain loops.
"""

from __future__ import annotations

from typing import Any

from armillary import te
from armillary.backends.registry import Fused, choose
from armillary.backends.workload import Workload
from armillary.errors import TypeMismatch
from armillary.relay.op import get_op
from armillary.relay.types import tensor_type
from armillary.target import Target, as_target
from armillary.te.schedule import AutoInlineInjective
from armillary.tir.build import as_int


def schedule(outs: object, *_: object, **__: object) -> te.Schedule:  # tensors; what old functions took besides
    """The default schedule of the current target for these tensors."""
    outputs = _tensors(outs)
    made = te.create_schedule([t.op for t in outputs])
    computed = [s.op for s in made.stages if not isinstance(s.op, te.PlaceholderOp)]
    inputs = [s.op.output(0) for s in made.stages if isinstance(s.op, te.PlaceholderOp)]
    known = all(as_int(n) is not None for op in computed for t in op.outputs for n in t.shape)
    if not known or not all(isinstance(op, te.ComputeOp) for op in computed):
        AutoInlineInjective(made)
        return made
    target = Target.current() or as_target("llvm")
    workload = Workload(get_op("copy"), None, tuple(tensor_type(t.shape, t.dtype) for t in inputs), target)
    implementation, _reasons = choose(workload)
    with target:
        implementation.schedule(made, Fused(workload, (), tuple(outputs), tuple(inputs)))
    return made


def _tensors(outs: Any) -> list[te.Tensor]:
    found = [outs] if isinstance(outs, te.Tensor) else list(outs)
    if not found or not all(isinstance(t, te.Tensor) for t in found):
        raise TypeMismatch("a schedule is of tensors", hint="pass what was computed, or a list of it")
    return [t for k, t in enumerate(found) if all(t.op is not other.op for other in found[:k])]
