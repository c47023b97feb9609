"""What the numerics doctor examines: a network with every value that a node of its source computes, and their truth.

In: an ONNX model, or a Relay module. Out: a `Subject`: the network as users compile it, and its inner values in
topological order, each with the node that makes it and the expression that stands for it; and `reference_values`: all
of them as ONNX Runtime or the interpreter computes them. Invariant: the expression of a value depends on the network's
own parameters only, so a function that ends there can be built. The search for a fault: driver/doctor.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
from onnx import ModelProto, ValueInfoProto

from armillary.base.aliases import Array
from armillary.base.extent import as_size, size_values
from armillary.errors import ModelError, Span, TypeMismatch, UnsupportedError
from armillary.frontend import from_onnx
from armillary.frontend.onnx.load import load_model, node_span, ordered_nodes
from armillary.ir import IRModule
from armillary.relay.analysis.bind_sizes import bind_type
from armillary.relay.analysis.meeting_sizes import parameter_sizes
from armillary.relay.binding import bind_params_by_name
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Expr, Function, Tuple, TupleGetItem, Var
from armillary.relay.op import Op
from armillary.relay.types import TensorType, TupleType, tensor_fields
from armillary.relay.walk import children, not_primitive, post_order, substitute

Arrays = dict[str, Array]
_FILE_VERSION = 10  # of the file's form, not of operators: ONNX Runtime refuses newer ones that mean the same here
_NO_TENSORS = ("Sequence", "Optional", "SplitToSequence")  # what such nodes compute is no tensor


@dataclass(frozen=True)
class Value:
    """An output of a node of the source: its name there, the node, its operator, and the names that the node reads."""

    name: str
    node: str
    op: str
    inputs: tuple[str, ...]
    expr: Expr


@dataclass(frozen=True)
class Subject:
    """A network under examination: what it computes on the way, and of these what it returns ("" for other outputs)."""

    source: str
    network: Function
    outputs: tuple[str, ...]
    values: tuple[Value, ...]
    model: ModelProto | None = None  # with every value as an output, for ONNX Runtime

    @property
    def all_values(self) -> Function:
        """The network that returns every value."""
        return self.only([value.expr for value in self.values])

    def only(self, exprs: Sequence[Expr]) -> Function:
        """The network that returns these expressions."""
        return Function(self.network.params, exprs[0] if len(exprs) == 1 else Tuple(tuple(exprs)))


def onnx_subject(path: str | os.PathLike[str], shapes: Mapping[str, object] | None = None) -> Subject:
    """The subject of an ONNX model: every tensor that a node computes and somebody reads.

    What nobody reads may be anything: of Dropout's mask each engine has its own idea.
    """
    loaded = load_model(path)
    model = _with_weights(loaded.proto, Path(path).parent)
    model.graph.name = loaded.source.encode("utf-8", "replace").decode()  # which errors of the importer name
    network = from_onnx(model, shape=shapes)[0]["main"]
    nodes = ordered_nodes(model.graph, (), loaded.source)
    known = {value.name for value in model.graph.output}
    read = known.union(*(node.input for node in nodes))
    tensors = [node for node in nodes if not node.op_type.startswith(_NO_TENSORS)]
    nodes_by_output = {name: node for node in tensors for name in node.output if name and name in read}
    model.graph.output.extend(ValueInfoProto(name=name) for name in nodes_by_output if name not in known)
    exposed = from_onnx(model, shape=shapes)[0]["main"]
    rebound = _on_parameters_of(network, exposed)
    values = []
    for name, expr in zip(exposed.get_attr("output_names"), rebound, strict=True):
        node = nodes_by_output.get(name)
        if node is not None and isinstance(expr, Call | TupleGetItem):
            reads = tuple(n for n in node.input if n)
            values.append(Value(name, node_span("", node).name, node.op_type, reads, expr))
    order = {name: k for k, name in enumerate(nodes_by_output)}
    values.sort(key=lambda value: order[value.name])
    computed = {value.name for value in values}
    outputs = tuple(name if name in computed else "" for name in network.get_attr("output_names"))
    return Subject(loaded.source, network, outputs, tuple(values), model)


def _with_weights(model: ModelProto, folder: Path) -> ModelProto:
    """A copy of the model that holds its weights itself."""
    copy = ModelProto()
    copy.CopyFrom(model)
    try:
        onnx.load_external_data_for_model(copy, str(folder))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(f"the model's external data cannot be read: {error}", span=Span(str(folder))) from None
    return copy


def _on_parameters_of(network: Function, exposed: Function) -> list[Expr]:
    """The outputs of `exposed`, over the parameters of `network`."""
    own = {p.name_hint: p for p in network.params}
    body = substitute(exposed.body, {id(p): own[p.name_hint] for p in exposed.params})
    return list(body.fields) if isinstance(body, Tuple) else [body]


def relay_subject(module: IRModule, source: str, params: Mapping[str, object] | None = None) -> Subject:
    """The subject of a Relay module: every tensor that a call of an operator in main computes, numbered in order."""
    main = module["main"]
    if not isinstance(main, Function):
        raise TypeMismatch(f"main is not a relay function but a {type(main).__name__}", span=Span(source))
    main = bind_params_by_name(main, params) if params else main
    names: dict[int, str] = {id(p): p.name_hint for p in main.params}
    values: list[Value] = []
    for expr in post_order(main.body, not_primitive):
        if not isinstance(expr, Call) or not isinstance(expr.op, Op) or not _is_closed_over(expr, main):
            continue
        number = f"%{len(names) - len(main.params)}"
        label = expr.span.name if expr.span is not None and expr.span.name else number
        reads = tuple(filter(None, (_name_of(a, names) for a in _fields(expr.args))))
        names[id(expr)] = number
        values += [Value(name, label, expr.op.name, reads, part) for name, part in _parts(expr, number)]
    computed = {value.name for value in values}
    returned = [_name_of(part, names) for part in _fields((main.body,))]
    outputs = tuple(name if name in computed else "" for name in returned)
    if isinstance(main.body, Call) and isinstance(main.body.checked_type, TupleType):
        outputs = tuple(name for name, _ in _parts(main.body, returned[0]))
    return Subject(source, main, outputs, tuple(values))


def _is_closed_over(expr: Expr, main: Function) -> bool:
    """Whether an expression stands outside of branches and inner functions: it needs nothing but main's parameters."""
    own = {id(p) for p in main.params}
    return all(id(v) in own for v in post_order(expr) if isinstance(v, Var))


