"""From an ONNX model to a Relay module: the walk over the graph.

In: a path, bytes or ModelProto (checked by onnx/load.py). Out: `(IRModule, params)`; "main" takes the graph's inputs in
order and records `input_names` and `output_names` as attributes. What each operator becomes is said by its rule under
`rules/` (`from_onnx`); an operator without a rule is replaced by its function body, the model's own or the
standard's. Invariant: every call carries the name of its node; shapes are static; what is not supported is said at
once, for the whole model, before anything is built.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.aliases import Array
from armillary.base.aligned import Deferred
from armillary.base.extent import Extent
from armillary.base.files import write_atomic
from armillary.base.lazy import deferred
from armillary.base.names import identifier
from armillary.base.node import Pairs, post_order
from armillary.base.stored import FilePart
from armillary.budgets import EXPANDED_NODES, FILE_BYTES, FILE_NODES, ITERATIONS, REPEATS
from armillary.errors import ArmillaryError, ConfigError, ExecutionError, ModelError, Span, UnsupportedError
from armillary.frontend.folding.data_sizes import DataSizes
from armillary.frontend.folding.fold import Folder, Known, NeedsValue
from armillary.frontend.folding.size_values import as_expr
from armillary.frontend.onnx.attributes import Attributes, check_word, refuse_unread
from armillary.frontend.onnx.element_types import check_types
from armillary.frontend.onnx.functions import call_types, function_key, schema_function, schema_of
from armillary.frontend.onnx.inputs import InputBinder, check_declared, part_names
from armillary.frontend.onnx.load import (
    Model,
    bind_attributes,
    load_model,
    node_span,
    opset_versions,
    ordered_nodes,
)
from armillary.frontend.onnx.node import NOTHING, OnnxNode, onnx_rule
from armillary.frontend.onnx.open_sizes import OpenSizes
from armillary.frontend.onnx.proto import AttributeType, onnx, plain_domain
from armillary.frontend.onnx.shapes import check_shapes, check_sizes
from armillary.frontend.onnx.signature import Signature, signature_of
from armillary.frontend.onnx.split import LARGE
from armillary.frontend.onnx.tensor import (
    attribute_value,
    is_external,
    sparse_array,
    stored_external,
    stored_tensor,
    tensor_array,
)
from armillary.ir import IRModule
from armillary.ops._types import dims_product
from armillary.ops.shape.bound_sizes import with_sizes_bound
from armillary.relay.call_budgets import check_call
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from armillary.relay.types import TensorType, TupleType

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

    from armillary.frontend.onnx.bounded import Body

with deferred():
    from armillary.frontend.onnx.bounded import bounded, compress, non_max_suppression, non_zero, unique
    from armillary.frontend.onnx.control import branch_taken, loop, mapped_sequence, scan
    from armillary.frontend.onnx.dimensions import assumed_shapes
    from armillary.frontend.onnx.variants import variant_shapes
_MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_CONFIG_KEYS = ("use_nt_batch_matmul",)  # chooses between forms that our passes choose between by themselves
_MAX_CALL_DEPTH = 32
_SMALL_INDEX = 64
_MANY_MADE = 1 << 26  # bytes of constants that rules make
Scope = dict[str, Expr]


def import_model(
    model: Any,  # Any: a path, bytes or an onnx.ModelProto
    shape: Mapping[str, object],
    dtype: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    freeze: bool = True,
    config: Mapping[str, object] = MappingProxyType({}),
    renamed: str | os.PathLike[str] | None = None,
    static_inputs: Mapping[str, object] = MappingProxyType({}),
    variants: Sequence[Mapping[str, object]] | None = None,
    bounds: Mapping[str, object] = MappingProxyType({}),
    hint: Mapping[str, object] = MappingProxyType({}),
    waits: bool = False,
    notice: Callable[[str], None] | None = None,
) -> tuple[IRModule, dict[str, Array]]:
    """What onnx/entry.py says of `from_onnx` and, with `waits`, of `from_file`."""
    if not isinstance(config, Mapping):
        raise ConfigError(f"from_onnx: convert_config is {type(config).__name__}, wanted a dictionary of options")
    unknown = sorted(set(config) - set(_CONFIG_KEYS))
    if unknown:
        known = ", ".join(_CONFIG_KEYS)
        raise ConfigError(f"from_onnx: unknown convert_config key {unknown[0]!r}", hint=f"known: {known}")
    try:
        loaded = load_model(model, opset, importable=importable if renamed is None else None, waits=waits)
        if renamed is not None:
            _export_renamed(loaded.proto, Path(renamed))
        held = {t.name for t in loaded.proto.graph.initializer}
        free = [value for value in loaded.proto.graph.input if value.name not in held]
        shapes = [shape]
        if variants is not None:
            shapes = list(variant_shapes(free, shape, variants))
        elif notice is not None:
            shapes = list(assumed_shapes(free, shape, notice))
        open_sizes = OpenSizes(loaded.source, free, bounds, hint)
        walks = [_Walk(loaded, InputBinder(loaded.source, s, dtype, static_inputs, open_sizes), freeze) for s in shapes]
        return _joined([walk.run() for walk in walks])
    except UnicodeDecodeError as error:
        raise ModelError(f"a name in the model is not valid UTF-8: {error}", span=Span(str(model)[:200])) from None


def _joined(parts: list[tuple[IRModule, dict[str, Array]]]) -> tuple[IRModule, dict[str, Array]]:
    """One module of all variants: they have their parameters in common."""
    module, params = parts[0]
    for number, (other, more) in enumerate(parts[1:], 1):
        module[f"main_{number}"] = other["main"].with_attr("Variant", 1)
        params.update(more)
    return module, params


def check_operators(model: Any, opset: int | None = None) -> None:
    """Raise UnsupportedError, naming all of them, if the model uses operators that cannot be imported."""
    loaded = load_model(model, opset, importable=importable)
    walk = _Walk(loaded, InputBinder(loaded.source, {}, "float32", {}), True)
    walk.refuse_unknown(ordered_nodes(loaded.proto.graph, (), loaded.source))


def _export_renamed(proto: ModelProto, path: Path) -> None:
    """Save a copy in which every node has a name."""
    renamed = onnx.ModelProto()
    renamed.CopyFrom(proto)
    for index, node in enumerate(renamed.graph.node):
        node.name = node.name or f"{node.op_type}_{index}"
    write_atomic(path, renamed.SerializeToString())


def _count_nodes(proto: ModelProto) -> int:
    """Nodes of the file, of functions and sub-graphs too."""
    pending = [proto.graph, *proto.functions]  # graphs and functions
    count = 0
    while pending:
        nodes = pending.pop().node
        count += len(nodes)
        for node in nodes:
            for attribute in node.attribute:
                pending += [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
    return count


class _Walk:
    """One import: the folder of constants, the model's functions, the parameters met."""

    def __init__(self, model: Model, binder: InputBinder, freeze: bool) -> None:
        self.model, self.binder, self.freeze = model, binder, freeze
        self.folder = Folder()
        self.folder.data_sizes = DataSizes(_size_names(model.proto.graph), self.folder.outer)
        self.functions = {function_key(f): f for f in model.proto.functions}
        self.weights: dict[str, tuple[Var, Array]] = {}
        self.calls: list[tuple[str, str, str]] = []  # functions being expanded, outermost first, as function_key
        self.asked = Known(self.folder, ())  # of the node being imported
        self._checked: dict[tuple[object, ...], bool] = {}  # functions, and whether all inside them can be imported
        self._expanded = self._unrolled = 0
        self._nodes = _count_nodes(model.proto)

    def run(self) -> tuple[IRModule, dict[str, Array]]:
        graph, source = self.model.proto.graph, self.model.source
        nodes = ordered_nodes(graph, (), source)
        self.refuse_unknown(nodes)
        scope: Scope = {}
        self._read_weights(graph, scope, top=True)
        for declared in graph.input:
            if declared.name in scope:
                check_declared(declared, scope[declared.name].checked_type, Span(source, declared.name))
        inputs = self.binder.bind([v for v in graph.input if v.name not in scope])
        for name, value in inputs.items():
            constant = self.folder.give(value) if isinstance(value, Constant) else value
            scope[name] = self.folder.settle(constant, Span(source, name))
            self.folder.outer.update(id(part) for part in _parts(value))
        for node in nodes:
            self._convert(node, scope, self.model.opsets)
        outputs = [(value.name, self._output(scope[value.name], value.name)) for value in graph.output]
        return self._module([v for value in inputs.values() for v in _parts(value) if isinstance(v, Var)], outputs)

    def _output(self, expr: Expr, name: str) -> Expr:
        tensors = [isinstance(part.checked_type, TensorType) for part in _parts(expr)]
        if expr is NOTHING or not all(tensors):
            raise UnsupportedError(f"graph output {name!r} is not a tensor", span=Span(self.model.source, name))
        return expr

    def _module(self, inputs: list[Var], values: list[tuple[str, Expr]]) -> tuple[IRModule, dict[str, Array]]:
        """The module; a name may come twice; a sequence is one output per element, named `<name>.<position>`."""
        outputs = [part for _, value in values for part in _parts(value)]
        body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
        used = _variables(body)
        weights = {name: pair for name, pair in self.weights.items() if id(pair[0]) in used}
        params = (*inputs, *(var for var, _ in weights.values()))
        names = [n for name, value in values for n in part_names(name, len(_parts(value)), _is_many(value))]
        attrs: Pairs = (
            ("input_names", tuple(v.name_hint for v in inputs)),
            ("output_names", tuple(names)),
        )
        if any(_is_many(value) for _, value in values):
            attrs += (("output_counts", tuple(len(_parts(v)) if _is_many(v) else -1 for _, v in values)),)
        if self._expanded:
            attrs += ((FILE_NODES, self._nodes),)
        if self.folder.made > _MANY_MADE:
            attrs += ((FILE_BYTES, self.folder.given),)
        body = with_sizes_bound(body, self.folder.data_sizes.binds)
        function = Function(params, body, None, attrs, Span(self.model.source))
        return IRModule({"main": function}), {name: array for name, (_, array) in weights.items()}

    # --- what is not supported, all at once ---

    def refuse_unknown(self, nodes: list[NodeProto]) -> None:
        """Raise one UnsupportedError that names every operator of these nodes that has neither rule nor body."""
        missing: dict[str, list[NodeProto]] = defaultdict(list)
        for node in nodes:
            if not self._is_importable(node, self.model.opsets, ()):
                missing[f"{plain_domain(node.domain)}.{node.op_type}".lstrip(".")].append(node)
        if missing:
            rows = [
                f"{op} ({len(places)} node{'s'[: len(places) > 1]}, first: {places[0].name or places[0].output[0]!r})"
                for op, places in sorted(missing.items())
            ]
            raise UnsupportedError(
                f"{len(rows)} operator{'s'[: len(rows) > 1]} of the model cannot be imported: " + "; ".join(rows),
                span=node_span(self.model.source, next(iter(missing.values()))[0]),
                hint="operators with a rule are listed in docs/operators.md",
            )

    def _is_importable(
        self, node: NodeProto, opsets: Mapping[str, int], inside: tuple[tuple[str, str, str], ...]
    ) -> bool:
        domain = plain_domain(node.domain)
        version = opsets.get(domain, 1)
        if importable(domain, node.op_type, version):
            return True
        called = (domain, node.op_type, node.overload)
        local = self.functions.get(called)
        if local is not None:
            if called in inside or len(inside) > _MAX_CALL_DEPTH:
                return True  # recursion: reported where it is expanded
            versions = {**opsets, **opset_versions(local.opset_import, self.model.source)}
            key = (*called, *sorted(versions.items()))
            if key not in self._checked:  # a function may be called by many, and they by many
                self._checked[key] = all(self._is_importable(n, versions, (*inside, called)) for n in local.node)
            return self._checked[key]
        body = schema_function(node, domain, version, None)
        if body is None:
            return False
        versions = {**opsets, **opset_versions(body.opset_import, self.model.source)}
        return len(inside) > _MAX_CALL_DEPTH or all(
            self._is_importable(n, versions, (*inside, called)) for n in body.node
        )

    # --- values ---

    def _read_weights(self, graph: GraphProto, scope: Scope, top: bool = False) -> None:
        source = self.model.source
        large, read = (self.model.large, self.model.read) if top else ({}, {})
        for number, tensor in enumerate(graph.initializer):
            span = Span(source, tensor.name)
            array = read.get(number)
            if array is None:
                array = read[number] = self._array(tensor, span, large.get(number))
            self._add_weight(tensor.name, array, scope, span, top)
        for sparse in graph.sparse_initializer:
            span = Span(source, sparse.values.name)
            dense = sparse_array(sparse, span, self.model.file)
            self._add_weight(sparse.values.name, dense, scope, span, top, is_stored=False)

    def _array(self, tensor: TensorProto, span: Span, content: FilePart | None) -> Array | Deferred:
        if content is not None and self.model.aside is None:
            return stored_tensor(tensor, content, span)
        if content is None and self.model.aside is None and is_external(tensor):
            return stored_external(tensor, span, self.model.file, self.model.held)
        array = tensor_array(tensor, span, self.model.file, None if content is None else content.read())
        aside = self.model.aside if self.freeze and array.nbytes >= LARGE else None
        return array if aside is None else aside.put(array)

    def _add_weight(
        self, name: str, array: Array | Deferred, scope: Scope, span: Span, top: bool, is_stored: bool = True
    ) -> None:
        if not name:
            raise ModelError("an initialiser has no name", span=span)
        if self.freeze or not top or _is_index(array):
            constant = Constant(array, span)
            scope[name] = self.folder.give(constant) if is_stored else self.folder.settle(constant, span)
            return
        self.folder.given += array.nbytes
        array = array.compute() if isinstance(array, Deferred) else array
        var = Var(name, TensorType(array.shape, Constant(array).checked_type.dtype), span)  # type: ignore[attr-defined]
        self.weights[name] = (var, array)
        self.folder.weights[id(var)] = array
        self.folder.outer.add(id(var))
        scope[name] = self.folder.settle(var, span)

    # --- nodes ---

    def _convert(self, node: NodeProto, scope: Scope, opsets: Mapping[str, int]) -> None:
        """Import one node: its outputs enter the scope."""
        span = node_span(self.model.source, node)
        try:
            values = self._values_of(node, scope, opsets, span)
            for name, value in zip(node.output, values, strict=False):
                if name:
                    scope[name] = self.folder.settle(value, span)
                    scope[name].checked_type  # noqa: B018  (an ill-typed node is reported here, with its name)
                    if isinstance(call := scope[name], Call):
                        check_call(call)
        except ArmillaryError as error:
            error.span = error.span or span
            needed = self.asked.needed_inputs()
            if needed and isinstance(error, UnsupportedError) and not isinstance(error, NeedsValue):
                raise NeedsValue(error, needed) from error.__cause__
            raise
        except MemoryError as error:
            message = f"{node.op_type} node: out of memory: {error}"
            raise ExecutionError(message, span=span, hint=_summary(node, scope)) from error
        except _MALFORMED as error:
            raise ModelError(
                f"{node.op_type} node is malformed: {type(error).__name__}: {error}",
                span=span,
                hint=_summary(node, scope),
            ) from error
        missing = [name for name in node.output[len(values) :] if name]
        if missing:
            what = f"output {missing[0]!r} (number {len(values)})"
            raise UnsupportedError(f"{node.op_type}: {what} is not supported", span=span)

    def _values_of(self, node: NodeProto, scope: Scope, opsets: Mapping[str, int], span: Span) -> list[Expr]:
        domain = plain_domain(node.domain)
        local = self.functions.get((domain, node.op_type, node.overload))
        if local is not None:
            return self._expand(node, local, scope, opsets, {})
        version = opsets.get(domain, 1)
        signature = signature_of(node.op_type, domain, version)
        types = [scope[name].checked_type if name else None for name in node.input]
        if signature is not None:
            _check_node(node, signature)
            check_types(node.op_type, domain, version, types, span.name)
        check_shapes(node.op_type, domain, types)
        special = _SPECIAL.get((domain, node.op_type))
        if special is not None:
            result: list[Expr] = special(self, self._view(node, domain, version, scope, span), scope, opsets)
            return result
        rule = onnx_rule(domain, node.op_type, version)
        if rule is not None:
            view = self._view(node, domain, version, scope, span)
            values = self._fields(rule(view), span, len(node.output))
            refuse_unread(view)
            return values
        inputs = [scope[name] if name else None for name in node.input]
        body = schema_function(node, domain, version, call_types(inputs))
        schema = schema_of(node.op_type, domain, version)
        if body is None or schema is None:
            raise UnsupportedError(f"operator {node.op_type} cannot be imported at opset {version}")
        check_sizes(node.op_type, Known(self.folder, inputs))
        defaults = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}
        return self._expand(node, body, scope, opsets, defaults)

    def _view(self, node: NodeProto, domain: str, version: int, scope: Scope, span: Span) -> OnnxNode:
        inputs = [scope[name] if name else None for name in node.input]
        attributes = Attributes({a.name: attribute_value(a, span, self.model.file) for a in node.attribute})
        self.asked = Known(self.folder, inputs)
        known: Any = self.asked  # Any: the record wants a list; this one computes values when they are read
        return OnnxNode(node.op_type, span.name, domain, version, inputs, known, attributes, list(node.output))

    def _fields(self, result: Any, span: Span, count: int) -> list[Expr]:
        """A rule's result as one expression per output."""
        if isinstance(result, list | tuple):
            return list(result)
        settled = self.folder.settle(result, span)
        ty = settled.checked_type
        if not isinstance(ty, TupleType):
            return [settled]
        return [TupleGetItem(settled, index) for index in range(min(count, len(ty.fields)))]

    def _expand(
        self,
        node: NodeProto,
        body: FunctionProto,
        outer: Scope,
        opsets: Mapping[str, int],
        defaults: dict[str, AttributeProto],
    ) -> list[Expr]:
        """Import a function body in place of the node that calls it."""
        key, message = function_key(body), " -> ".join(name for _, name, _ in self.calls)
        if key in self.calls and key in self.functions:
            raise ModelError(f"function {body.name!r} calls itself: {message}")
        if len(self.calls) >= _MAX_CALL_DEPTH:
            raise UnsupportedError(
                f"function {body.name!r}: calls are nested more than {_MAX_CALL_DEPTH} deep: {message}"
            )
        if len(node.input) > len(body.input):
            raise ModelError(f"function {body.name!r} takes {len(body.input)} inputs, got {len(node.input)}")
        values = defaults | {a.name: a for a in body.attribute_proto} | {a.name: a for a in node.attribute}
        scope = {formal: outer[actual] for formal, actual in zip(body.input, node.input, strict=False) if actual}
        absent = set(body.input) - set(scope)
        versions = {**opsets, **opset_versions(body.opset_import, self.model.source)}
        graph = onnx.GraphProto(name=body.name, node=[_without(bind_attributes(n, values), absent) for n in body.node])
        formals = [formal if actual else "" for formal, actual in zip(body.output, node.output, strict=False)]
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in formals if name)
        self._expand_more(len(graph.node), f"function {body.name!r}", node)
        self.calls.append(key)
        for inner in ordered_nodes(graph, scope, self.model.source):
            inner.name = f"{node.name or node.op_type}/{inner.name or inner.op_type}"
            self._convert(inner, scope, versions)
        self.calls.pop()
        return [scope[name] if name else Tuple(()) for name in formals]

    # --- nodes that are not operators ---

    def _constant(self, view: OnnxNode, _scope: Scope, _opsets: Mapping[str, int]) -> list[Expr]:
        values = [item for item in view.attributes.items() if item[0].startswith(("value", "sparse_value"))]
        if len(values) != 1:
            raise ModelError(f"Constant needs exactly one value attribute, got {[name for name, _ in values]}")
        name, value = values[0]
        if isinstance(value, np.ndarray):  # the dense form of a sparse one is made, not given
            return [Constant(value) if name == "sparse_value" else self.folder.give(Constant(value))]
        if name.startswith("value_string"):
            raise UnsupportedError("Constant holds strings, which are not supported")
        return [Constant(np.array(value, np.float32 if name.startswith("value_float") else np.int64))]

    def _identity(self, view: OnnxNode, _scope: Scope, _opsets: Mapping[str, int]) -> list[Expr]:
        return [view.input(0)]

    def _shape(self, view: OnnxNode, _scope: Scope, _opsets: Mapping[str, int]) -> list[Expr]:
        shape = _known_shape(view)[view.int("start", 0) : view.int("end", None)]
        return [_sizes(shape, (len(shape),))]

    def _size(self, view: OnnxNode, _scope: Scope, _opsets: Mapping[str, int]) -> list[Expr]:
        return [_sizes((dims_product(_known_shape(view)),), ())]

    # --- sub-graphs ---

    def body(self, graph: GraphProto, scope: Scope, opsets: Mapping[str, int]) -> Body:
        """A function that imports a sub-graph for given inputs; it reads the scope around it."""
        weights: Scope = {}
        self._read_weights(graph, weights)
        nodes = ordered_nodes(graph, scope, self.model.source)
        self.refuse_unknown(nodes)

        def call(inputs: Sequence[Expr]) -> list[Expr]:
            self._expand_more(len(nodes), f"graph {graph.name!r}")
            inner = {**scope, **weights}
            for formal, value in zip(graph.input, inputs, strict=False):
                inner[formal.name] = self.folder.settle(value, Span(self.model.source, formal.name))
            for node in nodes:
                self._convert(node, inner, opsets)
            return [inner[value.name] for value in graph.output]

        return call

    def _expand_more(self, count: int, what: str, node: NodeProto | None = None) -> None:
        """Count the nodes of a function or sub-graph that is imported once more."""
        self._expanded += count
        span = node_span(self.model.source, node) if node is not None else Span(self.model.source)
        EXPANDED_NODES.check(self._expanded, what, span, free=REPEATS * self._nodes)

    def unroll(self, view: OnnxNode, count: int = 1) -> None:
        """Count iterations that are unrolled."""
        self._unrolled += count
        ITERATIONS.check(self._unrolled, view.op_type, self.span(view))

    def span(self, view: OnnxNode) -> Span:
        """Where a node is."""
        return Span(self.model.source, view.name)

    def ask(self, value: Expr) -> Any:  # Any: an array, a tuple of them, or None
        """The value of an expression where it is known; an error that follows names the inputs it depends on."""
        self.asked = Known(self.folder, [value])
        return self.asked[0]

    def known(self, view: OnnxNode, value: Expr, what: str) -> Array:
        """The value of an expression, or an UnsupportedError that names the inputs it depends on."""
        array = self.ask(value)
        if not isinstance(array, np.ndarray):
            raise UnsupportedError(
                f"{view.op_type}: the {what} is computed at run time",
                hint="fix the inputs it depends on with static_inputs=, or simplify the model before import",
            )
        return array


