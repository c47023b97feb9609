"""Names resolved on first use (PEP 562), so that façades cost nothing at import and never import upward.

In: a package name and a table `public name -> "module"` or `"module:attribute"`. Out: the package's `__getattr__` and
`__dir__`; for code that needs another module only at times, `LateModule` and `late`, which stand for a module and a
function. Invariant: resolving a name twice gives the same object (it is stored where it was looked up).
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def find(place: str) -> Any:  # Any: a module, class or function
    """What "module" or "module:attribute" names, imported now."""
    module_name, _, attribute = place.partition(":")
    module = importlib.import_module(module_name)
    return getattr(module, attribute) if attribute else module


def lazy_names(package: str, table: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__, __dir__ = lazy_names(__name__, {"build": "armillary.driver.build:build"})`."""

    def resolve(name: str) -> Any:  # Any: a module, class or function
        if name not in table:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        result = find(table[name])
        setattr(sys.modules[package], name, result)
        return result

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *table})

    return resolve, listing


class LateModule:
    """Stands for a module that is imported when one of its names is first looked up."""

    def __init__(self, name: str) -> None:
        self._module_name = name

    def __getattr__(self, name: str) -> Any:  # Any: whatever the module has
        found = getattr(importlib.import_module(self._module_name), name)
        setattr(self, name, found)
        return found


def late(place: str) -> Callable[..., Any]:
    """Stands for the function "module:attribute", which is imported when it is first called."""
    function = functools.cache(functools.partial(find, place))

    def call(*args: Any, **options: Any) -> Any:  # Any: the function's own
        return function()(*args, **options)

    call.__name__ = place.partition(":")[2]
    return call


similar = late("difflib:get_close_matches")  # names to suggest in a message: few processes need any
