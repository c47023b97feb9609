"""The devices that a program is compiled for: `target.make_compilation_config(context, targets, host)`.

In: a pass context, a target or several of them, a host. Out: a `CompilationConfig`: the targets by the kind of their
device, which of them has what nothing else decides, and the host. Invariant: one target for a kind of device; the
default device has a target. Who reads it: relay/transform/partition/plan_devices.py.
"""

from __future__ import annotations

from armillary.base.boundary import boundary
from armillary.base.device_types import DeviceNumber
from armillary.base.record import record
from armillary.errors import TargetError
from armillary.target.target import Target
from armillary.target.virtual_device import VirtualDevice

_CPU = 1
_OPTION = "relay.fallback_device_type"


@record(slots=True)
class CompilationConfig:
    """Targets of a program's devices, the default among them, and the host."""

    primary_targets: tuple[Target, ...]
    default_primary_virtual_device: VirtualDevice
    host_virtual_device: VirtualDevice

    @property
    def host_target(self) -> Target | None:
        """What the program around the kernels is compiled for."""
        return self.host_virtual_device.target

    @property
    def optional_homogeneous_target(self) -> Target | None:
        """The target, where there is one alone."""
        return self.primary_targets[0] if len(self.primary_targets) == 1 else None

    def canonical(self, place: VirtualDevice) -> VirtualDevice:
        """The same, with the target that this configuration has for the device."""
        plain = place.plain()
        if plain.device is None or plain.target is not None:
            return plain
        return VirtualDevice(plain.device, self.target_of(plain.device_type), plain.memory_scope)

    def target_of(self, device_type: int) -> Target:
        """The target of a kind of device."""
        result = next((t for t in self.primary_targets if t.kind.device_type == device_type), None)
        if result is None:
            types = ", ".join(str(t.kind.device_type) for t in self.primary_targets)
            message = f"the program asks for device type {device_type}, targets are given for {types}"
            raise TargetError(message, hint="give a target for each device")
        return result


@boundary("target.make_compilation_config", arguments=True)
def make_compilation_config(ctxt: object, target: object, target_host: object = None) -> CompilationConfig:
    """A configuration of whatever `Target.canon_multi_target_and_host` takes; `ctxt` may name the default device."""
    targets = Target.canon_multi_target_and_host(target, target_host)
    for k, one in enumerate(targets):
        if one.kind.device_type in [t.kind.device_type for t in targets[:k]]:
            raise TargetError(f"two targets for device type {one.kind.device_type}", hint="give one for each device")
    options: object = getattr(ctxt, "config", None)
    asked = options.get(_OPTION) if isinstance(options, dict) else None
    own_host = Target(target_host) if target_host is not None else next((t.host for t in targets if t.host), None)
    host = VirtualDevice(DeviceNumber(_CPU), own_host or Target("llvm"))
    config = CompilationConfig(tuple(targets), VirtualDevice(), host)
    kinds = [t.kind.device_type for t in targets]
    kind = int(asked) if asked is not None else _CPU if _CPU in kinds else kinds[0]
    default = VirtualDevice(DeviceNumber(kind), config.target_of(kind))
    return CompilationConfig(tuple(targets), default, host)
