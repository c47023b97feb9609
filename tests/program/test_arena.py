"""The arena plan: no two buffers alive together overlap, and reuse really happens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.program.arena import ALIGNMENT, Buffer, plan_memory

lifetime = st.builds(
    lambda nbytes, first, length: Buffer(nbytes, first, first + length),
    st.integers(0, 5000),
    st.integers(0, 30),
    st.integers(0, 8),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(lifetime, max_size=40))
def test_buffers_alive_in_the_same_step_never_overlap(lives: list[Buffer]) -> None:
    plan = plan_memory(lives)
    for i, a in enumerate(lives):
        assert plan.offsets[i] % ALIGNMENT == 0
        assert plan.offsets[i] + a.nbytes <= plan.total
        for j, b in enumerate(lives[:i]):
            together = a.first <= b.last and b.first <= a.last
            apart = plan.offsets[i] + a.nbytes <= plan.offsets[j] or plan.offsets[j] + b.nbytes <= plan.offsets[i]
            assert not together or apart or 0 in (a.nbytes, b.nbytes)


def test_a_chain_needs_only_its_two_largest_neighbours() -> None:
    chain = [Buffer(1024, step, step + 1) for step in range(20)]
    assert plan_memory(chain).total == 2 * 1024


@pytest.mark.parametrize("count", [0, 1])
def test_trivial_plans(count: int) -> None:
    plan = plan_memory([Buffer(1, 0, 0)] * count)
    assert plan.total == count * ALIGNMENT
