"""Which executor and runtime a build is for: `relay.backend.Executor("graph")`, `Runtime("cpp")`.

In: the names and options of Relay-era scripts. Out: values that `relay.build` accepts. Invariant: the graph executor
and the C runtime are the only ones there are; others are refused by name when a build would need them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from armillary.base.record import record
from armillary.errors import ConfigError

_ALIGNMENTS = ("workspace-byte-alignment", "constant-byte-alignment")
_EXECUTORS = {"graph": ("link-params",), "aot": ("interface-api", "unpacked-api", "link-params", *_ALIGNMENTS)}
_RUNTIMES = {"cpp": ("system-lib",), "crt": ("system-lib",)}


@record(slots=True)
class Executor:
    """What runs the graph: "graph" (of parts that are named, "aot" is known and refused by a build)."""

    name: str
    options: Mapping[str, Any] | None = None  # Any: numbers, strings and bools

    def __post_init__(self) -> None:
        _check("executor", _EXECUTORS, self.name, self.options)

    def __getitem__(self, key: str) -> Any:  # Any: as in options
        return (self.options or {})[key]


@record(slots=True)
class Runtime:
    """What the kernels run in: "cpp" or "crt", which are both our C runtime."""

    name: str
    options: Mapping[str, Any] | None = None  # Any: as above

    def __post_init__(self) -> None:
        _check("runtime", _RUNTIMES, self.name, self.options)

    def __getitem__(self, key: str) -> Any:  # Any: as in options
        return (self.options or {})[key]


def _check(kind: str, known: Mapping[str, tuple[str, ...]], name: str, options: Mapping[str, Any] | None) -> None:
    if name not in known:
        raise ConfigError(f"there is no {kind} {name!r}", hint=f"known: {', '.join(known)}")
    unknown = sorted(set(options or {}) - set(known[name]))
    if unknown:
        raise ConfigError(f"the {kind} {name!r} has no option {unknown[0]!r}", hint=f"it has: {', '.join(known[name])}")
