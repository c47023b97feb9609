"""The run program: what builds make is printed, read back, verified, and means what the runtime computes."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.artifact import GraphSpec
from armillary.base.extent import size
from armillary.contrib import graph_executor
from armillary.driver.build import optimized
from armillary.driver.program_codegen import plan_network
from armillary.errors import ArtifactError, ParseError, TypeMismatch
from armillary.program.from_graph import program_of
from armillary.program.interpret import interpret
from armillary.program.nodes import Variant
from armillary.program.text import parse_program, print_program
from armillary.program.verify import verify
from armillary.relay.evaluate import evaluate
from armillary.target import Target

RNG = np.random.default_rng(5)
B = size("b", 1, 8)


def _const(*shape: int) -> Any:
    return relay.const((RNG.standard_normal(shape) * 0.3).astype("float32"))


def _network(batch: Any) -> relay.Function:
    x = relay.var("x", relay.TensorType((batch, 3, 12, 12)))
    first = relay.nn.relu(relay.nn.conv2d(x, _const(8, 3, 3, 3), kernel_size=(3, 3), padding=(1, 1), channels=8))
    second = relay.nn.conv2d(first, _const(8, 8, 1, 1), kernel_size=(1, 1), channels=8)
    joined = relay.concatenate([first, relay.nn.relu(second)], axis=1)
    return relay.Function([x], relay.nn.dense(relay.nn.batch_flatten(joined), _const(5, 16 * 144)))


def _branch() -> relay.Function:
    x, flag = relay.var("x", shape=(4,)), relay.var("flag", shape=(), dtype="bool")
    return relay.Function([x, flag], relay.If(flag, relay.exp(x), relay.nn.relu(x) + relay.const(1.0)))


def _computed(kernel: Any) -> Callable[..., list[Any]]:
    """What a kernel computes by the operators' references."""

    def run(sizes: Any, *arrays: Any) -> list[Any]:
        result = evaluate(kernel.function, list(arrays), sizes=sizes)
        return list(result) if isinstance(result, tuple | list) else [np.asarray(result)]

    return run


def _built(function: relay.Function) -> tuple[Any, Any, dict[str, Callable[..., list[Any]]]]:
    """The library, its program, and what its functions compute by the operators' references."""
    module, target = armillary.IRModule.from_expr(function), Target("llvm")
    library = relay.build(module, target)
    kernels = plan_network(optimized(module, target)["main"]).kernels

    program = program_of(GraphSpec.from_json(library.get_graph_json()), library.get_params())
    return library, program, {name: _computed(kernel) for name, kernel in kernels.items()}


@pytest.mark.parametrize("make", [lambda: _network(2), lambda: _network(B), _branch])
def test_what_is_built_prints_parses_and_is_verified(make: Callable[[], relay.Function]) -> None:
    _, program, _ = _built(make())
    text = print_program(program)
    assert parse_program(text) == program
    verify(program)
    assert text.startswith("program (") and "return %" in text


@pytest.mark.parametrize(("make", "batch"), [(lambda: _network(2), 2), (lambda: _network(B), 3)])
def test_the_interpreter_and_the_runtime_agree(make: Callable[[], relay.Function], batch: int) -> None:
    library, program, functions = _built(make())
    x = RNG.standard_normal((batch, 3, 12, 12)).astype("float32")
    network = graph_executor.GraphModule(library["default"](armillary.cpu()))
    network.run(x=x)
    given = {name: np.asarray(array) for name, array in library.get_params().items()}
    (result,) = interpret(program, {**given, "x": x}, functions)
    np.testing.assert_allclose(network.get_output(0).numpy(), result, rtol=1e-4, atol=1e-4)


def test_a_branch_means_what_the_runtime_computes() -> None:
    library, program, functions = _built(_branch())
    x, network = (
        RNG.standard_normal(4).astype("float32"),
        graph_executor.GraphModule(library["default"](armillary.cpu())),
    )
    given = {name: np.asarray(array) for name, array in library.get_params().items()}
    for flag in (True, False):
        network.run(x=x, flag=np.array(flag))
        (result,) = interpret(program, {**given, "x": x, "flag": np.array(flag)}, functions)
        np.testing.assert_allclose(network.get_output(0).numpy(), result, rtol=1e-5)


