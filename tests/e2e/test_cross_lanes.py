"""Products of AArch64 by lanes of a register: right under qemu, and inner loops at the rate of the FMA units."""

from __future__ import annotations

import re
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
from armillary.relay.expr import Expr, const, var
from armillary.transform import PassContext

NEEDED = "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-objdump", "qemu-aarch64-static"
CPUS = ("cortex-a72", "neoverse-n1")
RNG = np.random.default_rng(17)

pytestmark = pytest.mark.skipif(
    not setting("CI") and not all(map(shutil.which, NEEDED)), reason=f"needs {', '.join(NEEDED)}"
)


@pytest.fixture(scope="module")
def cross_runner(built_runner: Callable[..., Path]) -> Path:
    """armrun for AArch64."""
    return built_runner(["aarch64-linux-gnu-gcc"])


def _conv(x: Expr, channels: int, kernel: int, **attrs: object) -> Expr:
    groups = int(str(attrs.get("groups", 1)))
    inner = int(x.checked_type.shape[1]) // groups
    weight = RNG.standard_normal((channels, inner, kernel, kernel)) / kernel / np.sqrt(inner)
    return relay.nn.relu(relay.nn.conv2d(x, const(weight.astype("float32")), **attrs))


def _dense(x: Expr, units: int) -> Expr:
    inner = int(x.checked_type.shape[1])
    weight = (RNG.standard_normal((units, inner)) / np.sqrt(inner)).astype("float32")
    return relay.nn.bias_add(relay.nn.dense(x, const(weight)), const(RNG.standard_normal(units).astype("float32")))


SMALL = [
    pytest.param((1, 3, 21, 19), lambda x: _conv(x, 8, 7, strides=(2, 2), padding=(3, 3)), id="plain-data"),
    pytest.param((1, 12, 9, 11), lambda x: _conv(x, 20, 3, padding=(1, 1)), id="padding"),
    pytest.param((1, 8, 13, 10), lambda x: _conv(x, 12, 3, strides=(2, 1), padding=(0, 2)), id="strides"),
    pytest.param((1, 8, 14, 14), lambda x: _conv(x, 12, 3, padding=(2, 2), dilation=(2, 2)), id="dilation"),
    pytest.param((1, 16, 7, 7), lambda x: _conv(x, 28, 1), id="one-by-one"),
    pytest.param((1, 16, 9, 9), lambda x: _conv(x, 16, 3, groups=2, padding=(1, 1)), id="groups"),
    pytest.param((1, 10, 6, 5), lambda x: _conv(x, 6, 3, padding=(1, 1)), id="channels-that-fill-no-block"),
    pytest.param((1, 36), lambda x: _dense(x, 30), id="one-row"),
    pytest.param((9, 37), lambda x: _dense(x, 24), id="a-prime-of-steps"),
    pytest.param((13, 64), lambda x: _dense(x, 48), id="rows"),
]


@pytest.mark.parametrize(("shape", "layer"), SMALL)
def test_layers_are_those_of_the_reference(
    shape: tuple[int, ...], layer: Callable[[Expr], Expr], cross_runner: Path, tmp_path: Path
) -> None:
    _check(shape, layer, "cortex-a72", cross_runner, tmp_path)


def test_one_row_reads_weights_in_four_streams_for_eight_sums(cross_runner: Path, tmp_path: Path) -> None:
    """Two units of four cycles wait for fewer sums."""
    text = _check((1, 76), lambda x: _dense(x, 104), "neoverse-n1", cross_runner, tmp_path)
    longest = max(re.split(r"^\.LBB\w+:", text, flags=re.MULTILINE), key=lambda block: block.count("fmla"))
    sums = re.findall(r"fmla\t(v\d+)", longest)
    assert len(sums) == 32 and len(set(sums)) == 8


