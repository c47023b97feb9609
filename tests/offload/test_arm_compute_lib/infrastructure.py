"""What the tests of Arm Compute Library share: where to run, partitioning with its counts, running, comparing.

In: a Relay module, inputs. Out: what the real library computes: here on AArch64, else under qemu, or on the device that
`test_config.json` says. Invariant: `partitioned` checks how many operators stay in the graph and how many functions the
library gets.

`test_config.json`: `connection_type` is local (this machine, or the emulator), tracker (`host`, `port` and `device_key`
of an RPC tracker) or remote (`host` and `port` of an RPC server); `target` is what is compiled for, `cross_compile` the
compiler that links. The two last may be absent, and the file too: then the tests are local.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from emulators import qemu_aarch64

import armillary
from armillary import relay, rpc
from armillary.contrib import graph_executor
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function, Tuple
from armillary.relay.op import Op
from armillary.relay.op.contrib.arm_compute_lib import partition_for_arm_compute_lib
from armillary.relay.walk import not_primitive, post_order

Array = np.ndarray[Any, Any]
DEFAULTS = {
    "connection_type": "local",
    "host": "127.0.0.1",
    "port": 9090,
    "device_key": "",
    "cross_compile": "",
    "target": "llvm -mtriple=aarch64-linux-gnu -mattr=+neon",
}
CONNECTION_TYPES = ("local", "tracker", "remote")


def read_config(path: Path) -> dict[str, Any]:
    """The six keys; what is absent is as in `DEFAULTS`, and what is not a key is a mistake."""
    if not path.exists():
        warnings.warn(f"{path} is not there: the tests of Arm Compute Library run locally", stacklevel=2)
        return dict(DEFAULTS)
    given = json.loads(path.read_text())
    assert set(given) <= set(DEFAULTS), f"{path}: known keys are {', '.join(DEFAULTS)}"
    found = DEFAULTS | given
    assert found["connection_type"] in CONNECTION_TYPES, f"{path}: {found['connection_type']}"
    return found


CONFIG = read_config(Path(__file__).with_name("test_config.json"))


@dataclass(frozen=True)
class RemoteDevice:
    """An AArch64 machine behind an RPC session that has the library's runtime where its server looks for it."""

    session: rpc.RPCSession

    def run(self, package: Path, inputs: Mapping[str, Array], runs: int = 1, threads: int = 2) -> list[Array]:
        """The outputs of a package, which is uploaded."""
        del threads  # the server's choice
        self.session.upload(package)
        module = graph_executor.GraphModule(self.session.load_module(package.name)["default"](self.session.cpu()))
        module.set_input(**inputs)
        for _ in range(runs):
            module.run()
        return [module.get_output(k).numpy() for k in range(module.get_num_outputs())]


@contextmanager
def connected(config: Mapping[str, Any]) -> Iterator[RemoteDevice]:
    """The device of a configuration that is not local."""
    if config["connection_type"] == "remote":
        session = rpc.connect(config["host"], config["port"])
    else:
        tracker = rpc.connect_tracker(config["host"], config["port"])
        session = tracker.request(config["device_key"], session_timeout=600)
    with session:
        yield RemoteDevice(session)


