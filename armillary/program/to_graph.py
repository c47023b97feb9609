"""From a run program to the graph of a package.

In: a placed program, and notes on the functions it calls. Out: a GraphSpec that says the same: inputs, states and
constants are its first nodes, then a node for each statement, bodies behind what they belong to (the C side:
runtime/native/arm_control.c). Invariant: `program_of` reads the program back; a view shows its input's storage.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from armillary.artifact import GraphNode, GraphSpec, SizeRow, VariantRow
from armillary.base.extent import Extent, Size, evaluate, sizes_of
from armillary.program.lifetimes import lifetimes
from armillary.program.nodes import (
    LEAVES,
    Bind,
    Call,
    Equal,
    If,
    Lifetime,
    Loop,
    Move,
    Program,
    Return,
    Statement,
    Value,
    Variant,
    Yield,
    bodies,
    reads,
    writes,
)

Notes = Mapping[str, Mapping[str, str]]  # by function: what stands on its nodes beside what they compute


def graph_of(program: Program, notes: Notes | None = None) -> GraphSpec:
    """The graph of a program."""
    return _Writer(program, notes or {}).graph()


class _Writer:
    def __init__(self, program: Program, notes: Notes) -> None:
        self.program, self.notes = program, notes
        self.values = {v.name: v for v in program.values}
        self.nodes: list[GraphNode] = []
        self.entries: list[Value] = []
        self.places: dict[str, tuple[int, int, int]] = {}  # of values: a node, its output, a version
        self.heads: list[tuple[int, int, int]] = []
        self.variants: list[VariantRow] = []

    def graph(self) -> GraphSpec:
        """Write the nodes, then the rows of their entries and slots."""
        program = self.program
        leaves = [v for v in program.values if v.storage.lifetime in LEAVES]
        for value in leaves:
            self.node(GraphNode("null", value.key), (value.name,))
        self.statements(program.body)
        shapes = [v.shape for v in self.entries]
        storages = [v.storage for v in self.entries]
        slots = {v.storage.slot: v.storage for v in program.values}
        widths = tuple(slots[n].width for n in range(len(slots)))
        is_open = bool(program.sizes)
        return GraphSpec(
            nodes=tuple(self.nodes),
            arg_nodes=tuple(range(len(leaves))),
            heads=tuple(self.heads),
            shapes=tuple(tuple(d if isinstance(d, int) else str(d) for d in shape) for shape in shapes),
            dltypes=tuple(v.dtype for v in self.entries),
            storage_ids=tuple(s.slot for s in storages),
            devices=tuple(s.device for s in storages) if any(s.device for s in storages) else (),
            arena_offsets=() if is_open else tuple(_offset(slots[n].place) for n in range(len(slots))),
            image_widths=widths if any(widths) else (),
            storage_scopes=tuple(s.scope for s in storages) if any(widths) else (),
            variants=tuple(self.variants),
            sizes=_size_rows(program.sizes, (d for shape in shapes for d in shape if isinstance(d, Extent))),
            states=tuple(n for n, v in enumerate(leaves) if v.storage.lifetime is Lifetime.STATE),
            lifetimes=self.lifetimes(len(slots)) if is_open else (),
        )

    def lifetimes(self, slots: int) -> tuple[int, ...]:
        """First and last step of each slot whose place sizes decide, -1 and -1 for others."""
        spans = lifetimes(self.program)
        planned = {v.storage.slot for v in self.program.values if v.storage.place is None}
        return tuple(step for n in range(slots) for step in (spans[n] if n in planned else (-1, -1)))

    def node(self, node: GraphNode, outputs: Sequence[str]) -> None:
        """Append a node and the entries of its outputs."""
        for output, name in enumerate(outputs):
            if self.values[name].storage.lifetime is not Lifetime.STATE or node.op == "null":
                self.places[name] = len(self.nodes), output, 0  # who reads a state reads it as it was
            self.entries.append(self.values[name])
        self.nodes.append(node)

    def statements(self, body: Sequence[Statement]) -> None:
        for statement in body:
            if isinstance(statement, Return):
                self.heads += (self.places[name] for name in statement.values)
            elif isinstance(statement, Variant):
                begin, first = len(self.nodes), len(self.heads)
                self.statements(statement.body)
                inputs = tuple(self.places[name][0] for name in statement.inputs)
                self.variants.append(VariantRow((begin, len(self.nodes)), inputs, (first, len(self.heads) - first)))
            else:
                self.statement(statement)

    def statement(self, statement: Statement) -> None:
        """The node of a statement, then those of its bodies."""
        function, attrs = self.function(statement)
        outputs = writes(statement)
        lives = {self.values[name].storage.lifetime for name in outputs}
        if Lifetime.PREPARED in lives:
            attrs["load_time"] = "1"
        elif Lifetime.SIZED in lives and isinstance(statement, Call):
            attrs["size_time"] = "1"
        index, name = len(self.nodes), getattr(statement, "name", "")
        edges = tuple(self.places[value] for value in reads(statement))
        self.node(
            GraphNode("tvm_op", name, edges, function, len(outputs), {**attrs, **self.notes.get(function, {})}), outputs
        )
        counts = []
        for part in bodies(statement):
            begin = len(self.nodes)
            self.statements(part)
            counts.append(len(self.nodes) - begin)
        if counts:
            first, second = counts if len(counts) == 2 else (*counts, 0)
            own = {"first_nodes": str(first), "second_nodes": str(second), **self.nodes[index].attrs}
            self.nodes[index] = replace(self.nodes[index], attrs=own)

    def function(self, statement: Statement) -> tuple[str, dict[str, str]]:
        """What the node of a statement calls, and its attributes."""
        match statement:
            case Call(function):
                return function, {}
            case Move("copy", (source,), output):
                is_far = self.values[source].storage.device != self.values[output].storage.device
                return "__copy" if is_far else "__nop", {}
            case Move():
                return "__nop", {}
            case Bind(size):
                return "__bind", {"size": size}
            case Equal((a, b), (of_a, of_b)):
                return "__equal", {"a": str(a), "b": str(b), "of_a": of_a, "of_b": of_b}
            case If():
                return "__if", {}
            case Loop():
                states = len(statement.states)
                scans = len(statement.outputs) - states - 2
                return "__loop", {"states": str(states), "scans": str(scans), "trips": str(statement.trips)}
            case Yield():
                return "__yield", {}
        raise AssertionError(f"{type(statement).__name__} is no node")


def _offset(place: int | None) -> int:
    return -1 if place is None else place


def _size_rows(sizes: Sequence[Size], dims: Iterable[Extent]) -> tuple[SizeRow, ...]:
    """The sizes, whose lower bounds are such that no dimension is negative: `n - 8` wants eight or more."""
    known = {each.name: each for each in sizes}
    lows = {name: each.low for name, each in known.items()}
    for dim in dict.fromkeys(dims):
        for name in sizes_of([dim]) if _at(dim, lows) < 0 else ():
            each = known[name]
            steps = range(each.low, each.high + 1, each.step)
            place = bisect.bisect_left(steps, 0, key=lambda n, d=dim, own=name: _at(d, {**lows, own: n}))  # type: ignore[misc]
            if place < len(steps):
                lows[name] = max(lows[name], steps[place])
    return tuple(
        SizeRow(s.name, lows[s.name], s.high, s.step, max(s.typical, lows[s.name]) if s.typical else 0) for s in sizes
    )


def _at(dim: Extent, values: Mapping[str, int]) -> int:
    """The dimension at values of its sizes; 0 where it is a number of elements divided by none."""
    try:
        return evaluate(dim, values)
    except ZeroDivisionError:
        return 0
