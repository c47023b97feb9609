"""The record of the OpenCL back end.

In: nothing. Out: `BACKEND`. Invariant: importing it loads no schedule and no emitter. Kernels are sources, which the
driver of a device compiles when a package is loaded there (`runtime/native/arm_opencl_program.c`).
"""

from __future__ import annotations

from armillary.backends.base import Backend
from armillary.base.lazy import late

BACKEND = Backend(
    family="opencl",
    algorithms=("armillary.backends.opencl.schedules",),
    lower=late("armillary.tir.transform.split_host_device:split_host_device"),
    emit=late("armillary.codegen.opencl.build:build_kernels"),
    build=late("armillary.codegen.opencl.build:build_kernels"),
    device="opencl",
    alignment=512,  # devices take parts of memory as buffers, whose offsets are multiples of up to 4096 bits
)
