"""Which executor and runtime a build is for: `relay.backend.Executor("graph")`, `Runtime("cpp")`.

In: the names and options of Relay-era scripts. Out: values that `relay.build` accepts. Invariant: the kernels are the
same for every executor and runtime; a C package has them linked in, its constants too, whatever the options say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from armillary.base.lazy import lazy_names
from armillary.base.record import record
from armillary.errors import ConfigError

__getattr__, __dir__ = lazy_names(__name__, {})  # modules and functions of old scripts
_TYPES: dict[type, str] = {bool: "runtime.BoxBool", int: "runtime.BoxInt", str: "runtime.String"}
_Options = Mapping[str, type]
_LINK: _Options = {"link-params": bool}
_AOT: _Options = {
    "interface-api": str,
    "unpacked-api": bool,
    **_LINK,
    "workspace-byte-alignment": int,
    "constant-byte-alignment": int,
}


@record(slots=True)
class _Named:
    """A name of a fixed list, and options of the types that belong to it; what is not given is None."""

    name: str
    options: Mapping[str, bool | int | str] | None = None

    _known: ClassVar[Mapping[str, _Options]] = {}

    def __post_init__(self) -> None:
        kind, known = type(self).__name__, self.list_registered_options(self.name)
        for key, value in (self.options or {}).items():
            if key not in known:
                message = f'Attribute "{key}" is not available on this {kind}'
                raise ConfigError(message, hint=f"{self.name} has: {', '.join(known)}")
            text = _TYPES.get(type(value), type(value).__name__)
            if text != known[key]:
                raise ConfigError(f'Attribute "{key}" should have type "{known[key]}" but instead found "{text}"')

    def __str__(self) -> str:
        return self.name

    def __getitem__(self, key: str) -> bool | int | str | None:
        if key not in self._known[self.name]:
            raise ConfigError(f'Attribute "{key}" is not available on this {type(self).__name__}')
        return (self.options or {}).get(key)

    def __contains__(self, key: str) -> bool:
        return key in (self.options or {})

    @classmethod
    def list_registered(cls) -> list[str]:
        """The names that are known."""
        return list(cls._known)

    @classmethod
    def list_registered_options(cls, name: str) -> dict[str, str]:
        """The options of a name, and the Relay-era names of their types."""
        if str(name) not in cls._known:
            raise ConfigError(f'{cls.__name__} "{name}" is not defined', hint=f"known: {', '.join(cls._known)}")
        return {key: _TYPES[kind] for key, kind in cls._known[str(name)].items()}


class Executor(_Named):
    """What runs the graph: "graph", or "aot": a function in C that calls the kernels (`driver/aot`)."""

    __slots__ = ()
    _known: ClassVar[Mapping[str, _Options]] = {"graph": _LINK, "aot": _AOT}


class Runtime(_Named):
    """What the kernels run in: "cpp" or "crt", which are both our C runtime."""

    __slots__ = ()
    _known: ClassVar[Mapping[str, _Options]] = {"cpp": {"system-lib": bool}, "crt": {"system-lib": bool}}
