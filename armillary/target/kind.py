"""What a target kind is: the facts its manifest states, as one frozen value.

In: a manifest `kinds/<name>.py` that calls `TargetKind(...)` and binds it to `KIND`. Out: the record, found by name in
`kinds.KINDS`. Invariant: a manifest holds facts only; shared code reads them and never compares kind names.
Grammar of target strings: `grammar.py`. The value users hold: `target.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from armillary.base.record import record

Attribute = str | int | float | bool | tuple[str, ...]
COMMON: Mapping[str, type] = MappingProxyType(
    {"device": str, "from_device": int, "libs": tuple, "model": str, "tag": str}
)  # attributes every kind has, besides keys and host
UNHEEDED: Mapping[str, str] = MappingProxyType(
    {
        "num-cores": "the number of threads is chosen where the network runs: ARMILLARY_NUM_THREADS",
        "unpacked-api": "kernels take one argument, their window; executor=aot has a function of plain pointers",
        "interface-api": "kernels take one argument, their window; executor=aot has a function of plain pointers",
    }
)  # attributes that scripts state and a build warns of: name -> what holds instead


HOSTED: Mapping[str, type] = MappingProxyType(
    {
        "executor": str,
        "link-params": bool,
        "system-lib": bool,  # objects register their functions where they are linked: codegen/system_lib.py
        "runtime": str,
        "unpacked-api": bool,
        "interface-api": str,
    }
)  # of kinds whose code runs on the host, in the words of Relay-era scripts; "runtime" ("c", "cpp") is a label
HOSTED_DEFAULTS: Mapping[str, str | bool] = MappingProxyType(
    {"system-lib": False, "unpacked-api": False, "interface-api": "packed"}
)  # these state what every build does


@record(slots=True)
class TargetKind:
    """One kind of target. `attributes` maps a name to str, int, float, bool or tuple (of strings).

    Every attribute either has an effect, is a label (device, model, tag), or stands in `refused` or UNHEEDED: scripts
    may state it, and a build refuses it or warns, and says why it cannot be followed.
    """

    name: str
    device_type: int  # DLPack's number
    codegen: str  # module that emits code for it
    family: str  # which schedules hold: "cpu" or "opencl"
    default_keys: tuple[str, ...]
    attributes: Mapping[str, type] = field(default_factory=dict)
    defaults: Mapping[str, Attribute] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)  # attributes that cannot be built for: name -> why

    @property
    def schema(self) -> dict[str, type]:
        """Every attribute a target of this kind may have, with its type."""
        return {**COMMON, **self.attributes}

    def __str__(self) -> str:
        return self.name
