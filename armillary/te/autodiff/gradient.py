"""`te.gradient`: how a result changes with its inputs, as tensors.

In: an output tensor, the tensors by which to derive, and the gradient of some number by the output (`head`). Out: the
gradients of that number by these tensors. Invariant: adjoints go backwards through computes, each the sum over all
readers; an element's adjoint adds up over the loop axes that reach it, which `solve.py` finds, not over all of them.
Sums, maxima and minima are passed through; other reductions make a tensor of all derivatives (a Jacobian).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.base.boundary import boundary
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.te.api import compute, reduce_axis
from armillary.te.autodiff.derivative import added, derivative, times
from armillary.te.autodiff.solve import solve
from armillary.te.inline import rewriter
from armillary.te.operation import ComputeOp, Operation, PlaceholderOp, parts
from armillary.te.reduction import sum as total
from armillary.te.schedule import in_order, producers
from armillary.te.tensor import Tensor, shape_text
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir.expr import CommReducer, Expr, IterVar, ProducerLoad, Range, Reduce, Var

Element = Callable[[Sequence[Expr]], Expr]


@boundary("te.gradient", arguments=True)
def gradient(output: Tensor, inputs: Tensor | Sequence[Tensor], head: Tensor | None = None) -> list[Tensor]:
    """The gradients by `inputs`, in their order, of what `head` is the gradient of by `output`.

    `head` has the shape of `output`, perhaps with axes in front, which the results then have, too; without it they are
    Jacobians: (*output.shape, *input.shape). At ties of a maximum all equal elements share the gradient.
    Raises TypeMismatch for tensors of integers and a head of another shape, UnsupportedError for externs, scans and
    functions without a derivative.
    """
    wanted = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for tensor in (output, *wanted):
        if not isinstance(tensor, Tensor) or not tensor.dtype.is_float:
            raise TypeMismatch(f"te.gradient: got {tensor!r}, wanted tensors of floats")
    start = _identity(output) if head is None else head
    if not isinstance(start, Tensor) or start.ndim < output.ndim or not _ends_alike(start, output):
        got = shape_text(start.shape) if isinstance(start, Tensor) else repr(start)
        raise TypeMismatch(f"te.gradient: the head has the shape {got}, wanted {shape_text(output.shape)} at its end")
    lead = start.shape[: start.ndim - output.ndim]
    adjoints: dict[Tensor, list[Tensor]] = {output: [start]}
    for op in _backwards(output.op, wanted):
        for tensor in op.outputs:
            if tensor in adjoints:
                _through(tensor, _sum(adjoints[tensor], tensor), len(lead), wanted, adjoints)
    return [_sum(adjoints[t], t) if t in adjoints else _zeros(t, lead) for t in wanted]


def _ends_alike(head: Tensor, output: Tensor) -> bool:
    sizes = zip(head.shape[head.ndim - output.ndim :], output.shape, strict=True)
    return all(a is b or (T.as_int(a) is not None and T.as_int(a) == T.as_int(b)) for a, b in sizes)


def _identity(output: Tensor) -> Tensor:
    def element(*at: Expr) -> Expr:
        pairs = zip(at[: output.ndim], at[output.ndim :], strict=True)
        return T.select(T.all_of(T.const(True), *(T.equal(a, b) for a, b in pairs)), _one(output), _zero(output))

    return compute((*output.shape, *output.shape), element, name="identity")


def _one(tensor: Tensor) -> Expr:
    return T.const(1, tensor.dtype)


def _zero(tensor: Tensor) -> Expr:
    return T.const(0, tensor.dtype)


def _zeros(tensor: Tensor, lead: Sequence[Expr]) -> Tensor:
    result: Tensor = compute((*lead, *tensor.shape), lambda *_: _zero(tensor), name=f"{tensor.op.name}_grad")
    return result


def _sum(terms: list[Tensor], of: Tensor) -> Tensor:
    """One tensor for all that readers say; it takes their place."""
    if len(terms) > 1:
        first, rest = terms[0], terms[1:]

        def element(*at: Expr) -> Expr:
            value = first(*at)
            for term in rest:
                value = T.add(value, term(*at))
            return value

        terms[:] = [compute(first.shape, element, name=f"{of.op.name}_grad")]
    return terms[0]


def _backwards(output: Operation, wanted: Sequence[Tensor]) -> list[Operation]:
    """The operations between, readers before what they read."""
    order = in_order([output], producers)
    between = set[Operation]()
    for op in order:
        if any(tensor in wanted or tensor.op in between for tensor in op.input_tensors):
            between.add(op)
    return [op for op in reversed(order) if op in between]


def _through(
    tensor: Tensor, adjoint: Tensor, lead: int, wanted: Sequence[Tensor], adjoints: dict[Tensor, list[Tensor]]
) -> None:
    """Add what one operation's output hands to the tensors that it reads."""
    op = tensor.op
    if isinstance(op, PlaceholderOp):
        return
    if not isinstance(op, ComputeOp) or op.intrinsic is not None:
        raise UnsupportedError(f"te.gradient: {op.name} is no plain te.compute", hint="derive by its results instead")
    body = op.body[tensor.value_index]
    if isinstance(body, Reduce) and len(body.source) > 1:
        raise UnsupportedError(f"te.gradient: {op.name} reduces several values at once")
    whole = _passed_through(tensor, body)
    for source in op.input_tensors:
        if not source.dtype.is_float:
            continue
        if whole is None:
            assert isinstance(body, Reduce), "others are passed through"
            total: Tensor | None = _by_jacobian(tensor, body, adjoint, lead, source)
        else:
            total = _adjoint(tensor, adjoint, lead, source, *whole)
        if total is not None:
            adjoints.setdefault(source, []).append(total)


