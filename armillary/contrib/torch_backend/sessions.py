"""A graph of ATen operators, compiled for any size that Dynamo leaves open, or else for the shapes of each call.

In: a graph module of FX, and the tensors of a call. Out: its results, as tensors. Invariant: a graph is compiled once
for each set of fixed sizes and of weights (as many as are kept, the oldest goes), or comes from the cache of other
processes (stored_graphs.py); inputs that lie in order are used where they lie, and results are written to new tensors'
own memory: a run passes addresses. A weight that has been changed in place, or another in its place, is seen: the graph
is compiled anew. What cannot be compiled over open sizes is compiled for each shape, and `CompiledGraph.reason` says
why.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from armillary.autotvm import apply_history_best
from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.base.extent import Extent, Known, as_size, evaluate
from armillary.base.record import record
from armillary.contrib.torch_backend.options import Options
from armillary.contrib.torch_backend.stored_graphs import Interface, Result, graph_key, load, store
from armillary.driver.build import build as _build
from armillary.driver.library import GraphLibrary
from armillary.errors import ArmillaryError, UnsupportedError
from armillary.frontend.pytorch.complex_values import complex_of, is_complex, real_type
from armillary.frontend.pytorch.exported import module_of, parameter
from armillary.frontend.pytorch.fx_graph import FxWalk
from armillary.frontend.pytorch.sizes import OpenSizes, numeric_ranges
from armillary.frontend.pytorch.tensors import array_of
from armillary.frontend.values import Value, is_tensor, type_of
from armillary.ir import IRModule
from armillary.relay.expr import Constant, Expr, Var
from armillary.relay.transform.quantize.to_mixed_precision import to_mixed_precision
from armillary.runtime.device import cpu
from armillary.runtime.direct_runs import DirectRuns
from armillary.runtime.threads import config_threadpool
from armillary.transform import PassContext

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import GraphModule


Key = tuple[object, ...]
_VERSION = torch.Tensor._version.__get__  # the property of C, without a frame of Python


@record
class Session:
    """A graph compiled for one set of shapes. `runs` is None where it computes nothing."""

    runs: DirectRuns | None
    interface: Interface
    dtypes: tuple[torch.dtype, ...]  # of the outputs
    weights: tuple[Tensor, ...]  # held: their memory is in use

    def run(self, values: Sequence[Value]) -> list[Value]:
        """The results for arguments of the shapes that it was compiled for."""
        face = self.interface
        sizes = {name: int(values[place].shape[axis]) for name, place, axis in face.sizes}
        outputs = [
            torch.empty([evaluate(d, sizes) for d in shape] if sizes else shape, dtype=dtype)
            for (shape, _), dtype in zip(face.outputs, self.dtypes, strict=True)
        ]
        if self.runs is not None:
            inputs = [in_order(values[row[0]]) for row in face.inputs]
            self.runs.run(map(_place_of, inputs), map(_place_of, outputs))
        return [_result(row, outputs, values, sizes) for row in face.results]


def _result(row: Result, outputs: Sequence[Tensor], values: Sequence[Value], sizes: Mapping[str, int]) -> Value:
    if row.kind == "output":
        return outputs[row.place]
    if row.kind == "complex":
        return torch.view_as_complex(outputs[row.place])
    if row.kind == "size":
        return evaluate(row.value, sizes)
    if row.kind == "argument":
        return values[row.place]
    shared = {"output copy": outputs, "argument copy": values}.get(row.kind)
    value = row.value if shared is None else shared[row.place]
    return value.clone() if isinstance(value, torch.Tensor) else value  # who gets it may write to it


def _place_of(tensor: Tensor) -> tuple[int, tuple[int, ...]]:
    return tensor.data_ptr(), tensor.shape


def in_order(tensor: Tensor) -> Tensor:
    """The tensor itself where its elements lie in order, else a copy; a complex one as its parts on a last axis."""
    if tensor.is_neg():
        tensor = tensor.resolve_neg()  # a view of an imaginary part
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor if tensor.is_contiguous() else tensor.contiguous()


class CompiledGraph:
    """What is called in place of a graph module. `static` are the positions of weights among its placeholders."""

    def __init__(self, module: GraphModule, static: frozenset[int], options: Options) -> None:
        self.module, self.static, self.options = module, static, options
        self.sessions: OrderedDict[Key, Session] = OrderedDict()
        self.metas = [n.meta.get("val") for n in module.graph.nodes if n.op == "placeholder"]
        self.free = free_symbols(self.metas)
        self.weights = sorted(static)
        self.changing = [place for place, m in enumerate(self.metas) if place not in static and has_symbols(m)]
        self.last: tuple[Key, Session] | None = None
        self.reason = ""  # why each shape is compiled
        outputs = next(n for n in module.graph.nodes if n.op == "output").args[0]
        outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
        self.views = [(k, n) for k, n in enumerate(outputs) if is_view_of_argument(n)]

    def __call__(self, *arguments: Value) -> list[Value]:
        """The results, in a list; AOTAutograd reads the strides and offsets of those that are views of arguments."""
        results = self.computed(*arguments)
        if self.views:
            values = dict(zip((n for n in self.module.graph.nodes if n.op == "placeholder"), arguments, strict=True))
            for place, node in self.views:
                results[place] = eager_value(node, values)
        return results

    def computed(self, *arguments: Value) -> list[Value]:
        """The results, each in memory of its own."""
        try:
            return self.session(arguments).run(arguments)
        except ArmillaryError as error:
            if not self.free:
                raise
            self.reason, self.free, self.last = str(error).splitlines()[0], frozenset(), None
            self.sessions.clear()
        return self.session(arguments).run(arguments)

    def session(self, arguments: Sequence[Value]) -> Session:
        """The session for these shapes and weights; compiled now where there is none."""
        key = self.key(arguments)
        if self.last is not None and self.last[0] == key:
            return self.last[1]
        known = self.sessions.get(key)
        if known is None:
            known = self.sessions[key] = build(
                self.module, arguments, self.static, self.options, self.open_sizes(arguments)
            )
            while len(self.sessions) > max(1, self.options.shapes):
                self.sessions.popitem(last=False)
        self.sessions.move_to_end(key)
        self.last = key, known
        return known

    def key(self, arguments: Sequence[Value]) -> Key:
        """What decides which session runs: which weights there are in which state, and what of shapes and numbers
        Dynamo's guards leave open."""
        return _states(list(map(arguments.__getitem__, self.weights))), *[
            self.fixed(arguments[place], self.metas[place]) for place in self.changing
        ]

    def fixed(self, value: Value, meta: Value) -> object:
        """What of an argument's shape, or of a number, a session is compiled for: all but the open sizes."""
        if not isinstance(value, torch.Tensor):
            return None if is_open(meta, self.free) else value
        if not self.free:
            return value.shape
        return tuple(None if is_open(m, self.free) else d for d, m in zip(value.shape, meta.shape, strict=True))

    def open_sizes(self, arguments: Sequence[Value]) -> OpenSizes:
        """The sizes that stay open; any other symbol has the value that it has in this call."""
        examples: dict[str, int] = {}
        ranges: dict[str, tuple[int, int]] = {}  # as the guards of the graph have them by now
        for value, meta in zip(arguments, self.metas, strict=True):
            dims = zip(value.shape, meta.shape, strict=True) if isinstance(value, torch.Tensor) else [(value, meta)]
            for number, symbol in dims:
                if type(symbol).__name__ == "SymInt":
                    examples[str(symbol.node.expr)] = int(number)
                    ranges = ranges or numeric_ranges(symbol.node.shape_env.var_to_range)
        sizes = OpenSizes(ranges, examples)
        sizes.values.update({name: number for name, number in examples.items() if name not in self.free})
        return sizes