_GOOD = """program (b in 1..64 step 2) {
  %x: float32[b, 8] input slot 0
  %w: float32[4, 8] constant slot 1
  %t2: float32[b, 4] transient slot 2 at ?
  %t3: float32[2*b + 1] output slot 3 device 4 scope "global.texture"
  call dense(%x, %w) -> %t2
  call more(%t2) -> %t3
  return %t3
}
"""


def test_texts_are_read_back_as_they_were_printed() -> None:
    program = parse_program(_GOOD)
    assert print_program(program) == _GOOD and program.value("x").shape[0] == size("b")
    verify(program)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("call dense(%x, %w)", "call dense(%x, %t3)", "reads %t3 before it is written"),
        ("call more(%t2) -> %t3", "call more(%t2) -> %x", "writes %x, which is not its own"),
        ("%x: float32[b, 8]", "%x: float32[2, 8]", "the size b is no axis of an input"),
        ("float32[2*b + 1]", "float32[c]", "has the size c, which is not declared"),
        ("  return %t3\n", "", "its last statement is no return"),
    ],
)
def test_programs_that_do_not_hold_together_are_refused(old: str, new: str, message: str) -> None:
    assert old in _GOOD
    with pytest.raises(ArtifactError, match=message.replace("(", r"\(")):
        verify(parse_program(_GOOD.replace(old, new)))


def test_transients_that_lie_over_one_another_are_refused() -> None:
    text = """program () {
  %x: float32[8] input slot 0
  %a: float32[8] transient slot 1 at 0
  %c: float32[8] transient slot 2 at 16
  %y: float32[8] output slot 3
  call f(%x) -> %a
  call g(%x) -> %c
  call h(%a, %c) -> %y
  return %y
}
"""
    verify(parse_program(text.replace("at 16", "at 64")))
    with pytest.raises(ArtifactError, match="%a and %c lie over one another"):
        verify(parse_program(text))


def test_what_is_no_program_names_the_place() -> None:
    for text, message in (
        ("program (b in 5) {}", "expected a range"),
        (_GOOD.replace("call more", "jump more"), "jump is no statement"),
        (_GOOD.replace("transient", "forever"), "forever is no lifetime"),
        (_GOOD + "x", "expected the end"),
    ):
        with pytest.raises(ParseError, match=message):
            parse_program(text)


def test_variants_are_bodies_of_one_program() -> None:
    modules = [armillary.IRModule.from_expr(_network(n)) for n in (1, 2)]
    module = armillary.driver.variants.variants_of(modules)
    library = relay.build(module, "llvm")
    program = program_of(GraphSpec.from_json(library.get_graph_json()), library.get_params())
    verify(program)
    assert parse_program(print_program(program)) == program
    variants = [s for s in program.body if isinstance(s, Variant)]
    assert [program.value(v.inputs[0]).shape[0] for v in variants] == [1, 2]
    assert {program.value(v.inputs[0]).key for v in variants} == {"x"}
    with Target("llvm"):
        kernels = [plan_network(optimized(m, Target("llvm"))["main"]).kernels for m in modules]
    functions = {name: _computed(kernel) for part in kernels for name, kernel in part.items()}
    network = graph_executor.GraphModule(library["default"](armillary.cpu()))
    constants = {name: np.asarray(array) for name, array in library.get_params().items()}
    for batch in (1, 2):
        x = RNG.standard_normal((batch, 3, 12, 12)).astype("float32")
        network.run(x=x)
        (result,) = interpret(program, {**constants, "x": x}, functions)
        np.testing.assert_allclose(network.get_output(0).numpy(), result, rtol=1e-4, atol=1e-4)
    with pytest.raises(TypeMismatch, match="no variant takes"):
        interpret(program, {**constants, "x": np.zeros((3, 3, 12, 12), "float32")}, functions)


def test_the_command_line_prints_the_program_of_relay_text(tmp_path: Path) -> None:
    file = tmp_path / "net.relay"
    file.write_text("def @main(%x: Tensor[(b{1, 8}, 4), float32]) { nn.relu(%x) }")
    command = [sys.executable, "-m", "armillary.cli", "opt", str(file), "--program"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    program = parse_program(done.stdout)
    assert [s.name for s in program.sizes] == ["b"] and program.value("x").shape == (B, 4)
