"""Between graphs and Relay: a graph becomes one Relay function, a Relay function becomes a graph or one layer.

In: a `Graph`; or a module with its parameters. Out: `to_relay`: a module and its parameters, to compile and deploy as
any network; `from_relay`: a graph with a node for each call; `RelayLayer`: one node for a whole network. Invariant:
`to_relay` joins the expressions of the library's own functions (`functions/nn/body.py`); what `from_relay` finds no
layer for becomes a `RelayLayer` of that call, so every network of one input and one output has a graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from armillary import relay
from armillary.base.aliases import Array
from armillary.base.boundary import boundary, bounded
from armillary.compute.cl.pipeline import CLPipeline
from armillary.compute.core.tensor_info import DataType, TensorInfo, TensorShape
from armillary.compute.core.types import ConvolutionMethod
from armillary.compute.functions.nn import base
from armillary.compute.functions.nn.body import Body, Node
from armillary.compute.graph.accessors import ITensorAccessor
from armillary.compute.graph.graph import Graph
from armillary.compute.graph.hints import GraphHints, OperationType, Target
from armillary.compute.graph.nodes import INode, Parameters
from armillary.compute.graph.registry import IFunction, NodeContext, register_simple_operation
from armillary.compute.graph.relay_layers import layer_of, shape_in, tensor_type
from armillary.compute.graph.stages import configured, loaded_weights
from armillary.compute.graph.tensor import Tensor
from armillary.compute.runtime.tensor import Tensor as ComputeTensor
from armillary.compute.runtime.tensor import shape_of
from armillary.errors import ConfigError, TypeMismatch
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function, TupleGetItem, Var
from armillary.relay.walk import post_order, substitute

_KINDS = {kind.dtype: kind for kind in DataType if not kind.is_quantized}


def _sizes(expr: Expr) -> tuple[tuple[int, ...], str]:
    """Shape and type of a tensor that the library can hold."""
    kind = tensor_type(expr)
    if kind is None or str(kind.dtype) not in _KINDS:
        raise TypeMismatch(f"a graph's tensors are of {', '.join(sorted(_KINDS))}, got {expr.checked_type}")
    return shape_in(kind), str(kind.dtype)


@boundary("to_relay", arguments=True)
def to_relay(graph: Graph, name: str = "data") -> tuple[IRModule, dict[str, Array]]:
    """The graph as a module, and its weights by name; targets and methods are left to whoever compiles it."""
    first = graph.value(0).info()
    values: dict[int, Node] = {0: relay.var(name, shape=shape_of(first), dtype=first.data_type.dtype)}
    params: dict[str, Array] = {}
    variables = [values[0]]
    for at, node in enumerate(graph.nodes()):
        operands = [values[n] for n in node.inputs]
        infos = [graph.value(n).info() for n in node.inputs]
        body, loaded = _body_of(node.layer, infos), loaded_weights(node.layer, infos, Target.NEON)
        for key, tensor in zip(body.weights, [t for t in loaded if t is not None], strict=True):
            label = f"{node.layer.name()}_{at}.{key}"
            params[label] = np.array(tensor.array())
            operands.append(relay.var(label, shape=params[label].shape, dtype=str(params[label].dtype)))
            variables.append(operands[-1])
        values[node.output] = body.applied(operands)
    module = IRModule.from_expr(Function(tuple(variables), values[graph.tail()]))
    return relay.transform.SimplifyExpr()(relay.transform.InferType()(module)), params


def _body_of(layer: INode, infos: Sequence[TensorInfo]) -> Body:
    """What a layer computes, as an expression that leaves the method open."""
    tensors: list[ComputeTensor | None] = []
    for info in (*infos, *(info_pair[0] if info_pair is not None else None for info_pair in layer.weights(infos))):
        tensors.append(ComputeTensor() if info is not None else None)
        if info is not None:
            tensors[-1].allocator().init(info)  # type: ignore[union-attr]  # it was made above
    inputs, weights = [t for t in tensors[: len(infos)] if t is not None], tensors[len(infos) :]
    hints = GraphHints(Target.NEON, ConvolutionMethod.GEMM)
    body = getattr(configured(layer, inputs, weights, ComputeTensor(), hints), "body", None)
    if not isinstance(body, Body):
        message = f"{layer.name()} is a function of your own, whose expression is not known"
        raise ConfigError(message, hint="functions of the library have one")
    return body


@bounded
class RelayLayer(INode):
    """A network as one node: a module or function of Relay of one result, with its parameters."""

    operation = OperationType.RelayLayer

    def __init__(self, network: IRModule | Function, params: Mapping[str, Array] | None = None) -> None:
        super().__init__()
        function = network["main"] if isinstance(network, IRModule) else network
        if params:
            function = relay.build_module.bind_params_by_name(function, dict(params))
        typed = relay.transform.InferType()(IRModule.from_expr(function))["main"]
        if tensor_type(typed.body) is None:
            raise TypeMismatch(f"a RelayLayer has one result, the network gives {typed.body.checked_type}")
        self._function = typed

    def parameters(self, inputs: Sequence[TensorInfo]) -> Parameters:
        """What the node is written with: the Relay function that it computes."""
        wanted = [_sizes(p) for p in self._function.params]
        have = [(shape_of(info), info.data_type.dtype) for info in inputs]
        sizes = [(int(np.prod(shape)), dtype) for shape, dtype in wanted]
        if sizes != [(int(np.prod(shape)), dtype) for shape, dtype in have]:
            raise TypeMismatch(f"the network takes {wanted}, the layer gets {have}")
        return {"Function": self._function}


class _Network(base.NeuralFunction):
    """A Relay function over tensors."""

    def configure(self, inputs: Sequence[ComputeTensor], output: ComputeTensor, function: Function) -> None:
        """Set the tensors and the function."""
        shape, dtype = _sizes(function.body)
        base.init_output(output, reversed(shape), _KINDS[dtype])
        names = [f"x{k}" for k in range(len(inputs))]
        shapes = {n: _sizes(p)[0] for n, p in zip(names, function.params, strict=True)}

        def body(*values: Node) -> Node:
            return substitute(function.body, {id(p): v for p, v in zip(function.params, values, strict=True)})

        operands = dict(zip(names, inputs, strict=True))
        self._compile(operands, {}, output, body, shapes)


class _NetworkOnDevice(_Network):
    _pipeline_type = CLPipeline


def _configure(ctx: NodeContext, kind: type[_Network]) -> IFunction:
    function = kind(ctx.memory_manager())
    function.configure([ctx.input(n) for n in range(ctx.num_inputs())], ctx.output(), ctx.parameter("Function"))
    return function


@register_simple_operation("NERelayLayerOperation", Target.NEON, OperationType.RelayLayer)
def _on_processor(ctx: NodeContext) -> IFunction:
    return _configure(ctx, _Network)


@register_simple_operation("CLRelayLayerOperation", Target.CL, OperationType.RelayLayer)
def _on_device(ctx: NodeContext) -> IFunction:
    return _configure(ctx, _NetworkOnDevice)


class _Reader:
    """Adds the calls of a function to a graph, one node each."""

    def __init__(self, function: Function) -> None:
        module = IRModule.from_expr(function)
        passes = relay.transform
        for each in (passes.InferType, passes.SimplifyInference, passes.FoldConstant, passes.FoldScaleAxis):
            module = each()(module)
        self.function: Function = passes.InferType()(passes.FoldConstant()(module))["main"]
        if len(self.function.params) != 1:
            names = [p.name_hint for p in self.function.params]
            raise TypeMismatch(f"a graph has one input, the network {names}", hint="give the others in params")
        self._numbers: dict[int, int] = {id(self.function.params[0]): 0}

    def info(self) -> TensorInfo:
        """What the input is."""
        shape, dtype = _sizes(self.function.params[0])
        return TensorInfo(TensorShape(*reversed(shape)), 1, _KINDS[dtype])

    def read(self, graph: Graph) -> None:
        """Add every call."""
        for expr in list(post_order(self.function.body)):
            if isinstance(expr, Call | TupleGetItem) and tensor_type(expr) is not None:
                self._add(expr, graph)
        if self._numbers.get(id(self.function.body)) != graph.tail():
            kind = type(self.function.body).__name__
            raise TypeMismatch(f"a graph ends with what is computed last, the network with a {kind}")

    def _add(self, expr: Call | TupleGetItem, graph: Graph) -> None:
        shape, _ = _sizes(expr)
        layer, sources = layer_of(expr)
        inputs = [self._numbers[id(source)] for source in sources]
        if layer is None or not graph.gives(layer, inputs, shape):
            leaves = _leaves(expr, self._numbers)
            if not leaves:
                return  # of constants alone: a part of whoever reads it
            params = [Var(f"x{k}", leaf.checked_type) for k, leaf in enumerate(leaves)]
            body = substitute(expr, {id(leaf): p for leaf, p in zip(leaves, params, strict=True)})
            layer, inputs = RelayLayer(Function(tuple(params), body)), [self._numbers[id(v)] for v in leaves]
        self._numbers[id(expr)] = graph.add_node(layer, inputs)


def _leaves(root: Expr, known: Mapping[int, int]) -> list[Expr]:
    """The values that an expression is computed from."""
    return [e for e in post_order(root, lambda e: id(e) not in known) if id(e) in known]


@boundary("from_relay", arguments=True)
def from_relay(
    network: IRModule | Function,
    params: Mapping[str, Array] | None = None,
    accessor: ITensorAccessor | None = None,
    hints: GraphHints | None = None,
) -> Graph:
    """A graph of a network of one input and one result, whose input an accessor fills; stream its output into it."""
    function = network["main"] if isinstance(network, IRModule) else network
    if params:
        function = relay.build_module.bind_params_by_name(function, dict(params))
    reader, graph = _Reader(function), Graph()
    graph.set_hints(hints or GraphHints())
    graph.add_tensor(Tensor(reader.info(), accessor) if accessor is not None else Tensor(reader.info()))
    reader.read(graph)
    return graph
