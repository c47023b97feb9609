"""Facts about nn and image operators' decompositions: they mean what the reference says, for every sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import armillary.ops  # noqa: F401  (fills the table of operators)
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Function, var
from armillary.relay.op import OPS, Op, Sample
from armillary.relay.types import tensor_type

SEED = 20240611


def _cases() -> Iterator[Any]:
    for name, op in sorted(OPS.items()):
        if name.startswith(("nn.", "image.")) and op.decompose_rule is not None and op.sample_source is not None:
            for index, sample in enumerate(op.sample_source()):
                yield pytest.param(op, sample, id=f"{name}-{index}")


def arrays_of(sample: Sample) -> list[np.ndarray[Any, Any]]:
    """The inputs of a sample, random ones from a fixed seed."""
    rng = np.random.default_rng(SEED)
    return [
        x if isinstance(x, np.ndarray) else rng.uniform(*sample.domain, size=x.static).astype(x.dtype.numpy)
        for x in sample.inputs
    ]


@pytest.mark.parametrize(("op", "sample"), list(_cases()))
def test_decomposition_equals_reference(op: Op, sample: Sample) -> None:
    arrays = arrays_of(sample)
    params = [var(f"p{n}", tensor_type(a.shape, a.dtype.name)) for n, a in enumerate(arrays)]
    assert op.decompose_rule is not None
    body = op.decompose_rule(sample.attrs, *params)
    if body is None:
        return
    got, wanted = evaluate(Function(tuple(params), body), arrays), op.evaluate(sample.attrs, arrays)
    got, wanted = (v if isinstance(v, tuple) else (v,) for v in (got, wanted))
    for g, w in zip(got, wanted, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=sample.atol or 1e-5, err_msg=f"seed {SEED}")
