"""What the threads of a run did: from spans to shares, on spans made by hand and on those of a run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from armillary import relay
from armillary.driver.trace import WHOLE, Share, joined, shares
from armillary.ir import IRModule
from armillary.runtime import GraphExecutor, config_threadpool, cpu, executor
from armillary.runtime.node_times import Span


def row(begin: float, end: float, thread: int = WHOLE, node: int = 5, phase: int = 0) -> Span:
    return Span(begin, end, node, phase, thread)


def test_a_phase_is_computing_waiting_for_the_slowest_and_overhead() -> None:
    spans = [row(0, 10), row(0, 4, 0), row(1, 5, 1), row(4, 9, 0), row(5, 6, 1)]
    assert shares(spans, 2) == {5: Share(10, computing=7, uneven=1.5, calls=1)}
    assert shares(spans, 2)[5].overhead == pytest.approx(1.5)  # one thread began 1 late, both joined 1 late


def test_a_serial_phase_keeps_the_other_threads_waiting() -> None:
    assert shares([row(0, 8), row(0, 8, 0)], 4) == {5: Share(8, computing=2, uneven=6, calls=1)}


def test_phases_and_repetitions_of_a_node_add_up() -> None:
    once = [row(0, 2), row(0, 2, 0), row(2, 3, phase=1), row(2, 3, 0, phase=1)]
    other = [row(3, 4, node=6), row(3, 4, 0, node=6)]
    again = [row(4, 4.5), row(4, 4.5, 0), row(4.5, 5, phase=1)]
    assert shares([*once, *other, *again], 1) == {5: Share(4, 3.5, 0, calls=2), 6: Share(1, 1, 0, calls=1)}


def test_phases_side_by_side_share_the_waiting_by_their_work() -> None:
    """Node 5 is 6 of 8 parts of the work; thread 1 is done 2 before thread 0, and joining takes 1."""
    phases = [Span(0, 4.5, 5, 0, WHOLE, 1), Span(4.5, 6, 6, 0, WHOLE, 0)]
    spans = [phases[0], row(0, 4, 0), row(0, 2, 1), row(2, 3, 1, node=6), phases[1], row(4, 5, 0, node=6)]
    after = [row(6, 7, node=7), row(6, 7, 0, node=7)]
    found = shares([*spans, *after], 2)
    assert found == {5: Share(4.5, 3, 0.75, 1), 6: Share(1.5, 1, 0.25, 1), 7: Share(1, 0.5, 0.5, 1)}


def test_spans_without_a_visible_pause_are_drawn_as_one() -> None:
    spans = [row(0, 9), row(0, 4, 0), row(1, 5, 1), row(4.001, 8, 0), row(6, 9, 1), row(9, 10, node=6)]
    found = joined(spans, 10)
    assert [(s.thread, s.begin, s.end, s.node) for s in found] == [
        (WHOLE, 0, 9, 5),
        (WHOLE, 9, 10, 6),
        (0, 0, 8, 5),
        (1, 1, 5, 5),
        (1, 6, 9, 5),
    ]


@pytest.fixture
def graph() -> Iterator[GraphExecutor]:
    x = relay.var("x", shape=(64, 48))
    w = relay.const(np.random.default_rng(0).standard_normal((40, 48), "float32"))
    library = relay.build(IRModule.from_expr(relay.Function([x], relay.nn.dense(x, w))), "llvm")
    config_threadpool(0, 2)
    made: GraphExecutor = library["default"](cpu(0))
    made.set_input("x", np.ones((64, 48), np.float32))
    yield made
    config_threadpool(0, 0)


def test_a_traced_run_computes_the_same_and_its_windows_lie_in_their_phases(graph: GraphExecutor) -> None:
    graph.run()
    plain = graph.get_output(0).numpy().copy()
    graph.get_output(0).copyfrom(np.zeros_like(plain))
    seconds, spans = graph.trace()
    np.testing.assert_array_equal(graph.get_output(0).numpy(), plain)
    assert [s.begin for s in spans] == sorted(s.begin for s in spans) and {s.thread for s in spans} >= {WHOLE, 0}
    assert all(0 <= s.begin <= s.end <= seconds and s.thread < 2 for s in spans)
    phases = {(s.node, s.phase): s for s in spans if s.thread == WHOLE}
    for span in spans:
        whole = phases[span.node, span.phase]
        assert whole.begin <= span.begin and span.end <= whole.end
    assert sum(s.seconds for s in shares(spans, 2).values()) <= seconds


def test_a_trace_that_is_too_long_for_its_buffer_is_taken_again(
    graph: GraphExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "SPANS", 1)
    _, spans = graph.trace()
    assert len(spans) > 1 and any(s.thread == 0 for s in spans)


def test_a_call_without_kernels_takes_microseconds(graph: GraphExecutor) -> None:
    assert 0 < min(graph.call_seconds(100) for _ in range(5)) < 1e-3
