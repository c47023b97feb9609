"""Several sizes of an axis in one program, other batches, and the virtual machine that calls such programs."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import relay, runtime
from armillary.errors import TypeMismatch


def _layer() -> armillary.IRModule:
    x, w = relay.var("x", shape=(10, 10)), relay.var("w", shape=(10, 10))
    return armillary.IRModule.from_expr(relay.nn.relu(relay.nn.dense(x, w)))


def _numbers(*shape: int) -> np.ndarray:
    return np.random.RandomState(3).uniform(-1, 1, shape).astype("float32")


@pytest.mark.parametrize("kind", ["debug", "vm"])
def test_sizes_between_buckets_are_padded_and_cut(kind: str) -> None:
    module = relay.transform.FlexibleShapeDispatch(axis=0, buckets=[5, 2], auto_pad=True)(_layer())
    run = relay.create_executor(kind, mod=module).evaluate()
    weight = _numbers(10, 10)
    for rows in (1, 2, 4, 5):
        data = _numbers(rows, 10)
        np.testing.assert_allclose(run(data, weight).numpy(), np.maximum(data @ weight.T, 0), atol=1e-5)


def test_a_padded_bucket_sees_the_value_and_its_own_size() -> None:
    x = relay.var("x", shape=(2, 3))
    module = armillary.IRModule.from_expr(relay.sum(x, axis=0, keepdims=True))
    dispatched = relay.transform.FlexibleShapeDispatch(
        axis=0, buckets=[4], auto_pad=True, pad_value=1, affects_output=False
    )(module)
    run = relay.create_executor("vm", mod=dispatched).evaluate()
    np.testing.assert_allclose(run(np.zeros((3, 3), "float32")).numpy(), np.ones((1, 3)))


def test_the_axis_of_two_inputs_does_not_reach_the_result() -> None:
    x, w = relay.var("x", shape=(10, 10)), relay.var("w", shape=(10, 10))
    module = armillary.IRModule.from_expr(relay.nn.dense(x, w))
    dispatched = relay.transform.FlexibleShapeDispatch(
        axis=1, buckets=[5, 7], input_indices=[0, 1], affects_output=False
    )(module)
    run = relay.create_executor("vm", mod=dispatched).evaluate()
    for terms in (5, 7):
        data = _numbers(10, terms)
        np.testing.assert_allclose(run(data, data).numpy(), data @ data.T, atol=1e-5)


def test_a_size_beyond_the_buckets_is_refused_by_the_largest() -> None:
    module = relay.transform.FlexibleShapeDispatch(axis=0, buckets=[5], auto_pad=True)(_layer())
    run = relay.create_executor("vm", mod=module).evaluate()
    with pytest.raises(TypeMismatch, match=r"@main_5: argument 0: got Tensor\[\(6, 10\), float32\]"):
        run(_numbers(6, 10), _numbers(10, 10))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buckets": []}, "buckets are"),
        ({"buckets": [2], "axis": 2}, "has no axis 2"),
        ({"buckets": [2], "input_indices": [7]}, "main has 2 parameters"),
    ],
)
def test_arguments_of_the_dispatch_are_checked(options: dict[str, object], message: str) -> None:
    with pytest.raises(TypeMismatch, match=message):
        relay.transform.FlexibleShapeDispatch(**options)(_layer())


def test_values_of_which_only_the_shape_is_read_do_not_compile_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    module = relay.transform.FlexibleShapeDispatch(axis=0, buckets=[4], auto_pad=True)(_layer())
    executor = relay.create_executor("vm", mod=module)
    built: list[object] = []
    once = executor._built
    monkeypatch.setattr(executor, "_built", lambda *args: built.append(args) or once(*args))
    run = executor.evaluate()
    for value in (1.0, 2.0, 3.0):
        run(np.full((3, 10), value, "float32"), _numbers(10, 10))
    assert len(built) == 1


def test_change_batch_types_the_program_anew() -> None:
    module = _layer()
    changed = relay.transform.ChangeBatch({module["main"].params[0]: 0}, batch_size=7)(module)
    assert changed["main"].checked_type.ret_type.shape == (7, 10)
    with pytest.raises(TypeMismatch, match="z is no parameter of main"):
        relay.transform.ChangeBatch({relay.var("z", shape=(1,)): 0})(module)


def test_a_virtual_machine_calls_by_name_and_in_two_steps() -> None:
    x, w = relay.var("x", shape=(relay.Any(), 4)), relay.var("w", shape=(4, 4))
    module = armillary.IRModule.from_expr(relay.split(relay.nn.dense(x, w), 2, axis=1).astuple())
    weight = _numbers(4, 4)
    machine = runtime.vm.VirtualMachine(relay.vm.compile(module, "llvm", params={"w": weight}), armillary.cpu())
    data = _numbers(3, 4)
    want = np.split(data @ weight.T, 2, axis=1)
    for got in (machine.invoke("main", data), machine.invoke("main", x=data)):
        for part, expected in zip(got, want, strict=True):
            np.testing.assert_allclose(part.numpy(), expected, atol=1e-6)
    machine.set_input("main", data)
    np.testing.assert_allclose(machine.run()[1].numpy(), want[1], atol=1e-6)
    machine.invoke_stateful("main", data)
    assert len(machine.get_outputs()) == 2
    assert machine.get_input_index("x") == 0 and machine.get_input_index("w") == -1
    assert machine.benchmark(armillary.cpu(), data, repeat=2, number=1).max > 0


def test_wrong_calls_of_a_virtual_machine_are_told() -> None:
    executable = relay.vm.compile(_layer())
    machine = runtime.vm.VirtualMachine(executable)
    with pytest.raises(TypeMismatch, match="wanted x, w"):
        machine.invoke("main", _numbers(10, 10))
    with pytest.raises(TypeMismatch, match="no function 'other'"):
        machine.invoke("other")
    with pytest.raises(TypeMismatch, match=r"wanted what relay\.vm\.compile gives"):
        runtime.vm.VirtualMachine(3)
