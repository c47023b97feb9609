"""What a depthwise and a 1x1 convolution as one kernel bring along: the pass that makes it, and its operators.

In: nothing. Out: `MANIFEST`. Invariant: importing it loads no tensor expression. Whether it pays: cost.py.
"""

from __future__ import annotations

from armillary.backends.candidate import Candidate
from armillary.backends.cpu.conv2d.separable.fuse_depthwise import fuse_depthwise
from armillary.backends.cpu.conv2d.separable.space import explain
from armillary.backends.cpu.manifest import Manifest

OPERATORS = "nn.contrib_depthwise_conv2d_NCHWc + nn.contrib_conv2d_NCHWc"
MANIFEST = Manifest(
    (
        Candidate(
            "nn.contrib_depthwise_conv2d_NCHWc + nn.contrib_conv2d_NCHWc",
            "separable",
            sizes="any",
            explain_rule=explain,
        ),
    ),
    kernels=lambda target: [fuse_depthwise.bind(target=target)],
)
