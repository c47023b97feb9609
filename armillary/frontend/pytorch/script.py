"""TorchScript modules, traced or scripted, as Relay modules.

In: a ScriptModule, names and shapes of its inputs. Out: `(IRModule, params)`. Invariant: everything that is no tensor
(numbers, lists, tuples, modules) is computed now, by `python_values`; tensors are expressions, by the same rules as
those of torch.export. Loops of known counts are unrolled; what depends on tensors is Relay's If and Loop. A change in
place gives the changed value its name again; who reads an alias of it afterwards is refused, as it would be stale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.budgets import ITERATIONS
from armillary.errors import ArmillaryError, ModelError, Span, UnsupportedError
from armillary.frontend.control import branch, repeat, without_axes
from armillary.frontend.folding.fold import Folder
from armillary.frontend.pytorch.exported import module_of, number, parameter
from armillary.frontend.pytorch.fx_graph import FxWalk, unpacked
from armillary.frontend.pytorch.python_values import DTYPES, PYTHON, SKIPPED
from armillary.frontend.pytorch.table import AtenCall, aten_rule
from armillary.frontend.pytorch.tensors import array_of
from armillary.frontend.values import Value, is_tensor, op, reshape_to, scalar, shape_of, type_of
from armillary.ir import IRModule
from armillary.relay.expr import Constant, Expr, Var
from armillary.relay.types import tensor_type

if TYPE_CHECKING:
    from torch import Graph
    from torch._C import Block, Node
    from torch.jit import ScriptModule

_MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_IGNORED = ("layout", "device", "pin_memory", "memory_format")
_VIEWS = frozenset(
    (
        *("select", "slice", "view", "reshape", "transpose", "permute", "squeeze", "unsqueeze", "expand", "expand_as"),
        *("t", "detach", "contiguous", "flatten", "alias", "chunk", "split", "split_with_sizes", "unbind", "narrow"),
        *("diagonal", "unfold", "movedim", "view_as", "reshape_as", "to"),
    )
)
Convert = Callable[[list[Value], list[Value]], Expr]


@record
class Part:
    """A module of the model, or an object in it, by its path."""

    value: ScriptModule
    path: str


def import_script(
    module: ScriptModule,
    inputs: Sequence[tuple[str, tuple[int, ...], str]],
    converters: Mapping[str, Convert],
    friendly: bool,
) -> tuple[IRModule, dict[str, Array]]:
    """What entry.py says of `from_pytorch`; inputs are names, shapes and dtypes."""
    import torch

    graph = module.graph.copy()
    torch._C._jit_pass_inline(graph)
    walk = ScriptWalk(converters, friendly)
    walk.refuse_missing(graph)
    first, *formals = list(graph.inputs())
    if len(formals) != len(inputs):
        names = ", ".join(v.debugName() for v in formals)
        raise ModelError(f"from_pytorch: {len(inputs)} inputs are described, the module takes {len(formals)}: {names}")
    walk.values[first.debugName()] = Part(module, "")
    variables = [Var(name, tensor_type(shape, dtype)) for name, shape, dtype in inputs]
    for formal, variable in zip(formals, variables, strict=True):
        walk.values[formal.debugName()] = variable
        walk.fx.folder.outer.add(id(variable))
    results = [walk.value(v) for v in walk.block(graph)]
    flat = [v for result in results for v in _tensors(result)]
    binds = walk.fx.folder.data_sizes.binds
    return module_of(variables, walk.params, [(f"output{k}", v) for k, v in enumerate(flat)], binds)


def _tensors(value: Value) -> Iterator[Expr]:
    """The tensors of a result, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
    elif value is not None:
        yield value if is_tensor(value) else number(value)


