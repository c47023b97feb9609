"""Kinds of devices by name, and DLPack's numbers for them.

In: nothing. Out: `CODES` (every name that scripts use) and `NAMES` (the short one of each number). Invariant: the
runtime, targets and notes in programs read the numbers here.
"""

from __future__ import annotations

from armillary.base.record import record

CODES = {
    "cpu": 1,
    "llvm": 1,
    "c": 1,
    "cuda": 2,
    "cl": 4,
    "opencl": 4,
    "vulkan": 7,
    "metal": 8,
    "rocm": 10,
    "hexagon": 16,
    "sdaccel": 6,
    "aocl": 5,
    "aocl_sw_emu": 5,
    "vpi": 9,
    "ext_dev": 12,
    "webgpu": 15,
}
NAMES = {1: "cpu", 2: "cuda", 4: "cl", 7: "vulkan", 8: "metal", 10: "rocm", 16: "hexagon"}
NAMES |= {5: "aocl", 6: "sdaccel", 9: "vpi", 12: "ext_dev", 15: "webgpu"}


@record(slots=True)
class DeviceNumber:
    """A device as a program names it, which need not be there."""

    device_type: int
    device_id: int = 0
