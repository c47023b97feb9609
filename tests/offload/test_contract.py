"""A library of twenty lines goes through partition, build, packages, this process and the native runner."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import relay, runtime
from armillary.base.c_compiler import find_compiler
from armillary.errors import ArmillaryError, ConfigError, ExecutionError, UnsupportedError
from armillary.ir import IRModule
from armillary.offload.contract import Offload, SourceModule, find_offload, partition, register_offload
from armillary.offload.graph_json import as_json
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Expr, Function, const, var
from armillary.runtime.build_native import INCLUDE_DIR

sys.path.insert(0, str(Path(__file__).parent))
from scale_library import LIBRARY

X = np.random.default_rng(1).standard_normal((2, 3)).astype("float32")


def step(value: Expr, factor: float) -> Expr:
    return relay.nn.relu(relay.multiply(value, const(np.array([1, factor, 3], "float32"))))


def network() -> IRModule:
    x = var("x", shape=(2, 3))
    inner = relay.negative(step(step(x, 2.0), 0.5))
    return IRModule.from_expr(Function((x,), relay.add(relay.tanh(inner), x)))


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the test library's runtime."""
    folder = tmp_path_factory.mktemp("external")
    source, output = Path(__file__).with_name("scale_runtime.c"), folder / "libarmillary_external_scale.so"
    flags = ("-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I", str(INCLUDE_DIR))
    subprocess.run([*(find_compiler() or ["cc"]), *flags, str(source), "-o", str(output)], check=True)
    return folder


