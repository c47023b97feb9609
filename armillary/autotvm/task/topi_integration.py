"""Templates of two functions: what an operator computes, and its schedule.

In: `@register_topi_compute(name)` for a function (cfg, arguments) -> tensors, and `@register_topi_schedule(name)` for
one (cfg, outputs) -> schedule. Out: a template of that name, and functions without `cfg` that look the configuration up
themselves. Invariant: the compute notes its workload on the operation it makes, by which the schedule finds the same
configuration.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from armillary import te
from armillary.autotvm.errors import TuningError
from armillary.autotvm.task.task import (
    Instance,
    TaskTemplate,
    args_to_workload,
    get_config,
    recorded_config,
    using_config,
)
from armillary.autotvm.task.templates import TASK_TABLE, register_template
from armillary.base.aliases import AnyFunction
from armillary.base.arguments import Arguments
from armillary.base.dispatch import Workload

Rule = AnyFunction  # (cfg, ...) -> tensors, or a schedule


class TopiTemplate(TaskTemplate):
    """A compute, and the schedule that takes its results."""

    def __init__(self, name: str) -> None:
        super().__init__(name, self.run)
        self.code_hash = None
        self.compute: Rule | None = None
        self.schedule: Rule | None = None

    def run(self, *args: object) -> Instance:  # the template's arguments
        """The schedule, and the tensors: those given, then the results."""
        if self.compute is None or self.schedule is None:
            missing = "compute" if self.compute is None else "schedule"
            raise TuningError(f"the template {self.name!r} has no {missing}", hint=f"@register_topi_{missing}(name)")
        computed = self.compute(get_config(), *args)
        outputs = list(computed) if isinstance(computed, list | tuple) else [computed]
        schedule = self.schedule(get_config(), outputs)
        return schedule, [*(a for a in args if isinstance(a, te.Tensor)), *outputs]


def _template(name: str) -> TopiTemplate:
    Arguments("register_topi_compute, register_topi_schedule", TuningError).text(
        "task_name", name, is_empty_allowed=False
    )
    result = TASK_TABLE.get(name)
    if not isinstance(result, TopiTemplate):
        result = TopiTemplate(name)
        register_template(result)
    return result


def register_topi_compute(task_name: str, func: Rule | None = None) -> Any:  # Any: the wrapper, or a decorator
    """Decorator: the compute (cfg, *args) -> tensors of a template."""

    def decorate(function: Rule) -> Rule:
        Arguments("register_topi_compute", TuningError).callable("func", function)
        _template(task_name).compute = function

        @functools.wraps(function)
        def wrapper(*args: object) -> Any:  # Any: the template's own
            workload = args_to_workload(args, task_name)
            config = recorded_config(workload)
            with using_config(config):
                result = function(config, *args)
            for tensor in result if isinstance(result, list | tuple) else [result]:
                tensor.op.attrs["workload"] = workload
            return result

        return wrapper

    return decorate if func is None else decorate(func)


def register_topi_schedule(task_name: str, func: Rule | None = None) -> Any:  # Any: as above
    """Decorator: the schedule (cfg, outs) -> te.Schedule of a template."""

    def decorate(function: Rule) -> Rule:
        Arguments("register_topi_schedule", TuningError).callable("func", function)
        _template(task_name).schedule = function

        @functools.wraps(function)
        def wrapper(outs: Any, *args: object) -> Any:  # Any: a tensor or a list of them; the template's own
            outputs = [outs] if isinstance(outs, te.Tensor) else list(outs)
            config = recorded_config(get_workload(outputs, task_name))
            with using_config(config):
                return function(config, outputs, *args)

        return wrapper

    return decorate if func is None else decorate(func)


def get_workload(outs: list[te.Tensor], task_name: str = "") -> Workload:
    """The workload that a compute noted on what these tensors are made of."""
    for operation in _producers(outs):
        result: Workload | None = operation.attrs.get("workload")
        if result is not None and task_name in ("", result[0]):
            return result
    raise TuningError(f"no result of the compute {task_name!r} is among the tensors", hint="call the compute first")


def _producers(outs: list[te.Tensor]) -> Iterator[te.Operation]:
    todo, seen = [t.op for t in outs], set()
    while todo:
        operation = todo.pop()
        if id(operation) not in seen:
            seen.add(id(operation))
            yield operation
            todo += [t.op for t in operation.input_tensors]
