"""`armc build-runner --target`: programs for other machines, and what stands in the way of one."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from armillary.base.config import setting
from armillary.cli.main import main

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


def test_android_without_its_compiler_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["build-runner", "--target", "aarch64-linux-android28", "-o", str(tmp_path / "program")]) != 0
    assert "aarch64-linux-android28-clang" in capsys.readouterr().err


def test_a_microcontroller_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build-runner", "--target", "stm32f746xx", "-o", str(tmp_path / "program")]) != 0
    assert "microcontroller" in capsys.readouterr().err
