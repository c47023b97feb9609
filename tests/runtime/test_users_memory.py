"""Arrays that users give: what may be written, where results may lie, and the order of an array's bytes."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import nd, relay, te
from armillary.contrib import graph_executor
from armillary.errors import ArmillaryError, ExecutionError, TypeMismatch

X = np.arange(32, dtype=np.float32).reshape(4, 8)
BIG = np.array([1, 2, 3, 4], ">f4")
SMALL = np.array([1, 2, 3, 4], np.float32)


def built(results: Callable[..., list[Any]], names: str = "x", config: dict[str, object] | None = None) -> Any:
    inputs = [relay.var(name, shape=X.shape) for name in names]
    outputs = results(*inputs)
    body = outputs[0] if len(outputs) == 1 else relay.Tuple(outputs)
    with armillary.transform.PassContext(opt_level=3, config=config or {}):
        library = relay.build(armillary.IRModule.from_expr(relay.Function(inputs, body)), target="llvm")
    network = graph_executor.GraphModule(library["default"](armillary.cpu()))
    for name in names:
        network.set_input(name, X)
    return network


@pytest.fixture
def two() -> Any:
    return built(lambda x: [relay.exp(x), relay.sqrt(x)])


def parts(size: int = X.size) -> tuple[Any, Any]:
    """Two tensors that overlap by half."""
    memory = nd.empty((size * 2,))
    return memory.view(X.shape), memory.view(X.shape, relative_byte_offset=size * 2)


def read_only_mapping(folder: Path) -> np.ndarray:
    path = folder / "zeros"
    path.write_bytes(bytes(4096))
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
    return np.frombuffer(mapping, np.float32)[:32].reshape(X.shape)


def frozen() -> np.ndarray:
    values = np.zeros(X.shape, np.float32)
    values.flags.writeable = False
    return values


@pytest.mark.parametrize("make", [lambda _: np.frombuffer(bytes(128), "f4").reshape(X.shape), read_only_mapping])
def test_read_only_memory_is_no_place_for_results(make: Callable[[Path], np.ndarray], two: Any, tmp_path: Path) -> None:
    place = make(tmp_path)
    for value in (place, nd.from_numpy(place), nd.from_numpy(place).view(X.shape)):
        with pytest.raises(TypeMismatch, match=r"output 1 cannot be written to memory that is read-only"):
            two.set_output_zero_copy(1, value)
    two.run()
    kernel = add_one(X.shape)
    for value in (place, nd.from_numpy(place)):
        with pytest.raises(TypeMismatch, match=r"argument 1 \(B\) cannot be written to memory that is read-only"):
            kernel(X, value)
        with pytest.raises(TypeMismatch, match="read-only"):
            kernel.time_evaluator(kernel.entry_name, armillary.cpu())(X, value)
        with pytest.raises(TypeMismatch, match="read-only"):
            nd.array(X).copyto(value)
    assert (place == 0).all()


def test_read_only_memory_is_read() -> None:
    network, values = built(lambda x: [relay.exp(x)]), frozen()
    network.set_input_zero_copy("x", values)
    network.run()
    assert (network.get_output(0).numpy() == 1).all()
    kernel, out = add_one(X.shape), nd.empty(X.shape)
    kernel(values, out)
    assert (out.numpy() == 1).all()


def test_an_input_over_read_only_memory_is_copied_when_it_is_handed_out_for_writing() -> None:
    network, values = built(lambda x: [relay.exp(x)]), frozen()
    network.set_input_zero_copy("x", values)
    network.get_input("x").copyfrom(np.full(X.shape, 1, np.float32))
    network.run()
    assert (values == 0).all()
    np.testing.assert_allclose(network.get_output(0).numpy(), np.full(X.shape, np.e), rtol=1e-6)


def test_an_output_that_is_an_input_over_read_only_memory_cannot_be_written() -> None:
    network, values = built(lambda x: [x, relay.exp(x)]), frozen()
    network.set_input_zero_copy("x", values)
    network.run()
    for index in range(2):
        output = network.get_output(index)
        if (output.numpy() == 0).all():
            with pytest.raises(TypeMismatch, match="read-only"):
                output.copyfrom(X)
    assert (values == 0).all()


def add_one(shape: tuple[int, ...], **config: object) -> Any:
    a = te.placeholder(shape, name="A")
    b = te.compute(shape, lambda *i: a[i] + 1.0, name="B")
    with armillary.transform.PassContext(config=config):
        return armillary.build(te.create_schedule(b.op), [a, b], target="llvm")


def test_two_outputs_are_refused_over_one_memory_or_parts_of_one(two: Any) -> None:
    first, second = parts()
    for over in (first, second):
        two.set_output_zero_copy(0, first)
        with pytest.raises(TypeMismatch, match="output 1 lies over output 0: give each memory of its own"):
            two.set_output_zero_copy(1, over)
    whole = nd.empty(X.shape)
    two.set_output_zero_copy(1, whole)
    two.run()
    np.testing.assert_allclose(first.numpy(), np.exp(X), rtol=1e-5)
    np.testing.assert_allclose(whole.numpy(), np.sqrt(X), rtol=1e-5)


def test_outputs_that_are_copied_behind_a_run_are_refused_over_one_memory() -> None:
    network = built(lambda x: [x, relay.nn.relu(x), x])  # the memory of the first and last is the input's
    place = nd.empty(X.shape)
    network.set_output_zero_copy(0, place)
    for index in (1, 2):
        with pytest.raises(TypeMismatch, match=f"output {index} lies over output 0"):
            network.set_output_zero_copy(index, place)
    network.run()
    np.testing.assert_array_equal(place.numpy(), X)


def test_an_output_over_its_own_input_is_refused(two: Any) -> None:
    first, second = parts()
    two.set_input_zero_copy("x", first)
    for over in (first, second):
        with pytest.raises(TypeMismatch, match="output 0 lies over input x, which a run reads"):
            two.set_output_zero_copy(0, over)


def test_an_input_over_an_output_is_refused_by_the_run(two: Any) -> None:
    place = nd.array(X)
    two.set_output_zero_copy(1, place)
    two.set_input_zero_copy("x", place)
    for _ in range(2):
        with pytest.raises(ExecutionError, match="output 1 lies over input x"):
            two.run()
    two.set_input("x", X)
    two.run()
    np.testing.assert_allclose(place.numpy(), np.sqrt(X), rtol=1e-5)


def test_two_buffers_may_take_turns() -> None:
    network = built(lambda x: [x + relay.const(1.0)])
    a, b = nd.array(X), nd.empty(X.shape)
    for _ in range(3):
        network.set_input_zero_copy("x", a)
        network.set_output_zero_copy(0, b)
        network.run()
        a, b = b, a
    np.testing.assert_array_equal(a.numpy(), X + 3)


def test_a_graphs_own_results_are_no_inputs_of_the_same_run(two: Any) -> None:
    two.run()
    two.set_input_zero_copy("x", two.get_output(0))
    with pytest.raises(ExecutionError, match="lies over"):
        two.run()


def test_an_output_may_be_given_its_own_place_and_another_again(two: Any) -> None:
    place = nd.empty(X.shape)
    for _ in range(2):
        two.set_output_zero_copy(0, place)
    two.set_output_zero_copy(0, nd.empty(X.shape))
    two.set_output_zero_copy(1, place)
    two.run()
    np.testing.assert_allclose(place.numpy(), np.sqrt(X), rtol=1e-5)


def test_two_inputs_may_lie_over_one_memory() -> None:
    network, x = built(lambda x, y: [x + y], "xy"), nd.array(X)
    network.set_input_zero_copy("x", x)
    network.set_input_zero_copy("y", x)
    network.run()
    np.testing.assert_array_equal(network.get_output(0).numpy(), 2 * X)


def test_outputs_of_kernels_are_refused_over_their_other_arguments() -> None:
    first, second = parts()
    kernel = add_one(X.shape)
    for given in (first, second):
        with pytest.raises(TypeMismatch, match=r"argument 1 \(B\) is written and lies over argument 0 \(A\)"):
            kernel(first, given)
    memory = nd.array(X)
    add_one(X.shape, **{"tir.noalias": False})(memory, memory)
    np.testing.assert_array_equal(memory.numpy(), X + 1)


def test_tensors_without_elements_overlap_nothing() -> None:
    empty = nd.empty((0, 8))
    add_one((0, 8))(empty, empty)


# ---- the order of bytes


def sum_of(network: Any) -> list[float]:
    network.run()
    return list(network.get_output(0).numpy())


def adder(value: Any = None, params: dict[str, object] | None = None) -> Any:
    """x + y, where y may be a constant."""
    x, y = relay.var("x", shape=(4,)), relay.var("y", shape=(4,))
    free = [x] if value is not None else [x, y]
    function = relay.Function(free, x + (relay.const(value) if value is not None else y))
    library = relay.build(armillary.IRModule.from_expr(function), target="llvm", params=params)
    network = graph_executor.GraphModule(library["default"](armillary.cpu()))
    network.set_input("x", np.zeros(4, np.float32))
    return network


@pytest.mark.parametrize("wrap", [lambda v: v, nd.from_numpy, nd.array], ids=["numpy", "from_numpy", "array"])
def test_big_endian_arrays_are_converted_by_value(wrap: Callable[[np.ndarray], Any]) -> None:
    value = wrap(BIG)
    assert sum_of(adder(value)) == [1, 2, 3, 4]
    assert sum_of(adder(params={"y": value})) == [1, 2, 3, 4]
    network = adder()
    setters = (
        lambda: network.set_input("y", value),
        lambda: network.set_input_zero_copy("y", value),
        lambda: network.module.set_params({"y": value}),
        lambda: network.load_params(relay.save_param_dict({"y": value})),
    )
    for setter in setters:
        setter()
        assert sum_of(network) == [1, 2, 3, 4]
        network.set_input("y", np.zeros(4, np.float32))
    assert armillary.ir.structural_equal(relay.const(value), relay.const(SMALL))
    out = nd.empty((4,))
    add_one((4,))(value, out)
    assert list(out.numpy()) == [2, 3, 4, 5]


@pytest.mark.parametrize("dtype", [">f8", ">f2", ">i2", ">i4", ">i8", ">u4"])
def test_tensors_of_every_wide_type_have_the_values_of_their_array(dtype: str) -> None:
    values = np.array([[1, 2], [3, 40]], dtype)
    for tensor in (nd.from_numpy(values), nd.array(values), nd.from_numpy(values).view((4,))):
        assert tensor.numpy().dtype.isnative
        np.testing.assert_array_equal(tensor.numpy().reshape(2, 2), values)
    blob = relay.save_param_dict({"k": values})
    np.testing.assert_array_equal(relay.load_param_dict(blob)["k"].numpy(), values)


def test_bits_of_bfloat16_are_read_in_either_order() -> None:
    for order in ("<u2", ">u2"):
        tensor = nd.empty((2,), "bfloat16")
        tensor.copyfrom(np.array([0x3F80, 0x4000], order))
        assert tensor.numpy().astype(np.float32).tolist() == [1, 2]


def test_a_big_endian_array_is_no_place_for_results() -> None:
    out = np.zeros(4, ">f4")
    with pytest.raises(ArmillaryError, match="read-only"):
        add_one((4,))(SMALL, out)
    network = adder()
    network.set_input("y", SMALL)
    with pytest.raises(ArmillaryError, match="read-only"):
        network.set_output_zero_copy(0, nd.from_numpy(out))
    network.run()
    network.get_output(0, out)  # a copy, by value
    assert list(out) == [1, 2, 3, 4]


def test_outputs_may_take_each_others_place_before_the_next_run(two: Any) -> None:
    first, second = nd.empty(X.shape), nd.empty(X.shape)
    for places in ((first, second), (second, first)):
        for number, place in enumerate(places):
            two.set_output_zero_copy(number, place)
        two.run()
        np.testing.assert_allclose(places[0].numpy(), np.exp(X), rtol=1e-5)
        np.testing.assert_allclose(places[1].numpy(), np.sqrt(X), rtol=1e-5)
    two.set_output_zero_copy(0, first)  # where output 1 stays
    with pytest.raises(ExecutionError, match="output 1 lies over output 0"):
        two.run()