_SPECIAL: dict[tuple[str, str], Callable[[_Walk, OnnxNode, Scope, Mapping[str, int]], list[Expr]]] = {
    ("", "Constant"): _Walk._constant,
    ("", "Identity"): _Walk._identity,
    ("", "Shape"): _Walk._shape,
    ("", "Size"): _Walk._size,
    ("", "If"): branch_taken,
    ("", "Loop"): loop,
    ("", "Scan"): scan,
    ("", "SequenceMap"): mapped_sequence,
    ("", "NonZero"): partial(bounded, 0, non_zero),
    ("", "Compress"): partial(bounded, 1, compress),
    ("", "Unique"): partial(bounded, 0, unique),
    ("", "NonMaxSuppression"): partial(bounded, 0, non_max_suppression),
}


def importable(domain: str, op_type: str, version: int) -> bool:
    """Whether a rule imports the operator (others may be functions of such operators)."""
    return (domain, op_type) in _SPECIAL or onnx_rule(domain, op_type, version) is not None


def _is_index(array: Array | Deferred) -> bool:
    return array.dtype.kind in "iub" and math.prod(array.shape) <= _SMALL_INDEX


def _size_names(graph: GraphProto) -> list[str]:
    """Names that the sizes of inputs may have."""
    dims = [(v.name, n, d.dim_param) for v in graph.input for n, d in enumerate(v.type.tensor_type.shape.dim)]
    return [identifier(param or f"{name}_{n}") for name, n, param in dims]


