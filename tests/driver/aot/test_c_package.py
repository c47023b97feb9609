"""A C package runs where there is no operating system, and computes what the graph executor computes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
from emulators import qemu_aarch64

import armillary
from armillary import relay
from armillary.driver.aot import AotLibrary
from armillary.errors import BudgetError, ConfigError, UnsupportedError
from armillary.ir import IRModule
from armillary.ir.memory_pools import (
    ConstantMemoryPools,
    ConstantPoolInfo,
    PoolInfoProperties,
    WorkspaceMemoryPools,
    WorkspacePoolInfo,
)
from armillary.relay.backend import Executor, Runtime
from armillary.transform import PassContext

HERE = Path(__file__).parent
AOT = Executor("aot", {"interface-api": "c", "unpacked-api": True})
CRT = Runtime("crt", {"system-lib": True})
FLAGS = ["-std=gnu11", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
HOST = (["gcc"], [])
ARM64 = (["aarch64-linux-gnu-gcc", "-static"], qemu_aarch64())
BOARD = [
    "qemu-system-arm",
    "-M",
    "mps2-an385",
    "-nographic",
    "-semihosting-config",
    "enable=on,target=native",
    "-kernel",
]
_CORTEX = ["arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb", "--specs=rdimon.specs", "-T", str(HERE / "mps2.ld")]
CORTEX_M3 = (_CORTEX, BOARD)
MACHINES = {"host": HOST, "aarch64": ARM64, "cortex-m3": CORTEX_M3}
MAIN = """#include <stdint.h>
#include <stdio.h>
#include "tvmgen_default.h"
#ifdef __ARM_ARCH_7M__
extern void _start(void);
__attribute__((section(".vectors"), used)) static void *const vectors[2] = {(void *)0x20400000, (void *)_start};
#endif
static uint32_t x[] = {%s};
static uint32_t result[TVMGEN_DEFAULT_OUTPUT_SIZE / 4];
#ifdef TVMGEN_DEFAULT_SRAM_WORKSPACE_POOL_SIZE
static _Alignas(64) uint8_t memory[TVMGEN_DEFAULT_SRAM_WORKSPACE_POOL_SIZE + 1];
static struct tvmgen_default_workspace_pools pools = {memory};
#define POOLS , &pools
#else
static uint8_t memory[1];
#define POOLS
#endif
int main(void) {
  struct tvmgen_default_inputs inputs = {x};
  struct tvmgen_default_outputs outputs = {result};
  memory[sizeof memory - 1] = 77;
  for (int k = 0; k < 2; ++k) { /* a second run finds nothing of the first one */
    if (tvmgen_default_run(&inputs, &outputs POOLS) != 0 || memory[sizeof memory - 1] != 77) return 1;
  }
  for (unsigned k = 0; k < sizeof result / 4; ++k) printf("%%08lx\\n", (unsigned long)result[k]);
  return 0;
}
"""


def _network(seed: int = 0) -> IRModule:
    """Two convolutions with a sum around one of them, pools and a product."""
    rng = np.random.default_rng(seed)

    def weight(*shape: int) -> relay.Constant:
        return relay.const(rng.standard_normal(shape).astype("float32"))

    x = relay.var("x", shape=(1, 3, 8, 8))
    y = relay.nn.relu(relay.nn.conv2d(x, weight(8, 3, 3, 3), padding=(1, 1)))
    y = relay.add(y, relay.nn.conv2d(y, weight(8, 8, 1, 1)))
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(relay.nn.max_pool2d(y, (2, 2), (2, 2))))
    return IRModule.from_expr(relay.Function([x], relay.nn.dense(y, weight(10, 8))))


def _built(target: str = "c -mcpu=cortex-m3", module: IRModule | None = None, **pools: object) -> AotLibrary:
    with PassContext(opt_level=3):
        library = relay.build(module or _network(), target, executor=AOT, runtime=CRT, **pools)
    assert isinstance(library, AotLibrary)
    return library


def _unpacked(library: AotLibrary, folder: Path) -> Path:
    path = armillary.micro.export_model_library_format(library, folder / "net.tar")
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
    return folder / "codegen" / "host"


def _needs(*programs: str) -> None:
    missing = [name for name in programs if shutil.which(name) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"there is no {missing[0]}")


def _run(library: AotLibrary, x: np.ndarray, machine: str, folder: Path) -> np.ndarray:
    compiler, start = MACHINES[machine]
    _needs(compiler[0], *start[:1])
    code, main = _unpacked(library, folder), folder / "main.c"
    main.write_text(MAIN % ", ".join(f"0x{word:08x}u" for word in x.reshape(-1).view(np.uint32)))
    sources = [*sorted(map(str, code.glob("src/*.c"))), str(main)]
    program = str(folder / "program")
    subprocess.run([*compiler, *FLAGS, f"-I{code / 'include'}", *sources, "-lm", "-o", program], check=True)
    done = subprocess.run([*start, program], capture_output=True, text=True, timeout=120, check=True)
    return np.array([int(line, 16) for line in done.stdout.split()], "uint32").view("float32")


def _here(library: AotLibrary, x: np.ndarray) -> np.ndarray:
    module = armillary.runtime.executor.AotModule(library["default"](armillary.cpu()))
    module.set_input("x", x)
    module.run()
    return module.get_output(0).numpy().reshape(-1)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_package_computes_what_the_executor_computes(machine: str, tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype("float32")
    library = _built()
    expected, result = _here(library, x), _run(library, x, machine, tmp_path)
    if machine == "aarch64":  # whose processors multiply and add in one step
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    else:
        assert result.tobytes() == expected.tobytes()


def test_a_package_agrees_with_the_reference(tmp_path: Path) -> None:
    x = np.random.default_rng(2).standard_normal((1, 3, 8, 8)).astype("float32")
    reference = relay.create_executor("debug", mod=_network()).evaluate()(x).numpy().reshape(-1)
    np.testing.assert_allclose(_run(_built(), x, "host", tmp_path), reference, rtol=1e-4, atol=1e-5)


def test_weights_that_are_packed_when_loaded_are_constants(tmp_path: Path) -> None:
    """On this machine, whose kernels want Winograd's weights."""
    rng = np.random.default_rng(3)
    x = relay.var("x", shape=(1, 16, 14, 14))
    y = relay.nn.conv2d(x, relay.const(rng.standard_normal((16, 16, 3, 3)).astype("float32")), padding=(1, 1))
    library = _built("c", IRModule.from_expr(relay.Function([x], y)))
    values = rng.standard_normal((1, 16, 14, 14)).astype("float32")
    np.testing.assert_allclose(_run(library, values, "host", tmp_path), _here(library, values), rtol=1e-4, atol=1e-4)