def _states(weights: Sequence[Tensor]) -> Key:
    """Where weights lie, and how often each was changed in place."""
    try:
        versions = tuple(map(_VERSION, weights))
    except RuntimeError:  # tensors of inference mode count no changes
        versions = tuple(-1 if w.is_inference() else w._version for w in weights)
    return tuple(map(torch.Tensor.data_ptr, weights)), versions


def has_symbols(meta: Value) -> bool:
    """Whether an argument's shape, or a number, is not known when the graph is made."""
    dims = meta.shape if isinstance(meta, torch.Tensor) else [meta]
    return any(isinstance(d, torch.SymInt | torch.SymFloat | torch.SymBool) for d in dims)


def is_view_of_argument(node: Value) -> bool:
    """Whether a node gives an argument's memory, through views alone."""
    is_view = False
    while getattr(node, "op", "") == "call_function":
        returned: Value = getattr(getattr(node.target, "_schema", None), "returns", ())
        if len(returned) != 1 or returned[0].alias_info is None:
            return False
        is_view, node = True, node.args[0]
    return is_view and getattr(node, "op", "") == "placeholder"


def eager_value(node: Value, values: dict[Value, Value]) -> Value:
    """What a node gives in eager mode, where `values` has that of every placeholder."""
    if node not in values:
        arguments, named = (
            torch.fx.node.map_arg(part, lambda n: eager_value(n, values)) for part in (node.args, node.kwargs)
        )
        values[node] = node.target(*arguments, **named)
    return values[node]


