"""Products of bytes by Arm's matrix instructions (i8mm), or in pairs of 16 bits: exact under qemu, of odd shapes."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulators import qemu_aarch64

from armillary import relay
from armillary.base.config import setting
from armillary.ir import IRModule
from armillary.ops.qnn.quantize import tensor_of
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Expr, Function, Tuple, const
from armillary.transform import PassContext

NEEDED = "aarch64-linux-gnu-gcc", "qemu-aarch64-static"
ONE, NONE = const(np.float32(1)), const(np.int32(0))
MATRIX, PAIRS = {"smmla", "ummla", "usmmla"}, {"smull", "smull2", "smlal", "smlal2", "sadalp"}
SYMMETRIC, APART = "int8 but for -128", "int8 with -128 among the first four of eight inputs"
# channels in, out, height, width, kernel, stride, padding, dilation
WINDOWS = (
    (8, 8, 5, 7, (3, 3), 1, (1, 1), 1),
    (16, 24, 9, 6, (3, 3), 2, (1, 1), 1),
    (24, 40, 7, 7, (1, 1), 1, (0, 0), 1),
    (64, 16, 6, 13, (1, 1), 2, (0, 0), 1),
    (8, 12, 11, 3, (5, 2), 1, (2, 1), 1),
    (16, 8, 12, 9, (3, 3), 1, (3, 3), 3),
    (32, 64, 4, 1, (3, 1), 1, (1, 0), 1),
)
PRODUCTS = ((2, 24, 8), (3, 64, 20), (7, 40, 30), (9, 8, 100), (20, 256, 64))  # rows, terms, units

pytestmark = pytest.mark.skipif(
    not setting("CI") and not all(map(shutil.which, NEEDED)), reason=f"needs {', '.join(NEEDED)}"
)


@pytest.fixture(scope="module")
def cross_runner(built_runner: Callable[..., Path]) -> Path:
    """armrun for AArch64."""
    return built_runner(["aarch64-linux-gnu-gcc"])


def _bytes(rng: np.random.Generator, dtype: str, *shape: int) -> Any:  # Any: an array of bytes
    """Random bytes, many of them extremes."""
    info = np.iinfo("int8" if dtype in (SYMMETRIC, APART) else dtype)
    some = np.array([info.min, info.min, info.min + 1, 0, 3, 77, info.max - 1, info.max, info.max])
    found = rng.choice(some, shape)
    if dtype in (SYMMETRIC, APART):
        later = (np.arange(shape[1]) // 4 % 2 > 0).reshape(-1, *[1] * (len(shape) - 2))
        return np.where(later | (dtype == SYMMETRIC), np.maximum(found, -127), found).astype("int8")
    return found.astype(dtype)


def _convolutions(dtype: str, zero: int, weights: str) -> Function:
    rng, made, inputs = np.random.default_rng(2), list[Expr](), []
    for k, (ci, co, height, width, kernel, stride, padding, dilation) in enumerate(WINDOWS):
        x = relay.var(f"x{k}", shape=(1, ci, height, width), dtype=dtype)
        weight = const(_bytes(rng, weights, co, ci, *kernel))
        inputs.append(x)
        made.append(
            relay.qnn.conv2d(
                x,
                weight,
                const(np.int32(zero)),
                NONE,
                ONE,
                ONE,
                kernel_size=kernel,
                channels=co,
                strides=(stride, stride),
                padding=padding,
                dilation=(dilation, dilation),
            )
        )
    return Function(tuple(inputs), Tuple(tuple(made)))


def _products(dtype: str, zero: int, weights: str) -> Function:
    rng, made, inputs = np.random.default_rng(3), list[Expr](), []
    for k, (rows, terms, units) in enumerate(PRODUCTS):
        x = relay.var(f"x{k}", shape=(rows, terms), dtype=dtype)
        inputs.append(x)
        weight = const(_bytes(rng, weights, units, terms))
        made.append(relay.qnn.dense(x, weight, const(np.int32(zero)), NONE, ONE, ONE))
    return Function(tuple(inputs), Tuple(tuple(made)))


@pytest.mark.parametrize("network", [_convolutions, _products])
@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 121), ("int8", -5)])
def test_matrix_instructions_are_exact(
    network: Callable[[str, int, str], Function], dtype: str, zero: int, cross_runner: Path, tmp_path: Path
) -> None:
    function = network(dtype, zero, "int8")
    rng = np.random.default_rng(5)
    values = [_bytes(rng, dtype, *tensor_of(x).static) for x in function.params]
    library = _built(function, "-mcpu=neoverse-n2")
    for found, expected in zip(_run(library, values, cross_runner, tmp_path), evaluate(function, values), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert _matrix_words(library) in ({"smmla"}, {"usmmla"})  # signed data of convolutions is moved by 128


@pytest.mark.parametrize("network", [_convolutions, _products])
@pytest.mark.parametrize(("dtype", "zero", "weights"), [("uint8", 121, SYMMETRIC), ("int8", -128, APART)])
def test_products_in_pairs_of_16_bits_are_exact(
    network: Callable[[str, int, str], Function],
    dtype: str,
    zero: int,
    weights: str,
    cross_runner: Path,
    tmp_path: Path,
) -> None:
    """Of processors without dot products; the second input is the lowest number throughout: the largest sums."""
    function = network(dtype, zero, weights)
    rng = np.random.default_rng(5)
    values = [_bytes(rng, dtype, *tensor_of(x).static) for x in function.params]
    values[1] = np.full_like(values[1], np.iinfo(dtype).min)
    library = _built(function, "-mcpu=cortex-a72")
    for found, expected in zip(_run(library, values, cross_runner, tmp_path), evaluate(function, values), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert _words(library) >= PAIRS


def test_a_weight_of_minus_128_is_multiplied_otherwise() -> None:
    """Where another lies four inputs further: their products with -128 are 2^15."""
    assert "sadalp" not in _words(_built(_convolutions("int8", 0, "int8"), "-mcpu=cortex-a72"))


def test_a_loop_of_pairs_spills_nothing() -> None:
    x = relay.var("x", shape=(1, 64, 14, 14), dtype="int8")
    weight = const(_bytes(np.random.default_rng(1), SYMMETRIC, 64, 64, 3, 3))
    sums = relay.qnn.conv2d(x, weight, NONE, NONE, ONE, ONE, kernel_size=(3, 3), channels=64, padding=(1, 1))
    text = _built(Function((x,), sums), "-mcpu=cortex-a53").get_source("asm")
    inner = max(re.split(r"^\.LBB\w+:", text, flags=re.MULTILINE), key=lambda block: block.count("sadalp"))
    assert inner.count("sadalp") >= 16 and "[sp" not in inner.partition("\tb.")[0]


@pytest.mark.parametrize(
    ("target", "has_them"),
    [
        ("-mcpu=neoverse-v1", True),
        ("-mcpu=cortex-a710", True),
        ("-mattr=+v8.6a", True),
        ("-mattr=+v8.2a,+dotprod,+i8mm", True),
        ("-mcpu=cortex-a76", False),
        ("-mcpu=neoverse-n2 -mattr=-i8mm", False),
        ("-mcpu=cortex-a72", False),
    ],
)
def test_the_processor_or_a_feature_chooses_them(target: str, has_them: bool) -> None:
    function = _products("int8", 0, "int8")
    assert bool(_matrix_words(_built(function, target))) is has_them


def test_unsigned_weights_use_them_too() -> None:
    assert _matrix_words(_built(_products("uint8", 0, "uint8"), "-mcpu=neoverse-n2")) == {"ummla"}


def test_one_row_keeps_dot_products() -> None:
    """Half of a matrix instruction would be of no row."""
    x = relay.var("x", shape=(1, 64), dtype="int8")
    weight = const(_bytes(np.random.default_rng(1), "int8", 32, 64))
    text = _built(Function((x,), relay.qnn.dense(x, weight, NONE, NONE, ONE, ONE)), "-mcpu=neoverse-n2").get_source(
        "asm"
    )
    assert "sdot" in text and "smmla" not in text


def test_a_loop_of_matrix_instructions_spills_nothing_and_loads_little() -> None:
    """3x3 on 64 channels: 24 matrix instructions for each tap, 7 to 12 vectors loaded for them."""
    x = relay.var("x", shape=(1, 64, 28, 28), dtype="uint8")
    weight = const(_bytes(np.random.default_rng(1), "int8", 64, 64, 3, 3))
    sums = relay.qnn.conv2d(x, weight, NONE, NONE, ONE, ONE, kernel_size=(3, 3), channels=64, padding=(1, 1))
    text = _built(Function((x,), sums), "-mcpu=neoverse-n2").get_source("asm")
    loops = [block for block in re.split(r"^\.LBB\w+:", text, flags=re.MULTILINE) if "usmmla" in block]
    inner = max(loops, key=lambda block: block.count("usmmla"))
    lines = [line.split() for line in inner.splitlines() if line.startswith("\t") and not line.startswith("\t.")]
    vectors = sum(len(re.findall(r"\b[qd]\d+", line[1])) if len(line) > 1 else 0 for line in lines if line[0] == "ldp")
    assert inner.count("usmmla") >= 36 and "[sp" not in inner
    assert len(lines) + vectors <= 2 * inner.count("usmmla")


def _built(function: Function, target: str) -> Any:  # Any: a library
    with PassContext(opt_level=3, config={"relay.qnn.product_in_float": False}):
        return relay.build(IRModule.from_expr(function), f"llvm -mtriple=aarch64-linux-gnu {target}")


def _words(library: Any) -> set[str]:
    return {line.split()[0] for line in library.get_source("asm").splitlines() if line.split()}


def _matrix_words(library: Any) -> set[str]:
    return _words(library) & MATRIX


def _run(library: Any, values: Sequence[Any], cross_runner: Path, tmp_path: Path) -> list[Any]:
    """The outputs on the emulator of a processor that has everything."""
    path, out = tmp_path / "net.so", tmp_path / "out.npz"
    library.export_library(path)
    np.savez(tmp_path / "in.npz", **{f"x{k}": value for k, value in enumerate(values)})
    emulator = ["timeout", "-s", "KILL", "60", *qemu_aarch64("-cpu", "max")]
    options = [f"--model={path}", f"--input={tmp_path / 'in.npz'}", f"--output={out}", "--run-count=1", "--dry-run=0"]
    done = subprocess.run([*emulator, str(cross_runner), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(out) as outputs:
        return [outputs[f"output_{k}"] for k in range(len(values))]
