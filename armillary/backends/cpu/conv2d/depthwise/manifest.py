"""What depthwise convolution brings along: the candidate for its operator in blocked layouts.

In: nothing. Out: `MANIFEST`. Invariant: importing it loads no tensor expression. What is chosen: space.py.
"""

from __future__ import annotations

from armillary.backends.candidate import Candidate
from armillary.backends.cpu.conv2d.depthwise.space import DEPTHWISE
from armillary.backends.cpu.manifest import Manifest, TunedOperator

MANIFEST = Manifest(
    (Candidate("nn.contrib_depthwise_conv2d_NCHWc", "depthwise_blocked", algorithm=DEPTHWISE, sizes="any"),),
    tuned=(TunedOperator("nn.contrib_depthwise_conv2d_NCHWc", "depthwise_conv2d_NCHWc.cpu", DEPTHWISE),),
)
