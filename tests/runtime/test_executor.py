"""Modules and graphs against numpy, and the words of every refusal."""

from __future__ import annotations

import dataclasses
import re
import threading
from pathlib import Path

import numpy as np
import pytest

from armillary import nd, runtime
from armillary.contrib import graph_executor
from armillary.errors import ArtifactError, ExecutionError, TargetError, TypeMismatch
from armillary.runtime import Module

from .conftest import WEIGHT, expected, graph


@pytest.fixture
def executor(module: Module) -> graph_executor.GraphModule:
    return graph_executor.GraphModule(
        runtime.create_graph_module(graph().to_json(), {"w": WEIGHT}, module, runtime.cpu(0))
    )


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(7).standard_normal((6, 8)).astype(np.float32)


def test_function_binds_symbolic_dimensions(module: Module) -> None:
    for n in (1, 5, 100):
        a, b, c = (runtime.array(np.full(n, v, np.float32)) for v in (1, 2, 0))
        module["add"](a, b, c)
        assert (c.numpy() == 3).all()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([np.zeros(3, "f4")] * 2, "add: 2 tensor arguments given, but 3 are wanted"),
        ([np.zeros(3, "f4"), np.zeros(3, "f8"), np.zeros(3, "f4")], "argument 1 (b) has dtype float64, but float32"),
        ([np.zeros(3, "f4"), np.zeros((3, 1), "f4"), np.zeros(3, "f4")], "argument 1 (b) has 2 dimensions, but 1"),
        ([np.zeros(3, "f4"), np.zeros(4, "f4"), np.zeros(3, "f4")], "has shape (4), but n = 3 is wanted on axis 0"),
    ],
)
def test_wrong_arguments_are_refused_by_name(module: Module, arrays: list[np.ndarray], message: str) -> None:
    with pytest.raises(TypeMismatch, match=re.escape(message)):
        module["add"](*(runtime.array(a) for a in arrays))


def test_failed_assert_gives_its_message(module: Module) -> None:
    module["refuse"](3)
    with pytest.raises(ExecutionError, match="refuse: k must be at most 3"):
        module["refuse"](4)
    with pytest.raises(TypeMismatch, match="0 scalar arguments given, but 1 are wanted"):
        module["refuse"]()


def test_graph_agrees_with_numpy(executor: graph_executor.GraphModule, x: np.ndarray) -> None:
    executor.run(x=x)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected(x), rtol=1e-5, atol=1e-5)
    executor.set_input("x", (x * 2).astype(np.float64))
    executor.run()
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected(x * 2), rtol=1e-5, atol=1e-5)
    assert executor.get_input_info() == ({"x": (6, 8)}, {"x": "float32"})
    assert (executor.get_num_inputs(), executor.get_num_outputs(), executor.get_input_index("?")) == (2, 1, -1)


def test_zero_copy_reads_and_writes_the_users_memory(executor: graph_executor.GraphModule, x: np.ndarray) -> None:
    source, target = runtime.array(x), runtime.empty((48,))
    executor.set_input_zero_copy("x", source)
    executor.set_output_zero_copy(0, target)
    executor.run()
    np.testing.assert_allclose(target.numpy(), expected(x), rtol=1e-5, atol=1e-5)
    source.copyfrom(x + 1)
    executor.run()
    np.testing.assert_allclose(target.numpy(), expected(x + 1), rtol=1e-5, atol=1e-5)
    executor.set_input("x", x)
    executor.run()
    np.testing.assert_allclose(target.numpy(), expected(x), rtol=1e-5, atol=1e-5)
    assert (source.numpy() == x + 1).all()


@pytest.mark.parametrize("key", ["x", 0])
def test_input_set_again_takes_the_short_way_only_where_that_is_all(
    executor: graph_executor.GraphModule, x: np.ndarray, key: str | int
) -> None:
    assert not executor.module.fill(key, x), "not before it was set once: somebody has to check it"
    executor.set_input(key, x)
    assert executor.module.fill(key, np.asfortranarray(x + 1))
    executor.run()
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected(x + 1), rtol=1e-5, atol=1e-5)
    assert not any(executor.module.fill(key, v) for v in (x[:1], x.astype(np.float64), x.tolist(), runtime.array(x)))
    source = runtime.array(x)
    executor.set_input_zero_copy(key, source)
    assert not executor.module.fill(key, x), "its memory is the user's now"
    executor.set_input(key, x + 2)
    executor.run()
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected(x + 2), rtol=1e-5, atol=1e-5)
    assert (source.numpy() == x).all()
    with pytest.raises(TypeMismatch, match=re.escape("x: shape (6, 7) given, (6, 8) wanted")):
        executor.set_input(key, np.zeros((6, 7), np.float32))


def test_output_in_shared_memory_is_copied_to_the_users(module: Module, x: np.ndarray) -> None:
    planned = dataclasses.replace(graph(), arena_offsets=(-1, -1, 0, 192))
    made = graph_executor.create(planned.to_json(), module, runtime.cpu())
    made.set_input(x=x, w=WEIGHT)
    target = runtime.empty((48,))
    made.set_output_zero_copy(0, target)
    made.run()
    np.testing.assert_allclose(target.numpy(), expected(x), rtol=1e-5, atol=1e-5)


