"""Names resolved on first use (PEP 562), so that façades cost nothing at import and never import upward.

In: a package name and a table `public name -> "module"` or `"module:attribute"`. Out: the package's `__getattr__` and
`__dir__`. Invariant: resolving a name twice gives the same object (it is stored in the package).
"""

from __future__ import annotations

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
