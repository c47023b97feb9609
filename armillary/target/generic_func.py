"""`target.generic_func`: one function for every target, others for some: chosen by the keys of the current target.

In: a default function, and functions registered for keys (`cuda`, `gpu`, `cpu`). Out: a `GenericFunc`, called like the
function. Invariant: the first key of the current target that has a function decides; outside of any target the default
does. Functions that are named (`override_native_generic_func`) are found again by their name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeAlias

from armillary.base.boundary import boundary
from armillary.errors import ConfigError
from armillary.target.target import Target

P = ParamSpec("P")
Function: TypeAlias = Callable[..., object]  # whatever is registered: it is only handed its arguments


class GenericFunc:
    """A function, and what stands for it where the current target has a key."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._default: Function | None = None
        self._by_key: dict[str, Function] = {}

    def __call__(self, *args: object, **named: object) -> object:
        return self.get_packed_func()(*args, **named)

    def get_packed_func(self) -> Function:
        """The function for the current target."""
        target = Target.current()
        result = self._for(target) or self._default
        if result is None:
            known = ", ".join(self._by_key) or "none"
            raise ConfigError(f"{self.name}: no function for {target}, and no default", hint=f"there are: {known}")
        return result

    def _for(self, target: Target | None) -> Function | None:
        keys = target.keys if target is not None else ()
        return next((self._by_key[key] for key in keys if key in self._by_key), None)

    def covers(self, target: Target | None) -> bool:
        """Whether there is a function for a target; None: for any at all."""
        return self._default is not None or bool(self._by_key if target is None else self._for(target))

    def set_default(self, func: Function, allow_override: bool = False) -> None:
        """The function for targets without one of their own."""
        if self._default is not None and not allow_override:
            raise ConfigError(f"{self.name} has a default", hint="allow_override=True replaces it")
        self._default = func

    def register(
        self, func: Function | str | Sequence[str], key_list: str | Sequence[str] = (), allow_override: bool = False
    ) -> Function:
        """`register(func, keys)`, or a decorator: `@generic.register(["cuda", "gpu"])`."""
        if not callable(func):
            keys = func
            return lambda function: self.register(function, keys, allow_override)
        for key in [key_list] if isinstance(key_list, str) else key_list:
            if key in self._by_key and not allow_override:
                raise ConfigError(f"{self.name} has a function for {key!r}", hint="allow_override=True replaces it")
            self._by_key[key] = func
        return func


_NAMED: dict[str, GenericFunc] = {}


@boundary("target.get_native_generic_func", arguments=True)
def get_native_generic_func(name: str) -> GenericFunc:
    """The function of that name, made when it is first asked for."""
    return _NAMED.setdefault(name, GenericFunc(name))


def generic_func(fdefault: Function) -> GenericFunc:
    """Decorator: the function for every target, until others are registered."""
    result = GenericFunc(getattr(fdefault, "__name__", "function"))
    result.set_default(fdefault)
    return result


def override_native_generic_func(func_name: str) -> Callable[[Function], GenericFunc]:
    """Decorator: the default of the named function, which others may have registered for already."""

    def override(fdefault: Function) -> GenericFunc:
        result = get_native_generic_func(func_name)
        result.set_default(fdefault, allow_override=True)
        return result

    return override