def test_package_loads_and_times(package: Path, x: np.ndarray) -> None:
    made = graph_executor.GraphModule(runtime.load_module(package)["default"](runtime.cpu(0)))
    made.run(x=x)
    np.testing.assert_allclose(made.get_output(0).numpy(), expected(x), rtol=1e-5, atol=1e-5)
    result = made.benchmark(runtime.cpu(), number=3, repeat=4)
    assert len(result.results) == 4 and result.min > 0
    lines = str(result).splitlines()
    assert lines[0] == "Execution time summary:"
    assert lines[1] == " mean (ms)   median (ms)    max (ms)     min (ms)     std (ms)  "
    assert [row.function for row in made.module.profile()] == ["center", "add"]
    made.benchmark(runtime.cpu(), number=1, repeat=1, end_to_end=True)


def test_shared_params_use_the_other_executors_memory(package: Path, module: Module, x: np.ndarray) -> None:
    loaded = runtime.load_module(package)
    first = graph_executor.GraphModule(loaded["default"](runtime.cpu()))
    second = graph_executor.create(loaded.graph_json, loaded, runtime.cpu())
    second.share_params(first, loaded.params)
    second.run(x=x)
    np.testing.assert_allclose(second.get_output(0).numpy(), expected(x), rtol=1e-5, atol=1e-5)
    assert second.get_input("w").memory.ctypes.data == first.get_input("w").memory.ctypes.data


def test_executors_in_several_threads_agree(module: Module, x: np.ndarray) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        mine = graph_executor.GraphModule(runtime.create_graph_module(graph().to_json(), {"w": WEIGHT}, module))
        for i in range(100):
            mine.run(x=x + seed + i)
            if not np.allclose(mine.get_output(0).numpy(), expected(x + seed + i), rtol=1e-4, atol=1e-3):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_misuse_is_refused_with_what_to_do(executor: graph_executor.GraphModule, module: Module) -> None:
    with pytest.raises(ExecutionError, match="Could not find 'y' in graph's inputs"):
        executor.set_input("y", np.zeros(1))
    with pytest.raises(ExecutionError, match="Could not find 'y' in graph's inputs"):
        executor.run(y=np.zeros(1))
    with pytest.raises(ExecutionError, match="Could not find 'repeats' in graph's inputs"):
        executor.benchmark(runtime.cpu(), repeats=3)
    executor.set_input(y=np.zeros(1))  # parameters that the passes made away with are no mistake
    with pytest.raises(ExecutionError, match="input x was never set"):
        executor.run()
    with pytest.raises(TypeMismatch, match=re.escape("x: shape (6, 7) given, (6, 8) wanted")):
        executor.set_input("x", np.zeros((6, 7), np.float32))
    with pytest.raises(ExecutionError, match="there is no output 1"):
        executor.get_output(1)
    with pytest.raises(TargetError, match=re.escape("device cuda(0) is not available")):
        graph_executor.create(graph().to_json(), module, runtime.device("cuda"))
    with pytest.raises(ArtifactError, match="no such file"):
        runtime.load_module("/nonexistent/x.so")


def test_outputs_are_copied_into_arrays_of_either_kind(executor: graph_executor.GraphModule, x: np.ndarray) -> None:
    executor.run(x=x)
    want = executor.get_output(0).numpy()
    strided = np.zeros((2 * len(want), *want.shape[1:]), np.float32)
    for out in (nd.empty(want.shape), np.empty_like(want), strided[::2], np.empty(want.shape, ">f4")):
        assert executor.get_output("output_0", out) is out
        np.testing.assert_array_equal(np.asarray(out), want)
    closed = np.empty_like(want)
    closed.flags.writeable = False
    for wrong, message in ((closed, "read-only"), (np.empty(3, np.float32), "cannot copy"), ([0.0], "into list")):
        with pytest.raises(TypeMismatch, match=message):
            executor.get_output(0, wrong)
    with pytest.raises(ExecutionError, match="Could not find 'x' in graph's outputs"):
        executor.get_output("x")


def test_module_from_symbols_calls_code_in_memory(module: Module) -> None:
    import ctypes

    loaded = ctypes.CDLL(module.path)
    made = Module.from_symbols(
        module.descriptor, lambda name: ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value or 0, loaded
    )
    out = runtime.array(np.zeros(4, np.float32))
    made["add"](np.ones(4, np.float32), np.ones(4, np.float32), out)
    assert (out.numpy() == 2).all()
    with pytest.raises(ArtifactError, match="does not define symbol"):
        Module.from_symbols(module.descriptor, lambda name: 0)


def test_an_output_before_the_first_run_is_refused_and_described(executor: graph_executor.GraphModule) -> None:
    with pytest.raises(ExecutionError, match="output 0 has no value yet: the graph has not run"):
        executor.get_output(0)
    shapes, dtypes = executor.get_output_info()
    executor.run(x=np.zeros((6, 8), np.float32))
    assert shapes == {0: executor.get_output(0).shape}
    assert dtypes == {0: executor.get_output(0).dtype}


def test_run_takes_a_dict_of_inputs(executor: graph_executor.GraphModule, x: np.ndarray) -> None:
    executor.run({"x": x})
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected(x), rtol=1e-5)
    with pytest.raises(TypeMismatch, match="run takes a dict of inputs by name, got list"):
        executor.run([x])  # type: ignore[arg-type]


def test_executors_say_what_they_take(executor: graph_executor.GraphModule) -> None:
    assert repr(executor) == "GraphModule(GraphExecutor(x: float32[6, 8]; 1 outputs, cpu(0)))"


def test_a_loaded_package_says_what_it_holds(module: Module) -> None:
    assert repr(module).startswith(f"Module({module.path}: {len(module.functions)} functions")