def free_symbols(metas: Sequence[Value]) -> frozenset[str]:
    """The symbols that are sizes of tensors by themselves."""
    dims = [d for m in metas if isinstance(m, torch.Tensor) for d in m.shape if type(d).__name__ == "SymInt"]
    return frozenset(str(d.node.expr) for d in dims if d.node.expr.is_Symbol)


def is_open(dim: Value, free: frozenset[str]) -> bool:
    """Whether a size is made of symbols that are left open."""
    return type(dim).__name__ == "SymInt" and {str(s) for s in dim.node.expr.free_symbols} <= free != frozenset()


def build(
    module: GraphModule, arguments: Sequence[Value], static: frozenset[int], options: Options, sizes: OpenSizes
) -> Session:
    """Compile a graph for the arguments, or take it from the cache. Raises UnsupportedError where no rule imports an
    operator."""
    weights = {place: array_of(arguments[place]) for place in static}
    key = graph_key(module, arguments, static, options, sizes.described())
    library, interface = (load(key, weights) if key else None) or (None, None)
    if interface is None:
        relay, params, interface = _imported(module, arguments, weights, sizes)
        if relay is not None:
            library = compiled(relay, params, options)
            if key:
                store(key, library, interface, weights)
    return _session(library, interface, tuple(arguments[place] for place in static), options)


def _session(
    library: GraphLibrary | None, interface: Interface, weights: tuple[Tensor, ...], options: Options
) -> Session:
    if options.threads:
        config_threadpool(0, options.threads)
    dtypes = tuple(getattr(torch, name) for _, name in interface.outputs)
    if library is None:
        return Session(None, interface, dtypes, weights)
    inputs = [(ndim, DType(dtype)) for _, ndim, dtype in interface.inputs]
    outputs = [(len(shape), DType(dtype)) for shape, dtype in interface.outputs]
    return Session(DirectRuns(library["default"](cpu()), inputs, outputs), interface, dtypes, weights)


