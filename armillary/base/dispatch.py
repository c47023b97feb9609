"""Who is asked for a stored choice before a model of costs decides: the stack of dispatch contexts.

In: a target and a workload (a name, then plain values and types of tensors). Out: the stored configuration, or None
where no context has one. Invariant: the innermost context is asked first, then those around it; outside all of them the
answer is None. Graph passes and templates ask here; contexts that read records are in `autotvm/task/dispatcher.py`.
"""

from __future__ import annotations

import contextvars
from typing import Any

Workload = tuple[Any, ...]  # Any: names, numbers, ("TENSOR", shape, dtype), tuples of them


class _Current(type):
    @property
    def current(cls) -> DispatchContext:
        """The innermost context in force."""
        stack = _STACK.get()
        return stack[-1] if stack else _NOTHING


class DispatchContext(metaclass=_Current):
    """A source of stored configurations while its `with` block runs; subclasses answer `_query_inside`."""

    def __init__(self) -> None:
        self._around: list[DispatchContext] = []

    def query(self, target: Any, workload: Workload) -> Any:  # Any: a Target; what the source stores
        """The configuration for a workload: this context's, or that of the ones around it; None without any."""
        found = self._query_inside(target, workload)
        if found is None and self._around:
            found = self._around[-1].query(target, workload)
        return found

    def _query_inside(self, target: Any, workload: Workload) -> Any:  # Any: as in query
        return None

    def has_records(self) -> bool:
        """Whether this context or one around it may have an answer."""
        return bool(self._around) and self._around[-1].has_records()

    def __enter__(self) -> DispatchContext:
        self._around.append(DispatchContext.current)
        _STACK.set((*_STACK.get(), self))
        return self

    def __exit__(self, *error: object) -> None:
        _STACK.set(_STACK.get()[:-1])
        self._around.pop()


_STACK: contextvars.ContextVar[tuple[DispatchContext, ...]] = contextvars.ContextVar("dispatch", default=())
_NOTHING = DispatchContext()