class ScriptWalk:
    """One import: values by the names of the graph, aliases, parameters met."""

    def __init__(self, converters: Mapping[str, Convert], friendly: bool) -> None:
        self.source = "<TorchScript>"
        self.converters, self.friendly = converters, friendly
        self.fx = FxWalk(self.source)  # its folder, and what parameters need
        self.folder: Folder = self.fx.folder
        self.params: dict[str, tuple[Var, Array]] = {}
        self.values: dict[str, Value] = {}
        self.views: dict[str, tuple[str, Node]] = {}  # of a view: what it shows, and how
        self.stale: set[str] = set()
        self.fixed: set[str] = set()  # names around a branch or body that runs: nothing may change them
        self.unrolled = 0
        self.read: set[str] = set()  # attributes by their paths
        self.set: set[str] = set()

    # --- what is not supported, all at once ---

    def refuse_missing(self, graph: Graph) -> None:
        """Raise one UnsupportedError that names every operator without a rule."""
        missing = Counter(k for k in _kinds(graph) if not self.is_importable(k))
        if missing:
            rows = "; ".join(f"{kind} ({count} call{'s'[: count > 1]})" for kind, count in sorted(missing.items()))
            message = f"{len(missing)} operator{'s'[: len(missing) > 1]} of the model cannot be imported: {rows}"
            hint = "operators with a rule are in docs/operators.md; custom_convert_map= takes converters of your own"
            raise UnsupportedError(message, span=Span(self.source), hint=hint)

    def is_importable(self, kind: str) -> bool:
        """Whether a node of this kind can be imported."""
        space, _, name = kind.partition("::")
        known = kind in self.converters or kind in PYTHON or kind in SKIPPED or kind in _SPECIAL
        return (
            known
            or aten_rule(f"{space}.{name.rstrip('_') or name}.") is not None
            or aten_rule(f"{space}.{name}.") is not None
        )

    # --- values ---

    def value(self, formal: Value) -> Value:
        """What a value of the graph stands for."""
        name = formal.debugName()
        if name in self.stale:
            hint = "copy it first (clone), or write the change without an underscore"
            raise UnsupportedError(f"%{name} shows a tensor that has been changed in place", hint=hint)
        return self.values[name]

    def bind(self, formal: Value, value: Value, node: Node) -> None:
        """Give a value of the graph what it stands for."""
        name = formal.debugName()
        self.stale.discard(name)
        self.values[name] = self.settled(value, node)

    def settled(self, value: Value, node: Node) -> Value:
        """A value with spans and types, constants folded."""
        if isinstance(value, list | tuple):
            return type(value)(self.settled(v, node) for v in value)
        return self.folder.settle(value, self.span(node)) if is_tensor(value) else value

    def span(self, node: Node) -> Span:
        """Where a node is: its scope and its kind."""
        return Span(self.source, f"{node.scopeName()}/{node.kind()}".lstrip("/"))

    # --- nodes ---

    def block(self, block: Block) -> list[Value]:
        """Import the nodes of a block; its outputs, as values of the graph."""
        for node in block.nodes():
            try:
                self.node(node)
            except ArmillaryError as error:
                error.span = error.span or self.span(node)
                raise
            except _MALFORMED as error:
                message = f"{node.kind()}: {type(error).__name__}: {error}"
                raise UnsupportedError(message, span=self.span(node), hint=str(node).strip()[:300]) from error
        return list(block.outputs())

    def node(self, node: Node) -> None:
        """Import one node: its outputs get values."""
        kind = node.kind()
        if kind in SKIPPED:
            return
        special = _SPECIAL.get(kind)
        if special is not None:
            special(self, node)
            return
        inputs = [self.value(v) for v in node.inputs()]
        converter = self.converters.get(kind)
        if converter is not None:
            self.bind(node.output(), converter(inputs, [None] * len(inputs)), node)
            return
        plain = PYTHON.get(kind)
        if plain is not None and not any(is_tensor(v) for v in inputs):
            self.results(node, plain(*inputs))
        elif kind in PYTHON and aten_rule(_name(node)) is None:
            self.results(node, PYTHON[kind](*inputs))
        else:
            self.operator(node, inputs)

    def operator(self, node: Node, inputs: list[Value]) -> None:
        """An operator of ATen, by its rule."""
        name = _name(node)
        space, base, overload = name.split(".", 2)
        in_place = base.endswith("_") and not base.endswith("__")
        plain_name = f"{space}.{base.rstrip('_') if in_place else base}.{overload}"
        rule = aten_rule(plain_name)
        if rule is None:
            raise UnsupportedError(f"{plain_name} has no rule", hint="operators with a rule: docs/operators.md")
        arguments = [_argument(a.name, v) for a, v in zip(_schema(node).arguments, inputs, strict=True)]
        call = AtenCall(plain_name, self.span(node), self.folder)
        result = unpacked(self.settled(rule(call, *arguments), node))
        self.results(node, result)
        if in_place:
            if is_tensor(result) and is_tensor(inputs[0]):
                result = op("cast", result, dtype=str(type_of(inputs[0]).dtype))
            self.changed(next(iter(node.inputs())), result, node)
        elif base in _VIEWS and is_tensor(inputs[0]):
            for out in node.outputs():
                self.views[out.debugName()] = (next(iter(node.inputs())).debugName(), node)

    def results(self, node: Node, value: Value) -> None:
        """The outputs of a node; several come as a list."""
        outputs = list(node.outputs())
        if len(outputs) == 1:
            self.bind(outputs[0], value, node)
            return
        for formal, part in zip(outputs, value or [], strict=True):
            self.bind(formal, part, node)

    # --- changes in place ---

    def changed(self, formal: Value, value: Value, node: Node) -> None:
        """A tensor has a new value: so has what it is a part of; every other alias is stale."""
        name = formal.debugName()
        lineage = [name]
        while lineage[-1] in self.views:
            lineage.append(self.views[lineage[-1]][0])
        root = lineage[-1]
        if any(n in self.fixed for n in lineage):
            hint = "return the new value from the branch or body instead"
            raise UnsupportedError("a branch or loop that runs changes a tensor from outside", hint=hint)
        self.stale |= {n for n in self.views if self.root(n) == root and n not in lineage}
        self.bind(formal, value, node)
        for part, whole in pairwise(lineage):
            written = self.written(self.views[part][1], self.values[whole], self.values[part])
            if written is None:
                self.stale |= set(lineage[lineage.index(whole) :])
                return
            self.values[whole] = self.settled(written, node)

    def root(self, name: str) -> str:
        """The tensor that a view shows in the end."""
        while name in self.views:
            name = self.views[name][0]
        return name

    def written(self, view: Node, whole: Expr, part: Expr) -> Expr | None:
        """A tensor with a part of it written; None where the view is no regular part."""
        kind = view.kind().partition("::")[2]
        rule = aten_rule(f"aten.{kind}_scatter.default")
        call = AtenCall(f"aten.{kind}_scatter", self.span(view), self.folder)
        if kind in ("slice", "select") and rule is not None:
            rest = [self.value(v) for v in view.inputs()][1:]
            return rule(call, whole, part, *rest)  # type: ignore[no-any-return]  # an expression
        if kind in ("view", "reshape", "squeeze", "unsqueeze", "flatten", "contiguous", "detach", "alias"):
            return reshape_to(part, shape_of(whole))
        return None


