"""Tasks: a template with its arguments and target, and the space that running it defines.

In: a template's name, arguments (numbers, texts, tensors) and a target. Out: a `Task`, whose `config_space` is explored
by tuners and whose `instantiate(config)` gives a schedule and its arguments. Invariant: a task is found again by its
workload, (name, *arguments) with tensors as ("TENSOR", shape, dtype), in this process and in logs.
Templates: `template` for functions that give (schedule, tensors); `topi_integration.py` for a compute and a schedule.
Tasks of networks: `network.py`.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from armillary import te
from armillary.autotvm.errors import TuningError
from armillary.autotvm.task.flop import compute_flop
from armillary.autotvm.task.space import ConfigEntity, ConfigSpace, FallbackConfigEntity
from armillary.autotvm.task.templates import find_template, register_template
from armillary.base.aliases import AnyFunction
from armillary.base.arguments import Arguments
from armillary.base.digest import blake2b
from armillary.base.dispatch import DispatchContext, Workload
from armillary.base.lazy import deferred
from armillary.driver.library import FunctionLibrary
from armillary.driver.te_build import build
from armillary.errors import ArmillaryError
from armillary.target import Target, as_target
from armillary.te.tensor import static_shape
from armillary.tir.stmt import PrimFunc

with deferred():
    from armillary.relay.infer import infer_type
    from armillary.relay.parser import parse_expr
    from armillary.relay.printer import astext
Instance = tuple[te.Schedule, list[te.Tensor]]
TENSOR = "TENSOR"
Shapes = Mapping[str, tuple[int, ...]]  # by name of an input
_CONFIG: contextvars.ContextVar[ConfigSpace | None] = contextvars.ContextVar("config", default=None)


def get_config() -> ConfigSpace:
    """The configuration that the running template is to use, or the space it is to define; else one to fall back on."""
    result = _CONFIG.get()
    return FallbackConfigEntity() if result is None else result


@contextmanager
def using_config(config: ConfigSpace) -> Iterator[None]:
    """Let the templates that run inside use this configuration."""
    token = _CONFIG.set(config)
    try:
        yield
    finally:
        _CONFIG.reset(token)


def serialize_args(args: Sequence[object]) -> tuple[Any, ...]:
    """Arguments as plain values, hashable, tensors as ("TENSOR", shape, dtype)."""
    return tuple(_plain(arg) for arg in args)


def _plain(arg: object) -> Any:  # Any: what templates take
    if isinstance(arg, te.Tensor):
        return (TENSOR, static_shape(arg), str(arg.dtype))
    if isinstance(arg, list | tuple):
        return tuple(_plain(a) for a in arg)
    if isinstance(arg, bool | int | float | str) or arg is None:
        return arg
    if isinstance(arg, np.number):
        return arg.item()
    if hasattr(arg, "value") and isinstance(arg.value, bool | int | float | str):  # IntImm and the like
        return arg.value
    raise TuningError(
        f"an argument of a task is {type(arg).__name__} {arg!r}", hint="numbers, texts, tensors, and lists of them"
    )


def deserialize_args(args: Sequence[object]) -> list[Any]:
    """Arguments for the template: placeholders for tensors."""
    return [_argument(arg) for arg in args]


def _argument(arg: object) -> Any:  # Any: as in _plain
    if isinstance(arg, list | tuple) and len(arg) == 3 and arg[0] == TENSOR:
        return te.placeholder(tuple(arg[1]), arg[2], name="input")
    return arg


def args_to_workload(args: Sequence[object], name: str = "") -> Workload:
    """What a task of these arguments is found by."""
    plain = serialize_args(args)
    return (name, *plain) if name else plain


class TaskTemplate:
    """A named function that defines a space, or the schedule of a configuration."""

    def __init__(self, name: str, make: Callable[..., object], code: Callable[..., object] | None = None) -> None:
        self.name, self.make = name, make
        self.code_hash = _code_hash(code or make)

    def instantiate(self, args: Sequence[object]) -> Any:  # Any: an Instance, or what the kind of the task builds
        """What the template gives in the configuration that is in force."""
        return self.make(*deserialize_args(args))

    def estimates(self, task: Task) -> list[tuple[int, float]]:
        """Configurations with the seconds that a model of costs expects, least first; [] where there is no model."""
        return []

    def parts(self, task: Task) -> dict[int, int]:
        """Into how many parts a configuration is divided for threads to share, where these may be few."""
        return {}

    def library(self, task: Task, config: ConfigSpace) -> FunctionLibrary:
        """The compiled function of a configuration."""
        schedule, tensors = task.instantiate(config)
        return build(schedule, tensors, task.target, name="main")

    def shapes(self, task: Task) -> list[Shapes]:
        """The shapes of a trial's inputs at each of the sizes that it runs at; those that are left out are fixed."""
        return [{} for _ in task.sizes]

    def loops(self, task: Task, config: ConfigSpace) -> PrimFunc:
        """The loops of a configuration, for features."""
        schedule, tensors = task.instantiate(config)
        return te.lower_schedule(schedule, tensors, "main")

    def reference(self, task: Task) -> FunctionLibrary | Callable[[int], list[Any]]:
        """The same computation with plain loops, for this machine; or a function from a seed to arrays (Any)."""
        _, tensors = task.instantiate(task.config_space.get(int(task.config_space.valid_indices()[0])))
        outputs = [t.op for t in tensors if not isinstance(t.op, te.PlaceholderOp)]
        return build(te.create_schedule(outputs), tensors, "llvm", name="main")