def test_values_side_by_side_and_outputs_that_share_a_value(tmp_path: Path) -> None:
    x = relay.var("x", shape=(1, 4))
    body = relay.concatenate([relay.exp(x), x, relay.reshape(relay.add(x, x), (1, 4))], axis=1)
    library = _built(module=IRModule.from_expr(relay.Function([x], body)))
    values = np.float32([[0, 1, 2, 3]])
    result = _run(library, values, "host", tmp_path)
    np.testing.assert_allclose(result, np.concatenate([np.exp(values), values, values * 2], 1)[0], rtol=1e-6)


def test_nothing_is_allocated_and_no_thread_is_started(tmp_path: Path) -> None:
    _needs("gcc", "nm")
    code = _unpacked(_built(), tmp_path)
    for source in code.glob("src/*.c"):
        subprocess.run(["gcc", *FLAGS, f"-I{code / 'include'}", "-c", str(source)], cwd=tmp_path, check=True)
    listing = subprocess.run(["nm", *map(str, tmp_path.glob("*.o"))], capture_output=True, text=True, check=True)
    wanted = {line.split()[-1] for line in listing.stdout.splitlines() if " U " in line}
    own = {line.split()[-1] for line in listing.stdout.splitlines() if " T " in line}
    assert "tvmgen_default_run" in own
    assert wanted - own <= {"memcpy", "memset", "memmove", "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}


def test_the_package_says_what_it_needs(tmp_path: Path) -> None:
    library = _built()
    code = _unpacked(library, tmp_path)
    metadata = json.loads((tmp_path / "metadata.json").read_text())
    memory = metadata["modules"]["default"]["memory"]["functions"]["main"][0]
    header = (code / "include" / "tvmgen_default.h").read_text()
    assert f"TVMGEN_DEFAULT_WORKSPACE_SIZE {memory['workspace_size_bytes']}" in header
    assert metadata["modules"]["default"]["inputs"] == {"x": {"dtype": "float32", "shape": [1, 3, 8, 8], "size": 768}}
    assert (tmp_path / "src" / "default.relay").read_text().startswith("def @main")
    assert _files(library) == _files(_built())  # the same bytes each time


def _pool(name: str, size: int) -> WorkspacePoolInfo:
    return WorkspacePoolInfo(name, [armillary.target.Target("c")], PoolInfoProperties(size_hint_bytes=size))


@pytest.mark.parametrize("machine", ["host", "cortex-m3"])
def test_memory_of_a_pool_is_the_callers(machine: str, tmp_path: Path) -> None:
    """The first pool that is large enough, of the size that the header says, and not a byte more."""
    x = np.random.default_rng(4).standard_normal((1, 3, 8, 8)).astype("float32")
    pools = WorkspaceMemoryPools([_pool("dtcm", 64), _pool("sram", 1 << 20)])
    library = _built(workspace_memory_pools=pools)
    assert _run(library, x, machine, tmp_path).tobytes() == _here(library, x).tobytes()
    source = library.files()["codegen/host/src/default_lib0.c"].decode()
    assert "static _Alignas" not in source


def test_what_no_pool_holds_is_refused() -> None:
    wanted = _built().package
    with pytest.raises(BudgetError, match=f"workspace: {wanted.workspace_bytes} bytes, which no pool holds: sram 64"):
        _built(workspace_memory_pools=WorkspaceMemoryPools([_pool("sram", 64)]))
    flash = ConstantPoolInfo("flash", [], None, PoolInfoProperties(size_hint_bytes=wanted.constant_bytes))
    assert not _built(constant_memory_pools=ConstantMemoryPools([flash])).pool
    less = ConstantPoolInfo("flash", [], None, PoolInfoProperties(size_hint_bytes=wanted.constant_bytes - 1))
    with pytest.raises(BudgetError, match="constants: "):
        _built(constant_memory_pools=ConstantMemoryPools([less]))
    with pytest.raises(ConfigError, match="no name of C"):
        _pool("on chip", -1)


def _files(library: AotLibrary) -> dict[str, bytes]:
    return dict(library.files())


def test_a_target_of_0_7_says_how_it_is_called() -> None:
    words = "-executor=aot -runtime=c -system-lib=1 -interface-api=c -unpacked-api=1"
    library = relay.build(_network(), f"c {words}")
    assert isinstance(library, AotLibrary) and "system-lib" not in library.target.attrs
    linked = relay.build(_network(), "c -system-lib=1")  # an object for runtime.system_lib()
    assert not isinstance(linked, AotLibrary) and linked.is_system_lib


def test_what_has_no_plain_sequence_of_calls_is_refused() -> None:
    x = relay.var("x", shape=(4,))
    c = relay.var("c", shape=(), dtype="bool")
    module = IRModule.from_expr(relay.Function([x, c], relay.If(c, relay.exp(x), relay.negative(x))))
    with pytest.raises(UnsupportedError, match="a C package of a network with control flow"):
        _built(module=module).files()
    with pytest.raises(ConfigError, match="got GraphLibrary, wanted a C package"):
        armillary.micro.export_model_library_format(relay.build(_network(), "c"), "x.tar")
