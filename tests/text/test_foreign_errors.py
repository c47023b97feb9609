"""What is too long, too deep or not given ends in an error of this package, never in one of Python's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import relay, te
from armillary.base.data_layout import layout
from armillary.base.dtype import DType
from armillary.cli.main import REFUSED, main
from armillary.errors import ArmillaryError, ParseError, ScheduleError, TargetError, TypeMismatch
from armillary.target import Target
from armillary.target.choice import Choice
from armillary.tir.parser import parse_module

DIGITS = "9" * 5001
HEAD = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), float32])'
RELAY = {
    "attribute": f"{HEAD} {{ sum(%x, axis=[{DIGITS}]) }}",
    "dimension": f'#[version = "0.0.5"]\ndef @main(%x: Tensor[({DIGITS}, 3), float32]) {{ %x }}',
    "float": f"{HEAD} {{ add(%x, {DIGITS}f) }}",
    "integer": f"{HEAD} {{ add(%x, {DIGITS}) }}",
    "exponent": f"{HEAD} {{ add(%x, 1e{DIGITS}f) }}",
    "field": f"{HEAD} {{ %x.{DIGITS} }}",
    "type": f'#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), int{DIGITS}]) {{ %x }}',
    "constant": f"{HEAD} {{ add(%x, meta[relay.Constant][{DIGITS}]) }}",
}


@pytest.mark.parametrize("place", RELAY)
def test_numbers_of_thousands_of_digits_in_relay(place: str) -> None:
    with pytest.raises(ArmillaryError):
        relay.fromtext(RELAY[place])


@pytest.mark.parametrize("number", [DIGITS, f"-{DIGITS}", f"0x{DIGITS}", f"{DIGITS}.5", f"1e{DIGITS}"])
@pytest.mark.parametrize("place", ["for i in range({})", "A[{}] = 1.0", "A[0] = {}"])
def test_numbers_of_thousands_of_digits_in_tir(number: str, place: str) -> None:
    line = place.format(number)
    body = f"  {line} {{\n    A[i] = 1.0\n  }}\n" if line.startswith("for") else f"  {line}\n"
    with pytest.raises(ParseError, match=r"a number of \d+ characters, at most 400 are read"):
        parse_module(f"func @main(A: Buffer[(8,), float32]) attrs {{}} {{\n{body}}}\n")


def test_the_longest_number_that_is_printed_is_read() -> None:
    x = relay.var("x", shape=(2,))
    module = armillary.IRModule.from_expr(relay.Function([x], x + relay.const(-3.4028234663852886e38)))
    armillary.ir.assert_structural_equal(relay.fromtext(module.astext()), module)
    text = f"func @main(A: Buffer[(8,), float64]) attrs {{}} {{\n  A[0] = {int(1e308)}.0f64\n}}\n"
    assert "1e+308" in str(parse_module(text)["main"])


@pytest.mark.parametrize(
    "read",
    [
        lambda: DType(f"int{DIGITS}"),
        lambda: DType(f"float32x{DIGITS}"),
        lambda: layout(f"NCHW{DIGITS}c"),
        lambda: Choice.parse(f"conv2d.direct rows={DIGITS}"),
        lambda: Choice.parse(f"conv2d.direct rows=1 | if width in 1..{DIGITS}"),
        lambda: Target(f"llvm -num-cores={DIGITS}"),
        lambda: Target({"kind": "llvm", "num-cores": 10**5000}),
        lambda: relay.const(10**5000),
        lambda: armillary.nd.array(10**5000),
    ],
)
def test_numbers_of_thousands_of_digits_elsewhere(read: Callable[[], object]) -> None:
    with pytest.raises(ArmillaryError):
        read()


@pytest.mark.parametrize(
    "options",
    [
        ["--input-shapes", f"x:[{DIGITS},3]"],
        ["--variants", f"x:1x{DIGITS}"],
        ["--variants", f"batch={DIGITS}"],
        ["--target", f"llvm -num-cores={DIGITS}"],
        ["--pass-config", f"relay.FuseOps.max_depth={DIGITS}"],
        ["--desired-layout", f"NCHW{DIGITS}c"],
    ],
)
def test_numbers_of_thousands_of_digits_on_the_command_line(options: list[str], tmp_path: Path) -> None:
    model = tmp_path / "model.relay"
    model.write_text(f"{HEAD} {{ nn.relu(%x) }}\n")
    assert main(["compile", str(model), "-o", str(tmp_path / "m.tar"), *options]) == REFUSED


def test_hosts_inside_hosts_are_bounded() -> None:
    deep: dict[str, object] = {"kind": "llvm"}
    for _ in range(500):
        deep = {"kind": "llvm", "host": deep}
    for target in (deep, json.dumps(deep)):
        with pytest.raises(TargetError, match="more than 8 hosts"):
            Target(target)
    chain = Target("llvm")
    for _ in range(7):
        chain = Target("llvm").with_host(chain)
    with pytest.raises(TargetError, match="more than 8 hosts"):
        Target("llvm").with_host(Target("llvm").with_host(chain))
    assert Target({"kind": "opencl", "host": {"kind": "llvm", "host": "llvm"}}).host is not None


class Guarded:
    """What a tensor of PyTorch that requires a gradient does, for readers of arrays."""

    shape, dtype = (2,), "float32"

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")

    def numpy(self) -> np.ndarray:
        return self.__array__()

    def detach(self) -> np.ndarray:
        return np.ones(2, "float32")


def test_a_tensor_that_does_not_give_its_values_is_refused_with_a_hint() -> None:
    x = relay.var("x", shape=(2,))
    module = armillary.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    library = relay.build(module, "llvm")
    network = armillary.contrib.graph_executor.GraphModule(library["default"](armillary.cpu()))
    place = armillary.nd.empty((2,))
    for use in (
        armillary.nd.array,
        relay.const,
        place.copyfrom,
        lambda value: network.set_input("x", value),
        lambda value: relay.build(module, "llvm", params={"x": value}),
    ):
        with pytest.raises(TypeMismatch, match=r"requires grad(.|\n)*detach"):
            use(Guarded())


def test_rfactor_of_an_axis_at_which_a_stage_is_computed_names_both() -> None:
    a = te.placeholder((7, 8), name="A")
    b = te.compute((7, 8), lambda i, j: a[i, j] * 2.0, name="B")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute((7,), lambda i: te.sum(b[i, k], axis=k), name="C")
    for split in (False, True):
        s = te.create_schedule(c.op)
        axis = s[c].op.reduce_axis[0]
        outer, inner = s[c].split(axis, factor=2) if split else (axis, axis)
        s[b].compute_at(s[c], outer)
        before = str(s)
        with pytest.raises(ScheduleError, match=r"rfactor on stage C: stage B is computed at axis k\S*, which it"):
            s.rfactor(c, inner)
        assert str(s) == before and "B" in str(armillary.lower(s, [a, c], simple_mode=True))
