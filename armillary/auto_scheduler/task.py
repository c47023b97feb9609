"""Tasks: a registered function with its arguments and target, or a part of a network.

In: `@register_workload` functions (arguments -> tensors), modules. Out: `SearchTask`s, which tune, and give the
schedule of the best trial. Invariant: a function's task is AutoTVM's of the template `auto_scheduler.<name>`, so its
records are found by function, arguments and target, in this process and in logs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence

from armillary import te
from armillary.auto_scheduler.options import TuningOptions, tune
from armillary.auto_scheduler.sketch import sketch
from armillary.autotvm.errors import TuningError
from armillary.autotvm.record import best_of, load_from_file
from armillary.autotvm.task.network import extract_from_program
from armillary.autotvm.task.space import ConfigEntity
from armillary.autotvm.task.task import (
    Instance,
    Task,
    TaskTemplate,
    args_to_workload,
    create,
)
from armillary.autotvm.task.templates import register_template
from armillary.base.aliases import AnyFunction
from armillary.base.boundary import boundary, bounded
from armillary.base.lazy import similar
from armillary.ir import IRModule
from armillary.target import Target, as_target

_PREFIX = "auto_scheduler."
WORKLOADS: dict[str, Callable[..., Sequence[te.Tensor]]] = {}
Log = str | os.PathLike[str]


@boundary("auto_scheduler.register_workload", arguments=True)
def register_workload(
    func_name: str | AnyFunction, f: AnyFunction | None = None, override: bool = False
) -> AnyFunction:
    """Make a function (arguments -> inputs and outputs as tensors) known by its name; also a decorator."""
    if callable(func_name):
        return register_workload(func_name.__name__, func_name, override)

    def register(function: AnyFunction) -> AnyFunction:
        if func_name in WORKLOADS and not override:
            raise TuningError(f"the workload {func_name!r} is registered already", hint="override=True replaces it")
        WORKLOADS[func_name] = function

        def instance(*args: object) -> Instance:
            tensors = list(function(*args))
            return sketch(tensors), tensors

        register_template(TaskTemplate(f"{_PREFIX}{func_name}", instance, function))
        return function

    return register(f) if f is not None else register


def _name_of(func: str | AnyFunction) -> str:
    name = (func if isinstance(func, str) else func.__name__).removeprefix(_PREFIX)
    if name not in WORKLOADS:
        near = similar(name, list(WORKLOADS), 1, 0.6)
        hint = f"did you mean {near[0]!r}?" if near else "put @auto_scheduler.register_workload before it"
        raise TuningError(f"there is no workload {name!r}", hint=hint)
    return name


@boundary("auto_scheduler.make_workload_key", arguments=True)
def make_workload_key(func: str | AnyFunction, args: Sequence[object]) -> str:
    """A function and its arguments as JSON."""
    return json.dumps(list(args_to_workload(args, f"{_PREFIX}{_name_of(func)}")))


class ComputeDAG:
    """The tensors of a task, which print."""

    def __init__(self, tensors: Sequence[te.Tensor]) -> None:
        self.tensors = list(tensors)

    def __str__(self) -> str:
        ops = [stage.op for stage in te.create_schedule([t.op for t in self.tensors]).stages]
        return "\n".join(_line(op) for op in ops) + "\n"

    def print_python_code_from_state(self, state: te.Schedule) -> str:
        """A schedule of these tensors, as its primitives were called."""
        return str(state)


def _line(op: te.Operation) -> str:
    if not isinstance(op, te.ComputeOp):
        shape = ", ".join(map(str, op.output(0).shape))
        return f"{op.name} = PLACEHOLDER [{shape}]"
    axes = ", ".join(axis.var.name for axis in op.axis)
    return f"{op.name}({axes}) = {', '.join(map(str, op.body))}"


@bounded
class SearchTask:
    """What is tuned. `func` and `args`, or `workload_key` (`make_workload_key`), say what it computes."""

    def __init__(
        self,
        func: str | AnyFunction | None = None,
        args: Sequence[object] | None = None,
        compute_dag: ComputeDAG | None = None,
        workload_key: str | None = None,
        target: object = None,
        target_host: object = None,
        hardware_params: object = None,
        layout_rewrite_option: object = None,
        task_inputs: object = None,
        task_inputs_overwrite: bool = False,
        task_inputs_save_to_file: bool = False,
        desc: str = "",
        *,
        task: Task | None = None,
    ) -> None:
        del compute_dag, hardware_params, layout_rewrite_option  # follow from the function and the target
        del task_inputs, task_inputs_overwrite, task_inputs_save_to_file  # trials get random values
        where = as_target(target if target is not None else Target.current() or "llvm")
        if task is None:
            if func is None and workload_key is None:
                raise TuningError("SearchTask: what is to be tuned?", hint="func= and args=, or workload_key=")
            values, name = list(args or ()), "" if func is None else _name_of(func)
            if workload_key is not None:
                full, *values = json.loads(workload_key)
                name = _name_of(str(full))
            task = create(f"{_PREFIX}{name}", values, where, target_host)
        self.task, self.target, self.desc = task, task.target, desc or task.name
        self.workload_key = json.dumps(list(task.workload), default=str)

    @property
    def compute_dag(self) -> ComputeDAG:
        """The tensors; those of a part of a network are known when its kernel is made."""
        if not self.task.name.startswith(_PREFIX):
            raise TuningError(f"{self.desc}: a part of a network has no tensors of its own", hint="print(task.task)")
        first = self.task.config_space.get(int(self.task.config_space.valid_indices()[0]))
        return ComputeDAG(self.task.instantiate(first)[1])

    def tune(
        self, tuning_options: TuningOptions, search_policy: object = None, adaptive_training: bool = False
    ) -> None:
        """Measure trials, learning from them which to try; `measure_callbacks` get every one."""
        del search_policy, adaptive_training  # there is one policy, and it always learns
        tune(self.task, tuning_options)

    def apply_best(
        self, log_file: Log, include_compatible: bool = False, layout_rewrite_option: object = None
    ) -> Instance:
        """The schedule and the arguments of the best trial of a log; TuningError where it has none."""
        del include_compatible, layout_rewrite_option
        with self.target:
            result: Instance = self.task.instantiate(self._best(log_file))
        return result

    def print_best(self, log_file: Log, print_mode: str = "schedule") -> str:
        """The schedule of the best trial as text."""
        del print_mode
        return str(self.apply_best(log_file)[0])

    def _best(self, log_file: Log) -> ConfigEntity:
        pairs = best_of(load_from_file(os.fspath(log_file)))
        mine = [(i, r) for i, r in pairs if i.task.workload == self.task.workload and not r.error_no]
        same = [(i, r) for i, r in mine if str(i.target) == str(self.target)]
        if not same:
            raise TuningError(f"{log_file}: no trial of {self.desc} for {self.target} succeeded", hint="tune it first")
        return min(same, key=lambda pair: pair[1].mean)[0].config

    def __repr__(self) -> str:
        return f"SearchTask({self.desc}, {self.target})"


@boundary("auto_scheduler.extract_tasks", arguments=True)
def extract_tasks(
    mod: IRModule,
    params: Mapping[str, object] | None = None,
    target: object = None,
    target_host: object = None,
    hardware_params: object = None,
    include_simple_tasks: bool = False,
    opt_level: int = 3,
    other_targets: object = None,
) -> tuple[list[SearchTask], list[int]]:
    """The tasks of a network, those that AutoTVM has for it, and how often each occurs."""
    del hardware_params, include_simple_tasks, opt_level, other_targets
    tasks = extract_from_program(mod, params, target, target_host)
    return [SearchTask(task=task, target=task.target) for task in tasks], [task.calls for task in tasks]
