"""Tensors without elements: every operator that takes one gives, compiled, what its reference gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sampling

import armillary.ops  # noqa: F401  (fills the table of operators)
from armillary.backend.compiled import Engine
from armillary.errors import ArmillaryError, UnsupportedError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Function, var
from armillary.relay.op import OPS, Op, Sample
from armillary.relay.types import TensorType


def _emptied(sample: Sample) -> list[TensorType] | None:
    """The sample's types with a first dimension of 0; None where there is none."""
    if not sample.inputs or not all(isinstance(x, TensorType) for x in sample.inputs):
        return None
    first = sample.inputs[0].static
    if not first or 0 in first:
        return None
    rest = [TensorType((0, *x.static[1:]), x.dtype) if x.static == first else x for x in sample.inputs[1:]]
    return [TensorType((0, *first[1:]), sample.inputs[0].dtype), *rest]


def _well_typed(op: Op, attrs: Any, types: list[TensorType]) -> bool:
    try:
        Call(op, tuple(var(f"x{k}", ty) for k, ty in enumerate(types)), attrs).checked_type  # noqa: B018
    except ArmillaryError:
        return False
    return True


def _cases() -> list[Any]:
    """The first sample of each operator that may be emptied."""
    cases = []
    for name, op in sorted(OPS.items()):
        for sample in sampling.list_samples(op):
            types = _emptied(sample)
            if types is not None and name != "variance" and _well_typed(op, sample.attrs, types):
                cases.append(pytest.param(op, sample.attrs, types, id=name))
                break
    return cases


CASES = _cases()


def test_most_operators_take_empty_tensors() -> None:
    assert len(CASES) > 100


@pytest.mark.parametrize(("op", "attrs", "types"), CASES)
def test_empty_tensors_work(op: Op, attrs: Any, types: list[TensorType]) -> None:
    arrays = [np.zeros(ty.static, ty.dtype.numpy) for ty in types]
    params = tuple(var(f"x{k}", ty) for k, ty in enumerate(types))
    want = sampling.flat(op.evaluate(attrs, arrays))
    try:
        engine = Engine(IRModule({"main": Function(params, Call(op, params, attrs))}))
    except UnsupportedError as error:
        pytest.skip(error.message)
    got = engine({f"x{k}": a for k, a in enumerate(arrays)})
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        np.testing.assert_array_equal(g, w)
