"""`armc build-runner --target`: programs for other machines, and what stands in the way of one."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from armillary import relay
from armillary.base.config import setting
from armillary.cli.main import main
from armillary.codegen.toolchain import program_toolchain
from armillary.ir import IRModule
from armillary.target import Target

COMPILERS = ("arm-linux-gnueabihf-gcc", "aarch64-linux-gnu-gcc")


@pytest.mark.skipif(not setting("CI") and not all(map(shutil.which, COMPILERS)), reason="needs two cross compilers")
@pytest.mark.parametrize(
    ("target", "options", "machine"),
    [
        ("armv7a-linux-gnueabihf", [], 40),
        ("rasp4b64", ["--rpc-server"], 183),
        ("llvm -device=rasp4b", ["--rpc-server"], 40),
    ],
)
def test_a_triple_a_board_or_a_target_names_the_machine(
    target: str, options: list[str], machine: int, tmp_path: Path
) -> None:
    path = tmp_path / "program"
    assert main(["build-runner", "--target", target, *options, "-o", str(path)]) == 0
    head = path.read_bytes()[:20]
    assert head[:4] == b"\x7fELF" and struct.unpack("<H", head[18:20])[0] == machine


@pytest.mark.parametrize("target", ["armv7a-linux-androideabi28", "llvm -mtriple=armv7a-linux-android"])
def test_android_of_32_bits_without_its_compiler_says_what_to_install(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["build-runner", "--target", target, "-o", str(tmp_path / "program")]) != 0
    said = capsys.readouterr().err
    assert "-clang" in said and "Android NDK" in said


@pytest.mark.parametrize("target", ["aarch64-linux-android28", "arm64-linux-android"])
def test_android_without_its_compiler_gets_a_static_program(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    command = program_toolchain(Target(f"llvm -mtriple={target}")).command
    assert command[-3:] == ("-target", "aarch64-linux-musl", "-static")


@pytest.mark.slow
@pytest.mark.skipif(not setting("CI") and not shutil.which("qemu-aarch64-static"), reason="needs an emulator")
def test_a_static_program_runs_objects_and_says_so_of_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of a system lies beside it: the emulator has no root."""
    emulator, runner = str(shutil.which("qemu-aarch64-static")), str(tmp_path / "armrun")
    triple = "aarch64-linux-android28"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["build-runner", "--target", triple, "-o", runner]) == 0
    assert "it runs packages of objects" in capsys.readouterr().err
    x = relay.var("x", shape=(2, 3))
    library = relay.build(IRModule.from_expr(relay.add(x, x)), f"llvm -mtriple={triple}")
    value = np.arange(6, dtype="float32").reshape(2, 3)
    np.savez(tmp_path / "in.npz", x=value)
    for name in ("net.tar", "net.so"):
        library.export_library(tmp_path / name)
        files = [f"--model={tmp_path / name}", f"--input={tmp_path / 'in.npz'}", f"--output={tmp_path / 'out.npz'}"]
        command = [emulator, "-L", str(tmp_path / "none"), runner, *files]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if name == "net.so":
            assert done.returncode != 0 and 'export_library("net.tar")' in done.stderr
            continue
        assert done.returncode == 0, done.stderr
        with np.load(tmp_path / "out.npz") as found:
            np.testing.assert_array_equal(found["output_0"], value + value)
