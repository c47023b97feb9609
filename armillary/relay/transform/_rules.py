"""What the graph passes share: applying rules to every function of a module, and building calls.

In: a rule on expressions. Out: a module. Invariant: functions that already are one kernel, or belong to a library, are
left alone; a module in which no rule fired is returned as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from armillary.base.record import record
from armillary.errors import InternalError
from armillary.ir import BaseFunc, IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, tensor_of
from armillary.relay.expr import splat as splat
from armillary.relay.infer import infer_type
from armillary.relay.op import Op, get_op, is_call
from armillary.relay.types import TensorType
from armillary.relay.walk import map_children, not_primitive, post_order, rewrite, users

tensor = tensor_of  # the type, where its sizes are known
Readers = dict[int, list[Expr]]  # of each expression, by its id
_SHAPES = frozenset({"shape", "newshape", "axes", "layout"})  # attributes that count axes


def on_functions(module: IRModule, change: Callable[[Function], Expr | None]) -> IRModule:
    """Apply `change` to each typed function of the module that may be changed."""

    def visit(_: str, function: BaseFunc) -> BaseFunc | None:
        if not isinstance(function, Function) or not not_primitive(function):
            return None
        infer_type(function, module)
        changed = change(function)
        if changed is None or isinstance(changed, Function):
            return changed
        raise InternalError("a pass turned a function into something else")

    return module.map_functions(visit)


MOST_FILLED = 1 << 25  # elements of weights among zeros: strides and dilations may be as large as a model says


def is_filled_little(size: int, before: int) -> bool:
    """Whether weights that grow to so many elements, most of them zeros, are no burden."""
    return size <= max(MOST_FILLED, 4 * before)


def rewrite_module(module: IRModule, *rules: Callable[[Expr], Expr | None]) -> IRModule:
    """Rewrite every function bottom-up by the first rule that applies to each node."""

    def first(expr: Expr) -> Expr | None:
        return next((new for r in rules if (new := r(expr)) is not None), None)

    rule = rules[0] if len(rules) == 1 else first
    return on_functions(module, lambda function: rewrite(function, rule, not_primitive))


@record
class Found:
    """What takes an expression's place: `make` of the new forms of `sources`, which lie further up."""

    sources: tuple[Expr, ...]
    make: Callable[..., Expr]


def rewrite_found(module: IRModule, plan_of: Callable[[Expr, Readers], Found | None]) -> IRModule:
    """Rewrite every function by what `plan_of` says of its expressions as they were, with their readers."""

    def change(function: Function) -> Expr | None:
        order = post_order(function, not_primitive)
        readers = users(order)
        plans = {id(e): plan for e in order if (plan := plan_of(e, readers)) is not None}
        memo: dict[int, Expr] = {}

        def new(expr: Expr) -> Expr:
            return memo.get(id(expr), expr)

        for expr in order if plans else ():
            plan = plans.get(id(expr))
            memo[id(expr)] = map_children(expr, new) if plan is None else plan.make(*map(new, plan.sources))
        return memo.get(id(function))

    return on_functions(module, change)


def call(name: str, *args: object, **attrs: object) -> Call:  # expressions or numbers; attribute values
    """A call of the named operator."""
    return get_op(name)(*args, **attrs)


def with_span(call: Expr, source: Call) -> Expr:
    """A call that was made, at the place of another in the text."""
    return Call(call.op, call.args, call.attrs, source.span) if isinstance(call, Call) else call


def transposed(expr: Expr, axes: tuple[int, ...]) -> Expr:
    """The axes in another order; the expression itself where that is its own."""
    return expr if axes == tuple(range(len(axes))) else call("transpose", expr, axes=axes)


def axes_of(expr: Expr) -> tuple[int, ...]:
    """The order into which a transposition that names all axes brings them, counted from the first; () of others."""
    if not is_call(expr, "transpose"):
        return ()
    axes: tuple[int, ...] = expr.attrs.axes or ()
    return tuple(axis % len(axes) for axis in axes)


def concatenated(parts: Sequence[Expr], axis: int) -> Expr:
    """Tensors one after another; a single one is itself."""
    return parts[0] if len(parts) == 1 else call("concatenate", Tuple(tuple(parts)), axis=axis)


def factor_of(expr: Expr) -> tuple[Expr, float] | None:
    """(x, c) of x * c, c * x or x / c, of a number c that is not 0."""
    is_product = is_call(expr, "multiply")
    if not isinstance(expr, Call) or not (is_product or is_call(expr, "divide")):
        return None
    for value, factor in (expr.args, expr.args[::-1])[: 1 + is_product]:
        number = splat(factor)
        if number and value.checked_type == expr.checked_type:
            return value, float(number) if is_product else 1.0 / float(number)
    return None


def is_square_of(expr: Expr, value: Expr) -> bool:
    """Whether it is value * value, or value ** 2."""
    if is_call(expr, "power"):
        return expr.args[0] is value and splat(expr.args[1]) == 2
    return is_call(expr, "multiply") and expr.args[0] is value and expr.args[1] is value


def op_name(expr: object) -> str:
    """The operator an expression calls, or ""."""
    return expr.op.name if isinstance(expr, Call) and isinstance(expr.op, Op) else ""


def known(expr: Expr) -> TensorType:
    """The type of an expression that is known to be such a tensor."""
    ty = tensor(expr)
    assert ty is not None, "a tensor of known shape"
    return ty


def is_from_constants(expr: Expr) -> bool:
    """Whether a tensor depends on constants alone: what fold-constant leaves of it runs when weights are loaded."""
    leaves_only = (isinstance(n, Constant | Op) or (isinstance(n, Call) and _is_pure(n)) for n in post_order(expr))
    return all(leaves_only)


def _is_pure(item: Call) -> bool:
    return isinstance(item.op, Op) and not item.op.stateful


def names_places(expr: Call) -> bool:
    """Whether attributes would say something else of four axes: a shape, or an axis behind the channels."""
    attrs = {} if expr.attrs is None else {f.name: getattr(expr.attrs, f.name) for f in dataclasses.fields(expr.attrs)}
    return not _SHAPES.isdisjoint(attrs) or attrs.get("axis", 1) not in (0, 1)
