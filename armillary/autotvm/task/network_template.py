"""Templates of networks' contractions: one call, and what a network fuses to it, built as networks are.

In: the arguments of a task: types of operands, attributes. Out: its space, the library of a configuration, what the
operator's reference answers. Invariant: a trial is a network of the one call with the choice a record would give it.
What there is to choose: `network_cpu.py`, `network_opencl.py`. Which calls become tasks: `network.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from armillary.artifact.kernel import CompiledKernel
from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.trial import random_input
from armillary.autotvm.task.epilogue import with_choice
from armillary.autotvm.task.space import ConfigSpace
from armillary.autotvm.task.task import TENSOR, Shapes, Task, TaskTemplate, get_config
from armillary.backends.records import FunctionRule, keyed_attributes, keyed_extent, keyed_values
from armillary.base.aliases import Array
from armillary.base.dispatch import Workload
from armillary.base.record import record
from armillary.driver.build import assembled, optimized
from armillary.driver.kernels import compile_kernels
from armillary.driver.library import FunctionLibrary
from armillary.driver.lower_fused import lower_fused
from armillary.driver.program_codegen import Kernel, plan_network
from armillary.ir import IRModule
from armillary.relay.analysis.bind_sizes import bind_sizes, bind_type, sizes_in
from armillary.relay.analysis.meeting_sizes import parameter_sizes
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Expr, Function, Var, const, var
from armillary.relay.infer import infer_type
from armillary.relay.op import Op
from armillary.relay.types import TensorType
from armillary.relay.walk import post_order
from armillary.relay.work import function_work
from armillary.target import Target, as_target
from armillary.target.choice import Choice
from armillary.tir.stmt import PrimFunc
from armillary.transform import PassContext

Args = Sequence[Any]  # of a task: tensors as ("TENSOR", shape, dtype), attributes
_NAMES = ("data", "second", "third", "fourth")
LEVEL = 3  # of optimisation, at which layouts and algorithms are chosen


def at_level() -> PassContext:
    """The options in force, at the level that networks are tuned for."""
    now = PassContext.current()
    return PassContext(LEVEL, now.required_pass, now.disabled_pass, None, dict(now.config))


@record
class Family:
    """What is tuned on a family of targets: operators of networks and the tasks that compute them, the pass that looks
    records up, and what it looks the calls of a function up by."""

    tasks: Mapping[str, tuple[str, ...]]
    applied_by: Any  # Any: a pass
    rule_of: FunctionRule


class NetworkTemplate(TaskTemplate, ABC):
    """One contraction of networks. A subclass says what it can choose from: `define`, `estimates`, `choice_of`."""

    with_constant = False  # the second operand is a constant, as in networks

    def __init__(self, name: str, op: Op) -> None:
        super().__init__(name, self.instantiate)
        self.op, self.code_hash = op, None

    @abstractmethod
    def choice_of(self, config: ConfigSpace, workload: Workload) -> Choice:
        """The choice that a configuration states."""

    @abstractmethod
    def kernel(self, args: Args, where: Target) -> Kernel:
        """The kernel of the call without transforms, for the number of its operations."""

    @abstractmethod
    def define(self, config: ConfigSpace, args: Args, where: Target) -> None:
        """Define the space's knobs."""

    def as_lowered(self, function: Function, where: Target) -> Function:
        """A kernel in the form that is lowered."""
        return function

    def operands(self, args: Args) -> tuple[Expr, ...]:
        """What the call reads: variables, or a constant where a network has one."""
        types = [TensorType(tuple(map(keyed_extent, a[1])), a[2]) for a in args if _is_tensor(a)]
        result: list[Expr] = [var(_NAMES[place], of) for place, of in enumerate(types)]
        if self.with_constant:
            result[1] = const(random_input(1, types[1].static, str(types[1].dtype), 0))
        return tuple(result)

    def module(self, args: Args, choice: Choice | None = None, around: Function | None = None) -> IRModule:
        """A network of the one call, and of what is `around` it; `choice` is what it carries."""
        if around is not None:
            return IRModule.from_expr(with_choice(around, self.op, str(choice or "")))
        values = keyed_values(self.op, [a for a in args if not _is_tensor(a)])
        attrs = self.op.make_attrs(named={**values, "choice": str(choice or "")})
        operands = self.operands(args)
        func = Function(tuple(o for o in operands if isinstance(o, Var)), Call(self.op, operands, attrs))
        infer_type(func)
        return IRModule.from_expr(func)

    def instantiate(self, args: Args) -> IRModule:
        self._check(args)
        config = get_config()
        where = Target.current() or as_target("llvm")
        self.define(config, args, where)
        config.add_flop(self.flop(args, where, ({},)))
        return self.module(args)

    def flop(self, args: Args, where: Target, sizes: Sequence[Mapping[str, int]]) -> int:
        """Operations of the call once at each of these sizes, at typical ones of those that are not stated."""
        function = self.kernel(args, where).function
        return sum(function_work(bound).direct for bound in at_each_size(function, sizes))

    def _check(self, args: Args) -> None:
        tensors, attrs = [a for a in args if _is_tensor(a)], keyed_attributes(self.op)
        if len(tensors) != len(self.op.inputs) or len(args) - len(tensors) < len(attrs):
            message = f"{self.name} takes {len(self.op.inputs)} tensors and {len(attrs)} attributes"
            got = f"got {len(tensors)} and {len(args) - len(tensors)}"
            hint = f"tasks of networks come from autotvm.task.extract_from_program; attributes: {', '.join(attrs)}"
            raise TuningError(f"{message}, {got}", hint=hint)

    def kernel_with(self, args: Args, where: Target, choice: Choice | None) -> Kernel:
        """The kernel of the call with a choice, as a build makes it."""
        with at_level():
            main = optimized(self.module(args, choice), where)["main"]
        kernels = [k for k in plan_network(main).kernels.values() if self._computes(k.function)]
        if len(kernels) != 1:
            raise TuningError(f"{self.op.name}{tuple(args)} becomes {len(kernels)} kernels of itself")
        return kernels[0]

    def _computes(self, function: Function) -> bool:
        calls: list[Any] = [e.op for e in post_order(function.body) if isinstance(e, Call)]  # Any: operators
        return any(isinstance(op, Op) and op.name in (self.op.name, *self.becomes()) for op in calls)

    def becomes(self) -> tuple[str, ...]:
        """Operators that a choice turns the call into."""
        return ()

    def library(self, task: Task, config: ConfigSpace) -> FunctionLibrary:
        """The network of the call with a configuration's choice."""
        choice = self.choice_of(config, task.workload)
        with at_level():
            module = optimized(self.module(task.args, choice, task.around), task.target)
            return assembled(module, task.target, compiler=_compile_here)

    def shapes(self, task: Task) -> list[Shapes]:
        return shapes_at(self.module(task.args, around=task.around)["main"], task.sizes)

    def loops(self, task: Task, config: ConfigSpace) -> PrimFunc:
        """The loops of the kernel, before the passes over loops."""
        kernel = self.kernel_with(task.args, task.target, self.choice_of(config, task.workload))
        return lower_fused(self.as_lowered(kernel.function, task.target), task.target, kernel.name)

    def reference(self, task: Task) -> Callable[[int], list[Array]]:
        """What the operator's reference answers to the inputs of a trial, at each of its sizes."""
        module = self.module(task.args, around=task.around)

        def answer(seed: int) -> list[Array]:
            results = list[Array]()
            for function in at_each_size(module["main"], task.sizes):
                types: list[Any] = [p.checked_type for p in function.params]  # Any: tensor types
                arrays = [random_input(i, t.static, str(t.dtype), seed) for i, t in enumerate(types)]
                results.append(np.asarray(evaluate(IRModule.from_expr(function), arrays)))
            return results

        return answer


