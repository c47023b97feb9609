"""Imports that happen on first use, so that façades cost nothing at import and never import upward.

In: a package and a table `public name -> "module"` or `"module:attribute"`. Out: its `__getattr__` and `__dir__` (PEP
562). Or imports as they always are, under `with deferred():`, whose names then stand for modules and functions that are
imported when they are first used. Invariant: the statements are ordinary ones, which mypy, the layer test and editors
read; a name is resolved once; what stands for a class can be called, but is no class (`isinstance` refuses it).
"""

from __future__ import annotations

import builtins
import importlib
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

T = TypeVar("T")
_LOCK = threading.RLock()


def find(place: str) -> Any:  # Any: a module, class or function
    """What "module" or "module:attribute" names, imported now."""
    module_name, _, attribute = place.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        message = (
            f"{module_name} is not installed: this is armillary-runtime, which runs packages; pip install armillary"
        )
        raise ModuleNotFoundError(message, name=error.name) from None
    return getattr(module, attribute) if attribute else module


def lazy_names(package: str, table: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__, __dir__ = lazy_names(__name__, {"build": "armillary.driver.build:build"})`."""

    def resolve(name: str) -> Any:  # Any: a module, class or function
        if name not in table and name.startswith("__"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        result = find(table[name]) if name in table else _old_name(package, name)
        setattr(sys.modules[package], name, result)
        return result

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *table})

    return resolve, listing


class _Deferred:
    """Stands for a module ("" as name) or a name of it, until it is called or one of its own names is looked up."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self.__name__ = module, name
        self._known: Any = None  # Any: what is found

    def _resolved(self) -> Any:  # Any: a module, class or function
        if self._known is None:
            module = importlib.import_module(self._module)
            if self.__name__ and not hasattr(module, self.__name__):
                importlib.import_module(f"{self._module}.{self.__name__}")
            self._known = getattr(module, self.__name__) if self.__name__ else module
        return self._known

    def __getattr__(self, name: str) -> Any:  # Any: whatever is found has
        if name.startswith("__"):  # who looks at a value's class does not want it
            raise AttributeError(name)
        result = getattr(self._resolved(), name)
        setattr(self, name, result)
        return result

    def __call__(self, *args: Any, **options: Any) -> Any:  # Any: the function's own
        return self._resolved()(*args, **options)


def imported(name: T) -> T:
    """What a name under `with deferred():` stands for, imported now: for what a module registers."""
    return name._resolved() if isinstance(name, _Deferred) else name


class _Names:
    """What `from module import …` takes its names from while imports are deferred."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> _Deferred:
        return _Deferred(self._module, name)


class deferred:  # noqa: N801 (read as a statement, like contextlib.suppress)
    """`with deferred(): from armillary.relay.printer import astext`: the module is imported by the first call."""

    def __enter__(self) -> None:
        _LOCK.acquire()
        caller, self._real = sys._getframe(1).f_globals, builtins.__import__
        builtins.__import__ = lambda *arguments, **named: self._name(caller, *arguments, **named)

    def __exit__(self, *_: object) -> None:
        builtins.__import__ = self._real
        _LOCK.release()

    def _name(
        self,
        caller: object,
        name: str,
        scope: Mapping[str, object] | None = None,
        _locals: object = None,
        names: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:  # Any: a module, or what stands for one
        if scope is not caller:  # another thread's
            return self._real(name, scope, _locals, names or (), level)  # type: ignore[arg-type]
        return _Names(name) if names else _Deferred(name, "")


with deferred():
    from difflib import get_close_matches

    from armillary.base.old_modules import find_spec as _find_spec
    from armillary.base.old_modules import old_name as _old_name


class _Finder:
    """The import system's way to modules without a file, asked after the files of the package."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return _find_spec(fullname) if fullname.startswith("armillary.") else None


def find_old_modules() -> None:
    """Answer imports of the modules in base/old_modules, once for a process."""
    if not any(type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


similar = get_close_matches  # names to suggest in a message: few processes need any
