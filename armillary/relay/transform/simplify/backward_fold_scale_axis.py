"""backward-fold-scale-axis: move per-channel factors that come after a convolution or dense layer into its weights.

In: a module. Out: the same without multiplications by per-channel constants after a conv2d or
dense. What a factor may pass on its way, and the invariant: fold_scale_axis.py, which does both directions.

    multiply(nn.conv2d(%x, weight), scale)  ->  nn.conv2d(%x, weight * scale)
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.transform.simplify.fold_scale_axis import fold_backward
from armillary.transform import define_pass


@define_pass("backward-fold-scale-axis", opt_level=3)
def backward_fold_scale_axis(module: IRModule) -> IRModule:
    """Fold factors that stand after a contraction."""
    return fold_backward(module)
