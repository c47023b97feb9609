"""`topi.generic.schedule_injective(outs)` and its kin: a schedule for computed tensors.

In: a tensor or a list of them, and the target in force. Out: a `te.Schedule` of them. Invariant: there is one way to
schedule tensors whose operator is not known, the back end's default, whichever old name asks for it; but for
`topi.arm_cpu.schedule_injective`, which does what scripts print of it, and `schedule_injective_from_existing`.
Tensors of symbolic shape get injective stages inlined, and plain loops.
"""

from __future__ import annotations

from typing import Any

from armillary import te
from armillary.backends.registry import Fused, choose
from armillary.backends.workload import Workload
from armillary.base.boundary import boundary
from armillary.errors import TypeMismatch
from armillary.relay.op import get_op
from armillary.relay.types import tensor_type
from armillary.target import Target, as_target
from armillary.te.schedule import AutoInlineInjective
from armillary.tir.build import as_int
from armillary.topi.utils import is_empty_shape

_VECTOR = 128  # bits of a register of NEON


def schedule(outs: object, *_: object, **__: object) -> te.Schedule:  # tensors; what old functions took besides
    """The default schedule of the current target for these tensors."""
    outputs = _tensors(outs)
    result = te.create_schedule([t.op for t in outputs])
    computed = [s.op for s in result.stages if not isinstance(s.op, te.PlaceholderOp)]
    inputs = [s.op.output(0) for s in result.stages if isinstance(s.op, te.PlaceholderOp)]
    known = all(as_int(n) is not None for op in computed for t in op.outputs for n in t.shape)
    if not known or not all(isinstance(op, te.ComputeOp) for op in computed):
        AutoInlineInjective(result)
        return result
    target = Target.current() or as_target("llvm")
    workload = Workload(get_op("copy"), None, tuple(tensor_type(t.shape, t.dtype) for t in inputs), target)
    implementation, _reasons = choose(workload)
    with target:
        implementation.schedule(result, Fused(workload, (), tuple(outputs), tuple(inputs)))
    return result


def arm_injective(outs: object) -> te.Schedule:  # a tensor, or a list of them
    """`topi.arm_cpu.schedule_injective`: vectors of 16 bytes along the last axis, parallel loops along the first ones.

    Of float32 that is four lanes, of int8 sixteen. What is elementwise on the way is computed where it is read.
    """
    outputs = _tensors(outs)
    result, first = te.create_schedule([t.op for t in outputs]), outputs[0]
    if first.ndim:
        _, inner = result[first].split(result[first].op.axis[-1], max(1, _VECTOR // first.dtype.bits))
        result[first].vectorize(inner)
    AutoInlineInjective(result)
    return result if is_empty_shape(first.shape) else from_existing(result, first)


@boundary("topi.schedule_injective_from_existing", arguments=True)
def from_existing(sch: te.Schedule, out: te.Tensor) -> te.Schedule:
    """Parallel loops over up to three of the first axes of a stage; its last axis stays as it was scheduled.

    On a GPU all its elements are spread over groups of work-items.
    """
    stage, target = sch[out], Target.current()
    if target is not None and "gpu" in target.keys:
        outer, inner = stage.split(stage.fuse(*stage.op.axis), int(target.max_num_threads))
        stage.bind(outer, te.thread_axis("blockIdx.x"))
        stage.bind(inner, te.thread_axis("threadIdx.x"))
        return sch
    axes = stage.op.axis[: min(3, out.ndim - 1)]
    if axes:
        stage.parallel(stage.fuse(*axes) if len(axes) > 1 else axes[0])
    return sch


def _tensors(outs: Any) -> list[te.Tensor]:
    tensors = [outs] if isinstance(outs, te.Tensor) else list(outs)
    if not tensors or not all(isinstance(t, te.Tensor) for t in tensors):
        raise TypeMismatch("a schedule is of tensors", hint="pass what was computed, or a list of it")
    return [t for k, t in enumerate(tensors) if all(t.op is not other.op for other in tensors[:k])]
