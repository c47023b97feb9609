"""Tasks of networks: the contractions of a module, each as a kernel of its own with the choices of this compiler.

In: a module, a target. Out: a task for each different convolution and product, found by the workload that the pass
apply-records looks up, so a record is used wherever a build meets that workload. Invariant: a trial is a network of the
one call (and what is fused to it), built as networks are; its answer is checked against the operator's reference.
What there is to choose: `cpu_space.py`. Which calls are tuned: backends/cpu/graph/apply_records.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.trial import Array, random_input
from armillary.autotvm.task.cpu_space import Point, direct_points, winograd_points
from armillary.autotvm.task.space import ConfigSpace, point2knob
from armillary.autotvm.task.surroundings import chain_behind, name_of, readers_of, surrounded, with_choice
from armillary.autotvm.task.task import TENSOR, Task, TaskTemplate, create, get_config, register_template
from armillary.backends.anchor import find_anchor
from armillary.backends.cpu.graph import apply_records
from armillary.backends.cpu.graph._one_row import with_one_row
from armillary.backends.cpu.graph.winograd_conv2d import eligible
from armillary.base.dispatch import Workload
from armillary.driver.build import assembled, optimized
from armillary.driver.graph_codegen import Kernel, plan_graph
from armillary.driver.kernel_code import compile_kernel
from armillary.driver.kernels import CompiledKernel
from armillary.driver.library import FunctionLibrary
from armillary.driver.lower_fused import lower_fused, workload_of
from armillary.ir import IRModule
from armillary.relay.binding import bind_params_by_name
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Expr, Function, Var, const, var
from armillary.relay.infer import infer_type
from armillary.relay.op import Op, get_op
from armillary.relay.transform.pipeline import build_passes
from armillary.relay.types import TensorType
from armillary.relay.walk import not_primitive, post_order
from armillary.relay.work import function_work
from armillary.target import Target, as_target
from armillary.target.choice import Choice
from armillary.target.cpu import cpu_model
from armillary.tir.stmt import PrimFunc
from armillary.transform import PassContext, Sequential

logger = logging.getLogger("autotvm")
Met = tuple[Call, list[Call]]  # a contraction, and the calls behind it
LEVEL = 3  # of optimisation, at which layouts and algorithms are chosen
_PLAIN = {  # operators of networks, and the tasks that compute them
    "nn.conv2d": ("conv2d_NCHWc.cpu", "depthwise_conv2d_NCHWc.cpu"),
    "nn.dense": ("dense_pack.cpu", "dense.cpu"),
    "nn.batch_matmul": ("batch_matmul.cpu",),
}
CONV2D, WINOGRAD = "nn.contrib_conv2d_NCHWc", "nn.contrib_conv2d_winograd_NCHWc"
_WITH_CONSTANT = ("conv2d_NCHWc.cpu", "depthwise_conv2d_NCHWc.cpu", "dense_pack.cpu")


def at_level() -> PassContext:
    """The options in force, at the level that networks are tuned for."""
    now = PassContext.current()
    return PassContext(LEVEL, now.required_pass, now.disabled_pass, None, dict(now.config))


class NetworkTemplate(TaskTemplate):
    """One contraction of networks."""

    def __init__(self, name: str, op: Op) -> None:
        super().__init__(name, self.instantiate)
        self.op, self.code_hash = op, None

    def operands(self, args: Sequence[Any]) -> tuple[Expr, Expr]:
        """What the call reads: variables, or a constant where a network has one."""
        types = [TensorType(a[1], a[2]) for a in args if _is_tensor(a)]
        data, second = var("data", types[0]), var("second", types[1])
        if self.name in _WITH_CONSTANT:
            return data, const(random_input(1, types[1].static, str(types[1].dtype), 0))
        return data, second

    def module(self, args: Sequence[Any], choice: Choice | None = None, around: Function | None = None) -> IRModule:
        """A network of the one call, and of what is `around` it; `choice` is what it carries."""
        if around is not None:
            return IRModule.from_expr(with_choice(around, self.op, str(choice or "")))
        names = apply_records.keyed_attributes(self.op)
        values = dict(zip(names, [a for a in args if not _is_tensor(a)][: len(names)], strict=True))
        attrs = self.op.make_attrs(named={**values, "choice": str(choice or "")})
        operands = self.operands(args)
        made = Function(tuple(o for o in operands if isinstance(o, Var)), Call(self.op, operands, attrs))
        infer_type(made)
        return IRModule.from_expr(made)

    def instantiate(self, args: Sequence[Any]) -> IRModule:
        config = get_config()
        where = Target.current() or as_target("llvm")
        kernel = self._kernel(args, where, Choice("conv2d.direct") if self._can_transform(args) else None)
        width, points = self.points(args, where)
        knobs = [point.knobs() for point in points]
        for name in ("winograd", "strip", "rows", "vectors", "lines"):
            config.define_knob(name, sorted({row[name] for row in knobs}))
        config.define_knob("width", [width])
        config.restrict([{**row, "width": width} for row in knobs])
        config.add_flop(function_work(kernel.function).direct)
        return self.module(args)

    def points(self, args: Sequence[Any], where: Target) -> tuple[int, list[Point]]:
        """The outputs of a row, and everything there is to choose."""
        is_direct = Choice("conv2d.direct") if self.name == "conv2d_NCHWc.cpu" else None
        function = with_one_row(self._kernel(args, where, is_direct).function, where)
        anchor = find_anchor(function)
        assert anchor is not None, "the kernel of a contraction has it"
        width, found = direct_points(workload_of(function, anchor, where))
        if self._can_transform(args):
            layer = eligible(self.module(args)["main"].body)
            assert layer is not None, "the workload says so"
            found += winograd_points(layer, cpu_model(where))
        return width, found

    def _can_transform(self, args: Sequence[Any]) -> bool:
        return self.name == "conv2d_NCHWc.cpu" and bool(args[-1])

    def _kernel(self, args: Sequence[Any], where: Target, choice: Choice | None) -> Kernel:
        """The kernel of the call, as a build makes it."""
        with at_level():
            main = optimized(self.module(args, choice), where)["main"]
        kernels = [k for k in plan_graph(main).kernels.values() if _computes(k.function, self.op.name)]
        if len(kernels) != 1:
            raise TuningError(f"{self.op.name}{tuple(args)} becomes {len(kernels)} kernels of itself")
        return kernels[0]

    def library(self, task: Task, config: ConfigSpace) -> FunctionLibrary:
        """The network of the call with a configuration's choice."""
        choice = apply_records.choice_of(config, task.workload)
        with at_level():
            module = optimized(self.module(task.args, choice, task.around), task.target)
            return assembled(module, task.target, compiler=_compile_here)

    def loops(self, task: Task, config: ConfigSpace) -> PrimFunc:
        """The loops of the kernel, before the passes over loops."""
        kernel = self._kernel(task.args, task.target, apply_records.choice_of(config, task.workload))
        return lower_fused(with_one_row(kernel.function, task.target), task.target, kernel.name)

    def reference(self, task: Task) -> Callable[[int], list[Array]]:
        """What the operator's reference answers to the inputs of a trial."""
        module = self.module(task.args, around=task.around)

        def answer(seed: int) -> list[Array]:
            types: list[Any] = [p.checked_type for p in module["main"].params]  # Any: tensor types
            given = [random_input(i, t.static, str(t.dtype), seed) for i, t in enumerate(types)]
            return [np.asarray(evaluate(module, given))]

        return answer

    def estimates(self, task: Task) -> list[tuple[int, float]]:
        """Configurations with their estimated seconds on one thread, the least first."""
        cpu = cpu_model(task.target)
        with task.target, at_level():
            width, points = self.points(task.args, task.target)
        dims, space = task.config_space.dims, task.config_space.space_map
        places = {name: {e.to_json(): i for i, e in enumerate(rows)} for name, rows in space.items()}
        found = []
        for point in points:
            knobs = {**point.knobs(), "width": width}
            index = point2knob([places[name][knobs[name]] for name in space], dims)
            found.append((index, point.cycles / cpu.memory.ghz * 1e-9))
        return sorted(found, key=lambda row: row[1])