def _code_hash(function: Callable[..., object]) -> str | None:
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    digest = blake2b()
    digest.update(code.co_code + repr(code.co_names).encode())
    return digest.hexdigest()[:16]


def template(task_name: object, func: Callable[..., object] | None = None) -> Any:
    """Decorator: a function (arguments) -> (schedule, [tensors]) becomes a template that can be tuned.

    Called as it is, it uses the record of the current dispatch context, else its first configuration. Any: the name, or
    as in Relay-era scripts the function itself.
    """

    def decorate(function: Callable[..., object]) -> AnyFunction:
        Arguments("autotvm.template", TuningError).callable("func", function)
        name = task_name if isinstance(task_name, str) else function.__name__
        register_template(TaskTemplate(name, function))

        @functools.wraps(function)
        def wrapper(*args: object, **kwargs: object) -> Any:  # Any: the template's own
            if kwargs:
                raise TuningError(f"template {name!r} takes positional arguments only, got {', '.join(kwargs)}=")
            if _CONFIG.get() is not None:
                return function(*args)
            with using_config(recorded_config(args_to_workload(args, name))):
                return function(*args)

        return wrapper

    if callable(task_name):
        return decorate(task_name)
    Arguments("autotvm.template", TuningError).text("task_name", task_name, is_empty_allowed=False)
    return decorate if func is None else decorate(func)


def recorded_config(workload: Workload) -> ConfigSpace:
    """The stored configuration for a workload on the current target; where there is none, one to fall back on."""
    result = DispatchContext.current.query(Target.current() or as_target("llvm"), workload)
    return FallbackConfigEntity() if result is None else result


class Task:
    """A tunable computation: template, arguments, target. `kwargs` is empty and kept for the form of logs."""

    def __init__(self, name: str, args: Sequence[object]) -> None:
        arguments = Arguments("Task", TuningError)
        arguments.text("name", name, is_empty_allowed=False)
        arguments.kind("args", args, (list, tuple), "a list of numbers, texts and tensors")
        self.name, self.args = name, serialize_args(args)
        self.kwargs: dict[str, Any] = {}
        self.config_space: ConfigSpace = ConfigSpace()
        self.target: Target = as_target("llvm")
        self.target_host: Target | None = None
        self.flop = 0.0
        self.calls = 1  # of a network that the task stands for
        self.names: frozenset[str] = frozenset()  # that a model gave them, and the calls behind each
        self.around: Any = None  # Any: a Relay function of the call and of what a network fuses to it
        self.sizes: tuple[dict[str, int], ...] = ({},)  # that a trial runs at; typical ones where they are not stated

    @property
    def workload(self) -> Workload:
        """What records are found by."""
        return (self.name, *self.args)

    @property
    def template(self) -> TaskTemplate:
        return find_template(self.name)

    def instantiate(self, config: ConfigSpace) -> Any:  # Any: as in TaskTemplate.instantiate
        """Run the template with a configuration; an InstantiationError says what the template refuses."""
        config.errors.clear()
        config.flop = 0.0
        with using_config(config), self.target:
            result = self.template.instantiate(self.args)
        config.check()
        if isinstance(config, ConfigSpace) and not config.flop:
            config.flop = self.flop
        return result

    def __getstate__(self) -> dict[str, Any]:
        around = "" if self.around is None else astext(self.around, show_meta_data=True)
        where = {"target": str(self.target), "target_host": self.target_host and str(self.target_host)}
        more = {"around": around, "calls": self.calls, "flop": self.flop, "run_at": self.sizes}
        return {"name": self.name, "args": self.args, **where, **more}

    def __setstate__(self, state: dict[str, Any]) -> None:
        task = create(state["name"], state["args"], state["target"], state["target_host"])
        self.__dict__.update(task.__dict__)
        self.calls, self.flop, self.sizes = state["calls"], state["flop"], state["run_at"]
        if state["around"]:
            self.around = parse_expr(state["around"])
            infer_type(self.around)

    def __repr__(self) -> str:
        return f"Task(func_name={self.name}, args={self.args}, kwargs={self.kwargs}, workload={self.workload})"


def create(task_name: Any, args: Sequence[object], target: object = None, target_host: object = None) -> Task:
    """The task of a template (Any: its name, or the function itself) for arguments on a target."""
    name = getattr(task_name, "__name__", task_name)
    Arguments("autotvm.task.create", TuningError).text("task_name", name, is_empty_allowed=False)
    where = as_target(target if target is not None else Target.current() or "llvm")
    if target_host is not None:
        where = Target(where, host=target_host)
    result = Task(name, args)
    result.target, result.target_host = where, where.host
    space = result.config_space
    space.code_hash = result.template.code_hash
    with using_config(space), where:
        instance = result.template.instantiate(result.args)
    result.flop = space.flop or _flop_of(instance)
    return result


def _flop_of(instance: object) -> float:  # as in TaskTemplate.instantiate
    schedule = instance[0] if isinstance(instance, tuple) else None
    if not isinstance(schedule, te.Schedule):
        raise TuningError("a template gives (schedule, tensors)", hint="return s, [A, B, C]")
    return compute_flop(schedule)


def config_of(task: Task, entity: ConfigEntity) -> ConfigEntity:
    """The configuration of a record in today's space of its task; TuningError says what does not fit."""
    index = task.config_space.index_of(entity.entity_map)
    try:
        return task.config_space.get(index)
    except ArmillaryError as error:
        raise TuningError(f"the record {entity} does not fit {task.name}: {error.message}") from None
