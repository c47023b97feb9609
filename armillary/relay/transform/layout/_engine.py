"""Changing layouts across a graph: one walk, rules per operator, conversions only where neighbours disagree.

In: a function and a `Request` (what contractions should use). Out: the function in new layouts; values that leave it
have their old ones. Each value is known as an expression plus, where it was changed, its (old, new) layouts. A rule
gets its call and the layouts of the inputs, and answers with the inputs' wanted layouts and the new call, or None to
stay. Invariant: types of outputs do not change; a value is converted to a given layout at most once; there is never a
conversion of a conversion. The rules: layout/_rules.py and the `layout` facet of operators. Scripts' conversions take
the same walk and ask other rules (layout/_inference_walk.py).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from armillary.base.data_layout import Layout, layout
from armillary.base.extent import Known
from armillary.base.record import record
from armillary.ops.nn._windows import reshape_to
from armillary.relay.expr import Call, Expr, Function, Tuple, TupleGetItem, shape_of
from armillary.relay.op import Op
from armillary.relay.transform._rules import call, op_name, tensor
from armillary.relay.types import TensorType, TupleType
from armillary.relay.walk import copy_type, map_children, not_primitive, post_order
from armillary.target import Target

_MOVE = "layout_transform"


@record
class Change:
    """A tensor that was in layout `old` (unblocked) now is in `new`."""

    old: Layout
    new: Layout


@record
class BlockPlan:
    """`need`: by id of a node, what its block should divide (0 or absent: anything); `starts`: ids of poolings."""

    need: Mapping[int, int]
    starts: frozenset[int]

    def common(self, expr: Expr, channels: int) -> int:
        """What the block of a tensor of so many channels should divide."""
        return math.gcd(channels, self.need.get(id(expr), 0))


@record
class Request:
    """What to use: `lanes` > 0 asks for blocked layouts; `desired` maps an operator to (data, kernel) layouts.

    `plan` (see layout/_plan.py) holds what neighbours of a tensor ask of its block.
    `outputs`: those of a dense layer that lie together; `lanes`, unless images have longer blocks.
    """

    lanes: int = 0
    outputs: int = 0
    desired: tuple[tuple[str, tuple[str, ...]], ...] = ()
    plan: BlockPlan = BlockPlan({}, frozenset())
    target: Target | None = None  # whose vectors they are, and whose records are asked

    def layouts_of(self, op: str) -> tuple[str, ...] | None:
        return next((layouts for name, layouts in self.desired if name == op), None)


@record
class LayoutChoice:
    """A rule's answer: how each tensor input is wanted (None: as it was), what to build, how the result comes out."""

    inputs: tuple[Change | None, ...]
    build: Callable[[Sequence[Expr]], Expr]
    output: Change | None


LayoutRule = Callable[[Call, Sequence[Change | None], Request], LayoutChoice | None]


@record
class Value:
    """A tensor as it is now: in `new`, where it was in `old` (both None: in the layout of before)."""

    expr: Expr
    old: Layout | None = None
    new: Layout | None = None


class LayoutWalk(ABC):
    """One walk over one function: calls that `rewrite` changes, all others of values in the layouts of before."""

    def __init__(self) -> None:
        self.values: dict[int, Value] = {}  # by id of the old node
        self.fields: dict[int, list[Value]] = {}  # of old nodes that give several
        self.moved: dict[tuple[int, str, str], Expr] = {}
        self.retained: list[Expr] = []  # whose ids are keys above

    def run(self, function: Function) -> Expr:
        for expr in post_order(function, not_primitive):
            if not self.rewrite(expr):
                self.values[id(expr)] = Value(copy_type(map_children(expr, self.as_it_was), expr))
        return self.as_it_was(function)

    @abstractmethod
    def rewrite(self, expr: Expr) -> bool:
        """Put what takes an old node's place into `values`; False where it stays."""

    def as_it_was(self, expr: Expr) -> Expr:
        """The new form of an old node, in its old layout."""
        fields = self.fields.get(id(expr))
        if fields is not None:
            return Tuple(tuple(map(self.restored, fields)))
        value = self.values.get(id(expr))
        return expr if value is None else self.restored(value)

    def value(self, expr: Expr) -> Value:
        """What became of an old node."""
        return self.values.get(id(expr)) or Value(self.as_it_was(expr))

    def pick(self, expr: Expr) -> bool:
        """A field of a call's results, or of a tuple that is written out."""
        if not isinstance(expr, TupleGetItem):
            return False
        fields = self.fields.get(id(expr.tuple_value))
        if fields is not None:
            self.values[id(expr)] = fields[expr.index]
        elif isinstance(expr.tuple_value, Tuple):
            self.values[id(expr)] = self.value(expr.tuple_value.fields[expr.index])
        return id(expr) in self.values

    def restored(self, value: Value) -> Expr:
        """A value in its old layout."""
        return value.expr if value.old is None else self.move(value.expr, value.new, value.old)

    def move(self, expr: Expr, source: Layout | None, target: Layout | None) -> Expr:
        """A value in another layout, made once; a number follows any."""
        if source == target or source is None or target is None:
            return expr
        key = (id(expr), source.text, target.text)
        if key not in self.moved:
            self.retained.append(expr)
            self.moved[key] = self.in_layout(expr, source, target)
        return self.moved[key]

    def in_layout(self, expr: Expr, source: Layout, target: Layout) -> Expr:
        """The expression that moves a value; one that lacks axes in front gets them."""
        ty = expr.checked_type
        missing = len(source.axes) - (ty.ndim if isinstance(ty, TensorType) else 0)
        if missing > 0:  # a (C, 1, 1) operand of a broadcast
            expr = call("expand_dims", expr, axis=0, num_newaxis=missing)
        return transform(expr, source, target)


