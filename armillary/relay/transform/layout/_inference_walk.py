"""Rewriting calls into other layouts as scripts ask for it, with what follows and what goes between.

In: a function, and `write`: how a call is written in the layout that somebody wants, or None to leave it. Out: the
function with those calls; calls behind them read the new layout where their rule (ops/layout/_rules.py) can, and
a layout_transform stands where it cannot. Invariant: the types of inputs and outputs stay; a value is moved to a given
layout once; where a rule fails, or what it gives would not fit, the call reads its inputs as they were.

A producer may see other names for the axes of a value than its reader does: conv2d, transpose of H and W, conv2d. What
the reader calls its input before any change tells whether both mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.base.data_layout import Layout
from armillary.errors import ArmillaryError
from armillary.ops.layout._conversions import Impossible, in_layout
from armillary.ops.layout._inference import Inferred, Known, Layouts, Rule
from armillary.ops.layout._rules import rule_of
from armillary.relay.expr import Call, Expr, Tuple, TupleGetItem
from armillary.relay.op import Op
from armillary.relay.transform.layout._engine import LayoutWalk, Value
from armillary.relay.types import TensorType, TupleType, Type

Write = Callable[[Call, object, list[Expr]], Expr | None]  # the call as it was, its attributes, its inputs as they are


class InferenceWalk(LayoutWalk):
    """One walk over one function."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self.write = write

    def rewrite(self, expr: Expr) -> bool:
        if isinstance(expr, Call) and isinstance(expr.op, Op) and self._rewrite(expr, expr.op):
            return True
        return self.pick(expr)

    def in_layout(self, expr: Expr, source: Layout, target: Layout) -> Expr:
        """As scripts expect it: always a layout_transform; a value of one element stays."""
        return in_layout(expr, source, target)

    def _rewrite(self, expr: Call, op: Op) -> bool:
        parts = [list(a.fields) if isinstance(a, Tuple) else [a] for a in expr.args]
        values = [[self.value(part) for part in group] for group in parts]
        arguments = [
            Tuple(tuple(v.expr for v in group)) if isinstance(arg, Tuple) else group[0].expr
            for arg, group in zip(expr.args, values, strict=True)
        ]
        rule = rule_of(op)
        if rule is None:
            rebuilt = self.write(expr, expr.attrs, arguments) if all(v.old is None for g in values for v in g) else None
            return rebuilt is not None and self._keep(expr, rebuilt, ())
        try:
            return self._follow(expr, rule, [v for group in values for v in group], arguments)
        except Impossible:
            return False

    def _follow(self, expr: Call, rule: Rule, values: list[Value], arguments: list[Expr]) -> bool:
        """Write the call in new layouts; False where it cannot be said in which."""
        types = [arg.checked_type for arg in expr.args]
        old = [value.old for value in values]
        before = rule(expr.attrs, None, old, types)
        if before is None or not before.is_known or len(before.inputs) != len(values):
            return False
        written = self.write(expr, before.attrs, arguments)
        if written is not None and not isinstance(written, Call):
            return False
        target = Call(expr.op, tuple(arguments), before.attrs, expr.span) if written is None else written
        new_rule = rule_of(target.op) if isinstance(target.op, Op) else None
        now = [v.new if v.new is not None else cur for v, cur in zip(values, before.inputs, strict=True)]
        seen = [v.old if v.old is not None else cur for v, cur in zip(values, before.inputs, strict=True)]
        after = None if new_rule is None else new_rule(target.attrs, now, seen, types)
        if after is None or not after.is_known or len(after.inputs) != len(values):
            return False
        try:
            moved = self._moved_call(expr, target, values, before.inputs, after)
            _check(expr, moved, before.outputs, after.outputs)
        except ArmillaryError:  # an operator that does not know the layout
            return False
        pairs = list(zip(before.outputs, after.outputs, strict=True))
        return self._keep(expr, moved, pairs)

    def _keep(self, expr: Call, rewritten: Expr, pairs: Sequence[tuple[Known, Known]]) -> bool:
        if pairs and isinstance(expr.checked_type, TupleType):
            picked = enumerate(pairs)
            self.fields[id(expr)] = [Value(TupleGetItem(rewritten, index), *pair) for index, pair in picked]
        else:
            self.values[id(expr)] = Value(rewritten, *(pairs[0] if pairs else ()))
        return True

    def _moved_call(self, expr: Call, target: Call, values: list[Value], cur: Layouts, after: Inferred) -> Call:
        """The call with its inputs moved to where it reads them."""
        fields = iter(range(len(values)))

        def moved(item: Expr) -> Expr:
            at = next(fields)
            return self._input(item, values[at], cur[at], after.inputs[at])

        args = tuple(
            Tuple(tuple(map(moved, arg.fields))) if isinstance(arg, Tuple) else moved(arg) for arg in target.args
        )
        return Call(target.op, args, after.attrs, expr.span)

    def _input(self, item: Expr, value: Value, cur: Known, wanted: Known) -> Expr:
        if value.old is None or value.old == cur:
            return self.move(item, cur if value.new is None else value.new, wanted)
        return self.move(self.move(item, value.new, value.old), cur, wanted)


def _check(expr: Call, rewritten: Call, before: Layouts, after: Layouts) -> None:
    """Refuse a rule's answer whose results are not those of the call in the new layouts."""
    for was, now, old, new in zip(
        _tensors(expr.checked_type), _tensors(rewritten.checked_type), before, after, strict=True
    ):
        if old is None or new is None or was.dtype != now.dtype or not _fits(was, now, old, new):
            raise Impossible


def _fits(was: TensorType, now: TensorType, old: Layout, new: Layout) -> bool:
    """Whether the new type is the old one in the new layout, as far as can be told."""
    whole = [d for d in was.shape if isinstance(d, int)]
    if len(whole) < was.ndim or old.text != old.whole or sorted(old.whole) != sorted(new.whole):
        return True
    return _outer(new, dict(zip(old.whole, whole, strict=True))) == now.shape


def _outer(layout: Layout, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(size or sizes[letter] // (layout.block(letter) or 1) for letter, size in layout.parts)


def _tensors(ty: Type) -> list[TensorType]:
    fields = ty.fields if isinstance(ty, TupleType) else (ty,)
    return [field for field in fields if isinstance(field, TensorType)]
