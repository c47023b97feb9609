"""A graph of ATen operators, compiled for the shapes it is called with.

In: a graph module of FX, and the tensors of a call. Out: its results, as tensors. Invariant: a graph is compiled once
for each set of shapes and of weights (as many as are kept, the oldest goes); weights and inputs that lie in order are
used where they lie, and results are written to new tensors' own memory. A weight that has been changed in place, or
another in its place, is seen: the graph is compiled anew. `build` is all that knows that shapes are fixed.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from armillary.autotvm import apply_history_best
from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.contrib.torch_backend.options import Options
from armillary.driver.build import build as _build
from armillary.frontend.pytorch.exported import module_of, parameter
from armillary.frontend.pytorch.fx_graph import FxWalk
from armillary.frontend.pytorch.tensors import array_of, dtype_name
from armillary.frontend.pytorch.values import Value, is_tensor
from armillary.ir import IRModule
from armillary.relay.expr import Constant, Expr, Var
from armillary.relay.transform.quantize.to_mixed_precision import to_mixed_precision
from armillary.relay.types import tensor_type
from armillary.runtime.device import cpu
from armillary.runtime.executor import GraphExecutor
from armillary.runtime.ndarray import NDArray, from_dlpack
from armillary.runtime.threads import config_threadpool
from armillary.transform import PassContext

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import GraphModule


Key = tuple[object, ...]


@record
class Result:
    """Where a result comes from: an output of the executor, an argument, or a value that does not change."""

    kind: str  # "output", "argument" or "value"
    place: int = -1
    value: Value = None


@record
class Session:
    """A graph compiled for one set of shapes: which arguments it reads, and what it gives."""

    executor: GraphExecutor | None
    arguments: tuple[int, ...]
    shapes: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    results: tuple[Result, ...]
    weights: tuple[NDArray | Tensor, ...]  # held: their memory is in use

    def run(self, values: Sequence[Value]) -> list[Value]:
        """The results for arguments of the shapes that it was compiled for."""
        made = [torch.empty(shape, dtype=dtype) for shape, dtype in self.shapes]
        if self.executor is not None:
            for place, index in enumerate(self.arguments):
                self.executor.set_input_zero_copy(place, view_of(values[index]))
            for place, tensor in enumerate(made):
                self.executor.set_output_zero_copy(place, view_of(tensor))
            self.executor.run()
        return [_result(row, made, values) for row in self.results]


def _result(row: Result, made: Sequence[Tensor], values: Sequence[Value]) -> Value:
    if row.kind == "output":
        return made[row.place]
    return values[row.place] if row.kind == "argument" else row.value


def view_of(tensor: Tensor) -> NDArray:
    """The memory of a tensor that lies in order; of any other, a copy that does."""
    return from_dlpack(tensor.detach().contiguous())


class CompiledGraph:
    """What is called in place of a graph module. `static` are the positions of weights among its placeholders."""

    def __init__(self, module: GraphModule, static: frozenset[int], options: Options) -> None:
        self.module, self.static, self.options = module, static, options
        self.sessions: OrderedDict[Key, Session] = OrderedDict()

    def __call__(self, *arguments: Value) -> list[Value]:
        """The results, in a list."""
        return self.session(arguments).run(arguments)

    def session(self, arguments: Sequence[Value]) -> Session:
        """The session for these shapes and weights; compiled now where there is none."""
        key = self.key(arguments)
        known = self.sessions.get(key)
        if known is None:
            known = self.sessions[key] = build(self.module, arguments, self.static, self.options)
            while len(self.sessions) > max(1, self.options.shapes):
                self.sessions.popitem(last=False)
        self.sessions.move_to_end(key)
        return known

    def key(self, arguments: Sequence[Value]) -> Key:
        """What decides which session runs: shapes, numbers, and which weights there are in which state."""
        parts: list[object] = []
        for place, value in enumerate(arguments):
            if place in self.static:
                parts.append((value.data_ptr(), -1 if value.is_inference() else value._version))
            else:
                parts.append(tuple(value.shape) if isinstance(value, torch.Tensor) else value)
        return tuple(parts)


def build(module: GraphModule, arguments: Sequence[Value], static: frozenset[int], options: Options) -> Session:
    """Compile a graph for the shapes of the arguments. Raises UnsupportedError where no rule imports an operator."""
    walk = FxWalk("<torch.compile>")
    params: dict[str, tuple[Var, Array]] = {}
    values: list[Value] = []
    places: dict[int, int] = {}  # by id of a variable: the argument it stands for
    for place, value in enumerate(arguments):
        if not isinstance(value, torch.Tensor):
            values.append(value)
            continue
        name = f"p{place}"
        if place in static:
            values.append(parameter(walk, params, name, array_of(value)))
        else:
            values.append(Var(name, tensor_type(tuple(value.shape), dtype_name(value.dtype))))
        places[id(values[-1])] = place
    found = walk.run(module, values)
    outputs: list[Expr] = []
    results = [_placed(v, walk, places, outputs) for v in found]
    held = tuple(v for place, v in enumerate(arguments) if place in static)
    if not outputs:
        return Session(None, (), (), tuple(results), held)
    inputs = [v for place, v in enumerate(values) if is_tensor(v) and place not in static and isinstance(v, Var)]
    relay, bound = module_of(inputs, params, [(f"out{k}", e) for k, e in enumerate(outputs)])
    executor = compiled(relay, bound, options)
    types = [e.checked_type for e in outputs]
    shapes = tuple((t.static, getattr(torch, str(t.dtype))) for t in types)  # type: ignore[attr-defined]  # tensors
    return Session(executor, tuple(places[id(v)] for v in inputs), shapes, tuple(results), held)


def _placed(value: Value, walk: FxWalk, places: dict[int, int], outputs: list[Expr]) -> Result:
    """Where a result of the graph comes from; what is computed joins the outputs."""
    if not is_tensor(value):
        return Result("value", value=value)
    if id(value) in places:
        return Result("argument", places[id(value)])
    if isinstance(value, Constant):
        return Result("value", value=torch.from_numpy(value.data.copy()))
    same = next((k for k, e in enumerate(outputs) if e is value), None)
    if same is None:
        outputs.append(value)
    return Result("output", len(outputs) - 1 if same is None else same)


def compiled(module: IRModule, params: dict[str, Array], options: Options) -> GraphExecutor:
    """A module in an executor of this machine."""
    if options.precision != "float32":
        module = to_mixed_precision(module, mixed_precision_type=options.precision)
    if options.threads:
        config_threadpool(0, options.threads)
    records = apply_history_best(options.tune) if options.tune else contextlib.nullcontext()
    with records, PassContext(opt_level=3):
        library = _build(module, target=options.target, params=params)
    executor: GraphExecutor = library["default"](cpu())
    return executor
