"""Where kernels of a graph over several devices run, and in which memory their tensors lie.

In: a primitive function. Out: `DeviceTargets`; the attributes by which a kernel says its device and the scopes of its
tensors. Invariant: a device has one target; inputs are numbered as they are flattened, outputs follow; what is not
named is in a buffer. Who marks kernels: relay/transform/over_devices.py, `opencl/graph/annotate_memory_scope.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from armillary.base.record import record
from armillary.relay.expr import Function
from armillary.target import Target
from armillary.target.texture import BUFFER

DEVICE = "device_type"  # the attribute of kernels: DLPack's number; none: the main device
HOSTED = "hosted_device_type"  # the same of kernels whose code a script makes: they run in the memory of the host
SCOPES_ATTR = "scopes"


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


def scopes_of(function: Function) -> Mapping[int, str]:
    """By the number of a tensor of a kernel, inputs first: those that are not in buffers."""
    text = str(function.get_attr(SCOPES_ATTR, "") or "")
    return {n: scope for n, scope in enumerate(text.split(", ")) if text and scope != BUFFER}
