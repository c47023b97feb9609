"""From the fused main function to the program that runs.

In: `main` whose calls are all of primitive functions. Out: a `NetworkPlan`: the run program (program/nodes.py), placed,
the distinct kernels to compile, and the values of parameters. Invariant: a statement reads only what is written before
it; a kernel that only reshapes shows its input's memory and is not run (a `view`). What a package holds of the program:
program/to_graph.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING

import numpy as np

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
from armillary.errors import InternalError, UnsupportedError
from armillary.program.arena import ALIGNMENT
from armillary.program.nodes import (
    LEAVES,
    Bind,
    Equal,
    Lifetime,
    Move,
    Program,
    Return,
    Statement,
    Storage,
    Value,
    Variant,
)
from armillary.program.nodes import Call as CallOf
from armillary.program.placement import place
from armillary.program.prepare import prepare
from armillary.relay.analysis.bind_sizes import sizes_in
from armillary.relay.binding import bind
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Loop, Tuple, TupleGetItem, Var
from armillary.relay.op import Op, has, is_call, is_primitive
from armillary.relay.op.facts import Fact
from armillary.relay.printer import print_function
from armillary.relay.transform.normal_form._states import states_of
from armillary.relay.types import TensorType, tensor_fields
from armillary.relay.walk import not_primitive
from armillary.relay.walk import post_order as expressions
from armillary.target.texture import BUFFER

if TYPE_CHECKING:
    from armillary.driver.offloaded import FallbackGraph, Offloaded

with deferred():  # most networks have no branches, no loops and nothing that a library computes
    from armillary.driver.control_flow import emit
    from armillary.driver.offloaded import offloaded

Weight = Array | Deferred
ConstantKey = tuple[int, str, tuple[int, ...], bytes, str]  # device, type, shape, first bytes, memory
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
class NetworkPlan:
    """What a network becomes: its program, the kernels and library functions it calls, the parameters' values."""

    program: Program = Program((), (), ())
    kernels: dict[str, Kernel] = field(default_factory=dict)
    offloaded: dict[str, Offloaded] = field(default_factory=dict)  # by symbol
    params: dict[str, Weight] = field(default_factory=dict)


def plan_network(
    *mains: Function,
    alignment: int = ALIGNMENT,
    device: int = 0,
    fallback: Callable[[Function], FallbackGraph] | None = None,
) -> NetworkPlan:
    """Flatten `main` into statements, name its kernels and plan its memory.

    Several functions become variants: they share kernels, parameters and the arena, and one of them runs. `device`: the
    main one of a network over several, of which each has an arena; 0: there is one. `fallback` makes our own program of
    a function that a library computes; None: the library alone does.
    """
    if len(mains) > 1 and any(states_of(main) for main in mains):
        raise UnsupportedError("a network of several variants has no states", hint="compile one set of shapes")
    builder = _Builder([p for main in mains for p in main.params], device, len(mains) > 1)
    builder.fallback = fallback
    for main in mains:
        builder.add_function(main)
    builder.plan.program = place(prepare(builder.program(), builder.sizes_of), alignment)
    return builder.plan


