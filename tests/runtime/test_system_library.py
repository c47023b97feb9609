"""Objects of builds with -system-lib are linked together, register themselves, and are called by name."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from emulators import need, qemu_aarch64, qemu_arm

import armillary
from armillary import relay, te
from armillary.artifact import save_params
from armillary.contrib import cc, graph_executor
from armillary.errors import ArtifactError, ConfigError, ExecutionError
from armillary.ir import IRModule
from armillary.relay.backend import Runtime
from armillary.runtime import __main__ as folders
from armillary.runtime import system_lib
from armillary.runtime.build_native import INCLUDE_DIR, build_libraries

from .test_embedding import run

X = np.linspace(-2, 2, 12, dtype="float32").reshape(3, 4)
PROGRAM = """#include <stdio.h>
#include "armillary_runtime.h"
#include "tvm/runtime/c_runtime_api.h"
static int fail(const char *text) { return printf("%s\\n", text), 1; }
int main(void) {
  char err[512];
  int64_t shape[2] = {3, 4};
  float x[12], y[6];
  for (int i = 0; i < 12; i++) x[i] = -2 + 4 * (float)i / 11;
  arm_tensor in = {x, {1, 0}, 2, {2, 32, 1}, shape, NULL, 0}, out;
  for (int i = 0; arm_system_network(i) != NULL; i++) {
    const char *name = arm_system_network(i);
    arm_package *package;
    arm_graph *graph;
    arm_device cpu = {1, 0};
    if (arm_package_system(name, &package, err, sizeof err) != 0) return fail(err);
    if (arm_package_create_graph(package, &cpu, 1, NULL, &graph, err, sizeof err) != 0) return fail(err);
    if (arm_graph_set_input(graph, 0, &in, err, sizeof err) != 0) return fail(err);
    if (arm_graph_run(graph, err, sizeof err) != 0) return fail(err);
    if (arm_graph_output(graph, 0, &out, err, sizeof err) != 0) return fail(err);
    printf("%s", name);
    for (int k = 0; k < 6; k++) printf(" %.6f", ((float *)out.data)[k]);
    printf("\\n");
    arm_graph_destroy(graph);
    arm_package_close(package);
  }
  TVMFunctionHandle get, twice;
  TVMValue module, args[2], none;
  int code, codes[2] = {kTVMDLTensorHandle, kTVMDLTensorHandle};
  int64_t six = 6;
  arm_tensor half = {x, {1, 0}, 1, {2, 32, 1}, &six, NULL, 0}, result = {y, {1, 0}, 1, {2, 32, 1}, &six, NULL, 0};
  if (TVMFuncGetGlobal("runtime.SystemLib", &get) != 0) return fail(TVMGetLastError());
  if (TVMFuncCall(get, NULL, NULL, 0, &module, &code) != 0) return fail(TVMGetLastError());
  if (TVMModGetFunction(module.v_handle, "twice", 0, &twice) != 0) return fail(TVMGetLastError());
  if (twice == NULL) return fail("there is no function twice");
  args[0].v_handle = &half;
  args[1].v_handle = &result;
  if (TVMFuncCall(twice, args, codes, 2, &none, &code) != 0) return fail(TVMGetLastError());
  printf("twice");
  for (int k = 0; k < 6; k++) printf(" %.6f", y[k]);
  printf("\\n");
  return 0;
}
"""


def _function(name: str, factor: float, target: str = "llvm --system-lib") -> armillary.driver.library.FunctionLibrary:
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * factor, name="b")
    return armillary.build(te.create_schedule(b.op), [a, b], target, name=name)


def _weight(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((2, 4)).astype("float32")


def _network(name: str, seed: int, target: str = "llvm") -> armillary.driver.library.GraphLibrary:
    x, w = relay.var("x", shape=(3, 4)), relay.var("w", shape=(2, 4))
    module = IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    runtime = Runtime("crt", {"system-lib": True})
    return relay.build(module, target, runtime=runtime, params={"w": _weight(seed)}, mod_name=name)


def _wanted(seed: int) -> np.ndarray:
    return np.asarray(np.maximum(X @ _weight(seed).T, 0))


def test_two_objects_linked_by_a_compiler_are_called_by_name(tmp_path: Path) -> None:
    """In a process of its own: what a test loads stays registered."""
    _function("twice", 2.0).save(tmp_path / "a.o")
    _function("thrice", 3.0).save(tmp_path / "b.o")
    cc.create_shared(tmp_path / "both.so", [str(tmp_path / "a.o"), str(tmp_path / "b.o")])
    code = f"""
import ctypes, numpy as np, armillary
from armillary.runtime import __main__ as folders
from armillary.runtime import system_lib
assert system_lib().functions == ()
library = ctypes.CDLL({str(tmp_path / "both.so")!r})
module = system_lib()
assert sorted(module.functions) == ["thrice", "twice"], module.functions
x, y = armillary.nd.array(np.arange(7, dtype="float32")), armillary.nd.array(np.zeros(7, "float32"))
for name, factor in (("twice", 2), ("thrice", 3)):
    module[name](x, y)
    np.testing.assert_array_equal(y.numpy(), np.arange(7, dtype="float32") * factor)
