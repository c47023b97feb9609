"""Devices: where tensors live and kernels run.

In: a kind and a number. Out: `Device`, with DLPack's type codes.
Invariant: a Device of a known kind can always be made; using one that this process cannot reach is a TargetError.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from armillary.base.device_types import CODES, NAMES
from armillary.base.record import record
from armillary.errors import TargetError
from armillary.runtime.native_library import CDevice, ErrorText, native

EXT_DEV = CODES["ext_dev"]


@record(slots=True)
class Device:
    """A device by DLPack type code and number; the codes have the names of DLPack."""

    kDLCPU: ClassVar[int] = 1  # noqa: N815
    kDLCUDA: ClassVar[int] = 2  # noqa: N815
    kDLCUDAHost: ClassVar[int] = 3  # noqa: N815
    kDLOpenCL: ClassVar[int] = 4  # noqa: N815
    kDLVulkan: ClassVar[int] = 7  # noqa: N815
    kDLMetal: ClassVar[int] = 8  # noqa: N815
    kDLVPI: ClassVar[int] = 9  # noqa: N815
    kDLROCM: ClassVar[int] = 10  # noqa: N815
    kDLExtDev: ClassVar[int] = 12  # noqa: N815
    kDLWebGPU: ClassVar[int] = 15  # noqa: N815
    kDLHexagon: ClassVar[int] = 16  # noqa: N815
    device_type: int
    device_id: int = 0

    def __post_init__(self) -> None:
        for what, value in (("kind", self.device_type), ("number", self.device_id)):
            if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
                object.__setattr__(self, f"device_{'type' if what == 'kind' else 'id'}", _number(what, value))

    @property
    def kind(self) -> str:
        """Short name of the kind of device, such as "cpu"."""
        return NAMES.get(self.device_type, f"type{self.device_type}")

    @property
    def available_global_memory(self) -> int | None:
        """Free memory in bytes, where the driver would tell it: none of those here does."""
        return None

    @property
    def compute_version(self) -> str | None:
        """The version of a GPU that CUDA programs; there is none."""
        return None

    @property
    def exist(self) -> bool:
        """Whether this process can use the device."""
        return not self.objection()

    def objection(self) -> str:
        """Why this process cannot use the device; "" where it can."""
        if self.device_type == 1 and self.device_id == 0:
            return ""
        error = ErrorText()
        status = native().arm_device_open(self.native, *error.args)
        return error.text() if status else ""

    @property
    def native(self) -> CDevice:
        """The device as DLPack writes it."""
        return CDevice(self.device_type, self.device_id)

    def facts(self) -> dict[str, str]:
        """What the driver tells: name, driver, version, units, memory…; nothing of the CPU."""
        if self.device_type == 1:
            return {}
        text, error = ctypes.create_string_buffer(2048), ErrorText()
        status = native().arm_device_describe(self.native, ctypes.addressof(text), len(text), *error.args)
        error.check(status, TargetError)
        rows = (line.split("\t", 1) for line in text.value.decode("utf-8", "replace").splitlines())
        return {row[0]: row[-1] for row in rows}

    def sync(self) -> None:
        """Wait until the device has finished (the CPU always has)."""
        if require(self).device_type != 1:
            error = ErrorText()
            error.check(native().arm_device_synchronize(self.native, *error.args))

    def kernel_seconds(self, run: Callable[[], object]) -> float | None:
        """Seconds that the kernels launched by `run` take by the device's own clock; None where it has none (the CPU).

        Each kernel runs alone meanwhile, and is waited for. ExecutionError where one fails.
        """
        error, seconds, library = ErrorText(), ctypes.c_double(), native()
        if library.arm_device_time(self.native, 1, ctypes.byref(seconds), *error.args) != 0:
            return None
        try:
            run()
        finally:
            status = library.arm_device_time(self.native, 0, ctypes.byref(seconds), *error.args)
        error.check(status)
        return seconds.value

    def __str__(self) -> str:
        return f"{self.kind}({self.device_id})"

    __repr__ = __str__


class ElsewhereDevice(Device):
    """A device of another machine: it makes its tensors itself (`armillary.rpc.remote`)."""

    __slots__ = ()

    def empty_elsewhere(self, shape: tuple[int, ...], dtype: str) -> Any:  # Any: stands for an NDArray
        """An uninitialised tensor there."""
        raise TargetError(f"device {self} makes no tensors")


def _number(what: str, value: object) -> int:
    try:
        result = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TargetError(f"a device's {what} is {value!r}, wanted a whole number", hint="armillary.cpu(0)") from None
    if not -(1 << 31) <= result < 1 << 31:
        raise TargetError(f"a device's {what} is {result}, which 32 bits do not hold", hint="armillary.cpu(0)")
    return result


def require(device: Device) -> Device:
    """Return the device, or raise a TargetError if it cannot be used."""
    if not isinstance(device, Device):
        raise TargetError(f"{device!r} is no device", hint="use armillary.cpu()")
    if isinstance(device, ElsewhereDevice):
        raise TargetError(f"{device} is a device of another machine", hint="load the module there: remote.load_module")
    objection = device.objection()
    if objection:
        hint = "armillary.cpu() is always there; an OpenCL device needs its driver and a loader (libOpenCL.so)"
        raise TargetError(f"device {device} is not available: {objection}", hint=hint)
    return device


def device(
    kind: str | int = "cpu", index: int = 0, *, dev_type: str | int | None = None, dev_id: int | None = None
) -> Device:
    """The device of a kind such as "cpu", "cl" or "cl:1"; of a target string such as "llvm -mcpu=…" the first word.

    `dev_type` and `dev_id` are the Relay-era names of both; a type code of DLPack may stand for a kind.
    """
    kind, index = kind if dev_type is None else dev_type, index if dev_id is None else dev_id
    index = _number("number", index)
    if isinstance(kind, int):
        return Device(kind, index)
    words = str(kind).split()
    head, colon, number = words[0].partition(":") if words else ("", "", "")
    index = int(number) if number.isdecimal() else index
    code = CODES.get(head) if not colon or number.isdecimal() else None
    if code is None:
        raise TargetError(f"unknown device kind {kind!r}", hint=f"known are {', '.join(CODES)}")
    return Device(code, index)


def cpu(index: int = 0) -> Device:
    """The host CPU."""
    return Device(1, index)


def cl(index: int = 0) -> Device:
    """An OpenCL device."""
    return Device(4, index)


def cuda(index: int = 0) -> Device:
    """A CUDA device: it can be named; using it says that there is no code for it (OpenCL runs on the same hardware)."""
    return Device(2, index)


def vulkan(index: int = 0) -> Device:
    """A Vulkan device: named as `cuda` is."""
    return Device(7, index)


def metal(index: int = 0) -> Device:
    """A Metal device: named as `cuda` is."""
    return Device(8, index)


def rocm(index: int = 0) -> Device:
    """A ROCm device: named as `cuda` is."""
    return Device(10, index)


def ext_dev(index: int = 0) -> Device:
    """A device of a user's own kind: named as `cuda` is."""
    return Device(EXT_DEV, index)


def computing(devices: Sequence[Device]) -> list[Device]:
    """The devices with memory of their own, each there; kernels of ext_dev are called by the host, if it is named."""
    return [require(d) for d in devices if getattr(d, "device_type", 0) != EXT_DEV or len(devices) == 1]


opencl = cl
