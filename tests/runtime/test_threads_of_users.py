"""One network, several threads: a call is one step, and whoever comes between another's steps is told."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.errors import ExecutionError

SIZE = 64


@pytest.fixture(scope="module")
def library() -> Any:
    """Two outputs: twice the input, and the input and y."""
    x, y = relay.var("x", shape=(SIZE,)), relay.var("y", shape=(SIZE,))
    body = relay.Tuple([x + x, relay.add(relay.exp(x - x), x + y)])
    return relay.build(armillary.IRModule.from_expr(relay.Function([x, y], body)), target="llvm")


@pytest.fixture
def network(library: Any) -> Any:
    made = graph_executor.GraphModule(library["default"](armillary.cpu()))
    made(x=value(0), y=value(1))
    return made


@pytest.fixture(autouse=True)
def many_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def value(number: float) -> np.ndarray[Any, Any]:
    return np.full(SIZE, number, np.float32)


def elsewhere(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """What the function gives in another thread, which stays alive."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function, *args, **named).result()


def test_a_call_sets_runs_and_copies(network: Any) -> None:
    outputs = network(x=value(3))
    assert [type(o) for o in outputs] == [np.ndarray] * 2
    assert (outputs[0] == 6).all() and (outputs[1] == 5).all()  # y keeps its value
    again = network({"x": value(4), "y": value(2)})
    assert (outputs[0] == 6).all() and (again[1] == 7).all()
    with pytest.raises(ExecutionError, match="Could not find 'z'"):
        network(z=value(1))
    assert (network(x=value(5))[0] == 10).all()


def test_calls_from_many_threads_have_their_own_answers(network: Any) -> None:
    def ask(number: int) -> bool:
        outputs = network(x=value(number), y=value(-number))
        return bool((outputs[0] == 2 * number).all() and (outputs[1] == 1).all())

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(1, 2001)))


@pytest.mark.parametrize("step", ["set_input", "set_input_zero_copy", "run", "get_output"])
@pytest.mark.parametrize("is_run", [False, True])
def test_a_step_between_those_of_another_thread_is_an_error(network: Any, step: str, is_run: bool) -> None:
    steps: dict[str, Callable[[], Any]] = {
        "set_input": lambda: network.set_input("x", value(9)),
        "set_input_zero_copy": lambda: network.set_input_zero_copy("x", value(9)),
        "run": network.run,
        "get_output": lambda: network.get_output(0),
    }
    network.set_input("x", value(7))
    if is_run:
        network.run()
    with pytest.raises(ExecutionError, match=f"{step}: another thread, MainThread, has") as raised:
        elsewhere(steps[step])
    assert "network(x=array)" in raised.value.hint
    if not is_run:
        network.run()
    assert (network.get_output(0).numpy() == 14).all()
    elsewhere(steps["set_input"])  # the turn has ended


def test_steps_of_many_threads_give_their_own_answers_or_an_error(network: Any) -> None:
    wrong, right, refused = [], [], []

    def ask(number: int) -> None:
        for _ in range(60):
            try:
                network.set_input("x", value(number))
                network.run()
                first = network.get_output(0)
                second = network.get_output(1)
                results = first.numpy(), second.numpy()
            except ExecutionError as error:
                refused.append(error)
                continue
            is_right = (results[0] == 2 * number).all() and (results[1] == number + 2).all()
            (right if is_right else wrong).append(number)

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and right


def test_what_a_thread_looks_at_stays_when_another_runs(network: Any) -> None:
    network.set_input("x", value(1))
    network.run()
    seen = network.get_output(0)
    view = network.get_output(1).memory[1:]
    elsewhere(network, x=value(5))
    assert (seen.numpy() == 2).all() and (view == 3).all()
    with pytest.raises(ExecutionError, match="another thread has set inputs or run the network since"):
        network.get_output(0)
    with pytest.raises(ExecutionError, match="another thread has set inputs or run the network since"):
        network.run()
    network.run(x=value(2))
    assert (network.get_output(0).numpy() == 4).all() and (seen.numpy() == 2).all()


def test_an_output_that_lies_in_a_users_memory_stays_there(network: Any) -> None:
    place = armillary.nd.empty((SIZE,))
    network.set_output_zero_copy(0, place)
    network.run(x=value(1))
    seen = network.get_output(0)
    elsewhere(network, x=value(5))
    assert (place.numpy() == 10).all() and (seen.numpy() == 10).all()


def test_threads_may_follow_one_another(library: Any) -> None:
    network = graph_executor.GraphModule(library["default"](armillary.cpu()))
    network.set_input("y", value(1))  # a weight, say: others go on with the input that is missing
    assert (elsewhere(network, x=value(2))[1] == 4).all()
    elsewhere(network.run, x=value(3))  # that thread is gone
    assert (network.get_output(0).numpy() == 6).all()
    network.run(x=value(4))  # to warm it up, say: a call finds it free
    assert (elsewhere(network, x=value(5))[0] == 10).all()
    with pytest.raises(ExecutionError, match="get_output: another thread has"):
        network.get_output(0)
    network.benchmark(armillary.cpu(), x=value(1), repeat=1, number=1)
    elsewhere(network.set_input, "x", value(2))


def test_an_executor_for_each_thread_is_free(library: Any) -> None:
    def ask(number: int) -> bool:
        own = graph_executor.GraphModule(library["default"](armillary.cpu()))
        for k in range(20):
            own.run(x=value(number + k), y=value(0))
            if not (own.get_output(0).numpy() == 2 * (number + k)).all():
                return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(ask, range(0, 800, 100)))


def test_executables_of_the_virtual_machine_are_called_from_many_threads() -> None:
    x = relay.var("x", shape=(SIZE,))
    evaluate = relay.create_executor("vm", armillary.IRModule.from_expr(relay.Function([x], x + x))).evaluate()
    evaluate(value(0))
    with ThreadPoolExecutor(6) as threads:
        results = list(threads.map(lambda k: evaluate(value(k)).numpy()[0], range(300)))
    assert results == [2 * k for k in range(300)]
