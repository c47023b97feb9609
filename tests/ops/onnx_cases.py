"""ONNX's own backend node cases, for import rules: model, inputs, expected outputs."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import executors
import numpy as np
import sampling
from onnx import TensorProto
from onnx.backend.test.case.node import collect_testcases

from armillary.base.node import post_order
from armillary.frontend import from_onnx
from armillary.frontend.onnx.tensor import tensor_array
from armillary.relay.expr import Constant, Tuple, TupleGetItem
from armillary.relay.op import Op
from armillary.relay.types import TupleType


@functools.cache
def node_cases() -> dict[str, Any]:
    """Every node case that has array inputs and outputs, by name without the prefix test_."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases("")
    return {case.name.removeprefix("test_"): case for case in cases}


@functools.cache
def cases_of(op_types: frozenset[str]) -> dict[str, list[str]]:
    """Names of the cases all of whose operators are among these, by the last of them."""
    names: dict[str, list[str]] = {}
    for name, case in sorted(node_cases().items()):
        nodes = case.model.graph.node
        if nodes and has_arrays(case) and all(n.op_type in op_types for n in nodes) and not case.model.functions:
            names.setdefault(nodes[-1].op_type, []).append(name)
    return names


def has_arrays(case: Any) -> bool:
    """Whether all values are tensors of numbers (not strings, sequences or optionals)."""
    values = [v for inputs, outputs in case.data_sets for v in (*inputs, *outputs)]
    return all(isinstance(v, TensorProto) or (hasattr(v, "dtype") and v.dtype.kind not in "OSU") for v in values)


def as_array(value: Any) -> Any:
    """A stored value: an array, or a TensorProto for types numpy lacks."""
    return tensor_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def check(name: str) -> None:
    """Import a case, run each of its operators as loops, compare with the stored outputs."""
    case = node_cases()[name]
    for inputs, outputs in case.data_sets:
        names = [value.name for value in case.model.graph.input]
        arrays = {n: as_array(a) for n, a in zip(names, inputs, strict=True) if a is not None}
        module, _ = from_onnx(case.model, static_inputs=static_inputs(case, arrays))
        got = run_as_loops(module["main"], {k: v for k, v in arrays.items() if k in parameter_names(module)})
        compare(list(got) if isinstance(got, tuple | list) else [got], outputs, case)


def run_as_loops(function: Any, inputs: dict[str, Any]) -> Any:
    """Run a function one operator at a time: each becomes loops, and the loop interpreter runs them."""
    values: dict[int, Any] = {id(p): inputs[p.name_hint] for p in function.params}
    return _run_as_loops(function.body, values)


def _run_as_loops(root: Any, values: dict[int, Any]) -> Any:
    for item in post_order(root, lambda e: id(e) not in values and not isinstance(e, Op)):
        if id(item) in values or isinstance(item, Op):
            continue
        if isinstance(item, Constant):
            values[id(item)] = item.data
        elif isinstance(item, Tuple):
            values[id(item)] = tuple(values[id(f)] for f in item.fields)
        elif isinstance(item, TupleGetItem):
            values[id(item)] = values[id(item.tuple_value)][item.index]
        else:
            values[id(item)] = _run_call(item, [values[id(a)] for a in item.args])
    return values[id(root)]


def _run_call(call: Any, arguments: list[Any]) -> Any:
    if call.op.compute_rule is None:
        parts = [_constants(a) for a in arguments]
        return _run_as_loops(call.op.decompose_rule(call.attrs, *parts), {})
    types = [sampling.type_of(a) for a in arguments]
    flat = sampling.flat(tuple(arguments))
    outputs = executors.execute(executors.EXECUTORS["interpreter"], call.op, call.attrs, types, flat)
    return tuple(outputs) if isinstance(call.checked_type, TupleType) else outputs[0]


def _constants(value: Any) -> Any:
    return Tuple(tuple(_constants(v) for v in value)) if isinstance(value, tuple) else Constant(value)


def parameter_names(module: Any) -> set[str]:
    """The inputs that are left after import."""
    return {p.name_hint for p in module["main"].params}


STATIC = {
    "Reshape": (1,),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
    "Split": (1,),
    "Tile": (1, 2),
    "Expand": (1,),
    "Slice": (1, 2, 3, 4),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    "OneHot": (1,),
    "Trilu": (1,),
    "Compress": (1,),
    "CumSum": (1,),
    "CumProd": (1,),
    "TopK": (1,),
    "NonZero": (0,),
    "Unique": (0,),
}


def static_inputs(case: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    """The inputs that decide shapes; Reduce* axes included."""
    fixed = {}
    for node in case.model.graph.node:
        places = (1,) if node.op_type.startswith("Reduce") else STATIC.get(node.op_type, ())
        fixed.update(
            {node.input[i]: arrays[node.input[i]] for i in places if i < len(node.input) and node.input[i] in arrays}
        )
    return fixed


def compare(got: list[Any], want: list[Any], case: Any) -> None:
    """Shapes and dtypes exactly, values within the case's tolerances."""
    assert len(got) >= len(want), f"{len(got)} outputs, wanted {len(want)}"
    for g, w in zip(got, want):
        w = as_array(w)
        assert (g.shape, g.dtype) == (w.shape, w.dtype), f"got {g.shape} {g.dtype}, wanted {w.shape} {w.dtype}"
        if w.dtype.kind in "iub":
            np.testing.assert_array_equal(g, w)
        else:
            np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=case.rtol, atol=case.atol)