Whole = tuple[Expr, Expr, Expr, tuple[IterVar, ...]]  # what is derived, a weight, a condition, the reduction axes


def _passed_through(tensor: Tensor, body: Expr) -> Whole | None:
    """A body as a weighted sum of what is derived; None for reductions that are none."""
    yes, one = T.const(True), _one(tensor)
    if not isinstance(body, Reduce):
        return body, one, yes, ()
    (source,), (result,) = body.source, body.combiner.result
    sides = {body.combiner.lhs[0], body.combiner.rhs[0]}
    is_pair = isinstance(result, E.Add | E.Max | E.Min) and {result.a, result.b} == sides
    if not is_pair:
        return None
    if isinstance(result, E.Add):
        return source, one, body.condition, body.axis
    best = tensor(*(a.var for a in tensor.op.axis))
    equal = T.logical_and(body.condition, T.equal(source, best))
    ties = _count(tensor, equal, body.axis)
    return source, T.div(one, ties(*(a.var for a in tensor.op.axis))), equal, body.axis


def _count(tensor: Tensor, condition: Expr, axes: tuple[IterVar, ...]) -> Tensor:
    """How many elements are the largest, or the smallest."""
    fresh = [reduce_axis(_range(a), a.var.name) for a in axes]

    def element(*at: Expr) -> Expr:
        old = (*tensor.op.axis, *axes)
        put = rewriter({a.var: T.convert(v) for a, v in zip(old, (*at, *fresh), strict=True)})
        return total(T.select(put(condition), _one(tensor), _zero(tensor)), axis=fresh)

    result: Tensor = compute(tensor.shape, element, name=f"{tensor.op.name}_ties")
    return result


def _loads(body: Expr, source: Tensor) -> list[ProducerLoad]:
    return [part for part in parts([body]) if isinstance(part, ProducerLoad) and part.producer is source]


def _adjoint(
    tensor: Tensor,
    adjoint: Tensor,
    lead: int,
    source: Tensor,
    body: Expr,
    weight: Expr,
    condition: Expr,
    reduced: tuple[IterVar, ...],
) -> Tensor | None:
    """What one operation hands to one tensor: a sum for each place where it reads it."""
    adjoints: list[Tensor] = []
    for load in _loads(body, source):
        local = times(weight, derivative(body, load))
        if local is not None:
            adjoints.append(_scattered(tensor, adjoint, lead, load, T.cast(local, source.dtype), condition, reduced))
    return _sum(adjoints, source) if adjoints else None


