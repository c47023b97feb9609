"""armc profile of a network for an OpenCL device: times by the device's clock, memory and layout of each tensor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from opencl_device import needs_opencl

from armillary.cli.main import main

MODEL = """
def @main(%x: Tensor[(1, 16, 20, 20), float32]) {
  %0 = full(0.5f, shape=[32, 16, 3, 3]);
  %1 = nn.conv2d(%x, %0, padding=[1, 1], channels=32, kernel_size=[3, 3]);
  %2 = nn.relu(%1);
  %3 = nn.max_pool2d(%2, pool_size=[2, 2], strides=[2, 2]);
  nn.relu(%3)
}
"""


@needs_opencl
@pytest.mark.parametrize("target", ["opencl", "opencl -device=adreno"])
def test_kernels_of_a_device_are_timed_and_their_tensors_told(
    tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model, package, figures = tmp_path / "m.relay", tmp_path / "m.tar", tmp_path / "p.json"
    model.write_text(MODEL)
    assert main(["compile", str(model), "-o", str(package), "--target", target]) == 0
    assert main(["profile", str(package), "--runs", "2", "--json", str(figures)]) == 0
    told = json.loads(figures.read_text())
    (conv,) = [k for k in told["kernels"] if "conv2d" in k["function"]]
    assert conv["flops"] >= 2 * 32 * 16 * 9 * 20 * 20 and conv["ms"] > 0 and conv["gflops"] > 0
    assert told["total"]["in_kernels_ms"] > 0 and sum(k["share"] for k in told["kernels"]) == pytest.approx(1)
    texts = [t for k in told["kernels"] for t in k["tensors"]]
    if "adreno" in target:
        assert "texture 1x8x20x20x4 NCHW4c" in texts and "texture-weight 8x4x3x3x4x4 OIHW4i4o" in texts
    assert "buffer 1x16x20x20" in texts
    shown = capsys.readouterr().out
    assert "GFLOP/s" in shown and "tensors" in shown and "driver" in shown
    assert main(["profile", str(package), "--html", str(tmp_path / "p.html")]) == 4
