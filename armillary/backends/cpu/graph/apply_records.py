"""apply-records: calls get the choices that tuning records name, or a script.

In: a module after alter-op-layout, the dispatch contexts in force (base/dispatch.py), the option `schedule.choice`,
which comes first. Out: contractions for which there is one carry it as their attribute `choice`; winograd-conv2d and
the schedules take it from there. A convolution whose choice names other layouts than it has is computed in those, with
changes of layout around it; those that lie in plain layouts got theirs before (_asked_layouts.py). Invariant: as in
backends/records.py, which does what all families do alike.

    nn.contrib_conv2d_NCHWc(%x, weight)
    ->
    nn.contrib_conv2d_NCHWc(%x, weight, choice="conv2d.direct rows=7 vectors=4 lines=1 | by record")

What knobs state: record_knobs.py. What a choice may be: target/choice.py. Where records come from:
autotvm/task/dispatcher.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from armillary.backends.cpu.conv2d.fourier import fourier_conv2d
from armillary.backends.cpu.conv2d.winograd.winograd_conv2d import WINOGRAD, eligible
from armillary.backends.overrides import SCHEDULE_CHOICE, keys_of
from armillary.backends.records import WorkloadRule, call_key, with_records
from armillary.base.data_layout import Layout, layout
from armillary.base.dispatch import Workload
from armillary.base.lazy import deferred
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function, shape_of
from armillary.relay.infer import infer_type
from armillary.relay.op import Op, is_call
from armillary.relay.transform._rules import call, on_functions, tensor
from armillary.relay.transform.layout._engine import transform
from armillary.relay.walk import not_primitive, post_order, rewrite
from armillary.target import Target
from armillary.target.choice import Choice, stored_choice
from armillary.transform import define_pass

with deferred():
    from armillary.backends.cpu import record_knobs  # most builds have no records


@define_pass("apply-records", opt_level=0)
def apply_records(module: IRModule, *, target: Target | None = None) -> IRModule:
    """Attach the stored choices of the current dispatch context."""
    chosen = Target(target if target is not None else Target.current() or "llvm")
    return _in_their_layouts(with_records(module, chosen, rule_of, _choice_of, _fits, _refuse))


def _in_their_layouts(module: IRModule) -> IRModule:
    """Convolutions whose choice names other layouts than they have get these, between changes of layout."""

    def change(function: Function) -> Expr:
        calls = [e for e in post_order(function, not_primitive) if _other_layouts(e)]
        return rewrite(function, _relaid, enter=not_primitive) if calls else function

    return on_functions(module, change)


def _other_layouts(expr: Expr) -> tuple[str, ...]:
    """The layouts of data, weight and result that a call's choice names, if they are not the call's own."""
    if not isinstance(expr, Call) or not getattr(expr.attrs, "choice", ""):
        return ()
    if getattr(expr.op, "name", "") not in (*record_knobs.BLOCKED, record_knobs.PACKED):
        return ()
    wanted = stored_choice(expr).layouts
    return wanted if wanted and wanted != _own_layouts(expr) else ()


def _own_layouts(call: Call) -> tuple[str, ...]:
    attrs = call.attrs
    if call.op.name == record_knobs.PACKED:
        return ("NC", attrs.weight_layout, "NC")
    return (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or attrs.data_layout)


def _relaid(expr: Expr) -> Expr | None:
    wanted = _other_layouts(expr)
    if not wanted or not isinstance(expr, Call):
        return None
    own = _own_layouts(expr)
    if own[0] == "NC":
        return _repacked(expr, layout(own[1]), layout(wanted[1]))
    data, weight = (transform(a, layout(own[n]), layout(wanted[n])) for n, a in enumerate(expr.args))
    names = ("data_layout", "kernel_layout", "out_layout")
    convolution = Call(expr.op, (data, weight), replace(expr.attrs, **dict(zip(names, wanted, strict=True))), expr.span)
    infer_type(convolution)
    return transform(convolution, layout(wanted[2]), layout(own[2]))


def _choice_of(config: Any, workload: Workload) -> Choice:  # Any: a ConfigEntity; its package lies above
    return record_knobs.choice_of(config, workload)


def _fits(expr: Call, choice: Choice) -> bool:
    """Whether transforms can compute a call, if its record says that they do: that depends on the weights' values."""
    if choice.algorithm == WINOGRAD:
        return eligible(expr) is not None
    return choice.algorithm != record_knobs.FOURIER or fourier_conv2d.eligible(expr) is not None


def _refuse(expr: Expr, asked: Choice) -> None:
    """A convolution in plain layout is computed by nothing that has a choice."""
    if is_call(expr, "nn.conv2d"):
        message = f"{SCHEDULE_CHOICE.name}: the choice {asked.algorithm} does not fit {keys_of(expr)[-2]}"
        raise ConfigError(f"{message}: alter-op-layout does not run", hint="opt_level=3 runs it")


def _repacked(expr: Call, old: Layout, new: Layout) -> Expr:
    """The product with its weight in other blocks of outputs, the last of which may lack some."""
    weight, result = tensor(expr.args[1]), shape_of(expr)
    assert weight is not None and result is not None, "the call is typed"
    moved, short = expr.args[1], -weight.static[0] % max(1, new.block("N") // old.block("N"))  # blocks
    if short:
        moved = call("nn.pad", moved, pad_width=((0, short), (0, 0), (0, 0)))
    attrs = replace(expr.attrs, weight_layout=new.text, units=result[-1])
    return Call(expr.op, (expr.args[0], transform(moved, old, new)), attrs, expr.span)


def rule_of(function: Function) -> WorkloadRule:
    """What records of a function's calls are found by: of each call alone."""
    return workload_of


def workload_of(expr: Expr) -> Workload | None:
    """What records of a call are found by: a name, the types of its operands, its attributes, and for convolutions
    whether Winograd's algorithm can compute it; None for calls that are not tuned."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return None
    name = record_knobs.TUNED.get(expr.op.name, "")
    key = call_key(expr, expr.op) if name else None
    if key is None:
        return None
    can_transform = (eligible(expr) is not None,) if expr.op.name == "nn.contrib_conv2d_NCHWc" else ()
    return (name, *key, *can_transform)
