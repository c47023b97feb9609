"""apply-records: calls get the choices that tuning records name, or a script.

In: a module after alter-op-layout, the dispatch contexts in force (base/dispatch.py), the option `schedule.choice`,
which comes first. Out: contractions for which there is one carry it as their attribute `choice`; winograd-conv2d and
the schedules take it from there. A convolution whose choice names other layouts than it has is computed in those, with
changes of layout around it; those that lie in plain layouts got theirs before (_asked_layouts.py). Invariant: as in
backends/records.py, which does what all families do alike.

    nn.contrib_conv2d_NCHWc(%x, weight)
    ->
    nn.contrib_conv2d_NCHWc(%x, weight, choice="conv2d.direct rows=7 vectors=4 lines=1 | by record")

What a choice may be: target/choice.py. Where records come from: autotvm/task/dispatcher.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from armillary.backends.cpu.conv2d.fourier import fourier_conv2d
from armillary.backends.cpu.conv2d.winograd.winograd_conv2d import WINOGRAD, eligible
from armillary.backends.cpu.space import OWN_TAPS, TAPS
from armillary.backends.overrides import SCHEDULE_CHOICE, keys_of
from armillary.backends.records import WorkloadRule, call_key, with_records
from armillary.base.data_layout import Layout, layout
from armillary.base.dispatch import Workload
from armillary.base.lazy import deferred
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.infer import infer_type
from armillary.relay.op import Op, is_call
from armillary.relay.transform._rules import call, on_functions, tensor
from armillary.relay.transform.layout._engine import transform
from armillary.relay.walk import not_primitive, post_order, rewrite
from armillary.target import Target
from armillary.target.choice import Choice, Guard, Rejection, Source, stored_choice
from armillary.transform import define_pass

with deferred():
    from armillary.backends.cpu import select

TUNED = {  # contractions whose tasks weigh several algorithms; those of one say so in their manifest
    "nn.contrib_conv2d_NCHWc": "conv2d_NCHWc.cpu",
    "nn.contrib_depthwise_conv2d_NCHWc": "depthwise_conv2d_NCHWc.cpu",
    "cpu.conv2d_NCHWc_int8": "conv2d_NCHWc_int8.cpu",
    "cpu.conv2d_NCHWc_bf16": "conv2d_NCHWc_bf16.cpu",
    "nn.contrib_dense_pack": "dense_pack.cpu",
    "nn.dense": "dense.cpu",
    "nn.batch_matmul": "batch_matmul.cpu",
}
BLOCKED = ("nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc")
PACKED = "nn.contrib_dense_pack"
IN_BLOCKS = tuple(TUNED[name] for name in (*BLOCKED, PACKED))
BLOCKS = ("data_block", "result_block")  # knobs
ALGORITHMS = {  # of tasks, without transforms
    "conv2d_NCHWc.cpu": "conv2d.direct",
    "depthwise_conv2d_NCHWc.cpu": "conv2d.depthwise",
    "conv2d_NCHWc_int8.cpu": "conv2d.direct",
    "conv2d_NCHWc_bf16.cpu": "conv2d.direct",
    "dense_pack.cpu": "gemm.register_tiles",
    "dense.cpu": "gemm.register_tiles",
    "batch_matmul.cpu": "gemm.register_tiles",
}
ANNOTATIONS = ("none", "unroll")  # of the loops over kh and kw, in the knob TAPS
MATRIX_TILES = "matrix_tiles"  # a knob of what is computed by those: 1


@define_pass("apply-records", opt_level=0)
def apply_records(module: IRModule, *, target: Target | None = None) -> IRModule:
    """Attach the stored choices of the current dispatch context."""
    chosen = Target(target if target is not None else Target.current() or "llvm")
    return _in_their_layouts(with_records(module, chosen, rule_of, choice_of, _fits, _refuse))


def _in_their_layouts(module: IRModule) -> IRModule:
    """Convolutions whose choice names other layouts than they have get these, between changes of layout."""

    def change(function: Function) -> Expr:
        calls = [e for e in post_order(function, not_primitive) if _other_layouts(e)]
        return rewrite(function, _relaid, enter=not_primitive) if calls else function

    return on_functions(module, change)


def _other_layouts(expr: Expr) -> tuple[str, ...]:
    """The layouts of data, weight and result that a call's choice names, if they are not the call's own."""
    if not isinstance(expr, Call) or getattr(expr.op, "name", "") not in (*BLOCKED, PACKED) or not expr.attrs.choice:
        return ()
    wanted = stored_choice(expr).layouts
    return wanted if wanted and wanted != _own_layouts(expr) else ()


def _own_layouts(call: Call) -> tuple[str, ...]:
    attrs = call.attrs
    if call.op.name == PACKED:
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
    made = Call(expr.op, (data, weight), replace(expr.attrs, **dict(zip(names, wanted, strict=True))), expr.span)
    infer_type(made)
    return transform(made, layout(wanted[2]), layout(own[2]))


def _fits(expr: Call, choice: Choice) -> bool:
    """Whether transforms can compute a call, if its record says that they do: that depends on the weights' values."""
    if choice.algorithm == WINOGRAD:
        return eligible(expr) is not None
    return choice.algorithm != "conv2d.fourier" or fourier_conv2d.eligible(expr) is not None