class LayoutEngine(LayoutWalk):
    """The walk of back ends, libraries and importers: a rule says how a call wants its inputs."""

    def __init__(self, request: Request, find_rule: Callable[[Op], LayoutRule | None]) -> None:
        super().__init__()
        self.request, self.find_rule = request, find_rule

    def rewrite(self, expr: Expr) -> bool:
        if op_name(expr) == _MOVE and isinstance(expr, Call) and self._moves_out_of_blocks(expr):
            return True
        rule = self.find_rule(expr.op) if isinstance(expr, Call) and isinstance(expr.op, Op) else None
        if rule is None or not isinstance(expr, Call):
            return self.pick(expr)
        parts = flat_arguments(expr)
        choice = rule(expr, [self._change(part) for part in parts], self.request)
        if choice is None:
            return False
        rebuilt = choice.build([self._wanted(a, change) for a, change in zip(parts, choice.inputs, strict=True)])
        output = choice.output
        if isinstance(expr.checked_type, TupleType):  # the others are vectors
            first = TupleGetItem(rebuilt, 0)
            rest = [Value(TupleGetItem(rebuilt, index)) for index in range(1, len(expr.checked_type.fields))]
            self.fields[id(expr)] = [Value(first, output.old, output.new) if output else Value(first), *rest]
        else:
            self.values[id(expr)] = Value(rebuilt) if output is None else Value(rebuilt, output.old, output.new)
        return True

    def _moves_out_of_blocks(self, expr: Call) -> bool:
        """What the graph itself moves out of blocks of channels is known in blocks too; it moves where one asks."""
        blocked, plain = layout(expr.attrs.src_layout), layout(expr.attrs.dst_layout)
        if plain.text != "NCHW" or blocked.text != f"NCHW{blocked.block('C')}c":
            return False
        self.values[id(expr)] = Value(self.as_it_was(expr.args[0]), plain, blocked)
        return True

    def _change(self, expr: Expr) -> Change | None:
        value = self.values.get(id(expr))
        return None if value is None or value.old is None or value.new is None else Change(value.old, value.new)

    def _wanted(self, expr: Expr, change: Change | None) -> Expr:
        """The new form of an old node, in the wanted layout."""
        if change is None:
            return self.as_it_was(expr)
        value = self.values.get(id(expr), Value(expr))
        return self.move(value.expr, change.old if value.new is None else value.new, change.new)


def flat_arguments(expr: Call) -> list[Expr]:
    """The tensors a call takes: a variadic operator's are the fields of its tuple, a channel shuffle's its source."""
    source = shuffle_source(expr)
    if source is not None:
        return [source]
    if isinstance(expr.op, Op) and expr.op.variadic and len(expr.args) == 1:
        return list(getattr(expr.args[0], "fields", expr.args))
    return list(expr.args)


def shuffle_source(expr: Expr) -> Expr | None:
    """What `reshape(transpose(reshape(x)))` shuffles the channels of, where it does that."""
    steps: list[Expr] = [expr]
    for name in ("reshape", "transpose", "reshape"):
        step = steps[-1]
        if op_name(step) != name or not isinstance(step, Call):
            return None
        steps.append(step.args[0])
    last, moved, split, source = (tensor(e) for e in steps)
    if last is None or moved is None or split is None or source is None or last.shape != source.shape:
        return None
    n, _, *image = source.shape
    if source.ndim != 4 or split.ndim != 5 or (split.shape[0], *split.shape[3:]) != (n, *image):
        return None
    axes = getattr(getattr(steps[1], "attrs", None), "axes", None) or ()
    return steps[3] if tuple(a % 5 for a in axes) == (0, 2, 1, 3, 4) else None


def transform(expr: Expr, source: Layout, target: Layout) -> Expr:
    """`expr` moved from one layout to another; itself where they are the same."""
    if source == target:
        return expr
    whole = shape_of(expr)
    if whole is not None and len(whole) == len(source.parts):
        shape = reshape_of(whole, source, target)
        if shape is not None:
            return reshape_to(expr, shape)
    return call(_MOVE, expr, src_layout=source.text, dst_layout=target.text)


def reshape_of(shape: Sequence[Known], source: Layout, target: Layout) -> tuple[Known, ...] | None:
    """The new shape where moving between two layouts leaves every element in its place: 1x1 images, for example."""
    sizes = zip(shape, source.axes, strict=True)
    whole = tuple(d * (source.block(letter) or 1) for d, letter in sizes if letter.isupper())
    result = target.shape(whole, layout(source.whole))
    same = _memory_order(shape, source) == _memory_order(result, target)
    return result if same else None


def _memory_order(shape: Sequence[Known], order: Layout) -> list[str]:
    """The axes longer than one; one whose outer and inner parts are neighbours, or are one part, counts as whole."""
    parts = [letter for letter, d in zip(order.axes, shape, strict=True) if d != 1]
    merged: list[str] = []
    for letter in parts:
        if letter.islower() and merged and merged[-1] == letter.upper():
            continue
        alone = letter.islower() and letter.upper() not in parts
        merged.append(letter.upper() if alone else f"{order.block(letter)}{letter}" if letter.islower() else letter)
    return merged
