"""From the fused main function to the graph the executor runs.

In: `main` whose calls are all of primitive functions. Out: a `GraphPlan`: nodes (inputs, parameters, kernel calls) in
run order, the storage of every tensor, and the distinct kernels to compile. Invariant: node i reads only nodes before
it; a kernel that only reshapes shares its input's storage and is not run (`__nop`). Sizes: driver/memory_plan.py. The
JSON form: artifact/__init__.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from typing import TYPE_CHECKING

import numpy as np

from armillary.artifact import VariantRow
from armillary.backends.placement import DEVICE, scopes_of
from armillary.base.aliases import Array
from armillary.base.aligned import Deferred
from armillary.base.digest import sha256
from armillary.base.dtype import DType
from armillary.base.extent import Extent, Known, Size, as_size, sizes_of
from armillary.base.lazy import deferred
from armillary.base.names import Names, check_name, identifier, printable_name
from armillary.base.node import post_order
from armillary.base.record import record
from armillary.driver.concurrent_groups import concurrent_groups
from armillary.driver.control_flow import COPY, emit, enclosing_loops, has_control, last_use, last_write
from armillary.driver.image_plan import Image, share_images
from armillary.driver.load_time import is_before, is_pure, mark_load_time, mark_size_time
from armillary.driver.memory_plan import ALIGNMENT, Lifetime, plan_memory
from armillary.errors import InternalError, UnsupportedError
from armillary.relay.binding import bind
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from armillary.relay.op import Op, has, is_call, is_primitive
from armillary.relay.op.facts import Fact
from armillary.relay.printer import print_function
from armillary.relay.transform.normal_form._states import states_of
from armillary.relay.types import TensorType, tensor_fields
from armillary.relay.walk import not_primitive
from armillary.relay.walk import post_order as expressions
from armillary.target.texture import BUFFER, image_size

if TYPE_CHECKING:
    from armillary.driver.offloaded import FallbackGraph, Offloaded

with deferred():
    from armillary.driver.offloaded import offloaded  # most graphs have nothing that a library computes

Weight = Array | Deferred
ConstantKey = tuple[int, str, tuple[int, ...], bytes, str]  # device, type, shape, first bytes, memory
NOP = "__nop"
DEVICE_COPY = "__device_copy"
BIND, EQUAL = "__bind", "__equal"
_MOVES = frozenset({"transpose", "layout_transform"})
_PROBE = 256  # bytes of a constant that must agree before all of it is compared
_DIGEST_LENGTH = 8  # characters that tell kernels of the same operators apart, at least
_LARGEST_CHECKED_MOVE = 1 << 24  # elements: above, a move of axes counts as a copy without looking


@record
class Kernel:
    """A distinct fused function and the symbol it is compiled to."""

    name: str
    function: Function
    text: str  # its printed form: the cache key's main part


@record(frozen=False)
class GraphNode:
    """One entry of the graph: an input (func None) or a call; `inputs` are (node, output) pairs."""

    name: str
    func: str | None
    inputs: list[tuple[int, int]]
    types: tuple[TensorType, ...]
    storage: list[int] = field(default_factory=list)
    attrs: dict[str, str] = field(default_factory=dict)  # of branches and loops: control_flow.py; load_time.py
    device: int = 0  # DLPack's number, in a graph over several devices
    scopes: tuple[str, ...] = ()  # of the outputs, where one is in a texture
    state: int | None = None  # the input that a copy writes

    @property
    def output_scopes(self) -> tuple[str, ...]:
        """The memory of each output."""
        return self.scopes or (BUFFER,) * len(self.types)


@record(frozen=False)
class GraphPlan:
    """Everything the artifact's graph says, plus the kernels it names and the parameters' values."""

    nodes: list[GraphNode] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    heads: list[tuple[int, int]] = field(default_factory=list)
    kernels: dict[str, Kernel] = field(default_factory=dict)
    offloaded: dict[str, Offloaded] = field(default_factory=dict)  # by symbol
    params: dict[str, Weight] = field(default_factory=dict)
    arena_offsets: list[int] = field(default_factory=list)  # per storage id; -1: not in the arena
    arena_bytes: int = 0
    image_widths: list[int] = field(default_factory=list)  # per storage id; 0: no image. Empty: there are none
    variants: list[VariantRow] = field(default_factory=list)  # empty: there is one
    sizes: dict[str, Size] = field(default_factory=dict)  # that inputs give
    states: list[int] = field(default_factory=list)  # inputs that a run writes
    lifetimes: list[int] = field(default_factory=list)  # with sizes: first and last step of each storage, or -1, -1


def plan_graph(
    *mains: Function,
    alignment: int = ALIGNMENT,
    device: int = 0,
    fallback: Callable[[Function], FallbackGraph] | None = None,
) -> GraphPlan:
    """Flatten `main` into graph nodes, name its kernels and plan its memory.

    Several functions become variants: they share kernels, parameters and the arena, and one of them runs. `device`: the
    main one of a graph over several, of which each has an arena; 0: there is one. `fallback` makes our own graph of a
    function that a library computes; None: the library alone does.
    """
    builder = _Builder([p for main in mains for p in main.params], device)
    builder.fallback = fallback
    for main in mains:
        builder.add_function(main)
    if len(mains) == 1:
        builder.write_states(mains[0])
        builder.plan.variants.clear()
    elif any(states_of(main) for main in mains):
        raise UnsupportedError("a network of several variants has no states", hint="compile one set of shapes")
    plan = builder.plan
    mark_load_time(plan.nodes, plan.params, builder.is_pure)
    mark_size_time(plan.nodes, plan.kernels, plan.params, {_shown(plan.nodes, head)[0] for head in plan.heads}, NOP)
    _plan_storage(plan, alignment)
    return plan


class _Builder:
    """Visits expressions in post-order; `values` maps each to its flat (node, output) pairs."""

    def __init__(self, parameters: Sequence[Var], device: int = 0) -> None:
        self.plan, self.device = GraphPlan(), device
        names = [p.name_hint for p in parameters if len(tensor_fields(p.checked_type)) == 1]
        self.names = Names(check_name(name, "an input") for name in names)  # of inputs and other nodes
        self.field_names: dict[tuple[str, int], str] = {}  # of tuples that are inputs
        self.values: dict[int, list[tuple[int, int]]] = {}
        self.by_text: dict[str, Kernel] = {}
        self.by_function: dict[int, Kernel] = {}
        self.constants: dict[ConstantKey, list[tuple[Weight, list[tuple[int, int]]]]] = {}
        self.inputs: dict[tuple[str, TensorType], tuple[int, int]] = {}
        self.early: dict[int, bool] = {}  # nodes that depend on parameters alone, for load_time.py
        self.shared: dict[object, int] = {}  # those that variants share, by kernel, inputs and types
        self.shares = True
        self.scopes: dict[int, str] = {}  # of constants that kernels read as textures, by id
        self.copies: dict[tuple[tuple[int, int], int], int] = {}  # to other devices, by value and device
        self.fallback: Callable[[Function], FallbackGraph] | None = None

    def add_function(self, main: Function) -> None:
        """The nodes of a function; its inputs are those of an earlier one where name and type agree."""
        plan, begin, first_head = self.plan, len(self.plan.nodes), len(self.plan.heads)
        for parameter in main.params:
            self.add_input(parameter)
        body = main.body
        self.shares = not has_control(body)
        if self.device and not self.shares:
            message = "branches and loops in a graph over several devices are refused"
            raise UnsupportedError(message, span=main.span, hint="build for one device")
        if not self.shares:
            self.scopes |= _constant_scopes(expressions(body, not_primitive))  # in branches and loops, too
            body = emit(self, body)
        else:
            items = list(post_order(body, lambda n: not isinstance(n, Function | Op)))
            self.scopes |= _constant_scopes(items)
            for item in items:
                self.visit(item)
        plan.heads += self._on(body, self.device)
        used = [plan.inputs.index(node) for p in main.params for node, _ in self.values[id(p)]]
        heads = (first_head, len(plan.heads) - first_head)
        plan.variants.append(VariantRow((begin, len(plan.nodes)), tuple(used), heads))

    def write_states(self, main: Function) -> None:
        """The outputs that are the next values of states are copied there at the end, and are no outputs any more."""
        plan, states = self.plan, states_of(main)
        inputs = {plan.nodes[node].name: node for node in plan.inputs}
        places = {(inputs[name], 0) for name in states}
        values = {name: plan.heads[index] for name, index in states.items()}
        for name, value in values.items():  # one that is a state before is copied before that is written
            if _shown(plan.nodes, value) in places - {(inputs[name], 0)}:
                ty = plan.nodes[value[0]].types[value[1]]
                values[name] = self.add(None, COPY, [value], (ty,)), 0
        for name, value in values.items():
            index = self.add(None, COPY, [value], plan.nodes[inputs[name]].types)
            plan.nodes[index].state = inputs[name]
        plan.states = [inputs[name] for name in states]
        plan.heads = [head for index, head in enumerate(plan.heads) if index not in states.values()]

    def add_input(self, parameter: Var) -> None:
        types = tensor_fields(parameter.checked_type)
        names = [parameter.name_hint]
        if len(types) != 1:
            names = [self._field_name(parameter.name_hint, index) for index in range(len(types))]
        for key in zip(names, types, strict=True):
            if key not in self.inputs:
                self.inputs[key] = self._leaf(*key)
        self.values[id(parameter)] = [self.inputs[key] for key in zip(names, types, strict=True)]

    def _field_name(self, name: str, index: int) -> str:
        """The name of a tuple's field; variants have it in common."""
        if (name, index) not in self.field_names:
            check_name(name, "an input")
            self.field_names[name, index] = self.names.fresh(f"{name}.{index}")
        return self.field_names[name, index]

    def _leaf(self, name: str, ty: TensorType, scope: str = BUFFER, device: int = 0) -> tuple[int, int]:
        _check_sizes(self.plan.sizes, name, ty)
        self.plan.inputs.append(len(self.plan.nodes))
        scopes = (scope,) if scope != BUFFER else ()
        self.plan.nodes.append(GraphNode(name, None, [], (ty,), device=device or self.device, scopes=scopes))
        return len(self.plan.nodes) - 1, 0

    def visit(self, item: object) -> None:
        match item:
            case Constant():  # of a graph over several devices: where it is read
                self.values[id(item)] = [] if self.device else self._constant(item)
            case Tuple(fields):
                self.values[id(item)] = [v for f in fields for v in self.values[id(f)]]
            case TupleGetItem(of, index):
                self.values[id(item)] = self._field(of, index)
            case Call():
                self.values[id(item)] = self._call(item)
            case Function() | Op():
                pass
            case Var() if id(item) in self.values:
                pass
            case Var(name):
                raise UnsupportedError(
                    f"the function reads %{name}, which is none of its parameters",
                    span=item.span,
                    hint="list it: relay.Function([...], body)",
                )
            case _:
                raise UnsupportedError(
                    f"the graph executor cannot run {type(item).__name__}",
                    span=getattr(item, "span", None),
                    hint="functions are called where they are written; branches are If, loops are Loop",
                )

    def _field(self, of: Expr, index: int) -> list[tuple[int, int]]:
        widths = [len(tensor_fields(t)) for t in of.checked_type.fields]  # type: ignore[attr-defined]
        start = sum(widths[:index])
        return self.values[id(of)][start : start + widths[index]]

    def _constant(self, item: Constant, device: int = 0) -> list[tuple[int, int]]:
        data = item.held
        begin = _content(item.some)[:_PROBE].tobytes()
        scope = self.scopes.get(id(item), BUFFER)
        known = self.constants.setdefault((device, data.dtype.name, data.shape, begin, scope), [])
        for other, values in known:  # compared when they begin alike: hashing all took a tenth of a cached compile
            if other is data or np.array_equal(_content(other), _content(data)):
                return values
        name = self.names.fresh(f"p{len(self.plan.params)}")
        (ty,) = tensor_fields(item.checked_type)
        self.plan.params[name] = data
        values = [self._leaf(name, ty, scope, device)]
        self.early[values[0][0]] = True
        known.append((data, values))
        return values

    def _call(self, call: Call) -> list[tuple[int, int]]:
        if isinstance(call.op, Function) and call.op.get_attr("Compiler"):
            return self._offloaded(call)
        if self.device and is_call(call, "device_copy"):
            return self._copy(call)
        if not is_primitive(call.op):
            raise InternalError(f"a call of {call.op!r} is left after fusion", span=call.span)
        device = int(call.op.get_attr(DEVICE, 0)) or self.device
        if has(call.op.body, Fact.RUNS_AFTER):
            value = call.op.body.args[1]  # which fusion puts into the kernel where it is a constant
            return self._constant(value, device) if isinstance(value, Constant) else self._on(call.args[-1], device)
        if has(call.op.body, Fact.COMPARES) and sizes_of(asdict(call.op.body.attrs).values()):
            sides = asdict(call.op.body.attrs).items()
            self.plan.nodes[self.add(call, EQUAL, [], ())].attrs.update({side: str(text) for side, text in sides})
            return []
        inputs = [v for a in call.args for v in self._on(a, device)]
        if has(call.op.body, Fact.BINDS):
            return self._bind(call, call.op.body.attrs.size, inputs)
        types = tensor_fields(call.checked_type)
        scopes = scopes_of(call.op)
        if not scopes and (_is_view(call.op) or _is_join(call.op)):
            name = NOP
        else:
            name = self._kernel(call.op).name
        index = self._shared_node(name, inputs, types)
        if index == len(self.plan.nodes):
            node = GraphNode(self.names.fresh(_node_name(call, index)), name, inputs, types, device=device)
            node.scopes = tuple(scopes.get(len(inputs) + n, BUFFER) for n in range(len(types))) if scopes else ()
            self.plan.nodes.append(node)
        return [(index, i) for i in range(len(types))]

    def _bind(self, call: Call, extent: Known, count: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """A node that gives a size its value; the result is the count itself."""
        size = as_size(extent)
        if size is None:  # a number has its value
            return count
        if self.device:
            raise UnsupportedError("data says no sizes in a graph over several devices", hint="build for one device")
        if size.name in self.plan.sizes or size.name != identifier(size.name):
            message = f"the size {size.name} has its value already, or is no identifier"
            raise UnsupportedError(
                message, span=call.span, hint="give each size a name of its own, of letters, digits and _"
            )
        self.plan.sizes[size.name] = size
        count = count or self._constant(call.op.body.args[0])  # which fusion has put into the kernel
        self.plan.nodes[self.add(call, BIND, count, ())].attrs["size"] = size.name
        return count

    def _copy(self, call: Call) -> list[tuple[int, int]]:
        """A value on another device, once for each."""
        (value,), target = self._on(call.args[0], call.attrs.src_dev_type), call.attrs.dst_dev_type
        key = (value, target)
        if key not in self.copies:
            self.copies[key] = self.add(call, DEVICE_COPY, [value], tensor_fields(call.checked_type))
            self.plan.nodes[self.copies[key]].device = target
        return [(self.copies[key], 0)]

    def _on(self, expr: Expr, device: int) -> list[tuple[int, int]]:
        """The values of an argument; constants are stored for the device that reads them."""
        if not self.device:
            return self.values[id(expr)]
        if isinstance(expr, Tuple):
            return [v for f in expr.fields for v in self._on(f, device)]
        return self._constant(expr, device) if isinstance(expr, Constant) else self.values[id(expr)]

    def _offloaded(self, call: Call) -> list[tuple[int, int]]:
        """A function that a library computes: its constants are inputs of the node, after the arguments."""
        symbol = str(call.op.get_attr("global_symbol", ""))
        if symbol not in self.plan.offloaded:
            graph = self.fallback(call.op) if self.fallback is not None else None
            module = offloaded(call.op, graph)
            self.plan.offloaded[module.row.name] = module
            self.plan.kernels.update(graph.kernels if graph is not None else {})
        inputs = [v for e in (*call.args, *self.plan.offloaded[symbol].constants) for v in self._values(e)]
        index = self.add(call, symbol, inputs, tensor_fields(call.checked_type))
        return [(index, i) for i in range(len(self.plan.nodes[index].types))]

    def _values(self, expr: Expr) -> list[tuple[int, int]]:
        if id(expr) not in self.values and isinstance(expr, Constant):
            self.values[id(expr)] = self._constant(expr)
        return self.values[id(expr)]

    def _shared_node(self, name: str, inputs: list[tuple[int, int]], types: tuple[TensorType, ...]) -> int:
        """The number for a node: of one that another variant has already, where it depends on parameters alone."""
        new = len(self.plan.nodes)
        if not self.shares or not all(node in self.early for node, _ in inputs) or not self.is_pure(name):
            return new
        self.early[new] = True
        return self.shared.setdefault((name, tuple(inputs), types), new)

    def add(self, expr: Expr | None, func: str, inputs: list[tuple[int, int]], types: Sequence[TensorType]) -> int:
        span = getattr(expr, "span", None)
        name = span.name if span is not None and span.name else func.strip("_")
        name = self.names.fresh(printable_name(f"{name}#{len(self.plan.nodes)}"))
        self.plan.nodes.append(GraphNode(name, func, inputs, tuple(types)))
        return len(self.plan.nodes) - 1

    def node(self, index: int) -> GraphNode:
        return self.plan.nodes[index]

    def count(self) -> int:
        return len(self.plan.nodes)

    def is_pure(self, name: str) -> bool:
        kernel = self.plan.kernels.get(name)
        return name == NOP if kernel is None else is_pure(kernel.function)

    def _kernel(self, function: Function) -> Kernel:
        result = self.by_function.get(id(function))
        if result is None:
            text = print_function("kernel", function)
            result = self.by_text.get(text)
            if result is None:
                result = Kernel(self._kernel_name(function, text), function, text)
                self.by_text[text] = self.plan.kernels[result.name] = result
            self.by_function[id(function)] = result
        return result

    def _kernel_name(self, function: Function, text: str) -> str:
        """Words and the first characters of a digest; as many as it takes to be the name of no other kernel."""
        words, digest = _operator_words(function), sha256(text.encode()).hexdigest()
        names = (f"{words}_{digest[:length]}" for length in range(_DIGEST_LENGTH, len(digest) + 1))
        return next(name for name in names if name not in self.plan.kernels)


def _constant_scopes(items: Sequence[object]) -> dict[int, str]:
    """Where constants lie that kernels read."""
    result: dict[int, str] = {}
    for item in items:
        if isinstance(item, Call) and isinstance(item.op, Function):
            scopes = scopes_of(item.op)
            places = [arg for arg in item.args for _ in tensor_fields(arg.checked_type)]
            result |= {
                id(places[n]): s for n, s in scopes.items() if n < len(places) and isinstance(places[n], Constant)
            }
    return result


def _content(data: Weight) -> Array:
    """The bytes; no copy of an array, as weights may be half of memory."""
    array = data.compute() if isinstance(data, Deferred) else data
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _is_view(function: Function) -> bool:
    """Whether the function leaves the elements of its input in memory order: reshapes, and moves of axes of size 1."""
    body, moves = function.body, False
    while isinstance(body, Call) and (has(body, Fact.VIEW) or is_call(body, "copy", *_MOVES)):
        moves = moves or body.op.name in _MOVES
        body = body.args[0]
    if body is function.body or not isinstance(body, Var) or len(function.params) != 1:
        return False
    return not moves or _keeps_order(function)


def _is_join(function: Function) -> bool:
    """Whether the function concatenates its inputs along the outermost axis that is not of size 1."""
    body = function.body
    if not is_call(body, "concatenate") or not isinstance(body.args[0], Tuple):
        return False
    fields = body.args[0].fields
    own = {id(p) for p in function.params}
    if len({id(f) for f in fields}) != len(fields) or len(fields) != len(own) or any(id(f) not in own for f in fields):
        return False
    (ty,) = tensor_fields(body.checked_type)
    axis = body.attrs.axis % ty.ndim
    in_order = [id(p) for p in function.params] == [id(f) for f in fields]
    return in_order and all(d == 1 for d in ty.shape[:axis])


def _keeps_order(function: Function) -> bool:
    """Number the elements and look whether the reference leaves the numbers in order."""
    (ty,) = tensor_fields(function.params[0].checked_type)
    if not all(isinstance(d, int) for d in ty.shape) or ty.size > _LARGEST_CHECKED_MOVE:
        return False
    numbers = np.arange(ty.size, dtype=np.int32).reshape(ty.static)
    typed = Var("numbers", TensorType(ty.shape, DType("int32")))
    moved = evaluate(Function((typed,), bind(function.body, {function.params[0]: typed})), [numbers])
    return bool(np.array_equal(np.ravel(moved), numbers.ravel()))


def _operator_words(function: Function) -> str:
    names = [n.op.name for n in post_order(function.body) if isinstance(n, Call) and isinstance(n.op, Op)]
    text = "_".join(["fused", *(identifier(n) for n in names)])
    return text if len(text) <= 80 else text[:80].rstrip("_")


def _node_name(call: Call, index: int) -> str:
    name = call.span.name if call.span is not None and call.span.name else ""
    if not name:
        spans = [n.span.name for n in post_order(call.op.body) if isinstance(n, Call) and n.span is not None]
        name = spans[-1] if spans else ""
    return printable_name(f"{name or 'node'}#{index}")


def _check_sizes(known: dict[str, Size], name: str, ty: TensorType) -> None:
    """Note the sizes that an input gives; an input whose axes are neither numbers nor sizes is refused."""
    if not all(isinstance(d, int | Extent) for d in ty.shape):
        ty.static  # noqa: B018  (raises)
    for size in sizes_of(ty.shape).values():
        if known.setdefault(size.name, size) != size or size.name != identifier(size.name):
            message = f"input {name}: the size {size.name} is no identifier, or two sizes have this name"
            raise UnsupportedError(message, hint="give each size a name of its own, of letters, digits and _")


def _plan_storage(plan: GraphPlan, alignment: int) -> None:
    """One storage per tensor (views share their input's), with arena offsets for those computed on the way."""
    last: dict[int, int] = {}
    loops = enclosing_loops(plan.nodes)
    sizes: list[int] = []
    places: list[int] = []  # devices
    first: list[int] = []
    external: list[bool] = []
    scopes: list[str] = []
    for index, node in enumerate(plan.nodes):
        read = [plan.nodes[n].storage[i] for n, i in node.inputs]
        for sid in read:
            last[sid] = max(last.get(sid, 0), last_use(index, first[sid], loops[index]))
        if node.func == NOP and len(node.inputs) == 1:
            node.storage = [read[0]]
            continue
        if node.state is not None or _is_in_place(plan, node):
            node.storage = list(plan.nodes[node.state].storage) if node.state is not None else [read[0]]
            last[read[0]] = max(last[read[0]], last_write(index, node))
            continue
        for ty in node.types:
            last[len(sizes)] = last_write(index, node)
            node.storage.append(len(sizes))
            sizes.append(0 if plan.sizes else ty.nbytes)
            places.append(node.device)
            first.append(index)
            external.append(node.func is None or is_before(node))  # what is loaded stays from run to run
        scopes += node.output_scopes
    for node_index, output in plan.heads:  # outputs own their memory, so that callers can put theirs in its place
        external[plan.nodes[node_index].storage[output]] = True
    images = {sid for sid, scope in enumerate(scopes) if scope != BUFFER}
    parts = (
        {}
        if plan.sizes
        else _parts_in_place(plan, [out or sid in images for sid, out in enumerate(external)], alignment)
    )
    inside = [sid for sid in range(len(sizes)) if not external[sid] and sid not in parts and sid not in images]
    for sid, (whole, _) in parts.items():  # the whole lives from its first part on
        first[whole] = min(first[whole], first[sid])
        last[whole] = max(last.get(whole, 0), last.get(sid, 0))
    beside = concurrent_groups(plan.nodes, NOP, {variant.nodes[0] for variant in plan.variants})
    room = [-(-size // alignment) * alignment for size in sizes]  # then offsets are multiples of the alignment, too
    lives = {s: Lifetime(room[s], beside[first[s]][0], beside[max(first[s], last.get(s, first[s]))][1]) for s in inside}
    if plan.sizes:
        steps = ((lives[s].first, lives[s].last) if s in lives else (-1, -1) for s in range(len(sizes)))
        plan.lifetimes = [step for pair in steps for step in pair]
        return
    plan.arena_offsets = [-1] * len(sizes)
    for device in dict.fromkeys(places):  # an arena on each
        own = [sid for sid in inside if places[sid] == device]
        result = plan_memory([lives[sid] for sid in own])
        for sid, offset in zip(own, result.offsets, strict=True):
            plan.arena_offsets[sid] = offset
        plan.arena_bytes += result.total
    for sid, (whole, offset) in parts.items():
        plan.arena_offsets[sid] = plan.arena_offsets[whole] + offset
    if images:
        spans = [(beside[first[s]][0], beside[max(first[s], last.get(s, first[s]))][1]) for s in range(len(sizes))]
        _plan_images(plan, {s: None if external[s] else spans[s] for s in sorted(images)})


def _is_in_place(plan: GraphPlan, node: GraphNode) -> bool:
    """Whether a call changes its first input, an input of the graph, where that lies (ops/decoder/cache_update.py)."""
    kernel = plan.kernels.get(node.func or "")
    body = kernel.function.body if kernel is not None else None
    if not isinstance(body, Call) or not getattr(body.attrs, "in_place", False):
        return False
    source = plan.nodes[node.inputs[0][0]]
    if source.func is not None or source.name in plan.params:
        raise UnsupportedError(
            f"{node.name}: only an input of the graph can be changed in place, not {source.name}",
            hint="in_place=False copies it",
        )
    plan.states += [node.inputs[0][0]] if node.inputs[0][0] not in plan.states else []
    return True


def _shown(nodes: Sequence[GraphNode], value: tuple[int, int]) -> tuple[int, int]:
    """The value whose memory another one shows: through views."""
    while nodes[value[0]].func == NOP and len(nodes[value[0]].inputs) == 1:
        value = nodes[value[0]].inputs[0]
    return value


def _plan_images(plan: GraphPlan, spans: Mapping[int, tuple[int, int] | None]) -> None:
    """Widths of images, and storage ids: images that are never alive together share one. None: alive all the time."""
    tensors = {sid: (ty, scope) for n in plan.nodes for sid, ty, scope in zip(n.storage, n.types, n.output_scopes)}
    sizes = {sid: image_size(tensors[sid][1], tensors[sid][0].static) for sid in spans}
    shared = [(sid, span) for sid, span in spans.items() if span is not None]
    images = [Image(sizes[s][1], tensors[s][0].dtype.bits, sizes[s][0], *span) for s, span in shared]
    owner = {sid: shared[o][0] for (sid, _), o in zip(shared, share_images(images), strict=True)}
    retained = sorted({owner.get(sid, sid) for node in plan.nodes for sid in node.storage})
    number = {sid: n for n, sid in enumerate(retained)}
    for node in plan.nodes:
        node.storage = [number[owner.get(sid, sid)] for sid in node.storage]
    plan.arena_offsets = [plan.arena_offsets[sid] for sid in retained]
    plan.image_widths = [sizes[sid][1] if sid in spans else 0 for sid in retained]


def _parts_in_place(plan: GraphPlan, external: list[bool], alignment: int) -> dict[int, tuple[int, int]]:
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
            if not external[sid] and sid not in parts and offset % alignment == 0:
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