def _is_tensor(arg: Any) -> bool:  # Any: an argument of a task
    return isinstance(arg, tuple | list) and len(arg) == 3 and arg[0] == TENSOR


def _computes(function: Function, name: str) -> bool:
    names = {name, WINOGRAD if name == CONV2D else name}
    calls: list[Any] = [e.op for e in post_order(function.body) if isinstance(e, Call)]  # Any: operators
    return any(isinstance(op, Op) and op.name in names for op in calls)


def _compile_here(kernels: Sequence[Kernel], where: Target, progress: Any) -> dict[str, CompiledKernel]:
    """In this process, which is one trial's own (Any: the progress callback, which nobody watches)."""
    return {k.name: compile_kernel(k, where, jobs=1) for k in kernels}


for _op, _name in apply_records.TUNED.items():
    register_template(NetworkTemplate(_name, get_op(_op)))


def extract_from_program(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    ops: Sequence[Op] | None = None,
    *,
    try_spatial_pack_depthwise: bool = True,
) -> list[Task]:
    """The tasks of a module, one for each different workload; `ops` says of which operators (default: all there are).

    `try_spatial_pack_depthwise`: depthwise convolutions are tuned too; if not, the model of costs chooses for them.
    Any: arrays; whatever Target accepts.
    """
    found = extract_from_multiple_program([mod], [params], target, target_host, ops)
    return [task for task in found if try_spatial_pack_depthwise or not task.name.startswith("depthwise")]


