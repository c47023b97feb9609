"""The native runtime compiles without a warning by gcc, clang and zig, which users have."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from armillary.base.config import setting
from armillary.runtime.build_native import build_library, build_runner

STRICT = ("-Werror", "-O1")
COMPILERS = {
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
    build_runner(compiler, tmp_path / "armrun", STRICT)
