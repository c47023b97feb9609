"""Branches and loops in the graph: each is a node, followed by the nodes of its regions.

In: the body of a fused main, and the builder of the graph's nodes (graph_codegen.py). Out: nodes in run order. An If
becomes `__if` and the nodes of its two branches, a Loop `__loop` and those of its body; a region ends with a `__yield`
of its results (the C side: runtime/native/arm_control.c). Invariant: a value is computed in the innermost region that
holds all its uses, so a branch that is not taken costs nothing, and what two branches share comes before both; lets say
nothing about that and are dissolved. Memory: a value that a loop reads from outside lives until the loop ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import UnsupportedError
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Loop, Tuple, TupleGetItem, Var
from armillary.relay.types import TensorType, tensor_fields
from armillary.relay.walk import children, map_children, not_primitive, post_order

IF, LOOP, YIELD, COPY = "__if", "__loop", "__yield", "__copy"
Entry = tuple[int, int]  # a node and one of its outputs
_LAST_SCALARS = (TensorType((), DType("int64")), TensorType((), DType("bool")))


class Node(Protocol):
    """What this file reads and writes of the graph's nodes."""

    func: str | None
    inputs: list[Entry]
    attrs: dict[str, str]


class Builder(Protocol):
    """What this file needs of the graph being built."""

    values: dict[int, list[Entry]]

    def visit(self, item: object) -> None:  # an expression
        """Make the node of an expression whose arguments have values."""

    def add(self, expr: Expr | None, func: str, inputs: list[Entry], types: Sequence[TensorType]) -> int:
        """Append a node and give its number."""

    def node(self, index: int) -> Any:  # Any: a Node
        """A node by its number."""

    def count(self) -> int:
        """How many nodes there are."""


def has_control(body: Expr) -> bool:
    """Whether anything here needs more than nodes in a row."""
    return any(isinstance(e, If | Loop | Let) for e in post_order(body, not_primitive))


def emit(builder: Builder, body: Expr) -> Expr:
    """Build the nodes of `body`; gives back the expression whose entries are the results."""
    plain = _without_lets(body)
    _Emitter(builder, plain).run(plain)
    return plain


def _without_lets(body: Expr) -> Expr:
    """Values in place of the variables that stand for them."""
    order = post_order(body, not_primitive)
    lets = {id(e.var): e.value for e in order if isinstance(e, Let) and not isinstance(e.value, Function)}
    memo: dict[int, Expr] = {}

    def get(expr: Expr) -> Expr:
        return memo.get(id(expr), expr)

    for expr in order:  # the value of a let comes before its variable
        if id(expr) in lets:
            memo[id(expr)] = get(lets[id(expr)])
        elif isinstance(expr, Let) and id(expr.var) in lets:
            memo[id(expr)] = get(expr.body)
        else:
            memo[id(expr)] = map_children(expr, get)
    return memo[id(body)]


# --- where values are computed ---------------------------------------------------------------------------------------


@record(frozen=False, eq=False)
class Region:
    """The graph's own list of nodes, a branch, or the body of a loop."""

    parent: Region | None = None
    depth: int = 0

    def holds(self, other: Region) -> bool:
        """Whether `other` is this region or lies in it."""
        while other.depth > self.depth and other.parent is not None:
            other = other.parent
        return other is self


def _common(a: Region, b: Region) -> Region:
    while a is not b:
        if a.depth < b.depth:
            a, b = b, a
        assert a.parent is not None, "the outermost region holds all others"
        a = a.parent
    return a


def _regions(root: Expr) -> dict[int, Region]:
    """The innermost region that holds all uses of each expression; constants are the graph's own."""
    top = Region()
    of: dict[int, Region] = {id(root): top}
    for expr in reversed(post_order(root, not_primitive)):
        here = of[id(expr)]
        if isinstance(expr, Constant):
            of[id(expr)] = top
        for child, own in _uses(expr):
            region = Region(here, here.depth + 1) if own else here
            of[id(child)] = _common(of[id(child)], region) if id(child) in of else region
    return of


def _uses(expr: Expr) -> Iterator[tuple[Expr, bool]]:
    """The expressions inside, and whether each has a region of its own."""
    match expr:
        case If():
            yield expr.cond, False
            yield expr.true_branch, True
            yield expr.false_branch, True
        case Function():
            if not_primitive(expr):
                yield expr.body, True
                yield from ((p, False) for p in expr.params)
        case _:
            yield from ((child, False) for child in children(expr))


# --- nodes -----------------------------------------------------------------------------------------------------------


