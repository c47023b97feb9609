"""A partitioned function as JSON: nodes input, const and kernel, as runtimes of libraries read it.

In: a function that partition-graph made, and a rule that says of each call which kernel it is. Out: a `JsonModule`: the
text and the constants in the order of its const nodes. Invariant: node i reads only nodes before it; inputs come first,
in the order of the function's parameters; attributes are lists of one list of texts, shapes are numbers.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from armillary.base.json_types import JsonObject
from armillary.base.record import record
from armillary.offload.contract import JsonModule
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from armillary.relay.op import Op
from armillary.relay.types import tensor_fields
from armillary.relay.walk import not_primitive, post_order


@record
class Kernel:
    """A kernel node: its name, the values it reads (of the function, or constants) and its attributes."""

    name: str
    inputs: tuple[Expr, ...]
    attrs: Mapping[str, Sequence[str]]


Rule = Callable[[Call], Kernel]


def texts(value: object) -> tuple[str, ...]:
    """An attribute as the JSON has it: texts, numbers so that they read back equal."""
    if isinstance(value, tuple | list):
        return tuple(text for item in value for text in texts(item))
    if value is None:
        return ("",)
    if isinstance(value, bool):
        return (str(int(value)),)
    return (repr(float(value)) if isinstance(value, float) else str(value),)


def attributes(attrs: Any) -> dict[str, tuple[str, ...]]:  # Any: each operator has its own attrs class
    """The fields of an operator's attributes as texts; what was chosen for our own kernels is not one of them."""
    if attrs is None:
        return {}
    return {f.name: texts(getattr(attrs, f.name)) for f in dataclasses.fields(attrs) if f.name != "choice"}


def arguments(call: Call) -> dict[int, Expr]:
    """What each parameter of a composite is at its call, by id."""
    return {id(p): a for p, a in zip(call.op.params, call.args, strict=True)}


def plain_kernel(call: Call) -> Kernel:
    """A call as a kernel of the same name; of a composite, its name, its arguments and then its constants."""
    if isinstance(call.op, Op):
        return Kernel(call.op.name, call.args, attributes(call.attrs))
    inside = [e for e in post_order(call.op.body) if isinstance(e, Constant)]
    return Kernel(str(call.op.get_attr("Composite", "")), (*call.args, *inside), {})


class _Writer:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix  # of the names of constants
        self.nodes: list[JsonObject] = []  # Any: JSON
        self.arg_nodes: list[int] = []
        self.rows = [0]
        self.constants: list[Constant] = []
        self.values: dict[int, list[list[int]]] = {}

    def add(self, node: JsonObject, expr: Expr) -> None:  # Any: JSON
        types = tensor_fields(expr.checked_type)
        node["attrs"] |= {
            "shape": [[list(t.static) for t in types]],
            "dtype": [[str(t.dtype) for t in types]],
        }
        self.values[id(expr)] = [[len(self.nodes), i, 0] for i in range(len(types))]
        self.nodes.append(node)
        self.rows.append(self.rows[-1] + len(types))

    def leaf(self, op: str, name: str, expr: Expr) -> None:
        self.arg_nodes.append(len(self.nodes))
        self.add({"op": op, "name": name, "attrs": {}}, expr)

    def constant(self, symbol: str, expr: Constant) -> None:
        self.leaf("const", f"{self.prefix}{symbol}_const_{len(self.constants)}", expr)
        self.constants.append(expr)

    def kernel(self, lowered: Kernel, call: Call, symbol: str) -> None:
        inputs: list[list[int]] = []
        for expr in flattened(lowered.inputs):
            if isinstance(expr, Constant) and id(expr) not in self.values:
                self.constant(symbol, expr)
            inputs += self.values[id(expr)]
        outputs = len(tensor_fields(call.checked_type))
        attrs: JsonObject = {"num_inputs": str(len(inputs)), "num_outputs": str(outputs)}  # Any: JSON
        attrs |= {name: [list(value)] for name, value in lowered.attrs.items()}
        self.add({"op": "kernel", "name": lowered.name, "inputs": inputs, "attrs": attrs}, call)


def flattened(values: Iterable[Expr]) -> list[Expr]:
    """Values, with the fields of tuples in place of tuples."""
    return [part for e in values for part in (flattened(e.fields) if isinstance(e, Tuple) else [e])]


def as_json(function: Function, rule: Rule = plain_kernel, constants: str = "") -> JsonModule:
    """Write a partitioned function; `rule` gives the kernel of each call; `constants` begins the names of constants."""
    symbol = str(function.get_attr("global_symbol", "main"))
    writer = _Writer(constants)
    for k, param in enumerate(function.params):
        writer.leaf("input", f"{symbol}_i{k}", param)
    for expr in post_order(function.body, not_primitive):
        match expr:
            case Call():
                writer.kernel(rule(expr), expr, symbol)
            case Tuple(fields):
                writer.values[id(expr)] = [v for f in fields for v in writer.values.get(id(f), [])]
            case TupleGetItem(of, index):
                writer.values[id(expr)] = [writer.values[id(of)][index]]
            case Var() | Constant() | Function() | Op() | _:
                pass
    text = {
        "symbol": symbol,
        "nodes": writer.nodes,
        "arg_nodes": writer.arg_nodes,
        "heads": writer.values[id(function.body)],
        "node_row_ptr": writer.rows,
    }
    return JsonModule(json.dumps(text), tuple(writer.constants))
