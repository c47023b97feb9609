"""Libraries for Android without an NDK: what they need, and that one of this machine's kind runs."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from armillary import relay
from armillary.contrib import ndk
from armillary.errors import TargetError
from armillary.ir import IRModule

READELF = shutil.which("readelf")
RUN = """
import sys, numpy as np
from armillary import runtime
from armillary.contrib import graph_executor
graph = graph_executor.GraphModule(runtime.load_module(sys.argv[1])["default"](runtime.cpu(0)))
graph.run(x=np.arange(4, dtype="float32"))
print(*graph.get_output(0).numpy().tolist())
"""


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARMILLARY_CC", raising=False)


def network() -> IRModule:
    x = relay.var("x", shape=(4,))
    return IRModule.from_expr(relay.Function([x], relay.tan(x) + relay.const(np.arange(4, dtype="float32"))))


def headers(path: Path) -> str:
    assert READELF is not None
    return subprocess.run([READELF, "-hdW", str(path)], capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(READELF is None, reason="readelf reads the library's headers")
@pytest.mark.parametrize(("machine", "name"), [("aarch64", "AArch64"), ("x86_64", "X86-64")])
def test_a_library_needs_what_phones_call_the_c_library(tmp_path: Path, machine: str, name: str) -> None:
    library = relay.build(network(), f"llvm -mtriple={machine}-linux-android")
    library.export_library(tmp_path / "net.so", ndk.create_shared)
    library.lib.save(str(tmp_path / "net.o"))
    ndk.create_shared(tmp_path / "linked.so", [str(tmp_path / "net.o")])
    for file in ("net.so", "linked.so"):
        text = headers(tmp_path / file)
        assert name in text and "[libm.so]" in text and "[libc.so]" in text and ".so.6" not in text


@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="runs here")
def test_a_library_for_phones_of_this_kind_of_machine_runs(tmp_path: Path) -> None:
    libraries = {n: next(iter(Path("/").glob(f"lib*/x86_64-linux-gnu/lib{n}.so.6")), None) for n in "mc"}
    if None in libraries.values():
        pytest.skip("the C library lies elsewhere")
    for n, library in libraries.items():
        (tmp_path / f"lib{n}.so").symlink_to(library)  # by the names that phones have
    relay.build(network(), "llvm -mtriple=x86_64-linux-android").export_library(tmp_path / "net.so", ndk.create_shared)
    environment = {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", RUN, str(tmp_path / "net.so")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    x = np.arange(4, dtype="float32")
    np.testing.assert_allclose([float(v) for v in done.stdout.split()], np.tan(x) + x, rtol=1e-5)


def test_what_needs_an_ndk_says_so(tmp_path: Path) -> None:
    (tmp_path / "net.c").write_text("int one;\n")
    with pytest.raises(TargetError, match="the Android compiler is not known"):
        ndk.create_shared(tmp_path / "net.so", [str(tmp_path / "net.c")])
    library = relay.build(network(), "llvm -mtriple=armv7a-linux-androideabi -mattr=+neon")
    with pytest.raises(TargetError, match=r"Android|compiler"):
        library.export_library(tmp_path / "net.so", ndk.create_shared)
