"""A small quantised network for AArch64 with dot products: exact under qemu, and their instructions in the object."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from emulators import qemu_aarch64

from armillary import relay
from armillary.base.config import setting
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Function, const
from armillary.transform import PassContext

NEEDED = "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-objdump", "qemu-aarch64-static"
DOT, DOTS = "+v8.2a,+dotprod", {"sdot", "udot", "usdot"}

pytestmark = pytest.mark.skipif(
    not setting("CI") and not all(map(shutil.which, NEEDED)), reason=f"needs {', '.join(NEEDED)}"
)


@pytest.fixture(scope="module")
def cross_runner(built_runner: Callable[..., Path]) -> Path:
    """armrun for AArch64."""
    return built_runner(["aarch64-linux-gnu-gcc"])


def _network(dtype: str, kind: str) -> Function:
    """A convolution (16 to 32 channels), its result as bytes, a dense layer that ends in int32; weights of `kind`."""
    rng = np.random.default_rng(11)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    some = np.array([-128, -127, -3, -1, 0, 2, 50, 126, 127]).astype(kind)
    one, none, zero = const(np.float32(1)), const(np.int32(0)), const(np.int32(low + 121))
    x = relay.var("x", shape=(1, 16, 9, 7), dtype=dtype)
    sums = relay.qnn.conv2d(
        x,
        const(rng.choice(some, (32, 16, 3, 3))),
        zero,
        none,
        one,
        one,
        kernel_size=(3, 3),
        channels=32,
        padding=(1, 1, 1, 1),
        strides=(2, 2),
    )
    scale = const((rng.uniform(0.2, 1, 32) / 1200).astype("float32"))
    middle = const(np.int32((int(low) + int(high)) // 2))
    bytes_ = relay.qnn.requantize(
        sums, scale, none, one, middle, axis=1, rounding="TOEVEN", compute_dtype="float32", out_dtype=dtype
    )
    weight = const(rng.choice(some, (24, 32 * 5 * 4)))
    return Function([x], relay.qnn.dense(relay.nn.batch_flatten(bytes_), weight, middle, none, one, one))


@pytest.mark.parametrize(
    ("features", "dtype", "weights", "wanted"),
    [
        (DOT, "int8", "int8", {"sdot"}),
        (DOT, "uint8", "int8", {"sdot"}),
        (DOT, "uint8", "uint8", {"udot"}),
        (f"{DOT},+i8mm", "uint8", "int8", {"usdot"}),
        ("+neon", "int8", "int8", set()),
    ],
)
def test_bytes_are_exact_and_by_dot_products(
    features: str, dtype: str, weights: str, wanted: set[str], cross_runner: Path, tmp_path: Path
) -> None:
    function = _network(dtype, weights)
    info = np.iinfo(dtype)
    some = np.array([info.min, info.min + 1, 0, 77, info.max - 1, info.max])
    value = np.random.default_rng(3).choice(some, (1, 16, 9, 7)).astype(dtype)
    target = f"llvm -mtriple=aarch64-linux-gnu -mattr={features}"
    with PassContext(opt_level=3):
        library = relay.build(IRModule.from_expr(function), target)
    path, out = tmp_path / "net.so", tmp_path / "out.npz"
    library.export_library(path)
    np.savez(tmp_path / "in.npz", x=value)
    emulator = ["timeout", "-s", "KILL", "60", *qemu_aarch64("-cpu", "max")]
    options = [f"--model={path}", f"--input={tmp_path / 'in.npz'}", f"--output={out}", "--run-count=1", "--dry-run=0"]
    done = subprocess.run([*emulator, str(cross_runner), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(out) as outputs:
        np.testing.assert_array_equal(outputs["output_0"], evaluate(function, [value]))
    paths = [tmp_path / f"net{k}.o" for k in range(len(library.lib.objects))]
    for at, code in zip(paths, library.lib.objects, strict=True):
        at.write_bytes(code)
    text = subprocess.run([NEEDED[1], "-d", *paths], capture_output=True, text=True, check=True).stdout
    assert {word.split(".")[0] for word in text.split()} & DOTS == wanted
