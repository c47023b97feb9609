"""Facts about the TE computes of nn operators that schedules rely on. Their values: tests/ops/test_matrix.py."""

from __future__ import annotations

import pytest

from armillary import te
from armillary.relay.op import OPS

TAGS = {
    "nn.conv2d": "conv2d_nchw",
    "nn.contrib_conv2d_NCHWc": "conv2d_NCHWc",
    "nn.dense": "dense",
    "nn.softmax": "softmax",
    "nn.contrib_depthwise_conv2d_NCHWc": "depthwise_conv2d_NCHWc",
    "nn.batch_matmul": "batch_matmul",
    "nn.max_pool2d": "pool_max",
    "nn.avg_pool2d": "pool_avg",
    "nn.conv2d_transpose": "conv2d_transpose_nchw",
}


@pytest.mark.parametrize("name", TAGS)
def test_schedules_can_find_the_stage_by_its_tag(name: str) -> None:
    op = OPS[name]
    assert op.sample_source is not None and op.compute_rule is not None
    sample = next(op.sample_source())
    inputs = [te.placeholder(t.static, str(t.dtype), f"p{n}") for n, t in enumerate(sample.inputs)]
    assert op.compute_rule(sample.attrs, *inputs).op.tag == TAGS[name]
