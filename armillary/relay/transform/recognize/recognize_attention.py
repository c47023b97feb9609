"""recognize-attention: a product, a softmax and a product as one nn.attention.

In: a typed module. Out: one where nn.batch_matmul(softmax(scale * nn.batch_matmul(q, k) + mask), v) is nn.attention or
nn.masked_attention on tensors of four axes: the transpositions and parts of one projection that lead to q, k and v
become layouts and offsets, heads of keys and values that are repeated for a group of query heads are read by all of
it, and the result is written positions first. Invariant: the values are the same up to
rounding; scores that something else reads stay. A choice (`where`) by a constant condition with a large negative number
is a mask if every row keeps an element; one that makes whole rows of weights 0 makes rows of the result 0 instead, as
ONNX's Attention asks for where a mask hides all keys. What the operator means: ops/nn/attention.py.

    softmax(q k^T * 0.5) v, with q = reshape(transpose(reshape(x, (1, t, 2, d)))) …
    ->
    nn.attention(reshape(x, (1, t, 2, d)), …, scale=0.5, heads=2)
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from armillary.base.extent import Known
from armillary.base.record import record
from armillary.ir import IRModule
from armillary.ops.nn._windows import reshape_to
from armillary.relay.expr import Call, Constant, Expr, Function, TupleGetItem, known_of
from armillary.relay.op import has
from armillary.relay.op.facts import Fact
from armillary.relay.transform._rules import call, factor_of, on_functions, op_name, splat, transposed
from armillary.relay.walk import not_primitive, post_order, substitute, users
from armillary.transform import define_pass

MASKED = -1e4  # scores this low have no weight
_CHOICE = "where"
FEATURES = 8  # a head's features are a multiple of this, as vectors want them


@record
class Operand:
    """A tensor of four axes, the names of its axes, where its heads start, and how often each of them is used."""

    expr: Expr
    layout: str
    offset: int = 0
    scale: float = 1.0
    shared: int = 1


@record
class Scores:
    """scale * product + mask (of four axes), and the nodes between the product and the softmax."""

    product: Call
    scale: float = 1.0
    mask: Expr | None = None
    between: tuple[Expr, ...] = ()


@define_pass("recognize-attention", opt_level=3)
def recognize_attention(module: IRModule) -> IRModule:
    """Replace the arithmetic of attention by the operator."""
    return on_functions(module, _all)


def _all(function: Function) -> Expr | None:
    """One at a time, since the inputs of one hold the others."""
    result: Expr | None = None
    current: Expr = function
    while isinstance(current, Function) and (changed := _one(current)) is not None:
        result = current = changed
    return result


def _one(function: Function) -> Expr | None:
    order = post_order(function, not_primitive)
    readers = users(order)
    for expr in order:
        if op_name(expr) == "nn.batch_matmul" and isinstance(expr, Call):
            new = _attention(expr, readers)
            if new is not None and new.checked_type == expr.checked_type:
                return substitute(function, {id(expr): new})
    return None


def _attention(expr: Call, readers: dict[int, list[Expr]]) -> Expr | None:
    """The replacement of a product with values, or None."""
    weights, chain = expr.args[0], [expr.args[0]]
    if expr.attrs.transpose_a or known_of(expr) is None:
        return None
    if has(weights, Fact.VIEW) and isinstance(weights, Call):
        weights = weights.args[0]
        chain.append(weights)
    guarded = _numbers(weights)
    if guarded is not None and isinstance(weights, Call):
        if len(readers.get(id(guarded), ())) != 2:  # the test and the choice
            return None
        chain.append(weights.args[0])
        weights = guarded
    blank = _blank_rows(weights)
    if blank is not None and isinstance(weights, Call):
        weights = weights.args[2]
        chain.append(weights)
    ty = known_of(weights)
    if op_name(weights) != "nn.softmax" or not isinstance(weights, Call) or ty is None or str(ty.dtype) != "float32":
        return None
    shape = ty.known if ty.ndim == 4 else (1, *ty.known)
    if ty.ndim == 3 and not isinstance(shape[1], int):
        shape = (shape[1], 1, *shape[2:])  # how many heads there are is a number
    if len(shape) != 4 or not isinstance(shape[1], int) or weights.attrs.axis not in (-1, ty.ndim - 1) or 0 in shape:
        return None  # without keys the product is 0; there is no maximum of scores
    scores = _scores(weights.args[0], (shape[0], shape[1], shape[2], shape[3]))
    if scores is None or any(len(readers.get(id(e), ())) > 1 for e in (*chain, *scores.between)):
        return None
    result = _replacement(expr, scores, shape[0], shape[1], guarded is not None)
    return result if result is None or blank is None else _blanked(result, blank, shape)


def _zeroed(weights: Expr) -> tuple[Expr, Expr] | None:
    """(condition, w) of where(condition, 0, w)."""
    if op_name(weights) != _CHOICE or not isinstance(weights, Call):
        return None
    condition, zero, retained = weights.args
    return (condition, retained) if splat(zero) == 0 and retained.checked_type == weights.checked_type else None


def _numbers(weights: Expr) -> Expr | None:
    """w of where(isnan(w), 0, w): PyTorch's exporter says so of rows that a mask hides."""
    condition, retained = _zeroed(weights) or (weights, None)
    is_guard = op_name(condition) == "isnan" and isinstance(condition, Call) and condition.args[0] is retained
    return retained if is_guard else None


