"""Slices by expressions and tensors, and sums over symbolic axes, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, topi
from armillary.errors import ArmillaryError
from armillary.te.tensor import Tensor


def run(tensors: list[Tensor], result: Tensor, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """The result of tensors for arrays."""
    built = armillary.build(te.create_schedule(result.op), [*tensors, result], "llvm")
    out = armillary.nd.empty(shape, str(result.dtype))
    built(*(armillary.nd.array(array) for array in arrays), out)
    return np.asarray(out.numpy())


X = np.arange(60, dtype="float32").reshape(3, 4, 5)
CASES = [
    ([0, 0, 0], [3, -5, 5], [1, -1, 2], (slice(0, 3), slice(0, -5, -1), slice(0, 5, 2))),
    ([1, -3, 0], [3, 4, 9], [2, 1, 3], (slice(1, 3, 2), slice(-3, 4), slice(0, 9, 3))),
    ([2, 3, -1], [-9, 0, 1], [-1, -2, -1], (slice(2, None, -1), slice(3, 0, -2), slice(-1, 1, -1))),
]


@pytest.mark.parametrize(("begin", "end", "steps", "where"), CASES)
def test_bounds_are_read_when_the_slice_runs(
    begin: list[int], end: list[int], steps: list[int], where: tuple[slice, ...]
) -> None:
    want = X[where]
    a = te.placeholder((3, 4, 5), name="a")
    bounds = [te.placeholder((3,), name=n, dtype="int64") for n in ("b", "e", "s")]
    arrays = [X, *(np.array(v, "int64") for v in (begin, end, steps))]
    for made in (topi.strided_slice(a, *bounds), topi.dynamic_strided_slice(a, *bounds, want.shape)):
        np.testing.assert_array_equal(run([a, *bounds], made, arrays, want.shape), want)


@pytest.mark.parametrize(("begin", "end", "steps", "where"), CASES)
def test_a_slice_is_replaced(begin: list[int], end: list[int], steps: list[int], where: tuple[slice, ...]) -> None:
    want = X.copy()
    values = -np.arange(1, X[where].size + 1, dtype="float32").reshape(X[where].shape)
    want[where] = values
    a, v = te.placeholder((3, 4, 5), name="a"), te.placeholder(values.shape, name="v")
    bounds = [te.placeholder((3,), name=n, dtype="int32") for n in ("b", "e", "s")]
    arrays = [X, values, *(np.array(x, "int32") for x in (begin, end, steps))]
    np.testing.assert_array_equal(run([a, v, *bounds], topi.strided_set(a, v, *bounds), arrays, X.shape), want)
    numbers = topi.strided_set(a, v, begin, end, steps)
    np.testing.assert_array_equal(run([a, v], numbers, [X, values], X.shape), want)


def test_bounds_that_are_left_out_are_those_of_the_axis() -> None:
    want = X.copy()
    want[1:, ::] = -1.0
    a, v = te.placeholder((3, 4, 5), name="a"), te.placeholder((2, 4, 5), name="v")
    made = topi.strided_set(a, v, [1], [3])
    np.testing.assert_array_equal(run([a, v], made, [X, np.full((2, 4, 5), -1, "float32")], X.shape), want)


def test_ends_that_are_none_are_those_of_the_axis() -> None:
    a = te.placeholder((3, 4, 5), name="a")
    made = topi.strided_slice(a, [1, None, 2], [None, 3, None], [1, 2, 1])
    np.testing.assert_array_equal(run([a], made, [X], (2, 2, 3)), X[1:, :3:2, 2:])
    with pytest.raises(ArmillaryError, match="left out"):
        topi.strided_slice(a, [None, 0, 0], [3, 4, 5], [-1, 1, 1])


def test_expressions_cut_some_axes() -> None:
    n, first = te.var("n"), te.var("first")
    a, dummy = te.placeholder((3, 4, n), name="a"), te.placeholder((first,), name="dummy")
    made = topi.strided_slice(a, [first, -3], [n, 4], [2, 1], axes=[2, 1])
    assert [str(made.shape[0]), str(made.shape[1])] == ["3", "3"]
    got = run([a, dummy], made, [X, np.zeros(1, "float32")], (3, 3, 2))
    np.testing.assert_array_equal(got, X[:, -3:, 1::2])
    with pytest.raises(ArmillaryError, match="1 begins, 2 ends and 1 axes"):
        topi.strided_slice(a, [first], [n, 4])


@pytest.mark.parametrize("inner", [3, 1])
def test_letters_of_symbolic_sizes(inner: int) -> None:
    k, m, n = te.var("k"), te.var("m"), te.var("n")
    a, b = te.placeholder((2, k), name="a"), te.placeholder((m, n), name="b")
    x, y = np.random.rand(2, 3).astype("float32"), np.random.rand(inner, 4).astype("float32")
    got = run([a, b], topi.einsum("ij,jk->ik", a, b), [x, y], (2, 4))
    np.testing.assert_allclose(got, x @ np.broadcast_to(y, (3, 4)), rtol=1e-5)


def test_sums_to_a_symbolic_shape() -> None:
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((2, n, 4, m), name="a")
    x = np.random.rand(2, 3, 4, 5).astype("float32")
    got = run([a], topi.collapse_sum(a, (n, 1, m)), [x], (3, 1, 5))
    np.testing.assert_allclose(got, x.sum((0, 2), keepdims=True)[0], rtol=1e-5)


def test_one_tensor_summed_is_another_tensor() -> None:
    a = te.placeholder((3,), name="a")
    np.testing.assert_array_equal(run([a], topi.elemwise_sum([a]), [X[0, 0, :3]], (3,)), X[0, 0, :3])


def test_positions_that_are_floats() -> None:
    a, at = te.placeholder((3, 4, 5), name="a"), te.placeholder((2, 2), name="at")
    where = np.array([[0, 2], [1, 3]], "float32")
    got = run([a, at], topi.gather_nd(a, at), [X, where], (2, 5))
    np.testing.assert_array_equal(got, X[[0, 2], [1, 3]])


def test_sizes_in_the_order_of_another_layout() -> None:
    assert topi.utils.get_shape((2, 3, 32, 8, 16), "NCHW16c", "NC16cWH") == (2, 3, 16, 8, 32)
    with pytest.raises(ArmillaryError, match="4 sizes of layout NCHW, in the order of NHW"):
        topi.utils.get_shape((1, 2, 3, 4), "NCHW", "NHW")


def test_blocks_of_space_and_boxes_that_stay() -> None:
    a = te.placeholder((1, 3, 5), name="a")
    made = topi.nn.space_to_batch_nd(a, [2, 3], [1, 0], [0, 1], 7.0)
    assert tuple(int(n) for n in made.shape) == (6, 2, 2)
    got = run([a], made, [X[:1, :3]], (6, 2, 2))
    assert got[0, 0, 0] == 7.0 and got[3, 0, 0] == X[0, 0, 0]
    classes, moves = te.placeholder((1, 2, 3), name="c"), te.placeholder((1, 12), name="l")
    anchors = te.placeholder((1, 3, 4), name="b")
    found = topi.vision.ssd.multibox_detection(classes, moves, anchors)
    scores = np.array([[[0.1, 0.2, 0.3], [0.9, 0.8, 0.7]]], "float32")
    boxes = np.array([[[0, 0, 0.4, 0.4], [0, 0, 0.41, 0.4], [0.5, 0.5, 1, 1]]], "float32")
    out = run([classes, moves, anchors], found, [scores, np.zeros((1, 12), "float32"), boxes], (1, 3, 6))
    assert sorted(out[0, :, 1][out[0, :, 0] >= 0].tolist()) == pytest.approx([0.7, 0.9])


def test_types_of_numpy_name_types() -> None:
    assert armillary.nd.empty((2,), dtype=np.dtype("int16")).dtype == "int16"
    assert te.placeholder((2,), dtype=np.float64).dtype == "float64"
    with pytest.raises(ArmillaryError, match="a dtype is named by a text, got type"):
        te.placeholder((2,), dtype=dict)  # type: ignore[arg-type]


def test_tables_that_a_resize_needs_are_stored_before_they_are_read() -> None:
    a = te.placeholder((1, 1, 3, 4), name="a")
    made = topi.image.resize2d(a, (0.0, 0.0, 0.0, 0.0), (40, 4), layout="NCHW", method="linear")
    assert "constant" in [stage.op.name for stage in te.create_schedule(made.op).stages]
    x = np.random.rand(1, 1, 3, 4).astype("float32")
    rows = np.clip((np.arange(40) + 0.5) * 3 / 40 - 0.5, 0, 2)
    low = np.minimum(rows.astype(int), 1)
    share = (rows - low)[:, None]
    want = x[0, 0, low] * (1 - share) + x[0, 0, low + 1] * share
    np.testing.assert_allclose(run([a], made, [x], (1, 1, 40, 4))[0, 0], want, rtol=1e-5, atol=1e-6)
