"""What convolution by matrix tiles (AMX) brings along: candidates for bytes and for bfloat16.

In: nothing. Out: `MANIFEST`. Invariant: importing it loads no tensor expression. When it applies, and what is chosen:
space.py.
"""

from __future__ import annotations

from armillary.backends.candidate import Candidate
from armillary.backends.cpu.conv2d.amx.space import OPERATOR, TILES, refuses
from armillary.backends.cpu.manifest import Manifest

MANIFEST = Manifest(
    (
        Candidate(OPERATOR, "byte_tiles", refuses, TILES),
        Candidate("cpu.conv2d_NCHWc_bf16", "half_tiles", refuses, TILES),
    )
)
