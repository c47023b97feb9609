"""`PlanDevices(config)`: a device for every value, copies where values change it, on texts and on random programs."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.errors import ArmillaryError, ParseError, TargetError
from armillary.relay.expr import Call
from armillary.relay.op import Op, is_call
from armillary.relay.transform.partition._place_values import devices_of_values
from armillary.relay.walk import post_order
from armillary.target import Target, VirtualDevice, make_compilation_config

HOST = Target("llvm")
CPU = VirtualDevice(armillary.device("cpu"), Target("llvm").with_host(HOST))
GPU = VirtualDevice(armillary.device("cuda"), Target("cuda").with_host(HOST))
CONTEXT = armillary.transform.PassContext(config={"relay.fallback_device_type": 2})
CONFIG = make_compilation_config(CONTEXT, [CPU.target, GPU.target])
TABLE = {"VirtualDevice": [CPU, GPU]}


def module_of(text: str, table: dict[str, list[VirtualDevice]] = TABLE) -> armillary.IRModule:
    return relay.parse(text, "a text", None, table)


def planned(text: str) -> armillary.IRModule:
    """The plan of a text, which planning and printing leave as it is."""
    module = relay.transform.PlanDevices(CONFIG)(module_of(text))
    again = relay.transform.PlanDevices(CONFIG)(module)
    assert armillary.ir.structural_equal(module, again) and module.astext() == again.astext()
    assert relay.parse(module.astext()).astext() == module.astext()
    return module


def notes(text: str) -> list[tuple[str, ...]]:
    """Of each function of the plan where parameters and result are, then each copy."""
    module, found = planned(text), list[tuple[str, ...]]()
    for expr in post_order(module["main"]):
        if isinstance(expr, relay.Function):
            found.append((*(str(p.virtual_device_) for p in expr.params), str(expr.virtual_device_)))
        elif is_call(expr, "device_copy"):
            found.append(("copy", str(expr.attrs.src_virtual_device), str(expr.attrs.dst_virtual_device)))
    return found


def test_a_value_is_copied_to_who_reads_it() -> None:
    text = """def @main(%a: Tensor[(3,), float32], %b: Tensor[(3,), float32]) {
      %0 = on_device(negative(%a), virtual_device=meta[VirtualDevice][0]);
      add(%0, %b)
    }"""
    assert notes(text) == [("copy", "cpu", "cuda"), ("cpu", "cuda", "cuda")]
    kept = [e.attrs for e in post_order(planned(text)["main"]) if is_call(e, "annotation.on_device")]
    assert [(a.device_type, a.constrain_result) for a in kept] == [(1, True)]


def test_what_a_caller_wants_reaches_the_function() -> None:
    text = """def @main(%a: Tensor[(3,), float32], %b: Tensor[(3,), float32]) {
      let %f = fn (%x, %y) { add(%x, %y) };
      %0 = %f(%a, %b);
      %1 = on_device(%0, virtual_device=meta[VirtualDevice][0]);
      negative(%1)
    }"""
    assert notes(text) == [("cpu", "cpu", "cpu"), ("copy", "cpu", "cuda"), ("cpu", "cpu", "cuda")]


def test_a_function_that_a_function_gives_keeps_its_parameters_apart() -> None:
    text = """def @main(%x: Tensor[(3,), float32], %y: Tensor[(3,), float32]) {
      let %f = fn (%g) { fn (%a) {
          %0 = on_device(%a, virtual_device=meta[VirtualDevice][0]);
          %g(negative(%0))
      } };
      let %h = fn (%b) { exp(%b) };
      %2 = %f(%h);
      subtract(%x, %2(%y))
    }"""
    assert notes(text) == [("copy", "cpu", "cuda"), ("cpu", "cuda"), ("cuda", "cuda"), ("cuda", "cuda"),
                           ("cuda", "cpu", "cuda")]  # fmt: skip


def test_a_condition_and_a_cell_are_where_their_values_are() -> None:
    text = """def @main(%c: bool, %x: Tensor[(3,), float32], %y: Tensor[(3,), float32]) {
      let %r = ref(%x);
      ref_write(%r, on_device(%y, virtual_device=meta[VirtualDevice][0]));
      %0 = on_device(negative(%x), virtual_device=meta[VirtualDevice][1], constrain_result=True);
      if (%c) { %0 } else { ref_read(%r) }
    }"""
    assert notes(text) == [("copy", "cpu", "cuda"), ("cuda", "cuda", "cpu", "cuda")]


def test_a_field_is_copied_not_the_tuple() -> None:
    text = """def @main(%x: Tensor[(4, 2), float32]) {
      %0 = on_device(split(%x, indices_or_sections=2), virtual_device=meta[VirtualDevice][0]);
      exp(%0.1)
    }"""
    module = planned(text)
    copies = [e for e in post_order(module["main"]) if is_call(e, "device_copy")]
    assert [str(c.checked_type) for c in copies] == ["Tensor[(2, 2), float32]"]


def test_sizes_are_known_on_the_host() -> None:
    text = """def @main(%x: Tensor[(?, 2), float32]) {
      %0 = on_device(%x, virtual_device=meta[VirtualDevice][1], constrain_result=True);
      shape_of(%0)
    }"""
    assert notes(text) == [("cuda", "cpu")]


def test_memory_scopes_are_joined_or_copied() -> None:
    scopes = [CPU, *(VirtualDevice(CPU.device, CPU.target, name) for name in ("a", "b"))]
    text = """def @f(%x {virtual_device=meta[VirtualDevice][2]}: Tensor[(3,), float32],
        virtual_device=meta[VirtualDevice][2]) -> Tensor[(3,), float32] { negative(%x) }
    def @main(%p {virtual_device=meta[VirtualDevice][0]}: Tensor[(3,), float32],
        %q {virtual_device=meta[VirtualDevice][1]}: Tensor[(3,), float32], virtual_device=meta[VirtualDevice][2]) {
      %0 = @f(on_device(%p, virtual_device=meta[VirtualDevice][0], constrain_body=False));
      %1 = @f(on_device(%q, virtual_device=meta[VirtualDevice][0], constrain_body=False));
      add(%0, %1)
    }"""
    module = relay.transform.PlanDevices(CONFIG)(module_of(text, {"VirtualDevice": scopes}))
    assert [p.virtual_device_.memory_scope for p in module["main"].params] == ["b", "a"]
    copies = [e.attrs for e in post_order(module["main"]) if is_call(e, "device_copy")]
    assert [(a.src_virtual_device.memory_scope, a.dst_virtual_device.memory_scope) for a in copies] == [("a", "b")]


def _drawn(rng: random.Random) -> str:
    """A program of 12 calls, some noted, some bound by a let."""
    lines, values = [], ["%a", "%b"]
    for k in range(12):
        name = rng.choice(["add", "subtract", "multiply"])
        call = f"{name}({rng.choice(values)}, {rng.choice(values)})"
        if rng.random() < 0.4:
            fixed = rng.choice(["", ", constrain_result=True"])
            call = f"on_device({call}, virtual_device=meta[VirtualDevice][{rng.randrange(2)}]{fixed})"
        is_let = rng.random() < 0.3
        lines.append(f"let %v{k} = {call};" if is_let else f"%{k} = {call};")
        values.append(f"%v{k}" if is_let else f"%{k}")
    body = "\n".join(lines)
    return f"def @main(%a: Tensor[(3,), float32], %b: Tensor[(3,), float32]) {{\n{body}\n{values[-1]} }}"


@pytest.mark.parametrize("seed", range(8))
def test_random_plans_compute_the_same_and_read_no_other_device(seed: int) -> None:
    text = _drawn(random.Random(seed))
    before = module_of(text)
    after = relay.transform.PlanDevices(CONFIG)(before)
    where = devices_of_values(after["main"])
    for expr in where:
        if not isinstance(expr, Call) or not isinstance(expr.op, Op) or is_call(expr, "annotation.on_device"):
            continue
        if is_call(expr, "device_copy"):
            assert expr.attrs.src_virtual_device != expr.attrs.dst_virtual_device, text
            assert where[expr.args[0]] == expr.attrs.src_virtual_device, text
        else:
            assert [where[arg] for arg in expr.args] == [where[expr]] * len(expr.args), text
    given = [np.array([1.0, 2.0, 3.0], "float32"), np.array([0.5, -1.0, 0.25], "float32")]
    results = [relay.create_executor("debug", m).evaluate()(*given).numpy() for m in (before, after)]
    np.testing.assert_array_equal(*results)


def test_a_long_chain_is_planned() -> None:
    x = relay.var("x", shape=(3,))
    y = x
    for _ in range(3000):
        y = relay.add(y, y)
    module = relay.transform.PlanDevices(CONFIG)(armillary.IRModule.from_expr(relay.Function([x], y)))
    assert str(module["main"].virtual_device_) == "cuda"


def test_the_registered_function_gives_a_device_for_each_expression() -> None:
    ask = armillary.get_global_func("relay.transform.RecoverVirtualDeviceMap")
    x = relay.var("x", shape=(3,))
    module = armillary.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    with pytest.raises(TargetError, match="not every value has a device"):
        ask(module, module["main"])
    done = relay.transform.PlanDevices(CONFIG)(module)
    assert {str(d) for d in ask(done, done["main"]).values()} == {"cuda"}


BAD = {
    "must be on one device": """def @main(%a: Tensor[(3,), float32]) {
      %0 = on_device(%a, virtual_device=[1], constrain_result=True);
      on_device(%0, virtual_device=[2], constrain_result=True) }""",
    "targets are given for 1, 2": """def @main(%a: Tensor[(3,), float32]) {
      negative(on_device(%a, virtual_device=[4])) }""",
}


@pytest.mark.parametrize("message", BAD)
def test_plans_that_cannot_be(message: str) -> None:
    text = re.sub(r"virtual_device=\[(\d)\]", r"device_type=\1", BAD[message])
    with pytest.raises(TargetError, match=message):
        relay.transform.PlanDevices(CONFIG)(relay.parse(text))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("3", "expected a device"),
        ("[]", "expected a device"),
        ('[1, "x"]', "a place is a device's number"),
        ("meta[VirtualDevice][7]", "has 2 entries, the text asks for number 7"),
        ('[1, 0, "bogus", "", ""]', "unknown target kind 'bogus'"),
    ],
)
def test_devices_that_a_text_writes_wrongly(written: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        module_of(f"def @main(%x {{virtual_device={written}}}: Tensor[(3,), float32]) {{ exp(%x) }}")


def test_configurations() -> None:
    assert CONFIG.default_primary_virtual_device.device_type == 2 and CONFIG.optional_homogeneous_target is None
    assert make_compilation_config(None, [CPU.target, GPU.target]).default_primary_virtual_device.device_type == 1
    assert str(make_compilation_config(None, "llvm").host_target) == str(HOST)
    for bad in ("bogus", ["llvm", "llvm"], None):
        with pytest.raises(ArmillaryError):
            make_compilation_config(CONTEXT, bad)
    with pytest.raises(TargetError, match="device type 2, targets are given for 1"):
        make_compilation_config(CONTEXT, "llvm")
