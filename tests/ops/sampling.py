"""Turn operator samples into arrays, types and expected results. Used by the generated tests."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from armillary.base.dtype import DType, dtype_of
from armillary.relay.op import OPS, Op, Sample
from armillary.relay.types import TensorType, TupleType, Type

TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def all_samples() -> list[Any]:
    """(operator name, sample number) of every sample."""
    return [(name, k) for name, op in sorted(OPS.items()) for k, _ in enumerate(list_samples(op))]


def list_samples(op: Op) -> list[Sample]:
    """The samples of an operator."""
    return list(op.sample_source()) if op.sample_source is not None else []


def arrays_of(sample: Sample, name: str) -> list[Any]:
    """Values for the inputs; random ones come from a seed made of the operator's name."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    return [_array(value, sample, random) for value in sample.inputs]


def _array(value: Any, sample: Sample, random: np.random.Generator) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_array(v, sample, random) for v in value)
    if not isinstance(value, TensorType):
        return np.asarray(value)
    low, high = sample.domain
    if value.dtype.is_bool:
        return random.integers(0, 2, value.static).astype(bool)
    if value.dtype.is_int:
        low = max(low, value.dtype.min_value)
        return random.integers(int(np.ceil(low)), int(high) + 1, value.static).astype(value.dtype.numpy)
    return np.asarray(random.uniform(low, high, value.static)).astype(value.dtype.numpy)


def compile_time_arguments(op: Op, sample: Sample) -> list[int]:
    """The arguments a compiler must know: the scales and zero points of quantised operators, the tables of trees."""
    if not op.name.startswith(("qnn.", "ml.tree_ensemble")):
        return []
    return [k for k, value in enumerate(sample.inputs) if not any(isinstance(v, TensorType) for v in flat(value))]


def type_of(value: Any) -> Type:
    """The type of an array or tuple of arrays."""
    if isinstance(value, tuple | list):
        return TupleType(tuple(type_of(v) for v in value))
    return TensorType(tuple(value.shape), dtype_of(value))


def flat(value: Any) -> list[Any]:
    """The arrays or tensors inside a value."""
    return [x for v in value for x in flat(v)] if isinstance(value, tuple | list) else [value]


def check_close(got: Any, want: Any, sample: Sample, what: str) -> None:
    """Compare results: exactly for integers and bools, within the dtype's tolerance for floats."""
    got_list, want_list = flat(got), flat(want)
    assert len(got_list) == len(want_list), f"{what}: {len(got_list)} results, wanted {len(want_list)}"
    for g, w in zip(got_list, want_list, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype, f"{what}: got {g.shape} {g.dtype}, wanted {w.shape} {w.dtype}"
        dtype = DType(w.dtype.name)
        if not dtype.is_float:
            np.testing.assert_array_equal(g, w, err_msg=what)
            continue
        default = TOLERANCE.get(dtype, 0.1)
        rtol = sample.rtol if sample.rtol is not None else default
        atol = sample.atol if sample.atol is not None else default
        np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=rtol, atol=atol, err_msg=what)
