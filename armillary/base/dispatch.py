"""Who is asked for a stored choice before a model of costs decides: the stack of dispatch contexts.

In: a target and a workload (a name, then plain values and types of tensors). Out: the stored configuration, or None
where no context has one. Invariant: the innermost context is asked first, then those around it, then the records of
installed packages (entry points of the group `armillary-records`); a package that is broken is named and left out.
Graph passes and templates ask here. Contexts that read records: `autotvm/task/dispatcher.py`; how packages are made:
`autotvm/record_package.py`.
"""

from __future__ import annotations

import contextvars
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

from armillary.base.config import setting
from armillary.base.lazy import deferred

with deferred():
    from importlib import metadata
GROUP = "armillary-records"
logger = logging.getLogger("autotvm")


class _Fallback(logging.Handler):
    """Writes what no handler of a script takes, at every level that the script set; Python's own stops at warnings."""

    def emit(self, record: logging.LogRecord) -> None:
        others = [handler for handler in (*logger.handlers, *logging.root.handlers) if handler is not self]
        if not others:
            print(self.format(record), file=sys.stderr)


logger.addHandler(_Fallback())

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

    def query(self, target: object, workload: Workload) -> Any:  # Any: a Target; what the source stores
        """The configuration for a workload: this context's, or that of the ones around it; None without any."""
        result = self._query_inside(target, workload)
        if result is None and self._around:
            result = self._around[-1].query(target, workload)
        return result

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


class InstalledRecords(DispatchContext):
    """Around all contexts: what installed packages bring along."""

    def __init__(self) -> None:
        super().__init__()
        self._installed_contexts: Sequence[DispatchContext] | None = None

    def _query_inside(self, target: Any, workload: Workload) -> Any:  # Any: as in query
        answers = (context.query(target, workload) for context in self._contexts())
        return next((answer for answer in answers if answer is not None), None)

    def has_records(self) -> bool:
        return bool(self._contexts())

    def _contexts(self) -> Sequence[DispatchContext]:
        if self._installed_contexts is None:
            self._installed_contexts = _installed() if setting("ARMILLARY_INSTALLED_RECORDS") else ()
        return self._installed_contexts


def _packages() -> list[os.DirEntry[str]]:
    """The folders that say what is installed."""
    folders = sorted({path for path in sys.path if os.path.isdir(path)})
    return [entry for folder in folders for entry in os.scandir(folder) if entry.name.endswith("-info")]


def _may_bring_records() -> bool:
    """Whether a package may have records: importlib's own search costs a first build a tenth of its time."""
    if any(os.path.isfile(path) for path in sys.path):
        return True  # packages in archives
    for entry in _packages():
        try:
            with open(os.path.join(entry.path, "entry_points.txt"), "rb") as file:
                if GROUP.encode() in file.read():
                    return True
        except OSError:  # most have no such file
            continue
    return False


def _installed() -> Sequence[DispatchContext]:
    result: list[DispatchContext] = []
    if not _may_bring_records():
        return result
    for point in sorted(metadata.entry_points(group=GROUP), key=lambda point: point.name):
        try:
            loaded = point.load()
        except Exception as error:  # of code that is not ours: builds go on without it
            loaded, message = None, f"{type(error).__name__}: {error}"
        else:
            message = f"{type(loaded).__name__} is no dispatch context"
        if isinstance(loaded, DispatchContext):
            result.append(loaded)
            logger.info("records of the installed package %s are used", point.name)
        else:
            logger.warning("the records of the installed package %s cannot be used: %s", point.name, message)
    return result


_STACK: contextvars.ContextVar[tuple[DispatchContext, ...]] = contextvars.ContextVar("dispatch", default=())
_NOTHING = InstalledRecords()


def records_key() -> str | None:
    """What installed records depend on, the packages that are there; None where a context of a script's own answers.

    It looks at names and times of folders: to read what each package brings along takes twenty times as long.
    """
    if _STACK.get():
        return None
    rows = [(entry.path, entry.stat().st_mtime_ns) for entry in _packages()]
    return repr((setting("ARMILLARY_INSTALLED_RECORDS"), sorted(rows)))
