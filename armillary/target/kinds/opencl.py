"""GPUs through OpenCL C.

In: nothing. Out: `KIND`, facts only; the limits are the attributes of the same names, with the defaults below.
Invariant: a limit that a device reports larger may be raised with the attribute, never silently. Who writes the source:
codegen/opencl.
"""

from __future__ import annotations

from armillary.target.kind import TargetKind

_LIMITS = {
    "max_threads_per_block": 256,
    "max_shared_memory_per_block": 16384,
    "max_num_threads": 256,
    "thread_warp_size": 1,
    "texture_spatial_limit": 16384,
    "max_function_args": 128,
}
KIND = TargetKind(
    name="opencl",
    device_type=4,
    codegen="armillary.codegen.opencl",
    family="opencl",
    default_keys=("opencl", "gpu"),
    attributes=dict.fromkeys(_LIMITS, int),
    defaults=_LIMITS,
    limits=_LIMITS,
)
