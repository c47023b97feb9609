"""Images that branches and loops around convolutions read, in blocks where they are bound.

In: a function whose convolutions are on blocks of channels, in basic block normal form. Out: a Let of an image that was
moved out of blocks, and that a reader moves there again, binds the blocks. Invariant: each reader that wants the image
as it was moves it by itself, so that a branch computes nothing for another. Who asks: block-channels.

    let %h = layout_transform(%b, NCHW4c, NCHW); if (%c) { f(layout_transform(%h, NCHW, NCHW4c)) } else { %h }
    ->
    let %w = %b; if (%c) { f(%w) } else { layout_transform(%w, NCHW4c, NCHW) }
"""

from __future__ import annotations

from armillary.base.data_layout import Layout
from armillary.relay.expr import Call, Expr, Function, Let, Var, var
from armillary.relay.infer import infer_type
from armillary.relay.transform._rules import op_name
from armillary.relay.transform.layout._engine import transform
from armillary.relay.walk import map_children, not_primitive, post_order, users


def with_bound_blocks(function: Function, plain: Layout, blocked: Layout) -> Function:
    """Bind images in `blocked` instead of `plain` where a reader wants them so."""
    infer_type(function)
    order = post_order(function, not_primitive)
    readers = users(order)
    variables: dict[int, Var] = {}
    for expr in order:
        moved_value = _moved(expr.value, blocked, plain) if isinstance(expr, Let) else None
        if moved_value is None or not isinstance(expr, Let):
            continue
        if any(_moved(reader, plain, blocked) is not None for reader in readers[id(expr.var)]):
            variables[id(expr.var)] = var(expr.var.name_hint, moved_value.checked_type)
    if not variables:
        return function
    new: dict[int, Expr] = {}

    def child(expr: Expr) -> Expr:
        bound = variables.get(id(expr))
        return new.get(id(expr), expr) if bound is None else transform(bound, blocked, plain)

    for expr in order:
        source = _moved(expr, plain, blocked)
        if isinstance(expr, Let) and id(expr.var) in variables:
            value = _moved(expr.value, blocked, plain)
            assert value is not None, "such are found"
            new[id(expr)] = Let(variables[id(expr.var)], new.get(id(value), value), child(expr.body), expr.span)
        elif source is not None and id(source) in variables:
            new[id(expr)] = variables[id(source)]
        else:
            new[id(expr)] = map_children(expr, child)
    result = new[id(function)]
    assert isinstance(result, Function), "children change, not what an expression is"
    return result


def _moved(expr: Expr, source: Layout, target: Layout) -> Expr | None:
    """What a call moves from one layout to another; None of anything else."""
    if op_name(expr) != "layout_transform" or not isinstance(expr, Call):
        return None
    is_so = expr.attrs.src_layout == source.text and expr.attrs.dst_layout == target.text
    return expr.args[0] if is_so else None
