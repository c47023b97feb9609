"""Code that a script makes itself: `relay.ext.<name>` for parts of a graph, `target.build.<kind>` for loops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import armillary
from armillary import relay, te
from armillary.base.functions import FUNCTIONS
from armillary.contrib import graph_executor
from armillary.errors import ConfigError, TargetError, UnsupportedError
from armillary.ir import IRModule
from armillary.relay.expr import Function

relay.op.get("add").set_attr("target.mycc", lambda expr: True)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    before = dict(FUNCTIONS)
    yield
    FUNCTIONS.clear()
    FUNCTIONS.update(before)


def _partitioned() -> IRModule:
    """relu(x + 1) with the sum for `mycc`, by a rule and no table of patterns."""
    x = relay.var("x", shape=(2, 3))
    body = relay.nn.relu(relay.add(x, relay.const(np.ones((2, 3), "float32"))))
    module = IRModule.from_expr(relay.Function([x], body))
    module = relay.transform.AnnotateTarget(["mycc"])(module)
    return relay.transform.PartitionGraph()(relay.transform.MergeCompilerRegions()(module))


def _sum_built_here(function: Function) -> object:
    a, b = te.placeholder((2, 3), name="a"), te.placeholder((2, 3), name="b")
    c = te.compute((2, 3), lambda i, j: (a[i, j] + b[i, j]) * 10)  # ten times, to see whose code runs
    return armillary.build(te.create_schedule(c.op), [a, b, c], "llvm", name=str(function.attrs["global_symbol"]))


def test_the_function_of_a_script_makes_the_code_of_a_part() -> None:
    seen: list[Function] = []
    armillary.register_func("relay.ext.mycc", lambda function: (seen.append(function), _sum_built_here(function))[1])
    library = relay.build(_partitioned(), "llvm")
    assert [f.attrs["Compiler"] for f in seen] == ["mycc"]
    module = armillary.contrib.graph_executor.GraphModule(library["default"](armillary.cpu()))
    x = np.float32([[1, 2, 3], [-4, -5, -6]])
    module.run(x=x)
    np.testing.assert_array_equal(module.get_output(0).numpy(), np.maximum((x + 1) * 10, 0))


def test_a_part_for_nobody_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="meant for mycc, but nothing generates code for it") as error:
        relay.build(_partitioned(), "llvm")
    assert 'register_func("relay.ext.mycc"' in str(error.value)


def test_what_is_no_code_is_refused() -> None:
    armillary.register_func("relay.ext.mycc", lambda function: 3)
    with pytest.raises(ConfigError, match="the code generator of mycc gave int"):
        relay.build(_partitioned(), "llvm")
    armillary.register_func("relay.ext.mycc", _wrong, override=True)
    with pytest.raises(ConfigError, match="and gave no such function"):
        relay.build(_partitioned(), "llvm")


def _wrong(function: Function) -> object:
    a = te.placeholder((2, 3), name="a")
    b = te.compute((2, 3), lambda i, j: a[i, j])
    return armillary.build(te.create_schedule(b.op), [a, b], "llvm", name="other")


def _twice() -> tuple[te.Schedule, list[te.Tensor]]:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] * 2, name="b")
    return te.create_schedule(b.op), [a, b]


def test_a_kind_of_targets_that_a_script_brings_is_built_by_its_function() -> None:
    with pytest.raises(TargetError, match="unknown target kind 'mydev'"):
        armillary.build(*_twice(), "mydev")
    armillary.register_func("target.build.mydev", lambda module, target: (sorted(module), str(target.kind)))
    assert armillary.build(*_twice(), "mydev", name="twice") == (["twice"], "mydev")


def test_code_is_made_by_the_name_of_the_kind() -> None:
    build = armillary.get_global_func("target.build.llvm")
    function = build(armillary.lower(*_twice()), armillary.target.Target("llvm"))
    values = [armillary.nd.array(np.float32([1, 2, 3, 4])) for _ in range(2)]
    function(*values)
    assert values[1].numpy().tolist() == [2, 4, 6, 8]


def test_a_device_of_a_users_own_kind_can_be_named() -> None:
    assert str(armillary.ext_dev(0)) == "ext_dev(0)"


def _softmax_of_sum(is_placed: bool) -> armillary.IRModule:
    x = relay.var("x", shape=(4,))
    y = relay.add(x, relay.const(np.float32(2)))
    y = relay.annotation.on_device(y, armillary.ext_dev(0)) if is_placed else y
    return armillary.IRModule.from_expr(relay.Function([x], relay.exp(relay.nn.softmax(y))))


@pytest.mark.parametrize(
    ("is_placed", "target", "count"),
    [(True, {"cpu": "llvm", "ext_dev": "ext_dev"}, 1), (False, "ext_dev", 2)],
)
def test_kernels_of_a_graph_are_built_by_the_function_of_their_kind(
    is_placed: bool, target: object, count: int
) -> None:
    module = _softmax_of_sum(is_placed)
    with pytest.raises(TargetError, match=r"no function 'target\.build\.ext_dev'"):
        relay.build(module, target)
    seen = []

    def build(loops: armillary.IRModule, kind: armillary.target.Target) -> object:
        seen.append((len(list(loops)), str(kind.kind)))
        return armillary.build(loops, target="llvm")

    armillary.register_func("target.build.ext_dev", build)
    library = relay.build(module, target)
    network = graph_executor.GraphModule(library["default"](armillary.cpu(), armillary.ext_dev(0)))
    values = np.arange(4, dtype=np.float32)
    network.run(x=values)
    powers = np.exp(values + 2 - 5)
    np.testing.assert_allclose(network.get_output(0).numpy(), np.exp(powers / powers.sum()), rtol=1e-5)
    assert seen == [(count, "ext_dev")]
    armillary.register_func("target.build.ext_dev", lambda loops, kind: 3, override=True)
    with pytest.raises(ConfigError, match=r"target.build.ext_dev gave int"):
        relay.build(module, target)
