"""An operator that calls itself elementwise does not ask where an element stands: layout passes move elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sampling

from armillary.relay.op import OPS, Kind, Op, Sample
from armillary.relay.types import TensorType


def _cases() -> list[Any]:
    """Samples with one input of several elements, and a result of its shape."""
    cases = []
    for name, op in sorted(OPS.items()):
        if op.kind is not Kind.ELEMENTWISE:
            continue
        for k, sample in enumerate(sampling.list_samples(op)):
            types = sample.inputs
            if len(types) == 1 and isinstance(types[0], TensorType) and np.prod(types[0].static) > 1:
                cases.append(pytest.param(op, sample, id=f"{name}-{k}"))
    return cases


CASES = _cases()


def test_most_elementwise_operators_are_tried() -> None:
    assert len({case.values[0].name for case in CASES}) > 40


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_elements_in_another_order_give_results_in_that_order(op: Op, sample: Sample) -> None:
    (value,) = sampling.arrays_of(sample, op.name)
    order = np.random.default_rng(6).permutation(value.size)
    plain = np.asarray(op.evaluate(sample.attrs, [value]))
    moved = np.asarray(op.evaluate(sample.attrs, [value.reshape(-1)[order].reshape(value.shape)]))
    assert plain.shape == value.shape
    np.testing.assert_array_equal(moved.reshape(-1), plain.reshape(-1)[order])
