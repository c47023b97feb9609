"""Attributes that are values of the running program: typed by rank, run by every kind of executor."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import relay, te
from armillary.errors import TypeMismatch, UnsupportedError

X = np.arange(24, dtype="float32").reshape(2, 3, 4)


def _vector(name, size):
    return relay.var(name, relay.TensorType((size,), "int64"))


def _data():
    return relay.var("x", relay.TensorType((2, 3, 4), "float32"))


def _cases():
    x, y, b, e = _data(), _vector("y", 2), _vector("b", 3), _vector("e", 3)
    k = relay.var("k", relay.TensorType((), "int32"))
    ones = relay.const(np.ones((3, 1), "float32"))
    yield "reshape", [x, y], relay.reshape(x, y), [X, np.array([8, -1])], X.reshape(8, 3)
    cut = relay.nn.relu(relay.strided_slice(x, b, e))
    yield "slice", [x, b, e], cut, [X, np.array([0, 1, 0]), np.array([2, 3, -1])], X[0:2, 1:3, :-1]
    yield "topk", [x, k], relay.topk(x, k, axis=2, ret_type="values"), [X, np.int32(2)], X[..., :1:-1]
    yield "full", [y], relay.full(relay.const(2.0), y, "float32"), [np.array([2, 1])], np.full((2, 1), 2.0)
    yield "broadcast_to", [b], relay.broadcast_to(ones, b), [np.array([2, 3, 2])], np.ones((2, 3, 2))
    yield "tile", [x, b], relay.tile(x, b), [X, np.array([1, 2, 1])], np.tile(X, (1, 2, 1))
    numbers = relay.arange(relay.const(0), k, relay.const(1), dtype="int32")
    yield "arange", [k], numbers, [np.int32(5)], np.arange(5)
    hot = relay.one_hot(y, relay.const(1.0), relay.const(0.0), k, -1, "float32")
    yield "one_hot", [y, k], hot, [np.array([0, 2]), np.int32(4)], np.eye(4)[[0, 2]]
    widths = relay.cast(relay.broadcast_to(k, (3, 2)), "int64")
    yield "pad", [x, k], relay.nn.pad(x, widths), [X, np.int32(1)], np.pad(X, 1)


CASES = {name: rest for name, *rest in _cases()}


@pytest.mark.parametrize("name", CASES)
def test_the_interpreter_reads_the_values(name):
    params, body, values, expected = CASES[name]
    module = armillary.IRModule.from_expr(relay.Function(params, body))
    assert body.checked_type == relay.TensorType((relay.Any(),) * np.ndim(expected), body.checked_type.dtype)
    assert relay.parse(module.astext())["main"].checked_type == module["main"].checked_type
    np.testing.assert_array_equal(relay.create_executor("debug", module).evaluate()(*values).numpy(), expected)


@pytest.mark.parametrize("name", ["slice", "arange"])
def test_compiled_kinds_compile_for_each_set_of_values(name):
    params, body, values, expected = CASES[name]
    run = relay.create_executor("vm", armillary.IRModule.from_expr(relay.Function(params, body))).evaluate()
    np.testing.assert_array_equal(run(*values).numpy(), expected)
    others = [np.int32(2)] if name == "arange" else [X, np.array([1, 0, 1]), np.array([2, 1, 3])]
    np.testing.assert_array_equal(run(*others).numpy(), np.arange(2) if name == "arange" else X[1:2, 0:1, 1:3])
    np.testing.assert_array_equal(run(*values).numpy(), expected)


def test_values_that_become_known_leave_the_operators_own_call():
    x, y = _data(), _vector("y", 2)
    function = relay.Function([x, y], relay.reshape(x, y))
    bound = relay.build_module.bind_params_by_name(function, {"y": np.array([6, 4])})
    module = relay.transform.DynamicToStatic()(armillary.IRModule.from_expr(bound))
    assert module["main"].body.op.name == "reshape" and module["main"].checked_type.ret_type.shape == (6, 4)
    direct = relay.reshape(x, relay.const(np.array([6, 4])))
    assert direct.op.name == "reshape"


def test_values_that_do_not_fit_and_builds_without_them_are_refused():
    x, y = _data(), _vector("y", 2)
    module = armillary.IRModule.from_expr(relay.Function([x, y], relay.reshape(x, y)))
    with pytest.raises(TypeMismatch, match="reshape"):
        relay.create_executor("debug", module).evaluate()(X, np.array([5, 5]))
    with pytest.raises((TypeMismatch, UnsupportedError)):
        relay.build(module, "llvm")
    with pytest.raises(TypeMismatch, match="how many numbers newshape holds is not known"):
        relay.reshape(x, relay.var("s", relay.TensorType((relay.Any(),), "int64"))).checked_type  # noqa: B018
    with pytest.raises(TypeMismatch, match="unknown attribute 'shape'"):
        relay.reshape(x, shape=y)


def test_sizes_that_a_resize_does_not_touch_stay_known() -> None:
    n = te.size_var("n")
    image, size = relay.var("x", relay.TensorType((n, 3, 8, 8))), _vector("size", 2)
    ty = relay.image.resize2d(image, size, layout="NCHW").checked_type
    assert ty.shape[:2] == image.type_annotation.shape[:2] and not any(isinstance(d, int) for d in ty.shape[2:])
    factor = relay.var("f", relay.TensorType((), "float32"))
    ty = relay.nn.upsampling(image, factor, factor).checked_type
    assert ty.shape[:2] == image.type_annotation.shape[:2] and not any(isinstance(d, int) for d in ty.shape[2:])


def test_a_reshape_to_a_shape_that_is_a_value_has_a_gradient() -> None:
    x, shape = _data(), _vector("y", 2)
    function = relay.Function([x, shape], relay.reshape(x, shape) * relay.const(3.0))
    value, (grad, _) = relay.create_executor("debug").evaluate(relay.transform.gradient(function))(X, np.array([8, 3]))
    np.testing.assert_array_equal(value.numpy(), 3 * X.reshape(8, 3))
    np.testing.assert_array_equal(grad.numpy(), np.full_like(X, 3))


def test_what_else_a_value_may_be_has_no_gradient() -> None:
    x, reps = _data(), _vector("reps", 3)
    with pytest.raises(UnsupportedError, match="operator tile with attributes that are values has no gradient"):
        relay.transform.gradient(relay.Function([x, reps], relay.tile(x, reps)))


@pytest.mark.parametrize("kind", ["debug", "vm"])
def test_a_count_in_a_tensor_of_one_float_is_a_count(kind):
    x, k = _data(), relay.var("k", relay.TensorType((1,), "float32"))
    body = relay.topk(x, k, axis=2, ret_type="both")
    run = relay.create_executor(kind, armillary.IRModule.from_expr(relay.Function([x, k], body))).evaluate()
    values, places = run(X, np.array([2], "float32"))
    np.testing.assert_array_equal(values.numpy(), X[..., :1:-1])
    np.testing.assert_array_equal(places.numpy(), np.broadcast_to([3, 2], (2, 3, 2)))


def test_axes_that_a_slice_with_ends_that_are_values_leaves_whole_stay_known():
    x, end, step = _data(), _vector("e", 2), _vector("s", 1)
    any_dim = relay.Any()
    cut = relay.strided_slice(x, [0, 0], end)
    assert cut.checked_type == relay.TensorType((any_dim, any_dim, 4)) and cut.checked_type.shape[2] == 4
    named = relay.strided_slice(x, [0], step, axes=[1])
    assert named.checked_type.shape[0] == 2 and named.checked_type.shape[2] == 4
    stepped = relay.strided_slice(x, [0, 0, 0], [2, 2, 2], step)
    assert not any(isinstance(d, int) for d in stepped.checked_type.shape)
