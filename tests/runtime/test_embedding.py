"""The runtime in C and C++ programs: the example by CMake and pkg-config, by gcc and clang, here and on AArch64."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from emulators import need, qemu_aarch64, qemu_arm

import armillary
from armillary.cli.main import main
from armillary.contrib.cc import get_cc
from armillary.runtime import __main__ as folders
from armillary.runtime.build_native import INCLUDE_DIR, RUNTIME_DIR, build_libraries

from .conftest import compile_library, expected, graph, make_package
from .test_armrun import X

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "cpp"
STRICT = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror")


def run(*command: object) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=240,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def check(printed: str) -> None:
    """What the example prints for X is what the network gives."""
    wanted = np.sort(expected(X))[::-1][:5]
    assert "input x: float32 (6, 8)" in printed and "output output_0: float32 (48,)" in printed
    np.testing.assert_allclose([float(v) for v in re.findall(r"^ *\d+  (\S+)$", printed, re.M)], wanted, rtol=1e-5)
    assert re.search(r"ms a run; the slowest kernel is (center|add)\n0 of 4 threads differ", printed)


@pytest.fixture(scope="session")
def prefix() -> Path:
    return folders.prefix()


@pytest.fixture(scope="session")
def values(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("values") / "x.bin"
    path.write_bytes(X.tobytes())
    return path


@pytest.fixture(scope="session")
def forms(package: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A package as a tar, and as the folder it unpacks to."""
    folder = tmp_path_factory.mktemp("forms") / "net"
    with tarfile.open(package) as archive:
        archive.extractall(folder, filter="data")
    return {"tar": package, "folder": folder}


