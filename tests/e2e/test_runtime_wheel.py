"""The runtime as a distribution of its own: what `tools/release.py` packs runs networks with numpy alone."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import e2e_models as models
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from release import LARGEST_RUNTIME, check_wheel, runtime_wheel  # noqa: E402  (tools/ is no package)

CHILD = """
import sys, importlib.abc
class OnlyNumpy(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("llvmlite", "onnx", "ml_dtypes", "rich", "google", "setuptools"):
            raise ImportError("a device has no " + name)
sys.meta_path[:] = [f for f in sys.meta_path if "Editable" not in getattr(f, "__name__", type(f).__name__)]
sys.meta_path.insert(0, OnlyNumpy())
sys.path.insert(0, sys.argv[1])
import numpy as np
import armillary
from armillary.contrib import graph_executor
assert armillary.__file__.startswith(sys.argv[1]), armillary.__file__
for suffix in ("tar", "so"):
    library = armillary.runtime.load_module(sys.argv[2] + "/net." + suffix)
    network = graph_executor.GraphModule(library["default"](armillary.cpu()))
    network.set_input("data", np.load(sys.argv[2] + "/in.npy"))
    network.run()
    np.save(sys.argv[2] + "/out_" + suffix + ".npy", network.get_output(0).numpy())
try:
    armillary.relay
except ModuleNotFoundError as error:
    assert "armillary.relay is not installed: this is armillary-runtime" in str(error), error
else:
    raise AssertionError("the runtime alone has a compiler")
"""


def _full_wheel(folder: Path) -> Path:
    path = folder / "armillary-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted((ROOT / "armillary").rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(ROOT))
        archive.writestr("armillary-0.1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr("armillary-0.1.0.dist-info/licenses/LICENSE", (ROOT / "LICENSE").read_text("utf-8"))
    return path


def test_a_device_needs_the_runtime_and_numpy(tmp_path: Path) -> None:
    module, params, inputs = models.workload("mlp", batch_size=3)
    library = models.compiled(module, params)
    for suffix in ("tar", "so"):
        library.export_library(tmp_path / f"net.{suffix}")
    np.save(tmp_path / "in.npy", inputs["data"])
    wheel = runtime_wheel(_full_wheel(tmp_path), tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "device")
        compiler = {"relay", "te", "tir", "codegen", "driver", "frontend", "autotvm", "cli"}
        assert not compiler & {name.split("/")[1] for name in archive.namelist() if name.startswith("armillary/")}
    assert wheel.stat().st_size < LARGEST_RUNTIME
    command = [sys.executable, "-I", "-c", CHILD, str(tmp_path / "device"), str(tmp_path)]
    subprocess.run(command, check=True, timeout=120)
    expected = models.run(library, inputs)
    for suffix in ("tar", "so"):
        np.testing.assert_array_equal(np.load(tmp_path / f"out_{suffix}.npy"), expected)


def test_a_wheel_for_a_newer_c_library_is_found(tmp_path: Path) -> None:
    path = tmp_path / "armillary_runtime-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("armillary/runtime/x.so", b"\0GLIBC_2.38\0")
    assert check_wheel(path) == ["armillary/runtime/x.so needs glibc 2.38"]
