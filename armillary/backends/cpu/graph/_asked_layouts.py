"""What `schedule.choice`, or a record, asks for while layouts change: a convolution's, and what its call carries.

In: a layout rule of the CPU and the call it is asked about. Out: the rule's answer, in the layouts that the option
or a tuning record names for the call, if they name some; the call that is built carries the choice. Records are found
by the call in the layouts that the rule gives it for itself, whatever those of its neighbours became. Invariant: a
choice that no call can carry is an error that says why. Pass: alter-op-layout; for calls whose operator stays:
apply-records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from armillary.backends.cpu.graph.apply_records import workload_of
from armillary.backends.overrides import SCHEDULE_CHOICE, asked_choice, keys_of
from armillary.base.data_layout import layout
from armillary.base.dispatch import DispatchContext
from armillary.base.extent import Known
from armillary.base.lazy import deferred
from armillary.errors import ConfigError
from armillary.relay.expr import Call, Constant, Expr, known_of
from armillary.relay.infer import infer_type
from armillary.relay.op import get_op
from armillary.relay.transform._rules import call, is_from_constants, tensor
from armillary.relay.transform.layout._engine import Change, LayoutChoice, LayoutRule, Request, transform
from armillary.relay.types import TensorType
from armillary.target.choice import Choice

with deferred():
    from armillary.backends.cpu import record_knobs

CONV2D, DEPTHWISE = "nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc"
_BLOCKED_OUTPUT = "NCHW{}c"


def as_asked(rule: LayoutRule, expr: Call, have: Sequence[Change | None], request: Request) -> LayoutChoice | None:
    """The rule's answer, or what is asked for."""
    asked = asked_choice(expr) or _recorded(rule, expr, request)
    if not asked:
        return rule(expr, have, request)
    answer = _in_layouts(expr, asked, request) if asked.layouts else rule(expr, have, request)
    if answer is None:
        if not hasattr(expr.attrs, "choice"):
            raise _misfit(expr, asked, "it is computed in plain layouts, by loops for which there is nothing to choose")
        return None

    def build(args: Sequence[Expr]) -> Expr:
        result = answer.build(args)
        if not isinstance(result, Call):
            return result
        if not hasattr(result.attrs, "choice"):
            raise _misfit(expr, asked, f"{result.op.name} computes it, for which there is nothing to choose")
        return Call(result.op, result.args, replace(result.attrs, choice=str(asked)), result.span)

    return LayoutChoice(answer.inputs, build, answer.output)


def _recorded(rule: LayoutRule, expr: Call, request: Request) -> Choice:
    """The stored choice of a convolution, where it names other layouts than the rule gives by itself."""
    context = DispatchContext.current
    if request.target is None or expr.op.name not in ("nn.conv2d", "nn.dense") or not context.has_records():
        return Choice()
    alone = rule(expr, [None] * len(expr.args), request)
    if alone is None:
        return Choice()
    moved = [a if c is None else transform(a, c.old, c.new) for a, c in zip(expr.args, alone.inputs, strict=True)]
    built = alone.build(moved)
    infer_type(built)
    workload = workload_of(built)
    if workload is None or workload[0] not in record_knobs.IN_BLOCKS:
        return Choice()
    config = context.query(request.target, workload)
    result = Choice() if config is None else record_knobs.choice_of(config, workload)
    return result if result.layouts else Choice()


