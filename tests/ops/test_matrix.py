"""The operator matrix: every operator, every sample, against its reference, by loops, by LLVM and by C, at levels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import executors
import numpy as np
import pytest
import sampling

from armillary.base.node import post_order
from armillary.errors import ArmillaryError
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Constant, Tuple, var
from armillary.relay.op import OPS
from armillary.relay.types import TensorType, TupleType, tensor_fields

LARGEST = 50_000  # loop iterations the interpreter is asked for
SAMPLES = sampling.all_samples()
NOT_SAMPLED = {"argwhere", "dynamic", "sparse_fill_empty_rows"}  # of sizes that are values: tests/relay/test_value_*
LONG = {  # by the interpreter: half a second and more each, of operators that have lighter samples
    ("cpu.conv2d_first_layer_NCHWc_bf16", 0),
    ("cpu.conv2d_first_layer_NCHWc_bf16", 2),
    ("cpu.conv2d_winograd_NCHWc", 4),
    ("cpu.conv2d_NCHWc_int8", 2),
    ("cpu.conv2d_NCHWc_bf16", 2),
    ("cpu.conv2d_NCHWc_bf16", 3),
    ("image.grid_sample", 16),
    ("image.grid_sample", 17),
}
IDS = [f"{name}-{k}" for name, k in SAMPLES]
SEVERAL = [(name, k) for name, k in SAMPLES if len(sampling.list_samples(OPS[name])[k].inputs) > 1]  # with weights


def _case(name: str, number: int) -> tuple[Any, Any, list[Any]]:
    op = OPS[name]
    sample = sampling.list_samples(op)[number]
    return op, sample, sampling.arrays_of(sample, name)


@pytest.mark.parametrize("name", sorted(OPS))
def test_operator_has_every_facet(name: str) -> None:
    op = OPS[name]
    assert op.infer_rule is not None, "no type rule"
    assert op.reference_rule is not None, "no reference"
    assert op.compute_rule is not None or op.decompose_rule is not None, "neither compute nor decompose"
    assert sampling.list_samples(op) or name in NOT_SAMPLED, "no samples"
    assert op.attrs_class is None or dataclasses.is_dataclass(op.attrs_class)


@pytest.mark.parametrize("name", sorted(OPS))
def test_attributes_are_frozen_values(name: str) -> None:
    for sample in sampling.list_samples(OPS[name]):
        hash(sample.attrs)
        assert OPS[name].attrs_class is None or isinstance(sample.attrs, OPS[name].attrs_class)


@pytest.mark.parametrize(("name", "number"), SAMPLES, ids=IDS)
def test_inferred_type_is_that_of_the_reference(name: str, number: int) -> None:
    op, sample, arrays = _case(name, number)
    inferred = op.infer_type(sample.attrs, [sampling.type_of(a) for a in arrays])
    assert inferred == sampling.type_of(op.evaluate(sample.attrs, arrays))


@pytest.mark.parametrize(("name", "number"), SAMPLES, ids=IDS)
def test_decomposition_equals_the_reference(name: str, number: int) -> None:
    op, sample, arrays = _case(name, number)
    if op.decompose_rule is None:
        return
    expr = op.decompose_rule(sample.attrs, *[_constants(a) for a in arrays])
    if expr is None:
        return
    again = [e for e in post_order(expr) if isinstance(e, Call) and e.op is op]
    assert not any(op.decompose_rule(e.attrs, *e.args) for e in again), "it decomposes into itself"
    sampling.check_close(evaluate(expr), op.evaluate(sample.attrs, arrays), sample, name)


def _constants(value: Any) -> Any:
    if isinstance(value, tuple):
        return Tuple(tuple(_constants(v) for v in value))
    return Constant(np.ascontiguousarray(value).reshape(value.shape))


def _executors() -> Iterator[Any]:
    """(operator, sample, executor): an operator's first sample by loops, at every level and as C with all passes.

    The others by loops, without passes and with all; levels 1 and 2 in turns; one in two as C, at levels 0 and 3 in
    turns. The rest is slow.
    """
    for at, (name, number) in enumerate(SAMPLES):
        often = {"interpreter", "llvm-O0", "llvm-O3", *((f"llvm-O{1 + at % 2}",) if number else ("llvm-O1", "llvm-O2"))}
        if number % 2 == 0:
            often.add("c-O0" if number // 2 % 2 else "c-O3")
        if (name, number) in LONG:
            often.remove("interpreter")
        for executor in sorted(executors.EXECUTORS):
            marks = [pytest.mark.always] if number == 0 and executor in ("interpreter", "llvm-O3") else []
            yield pytest.param(
                name,
                number,
                executor,
                id=f"{name}-{number}-{executor}",
                marks=marks if executor in often else [*marks, pytest.mark.slow],
            )


@pytest.mark.parametrize(("name", "number", "executor"), list(_executors()))
def test_compute_equals_the_reference(name: str, number: int, executor: str) -> None:
    op, sample, arrays = _case(name, number)
    types = [sampling.type_of(a) for a in arrays]
    result = op.infer_type(sample.attrs, types)
    if executor == "interpreter" and (op.compute_rule is None or _work(types, result) > LARGEST):
        return
    known = sampling.compile_time_arguments(op, sample)
    got = executors.execute(executors.EXECUTORS[executor], op, sample.attrs, types, sampling.flat(arrays), known)
    sampling.check_close(got, op.evaluate(sample.attrs, arrays), sample, f"{name} sample {number} by {executor}")


WITH_CONSTANTS = [(name, k, level) for at, (name, k) in enumerate(SEVERAL) for level in (3, at % 3)]  # 0 to 2 in turns


@pytest.mark.parametrize(
    ("name", "number", "executor"),
    [(name, k, f"llvm-O{level}") for name, k, level in WITH_CONSTANTS],
    ids=[f"{name}-{k}-llvm-O{level}" for name, k, level in WITH_CONSTANTS],
)
def test_compute_with_constant_weights_equals_the_reference(name: str, number: int, executor: str) -> None:
    op, sample, arrays = _case(name, number)
    types, weights = [sampling.type_of(a) for a in arrays], range(1, len(arrays))
    got = executors.execute(executors.EXECUTORS[executor], op, sample.attrs, types, sampling.flat(arrays), weights)
    what = f"{name} sample {number} with constant weights by {executor}"
    sampling.check_close(got, op.evaluate(sample.attrs, arrays), sample, what)


def _work(types: list[Any], result: Any) -> int:
    """A rough bound on iterations: the product of the largest input and a per-element share of the output."""
    sizes = [t.size for ty in types for t in tensor_fields(ty)] or [1]
    return max(*sizes, sum(t.size for t in tensor_fields(result)))


BAD = [
    (name, k) for name, op in sorted(OPS.items()) if op.bad_sample_source for k, _ in enumerate(op.bad_sample_source())
]


@pytest.mark.parametrize(("name", "number"), BAD, ids=[f"{n}-{k}" for n, k in BAD])
def test_misuse_says_what_is_wrong(name: str, number: int) -> None:
    op = OPS[name]
    bad = list(op.bad_sample_source())[number]
    args = [var(f"x{k}", _declared(value)) for k, value in enumerate(bad.inputs)]
    with pytest.raises(ArmillaryError) as caught:
        Call(op, tuple(args), bad.attrs).checked_type  # noqa: B018
    assert bad.message in str(caught.value)


def _declared(value: Any) -> Any:
    if isinstance(value, tuple):
        return TupleType(tuple(_declared(v) for v in value))
    return value if isinstance(value, TensorType | TupleType) else sampling.type_of(value)
