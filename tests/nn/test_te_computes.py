"""Facts about the TE computes of nn operators: lowered with the default schedule, loops give the reference's values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import armillary.ops  # noqa: F401  (fills the table of operators)
from armillary import te
from armillary.relay.op import OPS, Op, Sample
from armillary.tir.interpreter import interpret

SEED = 20240612


def _cases() -> Iterator[Any]:
    for name, op in sorted(OPS.items()):
        wanted = name.startswith(("nn.", "image.")) or name == "layout_transform"
        if wanted and op.compute_rule is not None and op.sample_source is not None:
            for index, sample in enumerate(op.sample_source()):
                yield pytest.param(op, sample, id=f"{name}-{index}")


@pytest.mark.parametrize(("op", "sample"), list(_cases()))
def test_lowered_compute_equals_reference(op: Op, sample: Sample) -> None:
    rng = np.random.default_rng(SEED)
    arrays = [
        x if isinstance(x, np.ndarray) else rng.uniform(*sample.domain, size=x.static).astype(x.dtype.numpy)
        for x in sample.inputs
    ]
    inputs = [te.placeholder(a.shape, a.dtype.name, f"p{n}") for n, a in enumerate(arrays)]
    assert op.compute_rule is not None
    result = op.compute_rule(sample.attrs, *inputs)
    tensors = list(result) if isinstance(result, list | tuple) else [result]
    schedule = te.create_schedule([t.op for t in tensors])
    function = te.lower_schedule(schedule, [*inputs, *tensors], "kernel")
    wanted = op.evaluate(sample.attrs, arrays)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    got = [np.zeros(w.shape, w.dtype) for w in wanted]
    interpret(function, *arrays, *got)
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=sample.rtol or 1e-4, atol=sample.atol or 1e-4, err_msg=f"seed {SEED}")


TAGS = {
    "nn.conv2d": "conv2d_nchw", "nn.contrib_conv2d_NCHWc": "conv2d_NCHWc", "nn.dense": "dense", "nn.softmax": "softmax",
    "nn.contrib_depthwise_conv2d_NCHWc": "depthwise_conv2d_NCHWc", "nn.batch_matmul": "batch_matmul",
    "nn.max_pool2d": "pool_max", "nn.avg_pool2d": "pool_avg", "nn.conv2d_transpose": "conv2d_transpose_nchw",
}  # fmt: skip


@pytest.mark.parametrize("name", TAGS)
def test_schedules_can_find_the_stage_by_its_tag(name: str) -> None:
    op = OPS[name]
    assert op.sample_source is not None and op.compute_rule is not None
    sample = next(op.sample_source())
    inputs = [te.placeholder(t.static, str(t.dtype), f"p{n}") for n, t in enumerate(sample.inputs)]
    assert op.compute_rule(sample.attrs, *inputs).op.tag == TAGS[name]
