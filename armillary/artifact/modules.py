"""The tree of modules: what a build or a loaded package consists of, as Relay-era scripts look at it.

In: rows of the descriptor. Out: `OffloadedModule`s, one per offloaded function, which a library has as its
`imported_modules`. Invariant: everything is read from the descriptor, so a module that was exported and loaded tells
the same as the one that was built. Who runs them: runtime/native/arm_external.c.
"""

from __future__ import annotations

from collections.abc import Mapping

from armillary.artifact import Descriptor, FunctionRow
from armillary.base.record import record
from armillary.errors import ConfigError


@record(slots=True)
class OffloadedModule:
    """A function that a library computes: its symbol, and the source that the library makes it from."""

    symbol: str
    type_key: str
    source: str
    num_constants: int

    @property
    def imported_modules(self) -> list[OffloadedModule]:
        """Always empty: these are the leaves of the tree."""
        return []

    @property
    def format(self) -> str:
        """What the source is written in: "json" or "c"."""
        return "c" if self.type_key == "c" else "json"

    def get_source(self, fmt: str = "") -> str:
        """The source; `fmt` may name its format."""
        if fmt not in ("", self.format):
            raise ConfigError(f"{self.symbol}: the source is {self.format}, not {fmt!r}", hint="get_source() gives it")
        return self.source


@record(slots=True)
class DeviceModule:
    """The kernels of a device: their source."""

    type_key: str
    source: str

    @property
    def imported_modules(self) -> list[OffloadedModule]:
        """Always empty: these are the leaves of the tree."""
        return []

    @property
    def format(self) -> str:
        """What the source is written in."""
        return _SOURCE_FORMATS.get(self.type_key, self.type_key)

    def get_source(self, fmt: str = "") -> str:
        """The source of all kernels; `fmt` may name its format."""
        if fmt not in ("", self.format):
            message = f"{self.type_key}: the source is {self.format}, not {fmt!r}"
            raise ConfigError(message, hint="get_source() gives it")
        return self.source


_SOURCE_FORMATS = {"opencl": "cl"}
ImportedModule = OffloadedModule | DeviceModule


def imported_modules(descriptor: Descriptor) -> list[ImportedModule]:
    """The modules inside a library: kernels of devices, then what libraries compute."""
    devices = [DeviceModule(kind, source) for kind, source in descriptor.device_code.items()]
    return [*devices, *offloaded_modules(descriptor.functions)]


def offloaded_modules(functions: Mapping[str, FunctionRow]) -> list[OffloadedModule]:
    """The offloaded functions of a descriptor as modules."""
    return [
        OffloadedModule(row.name, row.external.kind, row.external.source, row.external.constants)
        for row in functions.values()
        if row.external is not None
    ]