@pytest.fixture
def found(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARMILLARY_EXTERNAL_PATH", f"/nowhere:{libraries}")
    return libraries


def run(library: object, value: np.ndarray = X) -> np.ndarray:
    graph = library["default"](armillary.cpu(0))  # type: ignore[index]
    graph.set_input("x", value)
    graph.run()
    return np.asarray(graph.get_output(0).numpy())


@pytest.mark.parametrize("merges", [False, True])
def test_parts_of_a_graph_run_in_the_library(found: Path, merges: bool) -> None:
    manifest = Offload("scale", as_json, LIBRARY.patterns, LIBRARY.operators, merges_regions=merges)
    library = relay.build(partition(network(), manifest), "llvm")
    np.testing.assert_allclose(run(library), evaluate(network(), [X]), rtol=1e-6, atol=1e-7)
    modules = library.lib.imported_modules
    assert [m.type_key for m in modules] == ["scale"] * (1 if merges else 3)
    assert modules[0].symbol == "tvmgen_default_scale_main_0" and modules[0].imported_modules == []
    text = json.loads(modules[0].get_source("json"))
    assert [n["op"] for n in text["nodes"]] == (
        ["input"] + (["const", "kernel"] * 2 + ["kernel"] if merges else ["const", "kernel"])
    )
    assert next(n["name"] for n in text["nodes"] if n["op"] == "kernel") == "scale.scale"
    with pytest.raises(ConfigError, match="the source is json, not 'c'"):
        modules[0].get_source("c")


def test_packages_of_every_form_hold_the_modules(
    found: Path, built_runner: Callable[..., Path], tmp_path: Path
) -> None:
    expected = evaluate(network(), [X])
    library = relay.build(partition(network(), LIBRARY), "llvm")
    np.savez(tmp_path / "in.npz", x=X)
    for name in ("x.so", "x.tar"):
        library.export_library(tmp_path / name)
    with tarfile.open(tmp_path / "x.tar") as archive:
        archive.extractall(tmp_path / "folder", filter="data")
    armrun = built_runner(find_compiler() or ["cc"])
    for name in ("x.so", "x.tar", "folder"):
        loaded = runtime.load_module(tmp_path / name)
        assert [m.get_source() for m in loaded.imported_modules] == [m.source for m in library.imported_modules]
        np.testing.assert_allclose(run(loaded), expected, rtol=1e-6, atol=1e-7)
        out = tmp_path / "out.npz"
        command = [
            armrun,
            tmp_path / name,
            f"--input={tmp_path / 'in.npz'}",
            f"--output={out}",
            "--run-count=2",
            "--profile",
        ]
        subprocess.run(command, check=True, capture_output=True)
        np.testing.assert_allclose(np.load(out)["output_0"], expected, rtol=1e-6, atol=1e-7)


def test_a_library_beside_the_package_is_found(
    libraries: Path, tmp_path: Path, built_runner: Callable[..., Path]
) -> None:
    library = relay.build(partition(network(), LIBRARY), "llvm")
    name = "libarmillary_external_scale.so"
    for form in ("x.so", "x.tar"):
        (tmp_path / form[2:]).mkdir()
        path = tmp_path / form[2:] / form
        library.export_library(path)
        armrun = [built_runner(find_compiler() or ["cc"]), path, "--run-count=1"]
        message = subprocess.run(armrun, capture_output=True, text=True, check=False)
        assert message.returncode == 1 and f"is computed by scale, whose runtime {name} is not there" in message.stderr
        (path.parent / name).write_bytes((libraries / name).read_bytes())
        subprocess.run(armrun, check=True, capture_output=True)


def test_single_functions_run_and_new_constants_reach_the_library(found: Path) -> None:
    library = relay.build(partition(network(), LIBRARY), "llvm")
    result, scale = np.zeros((2, 3), "float32"), np.array([1, 1, 1], "float32")
    library.get_lib()["tvmgen_default_scale_main_0"](X, scale, result)
    np.testing.assert_array_equal(result, np.maximum(X, 0))
    graph = library["default"](armillary.cpu(0))
    graph.set_input("x", X)
    graph.run()
    graph.set_input("p0", np.zeros(3, "float32"))  # the scale of the first step
    graph.run()
    np.testing.assert_array_equal(graph.get_output(0).numpy(), X)


def test_errors_of_a_library_name_the_function(found: Path) -> None:
    library = relay.build(partition(IRModule.from_expr(step(var("x", shape=(2, 3)), 1)), LIBRARY), "llvm")
    graph = library["default"](armillary.cpu(0))
    graph.set_input("x", X)
    graph.set_input("p0", np.full(3, 1e7, "float32"))
    with pytest.raises(
        ExecutionError, match=r"tvmgen_default_scale_main_0: scale 1\.0: a scale of 1e\+07 is too large"
    ):
        graph.run()


def test_a_missing_or_foreign_library_is_an_error_that_says_where_it_was_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    manifest = register_offload(Offload("absent_kind", as_json, LIBRARY.patterns))
    library = relay.build(partition(network(), manifest), "llvm")
    monkeypatch.setenv("ARMILLARY_EXTERNAL_PATH", str(tmp_path))
    with pytest.raises(ArmillaryError, match=f"computed by absent_kind, whose runtime(.|\n)*{tmp_path}"):
        library["default"](armillary.cpu(0))
    (tmp_path / "libarmillary_external_absent_kind.so").write_bytes(b"no library")
    with pytest.raises(ArmillaryError, match="cannot be loaded"):
        library["default"](armillary.cpu(0))


def test_c_source_is_linked_with_the_kernels(tmp_path: Path) -> None:
    def generate(function: Function) -> SourceModule:
        symbol = function.get_attr("global_symbol")
        signature = "void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread"
        body = "for (int i = 0; i < 6; i++) ((float *)data[1])[i] = -((const float *)data[0])[i]; return 0;"
        return SourceModule(f"#include <stdint.h>\nint32_t {symbol}__p0({signature}) {{ {body} }}\n")

    manifest = register_offload(Offload("text_c", generate, operators={"negative": lambda call: None}))
    library = relay.build(partition(network(), manifest), "llvm")
    np.testing.assert_allclose(run(library), evaluate(network(), [X]), rtol=1e-6)
    library.export_library(tmp_path / "x.so")
    np.testing.assert_allclose(run(runtime.load_module(tmp_path / "x.so")), evaluate(network(), [X]), rtol=1e-6)


def test_disabled_composites_and_operators_stay_in_the_graph() -> None:
    assert len(partition(network(), LIBRARY, disabled=["scale"])) == 2
    assert len(partition(network(), LIBRARY, disabled=["negative", "scale"])) == 1
    assert len(partition(network(), LIBRARY, disabled=["scale.scale", "nn.conv3d"])) == 2


def test_a_name_that_disables_nothing_is_told() -> None:
    with pytest.raises(ConfigError, match="scale knows no 'scal'") as error:
        partition(network(), LIBRARY, disabled=["scal"])
    assert error.value.hint == "similar: scale"
    with pytest.raises(ConfigError, match="disabled_ops is the text 'scale', wanted a list"):
        partition(network(), LIBRARY, disabled="scale")


def test_an_operators_name_disables_the_row_called_after_it() -> None:
    x, weight = var("x", shape=(1, 6, 6, 4)), const(np.ones((3, 3, 4, 8), "float32"))
    made = relay.nn.conv2d(x, weight, channels=8, kernel_size=(3, 3), data_layout="NHWC", kernel_layout="HWIO")
    module, manifest = IRModule.from_expr(relay.nn.relu(made)), find_offload("arm_compute_lib")
    assert len(partition(module, manifest)) == 2
    for name in ("nn.conv2d", "conv2d", "arm_compute_lib.conv2d"):
        assert len(partition(module, manifest, disabled=[name])) == 1


def test_unknown_libraries_are_named(found: Path) -> None:
    assert find_offload("scaler") is LIBRARY
    with pytest.raises(ConfigError, match="no library 'scail' to offload to") as error:
        find_offload("scail")
    assert "scale" in error.value.hint
    x = var("x", shape=(2, 3))
    attrs = (("Compiler", "nobody"), ("Primitive", 1), ("global_symbol", "f"))
    module = IRModule.from_expr(Call(Function((x,), relay.negative(x), None, attrs), (var("y", shape=(2, 3)),)))
    with pytest.raises(UnsupportedError, match="meant for nobody, but nothing generates code for it"):
        relay.build(module, "llvm")


@pytest.mark.parametrize(
    ("name", "why"),
    [("nobody_has", "whose runtime libarmillary_external_nobody_has.so is not there"), ("scale", "2e+06 is too large")],
)
def test_our_own_kernels_run_where_the_library_is_missing_or_refuses(
    found: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, why: str
) -> None:
    manifest = register_offload(Offload(name, as_json, LIBRARY.patterns, LIBRARY.operators, merges_regions=True))
    x = var("x", shape=(2, 3))
    scale = const(np.array([2e6, 1, 3], "float32"))
    inner = relay.negative(relay.nn.relu(relay.multiply(x, scale)))
    module = IRModule.from_expr(Function((x,), relay.add(relay.tanh(inner), x)))
    parted = partition(module, manifest)
    with armillary.transform.PassContext(config={"offload.fallback": True}):
        library = relay.build(parted, "llvm")
    register_offload(LIBRARY)
    library.export_library(tmp_path / "x.tar")
    for one in (library, runtime.load_module(tmp_path / "x.tar")):
        capfd.readouterr()
        np.testing.assert_allclose(run(one), evaluate(module, [X]), rtol=1e-6, atol=1e-7)
        message = capfd.readouterr().err
        assert f"armillary: tvmgen_default_{name}_main_0" in message and why in message
        assert "(the package's own kernels run instead)" in message
    graph = one["default"](armillary.cpu(0))
    graph.set_input("x", X)
    graph.run()
    graph.set_input("p0", np.zeros(3, "float32"))
    graph.run()
    np.testing.assert_array_equal(graph.get_output(0).numpy(), X)
    with pytest.raises(ArmillaryError, match=r"build the model without it, or with offload\.fallback"):
        run(relay.build(parted, "llvm"))
