"""The native runtime compiles without a warning by gcc, clang and zig, which users have, and what it builds runs.

Others of a machine, such as versions of gcc that its Debian lacks (.ci/gcc unpacks them), are named by CC_OTHERS, one
command after another with colons between: then those alone are tried, for the three were among the tests.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from armillary.base.config import setting
from armillary.runtime.build_native import build_library, build_rpc_server, build_runner

STRICT = ("-Werror", "-O1")
HIDDEN = ("-fPIC", "-fvisibility=hidden")  # as the library is built: what it shares with the runner is compiled once
OTHERS = {command: command.split() for command in os.environ.get("CC_OTHERS", "").split(":") if command}
COMPILERS = OTHERS or {
    "gcc": ["gcc"] if shutil.which("gcc") else None,
    "clang": ["clang"] if shutil.which("clang") else None,
    "zig": [sys.executable, "-m", "ziglang", "cc"] if importlib.util.find_spec("ziglang") else None,
}


@pytest.mark.parametrize("name", COMPILERS)
def test_library_and_runner_build_without_a_warning(name: str, tmp_path: Path) -> None:
    compiler = COMPILERS[name]
    if compiler is None:
        assert not setting("CI"), f"CI lacks {name}"
        pytest.skip(f"needs {name}")
    build_library(compiler, tmp_path / "library.so", STRICT)
    build_runner(compiler, tmp_path / "armrun", (*HIDDEN, *STRICT))
    printed = subprocess.run([tmp_path / "armrun", "--help"], capture_output=True, text=True, timeout=60, check=True)
    assert "usage: armrun" in printed.stdout


def test_programs_build_for_macos_without_a_warning(tmp_path: Path) -> None:
    """By zig, which has Apple's headers and stubs; nothing here runs them, and packages are ELF (docs/limits.md)."""
    if importlib.util.find_spec("ziglang") is None:
        assert not setting("CI"), "CI lacks zig"
        pytest.skip("needs zig")
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-macos"]
    for program, build in (("armrun", build_runner), ("armrpc", build_rpc_server)):
        build(compiler, tmp_path / program, STRICT)
        assert (tmp_path / program).read_bytes()[:4] == b"\xcf\xfa\xed\xfe", "a 64-bit Mach-O file"
