"""What `-mcpu` implies on AArch64, against gcc: an oracle that nobody here wrote."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from armillary.base.config import setting
from armillary.target.cpu import cpu_model
from armillary.target.cpu_table import AARCH64

GCC = "aarch64-linux-gnu-gcc"
MACROS = {
    "dotprod": "DOTPROD",
    "fullfp16": "FP16_VECTOR_ARITHMETIC",
    "i8mm": "MATMUL_INT8",
    "bf16": "BF16_VECTOR_ARITHMETIC",
}
GCC_12_LACKS = {"tsv110": {"dotprod"}}  # Linux lists asimddp there, and LLVM has it

pytestmark = pytest.mark.skipif(not setting("CI") and not shutil.which(GCC), reason=f"needs {GCC}")


def test_features_of_arm_cores_are_those_of_gcc() -> None:
    known = 0
    for name in set(AARCH64) - {"generic"}:
        command = [GCC, f"-mcpu={name}", "-dM", "-E", "-x", "c", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:  # younger than this gcc, or Apple's
            continue
        known += 1
        wanted = {f for f, macro in MACROS.items() if f"#define __ARM_FEATURE_{macro} 1" in done.stdout}
        model = cpu_model(f"llvm -mtriple=aarch64-linux-gnu -mcpu={name}")
        assert {f for f in MACROS if model.has(f)} == wanted | GCC_12_LACKS.get(name, set()), name
    assert known >= 28
