"""32-bit Arm: packages in armrun under qemu, and the loop of an elementwise addition instruction by instruction."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import e2e_models as models
import numpy as np
import pytest
from emulators import qemu_arm

import armillary
from armillary import relay
from armillary.base.config import setting

GCC, QEMU = shutil.which("arm-linux-gnueabihf-gcc"), shutil.which("qemu-arm-static")
TRIPLE = "armv7a-linux-gnueabihf"
TARGET = f"llvm --device=arm_cpu -mtriple={TRIPLE} -mattr=+neon"
HALVES = "llvm -device=arm_cpu -mtriple=armv8l-linux-gnueabihf -mattr=+v8.2a,+fullfp16"
ZIG = [sys.executable, "-m", "ziglang", "cc", "-target", "arm-linux-gnueabihf"]
NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {"batch_size": 3},
    "resnet": {"num_layers": 8, "image_shape": (3, 28, 28), "num_classes": 10},
    "mobilenet": {"image_shape": (3, 32, 32)},
}

pytestmark = pytest.mark.skipif(
    not setting("CI") and not (GCC and QEMU), reason="needs arm-linux-gnueabihf-gcc and qemu-arm-static"
)


@pytest.fixture(scope="module")
def cross_runner(built_runner: Callable[..., Path]) -> Path:
    """armrun for 32-bit Arm."""
    return built_runner(["arm-linux-gnueabihf-gcc"])


@pytest.mark.parametrize(
    ("network", "target", "linker", "suffix"),
    [
        ("resnet", TARGET, None, "tar"),
        ("mobilenet", "llvm -device=rasp4b", None, "so"),
        pytest.param("mlp", TARGET, ZIG, "so", marks=pytest.mark.slow),  # zig compiles its C library: 10 s
        ("mlp", f"llvm -mtriple={TRIPLE}", None, "tar"),
    ],
)
def test_outputs_equal_those_of_the_host(
    network: str, target: str, linker: Any, suffix: str, cross_runner: Path, tmp_path: Path
) -> None:
    module, params, inputs = models.workload(network, **NETWORKS[network])
    path, out = tmp_path / f"net.{suffix}", tmp_path / "out.npz"
    models.compiled(module, params, target).export_library(path, cc=linker)
    np.savez(tmp_path / "in.npz", **inputs)
    command = [*qemu_arm(), str(cross_runner), f"--model={path}", f"--input={tmp_path / 'in.npz'}", f"--output={out}"]
    options = ["--threads=2", "--run-count=1", "--dry-run=0"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    want = models.run(models.compiled(module, params), inputs)
    with np.load(out) as outputs:
        np.testing.assert_allclose(outputs["output_0"], want, rtol=1e-4, atol=1e-4 * abs(want).max())


def _disassembled(dtype: str, target: str, path: Path) -> str:
    x = relay.var("x", shape=(1, 1024), dtype=dtype)
    module = armillary.IRModule.from_expr(relay.Function([x], relay.add(x, x)))
    with armillary.transform.PassContext(opt_level=3):
        relay.build(module, target=target).lib.save(str(path))
    done = subprocess.run(["arm-linux-gnueabihf-objdump", "-d", str(path)], capture_output=True, text=True, check=True)
    return done.stdout


def _loop(text: str) -> list[str]:
    """The instructions of the innermost loop of the body for aligned arguments, the branch that closes it last."""
    body = text.split(".aligned>:")[1].split("\n\n")[0]
    rows = [line.split("\t") for line in body.splitlines() if line.count("\t") >= 2]
    places = {row[0].strip().rstrip(":"): k for k, row in enumerate(rows)}
    for k, row in enumerate(rows):
        target = row[3].split()[0] if row[2].startswith("b") and len(row) > 3 else ""
        if target in places and places[target] < k:
            return [" ".join(parts[2:]) for parts in rows[places[target] : k + 1]]
    raise AssertionError(f"no loop in\n{body}")


@pytest.mark.parametrize(
    ("dtype", "target", "arithmetic"),
    [
        ("float32", TARGET, r"vadd\.f32 q\d+, q\d+, q\d+"),
        ("int8", TARGET, r"v(add\.i8|shl\.s8) q\d+, q\d+"),
        ("int16", TARGET, r"v(add\.i16|shl\.s16) q\d+, q\d+"),
        ("float16", HALVES, r"vadd\.f16 q\d+, q\d+, q\d+"),
    ],
)
def test_an_addition_is_a_loop_of_eight_instructions_over_whole_aligned_registers(
    dtype: str, target: str, arithmetic: str, tmp_path: Path
) -> None:
    loop = _loop(_disassembled(dtype, target, tmp_path / "a.o"))
    text = "\n".join(loop)
    assert len(loop) <= 8, text
    assert re.search(arithmetic, text), text
    for access in ("vld1", "vst1"):
        assert re.search(access + r"\.64 \{d\d+-d\d+\}, \[r\d+ ?:128\]", text), text
    assert not re.search(r"\b(adc|sbcs?|rsc)\b", text), f"a counter of 64 bits:\n{text}"


def test_without_neon_the_same_addition_uses_no_vector_register(tmp_path: Path) -> None:
    text = _disassembled("float32", f"llvm -mtriple={TRIPLE}", tmp_path / "a.o")
    assert "vadd.f32" in text and not re.search(r"\bq\d+\b|vld1", text), text


def test_floats_travel_in_float_registers_where_the_triple_says_so(tmp_path: Path) -> None:
    _disassembled("float32", TARGET, tmp_path / "a.o")
    command = ["arm-linux-gnueabihf-readelf", "-A", str(tmp_path / "a.o")]
    message = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Tag_ABI_VFP_args: VFP registers" in message
