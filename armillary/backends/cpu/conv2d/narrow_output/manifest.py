"""What convolution to few channels brings along: a candidate for blocked layouts, without anything to choose.

In: nothing. Out: `MANIFEST`. Invariant: importing it loads no tensor expression. When it applies: space.py.
"""

from __future__ import annotations

from armillary.backends.candidate import Candidate
from armillary.backends.cpu.conv2d.narrow_output.space import explain, refuses
from armillary.backends.cpu.manifest import Manifest

MANIFEST = Manifest((Candidate("nn.contrib_conv2d_NCHWc", "narrow_output", refuses, explain_rule=explain),))
