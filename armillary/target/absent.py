"""Kinds of targets that scripts name and nothing here builds for: a script gets as far as it does not need code.

In: a kind's name. Out: its record, with the facts that scripts read: device type, keys, limits. Invariant: they are not
among `KINDS`; a build for one is refused, and the refusal says what there is instead.
"""

from __future__ import annotations

from armillary.target.kind import TargetKind

_GPU = {
    "arch": str,
    "l2_cache_size_bytes": int,
    "max_num_threads": int,
    "max_shared_memory_per_block": int,
    "max_threads_per_block": int,
    "mcpu": str,
    "mtriple": str,
    "registers_per_block": int,
    "system-lib": bool,
    "thread_warp_size": int,
    "mattr": tuple,
}
_VULKAN: dict[str, type] = {
    "device_name": str,
    "device_type": str,
    "driver_name": str,
    "driver_version": int,
    "max_push_constants_size": int,
    "max_spirv_version": int,
    "max_storage_buffer_range": int,
    "vulkan_api_version": int,
    **{
        f"supports_{what}": bool
        for what in (
            *("float16", "float32", "float64", "int8", "int16", "int32", "int64"),
            *("8bit_buffer", "16bit_buffer", "storage_buffer_storage_class", "push_descriptor", "dedicated_allocation"),
            *("integer_dot_product", "cooperative_matrix"),
        )
    },
}
_ROWS: tuple[tuple[str, int, tuple[str, ...], dict[str, int | str]], ...] = (
    ("cuda", 2, ("cuda", "gpu"), {"arch": "sm_50", "max_num_threads": 1024, "thread_warp_size": 32}),
    ("ext_dev", 12, ("ext_dev",), {}),
    ("hexagon", 16, ("hexagon", "cpu"), {}),
    ("metal", 8, ("metal", "gpu"), {"max_num_threads": 256, "thread_warp_size": 16}),
    ("nvptx", 2, ("cuda", "gpu"), {"max_num_threads": 1024, "thread_warp_size": 32}),
    ("rocm", 10, ("rocm", "gpu"), {"max_num_threads": 256, "thread_warp_size": 64}),
    ("vulkan", 7, ("vulkan", "gpu"), {"max_num_threads": 256, "thread_warp_size": 1}),
    ("webgpu", 15, ("webgpu", "gpu"), {"max_num_threads": 256}),
)

ABSENT: dict[str, TargetKind] = {
    name: TargetKind(
        name=name,
        device_type=number,
        codegen="",
        family="cpu" if name == "ext_dev" else name,  # whose code a script makes: functions that the host calls
        default_keys=keys,
        attributes=attributes,
        defaults=facts,
    )
    for name, number, keys, facts in _ROWS
    for attributes in ({**_GPU, **_VULKAN} if name == "vulkan" else _GPU,)
}