@dataclass(frozen=True)
class Device:
    """An AArch64 machine, or an emulator of one: the runner and the folder of the library's runtime."""

    runner: Path
    libraries: Path

    def run(self, package: Path, inputs: Mapping[str, Array], runs: int = 1, threads: int = 2) -> list[Array]:
        """The outputs of a package."""
        given, output = package.parent / "in.npz", package.parent / "out.npz"
        np.savez(given, **inputs)
        files = (f"--input={given}", f"--output={output}")
        message = self.told(package, *files, f"--dry-run={runs - 1}", "--run-count=1", threads=threads)
        assert message.returncode == 0, message.stderr
        with np.load(output) as found:
            return [found[f"output_{k}"] for k in range(len(found.files))]

    def told(
        self, package: Path, *options: str, threads: int = 1, emulator: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a package and say what was printed; `emulator`: options of it."""
        command = [*emulated(), *emulator, str(self.runner), str(package), f"--threads={threads}", *options]
        environment = {"ARMILLARY_EXTERNAL_PATH": str(self.libraries), "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)


def emulated() -> list[str]:
    """The words before a program for AArch64; what hangs is killed."""
    killed = ["timeout", "-s", "KILL", "400"]
    return killed if platform.machine() == "aarch64" else [*killed, *qemu_aarch64()]


def missing_tools() -> str:
    """What this machine lacks to run the library, "" for nothing."""
    tools = ["aarch64-linux-gnu-g++", "aarch64-linux-gnu-gcc"]
    tools += [] if platform.machine() == "aarch64" else ["qemu-aarch64-static"]
    lacking = [tool for tool in tools if shutil.which(tool) is None]
    if not any(Path(folder, "arm_compute").exists() for folder in ("/usr/include/aarch64-linux-gnu", "/usr/include")):
        lacking.append("libarm-compute-dev:arm64")
    return ", ".join(lacking)


def module_of(*results: Expr) -> IRModule:
    """A module that computes all of them."""
    return IRModule.from_expr(results[0] if len(results) == 1 else Tuple(results))


def operators(function: Function) -> list[str]:
    """The operators that stay in a function, but for what only arranges values."""
    calls = [e for e in post_order(function, not_primitive) if isinstance(e, Call) and isinstance(e.op, Op)]
    return [call.op.name for call in calls]


def library_functions(module: IRModule) -> list[Function]:
    """The functions that the library computes."""
    return [f for _, f in module.items() if isinstance(f, Function) and f.get_attr("Compiler") == "arm_compute_lib"]


def partitioned(
    module: IRModule,
    kept: int = 0,
    offloaded: int = 1,
    params: Mapping[str, Array] | None = None,
    disabled: Sequence[str] = ("concatenate",),
) -> IRModule:
    """Partition; `kept` operators stay in the graph, the library gets `offloaded` functions."""
    after = partition_for_arm_compute_lib(module, params, disabled_ops=disabled)
    main = after["main"]
    assert len(operators(main)) == kept, operators(main)
    assert len(library_functions(after)) == offloaded, after
    return after


def build(module: IRModule) -> Any:  # Any: a library
    """As the texts build."""
    with armillary.transform.PassContext(opt_level=3, disabled_pass=["AlterOpLayout"]):
        return relay.build(module, target=CONFIG["target"])


def run(
    device: Device | RemoteDevice,
    module: IRModule,
    inputs: Mapping[str, Array],
    folder: Path,
    runs: int = 1,
    threads: int = 2,
) -> list[Array]:
    """Build a partitioned module, export it and run it on the device."""
    package = folder / "mod.so"
    build(module).export_library(package, cc=CONFIG["cross_compile"] or None)
    return device.run(package, inputs, runs, threads)


def nodes(module: IRModule) -> list[list[dict[str, Any]]]:
    """The nodes of each function's JSON, names of inputs and constants blanked."""
    found = []
    for part in build(module).get_lib().imported_modules:
        rows = json.loads(part.get_source("json"))["nodes"]
        found.append([{**row, "name": row["name"] if row["op"] == "kernel" else ""} for row in rows])
    return found


def verify(found: Sequence[Array], expected: Sequence[Array], atol: float, rtol: float) -> None:
    """Compare outputs one by one; where values saturate, most must not."""
    assert len(found) == len(expected)
    for number, (got, want) in enumerate(zip(found, expected)):
        assert got.shape == want.shape and got.dtype == want.dtype, number
        np.testing.assert_allclose(
            got.astype("float64"), want.astype("float64"), atol=atol, rtol=rtol, err_msg=f"output {number}"
        )
        if want.dtype.itemsize == 1:
            info = np.iinfo(want.dtype)
            assert (got == info.min).mean() < 0.25 and (got == info.max).mean() < 0.25, number