def _kinds(block: Block) -> Iterator[str]:
    """Kinds of the nodes that are imported whatever values are: not those of branches, which may not be taken."""
    for node in block.nodes():
        yield node.kind()
        for inner in node.blocks() if node.kind() != "prim::If" else ():
            yield from _kinds(inner)


def _schema(node: Node) -> Value:
    import torch

    return torch._C.parse_schema(node.schema())


def _name(node: Node) -> str:
    """`aten.add.Tensor`."""
    if node.schema() == "(no schema)":
        return f"{node.kind().replace('::', '.')}."
    schema = _schema(node)
    return f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"


def _argument(name: str, value: Value) -> Value:
    """An argument as rules take it: dtypes by name, nothing about places."""
    if name in _IGNORED:
        return None
    if name.endswith("dtype") and isinstance(value, int) and not isinstance(value, bool):
        if value not in DTYPES:
            raise UnsupportedError(f"a tensor of the dtype number {value}", hint="no complex or quantised tensors")
        return DTYPES[value]
    return value


# --- nodes that are not operators -------------------------------------------------------------------------------------


def _constant(walk: ScriptWalk, node: Node) -> None:
    value: object = node.output().toIValue() if not node.mustBeNone() else None
    if hasattr(value, "layout") and hasattr(value, "dtype"):
        value = walk.folder.give(Constant(array_of(value)))
    walk.bind(node.output(), value, node)


