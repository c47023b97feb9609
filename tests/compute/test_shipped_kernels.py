"""Kernels that come with a wheel: a fresh process runs a function without compiling it, and refuses those of others.

In: a file of kernels written for this machine's level. Out: the same pixels as compiled ones, no compiler loaded.
Invariant: a file that another compiler wrote, or another level, is not used.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from armillary.compute.ahead.pack import write_level
from armillary.compute.core.shipped import LEVELS, level

RUN = """
import sys
from pathlib import Path
import numpy as np
from armillary.compute import DataType, NEGEMM, Tensor, TensorInfo, TensorShape
from armillary.compute import BorderMode, Format, Image, NEGaussian3x3
from armillary.compute.core import shipped
shipped.FOLDER = Path(sys.argv[1])
src, dst, f = Image(), Image(), NEGaussian3x3()
for image in (src, dst):
    image.allocator().init(TensorInfo(40, 30, Format.U8))
f.configure(src, dst, BorderMode.REPLICATE)
for image in (src, dst):
    image.allocator().allocate()
src.write((np.arange(1200) % 251).astype(np.uint8).reshape(30, 40))
f.run()
a, b, out, product = Tensor(), Tensor(), Tensor(), NEGEMM(stages=True)
for tensor, shape in ((a, (8, 6)), (b, (20, 8)), (out, (20, 6))):
    tensor.allocator().init(TensorInfo(TensorShape(*shape), 1, DataType.F32))
product.configure(a, b, None, out, 1.0, 0.0)
for tensor in (a, b, out):
    tensor.allocator().allocate()
    tensor.array()[...] = np.arange(tensor.array().size).reshape(tensor.array().shape) % 13
product.run()
assert (out.array() == a.array() @ b.array()).all()
print(int(dst.read().astype(int).sum()), "armillary.driver.te_build" in sys.modules)
"""


def run_in_fresh_process(folder: Path) -> list[str]:
    command = [sys.executable, "-c", RUN, str(folder)]
    environment = {**os.environ, "ARMILLARY_CACHE": "0"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()


@pytest.mark.skipif(not level(), reason="this processor has no level that kernels come for")
def test_a_first_run_compiles_nothing_and_kernels_of_another_compiler_are_not_used(tmp_path: Path) -> None:
    pack = write_level(tmp_path, level(), ["NEGaussian3x3", "NEGEMM"])
    shipped = run_in_fresh_process(tmp_path)
    head, gap, data = pack.read_bytes().partition(b"\n")
    pack.write_bytes(json.dumps({**json.loads(head), "compiler": "another"}).encode() + gap + data)
    compiled = run_in_fresh_process(tmp_path)
    assert shipped == [compiled[0], "False"] and compiled[1] == "True"


def test_kernels_for_every_level_compile(tmp_path: Path) -> None:
    sizes = {name: write_level(tmp_path, name, ["NEErode"]).stat().st_size for name in LEVELS}
    assert all(1000 < size < 20_000 for size in sizes.values()), sizes
