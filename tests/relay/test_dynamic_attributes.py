"""Attributes that are values of the running program: typed by rank, run by every kind of executor."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import relay
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
