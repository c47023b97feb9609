"""The templates of tasks, by name, and what brings along those that are not registered yet.

In: templates, as scripts define them; sources, which register more when a name is not known. Out: the template of a
name. Invariant: this module knows no source: those of networks stand above tasks (network.py), and the package names
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from armillary.autotvm.errors import TuningError
from armillary.base.lazy import similar

if TYPE_CHECKING:
    from armillary.autotvm.task.task import TaskTemplate

TASK_TABLE: dict[str, TaskTemplate] = {}
_SOURCES: list[Callable[[], object]] = []


def register_template(template: TaskTemplate) -> None:
    """Make a template known by its name; a script may define it anew."""
    TASK_TABLE[template.name] = template


def register_source(load: Callable[[], object]) -> None:
    """Let `load` register templates once a name is asked for that none has."""
    _SOURCES.append(load)


def find_template(name: str) -> TaskTemplate:
    """The template of a name; TuningError names close ones."""
    for load in _SOURCES if name not in TASK_TABLE else ():
        load()
    if name not in TASK_TABLE:
        near = similar(name, list(TASK_TABLE), 1, 0.6)
        hint = f"did you mean {near[0]!r}?" if near else "define it with @autotvm.template(name)"
        raise TuningError(f"there is no template {name!r}", hint=hint)
    return TASK_TABLE[name]
