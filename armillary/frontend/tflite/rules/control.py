"""TFLite's control flow: WHILE, IF and CALL, which name further graphs of the file.

In: a node and the values that it passes. Out: Relay's Loop and If around what these graphs compute. Invariant: what a
loop's body hands on as it came is no state, so that sizes and weights stay known inside; a branch that is known to be
taken stands alone; a loop whose body cannot run as it is, because a state grows or a place has to be known, is unrolled
where its conditions are known, within the budget of iterations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.budgets import ITERATIONS
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend.control import branch, repeat
from armillary.frontend.tflite.node import TfliteNode, tflite
from armillary.relay.expr import Expr, Var


@tflite("CALL", options="graph:I")
def call(node: TfliteNode) -> list[Expr]:
    return node.walk.body(node.whole("graph"), node.present)


@tflite("IF", options="yes:i no:i")
def if_(node: TfliteNode) -> list[Expr]:
    condition, *values = node.present
    graphs = node.whole("yes"), node.whole("no")
    known = node.folder.value(condition)
    if known is not None:
        return node.walk.body(graphs[0 if np.all(known) else 1], values)
    yes, no = (node.walk.body(graph, values) for graph in graphs)
    return branch(condition, yes, no, node.span, "IF")


@tflite("WHILE", options="test:i body:i")
def while_(node: TfliteNode) -> list[Expr]:
    try:
        return _running(node)
    except (UnsupportedError, TypeMismatch) as error:
        unrolled = _unrolled(node)
        if unrolled is None:
            raise error from None
        return unrolled


def _running(node: TfliteNode) -> list[Expr]:
    """A loop of the program."""
    test, body, first = node.whole("test"), node.whole("body"), node.present
    graph = node.walk.graph_at(body)
    pairs = zip(graph.inputs, graph.outputs, strict=True)
    moving = [k for k, (before, after) in enumerate(pairs) if before != after]

    def step(_number: Var, states: list[Var]) -> tuple[Expr, Sequence[Expr]]:
        inside: list[Expr] = list(first)
        for k, state in zip(moving, states, strict=True):
            inside[k] = state
        results = node.walk.body(body, inside)
        return node.walk.body(test, results)[0], [results[k] for k in moving]

    begins = node.walk.body(test, first)[0]
    states = repeat([first[k] for k in moving], step, begins, node.span, "WHILE")
    last: list[Expr] = list(first)
    for k, state in zip(moving, states, strict=True):
        last[k] = state
    return last


def _unrolled(node: TfliteNode) -> list[Expr] | None:
    """The values after all iterations; None where a condition is not known."""
    values, count = node.present, 0
    while True:
        going = node.folder.value(node.walk.body(node.whole("test"), values)[0])
        if going is None:
            return None
        if not np.all(going):
            return values
        count += 1
        ITERATIONS.check(count, "WHILE", node.span)
        values = node.walk.body(node.whole("body"), values)