@pytest.mark.parametrize("form", ["tar", "folder"])
def test_the_example_is_built_by_cmake(
    prefix: Path, forms: dict[str, Path], values: Path, form: str, tmp_path: Path
) -> None:
    need("cmake", "g++", "make")
    run("cmake", "-S", EXAMPLE, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_COMPILER=g++")
    run("cmake", "--build", tmp_path)
    for program in ("classify", "classify_static"):
        check(run(tmp_path / program, forms[form], values))
    shared = run("ldd", tmp_path / "classify")
    assert "libarmillary_runtime.so =>" in shared and "armillary" not in run("ldd", tmp_path / "classify_static")


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_example_is_built_by_pkg_config_without_a_warning(
    prefix: Path, package: Path, values: Path, compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("pkg-config", compiler)
    monkeypatch.setenv("PKG_CONFIG_PATH", str(prefix / "lib" / "pkgconfig"))
    flags = run("pkg-config", "--cflags", "--libs", "armillary").split()
    assert run("pkg-config", "--modversion", "armillary").strip() == armillary.__version__
    rpath = f"-Wl,-rpath,{prefix / 'lib'}"
    run(compiler, *STRICT, EXAMPLE / "classify.cpp", *flags, "-pthread", rpath, "-o", tmp_path / "classify")
    check(run(tmp_path / "classify", package, values))


def test_the_example_runs_on_aarch64(values: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need("aarch64-linux-gnu-g++", "aarch64-linux-gnu-gcc", "qemu-aarch64-static")
    assert main(["build-runtime", "--target", "rasp4b64", "-o", str(tmp_path / "sdk")]) == 0
    assert "libarmillary_runtime.a: " in capsys.readouterr().err
    library = compile_library(tmp_path, ["aarch64-linux-gnu-gcc"])
    folder = tmp_path / "net"
    folder.mkdir()
    package = make_package(library)
    (folder / "mod.so").write_bytes(package.library)
    (folder / "mod.json").write_text(graph().to_json())
    (folder / "mod.params").write_bytes(package.params)
    archive = tmp_path / "sdk" / "lib" / "libarmillary_runtime.a"
    command = ("aarch64-linux-gnu-g++", *STRICT, EXAMPLE / "classify.cpp", f"-I{tmp_path}/sdk/include", archive)
    run(*command, "-pthread", "-ldl", "-lm", "-o", tmp_path / "classify")
    check(run(*qemu_aarch64(), tmp_path / "classify", folder, values))


_RUNS = """
#include <stdio.h>
#include "armillary_runtime.h"
int main(int argc, char **argv) {
  char err[1024] = "";
  arm_package *package;
  arm_graph *graph;
  arm_tensor x, y;
  FILE *values = fopen(argv[argc - 1], "rb");
  if (!values || arm_package_open(argv[argc - 2], &package, err, sizeof err)) return puts(err), 1;
  if (arm_package_create_graph(package, &(arm_device){1, 0}, 1, NULL, &graph, err, sizeof err)) return puts(err), 1;
  if (arm_graph_input(graph, arm_graph_input_index(graph, "x"), &x, err, sizeof err)) return puts(err), 1;
  if (fread(x.data, sizeof(float), 48, values) != 48) return puts("the file is short"), 1;
  if (arm_graph_run(graph, err, sizeof err) || arm_graph_output(graph, 0, &y, err, sizeof err)) return puts(err), 1;
  for (int i = 0; i < 48; i++) printf("%.9g\\n", (double)((const float *)y.data)[i]);
  arm_graph_destroy(graph);
  arm_package_close(package);
  return fclose(values);
}
"""


@pytest.mark.parametrize(
    ("target", "compiler", "start"),
    [
        ("x86_64-linux-musl", "musl-gcc", []),
        ("arm-linux-gnueabihf.2.17", "arm-linux-gnueabihf-gcc", qemu_arm()),
    ],
)
def test_the_shared_library_of_a_wheel_runs_with_the_c_library_it_is_built_for(
    target: str, compiler: str, start: list[str], values: Path, tmp_path: Path
) -> None:
    """As tools/release.py builds it, by zig; the program that loads it by the distribution's compiler."""
    need(compiler, *start[:1])
    build_libraries([sys.executable, "-m", "ziglang", "cc", "-target", target], tmp_path)
    folder = tmp_path / "net"
    folder.mkdir()
    package = make_package(compile_library(tmp_path, [compiler]))
    (folder / "mod.so").write_bytes(package.library)
    (folder / "mod.json").write_text(graph().to_json())
    (folder / "mod.params").write_bytes(package.params)
    (tmp_path / "run.c").write_text(_RUNS)
    flags = ("-Wall", "-Wextra", "-Werror", f"-I{INCLUDE_DIR}", f"-L{tmp_path}", f"-Wl,-rpath,{tmp_path}")
    run(compiler, tmp_path / "run.c", *flags, "-larmillary_runtime", "-o", tmp_path / "run")
    printed = run(*start, tmp_path / "run", folder, values)
    np.testing.assert_allclose(np.array(printed.split(), float), expected(X), rtol=1e-5, atol=1e-5)


_WRONG = """
#include <cstdio>
#include "armillary.hpp"
template <class F> static void shown(F f) { try { f(); } catch (const armillary::Error &e) { std::puts(e.what()); } }
int main(int, char **argv) {
  shown([] { armillary::Runner("/nowhere/net.tar"); });
  armillary::Runner runner(argv[1]);
  shown([&] { runner.run(); });
  shown([&] { runner.set_input("y", std::vector<float>(48)); });
  shown([&] { runner.set_input("x", std::vector<double>(48)); });
  shown([&] { runner.set_input("x", std::vector<float>(47)); });
  shown([&] { runner.get_output<float>(3); });
  armillary::Options options;
  options.device = "tpu";
  shown([&] { armillary::Runner(argv[1], options); });
  runner.set_input("x", std::vector<float>(48, 2));
  runner.run();
  armillary::Runner other = runner.clone();
  runner = std::move(other);
  shown([&] { runner.run(); });
  return 0;
}
"""


def test_mistakes_are_exceptions_that_say_what_is_wanted(prefix: Path, package: Path, tmp_path: Path) -> None:
    need("g++")
    (tmp_path / "wrong.cpp").write_text(_WRONG)
    library = prefix / "lib" / "libarmillary_runtime.a"
    run(
        "g++",
        *STRICT,
        tmp_path / "wrong.cpp",
        f"-I{INCLUDE_DIR}",
        library,
        "-pthread",
        "-ldl",
        "-o",
        tmp_path / "wrong",
    )
    assert run(tmp_path / "wrong", package).splitlines() == [
        "/nowhere/net.tar: there is no such file or folder",
        "input x was never set",
        'the network has no input "y"; its inputs are x',
        "x: float32 (6, 8): its elements are float32, not float64",
        "x: float32 (6, 8) has 192 bytes, got 188",
        "the graph has 1 outputs; there is no output 3",
        'device "tpu" is unknown; wanted cpu, opencl or opencl:<n>',
        "input x was never set",
    ]


_LIBRARY = """
#include <stdio.h>
#include "armillary_runtime.h"
int main(int argc, char **argv) {
  char err[1024] = "";
  arm_package *package;
  size_t size;
  int failed = arm_package_open(argv[argc - 1], &package, err, sizeof err);
  if (failed) return puts(err), 1;
  int has_graph = arm_package_graph_json(package, &size) != NULL;
  printf("%d functions, graph: %d; ", arm_module_count(arm_package_module(package)), has_graph);
  arm_graph *graph;
  if (arm_package_create_graph(package, &(arm_device){1, 0}, 1, NULL, &graph, err, sizeof err)) puts(err);
  arm_package_close(package);
  return 0;
}
"""


def test_c_programs_open_libraries_without_a_graph(prefix: Path, library: Path, tmp_path: Path) -> None:
    (tmp_path / "open.c").write_text(_LIBRARY)
    archive = prefix / "lib" / "libarmillary_runtime.a"
    flags = ("-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", f"-I{INCLUDE_DIR}")
    run(*get_cc(), *flags, tmp_path / "open.c", archive, "-pthread", "-ldl", "-lm", "-o", tmp_path / "open")
    printed = run(tmp_path / "open", library)
    message = f"{library}: it holds functions and no graph; give the folder or the tar of a network\n"
    assert printed == f"5 functions, graph: 0; {message}"


def test_an_application_of_the_era_is_relinked(
    prefix: Path, forms: dict[str, Path], values: Path, tmp_path: Path
) -> None:
    need("g++")
    flags = ("-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-g", f"-I{INCLUDE_DIR}")
    source, archive = Path(__file__).with_name("era_application.cpp"), prefix / "lib" / "libarmillary_runtime.a"
    run("g++", *flags, source, archive, "-pthread", "-ldl", "-lm", "-o", tmp_path / "application")
    lines = run(tmp_path / "application", forms["folder"], values).splitlines()
    for by_old_and_new in (lines[:2], lines[2:4]):
        np.testing.assert_allclose(np.array(by_old_and_new[0].split(), float), expected(X), rtol=1e-5, atol=1e-5)
        assert by_old_and_new[1] == "2 inputs"
    assert lines[4:] == [
        "NULL",
        "set_input: argument 1 has the type code 11; wanted a tensor",
        "set_input: argument 1 is missing; wanted a tensor",
        "/nowhere.so: there is no such file or folder",
    ]


def test_folders_for_builds_are_printed(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, held in (
        ("--include-dir", "armillary.hpp"),
        ("--cmake-dir", "ArmillaryConfig.cmake"),
        ("--pkg-config-dir", "armillary.pc"),
        ("--library-dir", "libarmillary_runtime.so"),
    ):
        assert folders.main([option]) == 0
        assert (Path(capsys.readouterr().out.strip()) / held).exists()


def test_versions_agree() -> None:
    version = armillary.__version__
    assert f'#define ARM_VERSION "{version}"' in (INCLUDE_DIR / "armillary_runtime.h").read_text()
    assert f"Version: {version}\n" in (RUNTIME_DIR / "lib" / "pkgconfig" / "armillary.pc").read_text()
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()
    assert f"version: {version}" in (ROOT / "CITATION.cff").read_text()