@pytest.mark.parametrize(
    ("kernel", "size", "padding"),
    [(3, (28, 28), (1, 1)), (5, (13, 29), (2, 2)), (3, (9, 30), (1, 1)), (7, (14, 30), (3, 3))],
)
def test_two_units_take_a_strided_depthwise_layer_result_by_result(
    kernel: int, size: tuple[int, int], padding: tuple[int, int], cross_runner: Path, tmp_path: Path
) -> None:
    """All taps of a line for one column before the next, so that a tile's sums are more than the units wait for."""

    def layer(x: Expr) -> Expr:
        return _conv(x, 8, kernel, strides=(2, 2), groups=8, padding=padding)

    text = _check((1, 8, *size), layer, "neoverse-n1", cross_runner, tmp_path)
    longest = max(re.split(r"^\.LBB\w+:", text, flags=re.MULTILINE), key=lambda block: block.count("fmla"))
    sums = re.findall(r"fmla\t(v\d+)", longest)
    assert len(set(sums)) >= 8 and not re.search(r"st[rp]\tq\d+.*\[sp", longest), longest


def _check(shape: tuple[int, ...], layer: Callable[[Expr], Expr], cpu: str, runner: Path, tmp_path: Path) -> str:
    """Run a layer of an input on the emulator and compare; its assembly."""
    x = var("x", shape=shape)
    module = IRModule.from_expr(layer(x))
    with PassContext(opt_level=3):
        library = relay.build(module, f"llvm -mtriple=aarch64-linux-gnu -mcpu={cpu}")
    package, out = tmp_path / "net.so", tmp_path / "out.npz"
    library.export_library(package)
    value = RNG.standard_normal(shape).astype("float32")
    np.savez(tmp_path / "in.npz", x=value)
    command = ["timeout", "-s", "KILL", "60", *qemu_aarch64("-cpu", "max"), str(runner), f"--model={package}"]
    options = [f"--input={tmp_path / 'in.npz'}", f"--output={out}", "--run-count=1", "--dry-run=0", "--threads=2"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(out) as outputs:
        np.testing.assert_allclose(outputs["output_0"], evaluate(module, [value]), rtol=1e-4, atol=1e-5)
    text: str = library.get_source("asm")
    return text


def _blocks(text: str) -> list[list[str]]:
    """The basic blocks of a disassembly, each a list of instructions."""
    rows = [line.split("\t") for line in text.splitlines() if line.count("\t") >= 1]
    rows = [[row[0].strip().rstrip(":"), *row[1:]] for row in rows]
    targets = {word for row in rows if _jumps(row) for word in row[2].replace(",", " ").split()}
    found: list[list[str]] = [[]]
    for row in rows:
        if row[0] in targets:
            found.append([])
        found[-1].append(" ".join(row[1:3]))
        if _jumps(row):
            found.append([])
    return found


def _jumps(row: list[str]) -> bool:
    return len(row) > 2 and re.match(r"(b$|b\.|cbn?z|tbn?z)", row[1]) is not None


LAYERS = [
    pytest.param((1, 256, 28, 28), lambda x: _conv(x, 256, 1), id="one-by-one"),
    pytest.param((1, 128, 28, 28), lambda x: _conv(x, 256, 3, strides=(2, 2), padding=(1, 1)), id="strided"),
    pytest.param((49, 512), lambda x: _dense(x, 512), id="product"),
]


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(("shape", "layer"), LAYERS)
def test_an_inner_loop_is_products_by_lanes_with_few_loads_and_no_spills(
    shape: tuple[int, ...], layer: Callable[[Expr], Expr], cpu: str, tmp_path: Path
) -> None:
    module = IRModule.from_expr(layer(var("x", shape=shape)))
    with PassContext(opt_level=3):
        library = relay.build(module, f"llvm -mtriple=aarch64-linux-gnu -mcpu={cpu}")
    texts = []
    for k, code in enumerate(library.lib.objects):
        path = tmp_path / f"{k}.o"
        path.write_bytes(code)
        command = [NEEDED[1], "-d", "--no-show-raw-insn", str(path)]
        texts.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    longest = max((b for text in texts for b in _blocks(text)), key=lambda b: sum(i.startswith("fmla") for i in b))
    products = [i for i in longest if i.startswith("fmla")]
    text = "\n".join(longest)
    assert len(products) >= 32 and len(longest) <= 1.35 * len(products), text
    assert {i[-2] for i in products} == set("0123"), text
    assert not re.search(r"\b(str|stp|ld1r)\b", text), text
