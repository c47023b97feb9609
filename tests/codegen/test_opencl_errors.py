"""What an OpenCL device refuses, in words: memory, work-groups, programs that its compiler does not take."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import relay, te
from armillary.errors import ArmillaryError


@needs_opencl
def test_memory_that_a_device_has_not_is_refused_with_its_size() -> None:
    with pytest.raises(ArmillaryError, match=r"no buffer of 70368744177664 bytes: "):
        armillary.nd.empty((1 << 44,), "float32", armillary.opencl())
    assert armillary.nd.array(np.ones(4, "float32"), armillary.opencl()).numpy().sum() == 4  # and goes on


@needs_opencl
def test_a_work_group_that_is_too_large_names_the_kernel_and_the_limit() -> None:
    device = armillary.opencl()
    items = 2 * int(device.facts()["items"])
    a = te.placeholder((items,), name="a")
    b = te.compute((items,), lambda i: a[i] + 1.0, name="b")
    schedule = te.create_schedule(b.op)
    schedule[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    library = armillary.build(schedule, [a, b], "opencl", name="wide")
    with pytest.raises(ArmillaryError, match=r"wide_kernel0"):
        library(armillary.nd.array(np.ones(items, "float32"), device), armillary.nd.empty((items,), "float32", device))


@needs_opencl
def test_a_program_that_does_not_build_shows_the_compiler_s_words(tmp_path: Path) -> None:
    x = relay.var("x", shape=(4,))
    library = relay.build(armillary.IRModule.from_expr(relay.Function([x], relay.exp(x))), "opencl")
    library.export_library(tmp_path / "net.so")
    data = (tmp_path / "net.so").read_bytes()
    at = re.search(rb"= exp\(", data)
    assert at is not None
    (tmp_path / "bad.so").write_bytes(data[: at.start()] + b"= exq(" + data[at.end() : -48])  # without checksums
    loaded = armillary.runtime.load_module(tmp_path / "bad.so")
    with pytest.raises(ArmillaryError, match=r"does not build kernel \w*fused_exp\w*_kernel0(.|\n)*exq"):
        loaded["default"](armillary.opencl())


LONG = """
import numpy as np
import armillary
from armillary import te
from armillary.errors import ArmillaryError

a, k = te.placeholder((1,), name="a"), te.reduce_axis((0, 1 << 27), "k")
b = te.compute((1,), lambda i: te.sum(te.sin(a[i] + k.astype("float32")), axis=k), name="b")
device, told = armillary.opencl(), []
schedule = te.create_schedule(b.op)
schedule[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
library = armillary.build(schedule, [a, b], "opencl", name="endless")
x, y = armillary.nd.array(np.ones(1, "float32"), device), armillary.nd.empty((1,), "float32", device)
for attempt in (lambda: library(x, y), y.numpy, device.sync, lambda: library(x, y)):
    try:
        attempt()
    except ArmillaryError as error:
        print(str(error))
"""


@needs_opencl
def test_a_kernel_that_does_not_end_is_named_and_the_process_goes_on() -> None:
    environment = {**os.environ, "ARMILLARY_DEVICE_TIMEOUT": "0.2"}
    done = subprocess.run(
        [sys.executable, "-c", LONG], capture_output=True, text=True, timeout=280, env=environment, check=False
    )
    lines = done.stdout.splitlines()
    assert len(lines) >= 3, done.stdout + done.stderr
    assert all("kernel endless_kernel0" in line and "did not end within 0.2 s" in line for line in lines)
