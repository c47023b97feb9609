"""What the text's build options debug, asserts and logging switch, each in a process of its own; scratch of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from armillary.compute import (
    CPUInfo,
    Distribution1D,
    Format,
    Image,
    NEHistogram,
    NEHistogramKernel,
    TensorInfo,
    ThreadInfo,
    Window,
)
from armillary.errors import ExecutionError, TypeMismatch

PROGRAM = """
from armillary.compute import *
from armillary.compute.core.compiled import FormulaKernel
src, dst = Image(), Image()
for image in (src, dst):
    image.allocator().init(TensorInfo(40, 30, Format.U8))
f = NEGaussian3x3()
f.configure(src, dst, BorderMode.UNDEFINED)
for image in (src, dst):
    image.allocator().allocate()
f.run()
Scheduler.set(Scheduler.Type.ST)
(kernel,) = f.kernels()
src.info().padding = PaddingSize()  # whatever lies there is said not to be the tensor's
kernel.configure_window(Window(Dimension(0, 48, 16), Dimension(0, 30)))
try:
    kernel.run(kernel.window())
    print("ran")
except Exception as error:
    print(error)
"""


@pytest.mark.parametrize("switch", ["", "LOGGING", "ASSERTS", "DEBUG"])
def test_switches(switch: str) -> None:
    variables = {f"ARMILLARY_COMPUTE_{switch}": "1"} if switch else {}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **variables})
    logs, checks = switch in ("LOGGING", "DEBUG"), switch in ("ASSERTS", "DEBUG")
    assert ("NEGaussian3x3.configure(40x30 U8, 40x30 U8, BorderMode.UNDEFINED, 0)" in done.stderr) == logs
    assert done.stdout.strip() == (
        "the compiled kernel gaussian3x3 failed: in0: index out of bounds" if checks else "ran"
    )


def test_histogram_kernels_count_in_memory_of_threads() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (31, 57)).astype(np.uint8)
    image = Image()
    image.allocator().init(TensorInfo(57, 31, Format.U8))
    kernel, whole, threads = NEHistogramKernel(), NEHistogram(), 3
    counts, wanted = Distribution1D(10, 20, 200), Distribution1D(10, 20, 200)
    scratch = np.empty(kernel.memory_needed_per_thread() * threads, np.uint8)
    kernel.configure(image, counts, scratch, np.empty(256, np.uint32))
    whole.configure(image, wanted)
    image.allocator().allocate()
    image.write(pixels)
    for thread in range(threads):
        part = kernel.window().split_window(Window.DimY, thread, threads)
        kernel.run(part, ThreadInfo(thread, threads, CPUInfo()))
    whole.run()
    assert (counts.buffer() == wanted.buffer()).all() and counts.buffer().sum() > 1000
    with pytest.raises(ExecutionError, match="thread 3, but local_hist is for 3 threads"):
        kernel.run(kernel.window(), ThreadInfo(3, 4, CPUInfo()))
    with pytest.raises(TypeMismatch, match="wanted 4096 for each thread"):
        kernel.configure(image, counts, scratch[:100], np.empty(256, np.uint32))


FRESH = """
import sys
import numpy as np
from pathlib import Path
from armillary.compute import BorderMode, Format, Image, NEGaussian3x3, TensorInfo
from armillary.compute.core import shipped
shipped.FOLDER = Path("none")
src, dst, f = Image(), Image(), NEGaussian3x3()
for image in (src, dst):
    image.allocator().init(TensorInfo(40, 30, Format.U8))
f.configure(src, dst, BorderMode.REPLICATE)
for image in (src, dst):
    image.allocator().allocate()
src.write((np.arange(1200) % 251).astype(np.uint8).reshape(30, 40))
f.run()
print(int(dst.read().sum()), "armillary.driver.te_build" in sys.modules)
"""
FRESH_LAYER = """
import sys
import numpy as np
from armillary.compute import DataType, NEConvolutionLayer, PadStrideInfo, Tensor, TensorInfo, TensorShape
tensors = []
for shape in ((20, 12, 8), (3, 3, 8, 16), (16,), (20, 12, 16)):
    tensors.append(Tensor())
    tensors[-1].allocator().init(TensorInfo(TensorShape(*shape), 1, DataType.F32))
layer = NEConvolutionLayer()
layer.configure(*tensors, PadStrideInfo(1, 1, 1, 1))
rng = np.random.default_rng(3)
for tensor in tensors:
    tensor.allocator().allocate()
    tensor.array()[...] = rng.integers(-8, 9, tensor.array().shape)
tensors[1].array()[0, 0, 0, 0] += float(sys.argv[1])
layer.run()
print(float(tensors[3].array().astype(np.float64).sum()), "armillary.driver.build" in sys.modules)
"""


@pytest.mark.parametrize("program", [FRESH, FRESH_LAYER], ids=["loops", "layer"])
def test_a_fresh_process_finds_what_was_compiled_before(program: str, tmp_path: Path) -> None:
    """The second one neither optimises, lowers nor compiles; a damaged entry is compiled anew, as other weights are."""
    environment, printed = {**os.environ, "ARMILLARY_CACHE_DIR": str(tmp_path)}, []
    for turn, more in enumerate(("0", "0", "0", "1")):
        command = [sys.executable, "-c", program, more]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        printed.append(done.stdout.split())
        if turn == 1:
            for file in (file for file in (tmp_path / "kernels").rglob("*") if file.is_file()):
                file.write_bytes(file.read_bytes()[:-7] + b"damaged")
    is_layer = program is FRESH_LAYER
    assert [word for _, word in printed] == ["True", "False", "True", str(is_layer)]
    assert len({value for value, _ in printed[:3]}) == 1
    assert (printed[3][0] != printed[0][0]) == is_layer
