"""Control flow of exported programs: cond, while_loop, scan and map, as Relay's If and Loop.

In: a node of a higher-order operator, its graph modules and operands. Out: the values it gives. Invariant: a branch
that is known to be taken stands alone; a body is imported once and called when the model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from armillary.errors import Span, UnsupportedError
from armillary.frontend.folding.fold import Folder
from armillary.frontend.values import Value, is_tensor, op, reshape_to, scalar, shape_of, type_of
from armillary.relay.expr import Constant, Expr, Function, If, Loop, Tuple, TupleGetItem, Var
from armillary.relay.types import scalar_type

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

_FOREVER = np.array(np.iinfo(np.int64).max)


class Walk(Protocol):
    """What control flow needs of the import in progress."""

    folder: Folder

    def run(self, module: GraphModule, inputs: Sequence[Value]) -> list[Value]:
        """The values that a graph returns."""

    def span(self, node: Node) -> Span:
        """Where a node is."""


def cond(walk: Walk, node: Node, arguments: list[Value]) -> Value:
    """torch.cond: both branches, one of which runs; one alone where the condition is known."""
    condition, yes, no, operands = arguments
    value = walk.folder.value(condition) if is_tensor(condition) else condition
    if value is not None:
        return walk.run(yes if bool(np.all(value)) else no, operands)
    results = [walk.run(branch, operands) for branch in (yes, no)]
    types = [[type_of(_as_tensor(v)) for v in row] for row in results]
    if types[0] != types[1]:
        raise UnsupportedError(f"cond: the branches give {types[0]} and {types[1]}")
    first, second = (Tuple(tuple(_as_tensor(v) for v in row)) for row in results)
    made = If(_scalar(condition), first, second, walk.span(node))
    return [TupleGetItem(made, k) for k in range(len(types[0]))]


def while_loop(walk: Walk, node: Node, arguments: list[Value]) -> Value:
    """torch.while_loop: the condition is computed before the loop and at the end of each iteration."""
    test, body, carried, extra = arguments
    first = [_as_tensor(v) for v in carried]
    states = _variables(walk, "state", first)
    outer = _variables(walk, "outer", extra)
    number, flag = Var("number", scalar_type("int64")), Var("going", scalar_type("bool"))
    results = _settled(walk, node, walk.run(body, [*states, *outer]))
    again = _scalar(walk.run(test, [*results, *outer])[0])
    for before, after in zip(states, results, strict=True):
        if type_of(before) != type_of(after):
            raise UnsupportedError(f"while_loop: a carried value changes from {type_of(before)} to {type_of(after)}")
    begins = _scalar(walk.run(test, [*first, *extra])[0])
    made = Loop(
        Function((number, flag, *states, *(v for v in outer if isinstance(v, Var))), Tuple((again, *results))),
        Constant(_FOREVER),
        begins,
        (*first, *_passed(extra, outer)),
        len(states),
        -1,
        walk.span(node),
    )
    return [TupleGetItem(made, k) for k in range(len(states))]


def scan(walk: Walk, node: Node, arguments: list[Value]) -> Value:
    """torch scan along the first axis: states, then what each step gives, stacked."""
    body, first, xs, extra = arguments
    states, whole = _variables(walk, "state", first), _variables(walk, "whole", xs)
    outer = _variables(walk, "outer", extra)
    number, flag = Var("number", scalar_type("int64")), Var("going", scalar_type("bool"))
    length = shape_of(xs[0])[0]
    slices = _settled(walk, node, [op("take", x, number, axis=0, mode="clip") for x in whole])
    results = _settled(walk, node, walk.run(body, [*states, *slices, *outer]))
    carried, rows = results[: len(states)], results[len(states) :]
    for before, after in zip(states, carried, strict=True):
        if type_of(before) != type_of(after):
            raise UnsupportedError(f"scan: a carried value changes from {type_of(before)} to {type_of(after)}")
    params = (number, flag, *states, *whole, *(v for v in outer if isinstance(v, Var)))
    made = Loop(
        Function(params, Tuple((flag, *carried, *rows))),
        Constant(np.array(length, np.int64)),
        Constant(np.array(True)),
        (*first, *xs, *_passed(extra, outer)),
        len(states),
        length,
        walk.span(node),
    )
    return [TupleGetItem(made, k) for k in range(len(results))]


def _variables(walk: Walk, name: str, values: Sequence[Value]) -> list[Value]:
    """A variable of a body for each tensor from outside; what is known stays, unless it is a state."""
    result: list[Value] = []
    for k, value in enumerate(values):
        if not is_tensor(value) or (name == "outer" and walk.folder.is_known(value)):
            result.append(value)
            continue
        variable = Var(f"{name}{k}", type_of(value))
        walk.folder.stand_ins[id(variable)] = (variable, value)
        result.append(variable)
    return result


def _passed(values: Sequence[Value], inside: Sequence[Value]) -> list[Expr]:
    """The values for which a body has variables."""
    return [v for v, variable in zip(values, inside, strict=True) if isinstance(variable, Var)]


def _settled(walk: Walk, node: Node, values: Sequence[Value]) -> list[Expr]:
    return [walk.folder.settle(_as_tensor(v), walk.span(node)) for v in values]


def _as_tensor(value: Value) -> Expr:
    if is_tensor(value):
        return value
    return scalar(value, "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32")


def _scalar(value: Value) -> Expr:
    """A condition without dimensions."""
    tensor = _as_tensor(value)
    return reshape_to(tensor, ()) if shape_of(tensor) else tensor


HIGHER_ORDER: dict[str, Callable[[Walk, Node, list[Value]], Value]] = {
    "higher_order.cond": cond,
    "higher_order.while_loop": while_loop,
    "higher_order.scan": scan,
}
