"""Tensor intrinsics: statements that do the work of a small te.compute, for Stage.tensorize.

In: an operation that says what the intrinsic computes, and a function `fcompute(ins, outs)` giving statements over
buffers. Out: a `TensorIntrin`. Invariant: `body` computes the operation whole; with a reduction, `reset` stores the
identity and `update` adds one step. Use: `te/tensorize.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from armillary.base.boundary import bounded
from armillary.errors import ScheduleError, TypeMismatch
from armillary.te.inline import rewriter
from armillary.te.operation import ComputeOp, Operation
from armillary.te.tensor import Tensor, TensorSlice
from armillary.tir import build as T
from armillary.tir.buffer_access import strides_of
from armillary.tir.expr import BufferLoad, Expr, IterVar, ProducerLoad, Reduce, Var
from armillary.tir.foreign.addresses import with_addresses
from armillary.tir.stmt import Buffer, BufferStore, Evaluate, Stmt
from armillary.tir.substitute import ExprMapper, map_stmt


@bounded
class TensorIntrin:
    """What an intrinsic computes (`op`) and how (`body`, `reset`, `update`)."""

    def __init__(
        self,
        name: str,
        op: ComputeOp,
        buffers: Mapping[Tensor, Buffer],
        body: Stmt,
        reset: Stmt | None,
        update: Stmt | None,
    ) -> None:
        self.name, self.op, self.places = name, op, dict(buffers)
        self.body, self.reset, self.update = body, reset, update

    def emit(self, part: str, place: Mapping[Buffer, tuple[Buffer, Callable[..., tuple[Expr, ...]]]]) -> Stmt:
        """One part with its buffers put in their places; ScheduleError when the intrinsic has no such part."""
        statement = getattr(self, part)
        if statement is None:
            raise ScheduleError(
                f"tensor intrinsic {self.name} has no {part}, which reduction loops outside it need",
                hint="return (body, reset, update) from its function",
            )

        statement = with_addresses(statement, place)
        values = {v: e for b, (actual, indices) in place.items() for v, e in _layout(b, actual, indices).items()}

        def redirect(e: Expr) -> Expr | None:
            if type(e) is Var:
                return values.get(e)
            if type(e) is BufferLoad and e.buffer in place:
                buffer, indices = place[e.buffer]
                return BufferLoad(buffer, indices(e.indices))
            return None

        mapper = ExprMapper(redirect)

        def visit(s: Stmt) -> Stmt:
            mapped = map_stmt(s, mapper, visit)
            if type(mapped) is BufferStore and mapped.buffer in place:
                buffer, indices = place[mapped.buffer]
                return BufferStore(buffer, mapped.value, indices(mapped.indices))
            return mapped

        return visit(statement)

    @property
    def buffers(self) -> list[Buffer]:
        """The buffers of inputs and outputs, in order."""
        return [self.places[tensor] for tensor in (*self.op.input_tensors, *self.op.outputs)]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that its operation reads."""
        return self.op.input_tensors

    @property
    def reduce_init(self) -> Stmt | None:
        """The part that stores the identity."""
        return self.reset

    def __call__(
        self, *regions: Tensor | TensorSlice, reduce_axis: IterVar | Sequence[IterVar] | None = None
    ) -> TensorIntrinCall:
        """The intrinsic on parts of tensors, as what a te.compute over the axes around it gives."""
        arguments = (
            () if reduce_axis is None else (reduce_axis,) if isinstance(reduce_axis, IterVar) else tuple(reduce_axis)
        )
        return TensorIntrinCall(self, tuple(regions), arguments)

    def __repr__(self) -> str:
        return f"TensorIntrin({self.name})"


