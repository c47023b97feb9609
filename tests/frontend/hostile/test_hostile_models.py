"""Small hostile models are compiled or refused within 60 s and 2 GB, and end in no other exception."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from broken_models import MODELS
from onnx import ModelProto
from sized_models import SIZED

from armillary.budgets import FOLDED_OPERATIONS
from armillary.driver.build import build
from armillary.errors import ArmillaryError, BudgetError
from armillary.frontend import from_onnx
from armillary.ops.vision.nms import SuppressAttrs, suppress_overlaps
from armillary.runtime.device import cpu
from armillary.transform import PassContext

SECONDS, MEMORY, ADDRESSES = 60.0, 2 << 30, 4 << 30
# what makes many kernels, or a table of hundreds of megabytes
LONG = frozenset(
    name
    for name in MODELS
    if "constant" in name
    or name in ("functions that call ten others each", "a kernel of 63 squared with many channels")
)


def data_of(made: ModelProto | bytes) -> bytes:
    return made if isinstance(made, bytes) else made.SerializeToString()


def compile_or_refuse(path: Path) -> str:
    """What became of a file."""
    try:
        build(from_onnx(path)[0], "llvm")
    except ArmillaryError as error:
        return type(error).__name__
    return "compiled"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_each_is_small(name: str) -> None:
    assert len(data_of(MODELS[name]())) < 10_000


@pytest.mark.parametrize("name", sorted(set(MODELS) - LONG - SIZED))
def test_quick_ones(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.onnx"
    path.write_bytes(data_of(MODELS[name]()))
    begin = time.monotonic()
    compile_or_refuse(path)
    assert time.monotonic() - begin < SECONDS


@pytest.mark.parametrize(
    "name", [name if name in SIZED else pytest.param(name, marks=pytest.mark.slow) for name in sorted(MODELS)]
)
def test_each_alone_in_little_memory(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.onnx"
    path.write_bytes(data_of(MODELS[name]()))
    begin = time.monotonic()
    paths = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    environ = {**os.environ, "PYTHONPATH": paths, "ARMILLARY_CACHE_DIR": str(tmp_path), "ARMILLARY_COMPILE_JOBS": "1"}
    command = [sys.executable, __file__, str(path)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=SECONDS + 10, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[1]) < MEMORY
    assert time.monotonic() - begin < SECONDS


def main(path: str) -> None:
    """Compile a file with a limit of addresses; print what became of it, and the most memory at once."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    became = compile_or_refuse(Path(path))
    # not ru_maxrss, which an exec carries over: it would be that of the tests that ran before, where it is more
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    print(became, int(peak.split()[1]) * 1024)


def test_a_slow_constant_is_computed_when_loading() -> None:
    made = MODELS["a constant einsum of three matrices"]()
    with PassContext(config={FOLDED_OPERATIONS.key: 1000}):
        library = build(from_onnx(made)[0], "llvm")
    network = library["default"](cpu())
    network.set_input("x", np.zeros(1, np.float32))
    network.run()
    assert network.get_output(0).numpy() == pytest.approx(12.0**4)


def test_a_slow_constant_that_decides_a_shape_is_refused() -> None:
    made = MODELS["a shape that a product of matrices gives"]()
    from_onnx(made)
    with (
        PassContext(config={FOLDED_OPERATIONS.key: 1000}),
        pytest.raises(BudgetError, match=r"folding .*operations.*budget\.folded_operations"),
    ):
        from_onnx(made)


def test_a_picture_that_shrinks_a_lot_is_refused_before_its_weights_are_made() -> None:
    with pytest.raises(BudgetError, match="57142860 weights for each of 7 elements"):
        build(from_onnx(MODELS["a picture that shrinks from a long row"]())[0], "llvm")


def test_rows_of_a_loop_are_results() -> None:
    with pytest.raises(BudgetError, match=r"loop: .*1099511627776"):
        build(from_onnx(MODELS["a loop that collects 2^40 rows"]())[0], "llvm")


def test_boxes_are_compared_many_at_a_time() -> None:
    corners = np.arange(12_000, dtype=np.float32).reshape(1, 3000, 4)
    scores, iou = np.linspace(1, 2, 3000, dtype=np.float32).reshape(1, 1, 3000), np.float32(1)
    attrs = SuppressAttrs(most=3000, has_least=False)
    begin = time.monotonic()
    found = suppress_overlaps.evaluate(attrs, [corners, scores, np.asarray(iou), np.asarray(iou)])
    assert time.monotonic() - begin < 20  # one by one, four million pairs take a minute and more
    np.testing.assert_array_equal(found.ravel(), np.arange(3000)[::-1])


@pytest.mark.parametrize("name", ["an axis of -2^63", "an axis of 2^62", "a flattened axis beyond the last"])
def test_axes_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(ArmillaryError, match="axis"):
        from_onnx(MODELS[name]())


if __name__ == "__main__":
    main(sys.argv[1])
