"""topk of long rows: a pool of candidates instead of a sort of the row, in the same order."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import IRModule, cpu, relay
from armillary.artifact import Descriptor
from armillary.contrib.graph_executor import GraphModule

N, K = 3000, 40
RNG = np.random.default_rng(7)
ROWS = {
    "random": RNG.standard_normal((3, N)),
    "in order": np.arange(N)[None],
    "backwards": np.arange(N)[None, ::-1],
    "many equal": RNG.integers(0, 9, (2, N)),
    "all equal": np.zeros((1, N)),
    "few above zero": np.where(RNG.random((1, N)) < 0.01, 1.0, 0.0),
    "not numbers": np.where(RNG.random((2, N)) < 0.01, np.nan, RNG.standard_normal((2, N))),
    "infinite": np.where(RNG.random((2, N)) < 0.5, -np.inf, np.inf),
}


def _top(data: np.ndarray, ascending: bool) -> tuple[list[np.ndarray], Descriptor]:
    x = relay.var("x", shape=data.shape, dtype=str(data.dtype))
    found = relay.topk(x, k=K, ret_type="both", is_ascend=ascending)
    library = relay.build(IRModule.from_expr(relay.Function([x], found)), target="llvm")
    net = GraphModule(library["default"](cpu()))
    net.run(x=data)
    return [net.get_output(i).numpy() for i in (0, 1)], library.descriptor


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_long_rows_are_in_the_order_of_a_stable_sort(name: str, ascending: bool) -> None:
    data = np.ascontiguousarray(ROWS[name], np.float32)
    (values, places), _ = _top(data, ascending)
    order = np.argsort(data if ascending else -data, axis=-1, kind="stable")[:, :K]
    if name == "not numbers" and not ascending:  # largest: first, where numpy has them last
        missing = np.isnan(data).sum(-1)
        for row, count in enumerate(missing):
            rest = [p for p in np.argsort(-data[row], kind="stable") if not np.isnan(data[row, p])]
            order[row] = [*np.flatnonzero(np.isnan(data[row])), *rest][:K]
            assert 0 < count < K
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(data, order, -1))


def test_a_long_row_needs_no_workspace_of_its_length() -> None:
    _, descriptor = _top(np.zeros((1, N), np.float32), False)
    (row,) = descriptor.functions.values()
    assert row.thread_workspace + row.workspace < 4 * N