def _attribute(walk: ScriptWalk, node: Node) -> None:
    part = walk.value(next(iter(node.inputs())))
    name = node.s("name")
    value = getattr(part.value, name)
    path = f"{part.path}.{name}".lstrip(".")
    walk.read.add(path)
    refuse_state(walk, path)
    if hasattr(value, "layout") and hasattr(value, "dtype"):
        array = array_of(value)
        is_index = array.dtype.kind in "iub" and array.size <= 64
        spelled = path.replace(".", "_") if walk.friendly else path
        tensor = walk.folder.give(Constant(array)) if is_index else parameter(walk.fx, walk.params, spelled, array)
        walk.bind(node.output(), tensor, node)
    elif hasattr(value, "_c") or type(value).__name__ == "ScriptObject":
        walk.values[node.output().debugName()] = Part(value, path)
    else:
        walk.bind(node.output(), value, node)


def _set_attribute(walk: ScriptWalk, node: Node) -> None:
    """An attribute that nobody reads may change; else each call would depend on those before it."""
    path = f"{walk.value(next(iter(node.inputs()))).path}.{node.s('name')}".lstrip(".")
    walk.set.add(path)
    refuse_state(walk, path)


def refuse_state(walk: ScriptWalk, path: str) -> None:
    """Raise UnsupportedError for an attribute that is both read and set."""
    if path in walk.read & walk.set:
        hint = "take it as an input and return its new value"
        raise UnsupportedError(f"the attribute {path} is read and changed: a state between calls", hint=hint)


def _many(walk: ScriptWalk, node: Node) -> None:
    values = [walk.value(v) for v in node.inputs()]
    value: Value = tuple(values) if node.kind() == "prim::TupleConstruct" else values
    walk.values[node.output().debugName()] = value


def _dictionary(walk: ScriptWalk, node: Node) -> None:
    values = [walk.value(v) for v in node.inputs()]
    walk.values[node.output().debugName()] = dict(zip(values[::2], values[1::2], strict=True))


def _unpack(walk: ScriptWalk, node: Node) -> None:
    value = walk.value(next(iter(node.inputs())))
    walk.results(node, value if len(list(node.outputs())) != 1 else value[0])


def _if(walk: ScriptWalk, node: Node) -> None:
    """One branch where the condition is known, else Relay's If of both."""
    condition = walk.value(next(iter(node.inputs())))
    known = walk.folder.value(condition) if is_tensor(condition) else condition
    yes, no = node.blocks()
    if known is not None:
        outputs = walk.block(yes if bool(np.all(known)) else no)
        values = [walk.value(v) for v in outputs]
        walk.results(node, values[0] if len(values) == 1 else values)
        return
    around, walk.fixed = walk.fixed, set(walk.values)
    rows = [[walk.value(v) for v in walk.block(block)] for block in (yes, no)]
    walk.fixed = around
    if not all(is_tensor(v) for row in rows for v in row):
        rows = [[v if is_tensor(v) else number(v) for v in row] for row in rows]
    first, second = rows
    parts: list[Value] = [*branch(_flag(condition), first, second, walk.span(node), "an if")]
    walk.results(node, parts[0] if len(parts) == 1 else parts)


