"""What `armc compile` imports when every kernel is in the cache: a budget, since imports are half of that time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_MODULES = 217  # of ours, but for the faces of folders; each costs 0.3 ms
NOT_NEEDED = (
    "rich",
    "llvmlite.binding",
    "ml_dtypes",
    "onnx",
    "asyncio",
    "unittest",
    "armillary.codegen.object.jit",
    "armillary.runtime",
    "armillary.backends.registry",
    "armillary.te",
    "armillary.tir",
    "armillary.ops.reduce.reduce",
)
SHOW = """
import sys
from armillary.cli.main import main
code = main(["compile", "net.relay", "-o", "net.tar"])
names = set(sys.modules)
ours = [name for name in names if name.startswith("armillary") and not hasattr(sys.modules[name], "__path__")]
print(code, len(ours), *sorted(set({unwanted}) & names))
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Exit code, number of our modules and unwanted ones, of the second of two equal runs."""
    folder = tmp_path_factory.mktemp("budget")
    (folder / "net.relay").write_text("def @main(%x: Tensor[(2, 3), float32]) { nn.relu(%x) }\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ARMILLARY_CACHE": "1", "ARMILLARY_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", SHOW.replace("{unwanted}", repr(NOT_NEEDED))]
    for _ in range(2):
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_cached_compile_imports_nothing_it_does_not_need(report: list[str]) -> None:
    assert report[0] == "0"
    assert report[2:] == []


def test_a_cached_compile_keeps_to_its_number_of_modules(report: list[str]) -> None:
    assert int(report[1]) <= MOST_MODULES
