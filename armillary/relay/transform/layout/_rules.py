"""How operators follow changes of layout, on any target, and convolutions into layouts that are asked for.

In: a call, the layout changes of its inputs, the request. Out: a `LayoutChoice`, or None: inputs as they were.
Invariant: a rule returns None unless it knows the result to be the same in the new layout.
An operator's own `layout` facet comes before these; a kind's rule comes last. The rules that start a layout of a target
are its back end's (backends/cpu/graph/_layout_rules.py).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from armillary.base.data_layout import Layout, choose_block, layout
from armillary.base.extent import Known
from armillary.ops.nn._windows import reshape_to
from armillary.relay.expr import Call, Expr, Tuple, shape_of
from armillary.relay.op import Kind, Op
from armillary.relay.op.facts import Follows
from armillary.relay.transform._rules import is_from_constants
from armillary.relay.transform.layout._engine import (
    Change,
    LayoutChoice,
    LayoutRule,
    Request,
    flat_arguments,
)
from armillary.relay.transform.layout._plan import PLAIN
from armillary.relay.transform.layout._shuffle import channel_shuffle
from armillary.relay.transform.layout._views import strided_slice, take
from armillary.relay.types import TensorType

Changes = Sequence[Change | None]


def find_rule(op: Op) -> LayoutRule | None:
    """The rule of an operator: its own, that of the way it follows layouts, or its kind's."""
    if op.layout_rule is not None:
        return op.layout_rule
    return (op.layout_follows and _RULES.get(op.layout_follows)) or _BY_KIND.get(op.kind)


def takes_layouts(op: Op) -> bool:
    """Whether the rule of an operator does as the request's `desired` says."""
    return op.layout_axes is not None and op.layout_follows in (Follows.ASKED, *_POOLS)


def static(expr: Expr) -> tuple[int, ...] | None:
    """The shape of a tensor expression, where known."""
    ty = expr.checked_type
    if not isinstance(ty, TensorType) or not all(isinstance(d, int) for d in ty.shape):
        return None
    return ty.static


def _rebuilt(expr: Call, changes: dict[str, object]) -> Any:  # Any: attrs differ by operator
    attrs = dataclasses.replace(expr.attrs, **changes) if changes else expr.attrs

    def build(args: Sequence[Expr]) -> Expr:
        return Call(expr.op, tuple(args), attrs, expr.span)

    return build


def _first(have: Changes) -> Change | None:
    return next((change for change in have if change is not None), None)


def agreed_block(expr: Expr, channels: int, request: Request) -> int:
    """The block of a tensor: one that its consumers take as it is, if there is one, else the best for itself."""
    agreed = request.plan.common(expr, channels)
    return (choose_block(agreed, request.lanes) if agreed >= 4 else 0) or choose_block(channels, request.lanes)


def _conv2d_as_asked(expr: Call, desired: tuple[str, ...]) -> LayoutChoice | None:
    attrs = expr.attrs
    kernel = desired[1] if len(desired) > 1 else "default"
    if kernel == "default":
        axes = expr.op.layout_axes
        kernel = (axes and axes.kernel_of(desired[0])) or attrs.kernel_layout
    if attrs.out_layout not in ("", attrs.data_layout):
        return None
    pairs = ((attrs.data_layout, desired[0]), (attrs.kernel_layout, kernel))
    if all(old == new for old, new in pairs) or any(layout(old).is_blocked for old, _ in pairs):
        return None
    wanted = tuple(Change(layout(old), layout(new)) for old, new in pairs)
    build = _rebuilt(expr, {"data_layout": desired[0], "kernel_layout": kernel, "out_layout": ""})
    rest = (None,) * (len(expr.args) - 2)  # the zero points and scales of qnn.conv2d
    return LayoutChoice((*wanted, *rest), build, wanted[0])


