"""What a convolution and a pooling as one kernel bring along: the pass that makes it, and its operators.

In: nothing. Out: `MANIFEST`. Invariant: importing it loads no tensor expression. Whether it pays: cost.py.
"""

from __future__ import annotations

from armillary.backends.candidate import Candidate
from armillary.backends.cpu.conv2d.pooled.fuse_pool import fuse_pool
from armillary.backends.cpu.conv2d.pooled.space import explain
from armillary.backends.cpu.manifest import Manifest

MANIFEST = Manifest(
    (
        Candidate("nn.contrib_conv2d_NCHWc + nn.max_pool2d", "conv_max", sizes="any", explain_rule=explain),
        Candidate("nn.contrib_conv2d_NCHWc + nn.avg_pool2d", "conv_mean", sizes="any", explain_rule=explain),
    ),
    kernels=lambda target: [fuse_pool.bind(target=target)],
)
