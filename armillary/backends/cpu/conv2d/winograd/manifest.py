"""What Winograd's algorithm brings along: an operator of its own, and the pass that makes it.

In: nothing. Out: `MANIFEST`. Invariant: importing it loads no tensor expression. What is chosen: space.py.
"""

from __future__ import annotations

from armillary.backends.candidate import Candidate
from armillary.backends.cpu.conv2d.winograd.space import WINOGRAD
from armillary.backends.cpu.conv2d.winograd.winograd_conv2d import TRANSFORMED, winograd_conv2d
from armillary.backends.cpu.manifest import Manifest

MANIFEST = Manifest(
    (Candidate(TRANSFORMED, "winograd", algorithm=WINOGRAD, sizes="any"),),
    layouts=lambda target: [winograd_conv2d.bind(target=target)],
)
