"""Operators whose result has as many rows as values say; functions of scripts that put limits or shapes first."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import relay, te
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.relay.work import function_work


def _run(kind, params, body, *values):
    module = armillary.IRModule.from_expr(relay.Function(params, body))
    found = relay.create_executor(kind, mod=module).evaluate()(*values)
    return [f.numpy() for f in found] if isinstance(found, list) else found.numpy()


@pytest.mark.parametrize("kind", ["debug", "vm"])
@pytest.mark.parametrize("known", [True, False])
def test_argwhere(kind, known):
    data = np.array([[0, 3, 0], [1, 0, 2]], "float32")
    x = relay.var("x", relay.TensorType(data.shape if known else (relay.Any(), 3), "float32"))
    body = relay.argwhere(x)
    assert body.checked_type == relay.TensorType((relay.Any(), 2), "int32")
    np.testing.assert_array_equal(_run(kind, [x], body, data), np.argwhere(data))
    np.testing.assert_array_equal(_run(kind, [x], relay.argwhere(x) + relay.const(1), data), np.argwhere(data) + 1)


def test_what_compiles_wants_sizes():
    x = relay.var("x", shape=(4,))
    with pytest.raises(UnsupportedError, match="programs of known shapes; a result here is"):
        _run("graph", [x], relay.argwhere(x), np.ones(4, "float32"))


def test_a_size_inside_that_is_a_value_leaves_the_program_to_the_interpreter():
    x = relay.var("x", shape=(5,))
    body = relay.sum(relay.argwhere(x))
    assert _run("vm", [x], body, np.array([0, 1, 0, 1, 1], "float32")) == 1 + 3 + 4


def test_argwhere_of_a_constant_folds():
    folded = armillary.transform.Sequential([relay.transform.FoldConstant()])(
        armillary.IRModule.from_expr(relay.argwhere(relay.const(np.array([0, 1, 1]))))
    )
    np.testing.assert_array_equal(folded["main"].body.data, [[1], [2]])


@pytest.mark.parametrize("kind", ["debug", "vm"])
def test_empty_rows_are_filled(kind):
    where, values, shape = np.array([[1, 4], [1, 0], [3, 2]]), np.array([5, 6, 7]), np.array([5, 6])
    given = [where, values, shape, np.array([-1])]
    params = [relay.var(n, relay.TensorType(v.shape, "int64")) for n, v in zip("abcd", given, strict=True)]
    places, filled, empty = _run(kind, params, relay.sparse_fill_empty_rows(*params).astuple(), *given)
    np.testing.assert_array_equal(places, [[0, 0], [1, 4], [1, 0], [2, 0], [3, 2], [4, 0]])
    np.testing.assert_array_equal(filled, [-1, 5, 6, -1, 7, -1])
    np.testing.assert_array_equal(empty, [True, False, True, False, True])


def test_rows_outside_the_shape_are_refused():
    given = [np.array([[7, 0]]), np.array([1]), np.array([5, 6]), np.array([0])]
    params = [relay.var(n, relay.TensorType(v.shape, "int64")) for n, v in zip("abcd", given, strict=True)]
    with pytest.raises(TypeMismatch, match="outside the 5 rows"):
        _run("debug", params, relay.sparse_fill_empty_rows(*params).astuple(), *given)


def test_sparse_to_dense_takes_the_shape_second():
    a, b = relay.var("a", shape=(2,), dtype="int64"), relay.var("b", shape=(2,), dtype="int64")
    c = relay.var("c", shape=(), dtype="int64")
    body = relay.sparse_to_dense(a, [5], b, c)
    assert body.checked_type == relay.TensorType((5,), "int64")
    found = _run("graph", [a, b, c], body, np.array([1, 4]), np.array([8, 9]), np.array(3))
    np.testing.assert_array_equal(found, [3, 8, 3, 3, 9])
    np.testing.assert_array_equal(
        _run("graph", [a, b], relay.sparse_to_dense(a, [3], b), np.array([1, 2]), np.array([8, 9])), [0, 8, 9]
    )


def test_matrix_set_diag_takes_a_range_and_sides():
    x, d = relay.var("x", shape=(3, 4)), relay.var("d", shape=(2, 3))
    body = relay.matrix_set_diag(x, d, (0, 1), "LEFT_RIGHT")
    data, lines = np.zeros((3, 4), "float32"), np.arange(1, 7, dtype="float32").reshape(2, 3)
    expected = np.diag([1, 2, 3], 1)[:3] + np.eye(3, 4) * [4, 5, 6, 0]
    np.testing.assert_array_equal(_run("graph", [x, d], body, data, lines), expected)
    with pytest.raises(TypeMismatch, match="align 'MIDDLE'"):
        relay.matrix_set_diag(x, d, 0, "MIDDLE")


def test_limits_of_all_class_suppression_may_be_numbers_or_inputs():
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 9, 1, 10]]], "float32")
    scores = np.array([[[0.9, 0.8, 0.7]]], "float32")
    b, s = relay.var("b", shape=boxes.shape), relay.var("s", shape=scores.shape)
    body = relay.vision.all_class_non_max_suppression(b, s, 2, 0.5, 0.0).astuple()
    places, count = _run("graph", [b, s], body, boxes, scores)
    assert count.tolist() == [2] and places.tolist() == [[0, 0, 0], [0, 0, 2], [0, 0, 0]]
    most = relay.var("m", shape=(), dtype="int32")
    body = relay.vision.all_class_non_max_suppression(b, s, most, 0.5, 0.0).astuple()
    places, count = _run("graph", [b, s, most], body, boxes, scores, np.int32(1))
    assert count.tolist() == [1] and places.tolist() == [[0, 0, 0]] * 3


def test_parameters_take_numbers_that_their_dtype_holds():
    w = relay.var("w", shape=(2,), dtype="int64")
    function = relay.Function([w], w + w)
    bound = relay.bind_params_by_name(function, {"w": np.array([1, 2], "int32")})
    assert bound.body.checked_type == relay.TensorType((2,), "int64")
    h = relay.var("h", shape=(1,), dtype="float32")
    with pytest.raises(TypeMismatch, match=r"got Tensor.*float64"):
        relay.bind_params_by_name(relay.Function([h], h), {"h": np.array([0.1])})


def test_extremes_of_bools():
    x = relay.var("x", shape=(2, 2), dtype="bool")
    flags = np.array([[True, False], [True, True]])
    assert _run("graph", [x], relay.op.min(x, axis=1), flags).tolist() == [False, True]
    assert _run("graph", [x], relay.max(x, axis=0), flags).tolist() == [True, True]
    assert relay.min(relay.var("y", shape=(2,))).op.name == "min"


def test_cuts_relative_to_an_unknown_end_are_unknown():
    x = relay.var("x", relay.TensorType((relay.Any(), 4), "float32"))
    body = relay.strided_slice(x, begin=[-3, 0], end=[-1, 2], strides=[1, 1])
    assert body.checked_type == relay.TensorType((relay.Any(), 2), "float32")
    data = np.arange(20, dtype="float32").reshape(5, 4)
    for kind in ("debug", "vm", "graph"):
        np.testing.assert_array_equal(_run(kind, [x], body, data), data[-3:-1, :2])
    sized = relay.strided_slice(x, begin=[1, 0], end=[2, -1], slice_mode="size")
    assert sized.checked_type == relay.TensorType((2, 4), "float32")
    np.testing.assert_array_equal(_run("graph", [x], sized, data), data[1:3])


def test_dilation_and_gathering_of_unknown_sizes():
    x = relay.var("x", relay.TensorType((relay.Any(), 2), "float32"))
    spread = relay.nn.dilate(x, (2, 1))
    assert spread.checked_type == relay.TensorType((relay.Any(), 2), "float32")
    data = np.arange(6, dtype="float32").reshape(3, 2)
    found = _run("vm", [x], spread, data)
    assert found.shape == (5, 2) and (found[::2] == data).all() and not found[1::2].any()
    places = relay.var("places", relay.TensorType((1, relay.Any(), 1), "int64"))
    picked = relay.gather_nd(x, places, batch_dims=1)
    np.testing.assert_array_equal(
        _run("vm", [x, places], picked, data, np.array([[[1], [0], [1]]])), np.take_along_axis(data, _COLUMN, 1)
    )


_COLUMN = np.array([[1], [0], [1]])


def test_fields_of_a_tuple_may_be_numbers():
    ty = relay.TupleType([relay.scalar_type("int64"), relay.scalar_type("int64")])
    pair = relay.var("pair", ty)
    assert _run("debug", [pair], pair[0] - pair[1], (10, 8)) == 2


def test_a_window_may_be_one_number():
    x = relay.var("x", shape=(1, 2, 8, 8))
    body = relay.nn.max_pool2d(x, pool_size=2, strides=2)
    data = np.random.default_rng(0).random((1, 2, 8, 8), "float32")
    expected = data.reshape(1, 2, 4, 2, 4, 2).max((3, 5))
    np.testing.assert_array_equal(_run("graph", [x], body, data), expected)
    work = [function_work(relay.Function([x], relay.nn.max_pool2d(x, pool_size=n, strides=2))) for n in (2, (2, 2))]
    assert work[0] == work[1]
    assert [t for t, _ in relay.testing.enabled_targets()] == ["llvm"]


def test_a_dimension_is_its_simplest_form():
    n, t = te.var("n"), te.var("t")
    x = relay.var("x", relay.TensorType((n, t), "float32"))
    assert relay.concatenate([x, x], axis=1).checked_type == relay.TensorType((n, t + t), "float32")
    assert relay.TensorType((n * 0 + 3,)).static == (3,) and relay.TensorType((n, t + t)) == relay.TensorType(
        (n, 2 * t)
    )
