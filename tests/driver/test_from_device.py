"""`-from_device=0` reads a device's limits into the target of a build."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te
from armillary.driver.devices.from_device import with_device_facts
from armillary.errors import TargetError
from armillary.target import Target


def test_a_cpu_of_this_machine_is_read_without_being_asked() -> None:
    assert str(with_device_facts(Target("llvm -from_device=0"))) == str(Target("llvm"))


def test_a_device_that_is_not_there_and_a_foreign_machine_are_refused() -> None:
    with pytest.raises(TargetError, match=r"device cl\(99\) is not available"):
        with_device_facts(Target("opencl -from_device=99", host="llvm"))
    with pytest.raises(TargetError, match="reads a device of this machine"):
        with_device_facts(Target("opencl -from_device=0", host="llvm -mtriple=riscv64-linux-gnu"))


def test_limits_of_a_gpu_are_the_drivers_where_the_target_says_nothing() -> None:
    if not armillary.cl(0).exist:
        pytest.skip("no OpenCL device")
    facts = armillary.cl(0).facts()
    target = with_device_facts(Target("opencl -from_device=0 -max_num_threads=32", host="llvm"))
    assert target.attrs["max_threads_per_block"] == int(facts["items"]) and target.attrs["max_num_threads"] == 32
    assert target.attrs["max_shared_memory_per_block"] == int(facts["local"])
    assert target.host is not None and "from_device" not in target.attrs
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] + 1, name="b")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], 32)
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    s[b].bind(inner, te.thread_axis("threadIdx.x"))
    function = armillary.build(s, [a, b], "opencl -from_device=0")
    x, y = (armillary.nd.array(np.zeros(64, "float32"), armillary.cl(0)) for _ in range(2))
    function(x, y)
    np.testing.assert_array_equal(y.numpy(), np.ones(64, "float32"))