def _refuse(expr: Expr, asked: Choice) -> None:
    """A convolution in plain layout is computed by nothing that has a choice."""
    if is_call(expr, "nn.conv2d"):
        message = f"{SCHEDULE_CHOICE.name}: the choice {asked.algorithm} does not fit {keys_of(expr)[-2]}"
        raise ConfigError(f"{message}: alter-op-layout does not run", hint="opt_level=3 runs it")


def _repacked(expr: Call, old: Layout, new: Layout) -> Expr:
    """The product with its weight in other blocks of outputs, the last of which may lack some."""
    weight, result = tensor(expr.args[1]), tensor(expr)
    assert weight is not None and result is not None, "the call is typed"
    moved, short = expr.args[1], -weight.static[0] % max(1, new.block("N") // old.block("N"))  # blocks
    if short:
        moved = call("nn.pad", moved, pad_width=((0, short), (0, 0), (0, 0)))
    attrs = replace(expr.attrs, weight_layout=new.text, units=result.static[-1])
    return Call(expr.op, (expr.args[0], transform(moved, old, new)), attrs, expr.span)


def rule_of(function: Function) -> WorkloadRule:
    """What records of a function's calls are found by: of each call alone."""
    return workload_of


def workload_of(expr: Expr) -> Workload | None:
    """What records of a call are found by: a name, the types of its operands, its attributes, and for convolutions
    whether Winograd's algorithm can compute it; None for calls that are not tuned."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return None
    name = task_of(expr.op.name)
    key = call_key(expr, expr.op) if name else None
    if key is None:
        return None
    can_transform = (eligible(expr) is not None,) if expr.op.name == "nn.contrib_conv2d_NCHWc" else ()
    return (name, *key, *can_transform)


def task_of(operator: str) -> str:
    """The name of the tasks of an operator, "" where it is not tuned."""
    if operator in TUNED:
        return TUNED[operator]
    return select.TUNED[operator].task if operator in select.TUNED else ""


def choice_of(config: Any, workload: Workload) -> Choice:  # Any: a ConfigEntity; its package lies above
    """The choice that a configuration of a task states."""
    values = {name: value for name in config if (value := number_of(config[name])) is not None}
    tuned = next((t for t in select.TUNED.values() if t.task == workload[0]), None)
    least = {"rows", "vectors", "width"} if tuned is None else set(tuned.knobs)
    most = {"winograd", "strip", "lines", "fourier", TAPS, MATRIX_TILES, *BLOCKS, *least} if tuned is None else least
    if set(values) != set(config) or not least <= set(values) <= most:
        message = f"the record {config} of {workload[0]} has other knobs than {', '.join(sorted(most))}"
        raise ConfigError(message, hint="tune again")
    if not all(type(value) is int and value >= -1 for value in values.values()):
        raise ConfigError(f"the record {config} of {workload[0]} has knobs that are no numbers", hint="tune again")
    if tuned is not None:
        return Choice(tuned.algorithm.name, tuple((k, values[k]) for k in tuned.knobs), source=Source.RECORD)
    order, layouts = ("rows", "vectors", "lines"), _layouts_of(values, workload)
    tile = tuple((name, values.get(name, 1)) for name in order)
    size = values.get("winograd", 0)
    if size > 0 and workload[-1] is False:
        message = f"the record {config} of {workload[0]} is of a transform that cannot compute it"
        raise ConfigError(message, hint="tune again")
    if size > 0:
        strip = (("strip", values["strip"]),) if values.get("strip", -1) >= 0 else ()
        return Choice(WINOGRAD, (("tile", size), *strip, *tile), layouts, source=Source.RECORD)
    if values.get("fourier", 0):
        return Choice("conv2d.fourier", tile, layouts, source=Source.RECORD)
    guards = (Guard("width", values["width"], values["width"]),)
    if values.get(MATRIX_TILES, 0):
        family = ALGORITHMS[workload[0]].partition(".")[0]
        return Choice(f"{family}.matrix_tiles", tile, layouts, source=Source.RECORD, guards=guards)
    if ALGORITHMS[workload[0]] == "conv2d.direct" and values.get(TAPS, OWN_TAPS) != OWN_TAPS:
        tile = (*tile, (TAPS, values[TAPS]))
    others = (Rejection("conv2d.fourier", reason="the record is faster"),) if "fourier" in values else ()
    return Choice(ALGORITHMS[workload[0]], tile, layouts, source=Source.RECORD, rejected=others, guards=guards)


def number_of(entity: object) -> int | None:  # an entity of a configuration
    """The value of a knob; of annotations of two loops the bits that unroll them; None: neither."""
    anns = tuple(getattr(entity, "anns", ()))
    if len(anns) == 2 and set(anns) <= set(ANNOTATIONS):
        return 2 * ANNOTATIONS.index(anns[0]) + ANNOTATIONS.index(anns[1])
    return getattr(entity, "val", None)


def annotations_of(taps: int) -> tuple[str, str]:
    """The annotations of the loops over kh and kw of such bits."""
    return ANNOTATIONS[taps >> 1], ANNOTATIONS[taps & 1]


def _layouts_of(values: dict[str, int], workload: Workload) -> tuple[str, ...]:
    """The layouts of a configuration in other blocks than the workload's; () where they are the same."""
    if workload[0] not in IN_BLOCKS:
        return ()
    if workload[0] == TUNED[PACKED]:
        units = values.get(BLOCKS[1], 0)
        return packed_layouts(units) if units not in (0, own_blocks(workload)[1]) else ()
    own, is_by_channel = own_blocks(workload), workload[0] == IN_BLOCKS[1]
    inner, outer = (values.get(name, block) for name, block in zip(BLOCKS, own, strict=True))
    if is_by_channel and inner != outer:
        message = f"the record of {workload[0]} has blocks of {inner} and {outer} channels, which are the same channels"
        raise ConfigError(message, hint="tune again")
    return () if (inner, outer) == own else layouts_in(inner, outer, is_by_channel=is_by_channel)


def own_blocks(workload: Workload) -> tuple[int, int]:
    """Channels of a block of a convolution's data and of its result; of a product 0 and outputs of a block."""
    return (0 if workload[0] == TUNED[PACKED] else workload[1][1][-1]), workload[2][1][-1]


def packed_layouts(block: int) -> tuple[str, str, str]:
    """The layouts of data, weight and result of a product with blocks of so many outputs."""
    return "NC", f"NC{block}n", "NC"


def layouts_in(inner: int, outer: int, *, is_by_channel: bool) -> tuple[str, str, str]:
    """The layouts of data, weight and result of a convolution in blocks of so many channels."""
    kernel = f"OIHW1i{outer}o" if is_by_channel else f"OIHW{inner}i{outer}o"
    return f"NCHW{inner}c", kernel, f"NCHW{outer}c"