class _Emitter:
    def __init__(self, builder: Builder, root: Expr) -> None:
        self.builder, self.of = builder, _regions(root)

    def run(self, root: Expr) -> None:
        """Nodes for what `root` needs and has not yet, in an order that runs."""
        values = self.builder.values
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            expr, ready = stack.pop()
            if id(expr) in values:
                continue
            if ready:
                self._emit(expr)
                continue
            stack.append((expr, True))
            stack.extend((e, False) for e in reversed(self._needs(expr)) if id(e) not in values)

    def _needs(self, expr: Expr) -> list[Expr]:
        match expr:
            case If():
                return [expr.cond, *self._shared(expr, (expr.true_branch, expr.false_branch))]
            case Loop():
                return [expr.limit, expr.going, *expr.args, *self._shared(expr, (_body(expr).body,))]
            case Call():
                return list(expr.args)
            case Tuple() | TupleGetItem():
                return list(children(expr))
        return []

    def _shared(self, owner: Expr, insides: Sequence[Expr]) -> list[Expr]:
        """What the regions of `owner` use and do not compute: it must be there before."""
        here = self.of[id(owner)]
        shared = {id(e): e for inside in insides for e in post_order(inside, not_primitive)}
        return [e for e in shared.values() if not isinstance(e, Var | Function) and self.of[id(e)].holds(here)]

    def _emit(self, expr: Expr) -> None:
        match expr:
            case If():
                self._branch(expr)
            case Loop():
                self._loop(expr)
            case _:
                self.builder.visit(expr)

    def _branch(self, expr: If) -> None:
        builder = self.builder
        types = tensor_fields(expr.checked_type)
        index = builder.add(expr, IF, list(builder.values[id(expr.cond)]), types)
        first = self._region(expr.true_branch)
        second = self._region(expr.false_branch)
        builder.node(index).attrs.update(first_nodes=str(first), second_nodes=str(second))
        builder.values[id(expr)] = [(index, k) for k in range(len(types))]

    def _region(self, root: Expr, loop: tuple[int, int] | None = None) -> int:
        """The nodes of a region, its yield included: how many. `loop`: the owner's number, its count of states."""
        values, begin = self.builder.values, self.builder.count()
        outside = set(values)
        self.run(root)
        results = list(values[id(root)])
        if loop is not None:
            results = [self._copied_state(entry, k - 1, *loop) for k, entry in enumerate(results)]
        self.builder.add(None, YIELD, results, ())
        for key in set(values) - outside:  # what a region computes is not there outside, nor the next time
            del values[key]
        return self.builder.count() - begin

    def _copied_state(self, entry: Entry, state: int, owner: int, states: int) -> Entry:
        """A new state that is another's old one is copied: states are replaced one after another."""
        node, output = _origin(self.builder, entry)
        if node != owner or output >= states or output == state or not 0 <= state < states:
            return entry
        types = self.builder.node(owner).types
        return self.builder.add(None, COPY, [entry], (types[output],)), 0

    def _loop(self, expr: Loop) -> None:
        builder, body = self.builder, _body(expr)
        values = builder.values
        args = [values[id(a)] for a in expr.args]
        states = [entry for entries in args[: expr.states] for entry in entries]
        types = (*tensor_fields(expr.checked_type), _LAST_SCALARS[1])
        limit, going = values[id(expr.limit)], values[id(expr.going)]
        index = builder.add(expr, LOOP, [*limit, *going, *states], types)
        outputs = [(index, k) for k in range(len(types))]
        values[id(body.params[0])], values[id(body.params[1])] = [outputs[-2]], [outputs[-1]]
        used = 0
        for k, (param, entries) in enumerate(zip(body.params[2:], args, strict=True)):
            is_state = k < expr.states
            values[id(param)] = outputs[used : used + len(entries)] if is_state else entries
            used += len(entries) if is_state else 0
        size = self._region(body.body, (index, len(states)))
        builder.node(index).attrs.update(
            first_nodes=str(size),
            second_nodes="0",
            states=str(len(states)),
            scans=str(len(types) - len(states) - 2),
            trips=str(expr.trips if isinstance(expr.trips, int) else -1),  # then what the scans have rows for
        )
        for param in body.params:
            del values[id(param)]
        values[id(expr)] = outputs[:-1]


def _body(loop: Loop) -> Function:
    if not isinstance(loop.body, Function):
        raise UnsupportedError(
            "the body of a loop is computed at run time", span=loop.span, hint="write the function itself"
        )
    return loop.body


def _origin(builder: Builder, entry: Entry) -> Entry:
    """The entry whose memory this one shows: through nodes that only rename it."""
    node = builder.node(entry[0])
    while node.func == "__nop" and len(node.inputs) == 1:
        entry = node.inputs[0]
        node = builder.node(entry[0])
    return entry


# --- memory ----------------------------------------------------------------------------------------------------------


def enclosing_loops(nodes: Sequence[Node]) -> list[list[tuple[int, int]]]:
    """For each node the loops around it, outermost first: (number of the loop's node, of its last one)."""
    around: list[list[tuple[int, int]]] = [[] for _ in nodes]
    for index, node in enumerate(nodes):
        if node.func == LOOP:
            last = index + int(node.attrs["first_nodes"])
            for inner in range(index + 1, last + 1):
                around[inner].append((index, last))
    return around


def last_write(index: int, node: Node) -> int:
    """When the outputs of a node are written for the last time: a branch or loop writes them as its regions end."""
    return index + sum(int(node.attrs.get(key, 0)) for key in ("first_nodes", "second_nodes"))


def last_use(index: int, first: int, loops: Sequence[tuple[int, int]]) -> int:
    """Until when a value made by node `first` and read by node `index` must be kept."""
    return max([index, *(last for start, last in loops if first <= start)])
