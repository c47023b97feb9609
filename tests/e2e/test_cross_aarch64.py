"""Packages for AArch64, linked by a cross compiler, by zig or by nobody but us, run in armrun under qemu as here."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import e2e_models as models
import numpy as np
import pytest
from emulators import qemu_aarch64

from armillary.base.config import setting
from armillary.errors import TargetError

TARGET = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"
GCC, QEMU = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64-static")
HAS_ZIG = importlib.util.find_spec("ziglang") is not None
ZIG = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu"]
LINKERS: dict[str, Any] = {"gcc": "aarch64-linux-gnu-gcc", "zig": ZIG, "none": None}

pytestmark = pytest.mark.skipif(
    not setting("CI") and not (GCC and QEMU and HAS_ZIG), reason="needs aarch64-linux-gnu-gcc, qemu-aarch64 and ziglang"
)


@pytest.fixture(scope="module")
def cross_runner(built_runner: Callable[..., Path]) -> Path:
    """armrun for AArch64."""
    return built_runner(["aarch64-linux-gnu-gcc"])


def _squeezenet() -> tuple[Any, Any, models.Arrays]:
    return models.workload("squeezenet", version="1.1", image_shape=(3, 64, 64), num_classes=10)


def _light_squeezenet() -> tuple[Any, Any, models.Arrays]:
    model = models.with_random_weights(models.light_model("squeezenet"))
    return *models.import_light(model), models.light_inputs(model)


def _resnet() -> tuple[Any, Any, models.Arrays]:
    return models.workload("resnet", num_layers=8, image_shape=(3, 28, 28), num_classes=10)


def _perceptron() -> tuple[Any, Any, models.Arrays]:
    return models.workload("mlp", batch_size=3)


CASES = [
    pytest.param(_squeezenet, "gcc", "tar", id="squeezenet-gcc"),
    pytest.param(_light_squeezenet, "gcc", "tar", id="light-squeezenet-gcc", marks=pytest.mark.slow),
    pytest.param(_resnet, "gcc", "tar", id="resnet-gcc"),
    pytest.param(_squeezenet, "zig", "tar", id="squeezenet-zig", marks=pytest.mark.slow),  # mlp is linked by it too
    pytest.param(_perceptron, "zig", "so", id="mlp-zig"),
    pytest.param(_perceptron, "gcc", "so", id="mlp-gcc"),
    pytest.param(_squeezenet, "none", "tar", id="squeezenet-none"),
    pytest.param(_resnet, "none", "so", id="resnet-none"),
]


@pytest.mark.parametrize(("network", "linker", "suffix"), CASES)
def test_outputs_equal_those_of_the_host(
    network: Any, linker: str, suffix: str, cross_runner: Path, tmp_path: Path
) -> None:
    module, params, inputs = network()
    path, out = tmp_path / f"net.{suffix}", tmp_path / "out.npz"
    models.compiled(module, params, TARGET).export_library(path, cc=LINKERS[linker])
    np.savez(tmp_path / "in.npz", **inputs)
    command = [*qemu_aarch64(), str(cross_runner), f"--model={path}"]
    options = [f"--input={tmp_path / 'in.npz'}", f"--output={out}", "--threads=2", "--run-count=1", "--dry-run=0"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    want = models.run(models.compiled(module, params), inputs)
    with np.load(out) as outputs:
        error = models.relative_error(outputs["output_0"], want)
        print(f"relative error {error:.1e} (seed {models.SEED})")
        np.testing.assert_allclose(outputs["output_0"], want, rtol=1e-4, atol=1e-4 * abs(want).max())


def test_cross_compiled_code_is_refused_in_this_process() -> None:
    module, params, _ = _perceptron()
    library = models.compiled(module, params, TARGET)
    with pytest.raises(TargetError, match="cannot run in this process"):
        library["default"]()
