"""Kernels that the cache lacks are made in workers: the same code, and this process stays as small as with a cache."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.artifact.kernel import CompiledKernel
from armillary.codegen.workers.pool import CompileTimeoutError
from armillary.driver import kernel_worker, kernels
from armillary.driver.build import optimized
from armillary.driver.kernel_code import compile_kernel
from armillary.driver.library import GraphLibrary
from armillary.driver.program_codegen import Kernel, plan_network
from armillary.errors import ExecutionError, InternalError, UnsupportedError
from armillary.relay.op import OPS, Kind, Op
from armillary.target import Target
from armillary.transform import PassContext

TARGET = Target("llvm")
BUILD = """
import sys, armillary
from armillary import relay
x = relay.var("x", shape=(1, 16, 8, 8))
w = relay.var("w", shape=(16, 16, 3, 3))
module = armillary.IRModule.from_expr(relay.Function([x, w], relay.nn.conv2d(x, w, padding=(1, 1))))
library = relay.build(module, target="llvm")
print(len(library.kernels), *sorted(sys.modules))
"""


def kernel_of(*calls: str) -> Kernel:
    """The kernel of unary operators, one after another."""
    x = relay.var("x", shape=(5, 7))
    body: relay.Expr = x
    for name in calls:
        body = OPS[name](body)
    module = optimized(armillary.IRModule.from_expr(relay.Function([x], body)), TARGET)
    (made,) = plan_network(module["main"]).kernels.values()
    return made


def request(kernel: Kernel) -> dict[str, str]:
    (key,) = kernels.kernel_keys([(kernel.name, kernel.text)], TARGET)
    common = {"target": TARGET.to_json(), "context": kernels.context_text()}
    return {"name": kernel.name, "text": kernel.text, "key": key, **common}


@pytest.fixture
def odd_operator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Op]:
    """An operator that a script defines: workers do not know it."""
    monkeypatch.setenv("ARMILLARY_CACHE", "0")
    op = Op("test.twice", kind=Kind.ELEMENTWISE)
    op.infer(lambda attrs, x: x)
    op.compute(lambda attrs, x: armillary.te.compute(x.shape, lambda *i: x(*i) * 2.0, tag="elemwise"))
    yield op
    del OPS[op.name]


def build_one(op: Op) -> GraphLibrary:
    x = relay.var("x", shape=(3, 4))
    made: GraphLibrary = relay.build(relay.Function([x], op(x)), target="llvm")
    return made


def test_worker_makes_the_code_that_this_process_would() -> None:
    kernel = kernel_of("exp", "sqrt")
    with PassContext(opt_level=3, config={"tir.disable_vectorize": True}):
        plain = kernel_worker.make(**request(kernel))
        assert plain == compile_kernel(kernel, TARGET, jobs=1).to_bytes(TARGET)
    assert CompiledKernel.from_bytes(kernel_worker.make(**request(kernel))).code not in plain


def test_kernel_is_written_to_the_cache_once(tmp_path: Path) -> None:
    env = {"ARMILLARY_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(armillary.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", BUILD], env=env, capture_output=True, text=True, check=True)
    assert len(list(tmp_path.glob("kernels/*/*"))) == int(done.stdout.split()[0])


def test_process_that_builds_loads_neither_loops_nor_llvm(tmp_path: Path) -> None:
    env = {"ARMILLARY_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(armillary.__file__).parents[1])}
    count, *modules = subprocess.check_output([sys.executable, "-c", BUILD], env=env, text=True).split()
    assert int(count) == 1 and "armillary.driver.kernels" in modules
    late = {f"armillary.{name}" for name in ("driver.kernel_code", "codegen.llvm.emit", "codegen.llvm.machine")}
    late.add("llvmlite.binding")
    assert late.isdisjoint(modules)


def test_worker_refuses_a_kernel_of_another_compiler() -> None:
    with pytest.raises(InternalError, match="its key is another one"):
        kernel_worker.make(**{**request(kernel_of("exp")), "key": "0" * 64})


def test_kernel_that_takes_too_long_is_named_with_its_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(requests: Sequence[object], jobs: int, took: object = None) -> Iterator[tuple[int, BaseException]]:
        yield 0, CompileTimeoutError("a compile worker took longer than 300 s and was stopped", hint="wait longer")

    monkeypatch.setenv("ARMILLARY_CACHE", "0")
    monkeypatch.setattr(kernels._WORKERS, "ask_all", late)
    with pytest.raises(ExecutionError, match=r"longer than 300 s.*kernel fused_exp_sqrt_\w+ \(exp, sqrt\)") as message:
        kernels.compile_kernels([kernel_of("exp", "sqrt")], TARGET)
    assert "Tensor[(5, 7), float32]" in str(message.value) and "opt_level=0" in message.value.hint


def test_two_processes_that_build_the_same_at_once_agree(tmp_path: Path) -> None:
    env = {"ARMILLARY_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(armillary.__file__).parents[1])}
    both = [subprocess.Popen([sys.executable, "-c", BUILD], env=env, stdout=subprocess.PIPE) for _ in range(2)]
    counts = [process.communicate()[0].split()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert len(list(tmp_path.glob("kernels/*/*"))) == int(counts[0])
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]  # nothing half written


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda _: b"", lambda data: data[:-1] + b"?"])
def test_damaged_kernel_in_the_cache_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setenv("ARMILLARY_CACHE_DIR", str(tmp_path))
    kernel = kernel_of("exp", "sqrt")
    good = kernels.compile_kernels([kernel], TARGET)
    (path,) = tmp_path.glob("kernels/*/*")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert kernels.compile_kernels([kernel], TARGET) == good
    assert path.read_bytes() == whole


def test_cache_that_takes_no_more_costs_a_warning(tmp_path: Path) -> None:
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))"  # as a full disk
    env = {"ARMILLARY_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(armillary.__file__).parents[1])}
    command = [sys.executable, "-c", f"{code}\n{BUILD}"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.split()[0] == "1", done.stderr
    assert done.stderr.count("cannot be written to, kernels are compiled each time") == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size]  # nothing half written


def test_operator_of_a_script_is_compiled_in_the_process_that_has_it(odd_operator: Op) -> None:
    executor = build_one(odd_operator)["default"]()
    executor.set_input("x", np.ones((3, 4), np.float32))
    executor.run()
    np.testing.assert_array_equal(executor.get_output(0).numpy(), np.full((3, 4), 2, np.float32))


def test_operator_that_a_script_changed_is_compiled_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMILLARY_CACHE", "0")
    monkeypatch.setattr(OPS["tanh"], "compute_rule", lambda attrs, x: armillary.te.compute(x.shape, lambda *i: x(*i)))
    executor = build_one(OPS["tanh"])["default"]()
    executor.set_input("x", np.full((3, 4), 5, np.float32))
    executor.run()
    np.testing.assert_array_equal(executor.get_output(0).numpy(), np.full((3, 4), 5, np.float32))


def test_error_of_lowering_is_raised_where_the_build_was_asked_for(odd_operator: Op) -> None:
    def refuse(attrs: None, x: object) -> None:
        raise UnsupportedError("no such loops today")

    odd_operator.compute(refuse)
    with pytest.raises(UnsupportedError, match="no such loops today"):
        build_one(odd_operator)
