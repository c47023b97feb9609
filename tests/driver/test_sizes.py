"""Networks with named sizes: compiled once, run at each; inputs that do not fit are refused before anything runs."""

from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.base.extent import Known, size
from armillary.contrib import graph_executor
from armillary.errors import ArtifactError, ExecutionError, TypeMismatch
from armillary.relay.analysis.bind_sizes import bind_sizes
from armillary.runtime import load_module

B = size("b", 1, 64)
RNG = np.random.default_rng(7)


def _convolution() -> relay.Function:
    x = relay.var("x", relay.TensorType((B, 3, 16, 16)))
    weight = relay.const(RNG.standard_normal((8, 3, 3, 3)).astype("float32"))
    y = relay.nn.conv2d(x, weight, kernel_size=(3, 3), padding=(1, 1), channels=8)
    return relay.Function([x], relay.nn.max_pool2d(relay.nn.relu(y), pool_size=(2, 2), strides=(2, 2)))


def _two_inputs() -> relay.Function:
    n = size("n", 2, 10, 2)
    x, y = relay.var("x", relay.TensorType((B, n))), relay.var("y", relay.TensorType((B, n)))
    return relay.Function([x, y], relay.Tuple([relay.add(x, y), relay.concatenate([x, y], axis=1)]))


def _executor(function: relay.Function) -> graph_executor.GraphModule:
    with armillary.transform.PassContext(opt_level=3):
        library = relay.build(armillary.IRModule.from_expr(function), "llvm")
    return graph_executor.GraphModule(library["default"](armillary.cpu()))


def _expected(function: relay.Function, *values: np.ndarray, **sizes: int) -> np.ndarray:
    fixed = bind_sizes(function, sizes)
    return relay.create_executor("debug", target="llvm").evaluate(fixed)(*values).numpy()


def test_one_build_runs_at_every_batch() -> None:
    function = _convolution()
    network = _executor(function)
    for batch in (1, 3, 17, 2, 64, 1):
        x = RNG.standard_normal((batch, 3, 16, 16)).astype("float32")
        network.run(x=x)
        result = network.get_output(0).numpy()
        assert result.shape == (batch, 8, 8, 8)
        np.testing.assert_allclose(result, _expected(function, x, b=batch), rtol=1e-4, atol=1e-5)


def test_a_package_keeps_its_sizes(tmp_path: Path) -> None:
    function = _convolution()
    relay.build(armillary.IRModule.from_expr(function), "llvm").export_library(str(tmp_path / "net.tar"))
    network = graph_executor.GraphModule(load_module(str(tmp_path / "net.tar"))["default"](armillary.cpu()))
    for batch in (5, 2):
        x = RNG.standard_normal((batch, 3, 16, 16)).astype("float32")
        network.run(x=x)
        np.testing.assert_allclose(network.get_output(0).numpy(), _expected(function, x, b=batch), rtol=1e-4, atol=1e-5)


def test_results_of_other_sizes_leave_earlier_ones_alone() -> None:
    network = _executor(_two_inputs())
    small = np.ones((1, 2), "float32")
    network.run(x=small, y=small)
    first = network.get_output(1)
    for rows in (64, 3, 50):
        large = np.full((rows, 10), 3, "float32")
        network.run(x=large, y=large)
        np.testing.assert_array_equal(network.get_output(0).numpy(), large * 2)
        assert network.get_output(1).shape == (rows, 20)
    np.testing.assert_array_equal(first.numpy(), np.ones((1, 4), "float32"))


def test_inputs_that_do_not_fit_are_named_before_anything_runs() -> None:
    network = _executor(_two_inputs())
    with pytest.raises(TypeMismatch, match=r"x: axis 0 is b = 65, which lies outside its bounds 1 to 64"):
        network.set_input("x", np.ones((65, 2), "float32"))
    with pytest.raises(TypeMismatch, match=r"x: axis 1 is n = 3, which is no multiple of 2"):
        network.set_input("x", np.ones((1, 3), "float32"))
    with pytest.raises(TypeMismatch, match="x: 1 axes given, 2 wanted"):
        network.set_input("x", np.ones((4,), "float32"))
    network.set_input("x", np.ones((3, 4), "float32"))
    network.set_input("y", np.ones((3, 6), "float32"))
    with pytest.raises(ExecutionError, match="inputs x and y disagree on the size n: 4 and 6"):
        network.run()
    network.set_input("y", np.full((3, 4), 2, "float32"))
    network.run()
    np.testing.assert_array_equal(network.get_output(0).numpy(), np.full((3, 4), 3, "float32"))


