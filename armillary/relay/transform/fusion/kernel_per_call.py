"""kernel-per-call: make each operator call that lies in no kernel a kernel of its own.

In: a typed module. Out: one whose operator calls all lie in primitive functions. Invariant: what fuse-ops did stays as
it is; without fuse-ops every operator is one kernel, so a build works with fusion switched off.

    def @main(%x: Tensor[(2,), float32]) { nn.relu(%x) }
    ->
    def @main(%x: Tensor[(2,), float32]) {
      %0 = fn (%p0: Tensor[(2,), float32], Primitive=1) -> Tensor[(2,), float32] { nn.relu(%p0) };
      %0(%x)
    }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.transform.fusion.fuse_ops import fuse_ops
from armillary.transform import define_pass


@define_pass("kernel-per-call")
def kernel_per_call(module: IRModule) -> IRModule:
    """Wrap the calls that are left.

    nn.relu(x)  ->  fn(p0) { nn.relu(p0) }(x)
    """
    wrapped: IRModule = fuse_ops(module, fuse_opt_level=0)
    return wrapped
