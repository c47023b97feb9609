"""A Relay module as an ONNX model: `to_onnx(mod, params, "net")`.

In: a module of one function without control flow, its parameters by name. Out: an onnx.ModelProto, and a file where a
path is given. Invariant: the model computes what the module does, by the rules of `_onnx_rules.py`; an operator, a
layout or a type that ONNX has no word for is refused by name. Dimensions that are not known stay open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx import ModelProto, ValueInfoProto, checker, helper

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.base.files import write_atomic
from armillary.contrib.target import _onnx_rules as rules
from armillary.contrib.target._onnx_biases import with_biases
from armillary.contrib.target._onnx_graph import Graph, element_type
from armillary.errors import ConfigError, UnsupportedError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from armillary.relay.op import Op
from armillary.relay.transform.normal_form.infer_type import infer_type
from armillary.relay.types import TensorType, TupleType
from armillary.relay.walk import post_order

OPSETS = range(11, 18)
_IR_VERSIONS = {11: 6, 12: 7, 13: 7, 14: 7}  # of the file's form; 8 from opset 15 on
_PRODUCER = "armillary"


@boundary("to_onnx")
def to_onnx(
    relay_ir: IRModule | Function,
    params: Mapping[str, object] | None = None,  # numpy arrays or NDArrays
    name: str = "main",
    opset_version: int = 11,
    path: str | Path | None = None,
) -> ModelProto:
    """The function `main` as an ONNX model of an opset from 11 to 17; with `path` it is written to a file too.

    Raises ConfigError for another opset and UnsupportedError for what ONNX has no word for.
    """
    if opset_version not in OPSETS:
        raise ConfigError(f"opset_version {opset_version}: wanted one from {OPSETS[0]} to {OPSETS[-1]}")
    module = relay_ir if isinstance(relay_ir, IRModule) else IRModule.from_expr(relay_ir)
    function = infer_type(module)["main"]
    graph = Graph(opset_version)
    values = _Values(graph, dict(params or {}))
    results = values.of_function(function)
    with_biases(graph, results)
    outputs = _outputs(graph, results, function.body.checked_type)
    inputs = [_info(var.name_hint, var.checked_type) for var in function.params if var.name_hint not in values.params]
    read = {name for node in graph.nodes for name in node.input} | set(values.params)
    weights = [weight for weight in graph.initializers if weight.name in read]
    proto = helper.make_graph(graph.nodes, name, inputs, outputs, weights)
    model = helper.make_model(
        proto,
        producer_name=_PRODUCER,
        opset_imports=[helper.make_opsetid("", opset_version)],
        ir_version=_IR_VERSIONS.get(opset_version, 8),
    )
    try:
        checker.check_model(model)
    except checker.ValidationError as error:
        message = f"to_onnx: opset {opset_version} has no such model: {error}"
        raise UnsupportedError(message, hint="try a later opset_version") from None
    if path is not None:
        write_atomic(path, model.SerializeToString())
    return model


class _Values:
    """Names of values by expression; a tuple has several."""

    def __init__(self, graph: Graph, params: dict[str, object]) -> None:
        self.graph, self.params = graph, params
        self._names: dict[int, list[str]] = {}

    def of_function(self, function: Function) -> list[str]:
        """Write what a function computes; names of its results."""
        for var in function.params:
            self._names[id(var)] = [var.name_hint]
            if var.name_hint in self.params:
                self.graph.initializer(var.name_hint, _array(self.params[var.name_hint]))
            else:
                self.graph.reserve(var.name_hint)
        for expr in post_order(function.body):
            if id(expr) not in self._names:
                self._names[id(expr)] = self._of(expr)
        return self._names[id(function.body)]

    def _of(self, expr: Expr) -> list[str]:
        if isinstance(expr, Constant):
            return [self.graph.constant(_array(expr.data))]
        if isinstance(expr, Tuple):
            return [name for field in expr.fields for name in self._names[id(field)]]
        if isinstance(expr, TupleGetItem):
            return [self._names[id(expr.tuple_value)][expr.index]]
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            return rules.write(self.graph, expr, [self._names[id(arg)] for arg in expr.args])
        if isinstance(expr, Op):
            return []
        what = f"variable {expr.name_hint!r} that is no parameter" if isinstance(expr, Var) else type(expr).__name__
        raise UnsupportedError(f"to_onnx: a {what} has no ONNX form", hint="one function of operators, no control flow")


def _array(data: object) -> Array:
    result: Array = data.numpy() if hasattr(data, "numpy") else data  # type: ignore[assignment]
    return result


def _outputs(graph: Graph, names: Sequence[str], ty: object) -> list[ValueInfoProto]:
    """Results get values of their own: an input, and a value that comes twice, is copied."""
    types = ty.fields if isinstance(ty, TupleType) else (ty,)
    return [_info(graph.node("Identity", [name]), kind) for name, kind in zip(names, types, strict=True)]


def _info(name: str, ty: object) -> ValueInfoProto:
    if not isinstance(ty, TensorType):
        raise UnsupportedError(f"to_onnx: {name!r} is no tensor but {ty}", hint="tuples in tuples have no ONNX form")
    dims = [size if isinstance(size, int) else f"{name}_{k}" for k, size in enumerate(ty.shape)]
    return helper.make_tensor_value_info(name, element_type(str(ty.dtype)), dims)