def test_memory_does_not_grow_with_the_number_of_sizes() -> None:
    network = _executor(_convolution())
    executor = network.module
    network.run(x=np.zeros((64, 3, 16, 16), "float32"))
    most = executor.memory_bytes
    for batch in RNG.integers(1, 65, 300):
        network.run(x=np.zeros((int(batch), 3, 16, 16), "float32"))
    assert executor.memory_bytes == most


def test_a_size_that_no_input_has_and_damaged_graphs_are_refused() -> None:
    library = relay.build(armillary.IRModule.from_expr(_convolution()), "llvm")
    text = library.get_graph_json()
    for old, new in (('"b",3', '"c",3'), ('"high":64', '"high":0'), ('"lifetime"', '"lifetimes"')):
        assert old in text
        with pytest.raises(ArtifactError):
            armillary.runtime.executor.GraphExecutor(text.replace(old, new), library.module)


def _blocks(height: Known, width: Known) -> relay.Function:
    """The layers that images go through: a first one, pooling, 3x3, depthwise, 1x1, a sum, a mean."""

    def weight(*shape: int) -> relay.Constant:
        return relay.const((RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32"))

    def conv(y: relay.Expr, outputs: int, inputs: int, size: int, stride: int = 1, groups: int = 1) -> relay.Expr:
        pad = (size // 2, size // 2)
        kernel = weight(outputs, inputs // groups, size, size)
        made = relay.nn.conv2d(
            y, kernel, kernel_size=(size, size), channels=outputs, padding=pad, strides=(stride, stride), groups=groups
        )
        return relay.nn.relu(relay.nn.bias_add(made, weight(outputs)))

    x = relay.var("x", relay.TensorType((B, 3, height, width)))
    y = relay.nn.max_pool2d(conv(x, 32, 3, 7, 2), pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    y = relay.add(conv(conv(y, 32, 32, 3), 32, 32, 3), y)
    y = conv(conv(conv(y, 96, 32, 1), 96, 96, 3, groups=96), 32, 96, 1)
    y = conv(conv(y, 64, 32, 3, 2), 64, 64, 5, 2, groups=64)
    return relay.Function([x], relay.Tuple([y, relay.nn.global_avg_pool2d(y)]))


def test_images_with_an_open_batch_have_the_algorithms_of_a_fixed_one() -> None:
    function = _blocks(40, 56)
    network = _executor(function)
    for batch in (1, 3, 2):
        x = RNG.standard_normal((batch, 3, 40, 56)).astype("float32")
        network.run(x=x)
        for index, expected in enumerate(_all_expected(function, x, b=batch)):
            np.testing.assert_allclose(network.get_output(index).numpy(), expected, rtol=1e-4, atol=1e-4)


def test_images_of_any_height_and_width_have_them_too() -> None:
    function = _blocks(size("h", 1, 512), size("w", 1, 512))
    network = _executor(function)
    for batch, height, width in ((1, 40, 56), (2, 33, 9), (1, 7, 130), (1, 1, 1), (3, 64, 31)):
        x = RNG.standard_normal((batch, 3, height, width)).astype("float32")
        network.run(x=x)
        for index, expected in enumerate(_all_expected(function, x, b=batch, h=height, w=width)):
            np.testing.assert_allclose(network.get_output(index).numpy(), expected, rtol=1e-4, atol=1e-4)


def _all_expected(function: relay.Function, *values: np.ndarray, **sizes: int) -> list[np.ndarray]:
    fixed = bind_sizes(function, sizes)
    return [r.numpy() for r in relay.create_executor("debug", target="llvm").evaluate(fixed)(*values)]
