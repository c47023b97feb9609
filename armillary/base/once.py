"""Values that are made once in a process, whichever thread asks first: loaded code, pools, singletons.

In: a function of hashable arguments. Out: `Once`, its values by arguments, and `once`, the function behind one.
Invariant: nobody sees a value that another thread's then replaces (`functools.cache` lets both make theirs, and what
lost is freed while it is used); different values are made at the same time; an error is not kept.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable
from typing import Generic, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


class Once(Generic[Value]):
    """Values by key, each made by the first thread that asks for it; others wait for it."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Value] = {}
        self._makers: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made unless it is there."""
        values = self._values
        if key in values:
            return values[key]
        with self._lock:
            maker = self._makers.setdefault(key, threading.Lock())
        with maker:
            if key not in values:
                values[key] = make()
        with self._lock:
            self._makers.pop(key, None)
        return values[key]

    def clear(self) -> None:
        """Forget all values; who holds one keeps it."""
        self._values = {}


def once(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """As `functools.cache`; a value is made once, also when threads ask for it at the same time."""
    values: Once[Value] = Once()

    @functools.wraps(function)
    def call(*args: Arguments.args, **named: Arguments.kwargs) -> Value:
        return values.get((args, tuple(named.items())), lambda: function(*args, **named))

    return call