class _Builder:
    """Visits expressions in post-order; `entries` maps each to the names of its values."""

    def __init__(self, parameters: Sequence[Var], device: int = 0, has_variants: bool = False) -> None:
        self.plan, self.device = NetworkPlan(), device
        names = [p.name_hint for p in parameters if len(tensor_fields(p.checked_type)) == 1]
        self.names = Names(check_name(name, "an input") for name in names)  # of inputs and statements
        self.field_names: dict[tuple[str, int], str] = {}  # of tuples that are inputs
        self.entries: dict[int, list[str]] = {}
        self.values: dict[str, Value] = {}
        self.value_names, self.computed = Names(), 0
        self.sizes: dict[str, Size] = {}  # that inputs or data give
        self.body: list[Statement] = []
        self.shared_body: list[Statement] = [] if has_variants else self.body
        self.count = 0  # of inputs, parameters and statements, by which statements are named
        self.by_text: dict[str, Kernel] = {}
        self.by_function: dict[int, Kernel] = {}
        self.constants: dict[ConstantKey, list[tuple[Weight, list[str]]]] = {}
        self.inputs: dict[tuple[str, TensorType], str] = {}
        self.early: set[str] = set()  # values that depend on parameters alone
        self.shared: dict[object, tuple[str, ...]] = {}  # those of them that are computed, by kernel, inputs and types
        self.shares = True
        self.scopes: dict[int, str] = {}  # of constants that kernels read as textures, by id
        self.copies: dict[tuple[str, int], str] = {}  # to other devices, by value and device
        self.views: dict[str, str] = {}  # whose memory a value shows
        self.fallback: Callable[[Function], FallbackGraph] | None = None
        self.variants: list[Variant] = []
        self.has_variants = has_variants

    def program(self) -> Program:
        """What was built: inputs and states, then constants, then what is computed."""
        computed = len(LEAVES)
        order = {Lifetime.INPUT: 0, Lifetime.STATE: 0, Lifetime.CONSTANT: 1}
        values = sorted(self.values.values(), key=lambda v: order.get(v.storage.lifetime, computed))
        return Program(tuple(self.sizes.values()), tuple(values), (*self.shared_body, *self.variants))

    def add_function(self, main: Function) -> None:
        """The statements of a function; its inputs are those of an earlier one where name and type agree."""
        if self.has_variants:
            self.body = []
        for parameter in main.params:
            self.add_input(parameter)
        body = main.body
        self.shares = not any(isinstance(e, If | Loop | Let) for e in expressions(body, not_primitive))
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
        results = self.write_states(main, self._on(body, self.device))
        self.body.append(Return(tuple(results)))
        if self.has_variants:
            inputs = tuple(name for p in main.params for name in self.entries[id(p)])
            self.variants.append(Variant(inputs, tuple(self.body)))

    def write_states(self, main: Function, results: list[str]) -> list[str]:
        """The results that are the next values of states are written there at the end, and are no results any more."""
        states = states_of(main)
        inputs = {v.key: name for name, v in self.values.items() if v.storage.lifetime is Lifetime.INPUT}
        own = {inputs[name] for name in states}
        nexts = {inputs[name]: results[index] for name, index in states.items()}
        for state, value in nexts.items():  # one that is a state before is copied before that is written
            if self.shown(value) in own - {state}:
                nexts[state] = self.copied(value)
        for state, value in nexts.items():
            self.body.append(Move("write", (value,), state, self.statement_name(None, "copy")))
            self._make_state(state)
        return [value for index, value in enumerate(results) if index not in states.values()]

    def _make_state(self, name: str) -> None:
        value = self.values[name]
        self.values[name] = replace(value, storage=replace(value.storage, lifetime=Lifetime.STATE))

    def copied(self, value: str) -> str:
        """A copy of a value in memory of its own."""
        source = self.values[value]
        name = self.statement_name(None, "copy")
        result = self.value(source.dtype, source.shape, Storage(Lifetime.TRANSIENT, self.slot(), device=self.device))
        self.body.append(Move("copy", (value,), result, name))
        return result

    def shown(self, value: str) -> str:
        """The value whose memory another one shows: through views."""
        while value in self.views:
            value = self.views[value]
        return value

    def add_input(self, parameter: Var) -> None:
        types = tensor_fields(parameter.checked_type)
        names = [parameter.name_hint]
        if len(types) != 1:
            names = [self._field_name(parameter.name_hint, index) for index in range(len(types))]
        for key in zip(names, types, strict=True):
            if key not in self.inputs:
                self.inputs[key] = self._leaf(*key, Lifetime.INPUT)
        self.entries[id(parameter)] = [self.inputs[key] for key in zip(names, types, strict=True)]

    def _field_name(self, name: str, index: int) -> str:
        """The name of a tuple's field; variants have it in common."""
        if (name, index) not in self.field_names:
            check_name(name, "an input")
            self.field_names[name, index] = self.names.fresh(f"{name}.{index}")
        return self.field_names[name, index]

    def _leaf(self, name: str, ty: TensorType, lifetime: Lifetime, scope: str = BUFFER, device: int = 0) -> str:
        """An input or a constant."""
        _check_sizes(self.sizes, name, ty)
        self.count += 1
        result = self.value_names.fresh(identifier(name))
        storage = Storage(lifetime, self.slot(), device=device or self.device, scope=scope)
        label = name if name != result else None
        self.values[result] = Value(result, str(ty.dtype.storage), _known_shape(ty), storage, label)
        return result

    def slot(self) -> int:
        """A slot of its own: there are no more slots than values."""
        return len(self.values)

    def value(self, dtype: str, shape: tuple[Known, ...], storage: Storage) -> str:
        """A new computed value."""
        name = self.value_names.fresh(f"t{self.computed}")
        self.computed += 1
        self.values[name] = Value(name, dtype, shape, storage)
        return name

    def results(
        self, types: Sequence[TensorType], device: int = 0, scopes: Sequence[str] = (), slot: int | None = None
    ) -> tuple[str, ...]:
        """Values for what a statement computes, each in a slot of its own, or all in one that is there already."""
        names = []
        for index, ty in enumerate(types):
            place = self.slot() if slot is None else slot
            scope = scopes[index] if scopes else BUFFER
            storage = Storage(Lifetime.TRANSIENT, place, device=device or self.device, scope=scope)
            names.append(self.value(str(ty.dtype.storage), _known_shape(ty), storage))
        return tuple(names)

    def statement_name(self, expr: Expr | None, word: str) -> str:
        """A name for the next statement: of the layer that it computes, else the word, and its number."""
        span = getattr(expr, "span", None)
        name = span.name if span is not None and span.name else word
        self.count += 1
        return self.names.fresh(printable_name(f"{name}#{self.count - 1}"))

    def visit(self, item: object) -> None:
        match item:
            case Constant():  # of a graph over several devices: where it is read
                self.entries[id(item)] = [] if self.device else self._constant(item)
            case Tuple(fields):
                self.entries[id(item)] = [v for f in fields for v in self.entries[id(f)]]
            case TupleGetItem(of, index):
                self.entries[id(item)] = self._field(of, index)
            case Call():
                self.entries[id(item)] = list(self._call(item))
            case Function() | Op():
                pass
            case Var() if id(item) in self.entries:
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

    def _field(self, of: Expr, index: int) -> list[str]:
        widths = [len(tensor_fields(t)) for t in of.checked_type.fields]  # type: ignore[attr-defined]
        start = sum(widths[:index])
        return self.entries[id(of)][start : start + widths[index]]

    def _constant(self, item: Constant, device: int = 0) -> list[str]:
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
        values = [self._leaf(name, ty, Lifetime.CONSTANT, scope, device)]
        self.early.update(values)
        known.append((data, values))
        return values

    def _call(self, call: Call) -> Sequence[str]:
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
            attrs = call.op.body.attrs
            self.body.append(Equal((attrs.a, attrs.b), (attrs.of_a, attrs.of_b), self.statement_name(call, "equal")))
            return []
        inputs = [v for a in call.args for v in self._on(a, device)]
        if has(call.op.body, Fact.BINDS):
            return self._bind(call, call.op.body.attrs.size, inputs)
        return self._computed(call, inputs, device)

    def _computed(self, call: Call, inputs: Sequence[str], device: int) -> tuple[str, ...]:
        """The statement of a kernel, and its results; those of an equal one where both depend on parameters alone."""
        types, scopes = tensor_fields(call.checked_type), scopes_of(call.op)
        move = "" if scopes else _move_of(call.op)
        function = "" if move else self._kernel(call.op).name
        key = None
        if self.shares and self.early.issuperset(inputs) and (move or self.sizes_of(function) == frozenset()):
            key = (function, tuple(inputs), types)
            if key in self.shared:
                return self.shared[key]
        name = self.names.fresh(_statement_name(call, self.count))
        self.count += 1
        places = [scopes.get(len(inputs) + n, BUFFER) for n in range(len(types))] if scopes else ()
        slot = self.values[inputs[0]].storage.slot if move == "view" else None
        if function:
            slot = self._changed_in_place(function, name, inputs)
        outputs = self.results(types, device, places, slot)
        if move == "view":
            self.views[outputs[0]] = inputs[0]
        own, value = tuple(inputs), outputs[0]
        (self.body if key is None else self.shared_body).append(
            Move(move, own, value, name) if move else CallOf(function, own, outputs, name)
        )
        if key is not None:
            self.shared[key] = outputs
            self.early.update(outputs)
        return outputs

    def _changed_in_place(self, function: str, name: str, inputs: Sequence[str]) -> int | None:
        """The slot of the input that a call changes where it lies (ops/decoder/cache_update.py); None without one."""
        body = self.plan.kernels[function].function.body
        if not isinstance(body, Call) or not getattr(body.attrs, "in_place", False):
            return None
        source = self.values[inputs[0]]
        if source.storage.lifetime not in (Lifetime.INPUT, Lifetime.STATE):
            raise UnsupportedError(
                f"{name}: only an input of the graph can be changed in place, not {source.key}",
                hint="in_place=False copies it",
            )
        self._make_state(source.name)
        return source.storage.slot

    def _bind(self, call: Call, extent: Known, count: list[str]) -> list[str]:
        """A statement that gives a size its value; the result is the count itself."""
        size = as_size(extent)
        if size is None:  # a number has its value
            return count
        if self.device:
            raise UnsupportedError("data says no sizes in a graph over several devices", hint="build for one device")
        if size.name in self.sizes or size.name != identifier(size.name):
            message = f"the size {size.name} has its value already, or is no identifier"
            raise UnsupportedError(
                message, span=call.span, hint="give each size a name of its own, of letters, digits and _"
            )
        self.sizes[size.name] = size
        count = count or self._constant(call.op.body.args[0])  # which fusion has put into the kernel
        self.body.append(Bind(size.name, count[0], self.statement_name(call, "bind")))
        return count

    def _copy(self, call: Call) -> list[str]:
        """A value on another device, once for each."""
        (value,), target = self._on(call.args[0], call.attrs.src_dev_type), call.attrs.dst_dev_type
        key = (value, target)
        if key not in self.copies:
            name = self.statement_name(call, "device_copy")
            (self.copies[key],) = self.results(tensor_fields(call.checked_type), target)
            self.body.append(Move("copy", (value,), self.copies[key], name))
        return [self.copies[key]]

    def _on(self, expr: Expr, device: int) -> list[str]:
        """The values of an argument; constants are stored for the device that reads them."""
        if not self.device:
            return self.entries[id(expr)]
        if isinstance(expr, Tuple):
            return [v for f in expr.fields for v in self._on(f, device)]
        return self._constant(expr, device) if isinstance(expr, Constant) else self.entries[id(expr)]

    def _offloaded(self, call: Call) -> tuple[str, ...]:
        """A function that a library computes: its constants are inputs of the call, after the arguments."""
        symbol = str(call.op.get_attr("global_symbol", ""))
        if symbol not in self.plan.offloaded:
            graph = self.fallback(call.op) if self.fallback is not None else None
            module = offloaded(call.op, graph)
            self.plan.offloaded[module.row.name] = module
            self.plan.kernels.update(graph.kernels if graph is not None else {})
        inputs = [v for e in (*call.args, *self.plan.offloaded[symbol].constants) for v in self._values(e)]
        name = self.statement_name(call, symbol.strip("_"))
        outputs = self.results(tensor_fields(call.checked_type))
        self.body.append(CallOf(symbol, tuple(inputs), outputs, name))
        return outputs

    def _values(self, expr: Expr) -> list[str]:
        if id(expr) not in self.entries and isinstance(expr, Constant):
            self.entries[id(expr)] = self._constant(expr)
        return self.entries[id(expr)]

    def sizes_of(self, name: str) -> frozenset[str] | None:
        """The sizes that a kernel computes with; None of one with a state, and of what is no kernel of ours."""
        kernel = self.plan.kernels.get(name)
        if kernel is None or _has_state(kernel.function):
            return None
        return frozenset(sizes_in(kernel.function))

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


def _has_state(function: Function) -> bool:
    calls = [n.op for n in post_order(function.body) if isinstance(n, Call)]
    return any(isinstance(op, Op) and op.stateful for op in calls)


def _move_of(function: Function) -> str:
    """The move that does what the function does, "" where it computes something."""
    return "view" if _is_view(function) else "join" if _is_join(function) else ""


def _known_shape(ty: TensorType) -> tuple[Known, ...]:
    """The shape as numbers and expressions over named sizes; UnsupportedError where a dimension is neither."""
    if any(not isinstance(dim, int | Extent) for dim in ty.shape):
        raise UnsupportedError(
            "a size that only the data says has no place in a graph of named sizes",
            hint="relay.vm.compile runs such modules; or fix the sizes with shape=",
        )
    return ty.known


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


def _statement_name(call: Call, index: int) -> str:
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
