"""Names and forms that Relay-era scripts use: comparisons, visitors, scopes, registered functions."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay, te
from armillary.errors import ConfigError, TargetError, TypeMismatch
from armillary.relay import testing
from armillary.relay.testing.temp_op_attr import TempOpAttr


def _convolution(name: str = "x", strides: tuple[int, int] = (1, 1)) -> relay.Function:
    x, w = relay.var(name, shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    return relay.Function([x, w], relay.nn.relu(relay.op.nn.conv2d(x, w, strides=strides)))


def test_equal_programs_are_equal_whatever_their_variables_are_called() -> None:
    armillary.ir.assert_structural_equal(_convolution(), _convolution("other"))
    assert armillary.ir.structural_hash(_convolution()) == armillary.ir.structural_hash(_convolution("other"))
    assert not armillary.ir.structural_equal(_convolution(), _convolution(strides=(2, 2)))
    with pytest.raises(ValueError, match="programs differ"):
        armillary.ir.assert_structural_equal(_convolution(), _convolution(strides=(2, 2)))


def test_free_variables_match_only_themselves_unless_asked() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    assert armillary.ir.structural_equal(relay.exp(x), relay.exp(x))
    assert not armillary.ir.structural_equal(relay.exp(x), relay.exp(y))
    assert armillary.ir.structural_equal(relay.exp(x), relay.exp(y), map_free_vars=True)


def test_a_mutator_rebuilds_what_it_changes_and_keeps_the_rest() -> None:
    class Doubled(relay.ExprMutator):
        def visit_call(self, call: Any) -> Any:
            made = super().visit_call(call)
            return relay.add(made, made) if call.op.name == "nn.relu" else made

    function = _convolution()
    changed = Doubled().visit(function)
    assert changed.body.op.name == "add"
    assert changed.body.args[0].args[0] is function.body.args[0]
    assert relay.ExprMutator().visit(function) is function


def test_a_visitor_walks_deep_graphs_and_sees_every_call_once() -> None:
    class Count(relay.ExprVisitor):
        calls = 0

        def visit_call(self, call: Any) -> Any:
            self.calls += 1
            return super().visit_call(call)

    value = relay.var("x", shape=(2,))
    for _ in range(5000):
        value = relay.exp(value)
    count = Count()
    count.visit(value)
    assert count.calls == 5000


def test_scopes_become_lets_and_ifs() -> None:
    builder, p = relay.ScopeBuilder(), relay.var("p", shape=(), dtype="bool")
    with builder.if_scope(p):
        builder.ret(relay.const(1.0))
    with builder.else_scope():
        builder.ret(builder.let("z", relay.const(2.0)))
    function = relay.Function([p], builder.get())
    evaluate = relay.create_executor("debug").evaluate(function)
    assert (float(evaluate(np.array(True)).numpy()), float(evaluate(np.array(False)).numpy())) == (1.0, 2.0)
    with pytest.raises(TypeMismatch, match="ends with ret"):
        relay.ScopeBuilder().get()


def test_calling_functions_and_global_names() -> None:
    x = relay.var("x", shape=(3,))
    double = relay.Function([x], relay.add(x, x))
    y = relay.var("y", shape=(3,))
    module = armillary.IRModule.from_expr(relay.Function([y], relay.exp(double(y))))
    executor = relay.create_executor("graph", module).evaluate()
    np.testing.assert_allclose(executor(np.ones(3, "float32")).numpy(), np.full(3, np.exp(2.0)), rtol=1e-5)
    assert relay.var("s", "float32").checked_type == relay.TensorType((), "float32")
    assert y.astype("int8").checked_type == relay.TensorType((3,), "int8")


def test_temporary_rules_of_an_operator_end_with_their_context() -> None:
    x = relay.var("x", shape=(3,))
    rule = lambda attrs, inputs, types: relay.multiply(inputs[0], relay.const(2.0))  # noqa: E731
    with TempOpAttr("exp", "FTVMLegalize", rule):
        changed = testing.run_opt_pass(relay.exp(x), relay.transform.Legalize())
    assert changed.op.name == "multiply"
    assert testing.run_opt_pass(relay.exp(x), relay.transform.Legalize()).op.name == "exp"


def test_registered_functions_are_found_by_name() -> None:
    @armillary.register_func("tests.answer", override=True)
    def answer() -> int:
        return 42

    found = armillary.get_global_func("tests.answer")
    assert found is answer
    assert armillary.get_global_func("tests.nothing", allow_missing=True) is None
    with pytest.raises(ConfigError, match=r"no global function 'tests\.nothing'"):
        armillary.get_global_func("tests.nothing")


def test_devices_without_code_can_be_named_and_say_so_when_used() -> None:
    assert not armillary.cuda(0).exist
    assert armillary.runtime.enabled("llvm")
    with pytest.raises(TargetError, match=r"cuda\(0\) is not available"):
        armillary.nd.array(np.zeros(2), armillary.cuda(0))


def test_bounds_and_loops_of_a_schedule() -> None:
    a = te.placeholder((8, 4), name="a")
    b = te.compute((8, 4), lambda i, j: a[i, j] + 1, name="b")
    schedule = te.create_schedule(b.op)
    bounds = te.schedule.InferBound(schedule)
    assert [int(bounds[axis].extent.value) for axis in b.op.axis] == [8, 4]
    assert "for" in str(te.schedule.ScheduleOps(schedule, bounds))


def test_proofs_claim_only_what_follows() -> None:
    analyzer, n = armillary.arith.Analyzer(), te.var("n")
    assert analyzer.can_prove_equal((n + 1) * 2 - n, n + 2)
    assert not analyzer.can_prove_equal(n * 2, n)
    analyzer.bind(n, 3)
    assert analyzer.can_prove(n < 4)


def test_executors_and_files_that_are_not_there_are_refused_by_name() -> None:
    assert relay.backend.Executor("graph", {"link-params": True})["link-params"]
    with pytest.raises(ConfigError, match='Executor "vm" is not defined'):
        relay.backend.Executor("vm")
    with pytest.raises(ConfigError, match="nothing is downloaded"):
        armillary.contrib.download.download_testdata("https://example.org/cat.png", "cat.png", module="data")


def test_what_converters_of_scripts_ask_of_expressions() -> None:
    common = importlib.import_module("armillary.relay.frontend.common")
    assert common.infer_type is relay.frontend.common.infer_type
    assert importlib.import_module("armillary.relay.frontend").from_onnx is relay.frontend.from_onnx
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(3,))
    assert common.infer_shape(common.infer_type(relay.add(x, w))) == (2, 3)
    doubled = common.infer_value(relay.add(w, w), {"w": np.arange(3, dtype="float32")})
    np.testing.assert_array_equal(doubled.numpy(), [0, 2, 4])
    for call, message in (
        (lambda: common.infer_value(relay.add(x, w), {"w": np.ones(3, "float32")}), "the value of %x is not known"),
        (lambda: common.infer_shape(relay.Tuple([x, w])), "wanted a tensor"),
        (lambda: common.infer_type(relay.add(x, relay.var("v", shape=(4,)))), "add"),
    ):
        with pytest.raises(TypeMismatch, match=message):
            call()