def as_asked(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """Convolutions: into the layouts asked for."""
    desired = request.layouts_of(expr.op.name)
    return None if desired is None else _conv2d_as_asked(expr, desired)


# --- followers ------------------------------------------------------------------------------------------------------


def pool2d(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """Pooling works on any layout with whole spatial axes; some start a blocked one (see BlockPlan.starts)."""
    change, *rest = have  # scales and zero points, of bytes
    shape = shape_of(expr)
    asked = request.layouts_of(expr.op.name)
    if asked is not None and asked[0] != expr.attrs.layout and not layout(expr.attrs.layout).is_blocked:
        change = Change(layout(expr.attrs.layout), layout(asked[0]))
    if change is None and request.lanes and id(expr) in request.plan.starts and shape is not None:
        block = agreed_block(expr, shape[1], request) if isinstance(shape[1], int) else 0
        change = Change(layout("NCHW"), layout(f"NCHW{block}c")) if block >= 4 else None
    if change is None or expr.attrs.layout != change.old.text or expr.attrs.out_layout not in ("", change.old.text):
        return None
    build = _rebuilt(expr, {"layout": change.new.text, "out_layout": ""})
    return LayoutChoice((change, *(None for _ in rest)), build, change)


def elementwise(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """One tensor in, the same positions out."""
    change = have[0] if len(have) == 1 else None
    if change is None or _has_axis(expr):
        return None
    return LayoutChoice((change,), _rebuilt(expr, {}), change)


def broadcast(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """The others follow the first input that was changed, where they broadcast axis by axis."""
    lead = _first(have)
    shape = shape_of(expr)
    if lead is None or shape is None or _has_axis(expr) or len(shape) != len(lead.old.axes):
        return None
    if _is_wanted_plain(expr, have, request):
        return None
    wanted: list[Change | None] = []
    for arg, change in zip(expr.args, have, strict=True):
        operand = shape_of(arg)
        if operand is None or (change is not None and change.old != lead.old):
            return None
        wanted.append(None if _is_scalar(operand) and change is None else _operand(operand, shape, lead))
        if wanted[-1] is None and not _is_scalar(operand):
            return None
    return LayoutChoice(tuple(wanted), _rebuilt(expr, {}), lead)


def _is_wanted_plain(expr: Call, have: Changes, request: Request) -> bool:
    """Whether a reader wants the result plain, and a part of its size already is."""
    if request.plan.need.get(id(expr)) != PLAIN or not request.lanes:
        return False
    rank = len(shape_of(expr) or ())
    computed = [(arg, c) for arg, c in zip(flat_arguments(expr), have, strict=True) if not is_from_constants(arg)]
    return any(change is None and len(shape_of(arg) or ()) == rank for arg, change in computed)


def _is_scalar(shape: tuple[Known, ...]) -> bool:
    return all(d == 1 for d in shape)


def _operand(operand: tuple[Known, ...], shape: tuple[Known, ...], lead: Change) -> Change | None:
    """How an operand of a broadcast must come: blocks of one where it does not extend along the blocked axis."""
    full = (1,) * (len(shape) - len(operand)) + operand
    new: Layout = lead.new
    for letter, block in lead.new.parts:
        if not block:
            continue
        size = full[lead.old.index(letter.upper())]
        if size == 1:
            new = new.with_block(letter.upper(), 1)
        elif size % block:
            return None
    return Change(lead.old, new)


def _has_axis(expr: Call) -> bool:
    """Attributes that name positions would have to be translated; such calls do not follow."""
    if expr.attrs is None:
        return False
    names = {f.name for f in dataclasses.fields(expr.attrs)}
    return bool(names & {"axis", "axes", "shape", "newshape", "layout"})


def along_axis(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """A bias, or scales and zero points, along an axis that is whole before and after."""
    change, *rest = have
    if change is None or any(other is not None for other in rest) or change.new.is_blocked:
        return None
    axis = change.new.index(change.old.axes[expr.attrs.axis % len(change.old.axes)])
    return LayoutChoice((change, *rest), _rebuilt(expr, {"axis": axis}), change)


def concatenate(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """Along channels: all inputs in the first one's layout, if its block divides each of them."""
    if _is_wanted_plain(expr, have, request):
        return None
    lead = _first(have)
    shapes = [shape_of(arg) for arg in flat_arguments(expr)]
    if lead is None or any(s is None or len(s) != len(lead.old.axes) for s in shapes):
        return None
    if any(change is not None and change.old != lead.old for change in have):
        return None
    letter = lead.old.axes[expr.attrs.axis % len(lead.old.axes)]
    known = [s for s in shapes if s is not None]
    block = _common_block(lead, letter, [s[lead.old.index(letter)] for s in known], request)
    if block is None:
        return None
    change = Change(lead.old, lead.new.with_block(letter, block) if block else lead.new)
    axis = change.new.index(letter)
    attrs = dataclasses.replace(expr.attrs, axis=axis)
    return LayoutChoice(
        (change,) * len(known), lambda args: Call(expr.op, (Tuple(tuple(args)),), attrs, expr.span), change
    )


def _common_block(lead: Change, letter: str, sizes: Sequence[Known], request: Request) -> int | None:
    """The lead's block if it divides all sizes, else the best that does; 0: not blocked; None: there is none."""
    current = lead.new.block(letter)
    if not current or all(size % current == 0 for size in sizes):
        return current
    known = [size for size in sizes if isinstance(size, int)]
    smaller = choose_block(math.gcd(current, *known), request.lanes) if len(known) == len(sizes) else 0
    return smaller if smaller >= 4 else None


def reduction(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """Over whole axes: the same axes wherever they lie now. Without its image a tensor is plain again."""
    change = have[0]
    attrs = expr.attrs
    if change is None or getattr(attrs, "exclude", False):
        return None
    axes = getattr(attrs, "axis", None)
    axes = (axes,) if isinstance(axes, int) else axes
    if not axes:
        return None
    letters = [change.old.axes[a % len(change.old.axes)] for a in axes]
    if any(change.new.block(letter) for letter in letters):
        return None
    moved = tuple(change.new.index(letter) for letter in letters)
    build = _rebuilt(expr, {"axis": moved, "keepdims": True})
    if getattr(attrs, "keepdims", False):
        return LayoutChoice((change,), build, change)
    shape = shape_of(expr)
    if shape is None or change.old.text != "NCHW" or sorted(letters) != ["H", "W"] or _rest(change.new)[:2] != "NC":
        return None  # blocks of channels are in order where nothing lies between them
    return LayoutChoice((change,), lambda args: reshape_to(build(args), shape), None)


def _rest(order: Layout) -> str:
    """The axes that are left without those of the image."""
    return "".join(axis for axis in order.axes if axis not in "HW")


def pad(expr: Call, have: Changes, request: Request) -> LayoutChoice | None:
    """Padding of axes that are not in blocks."""
    change = have[0]
    if change is None or any(c is not None for c in have[1:]) or len(expr.args) > 2:
        return None
    width = dict(zip(change.old.axes, expr.attrs.pad_width, strict=True))
    if any(change.new.block(letter) and tuple(pair) != (0, 0) for letter, pair in width.items()):
        return None
    moved = tuple(tuple(width[letter]) if letter.isupper() else (0, 0) for letter, _ in change.new.parts)
    rest = (None,) * (len(expr.args) - 1)
    return LayoutChoice((change, *rest), _rebuilt(expr, {"pad_width": moved}), change)


_POOLS = (Follows.POOL, Follows.QUANTIZED_POOL)
_RULES: dict[Follows, LayoutRule] = {
    Follows.ASKED: as_asked,
    **dict.fromkeys((Follows.AXIS, Follows.BATCH_NORM, Follows.QUANTIZED, Follows.REQUANTIZED), along_axis),
    Follows.SHUFFLE: channel_shuffle,
    Follows.JOIN: concatenate,
    Follows.PAD: pad,
    Follows.SLICE: strided_slice,
    Follows.TAKE: take,
    Follows.REDUCTION: reduction,
    **dict.fromkeys(_POOLS, pool2d),
}
_BY_KIND: dict[Kind, LayoutRule] = {Kind.ELEMENTWISE: elementwise, Kind.BROADCAST: broadcast}