class TensorIntrinCall:
    """An intrinsic on regions; `operation` makes the compute of it, whose inner loops the intrinsic replaces."""

    def __init__(
        self, intrinsic: TensorIntrin, regions: tuple[Tensor | TensorSlice, ...], reduce_axis: tuple[IterVar, ...]
    ) -> None:
        self.intrinsic, self.regions, self.reduce_axis = intrinsic, regions, reduce_axis
        wanted = intrinsic.op.input_tensors
        message = f"tensor intrinsic {intrinsic.name}"
        if len(regions) != len(wanted) or not all(isinstance(r, Tensor | TensorSlice) for r in regions):
            raise TypeMismatch(f"{message}: wanted parts of {len(wanted)} tensors", hint="write intrinsic(A[i, 0:16])")
        if reduce_axis and not intrinsic.op.is_reduction:
            raise TypeMismatch(f"{message} computes no reduction, so it cannot be reduced over an axis")

    def operation(self, name: str, outer: tuple[IterVar, ...], extents: tuple[Expr, ...], tag: str) -> ComputeOp:
        """The compute over `outer` axes and, of the other `extents`, the intrinsic's own."""
        own = self.intrinsic.op
        inner = [_axis(f"ax{k}", a, "data") for k, a in enumerate(own.axis)]
        sizes = [T.as_int(e) for e in extents[len(outer) :]]
        if sizes != [T.as_int(_extent(a)) for a in own.axis]:
            message = f"te.compute {name}: its inner dimensions are {sizes}"
            raise TypeMismatch(
                f"{message}, those of {self.intrinsic.name} are {[T.as_int(_extent(a)) for a in own.axis]}"
            )
        reduced = [_axis(a.var.name, a, "reduce") for a in own.reduce_axis]
        axes = zip((*own.axis, *own.reduce_axis), (*inner, *reduced), strict=True)
        place = rewriter({a.var: b.var for a, b in axes}, self._load)
        body = tuple(self._body(b, place, (*self.reduce_axis, *reduced)) for b in own.body)
        result = ComputeOp(name, (*outer, *inner), body, tag)
        result.intrinsic = (self.intrinsic, len(inner), len(reduced))
        return result

    def _load(self, tensor: Tensor, indices: tuple[Expr, ...]) -> Expr:
        """The element of a region that stands for one of the intrinsic's input."""
        region = self.regions[self.intrinsic.op.input_tensors.index(tensor)]
        whole = region if isinstance(region, Tensor) else region.tensor
        leading = () if isinstance(region, Tensor) else region.indices
        places, rest = [], list(indices)
        for position in range(whole.ndim):
            one = leading[position] if position < len(leading) else slice(None)
            if not isinstance(one, slice):
                places.append(T.convert(one))
            elif not rest:
                raise TypeMismatch(f"a region of {whole.name} has more dimensions than {self.intrinsic.name} reads")
            else:
                places.append(T.add(0 if one.start is None else one.start, rest.pop(0)))
        if rest:
            raise TypeMismatch(f"a region of {whole.name} has fewer dimensions than {self.intrinsic.name} reads")
        return ProducerLoad(whole, tuple(places))

    @staticmethod
    def _body(body: Expr, place: Callable[[Expr], Expr], axes: tuple[IterVar, ...]) -> Expr:
        moved = place(body)
        if not isinstance(moved, Reduce):
            return moved
        return Reduce(moved.combiner, moved.source, axes, moved.condition, moved.value_index)


def _layout(declared: Buffer, actual: Buffer, indices: Callable[..., tuple[Expr, ...]]) -> dict[Var, Expr]:
    """What the strides and the offset that an intrinsic's buffer names by variables are in the buffer in its place."""
    steps = strides_of(actual)
    own = steps[len(steps) - len(declared.strides) :] if declared.strides else []
    result = {v: T.cast(s, v.dtype) for v, s in zip(declared.strides, own, strict=True) if isinstance(v, Var)}
    if isinstance(declared.elem_offset, Var):
        first = indices(tuple(T.const(0, extent.dtype) for extent in declared.shape))
        start: Expr = T.const(0) if actual.elem_offset is None else actual.elem_offset
        for index, step in zip(first, steps, strict=True):
            start = T.add(start, T.mul(index, step))
        result[declared.elem_offset] = T.cast(start, declared.elem_offset.dtype)
    return result


def _extent(axis: IterVar) -> Expr:
    assert axis.dom is not None, "axes of a compute have a range"
    return axis.dom.extent


def _axis(name: str, like: IterVar, kind: str) -> IterVar:
    return IterVar(like.dom, Var(name, like.var.dtype), kind)


def decl_tensor_intrin(
    op: Operation,
    fcompute: Callable[[list[Buffer], list[Buffer]], object],
    name: str = "tensor_intrin",
    binds: Mapping[Tensor, Buffer] | None = None,
    scalar_params: object = None,
    default_buffer_params: object = None,
) -> TensorIntrin:
    """Declare an intrinsic: `fcompute(ins, outs)` gives a statement, or (body, reset, update)."""
    if not isinstance(op, ComputeOp):
        raise TypeMismatch(f"tensor intrinsic {name}: got {op!r}, wanted the operation of a te.compute")
    if scalar_params is not None:
        raise TypeMismatch(f"tensor intrinsic {name}: scalar parameters are not supported")
    buffers = dict(binds or {})
    for tensor in (*op.input_tensors, *op.outputs):
        buffers.setdefault(tensor, Buffer(tensor.name, tensor.shape, tensor.dtype))
    statement = fcompute([buffers[t] for t in op.input_tensors], [buffers[t] for t in op.outputs])
    parts = [_statement(name, p) for p in (statement if isinstance(statement, tuple | list) else [statement])]
    if len(parts) not in (1, 2, 3) or parts[0] is None:
        raise TypeMismatch(f"tensor intrinsic {name}: the function gave {len(parts)} parts, wanted 1 or 3")
    reset = parts[1] if len(parts) > 1 else None
    update = parts[2] if len(parts) > 2 else (parts[0] if len(parts) == 2 else None)
    return TensorIntrin(name, op, buffers, parts[0], reset, update)


def _statement(name: str, part: object) -> Stmt | None:
    if part is None or isinstance(part, Stmt):
        return part
    if isinstance(part, Expr):
        return Evaluate(part)
    raise TypeMismatch(f"tensor intrinsic {name}: the function gave {part!r}, wanted a statement")
