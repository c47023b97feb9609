"""Rows written into a list of TensorFlow, as its converter writes them: three operators, read as one.

In: the operators of a graph. Out: the same, with DYNAMIC_UPDATE_SLICE where

    CONCATENATION(SLICE(x, 0, [i, -1 …]), row, SLICE(x, [i + 1, 0 …], -1))   ->   x with `row` at i

Invariant: only a graph that says just this is changed; the sizes of the two slices are not known when compiling, that
of what they are put together to is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from armillary.frontend.tflite.schema import Graph, Operator

_JOINS = ("CONCATENATION", "PACK")
_SAME = ("RESHAPE", "EXPAND_DIMS")


def with_row_writes(graph: Graph) -> list[Operator]:
    """The operators of a graph, each row that is written as one."""
    makers = {number: operator for operator in graph.operators for number in operator.outputs}
    readers = Counter(n for operator in graph.operators for n in operator.inputs) + Counter(graph.outputs)
    dropped: set[int] = set()
    result: list[Operator] = []
    for operator in graph.operators:
        parts = _parts(graph, makers, operator)
        if parts is not None and all(readers[part.outputs[0]] == 1 for part in parts):
            before, _ = parts
            dropped |= {id(part) for part in parts}
            # its places are moved to where the row fits, so that -1 counts as 0
            inputs = (before.inputs[0], operator.inputs[1], before.inputs[2])
            operator = replace(operator, name="DYNAMIC_UPDATE_SLICE", inputs=inputs, options=None)
        result.append(operator)
    return [operator for operator in result if id(operator) not in dropped]


def _parts(graph: Graph, makers: dict[int, Operator], operator: Operator) -> tuple[Operator, Operator] | None:
    """The slices before and behind the row that an operator writes, or None where it writes none."""
    if operator.name != "CONCATENATION" or len(operator.inputs) != 3:
        return None
    before, behind = (makers.get(operator.inputs[k]) for k in (0, 2))
    if before is None or behind is None or before.name != "SLICE" or behind.name != "SLICE":
        return None
    if before.inputs[0] != behind.inputs[0] or (operator.options is not None and operator.options.whole(0)):
        return None
    if graph.tensors[operator.inputs[1]].shape[:1] != (1,):
        return None
    place, follower = (_first(graph, makers, n, tail) for n, tail in ((before.inputs[2], -1), (behind.inputs[1], 0)))
    is_whole = _is_all(graph, before.inputs[1], 0) and _is_all(graph, behind.inputs[2], -1)
    step = makers.get(follower)
    is_next = step is not None and step.name == "ADD" and step.inputs[0] == place and _is_all(graph, step.inputs[1], 1)
    return (before, behind) if place >= 0 and is_whole and is_next else None


def _first(graph: Graph, makers: dict[int, Operator], number: int, tail: int) -> int:
    """The tensor whose one number is the first of a vector that ends in `tail`s, or -1."""
    maker = makers.get(number)
    if maker is not None and maker.name in _JOINS:
        number, rest = maker.inputs[0], maker.inputs[1:]
        if not all(_is_all(graph, n, tail) for n in rest):
            return -1
        maker = makers.get(number)
    while maker is not None and maker.name in _SAME:
        number = maker.inputs[0]
        maker = makers.get(number)
    return number


def _is_all(graph: Graph, number: int, value: int) -> bool:
    """Whether a tensor is stored and each of its numbers is this one."""
    tensor = graph.tensors[number]
    return tensor.is_constant and bool(np.all(tensor.array() == value))
