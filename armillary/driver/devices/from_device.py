"""`-from_device=0`: a target's limits, as the device of that number on this machine reports them.

In: a target, such as "opencl -from_device=0". Out: the same target with the limits that it does not state. Invariant: a
limit that the target states is kept; a device that is not there is an error. A CPU's facts are read without being asked
(a target without -mtriple and -mcpu is this machine), so nothing is added for one.
"""

from __future__ import annotations

from armillary import runtime
from armillary.codegen.toolchain import is_cross
from armillary.errors import TargetError
from armillary.target import Target
from armillary.target.target import host_target

_LIMITS = {  # attribute -> what the driver calls it, see Device.facts
    "max_threads_per_block": ("items",),
    "max_num_threads": ("items",),
    "max_shared_memory_per_block": ("local",),
    "texture_spatial_limit": ("widest", "highest"),
}


def with_device_facts(target: Target) -> Target:
    """The target, its limits filled in where it asks for them. TargetError where there is no such device here."""
    if "from_device" not in target.attrs:
        return target
    number = int(target.attrs["from_device"])  # type: ignore[arg-type]  # the grammar made sure of it
    if is_cross(host_target(target)):
        message = f"target {target}: -from_device reads a device of this machine, the code is for another"
        raise TargetError(message, hint="state the limits as attributes, such as -max_threads_per_block=256")
    device = runtime.Device(target.kind.device_type, number)
    objection = device.objection()
    if objection:
        message = f"target {target}: device {device} is not available: {objection}"
        raise TargetError(message, hint="leave -from_device out, or state the limits as attributes")
    facts, stated = device.facts(), dict(target.attrs)
    del stated["from_device"]
    read = {
        name: min(int(facts[row]) for row in rows)
        for name, rows in _LIMITS.items()
        if name in target.kind.attributes and all(int(facts.get(row, 0)) > 0 for row in rows)
    }
    explicit = {name: value for name, value in stated.items() if value != target.kind.defaults.get(name)}
    fields = {"kind": target.kind.name, "keys": target.keys, **read, **explicit}
    return Target(fields, host=target.host) if target.host is not None else Target(fields)
