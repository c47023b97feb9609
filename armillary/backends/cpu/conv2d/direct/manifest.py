"""What direct convolution brings along: a candidate for blocked layouts, and the pass for frames that lie in a row.

In: nothing. Out: `MANIFEST`. Invariant: importing it loads no tensor expression. What is chosen: space.py.
"""

from __future__ import annotations

from armillary.backends.candidate import Candidate
from armillary.backends.cpu.conv2d.direct.frames_conv2d import frames_conv2d
from armillary.backends.cpu.conv2d.direct.space import DIRECT, GATHERED, has_longer_blocks
from armillary.backends.cpu.manifest import Manifest, TunedOperator
from armillary.relay.transform.normal_form.infer_type import infer_type

MANIFEST = Manifest(
    (
        Candidate("nn.contrib_conv2d_NCHWc", "direct_blocked", algorithm=DIRECT, sizes="any"),
        # only where a choice names it: schedule.py makes that of few pixels
        Candidate("nn.contrib_conv2d_NCHWc", "gathered", algorithm=GATHERED, sizes="named", priority=0),
        Candidate("cpu.conv2d_frames_NCHWc", "direct_frames", algorithm=DIRECT, sizes="any"),
        Candidate("cpu.conv2d_NCHWc_bf16", "direct_bfloat16", has_longer_blocks, DIRECT),
        Candidate("cpu.conv2d_NCHWc_int8", "direct_bytes", has_longer_blocks, DIRECT, sizes="any"),
    ),
    tuned=(
        TunedOperator("nn.contrib_conv2d_NCHWc", "conv2d_NCHWc.cpu", DIRECT),
        TunedOperator("cpu.conv2d_NCHWc_int8", "conv2d_NCHWc_int8.cpu", DIRECT),
        TunedOperator("cpu.conv2d_NCHWc_bf16", "conv2d_NCHWc_bf16.cpu", DIRECT),
    ),
    # Convolutions over three axes read frames where they lie.
    operators=lambda target: [infer_type.bind(), frames_conv2d.bind()],
)
