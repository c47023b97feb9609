"""Calls that run side by side: which do, with what results, and what keeps others apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from armillary import runtime
from armillary.artifact import GraphNode, GraphSpec
from armillary.errors import ExecutionError
from armillary.runtime import GraphExecutor, Module, config_threadpool

BOX = (6, 8)
BYTES = 192  # of a box
CALL = "tvm_op"
Calls = Sequence[tuple[str, tuple[int, ...]]]


@pytest.fixture(params=[1, 2, 5], autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    config_threadpool(0, request.param)
    yield request.param
    config_threadpool(0, 0)


def boxes(module: Module, inputs: int, calls: Calls, heads: Sequence[int], offsets: Sequence[int]) -> GraphExecutor:
    """Calls of functions of boxes, each with the nodes it reads; `offsets` of theirs in the arena, or -1."""
    nodes = [GraphNode("null", f"x{i}") for i in range(inputs)]
    nodes += [
        GraphNode(CALL, f"{name}{inputs + k}", tuple((n, 0, 0) for n in reads), name)
        for k, (name, reads) in enumerate(calls)
    ]
    spec = GraphSpec(
        tuple(nodes),
        tuple(range(inputs)),
        tuple((n, 0, 0) for n in heads),
        (BOX,) * len(nodes),
        ("float32",) * len(nodes),
        tuple(range(len(nodes))),
        (*[-1] * inputs, *offsets),
    )
    made: GraphExecutor = runtime.create_graph_module(spec.to_json(), {}, module, runtime.cpu(0))
    for i in range(inputs):
        made.set_input(f"x{i}", value(i))
    return made


def value(seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(BOX).astype(np.float32)


def centered(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    made: np.ndarray[Any, Any] = x - x.sum(1, keepdims=True)
    return made


def concurrent_groups(graph: GraphExecutor) -> list[set[int]]:
    """The nodes that ran together, by the phases of a traced run."""
    found: list[set[int]] = []
    _, spans = graph.trace()
    is_open = False
    for span in (s for s in spans if s.thread < 0):
        if not is_open and not (found and span.phase):
            found.append(set())
        found[-1].add(span.node)
        is_open = span.rest > 0
    return found


def check(graph: GraphExecutor, outputs: Sequence[np.ndarray[Any, Any]]) -> None:
    for _ in range(20):
        graph.run()
        for i, wanted in enumerate(outputs):
            np.testing.assert_allclose(graph.get_output(i).numpy(), wanted, atol=1e-5)


def test_branches_run_together_and_what_reads_them_after(module: Module) -> None:
    """Each has its own workspace: `center` keeps sums there between its phases."""
    calls = [("center", (0,)), ("center", (1,)), ("positive", (2,)), ("center", (3,)), ("center", (4,))]
    graph = boxes(module, 3, calls, (5, 6, 7), (0, BYTES, -1, -1, -1))
    graph.set_input("x2", abs(value(2)))
    assert concurrent_groups(graph) == [{3, 4, 5}, {6, 7}]
    check(graph, (abs(value(2)), centered(centered(value(0))), centered(centered(value(1)))))


def test_no_more_than_eight_run_together(module: Module) -> None:
    graph = boxes(module, 11, [("center", (i,)) for i in range(11)], range(11, 22), [-1] * 11)
    assert concurrent_groups(graph) == [set(range(11, 19)), {19, 20, 21}]
    check(graph, [centered(value(i)) for i in range(11)])


def test_a_call_that_writes_where_another_reads_waits(module: Module) -> None:
    """The second result lies where the first call's operand was: the plan knew of no group."""
    calls = [("center", (0,)), ("center", (2,)), ("center", (1,)), ("center", (4,))]
    graph = boxes(module, 2, calls, (3, 5), (0, -1, 0, -1))
    assert concurrent_groups(graph) == [{2}, {3}, {4}, {5}]
    check(graph, (centered(centered(value(0))), centered(centered(value(1)))))


def test_a_failure_names_the_call_it_is_of(module: Module) -> None:
    graph = boxes(module, 2, [("center", (0,)), ("positive", (1,))], (2, 3), (-1, -1))
    with pytest.raises(ExecutionError, match="positive: an element is negative"):
        graph.run()
    graph.set_input("x1", abs(value(1)))
    check(graph, (centered(value(0)), abs(value(1))))


def test_a_run_from_the_middle_of_a_group_runs_what_is_asked_for(module: Module) -> None:
    graph = boxes(module, 3, [("center", (i,)) for i in range(3)], (3, 4, 5), (-1, -1, -1))
    outputs = [graph.get_output(i) for i in range(3)]
    for output in outputs:
        output.copyfrom(np.full(BOX, 7, np.float32))
    graph.run_nodes(4, 5)
    results = [output.numpy() for output in outputs]
    np.testing.assert_allclose(results[1], centered(value(1)), atol=1e-5)
    assert (results[0] == 7).all() and (results[2] == 7).all()


def test_nodes_are_timed_one_by_one(module: Module) -> None:
    graph = boxes(module, 2, [("center", (0,)), ("center", (1,))], (2, 3), (-1, -1))
    assert [row.name for row in graph.profile() if row.seconds > 0] == ["center2", "center3"]
