"""Chains of many nodes compile in bounded time, and types are nested to a bound: nothing recurses over what users size.

The times allowed are ten times what one core needs; work that grows with the square of the nodes would take hours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from armillary import arith, lower, relay, te, tir
from armillary.driver.build import build
from armillary.errors import UnsupportedError
from armillary.frontend import from_onnx
from armillary.ir import IRModule
from armillary.relay.ty import TupleType
from armillary.relay.types import tensor_type
from armillary.runtime import cpu
from armillary.transform import PassContext

X = np.array([0.5, -1.0, 2.0, 0.25], np.float32)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Of the processor: what the machine does besides does not count."""
    start = time.process_time()
    yield
    assert time.process_time() - start < seconds


def _add_relu(i: int, x: str, y: str) -> NodeProto:
    return helper.make_node("Add", [x, "c"], [y]) if i % 2 else helper.make_node("Relu", [x], [y])


def _concat_slice(i: int, x: str, y: str) -> NodeProto:
    return (
        helper.make_node("Slice", [x, "one", "five"], [y])
        if i % 2
        else helper.make_node("Concat", [x, "x"], [y], axis=0)
    )


def _softmax(i: int, x: str, y: str) -> NodeProto:
    return helper.make_node("Softmax", [x], [y])


def _convolutions(i: int, x: str, y: str) -> NodeProto:
    return helper.make_node("Relu", [x], [y]) if i % 2 else helper.make_node("Conv", [x, "w"], [y], pads=[1, 1, 1, 1])


CHAINS = {"add, relu": _add_relu, "concat, slice": _concat_slice, "softmax": _softmax, "conv, relu": _convolutions}


def chain(node: Callable[[int, str, str], NodeProto], count: int, shape: tuple[int, ...] = (4,)) -> ModelProto:
    """A network of `count` nodes, each of which reads the one before."""
    weights = np.random.default_rng(0).random((4, 4, 3, 3), np.float32) / 36
    constants = {"c": np.full(4, 0.001, np.float32), "one": np.array([1]), "five": np.array([5]), "w": weights}
    nodes = [node(i, f"v{i - 1}" if i else "x", f"v{i}") for i in range(count)]
    used = {name for n in nodes for name in n.input}
    initial = [numpy_helper.from_array(a, name) for name, a in constants.items() if name in used]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    result = helper.make_tensor_value_info(f"v{count - 1}", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "chain", [given], [result], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def answer(model: ModelProto, level: int, x: np.ndarray) -> np.ndarray:
    module, params = from_onnx(model)
    with PassContext(opt_level=level):
        graph = build(module, "llvm", params=params)["default"](cpu(0))
    graph.set_input("x", x)
    graph.run()
    return np.asarray(graph.get_output(0).numpy())


def known(name: str, count: int) -> np.ndarray:
    """The answer, by numpy."""
    y = X
    for i in range(count):
        match name:
            case "add, relu":
                y = y + np.float32(0.001) if i % 2 else np.maximum(y, 0)
            case "concat, slice":
                y = y[1:5] if i % 2 else np.concatenate([y, X])
            case "softmax":
                y = np.exp(y - y.max()) / np.exp(y - y.max()).sum()
    return y


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("name", ["add, relu", "concat, slice", "softmax"])
def test_four_thousand_nodes(name: str, level: int) -> None:
    with within(120):
        np.testing.assert_allclose(answer(chain(CHAINS[name], 4_000), level, X), known(name, 4_000), rtol=1e-4)


def test_a_thousand_convolutions() -> None:
    model = chain(_convolutions, 2_000, (1, 4, 8, 8))
    x = np.random.default_rng(1).random((1, 4, 8, 8), np.float32)
    with within(200):
        found = answer(model, 3, x)
    np.testing.assert_allclose(found, answer(model, 0, x), rtol=1e-2, atol=1e-30)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["add, relu", "concat, slice", "softmax"])
def test_a_hundred_thousand_nodes(name: str) -> None:
    with within(600):
        np.testing.assert_allclose(answer(chain(CHAINS[name], 100_000), 3, X), known(name, 100_000), rtol=1e-3)


def test_tuples_are_nested_to_a_bound() -> None:
    x = relay.var("x", shape=(4,))
    deep: relay.Expr = x
    for _ in range(3_000):
        deep = relay.Tuple([deep, x])
    with pytest.raises(UnsupportedError, match="nested more than 64 deep"):
        relay.transform.InferType()(IRModule.from_expr(relay.Function([x], deep)))


def test_a_tuple_of_itself_has_a_bound_too() -> None:
    pair = TupleType((tensor_type((4,)),) * 2)
    for _ in range(18):
        pair = TupleType((pair, pair))
    with within(10), pytest.raises(UnsupportedError, match=r"a tuple has [0-9,]+ tensors, at most 1,048,576"):
        TupleType((TupleType((pair, pair)), TupleType((pair, pair))))


def test_fields_of_many_tuples_one_after_another_compile() -> None:
    x = relay.var("x", shape=(4,))
    value: relay.Expr = x
    for _ in range(3_000):
        value = relay.TupleGetItem(relay.Tuple([value, x]), 0)
    with within(60):
        build(IRModule.from_expr(relay.Function([x], value)), "llvm")


def _deep_sum(terms: int) -> tir.Expr:
    found: tir.Expr = te.var("x")
    for _ in range(terms):
        found = found * 2 + 1
    return found


def _stages(count: int) -> tuple[te.Schedule, list[te.Tensor]]:
    first = last = te.placeholder((8,), name="a")
    for _ in range(count):
        last = te.compute((8,), lambda i, x=last: x[i] + 1.0)
    return te.create_schedule(last.op), [first, last]


DEEP: dict[str, Callable[[], object]] = {
    "an expression as text": lambda: str(_deep_sum(2_000)),
    "an expression, simplified": lambda: arith.Analyzer().simplify(_deep_sum(2_000)),
    "an expression, substituted": lambda: tir.stmt_functor.substitute(_deep_sum(2_000), {te.var("y"): 1}),
    "stages one after another": lambda: lower(*_stages(1_200)),
}


@pytest.mark.parametrize("case", DEEP)
def test_what_is_nested_too_deeply_for_loop_programs_is_said(case: str) -> None:
    with within(60), pytest.raises(UnsupportedError, match="nested too deeply"):
        DEEP[case]()
