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
