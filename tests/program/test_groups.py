"""Concurrent groups: neighbours that do not read one another's results, in programs and in what runs."""

from __future__ import annotations

import numpy as np

from armillary import relay
from armillary.artifact import GraphSpec
from armillary.ir import IRModule
from armillary.program.lifetimes import MOST, steps_of
from armillary.program.text import parse_program
from armillary.runtime import GraphExecutor, config_threadpool, cpu


def groups(body: str, values: str = "abcdefgh", lifetime: str = "transient") -> list[tuple[int, int]]:
    """The group of each statement of a program over values of these names."""
    rows = "\n".join(f"%{name}: float32[4] {lifetime} slot {n + 1}" for n, name in enumerate(values))
    text = f"program () {{ %x: float32[4] input slot 0 %k: float32[4] prepared slot 99 {rows} {body} return }}"
    return [step.group for step in steps_of(parse_program(text))][:-1]


def test_neighbours_that_do_not_read_one_another_are_a_group() -> None:
    body = "call f(%x) -> %a call f(%x) -> %b call f(%a) -> %c call f(%b) -> %d call f(%c, %d) -> %e"
    assert groups(body) == [(0, 1), (0, 1), (2, 3), (2, 3), (4, 4)]


def test_views_and_joins_pass_on_whose_results_they_show() -> None:
    body = "call f(%x) -> %a call f(%x) -> %b join %a, %b -> %c view %c -> %d call f(%d) -> %e call f(%x) -> %g"
    assert groups(body)[4:] == [(4, 5), (4, 5)]
    assert groups(body)[0] == (0, 1)


def test_branches_and_prepared_values_belong_to_no_group() -> None:
    body = "call f(%x) -> %a call f(%x) -> %k call f(%x) -> %b if %x { yield } else { yield } -> call f(%x) -> %c"
    assert groups(body) == [(0, 2), (0, 2), (0, 2), (3, 3), (4, 4), (5, 5), (6, 6)]


def test_variants_have_groups_of_their_own() -> None:
    two = "call f(%x) -> %{} call f(%x) -> %{}"
    body = f"variant (%x) {{ {two.format('a', 'b')} }} variant (%x) {{ {two.format('c', 'd')} }}"
    assert groups(body) == [(0, 0), (1, 2), (1, 2), (3, 3), (4, 5), (4, 5)]


def test_a_group_has_a_largest_size() -> None:
    names = "abcdefghij"[: MOST + 2]
    body = " ".join(f"call f(%x) -> %{name}" for name in names)
    assert [last - first + 1 for first, last in groups(body, names)] == [MOST] * MOST + [2, 2]


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