def _blank_rows(weights: Expr) -> Expr | None:
    """The condition of where(condition, 0, weights), if it is one for each row."""
    choice = _zeroed(weights)
    ty = None if choice is None else known_of(choice[0])
    is_of_rows = ty is not None and 0 < ty.ndim <= 4 and ty.known[-1] == 1
    return choice[0] if choice is not None and is_of_rows else None


def _blanked(expr: Expr, blank: Expr, shape: tuple[Known, ...]) -> Expr | None:
    """Zeros in the rows of a result, (batch * heads, rows, features), that are blank."""
    if isinstance(blank, Constant) and not blank.data.any():
        return expr
    ty, rank = known_of(expr), known_of(blank)
    if ty is None or rank is None:
        return None
    dims = (1,) * (4 - rank.ndim) + rank.known
    if any(d not in (1, n) for d, n in zip(dims[:3], shape, strict=False)):
        return None
    whole = reshape_to(expr, (*shape[:3], ty.known[-1]))
    return reshape_to(call(_CHOICE, reshape_to(blank, dims), np.float32(0), whole), ty.known)


def _replacement(expr: Call, scores: Scores, batch: Known, heads: int, blank: bool) -> Expr | None:
    product = scores.product
    if product.attrs.transpose_a:
        return None
    query = operand(product.args[0], batch, heads, "TD")
    key = operand(product.args[1], batch, heads, "TD" if product.attrs.transpose_b else "DT")
    value = operand(expr.args[1], batch, heads, "DT" if expr.attrs.transpose_b else "TD")
    result = known_of(expr)
    if query is None or key is None or value is None or result is None or result.known[-1] % FEATURES:
        return None
    if value.scale != 1.0 or query.shared != 1 or key.shared != value.shared:
        return None
    attrs = {
        "scale": scores.scale * query.scale * key.scale,
        "heads": heads,
        "query_layout": query.layout,
        "key_layout": key.layout,
        "value_layout": value.layout,
        "offsets": (query.offset, key.offset, value.offset),
        "shared": key.shared,
        "blank": blank,
    }
    inputs = (query.expr, key.expr, value.expr)
    if scores.mask is None:
        attention = call("nn.attention", *inputs, **attrs)
    else:
        attention = call("nn.masked_attention", *inputs, scores.mask, **attrs)
    return reshape_to(transposed(attention, (0, 2, 1, 3)), result.known)


# --- scores ----------------------------------------------------------------------------------------------------------


def _scores(expr: Expr, shape: tuple[Known, Known, Known, Known]) -> Scores | None:
    """What a softmax reads, as scale * product + mask; `shape` is (batch, heads, rows, columns)."""
    if not isinstance(expr, Call):
        return None
    name = op_name(expr)
    if name == "nn.batch_matmul":
        flat = (shape[0] * shape[1], *shape[2:])
        ty = known_of(expr)
        return Scores(expr, between=(expr,)) if ty is not None and ty.known == flat else None
    if has(expr, Fact.VIEW):
        inner = _scores(expr.args[0], shape)
    elif (factor := factor_of(expr)) is not None:
        return _scaled(expr, *factor, shape)
    elif name == "add":
        return _masked(expr, shape)
    elif name == _CHOICE:
        return _chosen(expr, shape)
    else:
        return None
    return None if inner is None else replace(inner, between=(expr, *inner.between))


def _scaled(expr: Call, value: Expr, factor: float, shape: tuple[Known, Known, Known, Known]) -> Scores | None:
    inner = _scores(value, shape)
    if inner is None:
        return None
    mask = None if inner.mask is None else inner.mask * np.float32(factor)
    return replace(inner, scale=inner.scale * factor, mask=mask, between=(expr, *inner.between))


