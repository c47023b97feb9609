"""apply-records: calls get the choices that tuning records name, or a script.

In: a module after alter-op-layout, the dispatch contexts in force (base/dispatch.py), the option `schedule.choice`,
which comes first. Out: contractions for which there is one carry it as their attribute `choice`; winograd-conv2d and
the schedules take it from there. Invariant: nothing changes outside of a dispatch context and without the option; a
choice is printed with the call, so caches tell kernels apart by it.

    nn.contrib_conv2d_NCHWc(%x, weight)
    ->
    nn.contrib_conv2d_NCHWc(%x, weight, choice="conv2d.direct rows=7 vectors=4 lines=1 | by record")

What a choice may be: target/choice.py. Where records come from: autotvm/task/dispatcher.py.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from armillary.backends.cpu.graph.winograd_conv2d import eligible
from armillary.backends.overrides import SCHEDULE_CHOICE, asked_choice, asked_choices, keys_of
from armillary.base.dispatch import DispatchContext, Workload
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import Op, is_call
from armillary.relay.transform._rules import on_functions, tensor
from armillary.relay.walk import not_primitive, rewrite
from armillary.target import Target
from armillary.target.choice import Choice, Guard, Source
from armillary.transform import define_pass

TUNED = {
    "nn.contrib_conv2d_NCHWc": "conv2d_NCHWc.cpu",
    "nn.contrib_depthwise_conv2d_NCHWc": "depthwise_conv2d_NCHWc.cpu",
    "nn.contrib_dense_pack": "dense_pack.cpu",
    "nn.dense": "dense.cpu",
    "nn.batch_matmul": "batch_matmul.cpu",
}
ALGORITHMS = {  # of tasks, without transforms
    "conv2d_NCHWc.cpu": "conv2d.direct",
    "depthwise_conv2d_NCHWc.cpu": "conv2d.depthwise",
    "dense_pack.cpu": "gemm.register_tiles",
    "dense.cpu": "gemm.register_tiles",
    "batch_matmul.cpu": "gemm.register_tiles",
}
_NO_KEY = ("choice", "kernel_size", "channels", "units")  # what the types tell


@define_pass("apply-records", opt_level=0)
def apply_records(module: IRModule, *, target: Any = None) -> IRModule:  # Any: whatever Target accepts
    """Attach the stored choices of the current dispatch context."""
    if not DispatchContext.current.has_records() and not asked_choices():
        return module
    chosen = Target(target if target is not None else Target.current() or "llvm")

    def rule(expr: Expr) -> Expr | None:
        asked, workload = asked_choice(expr), workload_of(expr)
        if asked and isinstance(expr, Call) and getattr(expr.attrs, "choice", None) == "":
            return Call(expr.op, expr.args, replace(expr.attrs, choice=str(asked)), expr.span)
        if asked and is_call(expr, "nn.conv2d"):
            told = f"{SCHEDULE_CHOICE.name}: the choice {asked.algorithm} does not fit {keys_of(expr)[-2]}"
            raise ConfigError(f"{told}: alter-op-layout does not run", hint="opt_level=3 runs it")
        config = None if workload is None else DispatchContext.current.query(chosen, workload)
        if workload is None or config is None:
            return None
        call: Any = expr  # Any: a Call, as it has a workload
        return Call(call.op, call.args, replace(call.attrs, choice=str(choice_of(config, workload))), call.span)

    def change(function: Function) -> Expr:
        return rewrite(function, rule, enter=not_primitive)

    return on_functions(module, change)


def workload_of(expr: Expr) -> Workload | None:
    """What records of a call are found by: a name, the types of its operands, its attributes, and for convolutions
    whether Winograd's algorithm can compute it; None for calls that are not tuned."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op.name not in TUNED or expr.attrs.choice:
        return None
    types = [tensor(argument) for argument in expr.args]
    if any(t is None or not all(isinstance(n, int) for n in t.shape) for t in types):
        return None
    operands = tuple(("TENSOR", tuple(t.static), str(t.dtype)) for t in types if t is not None)
    attributes = tuple(getattr(expr.attrs, name) for name in keyed_attributes(expr.op))
    can_transform = (eligible(expr) is not None,) if expr.op.name == "nn.contrib_conv2d_NCHWc" else ()
    return (TUNED[expr.op.name], *operands, *attributes, *can_transform)


def keyed_attributes(op: Op) -> list[str]:
    """The attributes that are part of a workload, in order."""
    return [f.name for f in fields(op.attrs_class) if f.name not in _NO_KEY]  # type: ignore[arg-type]


def choice_of(config: Any, workload: Workload) -> Choice:  # Any: a ConfigEntity; its package lies above
    """The choice that a configuration of a task states."""
    values = {name: config[name].val for name in config if hasattr(config[name], "val")}
    known = {"winograd", "strip", "rows", "vectors", "lines", "width"}
    if set(values) != set(config) or not {"rows", "vectors", "width"} <= set(values) <= known:
        told = f"the record {config} of {workload[0]} has other knobs than {', '.join(sorted(known))}"
        raise ConfigError(told, hint="tune again")
    order = ("rows", "vectors", "lines")
    tile = tuple((name, values.get(name, 1)) for name in order)
    size = values.get("winograd", 0)
    if size > 0:
        strip = (("strip", values["strip"]),) if values.get("strip", -1) >= 0 else ()
        return Choice("conv2d.winograd", (("tile", size), *strip, *tile), source=Source.RECORD)
    guards = (Guard("width", values["width"], values["width"]),)
    return Choice(ALGORITHMS[workload[0]], tile, source=Source.RECORD, guards=guards)