def shapes_at(function: Function, sizes: Sequence[Mapping[str, int]]) -> list[Shapes]:
    """The shapes of a function's parameters by name, at each of some sizes."""
    typical = {name: size.typical for name, size in parameter_sizes(function).items()}
    types = [(p.name_hint, p.type_annotation) for p in function.params if p.type_annotation is not None]
    bound = [[(name, bind_type(of, {**typical, **row})) for name, of in types] for row in sizes]
    return [{name: of.static for name, of in row if isinstance(of, TensorType)} for row in bound]


def at_each_size(function: Function, sizes: Sequence[Mapping[str, int]]) -> Iterator[Function]:
    """The function at each of some sizes, at typical ones of those that are not stated."""
    typical = {name: size.typical for name, size in sizes_in(function).items()}
    for row in sizes:
        bound = bind_sizes(function, {**typical, **row})
        infer_type(bound)
        yield bound


def _is_tensor(arg: object) -> bool:  # an argument of a task
    return isinstance(arg, tuple | list) and len(arg) == 3 and arg[0] == TENSOR


def _compile_here(kernels: Sequence[Kernel], where: Target, progress: object) -> dict[str, CompiledKernel]:
    """In this process, which is one trial's own, through the cache: finals, a resumed run and the network itself find
    what a trial compiled."""
    return compile_kernels(kernels, where, is_alone=True)
