"""A library that computes on the graph's own OpenCL device: its kernels and ours take turns in one queue."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.base.c_compiler import find_compiler
from armillary.errors import UnsupportedError
from armillary.ir import IRModule
from armillary.offload.contract import JsonModule, Offload, PatternRow, partition, register_offload
from armillary.offload.graph_json import as_json
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Expr, Function, const, var
from armillary.relay.pattern import is_constant, is_op, wildcard
from armillary.runtime import load_module
from armillary.runtime.build_native import INCLUDE_DIR, NATIVE_DIR

sys.path.insert(0, str(Path(__file__).parents[1]))
from opencl_device import needs_opencl

TWICE = PatternRow("twice", lambda: is_op("add")(is_op("multiply")(wildcard(), is_constant()), is_constant()))
X = np.random.default_rng(4).standard_normal((3, 5)).astype("float32")


def on_device(function: Function) -> JsonModule:
    made = as_json(function)
    # The factor of 2 is the library's own; its constant is what is added.
    return JsonModule(made.source, made.constants[-1:], device="opencl")


LIBRARY = register_offload(Offload("double", on_device, (TWICE,)))


def step(x: Expr, seed: int) -> Expr:
    added = np.random.default_rng(seed).standard_normal((3, 5)).astype("float32")
    return relay.add(relay.multiply(x, const(np.full((3, 5), 2, "float32"))), const(added))


def network() -> IRModule:
    x = var("x", shape=(3, 5))
    y = relay.sigmoid(step(relay.tanh(step(x, 1)), 2))
    return IRModule.from_expr(Function((x,), relay.add(y, relay.exp(x))))


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    source, output = Path(__file__).with_name("double_runtime.c"), tmp_path / "libarmillary_external_double.so"
    flags = ("-O1", "-Wall", "-shared", "-fPIC", f"-I{INCLUDE_DIR}", f"-I{NATIVE_DIR}")
    subprocess.run([*(find_compiler() or ["cc"]), *flags, str(source), "-o", str(output), "-ldl"], check=True)
    monkeypatch.setenv("ARMILLARY_EXTERNAL_PATH", str(tmp_path))
    return tmp_path


@needs_opencl
def test_kernels_of_both_run_in_order(found: Path) -> None:
    library = relay.build(partition(network(), LIBRARY), "opencl")
    package = found / "net.tar"
    library.export_library(package)
    wanted = evaluate(network(), [X])
    for made in (library, load_module(package)):
        graph = made["default"](armillary.cl(0))
        for _ in range(3):
            graph.set_input("x", X)
            graph.run()
            np.testing.assert_allclose(graph.get_output(0).numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert [m.type_key for m in library.get_lib().imported_modules] == ["opencl", "double", "double"]


def test_a_graph_elsewhere_is_refused(found: Path) -> None:
    with pytest.raises(UnsupportedError, match="is computed by double on opencl, the rest on the CPU") as error:
        relay.build(partition(network(), LIBRARY), "llvm")
    assert '"opencl, double, llvm"' in error.value.hint