def extract_from_multiple_program(
    mods: Sequence[IRModule | Function],
    params: Sequence[Mapping[str, Any] | None],
    target: Any = None,
    target_host: Any = None,
    ops: Sequence[Op] | None = None,
) -> list[Task]:
    """The tasks of several modules, each workload once."""
    where = as_target(target if target is not None else Target.current() or "llvm")
    if where.kind.family != "cpu":
        raise TuningError(f"networks are tuned for CPUs, the target is {where}", hint="kinds: llvm, c")
    wanted, met = _wanted(ops), dict[Workload, list[Met]]()
    for mod, values in zip(mods, params, strict=True):
        for workload, call, chain in _calls(mod, values, where):
            if workload[0] in wanted:
                met.setdefault(workload, []).append((call, chain))
    found = [(_task(workload, where, target_host), rows) for workload, rows in met.items()]
    return [_surround(task, rows) for task, rows in found if task is not None]


def _surround(task: Task, rows: Sequence[Met]) -> Task:
    """A task that knows how often it is met, and runs what most of the calls have behind them."""
    task.calls = len(rows)
    names = [name_of(chain) for _, chain in rows]
    call, chain = rows[names.index(max(names, key=names.count))]
    if chain:
        template: Any = task.template  # Any: a NetworkTemplate
        task.around = surrounded(call, chain, template.operands(task.args))
    return task


def _wanted(ops: Sequence[Op] | None) -> set[str]:
    if ops is None:
        return set(apply_records.TUNED.values())
    unknown = [op.name for op in ops if op.name not in _PLAIN]
    if unknown:
        raise TuningError(f"{unknown[0]} is not tuned", hint=f"ops may be {', '.join(_PLAIN)}")
    return {name for op in ops for name in _PLAIN[op.name]}


def _task(workload: Workload, where: Target, host: Any) -> Task | None:  # Any: whatever Target accepts
    try:
        return create(workload[0], workload[1:], where, host)
    except TuningError as error:
        logger.info("no task for %s: %s", workload, error.message)
        return None


def _calls(
    mod: IRModule | Function, params: Mapping[str, Any] | None, where: Target
) -> Iterator[tuple[Workload, Call, list[Call]]]:
    """The contractions of a module as they are when records are looked up, with what is fused to each."""
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    if params:
        module = module.copy()
        module["main"] = bind_params_by_name(module["main"], params)
    passes = build_passes(where)
    last = [p.name for p in passes].index(apply_records.apply_records.info.name)
    with at_level(), where:
        laid_out = Sequential(passes[:last], "until-layouts")(module)
        functions: Iterable[Any] = [f for _, f in laid_out.items() if isinstance(f, Function)]
        for function in functions:
            infer_type(function)
            readers = readers_of(function)
            for expr in post_order(function, not_primitive):
                workload = apply_records.workload_of(expr)
                if workload is not None and isinstance(expr, Call):
                    yield workload, expr, chain_behind(expr, readers)
