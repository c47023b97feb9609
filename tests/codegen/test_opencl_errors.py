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
from armillary.base.c_compiler import find_compiler
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


VANISHED = """
import ctypes
import numpy as np
import armillary
from armillary import relay, te
from armillary.errors import ArmillaryError

def built(target, name, body):
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: body(a[i]), name="b")
    schedule = te.create_schedule(b.op)
    if target == "opencl":
        schedule[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    return armillary.build(schedule, [a, b], target, name=name)

device = armillary.opencl()
library, other = built("opencl", "doubled", lambda v: v + v), built("opencl", "halved", lambda v: v * 0.5)
x, y = armillary.nd.array(np.ones(4, "float32"), device), armillary.nd.empty((4,), "float32", device)
library(x, y)
print(y.numpy())
library(x, y)
opencl = ctypes.CDLL("libOpenCL.so.1")
queued = (y.numpy, device.sync, lambda: library(x, y), lambda: x.copyfrom(np.zeros(4, "float32")), lambda: x.copyto(y))
made = (lambda: library(x, y), lambda: other(x, y), lambda: armillary.nd.empty((4,), "float32", device))
for how_much, attempts in ((1, queued), (2, made)):  # behind a launch that nobody waited for
    opencl.vanish(how_much)
    for attempt in attempts:
        try:
            print("no error:", attempt())
        except ArmillaryError as error:
            print(str(error).splitlines()[0])
del x, y, library, other
x, y = armillary.nd.array(np.ones(4, "float32")), armillary.nd.empty((4,), "float32")
built("llvm", "tripled", lambda v: v * 3.0)(x, y)
print(y.numpy())
"""


@pytest.fixture
def vanishing(tmp_path: Path) -> dict[str, str]:
    """An environment in which the OpenCL library is the system's, with a device that can be taken away."""
    maps = Path("/proc/self/maps").read_text()
    genuine = next(line.split(maxsplit=5)[5] for line in maps.splitlines() if "libOpenCL.so" in line)
    compiler, link = [*(find_compiler() or ["cc"]), "-shared", "-fPIC"], tmp_path / "libgenuine_opencl.so"
    (tmp_path / "empty.c").write_text("int unused_here;\n")
    subprocess.run([*compiler, f"-Wl,-soname,{link.name}", "empty.c", "-o", link], cwd=tmp_path, check=True)
    source, output = Path(__file__).with_name("vanishing_opencl.c"), tmp_path / "libOpenCL.so.1"
    flags = ("-O1", "-Wall", "-Wextra", "-Wl,--no-as-needed", "-ldl")
    subprocess.run([*compiler, str(source), *flags, str(link), "-o", str(output)], check=True)
    link.unlink()
    link.symlink_to(genuine)
    return {**os.environ, "LD_LIBRARY_PATH": f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}"}


@needs_opencl
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="puts another library in the loader's way")
def test_a_device_that_vanishes_is_told_by_whatever_is_asked_of_it(vanishing: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", VANISHED], capture_output=True, text=True, timeout=280, env=vanishing, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, *message, last = done.stdout.splitlines()
    assert (first, last) == ("[2. 2. 2. 2.]", "[3. 3. 3. 3.]")
    reason = "the device is not available: it was reset, or has gone"
    assert len(message) == 8 and all(reason in line for line in message), message
    words = ("behind kernel doubled_kernel0", "waiting for", "doubled_kernel0", "copying to", "copying inside")
    words = (*words, "making kernel doubled_kernel0", "making a program", "no buffer of 16 bytes")
    assert all(word in line for word, line in zip(words, message, strict=True)), message


NO_IMAGES = """
import numpy as np
import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.errors import ArmillaryError
from armillary.transform import PassContext

x, w = relay.var("x", shape=(1, 4, 2, 2)), relay.const(np.ones((4, 4, 1, 1), "float32"))
y = relay.nn.conv2d(relay.nn.conv2d(x, w, channels=4, kernel_size=(1, 1)), w, channels=4, kernel_size=(1, 1))
module = armillary.IRModule.from_expr(relay.Function([x], y))
with PassContext(opt_level=3):
    library = relay.build(module, "opencl -device=adreno")
try:
    graph_executor.GraphModule(library["default"](armillary.opencl()))
except ArmillaryError as error:
    print(error.message)
print(armillary.nd.array(np.ones(4, "float32"), armillary.opencl()).numpy().sum())
"""


@needs_opencl
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="puts another library in the loader's way")
def test_a_device_without_images_is_told_and_goes_on(vanishing: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_IMAGES],
        capture_output=True,
        text=True,
        timeout=280,
        env={**vanishing, "NO_IMAGES": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    message, number = done.stdout.splitlines()
    name = armillary.opencl().facts()["name"]
    assert re.fullmatch(
        rf"OpenCL: .*{re.escape(name)} has no(ne| images); compile for \"opencl\", without .*", message
    ), message
    assert number == "4.0"
