"""The schedule of cpu.conv2d_winograd_weight_transform, which runs when a network is loaded.

In: a fused function that is this transform alone. Out: a thread takes a pair of channel blocks; for each input channel
a vector of kernels is transformed by rows, then by columns, in registers, and stored to the a x a places. Invariant:
each weight is read once and each result written once, so the time is that of writing the results.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.cpu.loops import fuse_all
from armillary.backends.registry import Fused, implement


@implement(Candidate("cpu.conv2d_winograd_weight_transform", "winograd_weights"), family="cpu")
def schedule_weights(schedule: te.Schedule, fused: Fused) -> None:
    """Rows in registers, all points unrolled, one vector of output channels at a time."""
    (output,) = fused.outputs
    (rows,) = (t for t in output.op.input_tensors)
    stage = schedule[output]
    a, b, o, i, p, q = stage.op.axis
    stage.reorder(o, i, p, a, b, q)
    stage.unroll(a)
    stage.unroll(b)
    stage.vectorize(q)
    stage.parallel(fuse_all(stage, [o, i]))
    inside = schedule[rows]
    inside.set_scope("local")
    inside.compute_at(stage, p)
    a, x, *_, q = inside.op.axis
    inside.unroll(a)
    inside.unroll(x)
    inside.vectorize(q)