def _masked(expr: Call, shape: tuple[Known, Known, Known, Known]) -> Scores | None:
    for value, other in (expr.args, expr.args[::-1]):
        inner = _scores(value, shape) if value.checked_type == expr.checked_type else None
        if inner is not None and isinstance(other, Constant) and not other.data.any():
            return replace(inner, between=(expr, *inner.between))
        mask = None if inner is None else _as_mask(other, expr, shape)
        if inner is not None and mask is not None:
            both = mask if inner.mask is None else mask + inner.mask
            return replace(inner, mask=both, between=(expr, *inner.between))
    return None


def _as_mask(mask: Expr, scores: Expr, shape: tuple[Known, Known, Known, Known]) -> Expr | None:
    """The mask with four axes, of sizes 1 or those of the scores."""
    have, whole = known_of(mask), known_of(scores)
    if have is None or whole is None or have.dtype != whole.dtype or (whole.ndim == 3 and shape[0] != 1):
        return None
    dims = (1,) * (4 - have.ndim) + have.known
    if len(dims) != 4 or any(d not in (1, n) for d, n in zip(dims, shape, strict=True)):
        return None
    return mask if have.ndim == 4 else reshape_to(mask, dims)


def _chosen(expr: Call, shape: tuple[Known, Known, Known, Known]) -> Scores | None:
    """where(condition, low, x) or where(condition, x, low)."""
    condition, yes, no = expr.args
    low_first = splat(yes) is not None
    low, value = splat(yes if low_first else no), no if low_first else yes
    if not isinstance(condition, Constant) or low is None or low > MASKED or value.checked_type != expr.checked_type:
        return None
    hidden = condition.data.astype(bool) if low_first else ~condition.data.astype(bool)
    inner = _scores(value, shape) if not bool(hidden.all(-1).any()) else None
    mask = None if inner is None else Constant(np.where(hidden, np.float32(low), np.float32(0)))
    whole = None if mask is None else _as_mask(mask, expr, shape)
    if inner is None or whole is None:
        return None
    both = whole if inner.mask is None else whole + inner.mask
    return replace(inner, mask=both, between=(expr, *inner.between))


# --- operands --------------------------------------------------------------------------------------------------------


def operand(expr: Expr, batch: Known, heads: int, matrix: str) -> Operand | None:
    """An operand of a batched product, of shape (batch * heads, *matrix), by what it was made from."""
    ty = known_of(expr)
    if ty is None or ty.ndim != 3 or ty.known[0] != batch * heads:
        return None
    scale, shape = 1.0, (batch, heads, *ty.known[1:])
    source = expr
    while isinstance(source, Call):
        scaled, have = (source.args[0], 1.0) if has(source, Fact.VIEW) else factor_of(source), known_of(source)
        if scaled is None or have is None or have.known == shape:
            break
        source, scale = scaled[0], scale * scaled[1]
    inner = known_of(source)
    if inner is None or math.prod(inner.known) != math.prod(shape):
        return Operand(reshape_to(expr, shape), "BH" + matrix)
    if inner.known != shape:
        source = reshape_to(source, shape)
    return _unmoved(Operand(source, "BH" + matrix, scale=scale))


def _unmoved(operand: Operand) -> Operand:
    """Transpositions, factors and parts of a joint projection taken off an operand, as far as they go."""
    while isinstance(operand.expr, Call):
        expr, factor = operand.expr, factor_of(operand.expr)
        if factor is not None:
            operand = replace(operand, expr=factor[0], scale=operand.scale * factor[1])
        elif op_name(expr) == "transpose":
            operand = replace(operand, expr=expr.args[0], layout=_before(expr, operand.layout))
        elif (single := _repeated(operand)) is not None:
            operand = single
        else:
            break
    return _part(operand) or operand


def _repeated(operand: Operand) -> Operand | None:
    """Heads of which each stands several times in a row: reshape(broadcast_to(x, (b, heads, times, t, d))), or tile."""
    whole, ty, at = operand.expr, known_of(operand.expr), operand.layout.index("H")
    wide = whole.args[0] if isinstance(whole, Call) and has(whole, Fact.VIEW) else None
    if wide is None or ty is None or not isinstance(wide, Call):
        return None
    if op_name(wide) != "broadcast_to" and not hasattr(wide.attrs, "reps"):
        return None
    shape, source = known_of(wide), known_of(wide.args[0])
    if shape is None or source is None or shape.ndim != ty.ndim + 1:
        return None
    heads, times = shape.known[at : at + 2]
    if not isinstance(times, int):
        return None
    before, after = ty.known[:at], ty.known[at + 1 :]
    dims_known = (1,) * (shape.ndim - source.ndim) + source.known
    if (shape.known, dims_known) != ((*before, heads, times, *after), (*before, heads, 1, *after)):
        return None
    single, dims = wide.args[0], (*before, heads, *after)
    if isinstance(single, Call) and has(single, Fact.VIEW):
        inner = known_of(single.args[0])
        single = single.args[0] if inner is not None and inner.known == dims else single
    same = known_of(single)
    repeated = single if same is not None and same.known == dims else reshape_to(single, dims)
    return replace(operand, expr=repeated, shared=operand.shared * times)