def _in_layouts(expr: Call, asked: Choice, request: Request) -> LayoutChoice:
    """A convolution or product of float32 in the blocks that are asked for."""
    data, weight = known_of(expr.args[0]), tensor(expr.args[1])
    if expr.op.name == "nn.dense" and weight is not None:
        return _dense_in_layouts(expr, asked, weight)
    if expr.op.name != "nn.conv2d" or not request.lanes:
        raise _misfit(expr, asked, "layouts can be chosen for nn.conv2d and nn.dense alone")
    if data is None or weight is None or not isinstance(expr.args[1], Constant) or data.dtype != "float32":
        raise _misfit(expr, asked, "layouts can be chosen for float32 and constant weights of known sizes")
    plain = (expr.attrs.data_layout, expr.attrs.kernel_layout, expr.attrs.out_layout or "NCHW")
    if plain != ("NCHW", "OIHW", "NCHW"):
        raise _misfit(expr, asked, f"its layouts are {' '.join(plain)} already")
    inner, outer = _blocks(expr, asked)
    outputs, inputs = weight.static[:2]
    is_by_channel = is_depthwise(expr, data.known, weight.static)
    name = DEPTHWISE if is_by_channel else CONV2D
    kernel = record_knobs.layouts_in(record_knobs.TUNED[name], (inner, outer))[1]
    if asked.layouts[1] != kernel or (is_by_channel and inner != outer):
        raise _misfit(expr, asked, f"the weight's layout to these of data and result is {kernel}")
    counts = (outputs, outputs) if is_by_channel else (inputs, outputs // expr.attrs.groups)
    for count, block, kind in zip(counts, (inner, outer), ("input", "output"), strict=True):
        if count % block:
            raise _misfit(expr, asked, f"{count} {kind} channels are no whole blocks of {block}")
    return blocked(name, expr, inner, outer, kernel)


def _dense_in_layouts(expr: Call, asked: Choice, weight: TensorType) -> LayoutChoice:
    """A product whose constant weight is packed in the blocks that are asked for."""
    types = {str(getattr(a.checked_type, "dtype", "")) for a in expr.args} | {expr.attrs.out_dtype or "float32"}
    if types != {"float32"} or not is_from_constants(expr.args[1]):
        raise _misfit(expr, asked, "layouts can be chosen for float32 and constant weights of known sizes")
    block = layout(asked.layouts[1]).block("N") if len(asked.layouts) == 3 else 0
    if block < 1 or asked.layouts != record_knobs.packed_layouts(block):
        raise _misfit(expr, asked, f"its layouts are such as {' '.join(record_knobs.packed_layouts(16))}")
    return packed_dense(expr, weight.static[0], block)


def _blocks(expr: Call, asked: Choice) -> tuple[int, int]:
    """Channels of a block of the data and of the result."""
    if len(asked.layouts) != 3:
        raise _misfit(expr, asked, f"it has {len(asked.layouts)} layouts, wanted those of data, weight and result")
    inner, outer = (layout(asked.layouts[i]).block("C") for i in (0, 2))
    for text, block in ((asked.layouts[0], inner), (asked.layouts[2], outer)):
        if text != _BLOCKED_OUTPUT.format(block):
            raise _misfit(expr, asked, f"{text} is no layout of channels in blocks, as NCHW16c is")
    return inner, outer


def _misfit(expr: Call, asked: Choice, reason: str) -> ConfigError:
    shown = " ".join([asked.algorithm, *(f"{name}={value}" for name, value in asked.config)])
    shown = f"{shown} | layouts {' '.join(asked.layouts)}" if asked.layouts else shown
    message = f"{SCHEDULE_CHOICE.name}: the choice {shown} does not fit {keys_of(expr)[-2]}: {reason}"
    return ConfigError(message, hint="leave the choice to the model, or change it")


def blocked(name: str, expr: Call, inner: int, outer: int, kernel: str, old_kernel: str = "OIHW") -> LayoutChoice:
    """By the operator `name`, with blocks of `inner` input channels and `outer` output channels."""
    nchw, data, out = layout("NCHW"), layout(f"NCHW{inner}c"), layout(f"NCHW{outer}c")
    op = get_op(name)
    retained = {f.name: getattr(expr.attrs, f.name) for f in fields(expr.attrs)}
    retained |= {"data_layout": data.text, "kernel_layout": kernel, "out_layout": out.text}
    attrs = op.make_attrs((), retained)
    wanted = (Change(nchw, data), Change(layout(old_kernel), layout(kernel)))
    return LayoutChoice(wanted, lambda args: Call(op, tuple(args), attrs, expr.span), Change(nchw, out))


def packed_dense(expr: Call, units: int, lanes: int, word: int = 0, is_symmetric: bool = False) -> LayoutChoice:
    """By nn.contrib_dense_pack, with blocks of so many outputs, the last of which may lack some."""
    op, packed = get_op("nn.contrib_dense_pack"), layout(f"NC{lanes}n{word}c" if word else f"NC{lanes}n")
    retained = {"units": expr.attrs.units, "out_dtype": expr.attrs.out_dtype, "weight_layout": packed.text}
    retained |= {"is_symmetric": True} if is_symmetric else {}
    if units % lanes == 0:
        attrs, wanted = op.make_attrs((), retained), (None, Change(layout("NC"), packed))
        return LayoutChoice(wanted, lambda args: Call(op, tuple(args), attrs, expr.span), None)
    padded = op.make_attrs((), {**retained, "units": units})

    def build(args: Sequence[Expr]) -> Expr:
        wider = call("nn.pad", args[1], pad_width=((0, -units % lanes), (0, 0)))
        return Call(op, (args[0], transform(wider, layout("NC"), packed)), padded, expr.span)

    return LayoutChoice((None, None), build, None)


def is_depthwise(expr: Call, shape: Sequence[Known], weight: tuple[int, ...]) -> bool:
    """Whether each channel is a group of its own."""
    groups = expr.attrs.groups
    return bool(groups > 1 and groups == shape[1] and weight[0] == groups and weight[1] == 1)
