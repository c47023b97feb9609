"""Tensors without elements: every operator that takes one gives, compiled, what its reference gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sampling

from armillary.backend.compiled import Engine
from armillary.errors import ArmillaryError, UnsupportedError
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Function, var
from armillary.relay.op import OPS, Op, Sample
from armillary.relay.parser import parse
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


def _variants(op: Op) -> list[tuple[Any, list[TensorType]]]:
    """Attributes and types of two samples with an axis of one input emptied, each axis of each; well-typed ones."""
    found = []
    for sample in sampling.list_samples(op)[:2]:
        if not all(isinstance(x, TensorType) for x in sample.inputs):
            continue
        for place, x in enumerate(sample.inputs):
            for axis in range(len(x.static)):
                types = list(sample.inputs)
                types[place] = TensorType((*x.static[:axis], 0, *x.static[axis + 1 :]), x.dtype)
                if _well_typed(op, sample.attrs, types):
                    found.append((sample.attrs, types))
    return found


def is_own(name: str) -> bool:
    """Whether only builds make the operator: none is ever asked for without elements."""
    return name.startswith("cpu.") or "contrib" in name or name in INDEXED


def _cases() -> list[Any]:
    """The first sample of each operator that may be emptied, and one with another axis or input without elements."""
    cases = []
    for name, op in sorted(OPS.items()):
        for sample in sampling.list_samples(op):
            types = _emptied(sample)
            if types is not None and name != "variance" and _well_typed(op, sample.attrs, types):
                cases.append(pytest.param(op, sample.attrs, types, id=name))
                break
        others = _variants(op) if not is_own(name) else []
        if others:
            attrs, types = others[-1]  # of the last input, such as a weight
            cases.append(pytest.param(op, attrs, types, id=f"{name}-last"))
    return cases


WITHOUT_WARNINGS = pytest.mark.filterwarnings(
    "ignore:Mean of empty slice", "ignore:invalid value encountered", "ignore:divide by zero"
)
INDEXED = ("nn.add_step", "nn.lstm_cell")  # of the compiler's own: a step out of none is never asked for
CASES = _cases()


def test_most_operators_take_empty_tensors() -> None:
    assert len(CASES) > 100


@WITHOUT_WARNINGS
def test_what_is_well_typed_has_a_value_whichever_axis_is_empty() -> None:
    checked = 0
    for name, op in sorted(OPS.items()):
        for attrs, types in _variants(op) if not is_own(name) else ():
            sampling.flat(op.evaluate(attrs, [np.zeros(ty.static, ty.dtype.numpy) for ty in types]))
            checked += 1
    assert checked > 300


@WITHOUT_WARNINGS
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


GRAPHS = {
    "pooling over three axes": ("nn.max_pool3d(%x, pool_size=[2, 2, 2], strides=[2, 2, 2])", [(2, 0, 4, 4, 4)]),
    "pooling over one axis": ("nn.max_pool1d(%x, pool_size=[2], padding=[1, 1])", [(2, 2, 0)]),
    "groups": ("nn.group_norm(%x, %y, %z, num_groups=2)", [(2, 4, 0, 3), (4,), (4,)]),
    "pixels to channels": ("nn.space_to_depth(%x, block_size=2)", [(1, 0, 4, 6)]),
    "two reshapes": (
        "reshape(reshape(%x, newshape=[6, 0], allowzero=1), newshape=[3, 2, 0, 1], allowzero=1)",
        [(2, 3, 0)],
    ),
    "the shape of another": ("reshape_like(%x, %y)", [(2, 0, 3), (3, 0, 2, 2)]),
    "places in padding alone": (
        "nn.max_pool_with_indices(%x, pool_size=[2, 2], padding=[1, 1, 1, 1], storage_order=1)",
        [(1, 2, 0, 3)],
    ),
    "attention without rows": ("", [(2, 0, 8), (2, 6, 8), (2, 8, 6)]),
    "attention without keys": ("", [(2, 5, 8), (2, 0, 8), (2, 8, 0)]),
    "attention without features": ("", [(2, 5, 0), (2, 6, 0), (2, 8, 6)]),
    "attention without results": ("", [(2, 5, 8), (2, 6, 8), (2, 0, 6)]),
}
ATTENTION = "nn.batch_matmul(nn.softmax(nn.batch_matmul(%x, %y)), %z)"


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value encountered")
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("name", GRAPHS)
def test_passes_and_schedules_work_on_an_axis_of_size_0(name: str, level: int) -> None:
    body, shapes = GRAPHS[name]
    names = "xyz"[: len(shapes)]
    params = ", ".join(f"%{n}: Tensor[{s}, float32]" for n, s in zip(names, shapes, strict=True)).replace(",)", ")")
    module = parse(f"def @main({params}) {{ {body or ATTENTION} }}")
    inputs = {n: np.ones(s, np.float32) for n, s in zip(names, shapes, strict=True)}
    wanted = sampling.flat(evaluate(module["main"], inputs))
    for got, want in zip(Engine(module, "llvm", level)(inputs), wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_array_equal(got, want)