def _flag(value: Value) -> Expr:
    return without_axes(value if is_tensor(value) else scalar(value, "bool"))


def _loop(walk: ScriptWalk, node: Node) -> None:
    """Unrolled while what ends it is known, else Relay's Loop."""
    limit, going, *carried = (walk.value(v) for v in node.inputs())
    (body,) = node.blocks()
    formals = list(body.inputs())
    count = 0
    while not is_tensor(limit) and not is_tensor(going) and count < limit and going:
        walk.unrolled += 1
        ITERATIONS.check(walk.unrolled, "prim::Loop", walk.span(node))
        before, around = dict(walk.values), list(carried)
        for formal, value in zip(formals, [count, *carried], strict=True):
            walk.values[formal.debugName()] = value
        going, *carried = (walk.value(v) for v in walk.block(body))
        if is_tensor(going):
            known = walk.folder.value(going)
            if known is None:
                walk.values, carried, going = before, around, True
                break
            going = bool(np.all(known))
        count += 1
    else:
        if not is_tensor(limit) and not is_tensor(going):
            walk.results(node, carried[0] if len(carried) == 1 else carried)
            return
    values = _running(walk, node, (limit, going, count), carried)
    walk.results(node, values[0] if len(values) == 1 else values)


def _running(walk: ScriptWalk, node: Node, control: tuple[Value, Value, int], carried: list[Value]) -> list[Expr]:
    """The states of a loop that is counted or ended by tensors."""
    limit, going, done = control
    (body,) = node.blocks()
    first = [walk.settled(v if is_tensor(v) else number(v), node) for v in carried]

    def step(index: Var, states: list[Var]) -> tuple[Expr, list[Expr]]:
        around, walk.fixed = walk.fixed, set(walk.values)
        place = op("add", index, scalar(done, "int64"))
        for formal, value in zip(body.inputs(), [place, *states], strict=True):
            walk.values[formal.debugName()] = walk.settled(value, node)
        again, *later = (walk.value(v) for v in walk.block(body))
        walk.fixed = around
        later = [walk.settled(v if is_tensor(v) else number(v), node) for v in later]
        return walk.settled(_flag(again), node), later

    is_endless = not is_tensor(limit) and limit - done > 1 << 40
    most = None if is_endless else _limit(limit, done)
    return repeat(first, step, _flag(going), walk.span(node), "a loop", most)


def _limit(limit: Value, done: int) -> Expr:
    if not is_tensor(limit):
        return scalar(limit - done, "int64")
    return op("subtract", reshape_to(op("cast", limit, dtype="int64"), ()), scalar(done, "int64"))


def _raised(walk: ScriptWalk, node: Node) -> None:
    values = [walk.value(v) for v in node.inputs()]
    raise ModelError(f"the model raises an error for these inputs: {values[0] if values else ''}")


def _to_list(walk: ScriptWalk, node: Node) -> None:
    """aten::append, which changes a list."""
    target, item = (walk.value(v) for v in node.inputs())
    target.append(item)
    walk.values[node.output().debugName()] = target


def _set_item(walk: ScriptWalk, node: Node) -> None:
    target, place, item = (walk.value(v) for v in node.inputs())
    target[place] = item
    for out in node.outputs():
        walk.values[out.debugName()] = target


_SPECIAL: dict[str, Callable[[ScriptWalk, Node], None]] = {
    "prim::Constant": _constant,
    "prim::GetAttr": _attribute,
    "prim::SetAttr": _set_attribute,
    "prim::ListConstruct": _many,
    "prim::TupleConstruct": _many,
    "prim::DictConstruct": _dictionary,
    "prim::ListUnpack": _unpack,
    "prim::TupleUnpack": _unpack,
    "prim::If": _if,
    "prim::Loop": _loop,
    "prim::RaiseException": _raised,
    "aten::append": _to_list,
    "aten::_set_item": _set_item,
}
