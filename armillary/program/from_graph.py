"""From the graph of a package to a run program.

In: a GraphSpec and the names of its parameters. Out: a Program that says the same. Invariant: every entry of the graph
is a value, in the order of the graph; nothing is computed here. Graphs of several variants are refused: each variant is
a program of its own.
"""

from __future__ import annotations

from collections.abc import Collection

from armillary.artifact import GraphNode, GraphSpec
from armillary.base.extent import Size
from armillary.base.names import Names, identifier
from armillary.errors import UnsupportedError
from armillary.program.nodes import (
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
    Storage,
    Value,
    Yield,
)
from armillary.text.extent import parse_extent


def program_of(spec: GraphSpec, params: Collection[str]) -> Program:
    """The program of a graph; UnsupportedError for one with variants."""
    if spec.variants:
        raise UnsupportedError(
            f"the graph has {len(spec.variants)} variants, each a program of its own", hint="compile one set of shapes"
        )
    return _Reader(spec, frozenset(params)).program()


class _Reader:
    def __init__(self, spec: GraphSpec, params: frozenset[str]) -> None:
        self.spec, self.params = spec, params
        self.rows = spec.node_row_ptr
        self.sizes = {row.name: Size(row.name, row.low, row.high, row.step) for row in spec.sizes}
        self.names = self._names()
        self.heads = {spec.storage_ids[spec.entry(node, output)] for node, output, _ in spec.heads}

    def _names(self) -> list[str]:
        """A name for each entry: an input's own as an identifier, `t` and a number for what is computed."""
        names = Names()
        result = []
        for index, node in enumerate(self.spec.nodes):
            for output in range(node.num_outputs):
                entry = self.rows[index] + output
                result.append(names.fresh(identifier(node.name) if node.op == "null" else f"t{entry}"))
        return result

    def program(self) -> Program:
        spec = self.spec
        body = self._statements(0, len(spec.nodes))
        heads = tuple(self.names[spec.entry(node, output)] for node, output, _ in spec.heads)
        written = {self.rows[i] for i, node in enumerate(self.spec.nodes) if self._state_of(i, node) is not None}
        values = tuple(self._value(entry) for entry in range(self.rows[-1]) if entry not in written)
        return Program(tuple(self.sizes.values()), values, (*body, Return(heads)))

    def _state_of(self, index: int, node: GraphNode) -> str | None:
        """The state that a node copies to."""
        if node.func_name != "__nop" or len(node.inputs) != 1:
            return None
        source, output, _ = node.inputs[0]
        slot, ids = self.spec.storage_ids[self.rows[index]], self.spec.storage_ids
        places = {ids[self.rows[n]]: self.names[self.rows[n]] for n in self.spec.states}
        return places.get(slot) if slot != ids[self.spec.entry(source, output)] else None

    def _value(self, entry: int) -> Value:
        spec = self.spec
        index = next(i for i in range(len(spec.nodes)) if self.rows[i] <= entry < self.rows[i + 1])
        slot = spec.storage_ids[entry]
        lifetime = self._lifetime(spec.nodes[index], slot)
        place: int | None = spec.arena_offsets[slot] if spec.arena_offsets else -1
        if spec.lifetimes:
            place = None if spec.lifetimes[2 * slot] >= 0 else -1
        device = spec.devices[entry] if spec.devices else 0
        scope = spec.storage_scopes[entry] if spec.storage_scopes else "global"
        shape = tuple(d if isinstance(d, int) else parse_extent(d, sizes=self.sizes) for d in spec.shapes[entry])
        return Value(self.names[entry], str(spec.dltypes[entry]), shape, Storage(lifetime, slot, place, device, scope))

    def _lifetime(self, node: GraphNode, slot: int) -> Lifetime:
        if node.op == "null":
            if self.spec.nodes.index(node) in self.spec.states:
                return Lifetime.STATE
            return Lifetime.CONSTANT if node.name in self.params else Lifetime.INPUT
        if node.attrs.get("load_time") == "1":
            return Lifetime.PREPARED
        return Lifetime.OUTPUT if slot in self.heads else Lifetime.TRANSIENT

    def _statements(self, begin: int, end: int) -> tuple[Statement, ...]:
        result: list[Statement] = []
        index = begin
        while index < end:
            node = self.spec.nodes[index]
            if node.op != "null":
                result.append(self._statement(index, node))
            index += 1 + sum(int(node.attrs.get(key, 0)) for key in ("first_nodes", "second_nodes"))
        return tuple(result)

    def _statement(self, index: int, node: GraphNode) -> Statement:
        inputs = tuple(self.names[self.spec.entry(source, output)] for source, output, _ in node.inputs)
        outputs = tuple(self.names[self.rows[index] : self.rows[index + 1]])
        first = int(node.attrs.get("first_nodes", 0))
        body = self._statements(index + 1, index + 1 + first)
        match node.func_name:
            case "__nop":
                if (state := self._state_of(index, node)) is not None:
                    return Move("write", inputs, state)
                return Move("view" if len(inputs) == 1 else "join", inputs, outputs[0])
            case "__copy":
                return Move("copy", inputs, outputs[0])
            case "__bind":
                return Bind(node.attrs["size"], inputs[0])
            case "__equal":
                a, b = (parse_extent(node.attrs[side], sizes=self.sizes) for side in "ab")
                return Equal((a, b), (node.attrs["of_a"], node.attrs["of_b"]), node.name)
            case "__yield":
                return Yield(inputs)
            case "__if":
                last = index + 1 + first + int(node.attrs["second_nodes"])
                return If(inputs[0], body, self._statements(index + 1 + first, last), outputs)
            case "__loop":
                return Loop(inputs[0], inputs[1], inputs[2:], body, outputs, int(node.attrs.get("trips", -1)))
        return Call(node.func_name, inputs, outputs)
