"""What convolution by Fourier transforms brings along: an operator of its own, and the pass that makes it.

In: nothing. Out: `MANIFEST`. Invariant: importing it loads no tensor expression. What is chosen: space.py.
"""

from __future__ import annotations

from armillary.backends.candidate import Candidate
from armillary.backends.cpu.conv2d.fourier.fourier_conv2d import TRANSFORMED, fourier_conv2d
from armillary.backends.cpu.conv2d.fourier.space import FOURIER
from armillary.backends.cpu.manifest import Manifest

MANIFEST = Manifest(
    (Candidate(TRANSFORMED, "fourier", algorithm=FOURIER),),
    layouts=lambda target: [fourier_conv2d.bind(target=target)],
)