def _scattered(
    tensor: Tensor,
    adjoint: Tensor,
    lead: int,
    load: ProducerLoad,
    local: Expr,
    condition: Expr,
    reduced: tuple[IterVar, ...],
) -> Tensor:
    """For each element of the tensor that is read: the sum over what reads it."""
    source: Tensor = load.producer
    axes = {a.var: _extent(a) for a in (*tensor.op.axis, *reduced)}
    places = [Var(f"p{k}", T.convert(extent).dtype) for k, extent in enumerate(source.shape)]
    shifted = {a.var: T.add(a.var, a.dom.min) for a in reduced if a.dom is not None and T.as_int(a.dom.min) != 0}
    from_zero = rewriter(shifted) if shifted else (lambda item: item)
    places_of = solve(list(zip(map(from_zero, load.indices), places, strict=True)), axes)
    fresh = {var: reduce_axis((0, extent), var.name) for var, extent in places_of.left.items()}
    indices = [a.var for a in tensor.op.axis]

    def element(*at: Expr) -> Expr:
        known = dict(zip(places, at[lead:], strict=True)) | {var: axis.var for var, axis in fresh.items()}
        put = rewriter({v: T.convert(value) for v, value in known.items()})
        move = rewriter(
            {v: put(value) for v, value in places_of.values.items()} | {v: T.convert(x) for v, x in known.items()}
        )
        conditions = [*(put(c) for c in places_of.conditions), move(from_zero(condition))]
        value = T.mul(adjoint(*at[:lead], *(move(i) for i in indices)), move(from_zero(local)))
        guarded = T.if_then_else(T.all_of(*conditions), value, _zero(source))
        return total(guarded, axis=list(fresh.values())) if fresh else guarded

    shape = (*adjoint.shape[:lead], *source.shape)
    result: Tensor = compute(shape, element, name=f"{source.op.name}_grad")
    return result


def _range(axis: IterVar) -> Range:
    assert axis.dom is not None, "axes of a compute have a range"
    return axis.dom


def _extent(axis: IterVar) -> Expr:
    return _range(axis).extent


def _by_jacobian(tensor: Tensor, body: Reduce, adjoint: Tensor, lead: int, source: Tensor) -> Tensor | None:
    """Through a reduction of any kind: the derivatives of all elements by all, then their sum."""
    (value,), loads = body.source, _loads(body.source[0], source)
    if not loads:
        return None
    fresh = [reduce_axis(_range(a), a.var.name) for a in body.axis]
    count, dual = tensor.ndim, _dual(body.combiner)

    def element(*at: Expr) -> tuple[Expr, ...]:
        old = (*(a.var for a in tensor.op.axis), *(a.var for a in body.axis))
        put = rewriter(dict(zip(old, map(T.convert, (*at[:count], *fresh)), strict=True)))
        slope: Expr | None = None
        for load in loads:
            pairs = zip(load.indices, at[count:], strict=True)
            here = T.all_of(*(T.equal(put(i), p) for i, p in pairs))
            local = derivative(value, load)
            if local is not None:
                slope = added(slope, T.if_then_else(here, put(local), _zero(source)))
        sources = (put(value), _zero(source) if slope is None else T.cast(slope, value.dtype))
        axes, where = tuple(fresh), put(body.condition)
        return tuple(Reduce(dual, sources, axes, where, k) for k in range(2))

    _, jacobian = compute((*tensor.shape, *source.shape), element, name=f"{tensor.op.name}_jacobian")
    over = [reduce_axis((0, extent), f"r{k}") for k, extent in enumerate(tensor.shape)]
    shape = (*adjoint.shape[:lead], *source.shape)
    result: Tensor = compute(
        shape,
        lambda *at: total(adjoint(*at[:lead], *over) * jacobian(*over, *at[lead:]), axis=over),
        name=f"{source.op.name}_grad",
    )
    return result


def _dual(combiner: CommReducer) -> CommReducer:
    """The combiner of values and their derivatives."""
    (x,), (y,), (result,), (identity,) = combiner.lhs, combiner.rhs, combiner.result, combiner.identity
    dx, dy = Var("dx", x.dtype), Var("dy", y.dtype)
    slope = added(times(derivative(result, x), dx), times(derivative(result, y), dy))
    zero = T.const(0, x.dtype)
    return CommReducer((x, dx), (y, dy), (result, zero if slope is None else slope), (identity, zero))
