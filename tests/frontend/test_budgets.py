"""A model of a few bytes that asks for work without end is refused by a budget, at once, with the way to raise it."""

from __future__ import annotations

import time
import tracemalloc
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from armillary import budgets, relay
from armillary.driver.build import build
from armillary.errors import BudgetError
from armillary.frontend import from_onnx
from armillary.transform import PassContext

F, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info = helper.make_tensor_value_info


def model(nodes: list[NodeProto], shape: list[int], weights: dict[str, np.ndarray], **more: object) -> ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [info("x", F, shape)], [info("y", F, None)], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **more)


def doubling_functions(count: int) -> ModelProto:
    """f0 is one node, each other function calls the one before twice."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", "f0", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], opsets)]
    for k in range(1, count + 1):
        nodes = [helper.make_node(f"f{k - 1}", [a], [b], domain="own") for a, b in (("a", "c"), ("c", "b"))]
        functions.append(helper.make_function("own", f"f{k}", ["a"], ["b"], nodes, opsets))
    return model([helper.make_node(f"f{count}", ["x"], ["y"], domain="own")], [2], {}, functions=functions)


def nested_loops(trips: int) -> ModelProto:
    """Three loops in one another; the innermost makes its state grow, so that none can run."""

    def body(depth: int) -> object:
        inner = (
            helper.make_node("Concat", [f"s{depth}", "x"], [f"t{depth}"], axis=0)
            if depth == 0
            else helper.make_node("Loop", ["n", "go", f"s{depth}"], [f"t{depth}"], body=body(depth - 1))
        )
        inputs = [info(f"i{depth}", I64, []), info(f"c{depth}", BOOL, []), info(f"s{depth}", F, None)]
        outputs = [info(f"d{depth}", BOOL, []), info(f"t{depth}", F, None)]
        keep = helper.make_node("Identity", [f"c{depth}"], [f"d{depth}"])
        return helper.make_graph([keep, inner], f"b{depth}", inputs, outputs)

    loop = helper.make_node("Loop", ["n", "go", "x"], ["y"], body=body(2))
    return model([loop], [2, 3], {"n": np.array(trips, np.int64), "go": np.array(True)})


def doubling_constants(count: int) -> ModelProto:
    nodes = [helper.make_node("Concat", [f"v{k}"] * 2, [f"v{k + 1}"], axis=0) for k in range(count)]
    nodes.append(helper.make_node("Gather", [f"v{count}", "zero"], ["z"]))
    nodes.append(helper.make_node("Add", ["x", "z"], ["y"]))
    return model(nodes, [1], {"v0": np.ones(3, np.float32), "zero": np.array([0], np.int64)})


def convolution(**attributes: object) -> ModelProto:
    weights = {"w": np.ones((1, 1, 3, 3), np.float32)}
    return model([helper.make_node("Conv", ["x", "w"], ["y"], **attributes)], [1, 1, 8, 8], weights)


def resized(scale: float) -> ModelProto:
    scales = np.array([1, 1, scale, scale], np.float32)
    return model([helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")], [1, 1, 2, 2], {"s": scales})


def padded(pads: list[int]) -> ModelProto:
    return model([helper.make_node("Pad", ["x", "p"], ["y"])], [2, 2], {"p": np.array(pads, np.int64)})


def deep_loops(depth: int) -> ModelProto:
    """Loops that could run or be unrolled, one in another: what tries both ways at each level doubles its work."""
    shape = [1]
    node = helper.make_node("Concat", ["s0", "s0"], ["t0"], axis=0)
    for level in range(depth):
        inputs = [info(f"i{level}", I64, []), info(f"c{level}", BOOL, []), info(f"s{level}", F, None)]
        keep = helper.make_node("Identity", [f"c{level}"], [f"d{level}"])
        outputs = [info(f"d{level}", BOOL, []), info(f"t{level}", F, None)]
        body = helper.make_graph([keep, node], f"b{level}", inputs, outputs)
        names = ("x", "y") if level == depth - 1 else (f"s{level + 1}", f"t{level + 1}")
        node = helper.make_node("Loop", ["n", "go", names[0]], [names[1]], body=body)
    return model([node], shape, {"n": np.array(9, np.int64), "go": np.array(True)})


def split(count: int) -> ModelProto:
    """A sequence of single rows, and one tensor of them again."""
    nodes = [helper.make_node("SplitToSequence", ["x"], ["s"], axis=0)]
    return model([*nodes, helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)], [count, 3], {})


def made_by(op: str, *numbers: float, opset: int = 20, **attributes: object) -> ModelProto:
    """One node that makes a table whose size its inputs say; x is its first input if `numbers` starts with NaN."""
    names = ["x" if number != number else f"c{k}" for k, number in enumerate(numbers)]
    kinds = [np.float32 if isinstance(number, float) else np.int64 for number in numbers]
    weights = {n: np.array(v, kind) for n, v, kind in zip(names, numbers, kinds, strict=True) if n != "x"}
    made = model([helper.make_node(op, names, ["y"], **attributes)], [1, 9_000_000, 1], weights)
    made.opset_import[0].version = opset
    return made


HOSTILE: dict[str, tuple[Callable[[], ModelProto], budgets.Budget]] = {
    "functions that double": (lambda: doubling_functions(30), budgets.EXPANDED_NODES),
    "loops in loops": (lambda: nested_loops(250), budgets.ITERATIONS),
    "deep loops": (lambda: deep_loops(12), budgets.TENSOR_BYTES),
    "constants that double": (lambda: doubling_constants(34), budgets.TENSOR_BYTES),
    "constants that double, each of them allowed": (lambda: doubling_constants(27), budgets.FOLDED_BYTES),
    "padding of a convolution": (lambda: convolution(pads=[1 << 30] * 4), budgets.TENSOR_BYTES),
    "padding that strides jump over": (
        lambda: convolution(pads=[1 << 30] * 4, strides=[1 << 30] * 2),
        budgets.PADDED_ELEMENTS,
    ),
    "a sequence of many": (lambda: split(100_000), budgets.EXPANDED_NODES),
    "a long range": (lambda: made_by("Range", 0, 1 << 62, 1), budgets.FOLDED_BYTES),
    "a long range of floats": (lambda: made_by("Range", 0.0, 1e9, 1.0), budgets.FOLDED_BYTES),
    "many filters": (lambda: made_by("MelWeightMatrix", 10**4, 10**5, 8192, 0.0, 4e3), budgets.FOLDED_BYTES),
    "a large picture": (lambda: resized(1e12), budgets.TENSOR_BYTES),
    "a large margin": (lambda: padded([0, 0, 1 << 40, 0]), budgets.TENSOR_BYTES),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_models_are_refused_in_seconds_and_little_memory(name: str) -> None:
    make, budget = HOSTILE[name]
    made, begin = make(), time.monotonic()
    if budget in (budgets.TENSOR_BYTES, budgets.FOLDED_BYTES):  # watching is slow where many nodes are made
        tracemalloc.start()
    with pytest.raises(BudgetError, match=budget.key) as caught:
        build(from_onnx(made)[0], "llvm")
    peak = tracemalloc.get_traced_memory()[1]  # 0 where nobody watches
    tracemalloc.stop()
    assert f'PassContext(config={{"{budget.key}"' in caught.value.hint
    assert peak < 2 << 30
    assert time.monotonic() - begin < 40


def test_a_larger_picture_costs_memory_for_its_rows_not_for_their_square() -> None:
    x = relay.var("x", shape=(1, 1, 1, 300))
    tracemalloc.start()
    build(relay.Function([x], relay.image.resize2d(x, size=(1, 30_000), method="linear")), "llvm")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20
    for count, (size, out) in {1_000_000: (1_000_000, 10_000), 800_000: (200_000_000, 1000)}.items():
        x = relay.var("x", shape=(1, size))
        y = relay.image.resize1d(relay.expand_dims(x, 0), (out,), method="linear", antialias=True)
        with pytest.raises(BudgetError, match=f"{count} weights for each of {out} elements"):
            build(relay.Function([x], y), "llvm")


def test_a_budget_can_be_raised_and_lowered() -> None:
    made = doubling_functions(6)
    with PassContext(config={"budget.expanded_nodes": 0}), pytest.raises(BudgetError, match="expanded_nodes"):
        from_onnx(doubling_functions(10))
    with PassContext(config={"budget.expanded_nodes": 10_000}):
        from_onnx(doubling_functions(10))
    from_onnx(made)


def test_a_kernel_of_too_many_operators_is_refused() -> None:
    x = value = relay.var("x", shape=(2, 3))
    for k in range(30):
        value = relay.tanh(value) * relay.const(float(k))
    function = relay.Function([x], value)
    with PassContext(config={"budget.kernel_size": 20}), pytest.raises(BudgetError, match=r"kernel .*tanh.*budget"):
        build(function, "llvm")


def test_a_kernel_that_compiles_for_long_is_named() -> None:
    x = relay.var("x", shape=(2, 3))
    function = relay.Function([x], relay.tanh(x * relay.const(float(time.time()))))  # a kernel that no cache has
    slow = pytest.warns(UserWarning, match=r"kernel .*tanh.* s to compile")
    with PassContext(config={"budget.compile_seconds": -1}), slow:
        build(function, "llvm")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(relay.Function([x], relay.tanh(x + relay.const(float(time.time())))), "llvm")


def test_each_budget_is_a_documented_option() -> None:
    options = PassContext.list_configs()
    for budget in budgets.ALL:
        assert options[budget.key].default == budget.default
        assert budget.doc in options[budget.key].doc
