"""Names of the text on lowering and code generation: devices by value, passes over blocks, lanes of a target."""

from __future__ import annotations

import importlib

import pytest

import armillary
from armillary import relay, tir
from armillary.errors import ConfigError
from armillary.transform import PassContext


def test_on_device_takes_a_device() -> None:
    x = relay.var("x", shape=(4,))
    call = relay.annotation.on_device(relay.tanh(x), armillary.cpu(0))
    assert call.attrs.device_type == 1 and call.checked_type == x.checked_type


@pytest.mark.parametrize("name", ["LowerInitBlock", "ConvertBlocksToOpaque", "LowerMatchBuffer"])
def test_passes_over_blocks_leave_plain_loops_as_they_are(name: str) -> None:
    a = armillary.te.placeholder((4,), name="a")
    b = armillary.te.compute((4,), lambda i: a[i])
    module = armillary.IRModule({"f": armillary.te.lower_schedule(armillary.te.create_schedule(b.op), [a, b])})
    assert getattr(tir.transform, name)()(module)["f"] is module["f"]


def test_a_phase_below_0_is_refused() -> None:
    x = relay.var("x", shape=(4,))
    config = {"tir.add_lower_pass": [(-1, tir.transform.Simplify())]}
    with PassContext(config=config), pytest.raises(ConfigError, match="phase from 0 to 3"):
        relay.build(relay.Function([x], relay.tanh(x)), "llvm")


@pytest.mark.parametrize(("cpu", "lanes"), [("skylake-avx512", 16), ("haswell", 8), ("nehalem", 4)])
def test_lanes_are_those_of_the_current_target(cpu: str, lanes: int) -> None:
    utils = importlib.import_module("armillary.topi.x86.utils")
    with armillary.target.Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}"):
        assert utils.get_simd_32bit_lanes() == lanes


def test_an_operator_is_found_by_its_class() -> None:
    assert armillary.ir.Op.get("nn.conv2d") is relay.op.get("nn.conv2d")


def test_without_assertions_the_c_text_has_none() -> None:
    def loops(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
        ib = tir.ir_builder.create()
        x, y = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 8, name="i") as i:
            ib.emit(tir.AssertStmt(x[i] < 5.0, "a large number", tir.Evaluate(tir.const(0, "int32"))))
            y[i] = x[i]
        return ib.get()

    x = armillary.te.placeholder((8,), name="x")
    y = armillary.te.extern((8,), [x], loops, dtype="float32")
    schedule = armillary.te.create_schedule(y.op)
    checked = armillary.build(schedule, [x, y], "c").get_source()
    with PassContext(config={"tir.disable_assert": True}):
        bare = armillary.build(schedule, [x, y], "c").get_source()
    assert "return 1" in checked and "return 1" not in bare


@pytest.mark.parametrize("name", ["te_compiler", "compile_engine", "graph_executor_codegen", "lower_call"])
def test_what_lowers_calls_is_an_attribute_of_the_back_end(name: str) -> None:
    assert hasattr(relay.backend, name)
