"""Control flow of exported programs: cond, while_loop, scan and map, as Relay's If and Loop.

In: a node of a higher-order operator, its graph modules and operands. Out: the values it gives. Invariant: a branch
that is known to be taken stands alone; a body is imported once and called when the model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from armillary.errors import Span, UnsupportedError
from armillary.frontend.control import branch, repeat
from armillary.frontend.folding.fold import Folder
from armillary.frontend.values import Value, is_tensor, op, scalar, shape_of, type_of
from armillary.relay.expr import Constant, Expr, Function, Loop, Tuple, TupleGetItem, Var
from armillary.relay.types import scalar_type

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


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
    first, second = ([_as_tensor(v) for v in walk.run(graph, operands)] for graph in (yes, no))
    return branch(_as_tensor(condition), first, second, walk.span(node), "cond")


def while_loop(walk: Walk, node: Node, arguments: list[Value]) -> Value:
    """torch.while_loop: the condition is computed before the loop and at the end of each iteration."""
    test, body, carried, extra = arguments
    first = [_as_tensor(v) for v in carried]
    outer = _variables(walk, "outer", extra)

    def step(_number: Var, states: list[Var]) -> tuple[Expr, list[Expr]]:
        walk.folder.stand_ins |= {id(v): (v, value) for v, value in zip(states, first, strict=True)}
        results = _settled(walk, node, walk.run(body, [*states, *outer]))
        return _as_tensor(walk.run(test, [*results, *outer])[0]), results

    begins = _as_tensor(walk.run(test, [*first, *extra])[0])
    fixed = [(v, value) for v, value in zip(outer, extra, strict=True) if isinstance(v, Var)]
    return repeat(first, step, begins, walk.span(node), "while_loop", fixed=fixed)


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
    loop = Loop(
        Function(params, Tuple((flag, *carried, *rows))),
        Constant(np.array(length, np.int64)),
        Constant(np.array(True)),
        (*first, *xs, *_passed(extra, outer)),
        len(states),
        length,
        walk.span(node),
    )
    return [TupleGetItem(loop, k) for k in range(len(results))]


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


HIGHER_ORDER: dict[str, Callable[[Walk, Node, list[Value]], Value]] = {
    "higher_order.cond": cond,
    "higher_order.while_loop": while_loop,
    "higher_order.scan": scan,
}