def _fields(exprs: Sequence[Expr]) -> list[Expr]:
    return [field for e in exprs for field in (children(e) if isinstance(e, Tuple) else (e,))]


def _name_of(expr: Expr, names: Mapping[int, str]) -> str:
    """The name of a value: of a field of a tuple, that of the tuple and its number."""
    if isinstance(expr, TupleGetItem) and id(expr.tuple_value) in names:
        return f"{names[id(expr.tuple_value)]}.{expr.index}"
    return names.get(id(expr), "")


def _parts(expr: Expr, name: str) -> list[tuple[str, Expr]]:
    ty = expr.checked_type
    if not isinstance(ty, TupleType):
        return [(name, expr)]
    return [(f"{name}.{k}", TupleGetItem(expr, k)) for k in range(len(ty.fields))]


# --- truth ----------------------------------------------------------------------------------------------------------


def stated_sizes(network: Function, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, int]:
    """Values of a network's sizes that are stated, by name or by the shapes of arrays for inputs."""
    result = dict(sizes)
    for parameter in network.params:
        for field in tensor_fields(parameter.checked_type):
            for dim, length in zip(field.shape, np.shape(arrays.get(parameter.name_hint, 0)), strict=False):
                if (named := as_size(dim)) is not None:
                    result.setdefault(named.name, length)
    return result


def random_inputs(network: Function, seed: int = 0, sizes: Mapping[str, int] = MappingProxyType({})) -> Arrays:
    """Seeded inputs of these sizes, or of typical ones: normal numbers; for integers and booleans 0 or 1."""
    random = np.random.default_rng(seed)
    values = size_values(parameter_sizes(network), sizes)
    result: Arrays = {}
    for parameter in network.params:
        ty = bind_type(parameter.checked_type, values)
        if not isinstance(ty, TensorType):
            raise UnsupportedError(f"the parameter %{parameter.name_hint} is no tensor but {ty}")
        is_whole = ty.dtype.is_int or ty.dtype.is_bool
        drawn = random.integers(0, 2, ty.static) if is_whole else random.standard_normal(ty.static)
        result[parameter.name_hint] = np.asarray(drawn).astype(ty.dtype.numpy)
    return result


def checked_inputs(
    network: Function, arrays: Mapping[str, Array], seed: int = 0, sizes: Mapping[str, int] = MappingProxyType({})
) -> Arrays:
    """The given inputs where there are any, else random ones; each must be of its parameter's type at these sizes."""
    result = random_inputs(network, seed, stated_sizes(network, arrays, sizes))
    for name, array in arrays.items():
        if name not in result:
            raise TypeMismatch(
                f"{name!r} is no input of the network", hint=f"its inputs: {', '.join(result) or 'none'}"
            )
        if (array.shape, array.dtype) != (result[name].shape, result[name].dtype):
            wanted = f"{result[name].dtype} {list(result[name].shape)}"
            raise TypeMismatch(f"input {name!r}: got {array.dtype} {list(array.shape)}, wanted {wanted}")
        result[name] = np.ascontiguousarray(array)
    return result


def has_onnxruntime() -> bool:
    """Whether ONNX Runtime is installed."""
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return False
    return True


def reference_values(subject: Subject, inputs: Arrays, reference: str) -> tuple[str, Arrays]:
    """What computed the truth, and every value by name. `reference`: auto, ort or interpreter."""
    if reference == "ort" and subject.model is None:
        raise UnsupportedError("ONNX Runtime runs ONNX models only", hint="--reference interpreter")
    if reference == "ort" or (reference == "auto" and subject.model is not None and has_onnxruntime()):
        return _from_onnxruntime(subject, inputs)
    results = evaluate(subject.all_values, inputs)
    many = results if isinstance(results, tuple | list) else (results,)
    return "the interpreter", {v.name: np.asarray(r) for v, r in zip(subject.values, many, strict=True)}


def _from_onnxruntime(subject: Subject, inputs: Arrays) -> tuple[str, Arrays]:
    import onnxruntime

    assert subject.model is not None, "checked by the caller"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    names = [value.name for value in subject.values]
    plain = ModelProto()
    plain.CopyFrom(subject.model)
    plain.ir_version = min(plain.ir_version, _FILE_VERSION)
    try:
        session = onnxruntime.InferenceSession(plain.SerializeToString(), options, providers=["CPUExecutionProvider"])
        wanted = {value.name for value in session.get_inputs()}
        results = session.run(names, {name: array for name, array in inputs.items() if name in wanted})
    except Exception as error:  # its own exception types share no base that it exports
        raise UnsupportedError(
            f"ONNX Runtime cannot run the model: {error}", span=Span(subject.source), hint="--reference interpreter"
        ) from None
    return f"ONNX Runtime {onnxruntime.__version__}", dict(zip(names, map(np.asarray, results), strict=True))
