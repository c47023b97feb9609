"""Modules and names of Relay-era scripts that lie elsewhere here: `import armillary.contrib.util` gives contrib.utils.

In: `table.txt`, a line for each: `name = place`, `name : operators prefix`, `name : Attribute=place …`, or
`name ! what is used instead` for what was left out. Out: the module or the object, made when first asked for.
Invariant: what has a file of its own is never looked up here; a module that was left out can be imported, and whatever
is called in it refuses with the sentence of its line. Asked by: `base/lazy.py` (attributes), the import system.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable
from typing import NoReturn

from armillary.errors import UnsupportedError

_PACKAGE = "armillary"
_OPERATORS = f"{_PACKAGE}.relay.names"


@functools.cache
def table() -> dict[str, tuple[str, str]]:
    """Name without the package -> (one of "=", ":" and "!", the rest of its line)."""
    with open(os.path.join(os.path.dirname(__file__), "table.txt"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    words = [line.split(None, 2) for line in lines if line and not line.startswith("#")]
    return {name: (sign, rest) for name, sign, rest in words}


def is_module(name: str) -> bool:
    """Whether `import armillary.<name>` is answered by the table."""
    sign, rest = table().get(name, ("", ""))
    return bool(sign) and ":" not in (rest if sign == "=" else "")


def old_name(package: str, name: str) -> object:
    """What `package.name` stands for, or the file of that name; AttributeError where there is neither."""
    full = f"{package}.{name}"
    key = full.partition(".")[2]
    if key in table():
        return importlib.import_module(full) if is_module(key) else _at(table()[key][1])
    is_package = "__path__" in vars(sys.modules[package])
    if not is_package or name.startswith("_") or importlib.util.find_spec(full) is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return importlib.import_module(full)


def _at(place: str) -> object:
    module, _, attribute = place.partition(":")
    value = importlib.import_module(f"{_PACKAGE}.{module}" if module else _PACKAGE)
    return getattr(value, attribute) if attribute else value


class OldModule(types.ModuleType):
    """A module without a file: its names are looked up by the line that describes it."""

    __path__: list[str]

    def __init__(self, name: str, look: Callable[[str], object], doc: str) -> None:
        super().__init__(name, doc)
        self._look, self.__path__ = look, []

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._look(name)


def _operators(prefix: str) -> Callable[[str], object]:
    space = importlib.import_module(_OPERATORS).OpNames(prefix)
    return lambda name: getattr(space, name)


def _listed(owner: str, line: str) -> Callable[[str], object]:
    """Names with their places, and `*place` for all names of a module."""
    places = dict(word.split("=") for word in line.split() if "=" in word)
    wide = [word[1:] for word in line.split() if word.startswith("*")]

    def look(name: str) -> object:
        if name in places:
            return _at(places[name])
        for module in wide:
            value = _at(module)
            if hasattr(value, name):
                return getattr(value, name)
        return old_name(owner, name)

    return look


def _asks(name: str) -> bool:
    """Whether a function asks if something is there, which is answered where the thing itself is refused."""
    return name in ("exists", "is_available") or name.endswith("_available") or name.startswith(("can_use_", "has_"))


def _refusals(owner: str, line: str) -> Callable[[str], object]:
    def look(name: str) -> Callable[..., bool]:
        if _asks(name):
            return lambda *_, **__: False

        def refuse(*_arguments: object, **_options: object) -> NoReturn:
            raise UnsupportedError(f"{owner}.{name} is not there", hint=line)

        refuse.__name__ = refuse.__qualname__ = name
        refuse.__doc__ = f"Refused: {line}."
        return refuse

    return look


class _Loader:
    """Makes the modules of the table."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """An empty module, which `exec_module` replaces."""

    def exec_module(self, module: types.ModuleType) -> None:
        """Put what the line says in the place of the empty module."""
        sys.modules[module.__name__] = _module(module)


def find_spec(fullname: str) -> importlib.machinery.ModuleSpec | None:
    """How a module of the table is imported; None for any other name."""
    key = fullname.partition(".")[2]
    if not key or not is_module(key):
        return None
    return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=True)  # type: ignore[arg-type]  # no ABC


def _module(module: types.ModuleType) -> types.ModuleType:
    name = module.__name__
    sign, rest = table()[name.partition(".")[2]]
    if sign == "=":
        place = _at(rest)
        assert isinstance(place, types.ModuleType), f"{rest} is a module"
        return place
    if sign == "!":
        result = OldModule(name, _refusals(name, rest), f"Left out: {rest}.")
    elif rest.split()[0] == "operators":
        prefix = rest.split()[1] if len(rest.split()) > 1 else ""
        result = OldModule(name, _operators(prefix), f"Operators as `{name}` had them.")
    else:
        result = OldModule(name, _listed(name, rest), f"Names that `{name}` had.")
    result.__spec__, result.__package__ = module.__spec__, name
    return result
