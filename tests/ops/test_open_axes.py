"""Every operator's first sample with one axis of its first input open, against its reference.

In: the samples; an axis of more than one element becomes a size `b`, of the first input alone or, where that is
refused, of all inputs that have as many elements there. Out: numbers of a run at the sample's size. Invariant: what
cannot have an axis open is a row of `REFUSED`, which may only become shorter, and says so before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import sampling

from armillary import relay
from armillary.base.extent import Extent, size
from armillary.contrib.graph_executor import GraphModule
from armillary.driver.build import build
from armillary.errors import ArmillaryError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function, Tuple, Var, var
from armillary.relay.op import OPS
from armillary.relay.types import TensorType, TupleType, Type
from armillary.runtime import cpu

OF_MACHINES = ("cpu.", "opencl.")
REFUSED = {  # operator -> axes of its first input; for most of them a value of theirs decides, or a table
    "image.affine_grid": {1, 2},
    "ml.tree_ensemble": {1},
    "nn.add_step": {0},
    "nn.attention": {2},
    "nn.cached_attention": {2, 3},
    "nn.cached_masked_attention": {2, 3},
    "nn.cached_quantized_attention": {2, 3},
    "nn.contrib_depthwise_conv2d_NCHWc": {1, 4},
    "nn.deformable_conv2d": {0, 1, 2, 3},
    "nn.masked_attention": {2},
    "random.threefry_generate": {0},
    "random.threefry_split": {0},
    "sequence_mask": {1},
    "sparse_reshape": {0},
    "sparse_to_dense": {0, 1},
    "vision.get_valid_counts": {2},
}


def _cases() -> Iterator[tuple[str, int]]:
    for name, op in sorted(OPS.items()):
        if name.startswith(OF_MACHINES) or not sampling.list_samples(op):
            continue
        for axis, count in enumerate(getattr(_first(name), "shape", ())):
            if count > 1:
                yield name, axis


def _first(name: str) -> Type:
    """The type of the first input that a compiler need not know."""
    sample = sampling.list_samples(OPS[name])[0]
    known = sampling.compile_time_arguments(OPS[name], sample)
    types = (t for k, v in enumerate(sample.inputs) if k not in known for t in [_type(v)])
    first = next(types, TupleType(()))
    return first.fields[0] if isinstance(first, TupleType) and first.fields else first


def _type(value: object) -> Type:
    if isinstance(value, TensorType):
        return value
    if isinstance(value, tuple | list):
        return TupleType(tuple(map(_type, value)))
    return sampling.type_of(np.asarray(value))


def _opened(ty: Type, axis: int, count: int, b: Extent) -> Type:
    if isinstance(ty, TupleType):
        return TupleType(tuple(_opened(field, axis, count, b) for field in ty.fields))
    assert isinstance(ty, TensorType)
    if axis >= ty.ndim or ty.shape[axis] != count:
        return ty
    return TensorType((*ty.shape[:axis], b, *ty.shape[axis + 1 :]), ty.dtype)


def _argument(name: str, ty: Type, params: list[Var]) -> Expr:
    if isinstance(ty, TupleType):
        return Tuple(tuple(_argument(f"{name}_{k}", field, params) for k, field in enumerate(ty.fields)))
    params.append(var(name, ty))
    return params[-1]


def _constant(value: object) -> Expr:
    return Tuple(tuple(map(_constant, value))) if isinstance(value, tuple) else relay.const(value)


def _run(name: str, axis: int) -> None:
    op, sample = OPS[name], sampling.list_samples(OPS[name])[0]
    arrays, known = sampling.arrays_of(sample, name), sampling.compile_time_arguments(op, sample)
    types = [sampling.type_of(a) for a in arrays]
    count = getattr(_first(name), "shape", ())[axis]
    b = size("b", 1, max(1000, count), hint=count)
    open_inputs = [k for k in range(len(types)) if k not in known]

    def some(opened: list[int]) -> list[Type]:
        return [_opened(ty, axis, count, b) if k in opened else ty for k, ty in enumerate(types)]

    try:
        chosen = some(open_inputs[:1])
        op.infer_type(sample.attrs, chosen)
    except ArmillaryError:
        chosen = some(open_inputs)
    params: list[Var] = []
    args = [
        _constant(array) if k in known else _argument(f"p{k}", ty, params)
        for k, (array, ty) in enumerate(zip(arrays, chosen, strict=True))
    ]
    function = Function(params, Call(op, tuple(args), sample.attrs))
    graph = GraphModule(build(IRModule.from_expr(function), "llvm")["default"](cpu()))
    values = [array for k in open_inputs for array in sampling.flat(arrays[k])]
    for param, value in zip(params, values, strict=True):
        graph.set_input(param.name_hint, value)
    graph.run()
    got = [graph.get_output(k).numpy() for k in range(graph.get_num_outputs())]
    sampling.check_close(got, op.evaluate(sample.attrs, arrays), sample, name)


CASES = [(name, axis) for name, axis in _cases() if axis not in REFUSED.get(name, ())]


@pytest.mark.parametrize(("name", "axis"), CASES, ids=[f"{name}-{axis}" for name, axis in CASES])
def test_an_open_axis_runs(name: str, axis: int) -> None:
    _run(name, axis)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_has_no_open_axis_says_so(name: str) -> None:
    for axis in REFUSED[name]:
        with pytest.raises(ArmillaryError):
            _run(name, axis)
