"""From the graph of a package to a run program.

In: a GraphSpec and the names of its parameters. Out: a Program that says the same. Invariant: every entry of the graph
is a value, in the order of the graph, inputs and constants first; nothing is computed here. What to_graph.py has
written reads back as the program that it was.
"""

from __future__ import annotations

from collections.abc import Collection

from armillary.artifact import GraphNode, GraphSpec
from armillary.base.extent import Size
from armillary.base.names import Names, identifier
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
    Variant,
    Yield,
)
from armillary.text.extent import parse_extent


def program_of(spec: GraphSpec, params: Collection[str]) -> Program:
    """The program of a graph whose parameters have these names."""
    return _Reader(spec, frozenset(params)).program()


class _Reader:
    def __init__(self, spec: GraphSpec, params: frozenset[str]) -> None:
        self.spec, self.params = spec, params
        self.rows = spec.node_row_ptr
        self.sizes = {row.name: Size(row.name, row.low, row.high, row.step, row.typical) for row in spec.sizes}
        self.nodes = [index for index, node in enumerate(spec.nodes) for _ in range(node.num_outputs)]  # by entry
        leaves = [n for n in spec.arg_nodes if spec.nodes[n].name not in params]
        self.leaves = [self.rows[n] for n in (*leaves, *(n for n in spec.arg_nodes if n not in set(leaves)))]
        self.written = {self.rows[i] for i, node in enumerate(spec.nodes) if self._state_slot(i, node) is not None}
        self.names = self._names()
        self.sized = {spec.storage_ids[self.rows[i]] for i, node in enumerate(spec.nodes) if node.is_size_time}
        self.heads = {spec.storage_ids[self.rows[node] + output] for node, output, _ in spec.heads}

    def _names(self) -> dict[int, str]:
        """A name for each entry: an input's own as an identifier, `t` and a number for what is computed."""
        names = Names()
        result = {entry: names.fresh(identifier(self.spec.nodes[self.nodes[entry]].name)) for entry in self.leaves}
        computed = [n for n in range(self.rows[-1]) if n not in result and n not in self.written]
        return result | {entry: names.fresh(f"t{number}") for number, entry in enumerate(computed)}

    def program(self) -> Program:
        spec = self.spec
        values = tuple(map(self._value, self.names))
        if not spec.variants:
            body = (*self._statements(0, len(spec.nodes)), self._returned(0, len(spec.heads)))
            return Program(tuple(self.sizes.values()), values, body)
        early = (index for index, node in enumerate(spec.nodes) if node.is_load_time)
        shared = (self._statement(index, spec.nodes[index]) for index in early)
        variants = []
        for row in spec.variants:
            body = (*self._statements(*row.nodes, shared=False), self._returned(*row.heads))
            inputs = (self.names[self.rows[spec.arg_nodes[n]]] for n in row.inputs)
            variants.append(Variant(tuple(inputs), body))
        return Program(tuple(self.sizes.values()), values, (*shared, *variants))

    def _returned(self, first: int, count: int) -> Return:
        heads = self.spec.heads[first : first + count]
        return Return(tuple(self.names[self.rows[node] + output] for node, output, _ in heads))

    def _state_slot(self, index: int, node: GraphNode) -> int | None:
        """The slot of the state that a node copies to."""
        if node.func_name != "__nop" or len(node.inputs) != 1:
            return None
        source, output, _ = node.inputs[0]
        slot, ids = self.spec.storage_ids[self.rows[index]], self.spec.storage_ids
        is_state = slot in {ids[self.rows[n]] for n in self.spec.states}
        return slot if is_state and slot != ids[self.rows[source] + output] else None

    def _value(self, entry: int) -> Value:
        spec, index = self.spec, self.nodes[entry]
        slot = spec.storage_ids[entry]
        place: int | None = spec.arena_offsets[slot] if spec.arena_offsets else -1
        if spec.lifetimes:
            place = None if spec.lifetimes[2 * slot] >= 0 else -1
        device = spec.devices[entry] if spec.devices else 0
        scope = spec.storage_scopes[entry] if spec.storage_scopes else "global"
        width = spec.image_widths[slot] if spec.image_widths else 0
        shape = tuple(d if isinstance(d, int) else parse_extent(d, sizes=self.sizes) for d in spec.shapes[entry])
        storage = Storage(self._lifetime(index, slot), slot, place, device, scope, width)
        name, own = self.names[entry], spec.nodes[index]
        label = own.name if own.op == "null" and own.name != name else None
        return Value(name, str(spec.dltypes[entry]), shape, storage, label)

    def _lifetime(self, index: int, slot: int) -> Lifetime:
        node = self.spec.nodes[index]
        if node.op == "null":
            if index in self.spec.states:
                return Lifetime.STATE
            return Lifetime.CONSTANT if node.name in self.params else Lifetime.INPUT
        if node.is_load_time:
            return Lifetime.PREPARED
        if slot in self.sized:
            return Lifetime.SIZED
        return Lifetime.OUTPUT if slot in self.heads else Lifetime.TRANSIENT

    def _statements(self, begin: int, end: int, shared: bool = True) -> tuple[Statement, ...]:
        """The statements of nodes [begin, end), those that variants share left out where `shared` says so."""
        result: list[Statement] = []
        index = begin
        while index < end:
            node = self.spec.nodes[index]
            if node.op != "null" and (shared or not self.spec.nodes[index].is_load_time):
                result.append(self._statement(index, node))
            index += 1 + sum(int(node.attrs.get(key, 0)) for key in ("first_nodes", "second_nodes"))
        return tuple(result)

    def _statement(self, index: int, node: GraphNode) -> Statement:
        inputs = tuple(self.names[self.rows[source] + output] for source, output, _ in node.inputs)
        if (slot := self._state_slot(index, node)) is not None:
            states = (self.rows[n] for n in self.spec.states)
            (state,) = (self.names[entry] for entry in states if self.spec.storage_ids[entry] == slot)
            return Move("write", inputs, state, node.name)
        outputs = tuple(self.names[entry] for entry in range(self.rows[index], self.rows[index + 1]))
        first = int(node.attrs.get("first_nodes", 0))
        body = self._statements(index + 1, index + 1 + first)
        match node.func_name:
            case "__nop":
                return Move(self._move(index, node), inputs, outputs[0], node.name)
            case "__copy":
                return Move("copy", inputs, outputs[0], node.name)
            case "__bind":
                return Bind(node.attrs["size"], inputs[0], node.name)
            case "__equal":
                a, b = (parse_extent(node.attrs[side], sizes=self.sizes) for side in "ab")
                return Equal((a, b), (node.attrs["of_a"], node.attrs["of_b"]), node.name)
            case "__yield":
                return Yield(inputs, node.name)
            case "__if":
                last = index + 1 + first + int(node.attrs["second_nodes"])
                return If(inputs[0], body, self._statements(index + 1 + first, last), outputs, node.name)
            case "__loop":
                trips = int(node.attrs.get("trips", -1))
                return Loop(inputs[0], inputs[1], inputs[2:], body, outputs, trips, node.name)
        return Call(node.func_name, inputs, outputs, node.name)

    def _move(self, index: int, node: GraphNode) -> str:
        """What a node that computes nothing does: a view lies where its input does."""
        if len(node.inputs) > 1:
            return "join"
        (source, output, _), ids = node.inputs[0], self.spec.storage_ids
        return "view" if ids[self.rows[index]] == ids[self.rows[source] + output] else "copy"
