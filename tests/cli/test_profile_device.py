"""armc profile of a network for an OpenCL device: times by the device's clock, memory and layout of each tensor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from opencl_device import needs_opencl

from armillary.cli.main import main
from armillary.driver.devices import device_roof
from armillary.driver.devices.device_roof import SMALL, DeviceRoof, measured_device_roof
from armillary.runtime import Device, opencl

MODEL = """
def @main(%x: Tensor[(1, 16, 20, 20), float32]) {
  %0 = full(0.5f, shape=[32, 16, 3, 3]);
  %1 = nn.conv2d(%x, %0, padding=[1, 1], channels=32, kernel_size=[3, 3]);
  %2 = nn.relu(%1);
  %3 = nn.max_pool2d(%2, pool_size=[2, 2], strides=[2, 2]);
  nn.relu(%3)
}
"""


@pytest.fixture(scope="module")
def folder_of_roofs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not the one whose roof people see: here a small array is enough."""
    return tmp_path_factory.mktemp("roofs")


@pytest.fixture(autouse=True)
def _measures_little(folder_of_roofs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMILLARY_CACHE_DIR", str(folder_of_roofs))
    monkeypatch.setattr(device_roof, "LARGE", 1 << 22)


@needs_opencl
@pytest.mark.parametrize("target", ["opencl", "opencl -device=adreno"])
def test_kernels_of_a_device_are_timed_and_their_tensors_told(
    tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model, package, figures = tmp_path / "m.relay", tmp_path / "m.tar", tmp_path / "p.json"
    model.write_text(MODEL)
    assert main(["compile", str(model), "-o", str(package), "--target", target]) == 0
    assert main(["profile", str(package), "--runs", "2", "--json", str(figures)]) == 0
    message = json.loads(figures.read_text())
    (conv,) = [k for k in message["kernels"] if "conv2d" in k["function"]]
    assert conv["flops"] >= 2 * 32 * 16 * 9 * 20 * 20 and conv["ms"] > 0 and conv["gflops"] > 0
    assert message["total"]["in_kernels_ms"] > 0 and sum(k["share"] for k in message["kernels"]) == pytest.approx(1)
    texts = [t for k in message["kernels"] for t in k["tensors"]]
    if "adreno" in target:
        assert "texture 1x8x20x20x4 NCHW4c" in texts and "texture-weight 8x4x3x3x4x4 OIHW4i4o" in texts
    assert "buffer 1x16x20x20" in texts
    shown = capsys.readouterr().out
    assert "GFLOP/s" in shown and "tensors" in shown and "driver" in shown
    assert "% roof" in shown and "GFLOP/s (float32), reads memory" in shown
    roof = message["roof"]
    assert roof["gflops"] > 0 and roof["memory"] > 0 and roof["cache"] > 0 and message["total"]["percent_of_roof"] > 0
    place = "cache" if conv["bytes"] <= 1 << 20 else "memory"
    traffic = conv["bytes"] / roof[place]
    if "adreno" in target:
        assert roof["texture_cache"] > 0 and "; textures " in shown
        images = 4 * (16 * 20 * 20 + 32 * 16 * 9 + 32 * 20 * 20)  # all that the kernel reads and writes
        traffic = images / roof[f"texture_{place}"]
        assert conv["bytes"] == images
    least = max(conv["flops"] / roof["gflops"], traffic) / 1e9
    assert conv["percent_of_roof"] == pytest.approx(100 * least / (conv["ms"] / 1e3))
    assert conv["bound"] in ("arithmetic", place, f"texture {place}")


@needs_opencl
def test_the_page_of_a_device_has_roof_scope_and_layout(tmp_path: Path) -> None:
    model, page = tmp_path / "m.relay", tmp_path / "p.html"
    model.write_text(MODEL)
    options = ["--target", "opencl -device=adreno", "--runs", "1", "--html", str(page)]
    assert main(["profile", str(model), *options]) == 0
    text = page.read_text("utf-8")
    assert text.count("<tr>") == 1 + text.count('class="name"') > 3 and "% roof" in text
    assert "texture 1x8x20x20x4 NCHW4c" in text and "buffer 1x16x20x20" in text and "of the roof" in text


@needs_opencl
def test_a_devices_roof_is_kept_and_damaged_ones_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARMILLARY_CACHE_DIR", str(tmp_path))
    made: list[DeviceRoof] = []

    def measure(_device: Device, name: str, units: int, memory: int) -> DeviceRoof:
        assert units >= 1 and memory > 0
        made.append(DeviceRoof(name, 100.0 + len(made), 10.0, 40.0))
        return made[-1]

    monkeypatch.setattr(device_roof, "measure", measure)
    device = opencl()
    assert measured_device_roof(device) == measured_device_roof(device) == made[0]
    assert measured_device_roof(device, again=True) == made[1] and len(made) == 2
    (file,) = (tmp_path / "roof").iterdir()
    file.write_text('{"device": 1}')
    assert measured_device_roof(device) == made[2]


def test_small_tensors_are_read_from_caches() -> None:
    roof = DeviceRoof("a device", 1000.0, 10.0, 100.0)
    assert roof.seconds(0, SMALL) == (SMALL / 1e11, "cache")
    assert roof.seconds(0, SMALL + 1) == ((SMALL + 1) / 1e10, "memory")
    assert roof.seconds(1e12, SMALL) == (1.0, "arithmetic")
    assert roof.seconds(0, SMALL, SMALL) == (SMALL / 1e11, "cache")  # textures were not measured


def test_bytes_in_textures_and_in_buffers_have_rates_of_their_own() -> None:
    roof = DeviceRoof("a device", 1000.0, 10.0, 100.0, texture_memory=20.0, texture_cache=400.0)
    seconds, bound = roof.seconds(0, 1000, 800)
    assert seconds == pytest.approx(800 / 4e11 + 200 / 1e11) and bound == "cache"
    assert roof.seconds(0, 1000, 1000) == (pytest.approx(1000 / 4e11), "texture cache")
    assert roof.seconds(0, 4 * SMALL, 4 * SMALL) == (pytest.approx(4 * SMALL / 2e10), "texture memory")


@needs_opencl
def test_textures_are_measured_when_a_network_has_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMILLARY_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(
        device_roof, "measure", lambda _device, name, _units, _memory: DeviceRoof(name, 100.0, 10.0, 40.0)
    )
    device = opencl()
    assert measured_device_roof(device).texture_cache == 0.0
    found = measured_device_roof(device, textures=True)
    assert found.gflops == 100.0 and 1e-3 < found.texture_memory < 1e5 and 1e-3 < found.texture_cache < 1e5
    assert measured_device_roof(device) == measured_device_roof(device, textures=True) == found  # kept
