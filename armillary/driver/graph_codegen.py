"""From the fused main function to the graph the executor runs.

In: `main` whose calls are all of primitive functions. Out: a `GraphPlan`: nodes (inputs, parameters, kernel calls) in
run order, the storage of every tensor, and the distinct kernels to compile. Invariant: node i reads only nodes before
it; a kernel that only reshapes shares its input's storage and is not run (`__nop`). Sizes: driver/memory_plan.py. The
JSON form: artifact.py.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from armillary.driver.memory_plan import ALIGNMENT, Lifetime, plan_memory
from armillary.dtype import DType
from armillary.errors import InternalError, UnsupportedError
from armillary.node import post_order
from armillary.relay.binding import bind
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Constant, Expr, Function, Let, Tuple, TupleGetItem, Var
from armillary.relay.op import Op, is_call, is_primitive
from armillary.relay.printer import print_function
from armillary.relay.types import TensorType, tensor_fields

Array = np.ndarray[Any, Any]
NOP = "__nop"
_VIEWS = frozenset({"reshape", "expand_dims", "squeeze", "nn.batch_flatten", "copy"})
_MOVES = frozenset({"transpose", "layout_transform"})
_LARGEST_CHECKED_MOVE = 1 << 24  # elements: above, a move of axes counts as a copy without looking


@dataclass(frozen=True)
class Kernel:
    """A distinct fused function and the symbol it is compiled to."""

    name: str
    function: Function
    text: str  # its printed form: the cache key's main part


@dataclass
class GraphNode:
    """One entry of the graph: an input (func None) or a call; `inputs` are (node, output) pairs."""

    name: str
    func: str | None
    inputs: list[tuple[int, int]]
    types: tuple[TensorType, ...]
    storage: list[int] = field(default_factory=list)


@dataclass
class GraphPlan:
    """Everything the artifact's graph says, plus the kernels it names and the parameters' values."""

    nodes: list[GraphNode] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    heads: list[tuple[int, int]] = field(default_factory=list)
    kernels: dict[str, Kernel] = field(default_factory=dict)
    params: dict[str, Array] = field(default_factory=dict)
    arena_offsets: list[int] = field(default_factory=list)  # per storage id; -1: not in the arena
    arena_bytes: int = 0


def plan_graph(main: Function) -> GraphPlan:
    """Flatten `main` into graph nodes, name its kernels and plan its memory."""
    builder = _Builder()
    for parameter in main.params:
        builder.add_input(parameter)
    for item in post_order(main.body, lambda n: not isinstance(n, Function | Op)):
        builder.visit(item)
    builder.plan.heads = builder.outputs(main.body)
    _plan_storage(builder.plan)
    return builder.plan


class _Builder:
    """Visits expressions in post-order; `values` maps each to its flat (node, output) pairs."""

    def __init__(self) -> None:
        self.plan = GraphPlan()
        self.values: dict[int, list[tuple[int, int]]] = {}
        self.by_text: dict[str, Kernel] = {}
        self.by_function: dict[int, Kernel] = {}
        self.constants: dict[tuple[str, tuple[int, ...], bytes], list[tuple[int, int]]] = {}

    def add_input(self, parameter: Var) -> None:
        types = tensor_fields(parameter.checked_type)
        names = [parameter.name_hint] if len(types) == 1 else [f"{parameter.name_hint}.{i}" for i in range(len(types))]
        self.values[id(parameter)] = [self._leaf(name, ty) for name, ty in zip(names, types, strict=True)]

    def _leaf(self, name: str, ty: TensorType) -> tuple[int, int]:
        ty.static  # noqa: B018  (raises where a dimension is unknown)
        self.plan.inputs.append(len(self.plan.nodes))
        self.plan.nodes.append(GraphNode(name, None, [], (ty,)))
        return len(self.plan.nodes) - 1, 0

    def visit(self, item: Any) -> None:
        match item:
            case Constant(data):
                self.values[id(item)] = self._constant(item, data)
            case Tuple(fields):
                self.values[id(item)] = [v for f in fields for v in self.values[id(f)]]
            case TupleGetItem(of, index):
                self.values[id(item)] = self._field(of, index)
            case Call():
                self.values[id(item)] = self._call(item)
            case Let(bound, value, _):
                self.values[id(bound)] = self.values[id(value)]
                self.values[id(item)] = self.values[id(item.body)]
            case Function() | Op():
                pass
            case Var() if id(item) in self.values:
                pass
            case _:
                raise UnsupportedError(
                    f"the graph executor cannot run {type(item).__name__}",
                    span=getattr(item, "span", None),
                    hint="only control flow whose condition is known at compile time is folded away",
                )

    def _field(self, of: Expr, index: int) -> list[tuple[int, int]]:
        widths = [len(tensor_fields(t)) for t in of.checked_type.fields]  # type: ignore[attr-defined]
        start = sum(widths[:index])
        return self.values[id(of)][start : start + widths[index]]

    def _constant(self, item: Constant, data: Array) -> list[tuple[int, int]]:
        key = (data.dtype.name, data.shape, hashlib.sha256(np.ascontiguousarray(data).tobytes()).digest())
        if key not in self.constants:
            name = f"p{len(self.plan.params)}"
            (ty,) = tensor_fields(item.checked_type)
            self.plan.params[name] = data
            self.constants[key] = [self._leaf(name, ty)]
        return self.constants[key]

    def _call(self, call: Call) -> list[tuple[int, int]]:
        library = call.op.get_attr("Compiler") if isinstance(call.op, Function) else None
        if library:
            message = f"a part of the graph is meant for {library}, whose runtime is not there"
            raise UnsupportedError(message, span=call.span, hint="build the module before partitioning")
        if not is_primitive(call.op):
            raise InternalError(f"a call of {call.op!r} is left after fusion", span=call.span)
        inputs = [v for a in call.args for v in self.values[id(a)]]
        types = tensor_fields(call.checked_type)
        if _is_view(call.op) or _is_join(call.op):
            name = NOP
        else:
            name = self._kernel(call.op).name
        self.plan.nodes.append(GraphNode(_node_name(call, len(self.plan.nodes)), name, inputs, types))
        return [(len(self.plan.nodes) - 1, i) for i in range(len(types))]

    def _kernel(self, function: Function) -> Kernel:
        found = self.by_function.get(id(function))
        if found is None:
            text = print_function("kernel", function)
            found = self.by_text.get(text)
            if found is None:
                digest = hashlib.sha256(text.encode()).hexdigest()[:8]
                found = Kernel(f"{_words(function)}_{digest}", function, text)
                self.by_text[text] = self.plan.kernels[found.name] = found
            self.by_function[id(function)] = found
        return found

    def outputs(self, body: Expr) -> list[tuple[int, int]]:
        return self.values[id(body)]


def _is_view(function: Function) -> bool:
    """Whether the function leaves the elements of its input in memory order: reshapes, and moves of axes of size 1."""
    body, moves = function.body, False
    while isinstance(body, Call) and is_call(body, *_VIEWS, *_MOVES):
        moves = moves or body.op.name in _MOVES
        body = body.args[0]
    if body is function.body or not isinstance(body, Var) or len(function.params) != 1:
        return False
    return not moves or _keeps_order(function)


def _is_join(function: Function) -> bool:
    """Whether the function concatenates its inputs along the outermost axis that is not of size 1."""
    body = function.body
    if not is_call(body, "concatenate") or not isinstance(body.args[0], Tuple):  # type: ignore[attr-defined]
        return False
    fields = body.args[0].fields  # type: ignore[attr-defined]
    own = {id(p) for p in function.params}
    if len({id(f) for f in fields}) != len(fields) or len(fields) != len(own) or any(id(f) not in own for f in fields):
        return False
    (ty,) = tensor_fields(body.checked_type)
    axis = body.attrs.axis % ty.ndim  # type: ignore[attr-defined]
    in_order = [id(p) for p in function.params] == [id(f) for f in fields]
    return in_order and all(d == 1 for d in ty.static[:axis])


def _keeps_order(function: Function) -> bool:
    """Number the elements and look whether the reference leaves the numbers in order."""
    (ty,) = tensor_fields(function.params[0].checked_type)
    if ty.size > _LARGEST_CHECKED_MOVE:
        return False
    numbers = np.arange(ty.size, dtype=np.int32).reshape(ty.static)
    typed = Var("numbers", TensorType(ty.shape, DType("int32")))
    moved = evaluate(Function((typed,), bind(function.body, {function.params[0]: typed})), [numbers])
    return bool(np.array_equal(np.ravel(moved), numbers.ravel()))


def _words(function: Function) -> str:
    names = [n.op.name for n in post_order(function.body) if isinstance(n, Call) and isinstance(n.op, Op)]
    text = "_".join(["fused", *(re.sub(r"\W", "_", n) for n in names)])
    return text if len(text) <= 80 else text[:80].rstrip("_")


def _node_name(call: Call, index: int) -> str:
    name = call.span.name if call.span is not None and call.span.name else ""
    if not name:
        spans = [n.span.name for n in post_order(call.op.body) if isinstance(n, Call) and n.span is not None]
        name = spans[-1] if spans else ""
    return f"{name or 'node'}#{index}"


def _plan_storage(plan: GraphPlan) -> None:
    """One storage per tensor (views share their input's), with arena offsets for those computed on the way."""
    last_use: dict[int, int] = {}
    sizes: list[int] = []
    first: list[int] = []
    external: list[bool] = []
    for index, node in enumerate(plan.nodes):
        read = [plan.nodes[n].storage[i] for n, i in node.inputs]
        for sid in read:
            last_use[sid] = index
        if node.func == NOP and len(node.inputs) == 1:
            node.storage = [read[0]]
            continue
        for ty in node.types:
            node.storage.append(len(sizes))
            sizes.append(ty.nbytes)
            first.append(index)
            external.append(node.func is None)
    for node_index, output in plan.heads:  # outputs own their memory, so that callers can put theirs in its place
        external[plan.nodes[node_index].storage[output]] = True
    parts = _parts_in_place(plan, external)
    inside = [sid for sid in range(len(sizes)) if not external[sid] and sid not in parts]
    for sid, (whole, _) in parts.items():  # the whole lives from its first part on
        first[whole] = min(first[whole], first[sid])
        last_use[whole] = max(last_use.get(whole, 0), last_use.get(sid, 0))
    result = plan_memory([Lifetime(sizes[s], first[s], max(first[s], last_use.get(s, first[s]))) for s in inside])
    plan.arena_offsets = [-1] * len(sizes)
    for sid, offset in zip(inside, result.offsets, strict=True):
        plan.arena_offsets[sid] = offset
    for sid, (whole, offset) in parts.items():
        plan.arena_offsets[sid] = plan.arena_offsets[whole] + offset
    plan.arena_bytes = result.total


def _parts_in_place(plan: GraphPlan, external: list[bool]) -> dict[int, tuple[int, int]]:
    """Storages that can be written right into a join that reads them: part -> (whole, byte offset).

    A storage goes into the first join that reads it, if that is planned in the arena.
    """
    parts: dict[int, tuple[int, int]] = {}
    for node in plan.nodes:
        if node.func != NOP or len(node.inputs) == 1 or external[node.storage[0]]:
            continue
        (whole,) = node.storage
        offset = 0
        for source, output in node.inputs:
            sid, nbytes = plan.nodes[source].storage[output], plan.nodes[source].types[output].nbytes
            if not external[sid] and sid not in parts and offset % ALIGNMENT == 0:
                parts[sid] = (whole, offset)
            offset += nbytes
    return {sid: _outermost(parts, sid) for sid in parts}


def _outermost(parts: dict[int, tuple[int, int]], sid: int) -> tuple[int, int]:
    """The join that no other contains, and the offset in it: joins of joins share one place."""
    whole, offset = parts[sid]
    while whole in parts:
        whole, more = parts[whole]
        offset += more
    return whole, offset
