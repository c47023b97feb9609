"""What an OpenCL device refuses, in words: memory, work-groups, programs that its compiler does not take."""

from __future__ import annotations

import re
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
    at = re.search(rb"__kernel __attribute__", data)
    assert at is not None
    (tmp_path / "bad.so").write_bytes(
        data[: at.start()] + b"__kernal" + data[at.start() + 8 : -48]
    )  # without checksums
    loaded = armillary.runtime.load_module(tmp_path / "bad.so")
    with pytest.raises(ArmillaryError, match=r"does not build the kernels(.|\n)*__kernal"):
        loaded["default"](armillary.opencl())