def _imported(
    module: GraphModule, arguments: Sequence[Value], weights: Mapping[int, Array], sizes: OpenSizes
) -> tuple[IRModule | None, dict[str, Array], Interface]:
    """A graph as a module with its parameters, None where it computes nothing; and what it reads and gives."""
    walk = FxWalk("<torch.compile>", sizes)
    metas = [n.meta.get("val") for n in module.graph.nodes if n.op == "placeholder"]
    shapes_of = {
        place: sizes.shape(f"p{place}", metas[place].shape, [_choice(d, m, sizes) for d, m in pairs], {})
        for place, value in enumerate(arguments)
        if isinstance(value, torch.Tensor) and place not in weights
        for pairs in [list(zip(value.shape, metas[place].shape, strict=True))]
    }
    params: dict[str, tuple[Var, Array]] = {}
    values: list[Value] = []
    inputs: list[Var] = []
    places: dict[int, int] = {}  # by id of a variable: the argument it stands for
    for place, value in enumerate(arguments):
        if not isinstance(value, torch.Tensor):
            meta = metas[place]
            values.append(sizes.extent(meta) if type(meta).__name__ == "SymInt" else value)
            continue
        name = f"p{place}"
        if place in weights:
            variable = parameter(walk, params, name, weights[place])
        else:
            variable = Var(name, real_type(shapes_of[place], value.dtype))
            inputs.append(variable)
        values.append(complex_of(variable, walk.folder) if value.is_complex() else variable)
        places[id(variable)] = place
    outcome = walk.run(module, values)
    if walk.folder.data_sizes.binds:
        raise UnsupportedError("a size that the data say", hint="torch.export takes such graphs")
    outputs: list[Expr] = []
    nodes = next(n for n in module.graph.nodes if n.op == "output").args[0]
    nodes = list(nodes) if isinstance(nodes, list | tuple) else [nodes]
    results = tuple(
        [_placed(v, walk, places, outputs, n, nodes[:k]) for k, (v, n) in enumerate(zip(outcome, nodes, strict=True))]
    )
    if not outputs:
        return None, {}, Interface((), (), results)
    relay, bound = module_of(inputs, params, [(f"out{k}", e) for k, e in enumerate(outputs)])
    read = tuple((places[id(v)], type_of(v).ndim, str(type_of(v).dtype)) for v in inputs)
    shapes = tuple((type_of(e).known, str(type_of(e).dtype)) for e in outputs)
    return relay, bound, Interface(read, shapes, results, _places_of(shapes_of))


def _choice(number: int, meta: Value, sizes: OpenSizes) -> Value:
    """A fixed size as the number that it is; an open one as it is."""
    symbols = set() if isinstance(meta, int) else {str(s) for s in meta.node.expr.free_symbols}
    is_fixed = all(type(sizes.values.get(s)) is int for s in symbols)
    return int(number) if is_fixed else meta


def _places_of(shapes: Mapping[int, Sequence[Known]]) -> tuple[tuple[str, int, int], ...]:
    """Where each open size is an axis of an argument."""
    rows = [(as_size(d), place, axis) for place, shape in shapes.items() for axis, d in enumerate(shape)]
    return tuple({s.name: (s.name, place, axis) for s, place, axis in rows if s is not None}.values())


def _placed(
    value: Value, walk: FxWalk, places: dict[int, int], outputs: list[Expr], node: Value, before: Sequence[Value]
) -> Result:
    """Where a result of the graph comes from; what is computed joins the outputs.

    What another node is the same as, as a clone, is a copy of it: either may be written to.
    """
    if is_complex(value):
        outputs.append(value.joined())
        return Result("complex", len(outputs) - 1)
    if not is_tensor(value):
        return Result("size" if isinstance(value, Extent) else "value", value=value)
    if id(value) in places:
        return Result("argument" if node.op == "placeholder" else "argument copy", places[id(value)])
    if isinstance(value, Constant):
        return Result("value", value=torch.from_numpy(value.data.copy()))
    same = next((k for k, e in enumerate(outputs) if e is value), None)
    if same is None:
        outputs.append(value)
        return Result("output", len(outputs) - 1)
    return Result("output" if node in before else "output copy", same)


def compiled(module: IRModule, params: dict[str, Array], options: Options) -> GraphLibrary:
    """A module compiled for this machine."""
    if options.precision != "float32":
        module = to_mixed_precision(module, mixed_precision_type=options.precision)
    if options.threads:
        config_threadpool(0, options.threads)
    records = apply_history_best(options.tune) if options.tune else contextlib.nullcontext()
    with records, PassContext(opt_level=3):
        return _build(module, target=options.target, params=params)
