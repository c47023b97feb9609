"""Tasks of networks: the contractions of a module, each as a kernel of its own with the choices of this compiler.

In: a module, a target. Out: a task for each different convolution and product, found by the workload that the passes
which apply records look up, so a record is used wherever a build meets that workload. Invariant: extraction runs the
passes of a build up to that one. What a task is: `network_template.py`. Which calls are tuned: `apply_records.py` of a
back end's graph passes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from armillary.autotvm.errors import TuningError
from armillary.autotvm.task import network_cpu, network_opencl
from armillary.autotvm.task.epilogue import epilogue_of, name_of, readers_of, with_epilogue
from armillary.autotvm.task.network_template import Family, at_level
from armillary.autotvm.task.task import Task, create
from armillary.backends.records import open_extents
from armillary.base.aliases import Array
from armillary.base.arguments import Arguments
from armillary.base.dispatch import Workload
from armillary.base.extent import size_values, typical
from armillary.base.record import record
from armillary.ir import IRModule
from armillary.relay.analysis.meeting_sizes import parameter_sizes, with_meeting_sizes
from armillary.relay.analysis.usual_sizes import with_usual_sizes
from armillary.relay.binding import bind_params_by_name
from armillary.relay.expr import Call, Expr, Function, Var, has_untyped
from armillary.relay.infer import infer_type
from armillary.relay.op import Op
from armillary.relay.transform._rules import tensor
from armillary.relay.transform.pipeline import build_passes
from armillary.relay.types import TensorType
from armillary.relay.walk import children, not_primitive, post_order, users
from armillary.target import Target, as_target
from armillary.transform import Sequential

logger = logging.getLogger("autotvm")
Met = tuple[Call, list[Call]]  # a contraction, and the calls behind it
IMAGE_RANK = 5  # of data with channels in blocks


_FAMILIES = {"cpu": network_cpu.FAMILY, "opencl": network_opencl.FAMILY}


def _family(where: Target) -> Family:
    result = _FAMILIES.get(where.kind.family)
    if result is None:
        raise TuningError(f"networks are not tuned for the target {where}", hint="kinds: llvm, c, opencl")
    return result


def extract_from_program(
    mod: IRModule | Function,
    params: Mapping[str, object] | None = None,
    target: object = None,
    target_host: object = None,
    ops: Sequence[Op] | None = None,
    *,
    try_spatial_pack_depthwise: bool = True,
    sizes: Sequence[Mapping[str, int]] = (),
) -> list[Task]:
    """The tasks of a module, one for each different workload; `ops` says of which operators (default: all there are).

    `sizes`: values of the module's open sizes that trials run at, one after another: the cost of a trial is the sum of
    its times, so a size that is stated twice counts twice. Those that nobody states have typical values. A record is
    for every size. ConfigError for a name that is no size of the module.
    `try_spatial_pack_depthwise`: depthwise convolutions are tuned too; if not, the model of costs chooses for them.
    Any: arrays; whatever Target accepts.
    """
    arguments = Arguments("extract_from_program", TuningError)
    arguments.kind("argument mod", mod, (IRModule, Function), "a module or a function")
    arguments.kind("params", {} if params is None else params, Mapping, "arrays by name")
    tasks = extract_from_multiple_program([mod], [params], target, target_host, ops, sizes=sizes)
    return [task for task in tasks if try_spatial_pack_depthwise or not task.name.startswith("depthwise")]


def extract_from_multiple_program(
    mods: Sequence[IRModule | Function],
    params: Sequence[Mapping[str, Any] | None],
    target: object = None,
    target_host: object = None,
    ops: Sequence[Op] | None = None,
    *,
    sizes: Sequence[Mapping[str, int]] = (),
) -> list[Task]:
    """The tasks of several modules, each workload once; `sizes`: as for one module."""
    where = as_target(target if target is not None else Target.current() or "llvm")
    wanted, met = _wanted(ops, _family(where)), dict[Workload, list[Met]]()
    for mod, values in zip(mods, params, strict=True):
        _check_sizes(mod, sizes)
        for workload, call, chain in _calls(mod, values, where):
            if workload[0] in wanted:
                met.setdefault(workload, []).append((call, chain))
    tasks = [(_task(workload, where, target_host), rows) for workload, rows in met.items()]
    return [_surround(task, rows, sizes) for task, rows in tasks if task is not None]


def _check_sizes(mod: IRModule | Function, sizes: Sequence[Mapping[str, int]]) -> None:
    function = mod["main"] if isinstance(mod, IRModule) else mod
    for row in sizes:
        size_values(parameter_sizes(function), row)


def _surround(task: Task, rows: Sequence[Met], sizes: Sequence[Mapping[str, int]]) -> Task:
    """A task that knows how often it is met, and runs what most of the calls have behind them."""
    task.calls = len(rows)
    met = [expr for call, chain in rows for expr in (call, *chain)]
    task.names = frozenset(e.span.name for e in met if e.span is not None and e.span.name)
    names = [name_of(chain) for _, chain in rows]
    call, chain = rows[names.index(max(names, key=names.count))]
    template: Any = task.template  # Any: a NetworkTemplate
    extents = open_extents(call)
    if sizes and extents:
        task.sizes = tuple({f"n{n}": typical(e, row) for n, e in enumerate(extents)} for row in sizes)
        with task.target:
            task.flop = float(template.flop(task.args, task.target, task.sizes))
    if chain:
        task.around = with_epilogue(call, chain, template.operands(task.args))
    return task


def _wanted(ops: Sequence[Op] | None, family: Family) -> set[str]:
    arguments = Arguments("extract_from_program", TuningError)
    arguments.kind("ops", () if ops is None else ops, (list, tuple), "a list of operators", "relay.op.get(name)")
    for op in ops or ():
        arguments.kind("ops", op, Op, "a list of operators", "relay.op.get(name)")
    names = list(family.tasks) if ops is None else [op.name for op in ops]
    unknown = [name for name in names if name not in family.tasks]
    if unknown:
        raise TuningError(f"{unknown[0]} is not tuned", hint=f"ops may be {', '.join(family.tasks)}")
    return {task for name in names for task in family.tasks[name]}


def _task(workload: Workload, where: Target, host: object) -> Task | None:  # whatever Target accepts
    try:
        return create(workload[0], workload[1:], where, host)
    except TuningError as error:
        logger.info("no task for %s: %s", workload, error.message)
        return None


def _calls(
    mod: IRModule | Function, params: Mapping[str, object] | None, where: Target
) -> Iterator[tuple[Workload, Call, list[Call]]]:
    """The contractions of a module as they are when records are looked up, with what is fused to each."""
    for function in _laid_out(mod, params, where):
        workload_of, readers = _family(where).rule_of(function), readers_of(function)
        for expr in post_order(function, not_primitive):
            workload = workload_of(expr)
            if workload is not None and isinstance(expr, Call):
                yield workload, expr, epilogue_of(expr, readers)


def _laid_out(mod: IRModule | Function, params: Mapping[str, object] | None, where: Target) -> Iterator[Function]:
    """The typed functions of a module as they are when records are looked up."""
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    main = bind_params_by_name(module["main"], params) if params else module["main"]
    weights = _unbound_weights(main)
    if params or weights:
        module = module.copy()
        module["main"] = bind_params_by_name(main, weights)
    module = with_usual_sizes(with_meeting_sizes(module))  # as a build does, so that workloads have its sizes
    with at_level(), where:
        passes = build_passes(where)  # which depend on the level
        last = [p.name for p in passes].index(_family(where).applied_by.info.name)
        laid_out = Sequential(passes[:last], "until-layouts")(module)
        functions: Iterable[Any] = [f for _, f in laid_out.items() if isinstance(f, Function)]
        for function in functions:
            infer_type(function)
            yield function


def _unbound_weights(main: Function) -> dict[str, Array]:
    """Arrays for parameters that nothing reads but as a weight: a build that has them makes their tasks.

    Workloads do not depend on values; those of 0 or 1 would be simplified.
    """
    readers = users(post_order(main))
    random = np.random.default_rng(0)
    result: dict[str, Array] = {}
    for param in main.params:
        reads = [e for e in readers.get(id(param), ()) if e is not main]
        ty = None if has_untyped(param) else param.checked_type
        if not isinstance(ty, TensorType) or not all(isinstance(n, int) for n in ty.shape):
            continue
        if reads and all(_is_weight_of(param, e) for e in reads):
            result[param.name_hint] = random.uniform(2, 100, ty.concrete_shape).astype(ty.dtype.numpy)
    return result


def _is_weight_of(param: Var, reader: Expr) -> bool:
    if not isinstance(reader, Call) or not isinstance(reader.op, Op):
        return False
    places = [name for name, arg in zip(reader.op.inputs, reader.args, strict=False) if arg is param]
    return places == ["weight"]


@record
class Link:
    """A convolution whose result another one reads, and the bytes that lie between, in all places where they meet."""

    first: Workload
    second: Workload
    bytes: int


def links_of_program(mod: IRModule, params: Mapping[str, object] | None, target: object) -> list[Link]:
    """Which convolutions of a module read what others give: through whatever keeps images in blocks of channels, such
    as sums, poolings, concatenations. target: as Target accepts it."""
    where, links = as_target(target), dict[tuple[Workload, Workload], int]()
    for function in _laid_out(mod, params, where):
        workload_of = _family(where).rule_of(function)
        above: dict[int, frozenset[int]] = {}  # by the id of an expression, of the convolutions that it comes from
        met: dict[int, tuple[Workload, int]] = {}
        for expr in post_order(function, not_primitive):
            if not isinstance(expr, Call):
                above[id(expr)] = frozenset[int]().union(*(above.get(id(e), ()) for e in children(expr)))
                continue
            sources = frozenset[int]().union(*(above.get(id(a), ()) for a in expr.args))
            type_, workload = tensor(expr), workload_of(expr)
            is_image = type_ is not None and len(type_.shape) == IMAGE_RANK
            above[id(expr)] = sources if is_image else frozenset()
            if workload is not None and is_image and type_ is not None:
                read = tensor(expr.args[0])
                for first, size in (met[source] for source in sources):
                    moved = min(size, read.nbytes if read is not None else size)
                    links[first, workload] = links.get((first, workload), 0) + moved
                met[id(expr)], above[id(expr)] = (workload, type_.nbytes), frozenset({id(expr)})
    return [Link(first, second, size) for (first, second), size in links.items()]
