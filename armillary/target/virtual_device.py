"""A device with what is compiled for it and where on it: `target.VirtualDevice(device, target, scope)`.

In: a device, a target, a memory scope; each may be left open. Out: a value of them, what two of them say together, and
the form in which programs are written. Invariant: no part is looked up from another.
"""

from __future__ import annotations

from armillary.base.device_types import NAMES, DeviceNumber
from armillary.base.record import record
from armillary.errors import TargetError
from armillary.target.target import Target

Place = tuple[int, str, str, str]  # the device's number, the texts of target and host, the memory scope
_NOWHERE: Place = (0, "", "", "")


@record(slots=True)
class VirtualDevice:
    """Where values of a program are and what computes there."""

    device: object = None
    target: Target | None = None
    memory_scope: str = ""

    @property
    def device_type(self) -> int:
        """The kind of device, by DLPack's code; 0 without a device."""
        return int(getattr(self.device, "device_type", 0))

    @property
    def device_type_int(self) -> int:
        """The kind of device, by DLPack's code; -1 without a device, as scripts of the Relay era read it."""
        return self.device_type if self.device is not None else -1

    @property
    def virtual_device_id(self) -> int:
        """The device's number; -1 without a device."""
        return int(getattr(self.device, "device_id", -1))

    @property
    def is_open(self) -> bool:
        """Whether nothing is said at all."""
        return self.device is None and self.target is None and not self.memory_scope

    @property
    def is_decided(self) -> bool:
        """Whether device and target are known; a memory scope may be missing."""
        return self.device is not None and self.target is not None

    @property
    def place(self) -> Place | tuple[()]:
        """All but the kind of device, as numbers and texts; () where there is no more than that kind."""
        target = self.target
        host = "" if target is None or target.host is None else str(target.host)
        result = (max(self.virtual_device_id, 0), "" if target is None else str(target), host, self.memory_scope)
        return () if result == _NOWHERE else result

    def plain(self) -> VirtualDevice:
        """The same, with the device as a program names it."""
        device = None if self.device is None else DeviceNumber(self.device_type, self.virtual_device_id)
        return VirtualDevice(device, self.target, self.memory_scope)

    def __str__(self) -> str:
        name = "any device" if self.device is None else NAMES.get(self.device_type, f"device type {self.device_type}")
        number = f"({self.virtual_device_id})" if self.virtual_device_id > 0 else ""
        return f"{name}{number}" + (f" in {self.memory_scope!r}" if self.memory_scope else "")


def at_place(device_type: int, place: tuple[object, ...] = ()) -> VirtualDevice:
    """The virtual device of a kind of device (0: none) and what `place` says of it."""
    is_whole = len(place) == 4 and isinstance(place[0], int) and all(isinstance(p, str) for p in place[1:])
    if place and not is_whole:
        hint = 'as in [0, "llvm", "", "global"]'
        raise TargetError(f"a place is a device's number, target, host and memory scope, got {place!r}", hint=hint)
    number, target, host, scope = place or _NOWHERE
    whole = Target(target, host or None) if target else None
    device = DeviceNumber(device_type, number if isinstance(number, int) else 0) if device_type else None
    return VirtualDevice(device, whole, str(scope))


def read_device(written: object) -> VirtualDevice:
    """The virtual device of what a text says of one: itself, or its kind and then what `at_place` takes."""
    if isinstance(written, VirtualDevice):
        return written
    if not isinstance(written, tuple) or not written or type(written[0]) is not int or written[0] < 0:
        hint = 'as in [1] or [1, 0, "llvm", "", "global"]'
        raise TargetError(f"expected a device, got {written!r:.60}", hint=hint)
    return at_place(written[0], written[1:])


def joined(a: VirtualDevice, b: VirtualDevice) -> VirtualDevice | None:
    """What both say together, or None where they contradict each other; both are `plain`."""
    for one, other in ((a.device, b.device), (a.target, b.target), (a.memory_scope or None, b.memory_scope or None)):
        if one is not None and other is not None and one != other:
            return None
    target = a.target if a.target is not None else b.target
    return VirtualDevice(a.device if a.device is not None else b.device, target, a.memory_scope or b.memory_scope)


def completed(place: VirtualDevice, default: VirtualDevice) -> VirtualDevice:
    """What `place` leaves open, as `default` has it; its target only if it is for the same kind of device."""
    device = place.device if place.device is not None else default.device
    target = place.target
    fits = default.target is not None and default.target.kind.device_type == getattr(device, "device_type", 0)
    if target is None and fits:
        target = default.target
    is_same = getattr(device, "device_type", 0) == default.device_type
    scope = place.memory_scope or (default.memory_scope if is_same else "")
    return VirtualDevice(device, target, scope)
