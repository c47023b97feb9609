"""A device with what is compiled for it and where on it: `target.VirtualDevice(device, target, scope)`.

In: a device, a target, a memory scope. Out: a value of them. Invariant: no part is looked up from another.
"""

from __future__ import annotations

from armillary.base.record import record
from armillary.target.target import Target


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
