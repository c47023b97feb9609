"""topk, sort and argsort give the order of a stable sort, by whichever way a row's length and k choose."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import IRModule, cpu, relay
from armillary.artifact import Descriptor
from armillary.contrib.graph_executor import GraphModule
from armillary.ops.reduce.sort import ACROSS, SHORT, numpy_argsort

N = 3000
RNG = np.random.default_rng(7)
ROWS = {
    "random": RNG.standard_normal((3, N)),
    "in order": np.arange(N)[None],
    "backwards": np.arange(N)[None, ::-1],
    "many equal": RNG.integers(0, 9, (2, N)),
    "all equal": np.zeros((1, N)),
    "few above zero": np.where(RNG.random((1, N)) < 0.01, 1.0, 0.0),
    "both zeros": np.where(RNG.random((1, N)) < 0.5, -0.0, 0.0),
    "first in one place": np.where(np.arange(N)[None] // 100 == 7, RNG.random((1, N)) + 9, RNG.random((1, N))),
    "not numbers": np.where(RNG.random((2, N)) < 0.01, np.nan, RNG.standard_normal((2, N))),
    "only not numbers": np.full((1, N), -np.nan),
    "infinite": np.where(RNG.random((2, N)) < 0.5, -np.inf, np.inf),
}
BITS = {"float32": "int32", "float64": "int64", "float16": "int16"}


def _top(data: np.ndarray, k: int, axis: int, ascending: bool) -> tuple[list[np.ndarray], Descriptor]:
    x = relay.var("x", shape=data.shape, dtype=str(data.dtype))
    found = relay.topk(x, k=k, axis=axis, ret_type="both", is_ascend=ascending)
    library = relay.build(IRModule.from_expr(relay.Function([x], found)), target="llvm")
    net = GraphModule(library["default"](cpu()))
    net.run(x=data)
    return [net.get_output(i).numpy() for i in (0, 1)], library.descriptor


def _check(data: np.ndarray, k: int, axis: int, ascending: bool) -> None:
    (values, places), _ = _top(data, k, axis, ascending)
    order = np.take(numpy_argsort(data, axis % data.ndim, ascending), range(k), axis=axis)
    np.testing.assert_array_equal(places, order)
    wanted = np.take_along_axis(data, order, axis)
    bits = BITS.get(str(data.dtype), str(data.dtype))
    np.testing.assert_array_equal(values.view(bits), wanted.view(bits))  # the very elements: -0 is not 0


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("k", [1, 40, 700, N])
@pytest.mark.parametrize("name", ROWS)
def test_long_rows_are_in_the_order_of_a_stable_sort(name: str, k: int, ascending: bool) -> None:
    _check(np.ascontiguousarray(ROWS[name], np.float32), k, -1, ascending)


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize(
    "dtype", ["float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
)
def test_every_type_has_keys_in_its_order(dtype: str, ascending: bool) -> None:
    if dtype.startswith("float"):
        edges = [np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0, np.finfo(dtype).smallest_subnormal]
        data = np.concatenate([edges, RNG.standard_normal(400) * 100]).astype(dtype)
    else:
        info = np.iinfo(dtype)
        data = RNG.integers(info.min, info.max, 407, dtype, endpoint=True)
        data[[3, 50, 90]], data[[4, 80]] = info.min, info.max
    for k in (7, 60, 407):
        _check(data[None], k, -1, ascending)


@pytest.mark.parametrize("k", [1, 5, 16, 17, 100])
@pytest.mark.parametrize("size", [SHORT, SHORT + 1, 255, 256, 1000, 4099])
def test_rows_that_end_inside_a_block(size: int, k: int) -> None:
    _check(RNG.integers(0, 5 * k, (2, size)).astype(np.float32), k, -1, False)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("k", [3, 40])
def test_other_axes(axis: int, k: int) -> None:
    shape = [3, 2, 3]
    shape[axis] = 500
    _check(RNG.standard_normal(shape).astype(np.float32), k, axis, True)


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("k", [1, 2, ACROSS, ACROSS + 1])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((16, 9), 1), ((37, 60), 1), ((2, 3, 5, 20), -1), ((11, 33), 0), ((3, 30, 4, 5), 1), ((1, 21), 0), ((40, 2), 1)],
)
def test_short_rows_side_by_side(shape: tuple[int, ...], axis: int, k: int, ascending: bool) -> None:
    values = RNG.integers(-3, 4, shape).astype(np.float32)
    values.reshape(-1)[::7], values.reshape(-1)[::11], values.reshape(-1)[::13] = np.nan, -0.0, -np.inf
    least, k = np.iinfo(np.int32).min, min(k, shape[axis])
    _check(values, k, axis, ascending)
    _check(np.where(values > 0, least, ~least * (values < 0)).astype(np.int32), k, axis, ascending)


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 128, 129, 300, 1025])
def test_sort_and_argsort(size: int) -> None:
    data = RNG.integers(0, size, (2, size)).astype(np.float32)
    x = relay.var("x", shape=data.shape)
    for ascending in (False, True):
        found = relay.Tuple([relay.sort(x, is_ascend=ascending), relay.argsort(x, is_ascend=ascending)])
        net = GraphModule(relay.build(IRModule.from_expr(relay.Function([x], found)), target="llvm")["default"](cpu()))
        net.run(x=data)
        order = numpy_argsort(data, 1, ascending)
        np.testing.assert_array_equal(net.get_output(1).numpy(), order)
        np.testing.assert_array_equal(net.get_output(0).numpy(), np.take_along_axis(data, order, 1))


def test_a_long_row_needs_no_workspace_of_its_length() -> None:
    _, descriptor = _top(np.zeros((1, N), np.float32), 40, -1, False)
    assert sum(row.thread_workspace + row.workspace for row in descriptor.functions.values()) < 4 * N
