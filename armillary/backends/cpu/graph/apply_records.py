"""apply-records: calls get the choices that tuning records name, or a script.

In: a module after alter-op-layout, the dispatch contexts in force (base/dispatch.py), the option `schedule.choice`,
which comes first. Out: contractions for which there is one carry it as their attribute `choice`; winograd-conv2d and
the schedules take it from there. Invariant: as in backends/records.py, which does what all families do alike.

    nn.contrib_conv2d_NCHWc(%x, weight)
    ->
    nn.contrib_conv2d_NCHWc(%x, weight, choice="conv2d.direct rows=7 vectors=4 lines=1 | by record")

What a choice may be: target/choice.py. Where records come from: autotvm/task/dispatcher.py.
"""

from __future__ import annotations

from typing import Any

from armillary.backends.cpu.graph.winograd_conv2d import eligible
from armillary.backends.overrides import SCHEDULE_CHOICE, keys_of
from armillary.backends.records import call_key, with_records
from armillary.base.dispatch import Workload
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr
from armillary.relay.op import Op, is_call
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


@define_pass("apply-records", opt_level=0)
def apply_records(module: IRModule, *, target: Target | None = None) -> IRModule:
    """Attach the stored choices of the current dispatch context."""
    chosen = Target(target if target is not None else Target.current() or "llvm")
    return with_records(module, chosen, workload_of, choice_of, _refuse)


def _refuse(expr: Expr, asked: Choice) -> None:
    """A convolution in plain layout is computed by nothing that has a choice."""
    if is_call(expr, "nn.conv2d"):
        told = f"{SCHEDULE_CHOICE.name}: the choice {asked.algorithm} does not fit {keys_of(expr)[-2]}"
        raise ConfigError(f"{told}: alter-op-layout does not run", hint="opt_level=3 runs it")


def workload_of(expr: Expr) -> Workload | None:
    """What records of a call are found by: a name, the types of its operands, its attributes, and for convolutions
    whether Winograd's algorithm can compute it; None for calls that are not tuned."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op.name not in TUNED:
        return None
    key = call_key(expr, expr.op)
    if key is None:
        return None
    can_transform = (eligible(expr) is not None,) if expr.op.name == "nn.contrib_conv2d_NCHWc" else ()
    return (TUNED[expr.op.name], *key, *can_transform)


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
