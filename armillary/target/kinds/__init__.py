"""The target kinds: every module of this directory is a manifest whose `KIND` is a `TargetKind`.

In: the files of the directory. Out: `KINDS`, kind by name. Invariant: adding a file adds a kind; nothing else changes.
A kind that lives outside this package is made known by `register_kind`.
"""

from __future__ import annotations

import importlib
import pkgutil

from armillary.errors import InternalError
from armillary.target.kind import TargetKind

KINDS: dict[str, TargetKind] = {}
for _module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
    _kind: TargetKind = importlib.import_module(f"{__name__}.{_module}").KIND
    KINDS[_kind.name] = _kind


def register_kind(kind: TargetKind) -> TargetKind:
    """Make a kind of targets known that lives outside this package."""
    if kind.name in KINDS:
        raise InternalError(f"two kinds of targets are named {kind.name!r}")
    KINDS[kind.name] = kind
    return kind
