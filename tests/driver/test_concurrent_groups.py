"""Companies of calls as the compiler plans them: from networks, with the memory they need."""

from __future__ import annotations

import numpy as np

from armillary import relay
from armillary.artifact import GraphSpec
from armillary.driver.concurrent_groups import MOST, concurrent_groups
from armillary.driver.graph_codegen import NOP, GraphNode
from armillary.ir import IRModule
from armillary.runtime import GraphExecutor, config_threadpool, cpu


def node(func: str | None, *reads: int, **attrs: str) -> GraphNode:
    return GraphNode(f"{func}", func, [(n, 0) for n in reads], (), attrs=attrs)


def test_neighbours_that_do_not_read_one_another_are_a_company() -> None:
    nodes = [node(None), node("a", 0), node("b", 0), node(None), node("c", 1, 3), node("d", 2), node("e", 4, 5)]
    assert concurrent_groups(nodes, NOP) == [(0, 0), (1, 2), (1, 2), (3, 3), (4, 5), (4, 5), (6, 6)]


def test_views_and_joins_pass_on_whose_results_they_show() -> None:
    nodes = [node(None), node("a", 0), node("b", 0), node(NOP, 1, 2), node(NOP, 3), node("c", 4), node("d", 0)]
    assert concurrent_groups(nodes, NOP)[5:] == [(5, 6), (5, 6)]
    assert concurrent_groups(nodes, NOP)[1] == (1, 2)


def test_branches_and_load_time_nodes_belong_to_nobody() -> None:
    nodes = [node(None), node("a", 0), node("w", 0, load_time="1"), node("b", 0), node("__if", 0), node("c", 0)]
    assert concurrent_groups(nodes, NOP) == [(0, 0), (1, 3), (1, 3), (1, 3), (4, 4), (5, 5)]


def test_variants_have_companies_of_their_own() -> None:
    nodes = [node(None), *(node("a", 0) for _ in range(4))]
    assert concurrent_groups(nodes, NOP, {0, 3})[1:] == [(1, 2), (1, 2), (3, 4), (3, 4)]


def test_a_company_has_a_largest_size() -> None:
    nodes = [node(None), *(node("a", 0) for _ in range(MOST + 2))]
    assert [last - first + 1 for first, last in concurrent_groups(nodes, NOP)[1:]] == [MOST] * MOST + [2, 2]


def test_the_plan_keeps_what_a_company_uses_until_its_last_call() -> None:
    """The branches' products are planned apart, and threads do both before they wait."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((32, 32)).astype("float32") for _ in range(5)]
    x = relay.var("x", shape=(40, 32))
    stem = relay.tanh(relay.nn.dense(x, relay.const(weights[0])))
    branches = [relay.tanh(relay.nn.dense(stem, relay.const(w))) for w in weights[1:3]]
    ends = [relay.nn.dense(b, relay.const(w)) for b, w in zip(branches, weights[3:], strict=True)]
    main = relay.Function([x], relay.Tuple(ends))
    library = relay.build(IRModule.from_expr(main), "llvm")
    value = rng.standard_normal((40, 32)).astype("float32")
    wanted = np.tanh(value @ weights[0].T)
    config_threadpool(0, 2)
    try:
        graph: GraphExecutor = library["default"](cpu(0))
        graph.set_input("x", value)
        graph.run()
        for i in range(2):
            result = np.tanh(wanted @ weights[1 + i].T) @ weights[3 + i].T
            np.testing.assert_allclose(graph.get_output(i).numpy(), result, rtol=1e-4, atol=1e-4)
        spans = [s for s in graph.trace()[1] if s.thread < 0]
        assert any(s.rest for s in spans), GraphSpec.from_json(library.graph_json).nodes
    finally:
        config_threadpool(0, 0)