assert system_lib("thr")["ice"].name == "thrice" and system_lib("thr")["twice"].name == "twice"
del module
import _ctypes
_ctypes.dlclose(library._handle)
assert system_lib().functions == (), "destructors take back what constructors gave"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two networks, which share a kernel, and a function, in one library of this process."""
    folder = tmp_path_factory.mktemp("system")
    for name, seed in (("first", 1), ("second", 2)):
        _network(name, seed).export_library(folder / f"{name}.o")
    _function("system_twice", 2.0).export_library(folder / "f.a", fcompile=cc.create_staticlib)
    assert (folder / "f.a").read_bytes()[:8] == b"!<arch>\n"
    options = ["-Wl,--whole-archive", str(folder / "f.a"), "-Wl,--no-whole-archive"]
    cc.create_shared(folder / "nets.so", [str(folder / "first.o"), str(folder / "second.o")], options)
    ctypes.CDLL(str(folder / "nets.so"))


@pytest.mark.usefixtures("loaded")
def test_networks_are_made_by_name_with_their_parameters() -> None:
    module = system_lib()
    assert set(module.networks) >= {"first", "second"} and "system_twice" in module.functions
    for name, seed in (("first", 1), ("second", 2)):
        executor = graph_executor.GraphModule(module[name](armillary.cpu()))
        executor.run(x=X)
        np.testing.assert_allclose(executor.get_output(0).numpy(), _wanted(seed), rtol=1e-5, atol=1e-6)
    with pytest.raises(ExecutionError, match=r"networks are linked in: .*first, second"):
        module["default"]


@pytest.mark.usefixtures("loaded")
def test_a_graph_of_a_script_runs_over_the_system_library() -> None:
    """bundle_deploy's form: graph and parameters by hand, functions from the system library."""
    other = _network("other", 5)
    executor = graph_executor.create(other.get_graph_json(), system_lib(), armillary.cpu())
    executor.load_params(save_params(other.get_params()))
    executor.run(x=X)
    np.testing.assert_allclose(executor.get_output(0).numpy(), _wanted(5), rtol=1e-5, atol=1e-6)


def test_two_functions_of_one_name_are_refused(tmp_path: Path) -> None:
    _function("same", 2.0).save(tmp_path / "a.o")
    _function("same", 3.0).save(tmp_path / "b.o")
    cc.create_shared(tmp_path / "both.so", [str(tmp_path / "a.o"), str(tmp_path / "b.o")])
    code = f"""
import ctypes
from armillary.runtime import __main__ as folders
from armillary.runtime import system_lib
system_lib()
ctypes.CDLL({str(tmp_path / "both.so")!r})
system_lib()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ArtifactError.__name__ in done.stderr and 'have a function "same"' in done.stderr


MACHINES = {
    "host": (["gcc"], "llvm", []),
    "aarch64": (["aarch64-linux-gnu-gcc", "-static"], "llvm -mtriple=aarch64-linux-gnu", qemu_aarch64()),
    "armv7": (["arm-linux-gnueabihf-gcc", "-static"], "llvm -mtriple=armv7a-linux-gnueabihf", qemu_arm()),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_program_finds_what_is_linked_into_it(machine: str, tmp_path: Path) -> None:
    """Static libraries, the runtime too, linked by gcc: networks and functions by our names and c_runtime_api's."""
    compiler, target, emulator = MACHINES[machine]
    need(compiler[0], *emulator[:1])
    _network("first", 1, target).export_library(tmp_path / "first.a")
    if machine != "armv7":  # where the kernel that both have would be defined twice
        _network("second", 2, target).export_library(tmp_path / "second.a")
    _function("twice", 2.0, f"{target} -system-lib").export_library(tmp_path / "twice.a")
    static = folders.prefix() / "lib" / "libarmillary_runtime.a"
    if machine != "host":
        static = build_libraries(compiler[:1], tmp_path / "lib")[1]
    (tmp_path / "main.c").write_text(PROGRAM)
    archives = sorted(tmp_path.glob("*.a"))
    whole = ["-Wl,--whole-archive", *archives, "-Wl,--no-whole-archive"]
    flags = ["-std=gnu11", "-Wall", "-Werror", f"-I{INCLUDE_DIR}", tmp_path / "main.c", *whole, static]
    run(*compiler, *flags, "-o", tmp_path / "main", "-lpthread", "-ldl", "-lm")
    lines = {
        words[0]: np.array(words[1:], "float32")
        for words in map(str.split, run(*emulator, tmp_path / "main").splitlines())
    }
    assert set(lines) == {path.stem for path in archives}
    np.testing.assert_allclose(lines["twice"], 2 * X.ravel()[:6], rtol=1e-5)
    for name, seed in (("first", 1), ("second", 2)):
        if name in lines:
            np.testing.assert_allclose(lines[name], _wanted(seed).ravel(), rtol=1e-4, atol=1e-5)


def test_objects_of_a_machine_that_we_do_not_join_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"f.o: the objects .* cannot be joined"):
        _function("f", 2.0, "llvm -mtriple=armv7a-linux-gnueabihf -system-lib").save(tmp_path / "f.o")
