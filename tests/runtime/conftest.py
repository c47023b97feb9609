"""A library of hand-written kernels, a graph over it, and the package that holds both."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from armillary import artifact, runtime
from armillary.artifact import ArgRow, Descriptor, FunctionRow, GraphNode, GraphSpec, PhaseRow, VarRow
from armillary.artifact import package as artifact_package
from armillary.contrib.cc import get_cc

HERE = Path(__file__).parent


def descriptor() -> Descriptor:
    """The rows of kernels.c."""
    n, box = ("n",), (6, 8)
    rows = (
        FunctionRow(
            "add",
            (ArgRow("a", n, "float32"), ArgRow("b", n, "float32"), ArgRow("c", n, "float32", "out")),
            (PhaseRow("add__p0", "add__e0"),),
            (VarRow("n"),),
        ),
        FunctionRow(
            "center",
            (ArgRow("x", box, "float32"), ArgRow("y", box, "float32", "out")),
            (PhaseRow("center__p0", 6), PhaseRow("center__p1", 6)),
            workspace=24,
            thread_workspace=64,
        ),
        FunctionRow("count", (ArgRow("x", n, "int32", "out"),), (PhaseRow("count__p0", 1000),), (VarRow("n"),)),
        FunctionRow(
            "positive",
            (ArgRow("x", box, "float32"), ArgRow("y", box, "float32", "out")),
            (PhaseRow("positive__p0", 6),),
            asserts=("an element is negative",),
        ),
        FunctionRow(
            "refuse", (), (PhaseRow("refuse__p0", 1),), (VarRow("k"),), asserts=("first", "k must be at most 3")
        ),
    )
    return Descriptor("c", {row.name: row for row in rows})


def graph() -> GraphSpec:
    """center(x) flattened, plus the parameter w."""
    nodes = (
        GraphNode("null", "x"),
        GraphNode("null", "w"),
        GraphNode("tvm_op", "center", ((0, 0, 0),), "center"),
        GraphNode("tvm_op", "flatten", ((2, 0, 0),), "__nop"),
        GraphNode("tvm_op", "add", ((3, 0, 0), (1, 0, 0)), "add"),
    )
    return GraphSpec(
        nodes,
        (0, 1),
        ((4, 0, 0),),
        ((6, 8), (48,), (6, 8), (48,), (48,)),
        ("float32",) * 5,
        (0, 1, 2, 2, 3),
        (-1, -1, 0, -1),
    )


WEIGHT = np.arange(48, dtype=np.float32)


def expected(x: np.ndarray) -> np.ndarray:
    """What the graph computes."""
    return (x - x.sum(1, keepdims=True)).reshape(-1) + WEIGHT


def compile_library(folder: Path, compiler: list[str], needs: tuple[str, ...] = ()) -> Path:
    """kernels.c with its descriptor as a shared library; `needs` are what it says of the processor."""
    text = replace(descriptor(), needs=needs).to_json().replace("\\", "\\\\").replace('"', '\\"')
    (folder / "descriptor.c").write_text(
        f'__attribute__((visibility("default"))) const char armillary_descriptor[] = "{text}";\n'
    )
    output = folder / "mod.so"
    sources = [str(HERE / "kernels.c"), str(folder / "descriptor.c")]
    subprocess.run([*compiler, "-O1", "-shared", "-fPIC", "-o", str(output), *sources], check=True)
    return output


def make_package(library: Path) -> artifact_package.Package:
    """The package of a compiled library."""
    return artifact_package.Package(library.read_bytes(), graph().to_json(), artifact.save_params({"w": WEIGHT}))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("kernels"), get_cc())


@pytest.fixture(scope="session")
def module(library: Path) -> runtime.Module:
    return runtime.load_module(library)


@pytest.fixture(scope="session")
def package(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("package") / "x.tar"
    artifact_package.save_package(path, make_package(library))
    return path


@pytest.fixture(scope="session")
def runner(built_runner: Callable[..., Path]) -> Path:
    """armrun with the address and undefined-behaviour sanitizers."""
    return built_runner(get_cc(), sanitized=True)
