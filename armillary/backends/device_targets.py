"""The targets of a graph over several devices.

In: nothing. Out: `DeviceTargets`, and the attribute by which a kernel says where it runs. Invariant: a device has one
target. Who makes them and marks kernels: relay/transform/over_devices.py.
"""

from __future__ import annotations

from armillary.base.record import record
from armillary.target import Target

DEVICE = "device_type"  # the attribute of kernels: DLPack's number; none: the main device
HOSTED = "hosted_device_type"  # the same of kernels whose code a script makes: they run in the memory of the host


@record
class DeviceTargets:
    """The target of the main device, and those of others, by DLPack's number of the device."""

    main: Target
    others: tuple[tuple[int, Target], ...] = ()

    def target_of(self, device: int) -> Target:
        """The target of kernels with this attribute; 0 is the main device."""
        return dict(self.others).get(device, self.main)

    @property
    def all(self) -> tuple[Target, ...]:
        """Every target, the main one first."""
        return (self.main, *(target for _, target in self.others))