def _before(expr: Call, layout: str) -> str:
    """The names of the axes of a transposition's input."""
    axes = expr.attrs.axes or tuple(reversed(range(len(layout))))
    letters = [""] * len(layout)
    for position, axis in enumerate(axes):
        letters[axis % len(layout)] = layout[position]
    return "".join(letters)


def _part(operand: Operand) -> Operand | None:
    """A part of a joint projection, as heads of the whole."""
    part, ty = _section(operand.expr), known_of(operand.expr)
    if part is None or ty is None:
        return None
    whole, axis, index, count = part
    shape = known_of(whole)
    if shape is None:
        return None
    letters, heads = operand.layout, ty.known[operand.layout.index("H")]
    if op_name(whole) == "transpose" and isinstance(whole, Call) and shape.ndim == 5:
        # (3, B, H, T, D), a transposition of (B, T, 3, H, D)
        if axis != 0 or shape.known != (count, *ty.known):
            return None
        letters = _before(whole, "3" + letters)
        if "3H" not in letters:
            return None
        whole, letters = whole.args[0], letters.replace("3", "")
    elif letters[-2:] != "HD" or axis != shape.ndim - 1 or shape.ndim != 3 or shape.known[:2] != ty.known[:2]:
        return None  # else (B, T, 3 * H * D)
    if not isinstance(heads, int):
        return None
    dims = dict(zip(operand.layout, ty.known, strict=True)) | {"H": count * heads}
    joined = reshape_to(whole, tuple(dims[c] for c in letters))
    return replace(operand, expr=joined, layout=letters, offset=index * heads)


def _section(expr: Expr) -> tuple[Expr, int, int, int] | None:
    """(whole, axis, index, count) of one of `count` equal parts along an axis."""
    while has(expr, Fact.VIEW) and isinstance(expr, Call):
        expr = expr.args[0]
    if isinstance(expr, TupleGetItem) and op_name(expr.tuple_value) == "split":
        return _split_part(expr)
    if isinstance(expr, Call) and hasattr(expr.attrs, "slice_mode"):
        return _sliced(expr)
    return _taken(expr) if op_name(expr) == "take" and isinstance(expr, Call) else None


def _split_part(expr: TupleGetItem) -> tuple[Expr, int, int, int] | None:
    """A field of a split into equal parts."""
    source = expr.tuple_value
    ty = known_of(source.args[0]) if isinstance(source, Call) else None
    if ty is None or not isinstance(source, Call):
        return None
    axis, cuts = source.attrs.axis % ty.ndim, source.attrs.indices_or_sections
    count = cuts if isinstance(cuts, int) else len(cuts) + 1
    whole = ty.known[axis]
    if not isinstance(whole, int):
        return None
    step = whole // count
    if not isinstance(cuts, int) and (*cuts, whole) != tuple(step * (k + 1) for k in range(count)):
        return None
    return source.args[0], axis, expr.index, count


def _sliced(expr: Call) -> tuple[Expr, int, int, int] | None:
    """A slice of the last axis, as combine-parallel-dense writes it, that is one of equal parts."""
    ty, part, attrs = known_of(expr.args[0]), known_of(expr), expr.attrs
    if ty is None or part is None or attrs.slice_mode != "size" or ty.known[:-1] != part.known[:-1]:
        return None
    (*outer, begin), size, whole = attrs.begin, part.known[-1], ty.known[-1]
    is_part = len(attrs.begin) == ty.ndim and not any(outer) and set(attrs.strides) == {1}
    if not is_part or not isinstance(size, int) or not isinstance(whole, int) or size <= 0:
        return None
    return None if begin % size or whole % size else (expr.args[0], ty.ndim - 1, begin // size, whole // size)


def _taken(expr: Call) -> tuple[Expr, int, int, int] | None:
    """One index of an axis."""
    ty, place, position = known_of(expr.args[0]), known_of(expr.args[1]), splat(expr.args[1])
    if ty is None or place is None or math.prod(place.known) != 1 or position is None or expr.attrs.axis is None:
        return None
    axis = expr.attrs.axis % ty.ndim
    count = ty.known[axis]
    is_part = isinstance(count, int) and 0 <= position < count
    return (expr.args[0], axis, int(position), count) if is_part and isinstance(count, int) else None