def _is_many(value: Expr) -> bool:
    return isinstance(value.checked_type, TupleType)


def _parts(value: Expr) -> list[Expr]:
    """A tensor, or the elements of a sequence."""
    if isinstance(value, Tuple):
        return list(value.fields)
    ty = value.checked_type
    return [TupleGetItem(value, k) for k in range(len(ty.fields))] if isinstance(ty, TupleType) else [value]


def _known_shape(view: OnnxNode) -> tuple[int | Extent, ...]:
    ty = view.type_of(0)
    known = tuple(d for d in ty.shape if isinstance(d, int | Extent))
    if len(known) < ty.ndim:
        raise UnsupportedError(f"{view.op_type}: the shape of its input, {ty}, is known only at run time")
    return known


def _sizes(values: tuple[int | Extent, ...], shape: tuple[int, ...]) -> Expr:
    array = np.empty(len(values), object)
    array[:] = values
    result = as_expr(array.reshape(shape), "int64")
    assert result is not None, "a shape has few axes"
    return result


def _without(node: NodeProto, absent: set[str]) -> NodeProto:
    """A body node whose reads of omitted formal inputs are omitted too."""
    for index, name in enumerate(node.input):
        if name in absent:
            node.input[index] = ""
    return node


def _check_node(node: NodeProto, standard: Signature) -> None:
    """Compare the node with the standard: number of inputs, attributes' names and types."""
    least, most = standard.min_input, standard.max_input
    if not least <= len(node.input) <= most:
        raise ModelError(f"{node.op_type} takes {least} to {most} inputs, got {len(node.input)}")
    attributes = {a.name: a for a in node.attribute}
    if len(attributes) != len(node.attribute):
        raise ModelError(f"{node.op_type} has an attribute twice")
    for name, (kind, is_required) in standard.attributes.items():
        if name not in attributes and is_required:
            raise ModelError(f"{node.op_type} lacks the required attribute {name!r}")
        got = AttributeType(attributes[name].type).name if name in attributes and attributes[name].type else kind
        if got != kind:
            raise ModelError(f"{node.op_type}: attribute {name!r} is {got}, the standard says {kind}")
        if name in attributes and kind == "STRING":
            check_word(node.op_type, name, attributes[name].s)


def _summary(node: NodeProto, scope: Scope) -> str:
    types = [str(scope[name].checked_type) if name in scope else repr(name) for name in node.input]
    return f"inputs: {', '.join(types)}; attributes: {', '.join(a.name for a in node.attribute)}"


def _variables(body: Expr) -> set[int]:
    """Ids of the variables an expression reads."""
    return {id(item) for item in post_order(body) if isinstance(item, Var)}
