"""The larger and the smaller of floats on 32-bit Arm, with and without NEON: float64, too, and NaN stays NaN."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from emulators import qemu_arm

from armillary import relay
from armillary.base.config import setting
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Function, Tuple, const, var
from armillary.transform import PassContext

NEEDED = "arm-linux-gnueabihf-gcc", "qemu-arm-static"

pytestmark = pytest.mark.skipif(
    not setting("CI") and not all(map(shutil.which, NEEDED)), reason=f"needs {', '.join(NEEDED)}"
)


@pytest.mark.parametrize("features", ["-mattr=+neon", ""])
def test_extremes_of_every_float(features: str, built_runner: Callable[..., Path], tmp_path: Path) -> None:
    inputs, results, values = [], [], {}
    rng = np.random.default_rng(3)
    for dtype in ("float32", "float64", "float16"):
        x = var(dtype, shape=(3, 5, 7), dtype=dtype)
        zero = const(np.asarray(0.25, dtype))
        results += [relay.max(x, axis=0), relay.min(x, axis=2), relay.maximum(x, zero), relay.clip(x, -0.5, 0.5)]
        inputs.append(x)
        values[dtype] = rng.standard_normal((3, 5, 7)).astype(dtype)
        values[dtype][1, 2, 3] = np.nan
    module = IRModule.from_expr(Function(tuple(inputs), Tuple(tuple(results))))
    with PassContext(opt_level=3):
        library = relay.build(module, f"llvm -mtriple=armv7a-linux-gnueabihf {features}")
    library.export_library(tmp_path / "net.so", cc="arm-linux-gnueabihf-gcc")
    np.savez(tmp_path / "in.npz", **values)
    runner = built_runner(["arm-linux-gnueabihf-gcc"])
    files = [f"--model={tmp_path / 'net.so'}", f"--input={tmp_path / 'in.npz'}", f"--output={tmp_path / 'out.npz'}"]
    command = ["timeout", "-s", "KILL", "60", *qemu_arm(), str(runner), *files, "--run-count=1", "--dry-run=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as found:
        for k, expected in enumerate(evaluate(module, list(values.values()))):
            np.testing.assert_array_equal(found[f"output_{k}"], expected)
